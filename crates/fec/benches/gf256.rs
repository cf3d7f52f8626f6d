//! Nanoseconds of arithmetic per source packet of 1,500 bytes, for some codes, by each kernel of this
//! processor.
//!
//! ```sh
//! cargo bench -p fec --bench gf256 [-- ROUNDS]
//! ```
//! Kernels and forms take turns in short rounds, so that other work on the machine affects all of them alike.
//! The output shows minimum and median of all rounds. Other work on the machine still increases all figures.
#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use fec::gf256::Kernel;
use std::hint::black_box;
use std::time::Instant;

const PACKET: usize = 1_500;

/// The arithmetic of a code.
struct Cell {
    title: &'static str,
    form: &'static str,
    /// Does the work of 8 source packets; the first has this number.
    run: fn(&Kernel, &mut Work<'_>, usize),
}

const CELLS: &[Cell] = &[
    Cell { title: "layered (8,3)", form: "xor_into, 3 sums a packet", run: layered_by_packet },
    Cell { title: "layered (8,3)", form: "xor_many, 8 packets a sum", run: layered_by_sum },
    Cell { title: "sliding W=128 at 3/8", form: "mul_add", run: |k, w, n| sliding_singly(k, w, n, 128, 3) },
    Cell { title: "sliding W=128 at 3/8", form: "mul_add_many", run: |k, w, n| sliding(k, w, n, 128, 3) },
    Cell {
        title: "sliding W=128 at 3/8",
        form: "mul_add_rows, 3 repairs",
        run: |k, w, n| sliding_rows(k, w, n, 128, 3),
    },
    Cell { title: "sliding W=128 at 3/8", form: "mul_add_each", run: |k, w, n| sliding_each(k, w, n, 48) },
    Cell { title: "sliding W=256 at 1/8", form: "mul_add", run: |k, w, n| sliding_singly(k, w, n, 256, 1) },
    Cell { title: "sliding W=256 at 1/8", form: "mul_add_many", run: |k, w, n| sliding(k, w, n, 256, 1) },
    Cell {
        title: "sliding W=256 at 1/8",
        form: "mul_add_rows, 3 repairs",
        run: |k, w, n| sliding_rows(k, w, n, 256, 1),
    },
    Cell { title: "sliding W=256 at 1/8", form: "mul_add_each", run: |k, w, n| sliding_each(k, w, n, 32) },
];

/// Consecutive packets as in a ring of symbols, terms of each, and sums. The work of gathering a repair's
/// terms is not measured.
struct Work<'a> {
    packets: &'a [u8],
    /// Two rounds, so that each window is one slice.
    terms: Vec<(u8, &'a [u8])>,
    rows: Vec<(&'a [u8], &'a [u8])>,
    sums: Vec<Vec<u8>>,
}

/// Number of packets in the ring, more than any window has.
const RING: usize = 264;
/// Number of sums open at a time where each packet is added to all of them.
const OPEN: usize = 48;

fn byte(n: usize) -> u8 {
    (n.wrapping_mul(0x9E37_79B9) >> 11) as u8
}

impl<'a> Work<'a> {
    fn new(packets: &'a [u8], coefficients: &'a [u8]) -> Self {
        let packet = |n: usize| &packets[n % RING * PACKET..][..PACKET];
        Self {
            packets,
            terms: (0..2 * RING).map(|n| (coefficients[n], packet(n))).collect(),
            rows: (0..2 * RING).map(|n| (&coefficients[n..n + 3], packet(n))).collect(),
            sums: (0..OPEN).map(|_| vec![0; PACKET]).collect(),
        }
    }
}

fn layered_by_packet(kernel: &Kernel, work: &mut Work<'_>, first: usize) {
    for n in 0..8 {
        let packet = &work.packets[(first + n) % RING * PACKET..][..PACKET];
        for sum in 0..3 {
            kernel.xor_into(black_box(&mut work.sums[sum]), packet);
        }
    }
}

fn layered_by_sum(kernel: &Kernel, work: &mut Work<'_>, first: usize) {
    for (sum, interleave) in [1, 11, 19].into_iter().enumerate() {
        let at = |n: usize| &work.packets[(first + n * interleave) % RING * PACKET..][..PACKET];
        let packets: [&[u8]; 8] = std::array::from_fn(at);
        kernel.xor_many(black_box(&mut work.sums[sum]), &packets);
    }
}

fn sliding_singly(kernel: &Kernel, work: &mut Work<'_>, first: usize, window: usize, repairs: usize) {
    for repair in 0..repairs {
        for &(c, packet) in &work.terms[first % RING + repair * 3 % 8..][..window] {
            kernel.mul_add(black_box(&mut work.sums[0]), c, packet);
        }
    }
}

fn sliding(kernel: &Kernel, work: &mut Work<'_>, first: usize, window: usize, repairs: usize) {
    for repair in 0..repairs {
        let terms = &work.terms[first % RING + repair * 3 % 8..][..window];
        kernel.mul_add_many(black_box(&mut work.sums[0]), terms);
    }
}

/// Computes the next three repairs together over the common part of their windows, and the rest of each by
/// itself.
fn sliding_rows(kernel: &Kernel, work: &mut Work<'_>, first: usize, window: usize, repairs: usize) {
    // Three repairs belong to 8 · 3 / repairs packets.
    if repairs == 1 && !first.is_multiple_of(24) {
        return;
    }
    let (first, rest) = (first % RING, 2 * 8 / repairs);
    let [a, b, c, ..] = &mut work.sums[..] else { unreachable!("there are {OPEN} sums") };
    kernel.mul_add_rows(black_box(&mut [a, b, c]), &work.rows[first..][..window - rest]);
    for sum in &mut work.sums[..3] {
        kernel.mul_add_many(black_box(sum), &work.terms[first + window - rest..][..rest]);
    }
}

/// Adds each packet at once to all sums whose windows contain it.
fn sliding_each(kernel: &Kernel, work: &mut Work<'_>, first: usize, open: usize) {
    for n in 0..8 {
        let (first, packet) = work.terms[(first + n) % RING];
        let mut sums: [(u8, &mut [u8]); OPEN] = std::array::from_fn(|_| (0, Default::default()));
        for (k, (place, sum)) in sums.iter_mut().zip(&mut work.sums).enumerate() {
            *place = (first.wrapping_add(k as u8), sum);
        }
        kernel.mul_add_each(black_box(&mut sums[..open]), packet);
    }
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(101);
    let kernels: Vec<&Kernel> = Kernel::available().collect();
    let packets: Vec<u8> = (0..RING * PACKET).map(byte).collect();
    let coefficients: Vec<u8> = (0..2 * RING + 2).map(|n| byte(n).max(2)).collect();
    let mut work = Work::new(&packets, &coefficients);
    let mut times_ns = vec![Vec::with_capacity(rounds); CELLS.len() * kernels.len()];
    for round in 0..rounds {
        for (cell, form) in CELLS.iter().enumerate() {
            for (lane, kernel) in kernels.iter().enumerate() {
                let repeats = if kernel.name() == "scalar" { 3 } else { 9 };
                let start = Instant::now();
                for repeat in 0..repeats {
                    (form.run)(kernel, &mut work, (round * repeats + repeat) * 8);
                }
                let each_ns = start.elapsed().as_nanos() as f64 / (8 * repeats) as f64;
                times_ns[cell * kernels.len() + lane].push(each_ns);
            }
        }
    }
    println!("ns per source packet of {PACKET} bytes: least (middle) of {rounds} rounds");
    print!("{:22}{:27}", "", "");
    kernels.iter().for_each(|kernel| print!("{:>18}", kernel.name()));
    println!();
    for (cell, form) in CELLS.iter().enumerate() {
        print!("{:22}{:27}", form.title, form.form);
        for lane in 0..kernels.len() {
            let times = &mut times_ns[cell * kernels.len() + lane];
            times.sort_by(f64::total_cmp);
            print!("{:>18}", format!("{:.0} ({:.0})", times[0], times[rounds / 2]));
        }
        println!();
    }
}
