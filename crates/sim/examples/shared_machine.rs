//! Latency of messages that were not lost where all nodes share two processors, as in the comparison with
//! other multicast systems, with repairs and without: 1,000 messages of 1 KiB a second, 1 % loss, 20 µs of a
//! processor for each datagram.
//!
//! `shared_machine [SECONDS]`; in virtual time, so the figures are always the same.

use loss::LossModel;
use ricochet_core::bins::Content;
use ricochet_core::node::{AnnounceConfig, NakConfig};
use ricochet_core::{FlowConfig, Follow, NodeConfig, NodeId};
use sim::Machine;
use simnet::virtual_net::Intake;

fn main() {
    let seconds: u64 =
        std::env::args().nth(1).map_or(30, |seconds| seconds.parse().expect("a number of seconds"));
    println!(
        "| receivers | groups | intervals | repairs | not lost p50 / p99 / p99.9 ms | recovered p50 / p99 ms | undelivered \
         | frames/message | bytes/message | repairs within 100 µs, at most |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let prompt = NodeConfig::prompt(NodeId(0));
    let bare = NodeConfig {
        announce: AnnounceConfig { times: 0, ..prompt.announce },
        nak: NakConfig { enabled: false, ..prompt.nak },
        ..prompt
    };
    let flow = FlowConfig { follow: Follow::All, window: 2_048, ..FlowConfig::default() };
    let digest = NodeConfig { content: Content::Names, max_delay_us: Some(5_000), ..prompt };
    for (receivers, groups) in [(8, 1), (8, 32), (24, 1), (24, 32)] {
        for is_irregular in [false, true] {
            for (name, c, node) in [("none", 0, bare), ("digest", 3, digest), ("XOR", 5, prompt)] {
                let machine = Machine {
                    receivers,
                    senders: 1,
                    groups,
                    node,
                    c,
                    flow: (c > 0).then_some(flow),
                    is_irregular,
                    intake: Intake { datagram_us: 20, queue: 1 << 20, processors: 2 },
                    loss: LossModel::Uniform(0.01),
                    seconds,
                    seed: 1,
                };
                let outcome = machine.run().expect("the configuration is in range");
                let [p50, p99, p999] = outcome.straight_ms;
                println!(
                    "| {receivers} | {groups} | {} | {name} | {p50:.2} / {p99:.2} / {p999:.2} | {:.2} / {:.2} | {} | {:.1} \
                     | {:.0} | {} |",
                    if is_irregular { "random" } else { "equal" },
                    outcome.recovered_ms.p50,
                    outcome.recovered_ms.p99,
                    outcome.undelivered,
                    outcome.frames_per_message,
                    outcome.bytes_per_message,
                    outcome.crowd,
                );
            }
        }
    }
}
