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
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for round in 0..20_000 {
        let mut input = inputs[round % inputs.len()].clone();
        for _ in 0..=random() % 4 {
            // mutates mostly the headers
            let end = if random().is_multiple_of(4) { input.len() } else { input.len().min(80) };
            input[random() % end] = random() as u8;
        }
        if random().is_multiple_of(8) {
            input.truncate(random() % input.len() + 1);
        }
        crate::fuzz::segment(&input);
    }
}
