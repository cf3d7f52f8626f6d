//! A peer that has the key and lies, to the controller of the rate or about packets.

use std::net::Ipv4Addr;

use maelstrom_core::counters::{Rejected, Unused};
use maelstrom_core::forecast::Forecast;
use maelstrom_core::identity::Identity;
use maelstrom_core::packet::{MutableFields, Packet};
use maelstrom_core::session::HelloKey;
use maelstrom_core::symbol::Symbol;
use maelstrom_core::wire::{HELLO_HEADER, Hello, KeyPart, LossReport, Outer, TAG, write_hello_header};
use maelstrom_core::{Config, PeerKey, Schedule};
use testkit::packet::udp4;

use crate::fuzz::Liar;
use crate::pair::{A, B, Pair, payload, trusting, udp};

fn named(named: u64) -> LossReport {
    LossReport { named, ..LossReport::NONE }
}

/// A gateway that has sent `count` packets to a liar.
fn liar(count: u16) -> Liar {
    let mut liar = Liar::to(Schedule::Auto, false);
    (0..count).for_each(|n| liar.leave(&udp(A, n, &[7; 400])));
    assert_eq!(liar.egress().source_packets, u64::from(count));
    liar
}

fn impossible(liar: &Liar) -> u64 {
    liar.gateway().rejected().count(Rejected::Impossible)
}

#[test]
fn counts_beyond_the_stream_are_refused_however_they_rise_and_fall() {
    let mut liar = liar(200);
    let lie = |liar: &mut Liar, count| {
        liar.say_counts(named(count), Forecast::NONE);
        liar.wait(1);
    };
    for _ in 0..3 {
        lie(&mut liar, u64::MAX);
        (0..9).for_each(|_| lie(&mut liar, 0));
        lie(&mut liar, u64::MAX - 1);
        lie(&mut liar, 201);
    }
    assert_eq!(impossible(&liar), 9);
    lie(&mut liar, 200);
    assert_eq!(impossible(&liar), 9, "all packets may be settled");
    for packets in [201, u32::MAX] {
        liar.say_counts(named(200), Forecast { packets, ..Forecast::NONE });
    }
    assert_eq!(impossible(&liar), 11);
}

#[test]
fn no_report_makes_more_than_all_packets_lost() {
    let mut liar = liar(200);
    liar.wait(1);
    let mut forecast = Forecast { packets: 100, lost: 305, ..Forecast::NONE };
    forecast.tails.iter_mut().for_each(|tail| tail.failed = 4_000_000_000);
    liar.say_counts(LossReport { lost: 100, ..named(100) }, forecast);
    liar.wait(1);
    let decision = liar.gateway().peers().next().unwrap().decision.copied().unwrap();
    assert!(decision.loss <= 1.0 && decision.residual <= 1.0, "{decision:?}");
    assert!(decision.loss > 0.9, "the report counts: {decision:?}");
}

/// The far gateway protects a network that our file does not list, because it was told that we watch it.
#[test]
fn nothing_from_a_network_that_is_not_the_peers_is_injected() {
    let schedule = Schedule::Sliding { rate: "1".parse().unwrap(), window: 64, density: 15 };
    let mut pair = Pair::new([A, B].map(|side| Config { schedule: schedule.clone(), ..trusting(side) }));
    let (key, mut count) = (HelloKey::new(&PeerKey::new([5; 32])), 0_u32);
    pair.alter = Box::new(move |side, datagram| {
        if side == A || !matches!(Outer::read(datagram), Ok(Outer::Hello(_))) {
            return;
        }
        let mut sealed = datagram.clone();
        let mut hello = Hello::read(key.open(&mut sealed).unwrap()).unwrap();
        hello.watched.push("10.99.0.0/16".parse().unwrap());
        *datagram = vec![0; HELLO_HEADER + hello.wire_len() + TAG];
        count += 1;
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&count.to_be_bytes());
        write_hello_header(datagram, KeyPart::Only, nonce);
        let end = datagram.len() - TAG;
        hello.write(&mut datagram[HELLO_HEADER..end]);
        key.seal(datagram);
    });
    pair.run_until_up();
    let foreign = |n: u16| {
        let (from, to) = (Ipv4Addr::new(10, 99, 0, 5), Ipv4Addr::new(10, 81, 2, 10));
        udp4(from, to, 9_000, n, &payload(n.into()))
    };
    let mut lost = Vec::new();
    for n in 0..400u16 {
        let own = udp(A, n, &payload(n.into()));
        pair.send(A, &own, n % 40 == 7);
        lost.extend((n % 40 == 7).then_some(own));
        if n % 10 == 3 {
            pair.send(A, &foreign(n), n % 20 == 3);
        }
        pair.advance(1_000);
    }
    pair.advance(1_000_000);
    assert_eq!(pair.status(A, |peer| peer.egress.source_packets), 440, "all were protected");
    assert!(pair.status(B, |peer| peer.ingress.unused.count(Unused::WrongRecovery)) > 0, "they were solved");
    assert!(pair.recovered[B].iter().all(|packet| lost.contains(packet)));
}

/// A layered repair of one packet, whose name is off by `name_off` and whose time to live is `ttl`.
fn repair_of_one(liar: &Liar, seq: u32, packet: &[u8], name_off: u32, ttl: u8) -> Vec<u8> {
    let mut identity = Identity::new(&PeerKey::new([5; 32])).with_name_bits(2);
    identity.begin_session(&liar.names);
    let packet = Packet::new_checked(packet).unwrap();
    let (hash, fields) = (identity.hash(&packet), packet.mutable_fields());
    let name = (identity.name(hash).0 + name_off) % 4;
    let head = [1, 1, 1, 0, 0, 1];
    let [front, behind] = Symbol::new(&packet, hash, fields).pieces().map(<[u8]>::to_vec);
    let named = [&seq.to_be_bytes()[..], &[ttl, fields.tos, 0], &name.to_be_bytes()].concat();
    [&head[..], &named, &front, &behind].concat()
}

#[test]
fn a_repair_whose_names_do_not_fit_its_sum_injects_nothing() {
    let mut liar = Liar::new();
    let packet = |n: u32| udp(B, n as u16, &[7; 100]);
    let MutableFields { ttl, .. } = Packet::new_checked(&packet(0)).unwrap().mutable_fields();
    for n in 0..6 {
        liar.deliver(&packet(n));
        let repair = repair_of_one(&liar, n, &packet(n), 0, ttl);
        liar.say(&repair);
        liar.wait(1);
    }
    let injected = |liar: &Liar| liar.gateway().peers().next().unwrap().ingress.recovered_packets;
    for (n, name_off, ttl, expected) in [(6, 1, ttl, 0), (7, 0, ttl - 1, 0), (8, 0, ttl, 1)] {
        let repair = repair_of_one(&liar, n, &packet(n), name_off, ttl);
        liar.say(&repair);
        liar.wait(1);
        assert_eq!(injected(&liar), expected, "packet {n}");
    }
}
