//! The dissector for Wireshark, `ops/undrop.lua`, shows what the parsers of the nodes read, and refuses what
//! they refuse.

use std::collections::BTreeSet;

use loss::LossModel;
use membership::GossipConfig;
use ricochet_core::wire::{Data, Extras, Heartbeat, Latest, Peek};
use ricochet_core::{GroupId, NodeId};
use sim::{Cluster, ClusterConfig, Traffic, grouping};
use simnet::virtual_net::Conditions;
use testkit::packet::udp4;
use testkit::wireshark::{Capture, dissect};

use crate::replay::replay;

/// Port of groups, at which the dissector looks for datagrams.
const PORT: u16 = 7911;
const COMPLAINT: &str = "_ws.expert.message";

fn captured<'a>(datagrams: impl IntoIterator<Item = &'a [u8]>, port: u16) -> Capture {
    let mut capture = Capture::new();
    for (number, datagram) in (0..).zip(datagrams) {
        let packet = udp4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), port, number as u16, datagram);
        capture.add(1_700_000_000_000_000 + number, &packet);
    }
    capture
}

/// Twelve nodes that find each other by gossip, lose packets and lose a node.
#[test]
fn each_datagram_of_a_simulated_cluster_is_shown_as_the_nodes_read_it() {
    let loss = vec![LossModel::Uniform(0.03), LossModel::Uniform(0.03)];
    let conditions = Conditions { loss, delay_us: 100, jitter_us: 200, repeat: 0.01 };
    let config = ClusterConfig { conditions, gossip: Some(GossipConfig::lan()), ..ClusterConfig::new(3) };
    let mut cluster = Cluster::of(&grouping(12, 8, 5, 3), config).unwrap();
    cluster.record(6_000);
    cluster.run_for(2_000_000);
    let mut traffic = Traffic::new(&cluster, 100.0, 200, 3);
    traffic.run_until(&mut cluster, 3_000_000, true);
    cluster.crash(3);
    traffic.run_until(&mut cluster, 5_000_000, true);
    let sent: Vec<&[u8]> = cluster.recorded().iter().map(|sent| &sent.datagram[..]).collect();
    assert!(sent.len() > 1_000, "expected a long record, saw {}", sent.len());

    let fields =
        ["ricochet.kind", "ricochet.sender", "ricochet.group", "ricochet.sequence_number", COMPLAINT];
    let test = "each_datagram_of_a_simulated_cluster_is_shown_as_the_nodes_read_it";
    let Some(shown) = dissect(test, &captured(sent.iter().copied(), PORT), &fields) else { return };
    assert_eq!(shown.len(), sent.len());
    let mut kinds = BTreeSet::new();
    for (datagram, row) in sent.iter().zip(&shown) {
        let [kind, sender, group, seq, complaint] = &row[..] else { panic!("five fields, saw {row:?}") };
        assert_eq!((kind, complaint.as_str()), (&format!("0x{:02x}", datagram[0]), ""), "{datagram:02x?}");
        kinds.insert(datagram[0] & 0xf);
        let Ok(peek) = Peek::read(datagram) else { continue };
        assert_eq!(sender, &format!("0x{:08x}", peek.sender.0), "{datagram:02x?}");
        if let Some((GroupId(number), position)) = peek.packet {
            assert_eq!((group, seq), (&format!("0x{number:016x}"), &position.to_string()), "{datagram:02x?}");
        }
    }
    for kind in [1, 2, 3, 4, 5, 6] {
        assert!(kinds.contains(&kind), "expected a datagram of kind {kind}, saw {kinds:?}");
    }
}

/// Returns whether the nodes take a datagram; `None` if the dissector does not decide that.
fn is_read(datagram: &[u8]) -> Option<bool> {
    use membership::counters::Malformed;
    match datagram.first() {
        // Greetings, which are not of these crates.
        None | Some(0xb0) => None,
        Some(0xb6) => match membership::wire::Datagram::read(datagram) {
            // Which addresses a node may have is a rule of the nodes.
            Err(Malformed::Address) => None,
            read => Some(read.is_ok()),
        },
        Some(_) => Some(ricochet_core::wire::Datagram::read(datagram).is_ok()),
    }
}

fn check_corpus(test: &str, corpus: &str) {
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    replay(corpus, 10, 1_500, |input| inputs.extend((!input.is_empty()).then(|| input.to_vec())));
    let capture = captured(inputs.iter().map(|input| &input[..input.len().min(60_000)]), PORT);
    let Some(shown) = dissect(test, &capture, &[COMPLAINT]) else { return };
    assert_eq!(shown.len(), inputs.len());
    let mut counts = [0; 2];
    for (input, row) in inputs.iter().zip(&shown) {
        // A payload that nodes refuse is in a datagram that they read.
        let is_shown = row[0].is_empty() || row[0].starts_with("Payload that nodes refuse");
        if let Some(is_read) = is_read(input) {
            assert_eq!(is_shown, is_read, "{:?} of {input:02x?}", row[0]);
            counts[usize::from(is_read)] += 1;
        }
    }
    assert!(counts.iter().all(|&count| count > 30), "refused and read: {counts:?}");
}

#[test]
fn what_fuzzing_found_is_malformed_in_wireshark_if_nodes_refuse_it() {
    check_corpus("what_fuzzing_found_is_malformed_in_wireshark_if_nodes_refuse_it", "ricochet_wire");
}

#[test]
fn what_fuzzing_found_of_the_membership_is_malformed_in_wireshark_if_nodes_refuse_it() {
    let test = "what_fuzzing_found_of_the_membership_is_malformed_in_wireshark_if_nodes_refuse_it";
    check_corpus(test, "membership_wire");
}

#[test]
fn at_an_unknown_port_a_conversation_is_recognized_by_a_clear_datagram() {
    let (sender, group) = (NodeId(7), GroupId(9));
    let mut heartbeat = [0; 22];
    Heartbeat { sender, sender_seq: 1, latest: &[Latest { group, seq: 0 }] }.write(&mut heartbeat);
    let extras = Extras::NONE;
    let data = Data {
        sender,
        group,
        seq: 1,
        sender_seq: 2,
        expires: false,
        fragment: false,
        joint: false,
        extras,
        payload: b"x",
    };
    let mut packet = [0; 23];
    data.write(&mut packet);
    let mut random = testkit::Random(1);
    let noise: Vec<Vec<u8>> = (0..300).map(|length| [&[0xb4][..], &random.bytes(length)].concat()).collect();
    let test = "at_an_unknown_port_a_conversation_is_recognized_by_a_clear_datagram";
    let shown =
        |datagrams: &[&[u8]]| dissect(test, &captured(datagrams.iter().copied(), 9_999), &["ricochet.kind"]);
    let Some(after) = shown(&[&packet, &heartbeat, &packet]) else { return };
    assert_eq!(after, [[""], ["0xb5"], ["0xb1"]]);
    let noise: Vec<&[u8]> = noise.iter().map(Vec::as_slice).collect();
    assert!(shown(&noise).unwrap().iter().all(|row| row[0].is_empty()), "random bytes are of no protocol");
}
