//! Costs of a quiet group without loss.

use ricochet_core::bins::Content;
use ricochet_core::{FlowConfig, Follow, GroupId, NodeConfig};

use crate::common::net::{Net, NetworkConditions};

/// Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 42;

/// Bytes on the wire, relative to those of the packets alone, of 50 messages a second to eight receivers.
fn cost(content: Content, c: u8, max_delay_us: u64) -> f64 {
    const MESSAGES: u64 = 500;
    let group = GroupId(7);
    let grouping = vec![vec![group]; 9];
    let conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
    let mut net = Net::new(&grouping, c, conditions, 1, |config| NodeConfig {
        content,
        max_delay_us: Some(max_delay_us),
        ..NodeConfig::prompt(config.id)
    });
    let view = crate::common::view(&grouping);
    let flow = FlowConfig { follow: Follow::All, window: 2_048, ..FlowConfig::default() };
    net.nodes.iter_mut().for_each(|node| node.set_flow(flow, &view).unwrap());
    for _ in 0..MESSAGES {
        net.multicast(0, group, &[7; 1_024]);
        net.advance(20_000);
    }
    let plain = MESSAGES * 8 * (1_024 + HEADERS);
    (net.bytes + net.datagrams * HEADERS) as f64 / plain as f64
}

#[test]
fn digests_cost_half_of_the_packets_at_most_and_sums_several_times_as_much() {
    let digests = cost(Content::Names, 3, 5_000);
    assert!(digests <= 1.5, "{digests}");
    assert!(cost(Content::Xor, 5, 3_000) > 3.0);
}
