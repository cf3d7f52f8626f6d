//! Nanoseconds of encoding per source packet of 1,500 bytes, for each code, with each kernel of this
//! processor.
//!
//! ```sh
//! cargo bench -p fec --bench encoders [-- ROUNDS]
//! ```
//! `gf256` measures the arithmetic alone. An encoder takes the best kernel of its process, so each kernel has
//! its own processes, which take turns. The output shows minimum and median of all rounds, and the 99th
//! percentile of a push. Other work on the machine increases all figures.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use fec::gf256::Kernel;
use fec::{Code, Encoder, LayeredConfig, ReedSolomonConfig, Repair, Sending, SlidingConfig};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

const PACKET: usize = 1_500;
/// Number of packets in a round: several groups of repairs of every code.
const PACKETS: usize = 1_920;

fn codes() -> Vec<(&'static str, Code)> {
    let sliding = |rate: &str, window, density| -> Code {
        let rate = rate.parse().expect("a rate");
        SlidingConfig { rate, window, density, ..SlidingConfig::default() }.into()
    };
    let blocks = |interleave, sending| -> Code {
        ReedSolomonConfig { interleave, sending, ..ReedSolomonConfig::default() }.into()
    };
    vec![
        ("layered (8; 1,11,19)", LayeredConfig::default().into()),
        ("reed-solomon (8,3)", blocks(1, Sending::Immediate)),
        ("reed-solomon (8,3) x20 delayed", blocks(20, Sending::Delayed)),
        ("sliding 3/8 W=128", sliding("3/8", 128, 15)),
        ("sliding 3/8 W=160", sliding("3/8", 160, 15)),
        ("sliding 3/8 W=256", sliding("3/8", 256, 15)),
        ("sliding 3/8 W=256, 1/2 of it", sliding("3/8", 256, 7)),
        ("sliding 3/8 W=256, 1/4 of it", sliding("3/8", 256, 3)),
        ("sliding 3/8 W=256, 1/8 of it", sliding("3/8", 256, 1)),
        ("sliding 1/8 W=256", sliding("1/8", 256, 15)),
        ("sliding 1/8 W=512", sliding("1/8", 512, 15)),
    ]
}

/// One code, which continues from round to round.
struct Running<'a> {
    encoder: Encoder<usize>,
    packets: &'a [Vec<u8>],
    next: usize,
}

impl Running<'_> {
    fn push(&mut self) {
        let mut emit = |repair: Repair<'_, usize>| {
            black_box(repair.payload.as_ptr());
        };
        let packet = &self.packets[self.next % self.packets.len()];
        self.encoder.push(0, self.next, &[packet], &mut emit).expect("as long as announced");
        self.next += 1;
    }

    /// Returns nanoseconds per packet of a round, and the 99th percentile of the packets of another round.
    fn round(&mut self) -> (f64, f64) {
        let start = Instant::now();
        (0..PACKETS).for_each(|_| self.push());
        let mean_ns = start.elapsed().as_nanos() as f64 / PACKETS as f64;
        let mut each_ns: Vec<f64> = (0..PACKETS)
            .map(|_| {
                let start = Instant::now();
                self.push();
                start.elapsed().as_nanos() as f64
            })
            .collect();
        each_ns.sort_by(f64::total_cmp);
        (mean_ns, each_ns[PACKETS * 99 / 100])
    }
}

/// Runs a process with one kernel, which prints a line with the figures of each code.
fn lane(kernel: &str) {
    assert!(Kernel::choose(kernel), "this processor has no kernel {kernel:?}");
    let packets: Vec<Vec<u8>> = (0..64u32).map(|n| vec![n as u8 ^ 0x5a; PACKET]).collect();
    for (code, config) in codes() {
        let encoder = Encoder::new(&config.without_clock(PACKET)).expect("a good code");
        let mut running = Running { encoder, packets: &packets, next: 0 };
        (0..PACKETS).for_each(|_| running.push());
        let (mean_ns, most_ns) = running.round();
        println!("{code}\t{mean_ns}\t{most_ns}");
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, kernel] = &words[..]
        && first == "--lane"
    {
        return lane(kernel);
    }
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(15).max(1);
    let own = std::env::current_exe().expect("the path of this benchmark");
    let kernels: Vec<&str> = Kernel::available().map(Kernel::name).collect();
    let mut figures: BTreeMap<(String, usize), [Vec<f64>; 2]> = BTreeMap::new();
    for _ in 0..rounds {
        for (at, kernel) in kernels.iter().enumerate() {
            let output = Command::new(&own).args(["--lane", kernel]).output().expect("a process of its own");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let mut words = line.split('\t');
                let code = words.next().unwrap_or_default().to_owned();
                let cell = figures.entry((code, at)).or_default();
                cell.iter_mut()
                    .zip(words)
                    .for_each(|(times_ns, word)| times_ns.push(word.parse().expect("a number")));
            }
        }
    }
    println!(
        "ns per source packet of {PACKET} bytes: least (middle) of {rounds} rounds, 99 % of all packets"
    );
    print!("{:32}", "");
    kernels.iter().for_each(|kernel| print!("{kernel:>24}"));
    println!();
    for (code, _) in codes() {
        print!("{code:32}");
        for at in 0..kernels.len() {
            let [means, most] = figures.get_mut(&(code.to_owned(), at)).expect("every kernel did every code");
            means.sort_by(f64::total_cmp);
            most.sort_by(f64::total_cmp);
            let middle = |times: &[f64]| times[times.len() / 2];
            print!("{:>24}", format!("{:.0} ({:.0}) {:.0}", means[0], middle(means), middle(most)));
        }
        println!();
    }
}
