//! Instructions per packet of encoding and decoding, for callgrind.
//!
//! ```sh
//! cargo build --release -p fec --example callgrind_codec
//! for n in 20000 120000; do valgrind --tool=callgrind target/release/examples/callgrind_codec encode $n; done
//! ```
//! The difference of two counts, divided by the difference of the numbers of packets, is free of what is made once.
//! `decode N PERCENT` decodes with losses. The emulated processor has its own choice of vector instructions (AVX2).
#![allow(missing_docs, unreachable_pub)]

#[path = "../benches/stream/mod.rs"]
mod stream;

use std::process::ExitCode;
use stream::{Decoding, Encoding};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (what, count, percent) = match words[..] {
        [what, count] => (what, count.parse(), Ok(0)),
        [what, count, percent] => (what, count.parse(), percent.parse()),
        _ => return usage(),
    };
    let (Ok(count), Ok(percent)) = (count, percent) else { return usage() };
    match what {
        "encode" => {
            let mut encoding = Encoding::new();
            (0..count).for_each(|_: u64| encoding.step());
            println!("{count} packets encoded with {}", fec::gf256::Kernel::best().name());
        }
        "decode" => {
            let mut decoding = Decoding::new(percent);
            (0..count).for_each(|_| decoding.step());
            println!("{count} packets decoded, {} recovered", decoding.recovered());
        }
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: callgrind_codec encode N | decode N [PERCENT LOST]");
    ExitCode::FAILURE
}
