//! Replays the corpora of the fuzzers.
#![allow(missing_docs)]

mod fuzz;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{}: expected a corpus, saw {} files", corpus.display(), files.len());
    for file in files {
        println!("{}", file.display());
        run(&std::fs::read(file).unwrap());
    }
}

#[test]
fn decoder() {
    replay("fec_decoder", fuzz::decoder);
}

#[test]
fn layered() {
    replay("fec_layered", fuzz::layered);
}

#[test]
fn ring() {
    replay("fec_ring", fuzz::ring);
}
