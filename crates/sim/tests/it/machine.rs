//! Messages that are not lost, where repairs share the processors with them.
#![allow(missing_docs)]

use loss::LossModel;
use ricochet_core::bins::Content;
use ricochet_core::node::{AnnounceConfig, NakConfig};
use ricochet_core::{FlowConfig, Follow, NodeConfig, NodeId};
use sim::Machine;
use sim::machine::Outcome;
use simnet::virtual_net::Intake;

/// Runs 24 receivers of messages at random intervals.
fn run(groups: u64, c: u8, node: NodeConfig) -> Outcome {
    let machine = Machine {
        receivers: 24,
        senders: 1,
        groups,
        node,
        c,
        flow: (c > 0).then_some(FlowConfig { follow: Follow::All, window: 2_048, ..FlowConfig::default() }),
        is_irregular: true,
        intake: Intake { datagram_us: 20, queue: 1 << 20, processors: 2 },
        loss: LossModel::Uniform(0.01),
        seconds: 5,
        seed: 3,
    };
    machine.run().unwrap()
}

#[test]
fn digests_delay_messages_that_were_not_lost_by_less_than_half_a_millisecond() {
    let prompt =
        NodeConfig { content: Content::Names, max_delay_us: Some(5_000), ..NodeConfig::prompt(NodeId(0)) };
    let announce = AnnounceConfig { times: 0, ..prompt.announce };
    let bare = run(32, 0, NodeConfig { announce, nak: NakConfig { enabled: false, ..prompt.nak }, ..prompt });
    let digests = run(32, 3, prompt);
    let [_, _, bare_ms] = bare.straight_ms;
    let [_, _, with_ms] = digests.straight_ms;
    println!(
        "p99.9: {bare_ms} ms without repairs, {with_ms} ms with; {} repairs within 100 µs",
        digests.crowd
    );
    assert!(bare.crowd == 0 && bare.undelivered > 0);
    assert_eq!(digests.undelivered, 0);
    assert!(with_ms <= bare_ms + 0.5, "{with_ms} ms instead of {bare_ms} ms");
    // All 24 receivers together make 72, and with equal waits 50 or more.
    assert!(digests.crowd < 40, "{} repairs left within 100 µs", digests.crowd);
}

#[test]
fn groups_with_the_same_members_share_announcements() {
    let prompt =
        NodeConfig { content: Content::Names, max_delay_us: Some(5_000), ..NodeConfig::prompt(NodeId(0)) };
    let [one, many] = [1, 32].map(|groups| run(groups, 3, prompt));
    println!("{} frames a message in one group, {} in 32", one.frames_per_message, many.frames_per_message);
    assert_eq!((one.undelivered, many.undelivered), (0, 0));
    // An announcement of its own for each message would take 25 frames.
    assert!(many.frames_per_message < one.frames_per_message + 10.0, "{}", many.frames_per_message);
}
