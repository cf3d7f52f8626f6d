//! Replays the fuzzer's corpus and random mutations of it, so that a plain test run covers what fuzzing
//! found.

use std::fs;
use std::path::Path;

#[test]
fn cutting_and_joining_accept_the_fuzzing_corpus() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/netio_segment");
    let mut inputs: Vec<Vec<u8>> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "the corpus is committed");
    inputs.iter().for_each(|input| crate::fuzz::segment(input));
    let mut random = testkit::Random(1);
    for round in 0..20_000 {
        let mut input = inputs[round % inputs.len()].clone();
        for _ in 0..=random.below(4) {
            // mutates mostly the headers
            let end = if random.below(4) == 0 { input.len() } else { input.len().min(80) };
            let at = random.index(end);
            input[at] = random.draw() as u8;
        }
        if random.below(8) == 0 {
            input.truncate(random.index(input.len()) + 1);
        }
        crate::fuzz::segment(&input);
    }
}
