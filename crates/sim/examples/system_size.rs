//! Recovery in large systems, in virtual time, so that the figures are always the same.
//!
//! `system_size groups`: 64, 256 and 1,000 nodes in 128 groups of ten each (Ricochet §5.6). Two nodes share
//! little traffic there. `system_size members`: groups of 256 and of 1,000 members, in which nodes make
//! repairs for all members or for partners. A second argument is the number of measured seconds.

use loss::LossModel;
use ricochet_core::bins::Content;
use ricochet_core::node::{AnnounceConfig, NakConfig};
use ricochet_core::{NodeConfig, NodeId};
use sim::{Cluster, ClusterConfig, Figures, Traffic, grouping};
use simnet::virtual_net::Conditions;

/// Packets received per second at each node, and their bytes of payload.
const RATE: f64 = 1_000.0;
const BYTES: usize = 1_024;
/// Time for which traffic goes on after the measurement, in microseconds: bins of the papers fill in a
/// second.
const AFTER_US: u64 = 2_000_000;

/// Nodes, groups of each, and members of each group.
type Size = (usize, usize, usize);

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let seconds = args.next().map_or(1.0, |seconds| seconds.parse().expect("a number of seconds"));
    match &*what {
        "groups" => groups(seconds),
        "members" => members(seconds),
        other => panic!("expected `groups` or `members`, saw {other:?}"),
    }
}

fn prompt(content: Content, max_delay_us: u64) -> NodeConfig {
    NodeConfig { content, max_delay_us: Some(max_delay_us), ..NodeConfig::prompt(NodeId(0)) }
}

/// Compares the papers' settings with those for applications.
fn groups(seconds: f64) {
    println!("| nodes | repairs | recovered % | mean ms | p50 ms | p99 ms | bytes/message | relative |");
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in [64, 256, 1_000] {
        let mut bytes_of_papers = None;
        for (name, c, node) in [
            ("(8,5), XOR, no limit of time, no requests", 5, NodeConfig::new(NodeId(0))),
            ("digest", 3, prompt(Content::Names, 5_000)),
            ("auto", 5, prompt(Content::Auto, 3_000)),
            ("XOR", 5, prompt(Content::Xor, 3_000)),
        ] {
            let is_of_papers = node.max_delay_us.is_none();
            let node = NodeConfig {
                nak: NakConfig { enabled: !is_of_papers, ..node.nak },
                announce: AnnounceConfig {
                    times: if is_of_papers { 0 } else { node.announce.times },
                    ..node.announce
                },
                ..node
            };
            let (figures, _) = run((nodes, 128, 10), c, node, seconds);
            let bytes = figures.wire_bytes_per_message;
            let relative = bytes / *bytes_of_papers.get_or_insert(bytes);
            let (latency, recovered) = (figures.latency_ms, figures.recovered_percent);
            println!(
                "| {nodes} | {name} | {recovered:.2} | {:.2} | {:.2} | {:.2} | {bytes:.0} | {relative:.2} |",
                latency.mean, latency.p50, latency.p99
            );
        }
    }
}

/// Compares repairs for all members with repairs for partners.
fn members(seconds: f64) {
    println!(
        "| nodes | groups each | members | repairs for | recovered % | mean ms | p99 ms | undelivered | \
         bytes/message | bins of a node | KiB of bins |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for size in [(256, 1, 256), (1_000, 1, 1_000), (300, 16, 128)] {
        for (name, partners_max) in [("all", usize::MAX), ("64 partners", 64)] {
            let node = NodeConfig { partners_max, ..prompt(Content::Names, 5_000) };
            let (figures, cluster) = run(size, 3, node, seconds);
            let (nodes, groups, members) = size;
            let bins = cluster.lives()[0].node.bins();
            println!(
                "| {nodes} | {groups} | {members} | {name} | {:.2} | {:.2} | {:.2} | {} | {:.0} | {} | {} |",
                figures.recovered_percent,
                figures.latency_ms.mean,
                figures.latency_ms.p99,
                figures.undelivered,
                figures.wire_bytes_per_message,
                bins.lanes(),
                bins.memory_bytes() / 1_024
            );
        }
    }
}

fn run((nodes, groups, members): Size, c: u8, node: NodeConfig, seconds: f64) -> (Figures, Cluster) {
    let loss = vec![LossModel::Uniform(0.01); 2];
    let conditions = Conditions { loss, delay_us: 50, jitter_us: 50, repeat: 0.0 };
    // Slots are as long as a datagram, so the maximum is tight.
    let node = NodeConfig { packets: 2_048, datagram_max: BYTES + 256, ..node };
    let config = ClusterConfig { conditions, node, c, ..ClusterConfig::new(1) };
    let grouping = grouping(nodes, groups, members, 1);
    let mut cluster = Cluster::of(&grouping, config).expect("the configuration is in range");
    let mut traffic = Traffic::new(&cluster, RATE, BYTES, 1);
    let measured_us = (seconds * 1e6) as u64;
    traffic.run_until(&mut cluster, measured_us, true);
    traffic.run_until(&mut cluster, measured_us + AFTER_US, false);
    cluster.run_for(1_000_000);
    (Figures::of(&cluster), cluster)
}
