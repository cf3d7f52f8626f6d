//! Replays a fuzzer's committed inputs and random mutations of them, so that a plain test run keeps what
//! fuzzing found.

use std::fs;
use std::path::Path;

/// Gives `target` each input of the corpus, then `rounds` mutations of them, the same in each run.
///
/// # Panics
/// If fewer than `least` inputs are committed under that name, or where the target does.
pub(crate) fn replay(name: &str, least: usize, rounds: usize, mut target: impl FnMut(&[u8])) {
    let inputs = inputs(name);
    assert!(inputs.len() >= least, "corpus {name}: expected {least} inputs or more, saw {}", inputs.len());
    for input in &inputs {
        target(input);
    }
    let mut random = Random(1);
    for round in 0..rounds {
        target(&random.mutation(&inputs[round % inputs.len()]));
    }
}

/// Returns the committed inputs of a corpus.
pub(crate) fn inputs(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut inputs: Vec<Vec<u8>> = entries
        .map(|entry| entry.and_then(|entry| fs::read(entry.path())))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    inputs.sort();
    inputs
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize
    }

    /// Up to four bytes are others, and every second time the end is missing.
    fn mutation(&mut self, input: &[u8]) -> Vec<u8> {
        let mut input = input.to_vec();
        for _ in 0..=self.next() % 4 {
            if !input.is_empty() {
                let at = self.next() % input.len();
                input[at] = self.next() as u8;
            }
        }
        if self.next().is_multiple_of(2) {
            input.truncate(self.next() % (input.len() + 1));
        }
        input
    }
}
