//! Replays the fuzzers' corpora and random mutations of them, so that a plain test run keeps what fuzzing found.

mod fuzz;

use std::fs;
use std::path::Path;

fn replay(corpus: &str, rounds: usize, mut target: impl FnMut(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let mut inputs: Vec<Vec<u8>> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "the corpus {corpus} is committed");
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    for input in &inputs {
        target(input);
    }
    for round in 0..rounds {
        let mut input = inputs[round % inputs.len()].clone();
        for _ in 0..=random() % 4 {
            if !input.is_empty() {
                let at = random() % input.len();
                input[at] = random() as u8;
            }
        }
        if random() % 4 == 0 {
            input.truncate(random() % (input.len() + 1) + 1);
        }
        target(&input);
    }
}

#[test]
fn wire_readers_take_all_that_fuzzing_found() {
    replay("ricochet_wire", 3_000, fuzz::wire);
}

#[test]
fn a_node_and_its_subscription_stand_whatever_is_said_to_them() {
    let mut most = (0, 0);
    replay("ricochet_node", 300, |data| {
        let (packets, messages) = fuzz::node(data);
        most = (most.0.max(packets), most.1.max(messages));
    });
    assert!(most.0 > 20 && most.1 > 1, "the corpus holds true packets too: {most:?}");
}
