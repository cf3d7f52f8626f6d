//! Routers that begin to fragment packets of a path that had carried them whole.

use std::net::Ipv4Addr;

use crate::pair::{A, B, Pair, config};
use crate::path::has;
use maelstrom_core::packet::{MutableFields, restore};
use maelstrom_core::{Config, Finding, Schedule};
use testkit::packet::udp4;

/// Largest packet that the link carries whole after a while.
const MTU: usize = 1_000;

/// Packet `n` of 1,300 bytes from A to B.
pub(crate) fn long(n: u32) -> Vec<u8> {
    let (from, to) = (Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10));
    udp4(from, to, 1_000, n as u16, &[&n.to_be_bytes()[..], &[7; 1_268]].concat())
}

/// Returns the fragments that a router makes of a packet.
pub(crate) fn fragments(whole: &[u8]) -> Vec<Vec<u8>> {
    fragments_of(whole, MTU)
}

/// Returns the fragments of a packet, which may be a fragment, on a link with this MTU.
pub(crate) fn fragments_of(whole: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let (header, content) = whole.split_at(20);
    let step = (mtu - header.len()) / 8 * 8;
    let field = u16::from_be_bytes([whole[6], whole[7]]);
    let pieces = content.chunks(step).enumerate();
    pieces
        .map(|(at, piece)| {
            let more = field & 0x2000 | u16::from((at + 1) * step < content.len()) << 13;
            let offset = (field & 0x1fff) + (at * step / 8) as u16;
            let mut bytes = [header, piece].concat();
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes[6..8].copy_from_slice(&(more | offset).to_be_bytes());
            restore(&mut bytes, MutableFields { ttl: header[8] - 1, tos: header[1] });
            bytes
        })
        .collect()
}

/// Streams long packets, which a router begins to fragment.
fn narrowed(schedule: &Schedule, start: u32, every_us: u64, tells: bool) -> Pair {
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    pair.delay_us = 5_000;
    for n in start..start + 300 {
        pair.send(A, &long(n), false);
        pair.advance(every_us);
    }
    pair.datagram_max = MTU - 28;
    if tells {
        pair.gateways[A].handle_path_mtu(pair.now_us, (0, 0), MTU);
    }
    for n in start + 300..start + 1_000 {
        let whole = long(n);
        pair.leave(A, &whole);
        fragments(&whole).into_iter().for_each(|piece| pair.fly(B, piece));
        pair.advance(every_us);
    }
    pair.advance(3_000_000);
    pair
}

#[test]
fn packets_that_a_router_begins_to_fragment_are_never_delivered_twice() {
    let window = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 256, density: 15 };
    for schedule in [Schedule::layered(), window, Schedule::Auto] {
        for (every_us, tells) in [(500, true), (2_500, true), (2_500, false), (20_000, true), (20_000, false)]
        {
            for seed in 0..3 {
                let pair = narrowed(&schedule, 10_000 * seed, every_us, tells);
                let twice = pair.recovered[B].len();
                assert_eq!(twice, 0, "{schedule}, one in {every_us} us, told: {tells}, seed {seed}");
            }
        }
    }
}

#[test]
fn fragments_that_come_after_their_packet_was_recovered_are_counted() {
    let mut pair = Pair::up([config(A), config(B)]);
    for n in 0..300 {
        pair.send(A, &long(n), false);
        pair.advance(2_500);
    }
    let mut late = Vec::new();
    for n in 300..500 {
        let whole = long(n);
        if n % 40 == 0 {
            late.push(whole.clone());
            pair.leave(A, &whole);
        } else {
            pair.send(A, &whole, false);
        }
        pair.advance(2_500);
    }
    pair.advance(100_000);
    let recovered = pair.recovered[B].len() as u64;
    assert!(recovered >= 4, "{recovered}: they look lost");
    assert!(!has(&pair, Finding::Fragmented));
    late.iter().flat_map(|whole| fragments(whole)).for_each(|piece| pair.arrive(B, &piece));
    let twice = pair.status(B, |peer| peer.ingress.after_recovery);
    assert_eq!(twice, recovered, "each packet counts once, by its first fragment");
    pair.advance(200_000);
    assert!(has(&pair, Finding::Fragmented));
}

#[test]
fn fragments_that_a_host_made_are_no_sign_of_a_router() {
    let mut pair = Pair::up([config(A), config(B)]);
    let mut late = Vec::new();
    for n in 0..300 {
        for (at, piece) in fragments(&long(n)).into_iter().enumerate() {
            let is_late = n > 100 && n % 40 == 0 && at == 0;
            late.extend(is_late.then(|| piece.clone()));
            pair.send(A, &piece, is_late);
        }
        pair.advance(2_500);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), late.len(), "they look lost");
    late.iter().for_each(|piece| pair.arrive(B, piece));
    assert_eq!(pair.status(B, |peer| peer.ingress.after_recovery), late.len() as u64);
    pair.advance(200_000);
    assert!(pair.status(B, |peer| peer.findings.is_empty()));
}
