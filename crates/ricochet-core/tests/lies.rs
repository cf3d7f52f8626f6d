//! Replays the corpus of a node among liars and random mutations of them, so that a plain test run keeps what fuzzing found.

mod liar;

use std::fs;
use std::path::Path;

fn replay(corpus: &str, target: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut inputs: Vec<Vec<u8>> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "the corpus {corpus} is committed");
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for input in &inputs {
        target(input);
    }
    for round in 0..1_500 {
        let mut input = inputs[round % inputs.len()].clone();
        for _ in 0..=random() % 4 {
            if !input.is_empty() {
                let at = random() % input.len();
                input[at] = random() as u8;
            }
        }
        input.truncate(random() % (input.len() + 1) + 1);
        target(&input);
    }
}

#[test]
fn a_node_survives_whatever_it_hears() {
    replay("ricochet_liar", liar::node);
}
