//! Nodes that gossip, in virtual time.

mod common;

use common::{Net, SECOND_US};

/// Seeds of chance that each story is told with.
const SEEDS: u64 = 20;

fn cluster(seed: u64, nodes: usize, loss: f64) -> Net {
    let mut net = Net::new(seed);
    net.loss = loss;
    for place in 0..nodes {
        net.start_gossip(place, &[0]);
        net.set_groups(place, [place as u64, 1_000]);
    }
    net
}

#[test]
fn nodes_find_each_other_through_one_seed_under_loss() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 64, 0.05);
        let took_us = net.run_until_right(10 * SECOND_US);
        eprintln!("seed {seed}: {} ms, {} datagrams, {} bytes", took_us / 1000, net.sent, net.sent_bytes);
    }
}
