//! Tests of the dissector for Wireshark, `ops/undrop.lua`, with the datagrams that only this crate writes,
//! and with trailers of nodes that have a cluster key.

use std::net::SocketAddr;
use std::sync::Arc;

use ricochet_core::NodeId;
use ricochet_core::wire::{Data, Envelope, Extras};
use ricochet_core::{GroupId, wire};
use testkit::packet::udp4;
use testkit::wireshark::{Capture, dissect};

use crate::config::{GROUP_PORT, PORT};
use crate::greetings::wire::{Body, GREETING_MAX, Greeting, Settings};
use crate::key::{ClusterKey, KeyRing, Seal};
use crate::patterns::wire::{NamesDatagram, Question, answers};

const COMPLAINT: &str = "_ws.expert.message";

fn captured(datagrams: &[Vec<u8>], port: u16) -> Capture {
    let mut capture = Capture::new();
    for (number, datagram) in (0..).zip(datagrams) {
        let packet = udp4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), port, number as u16, datagram);
        capture.add(1_700_000_000_000_000 + number, &packet);
    }
    capture
}

fn greetings() -> Vec<Vec<u8>> {
    let settings = Settings {
        unicast: true,
        group_port: GROUP_PORT,
        group_addresses: 64,
        groups_base: "239.255.79.0".parse().unwrap(),
        datagram_max: 1452,
    };
    let from = NodeId(7);
    let body = Body { from, round: 3, heard: 5, copies: false, settings };
    let all = [
        Greeting::Call { from, round: 3, address: 63 },
        Greeting::Question(body),
        Greeting::Answer(body),
        Greeting::Farewell { from },
    ];
    let written = all.iter().map(|greeting| {
        let mut bytes = [0; GREETING_MAX];
        let length = greeting.write(&mut bytes);
        bytes[..length].to_vec()
    });
    written.collect()
}

#[test]
fn greetings_are_shown_whole_and_cut_ones_are_malformed() {
    let whole = greetings();
    let cut = whole.iter().flat_map(|bytes| (2..bytes.len()).map(|length| bytes[..length].to_vec()));
    let all: Vec<Vec<u8>> = whole.iter().cloned().chain(cut).collect();
    let fields = [
        "ricochet.form",
        "ricochet.sender",
        "ricochet.groups_base",
        "ricochet.greeting.flags.unicast",
        COMPLAINT,
    ];
    let test = "greetings_are_shown_whole_and_cut_ones_are_malformed";
    let Some(shown) = dissect(test, &captured(&all, PORT), &fields) else { return };
    let base = "::ffff:239.255.79.0";
    for (row, (form, base, unicast)) in
        shown.iter().zip([("1", "", ""), ("2", base, "1"), ("3", base, "1"), ("4", "", "")])
    {
        assert_eq!(row[..3], [form, "0x00000007", base]);
        assert!(row[3] == unicast || row[3] == "True" && unicast == "1", "{row:?}");
    }
    assert_eq!(shown.len(), all.len());
    for (bytes, row) in all.iter().zip(&shown) {
        assert_eq!(row[4].is_empty(), Greeting::read(bytes).is_ok(), "{bytes:02x?}: {}", row[4]);
    }
}

#[test]
fn questions_for_names_and_answers_are_shown() {
    let question = Question { from: NodeId(9), number: 3, version: 5, pattern: "prices/*" };
    let names: Vec<Arc<str>> = ["prices/AAPL", "prices/Öl"].map(Into::into).to_vec();
    let mut all = vec![question.to_wire()];
    all.extend(answers(NodeId(7), &question, 6, &names));
    let wrong_part = [&all[1][..18], &[1, 1]].concat();
    assert!(NamesDatagram::read(&wrong_part).is_err());
    all.push(wrong_part);
    let fields = ["ricochet.sender", "ricochet.pattern", "ricochet.name", COMPLAINT];
    let test = "questions_for_names_and_answers_are_shown";
    let Some(shown) = dissect(test, &captured(&all, PORT), &fields) else { return };
    assert_eq!(shown[0], ["0x00000009", "prices/*", "", ""]);
    assert_eq!(shown[1], ["0x00000007", "", "prices/AAPL,prices/Öl", ""]);
    assert_eq!(shown[2][3], "Malformed datagram: part: expected a part below 1, saw 1");
}

/// Data of a node with a cluster key, at the port of groups and at one that the dissector does not know.
#[test]
fn a_trailer_is_recognized_and_the_message_before_it_is_shown() {
    let own = SocketAddr::from(([10, 0, 0, 1], PORT));
    let key = ClusterKey::new([7; 32]);
    let name = key.name().to_string();
    let seal = Seal::new(KeyRing::new(&[key]), NodeId(7), 1_700_000_000_000_000, own);
    let mut payload = 1_700_000_000_000_001_u64.to_be_bytes().to_vec();
    Envelope { content_type: Some("text/plain"), key: Some(b"AAPL"), ..Envelope::default() }
        .write(&mut payload);
    payload.extend_from_slice(b"187.21");
    let extras = Extras { timed: true, enveloped: true };
    let (sender, group) = (NodeId(7), GroupId(9));
    let data = Data {
        sender,
        group,
        seq: 5,
        sender_seq: 6,
        expires: false,
        fragment: false,
        joint: false,
        extras,
        payload: &payload,
    };
    let mut bytes = vec![0; data.wire_len()];
    data.write(&mut bytes);
    assert!(matches!(wire::Datagram::read(&bytes), Ok(wire::Datagram::Data(_))));
    bytes.extend_from_slice(&seal.trailer(None, &bytes));
    let fields = [
        "ricochet.sequence_number",
        "ricochet.key_name",
        "ricochet.counter",
        "ricochet.item_kind",
        COMPLAINT,
    ];
    for port in [GROUP_PORT, 9_999] {
        let test = "a_trailer_is_recognized_and_the_message_before_it_is_shown";
        let Some(shown) = dissect(test, &captured(&[bytes.clone()], port), &fields) else { return };
        assert_eq!(shown, [["5", &format!("0x{name}"), "1", "2,6", ""]], "port {port}");
    }
}
