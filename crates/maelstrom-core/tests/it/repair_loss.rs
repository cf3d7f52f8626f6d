//! Links that lose many repairs.

use std::cell::Cell;
use std::rc::Rc;

use crate::pair::{A, B, Pair, coin, config, udp};
use maelstrom_core::{Config, Schedule};

/// Sends a packet each millisecond, of which one in 100 is lost, and this share of repairs. Returns the
/// numbers of lost and recovered packets, without the first `settle` packets.
fn lost_and_recovered(pair: &mut Pair, repair_loss: f64, settle: u32) -> (usize, usize) {
    let is_over = Rc::new(Cell::new(false));
    let (ends, mut lose) = (Rc::clone(&is_over), coin(21, repair_loss));
    pair.lose_datagram = Box::new(move || lose() && !ends.get());
    let mut lost = 0;
    for n in 0..settle + 8_000 {
        if n == settle {
            pair.recovered[B].clear();
        }
        let is_lost = n % 100 == 37;
        lost += usize::from(is_lost && n >= settle);
        pair.send(A, &udp(A, n as u16, &n.to_be_bytes().repeat(150)), is_lost);
        pair.advance(1_000);
    }
    pair.advance(1_000_000);
    is_over.set(true);
    (lost, pair.recovered[B].len())
}

/// With most names lost, a window has more unknowns than equations, and would recover nothing at all.
#[test]
fn a_window_recovers_less_and_not_nothing_where_most_repairs_are_lost() {
    for (rate, repair_loss, least) in [
        ("1/8", 0.3, 90),
        ("1/8", 0.45, 80),
        ("1/8", 0.6, 65),
        ("3/8", 0.45, 92),
        ("3/8", 0.6, 90),
        ("1/32", 0.3, 75),
    ] {
        let window = Schedule::Sliding { rate: rate.parse().unwrap(), window: 512, density: 15 };
        let mut pair = Pair::up([A, B].map(|side| Config { schedule: window.clone(), ..config(side) }));
        let (lost, recovered) = lost_and_recovered(&mut pair, repair_loss, 3_000);
        println!(
            "{rate} {repair_loss}: {recovered} of {lost}, {}",
            pair.status(A, |peer| peer.code.to_string())
        );
        assert!(
            recovered * 100 >= lost * least,
            "{rate}, {repair_loss} of repairs lost: {recovered} of {lost}"
        );
    }
}

#[test]
fn a_window_is_whole_again_when_repairs_arrive_again() {
    let window = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 512, density: 15 };
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: window.clone(), ..config(side) }));
    let code = |pair: &Pair| pair.status(A, |peer| peer.code.to_string());
    assert_eq!(lost_and_recovered(&mut pair, 0.0, 1_000).0, 80);
    assert_eq!(code(&pair), "sliding (512; 1/8)");
    lost_and_recovered(&mut pair, 0.6, 1_000);
    assert_eq!(code(&pair), "sliding (24; 1/8)");
    pair.recovered[B].clear();
    assert_eq!(lost_and_recovered(&mut pair, 0.0, 3_000), (80, 80));
    assert_eq!(code(&pair), "sliding (512; 1/8)");
}

/// Where many repairs are lost, each names all its packets. At the lowest rate that would be more names than
/// there is room for.
#[test]
fn no_repair_of_packets_that_fit_is_cut_in_two_where_most_repairs_are_lost() {
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: Schedule::Auto, ..config(side) }));
    let packet_max = pair.status(A, |peer| peer.packet_max);
    assert_eq!(packet_max, 1_301);
    let send = |pair: &mut Pair, packets: u32, length: usize, seed: u64, repair_loss: f64| {
        pair.lose_datagram = Box::new(coin(seed, repair_loss));
        for n in 0..packets {
            let mut payload = (u64::from(n) + seed * 1_000_000).to_be_bytes().to_vec();
            payload.resize(length - 28, 7);
            pair.send(A, &udp(A, n as u16, &payload), false);
            pair.advance(200);
        }
        pair.status(A, |peer| (peer.decision.unwrap().rate.to_string(), *peer.egress))
    };
    let (rate, _) = send(&mut pair, 20_000, packet_max, 1, 0.0);
    assert_eq!(rate, "1/40", "the lowest rate fits, and a clean link needs no other");
    let (rate, counts) = send(&mut pair, 10_000, packet_max, 2, 0.4);
    assert_eq!((counts.cut_in_two, counts.long_packets), (0, 0), "of {} at {rate}", counts.repair_packets);
    // The next longer packet is counted, and so are the repairs that are cut because of it.
    let (_, counts) = send(&mut pair, 1_000, 1_400, 3, 0.0);
    assert_eq!(counts.long_packets, 1_000);
    assert!(counts.cut_in_two > 0);
}
