//! The dissector for Wireshark, `ops/undrop.lua`, shows the outer headers of what gateways send.

use std::net::SocketAddr;

use maelstrom_core::PeerKey;
use maelstrom_core::rack::{Member, Rack, RackConfig, Standing, by_hand};
use maelstrom_core::wire::{SealedHeader, VERSION};
use testkit::packet::udp4;
use testkit::wireshark::{Capture, dissect};

use crate::pair::{A, B, Pair, config, run};

fn captured(datagrams: &[Vec<u8>], port: u16) -> Capture {
    let mut capture = Capture::new();
    for (number, datagram) in (0..).zip(datagrams) {
        let packet = udp4([10, 81, 9, 1].into(), [10, 81, 9, 2].into(), port, number as u16, datagram);
        capture.add(1_700_000_000_000_000 + number, &packet);
    }
    capture
}

const FIELDS: [&str; 4] = ["maelstrom.kind", "maelstrom.epoch", "maelstrom.counter", "_ws.expert.message"];

/// At the usual port, and at another, where a Hello tells that the conversation is one of gateways.
#[test]
fn the_outer_headers_of_gateways_are_shown() {
    let mut pair = Pair::new([config(A), config(B)]);
    pair.sent_datagrams = Some(Vec::new());
    pair.run_until_up();
    run(&mut pair, 200, 1, 0.02);
    let sent = pair.sent_datagrams.take().unwrap();
    assert_eq!(sent[0][0] & 0xf, 1, "a gateway begins with a Hello");
    for port in [4_700, 9_999] {
        let Some(shown) = dissect("the_outer_headers_of_gateways_are_shown", &captured(&sent, port), &FIELDS)
        else {
            return;
        };
        assert_eq!(shown.len(), sent.len());
        for (datagram, row) in sent.iter().zip(&shown) {
            let (epoch, counter) = match SealedHeader::read(datagram) {
                Some(header) => (format!("0x{:08x}", header.epoch), header.counter.to_string()),
                None => (String::new(), String::new()),
            };
            assert_eq!(row, &[format!("0x{:02x}", datagram[0]), epoch, counter, String::new()]);
        }
        let sealed = shown.iter().filter(|row| row[0] == format!("0x{:02x}", VERSION << 4 | 2)).count();
        assert!(sealed > 50 && sealed < shown.len(), "{sealed} of {} are sealed", shown.len());
    }
}

#[test]
fn datagrams_that_are_none_of_gateways_are_malformed() {
    let (hello, sealed) = (VERSION << 4 | 1, VERSION << 4 | 2);
    let sealed = |length: usize| [&[sealed][..], &vec![0; length - 1]].concat();
    let (earlier, unknown) = ((VERSION - 1) << 4 | 2, VERSION << 4 | 7);
    let wrong_part = [&[hello, 3][..], &[0; 78]].concat();
    let datagrams = [sealed(28), sealed(29), vec![earlier; 40], vec![unknown; 40], wrong_part];
    let test = "datagrams_that_are_none_of_gateways_are_malformed";
    let Some(shown) = dissect(test, &captured(&datagrams, 4_700), &["_ws.expert.message"]) else { return };
    let shown: Vec<&str> = shown.iter().map(|row| row[0].as_str()).collect();
    let expected = [
        "Malformed datagram: body: expected at least 17 bytes, saw 16",
        "",
        &format!("Malformed datagram: kind: expected version {VERSION}, saw {}", VERSION - 1),
        &format!("Malformed datagram: kind: expected a known kind, saw 0x{unknown:02x}"),
        "Malformed datagram: part of the key: expected a known value, saw 3",
    ];
    assert_eq!(shown, expected);
}

/// At their usual port: nothing else tells them from other datagrams.
#[test]
fn heartbeats_of_a_rack_are_shown() {
    let mut beats = Vec::new();
    let member = |number: u8| Member {
        name: format!("east-{number}"),
        address: SocketAddr::from(([10, 81, 1, number], 4_702)),
    };
    let members = vec![member(1), member(2)];
    let parts = by_hand(&["east-1", "east-2"], &[vec!["10.81.2.0/24".parse().unwrap()], Vec::new()]);
    let config = RackConfig { own: 0, members, parts, key: PeerKey::new([8; 32]) };
    let mut rack = Rack::new(0, config, [1; 32]);
    for now_us in [0, 100_000] {
        rack.handle_timeout(now_us, |_| Standing::default());
        beats.extend(std::iter::from_fn(|| rack.poll_datagram()).map(|(_, beat)| beat.to_vec()));
    }
    assert!(beats.len() >= 2);
    let good = beats.len();
    let (mut short, mut later, mut marked) = (beats[0].clone(), beats[0].clone(), beats[0].clone());
    short.pop();
    (later[0], marked[1]) = (0xb2, 1);
    beats.extend([short, later, marked]);
    let fields = ["maelstrom.kind", "_ws.expert.message"];
    let Some(shown) = dissect("heartbeats_of_a_rack_are_shown", &captured(&beats, 4_702), &fields) else {
        return;
    };
    assert!(shown[..good].iter().all(|row| row == &["0xb1", ""]), "{shown:?}");
    let wrong: Vec<&str> = shown[good..].iter().map(|row| row[1].as_str()).collect();
    let expected = [
        "Malformed datagram: body: expected at least 176 bytes, saw 175",
        "Malformed datagram: kind: expected at most 177, saw 178",
        "Malformed datagram: zero: expected at most 0, saw 1",
    ];
    assert_eq!(wrong, expected);
}
