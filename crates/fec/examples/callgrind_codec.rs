//! Instructions per packet of encoding and decoding, for callgrind.
//!
//! ```sh
//! cargo build --release -p fec --example callgrind_codec
//! for n in 20000 120000; do
//!     valgrind --tool=callgrind target/release/examples/callgrind_codec encode $n
//! done
//! ```
//! The difference of two counts, divided by the difference of the numbers of packets, does not include the
//! setup. `decode N PERCENT` decodes with losses. `singly N`, `many N`, `rows N` and `each N` run the
//! arithmetic of a sliding window of 128 packets of 1,500 bytes with 3 repairs for 8 packets, over N packets.
//! An optional last word names the kernel; valgrind supports none beyond AVX2.
#![allow(missing_docs, unreachable_pub)]

#[path = "../benches/stream/mod.rs"]
mod stream;

use fec::gf256::{self, Kernel};
use std::process::ExitCode;
use stream::{Decoding, Encoding};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words.last().is_some_and(|name| Kernel::choose(name)) {
        words.pop();
    }
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
            println!("{count} packets encoded with {}", Kernel::best().name());
        }
        "decode" => {
            let mut decoding = Decoding::new(percent);
            (0..count).for_each(|_| decoding.step());
            println!("{count} packets decoded, {} recovered", decoding.recovered());
        }
        "singly" | "many" | "rows" | "each" => sliding(what, count),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

/// The sums of a sliding window, in 3 for 8 packets.
fn sliding(form: &str, count: u64) {
    const PACKET: usize = 1_500;
    let packets: Vec<Vec<u8>> = (0..128).map(|n| vec![n; PACKET]).collect();
    let terms: Vec<(u8, &[u8])> = packets.iter().map(|packet| (packet[0] + 2, &packet[..])).collect();
    let rows: Vec<(&[u8], &[u8])> = packets.iter().map(|packet| (&packet[..3], &packet[..])).collect();
    let mut sums = vec![vec![0; PACKET]; 48];
    for packet in 0..count {
        let repair = packet * 3 % 8 < 3;
        match form {
            "singly" if repair => {
                for &(c, packet) in &terms {
                    gf256::mul_add(&mut sums[0], c, packet);
                }
            }
            "many" if repair => gf256::mul_add_many(&mut sums[0], &terms),
            "rows" if packet % 8 == 0 => {
                let mut open: Vec<&mut [u8]> = sums[..3].iter_mut().map(Vec::as_mut_slice).collect();
                gf256::mul_add_rows(&mut open, &rows);
            }
            "each" => {
                let mut open: Vec<(u8, &mut [u8])> =
                    sums.iter_mut().map(|sum| (7, sum.as_mut_slice())).collect();
                gf256::mul_add_each(&mut open, &packets[packet as usize % 128]);
            }
            _ => {}
        }
    }
    println!(
        "{count} packets by {form} with {}, {}",
        Kernel::best().name(),
        std::hint::black_box(sums)[0][0]
    );
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: callgrind_codec encode N | decode N [PERCENT LOST] | singly N | many N | rows N | each N  [KERNEL]"
    );
    ExitCode::FAILURE
}
