//! What a change of the view and one received packet cost a node: for a stopwatch, and for
//! `valgrind --tool=callgrind`.
//!
//! `node_cost [GROUPS_PER_NODE] [NODES] [PACKETS]`, without arguments for 2 and for 1,024 groups a node, takes the
//! papers' grouping, ten nodes a group, and 1,024-byte packets through reader, tracker and bins at (8,5). Under
//! callgrind, pass `--toggle-collect='*measured*'` to count the packets alone.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::BinsConfig;
use ricochet_core::tracker::{Tracker, TrackerConfig};
use ricochet_core::wire::{Data, Datagram};
use ricochet_core::{Bins, Groups, NodeId};

const PAYLOAD: [u8; 1_024] = [7; 1_024];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().map(|n| n.parse::<usize>().expect("a number"));
    let (d, n, packets) = (number(), number().unwrap_or(64), number().unwrap_or(200_000));
    // The two ends of the paper's range (Ricochet Fig. 11), if none is named.
    for d in d.map_or(vec![2, 1_024], |d| vec![d]) {
        cost(d, n, packets);
    }
}

fn cost(d: usize, n: usize, packets: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let grouping = common::grouping(&mut rng, n, d, 10);
    let (groups, view) = (common::groups(&grouping[0], 5), common::view(&grouping));
    let mut bins = common::bins(BinsConfig::default(), 0, &groups, &view, &mut rng);

    let mut times_us: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            let (regions, plan) = common::planned(0, &groups, &view);
            bins.change(regions, plan, &mut rng, &mut |repair| {
                black_box(repair);
            });
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times_us.sort_by(f64::total_cmp);
    println!("{n} nodes, {d} groups a node: {} regions, {} lanes", bins.regions().len(), bins.lanes());
    println!("memory of the bins: {} KiB", bins.memory_bytes() / 1024);
    println!("view change: median {:.0} us, slowest {:.0} us", times_us[10], times_us[20]);

    let trace = trace(&mut rng, &groups, packets);
    let mut tracker = Tracker::new(TrackerConfig::default()).expect("the default is in range");
    let start = Instant::now();
    measured(&trace, &groups, &mut tracker, &mut bins, &mut rng);
    let counts = bins.counts();
    println!(
        "a packet: {:.0} ns, {:.2} additions, {:.3} repairs",
        start.elapsed().as_secs_f64() * 1e9 / packets as f64,
        counts.additions as f64 / counts.packets as f64,
        counts.repairs as f64 / counts.packets as f64,
    );
}

/// Which group each packet goes to, and its place there.
fn trace(rng: &mut ChaCha8Rng, groups: &Groups, packets: usize) -> Vec<(usize, u32)> {
    let mut seqs = vec![0; groups.len()];
    let mut next = |_| {
        let at = rng.next_u64() as usize % groups.len();
        seqs[at] += 1;
        (at, seqs[at])
    };
    (0..packets).map(&mut next).collect()
}

#[inline(never)]
fn measured(
    trace: &[(usize, u32)],
    groups: &Groups,
    tracker: &mut Tracker<u64>,
    bins: &mut Bins,
    rng: &mut ChaCha8Rng,
) {
    let ids: Vec<_> = groups.iter().map(|(_, group)| group.id).collect();
    let mut datagram = vec![0; 1_500];
    for (now_us, &(at, seq)) in trace.iter().enumerate() {
        let (sender, group) = (NodeId(1_000), ids[at]);
        let data =
            Data { sender, group, seq, sender_seq: 0, expires: false, fragment: false, payload: &PAYLOAD };
        let length = data.write(&mut datagram);
        let Ok(Datagram::Data(data)) = Datagram::read(&datagram[..length]) else { continue };
        let Some(index) = groups.index(data.group) else { continue };
        if !tracker.received(now_us as u64, data.key(), data.seq, now_us as u64).what.is_new() {
            continue;
        }
        let head = data.symbol_head();
        let mut emit = |repair: ricochet_core::bins::Outgoing<'_>| {
            black_box(repair);
        };
        bins.push(now_us as u64, index, data.name(), &[&head, data.payload], rng, &mut emit)
            .expect("the symbol is short enough");
    }
}
