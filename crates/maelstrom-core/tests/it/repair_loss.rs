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
