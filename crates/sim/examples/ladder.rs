//! Latency and cost of recovery in the cells of a comparison with other protocols: all nodes in all groups,
//! 1,000 messages of 1 KiB per second in total, 1 % loss of incoming data or of all datagrams.
//!
//! `ladder [SECONDS]`; in virtual time, so the figures are always the same.

use loss::LossModel;
use ricochet_core::bins::Content;
use ricochet_core::{GroupId, NodeConfig, NodeId};
use sim::{Cluster, ClusterConfig, Figures, Traffic};
use simnet::virtual_net::Conditions;

const RATE: f64 = 1_000.0;

fn main() {
    let seconds: u64 =
        std::env::args().nth(1).map_or(10, |seconds| seconds.parse().expect("a number of seconds"));
    println!(
        "| content | c | receivers | groups | loss of | p50 ms | p99 ms | max ms | undelivered | bytes/message |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, content, c) in
        [("xor", Content::Xor, 5), ("digest", Content::Names, 5), ("digest", Content::Names, 3)]
    {
        for receivers in [8, 24] {
            for groups in [1, 32, 128] {
                for all in [false, true] {
                    let figures = run(content, c, receivers, groups, all, seconds);
                    let latency = figures.latency_ms;
                    println!(
                        "| {name} | {c} | {receivers} | {groups} | {} | {:.2} | {:.2} | {:.2} | {} | {:.0} |",
                        if all { "all" } else { "data" },
                        latency.p50,
                        latency.p99,
                        latency.max,
                        figures.undelivered,
                        figures.wire_bytes_per_message,
                    );
                }
            }
        }
    }
}

fn run(content: Content, c: u8, receivers: usize, groups: u64, all: bool, seconds: u64) -> Figures {
    let loss = LossModel::Uniform(0.01);
    let other = if all { loss.clone() } else { LossModel::None };
    let node = NodeConfig { content, ..NodeConfig::prompt(NodeId(0)) };
    let conditions = Conditions { loss: vec![loss, other], delay_us: 50, jitter_us: 50, repeat: 0.0 };
    let config = ClusterConfig { conditions, node, c, ..ClusterConfig::new(1) };
    let ids: Vec<GroupId> = (1..=groups).map(|id| GroupId(id.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    // Each message has all nodes but its sender as receivers.
    let grouping = vec![ids; receivers + 1];
    let mut cluster = Cluster::of(&grouping, config).expect("the configuration is in range");
    let rate = RATE * receivers as f64 / (receivers + 1) as f64;
    let mut traffic = Traffic::new(&cluster, rate, 1_024, 1);
    traffic.run_until(&mut cluster, seconds * 1_000_000, true);
    cluster.run_for(12_000_000);
    Figures::of(&cluster)
}
