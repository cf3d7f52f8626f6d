//! Two whole gateways whose repairs are Reed–Solomon blocks, over a lossy link in virtual time.
//!
//! The path is trusted, so that nothing but the code decides.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use crate::pair::{A, B, Pair, config, payload, run, trusting, udp};
use maelstrom_core::counters::Unused;
use maelstrom_core::packet::{MutableFields, restore};
use maelstrom_core::{Config, ConfigError, Gateway, Schedule};

const R: usize = 8;
const C: usize = 3;

fn blocks(side: usize, interleave: u16) -> Config {
    Config { schedule: Schedule::ReedSolomon { r: R as u8, c: C as u8, interleave }, ..trusting(side) }
}

fn up(interleave: u16) -> Pair {
    Pair::up([blocks(A, interleave), blocks(B, interleave)])
}

/// A packet with mutable fields of its own, which are part of the symbol and must be subtracted times the
/// coefficient.
fn packet(n: u32) -> Vec<u8> {
    let mut packet = udp(A, n as u16, &payload(n));
    restore(&mut packet, MutableFields { ttl: 40 + (n % 9) as u8, tos: (n % 3) as u8 });
    packet
}

fn sorted(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.sort();
    packets
}

#[test]
fn any_c_losses_among_the_packets_and_repairs_of_a_block_are_recovered() {
    let mut pair = up(1);
    let fates = Rc::new(RefCell::new(VecDeque::<bool>::new()));
    let of_datagrams = Rc::clone(&fates);
    pair.lose_datagram = Box::new(move || of_datagrams.borrow_mut().pop_front().unwrap_or(false));
    let choices = (0..1u32 << (R + C)).filter(|lost| (1..=C as u32).contains(&lost.count_ones()));
    for (block, choice) in choices.enumerate() {
        let is_lost = |at: usize| choice >> at & 1 == 1;
        let mut lost = Vec::new();
        for at in 0..R {
            let packet = packet((block * R + at) as u32);
            if at == R - 1 {
                fates.borrow_mut().extend((R..R + C).map(is_lost));
            }
            pair.send(A, &packet, is_lost(at));
            lost.extend(is_lost(at).then_some(packet));
        }
        assert!(fates.borrow().is_empty(), "a full block sends its repairs");
        pair.advance(10_000);
        let recovered = std::mem::take(&mut pair.recovered[B]);
        assert_eq!(sorted(recovered), sorted(lost), "lost: {choice:011b}");
    }
    let counts = pair.status(B, |peer| *peer.ingress);
    assert_eq!(
        (counts.unused.count(Unused::WrongRecovery), counts.unused.count(Unused::Inconsistent)),
        (0, 0)
    );
}

#[test]
fn losses_of_part_filled_blocks_are_recovered_after_a_silence() {
    for (interleave, packets, lost) in [(1, 1, 1), (1, 2, 2), (1, 7, 3), (5, 3, 3), (5, 7, 5), (20, 60, 45)] {
        let mut pair = up(interleave);
        let all: Vec<_> = (0..packets).map(packet).collect();
        for (at, packet) in all.iter().enumerate() {
            pair.send(A, packet, at < lost);
        }
        pair.advance(1_900);
        assert!(pair.recovered[B].is_empty(), "{packets} packets in blocks x{interleave}");
        pair.advance(600);
        let recovered = std::mem::take(&mut pair.recovered[B]);
        assert_eq!(sorted(recovered), sorted(all[..lost].to_vec()), "{packets} packets x{interleave}");
        // Every block that contains a packet sends all its repairs.
        let repairs = C * usize::from(interleave).min(all.len());
        assert_eq!(pair.status(A, |peer| peer.egress.repair_packets), repairs as u64);
    }
}

#[test]
fn more_than_c_losses_of_a_block_stay_lost_and_are_counted() {
    let mut pair = up(1);
    for n in 0..R as u32 {
        pair.send(A, &packet(n), n <= C as u32);
    }
    for n in R as u32..400 {
        pair.send(A, &packet(n), false);
        pair.advance(1_000);
    }
    pair.advance(3_000_000);
    assert!(pair.recovered[B].is_empty());
    let report = pair.status(A, |peer| peer.far.loss);
    assert_eq!((report.lost, report.recovered), (C as u64 + 1, 0), "{report:?}");
}

#[test]
fn scattered_losses_are_recovered_bit_for_bit_and_are_reported() {
    for interleave in [1, 20] {
        // At one packet a millisecond, a round fills before the deadline.
        let side = |side| Config { max_delay_us: 500_000, ..blocks(side, interleave) };
        let mut pair = Pair::up([side(A), side(B)]);
        let lost = run(&mut pair, 8_000, 7, 0.01);
        assert!(lost.len() > 50, "{} lost", lost.len());
        assert_eq!(sorted(pair.recovered[B].clone()), sorted(lost.clone()), "x{interleave}");
        let report = pair.status(A, |peer| peer.far.loss);
        assert_eq!((report.lost, report.residual()), (lost.len() as u64, 0), "x{interleave}: {report:?}");
    }
}

/// A burst takes packets and repairs alike, in order of departure.
#[test]
fn bursts_are_spread_over_the_blocks_that_are_fed_in_turn() {
    for delayed in [false, true] {
        let side = |side| Config { delayed, ..blocks(side, 20) };
        let mut pair = Pair::up([side(A), side(B)]);
        let burst = Rc::new(Cell::new(0u32));
        let take = |left: &Cell<u32>| {
            let is_lost = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            is_lost
        };
        let of_datagrams = Rc::clone(&burst);
        pair.lose_datagram = Box::new(move || take(&of_datagrams));
        let mut lost = Vec::new();
        for n in 0..8_000u32 {
            // The burst begins anywhere in a round.
            if n % 531 == 17 {
                burst.set(20);
            }
            let packet = packet(n);
            let is_lost = take(&burst);
            pair.send(A, &packet, is_lost);
            lost.extend(is_lost.then_some(packet));
            pair.advance(50);
        }
        pair.lose_datagram = Box::new(|| false);
        pair.advance(1_000_000);
        assert!(lost.len() > 100, "{} lost", lost.len());
        let recovered = sorted(pair.recovered[B].clone());
        if delayed {
            assert_eq!(recovered, sorted(lost));
        } else {
            // Such a burst takes the last packets of some blocks together with all their repairs.
            assert!(
                recovered.len() < lost.len() && recovered.len() > lost.len() * 3 / 4,
                "{}",
                recovered.len()
            );
        }
    }
}

#[test]
fn repairs_of_a_complete_block_are_counted_as_redundant() {
    let mut pair = up(1);
    for n in 0..40 * R as u32 {
        pair.send(A, &packet(n), n == 3);
        pair.advance(100);
    }
    pair.advance(10_000);
    assert_eq!(pair.recovered[B], [packet(3)]);
    // All but the one that recovered a packet.
    assert_eq!(pair.status(B, |peer| peer.ingress.unused.count(Unused::Redundant)), 40 * C as u64 - 1);
}

#[test]
fn a_wrong_recovery_is_never_injected_even_if_names_collide() {
    for bits in [3, 6, 10] {
        let weak = |side| Config { name_bits: bits, ..blocks(side, 3) };
        let mut pair = Pair::up([weak(A), weak(B)]);
        let sent: HashSet<_> = (0..4_000u32).map(|n| udp(A, n as u16, &payload(n))).collect();
        run(&mut pair, 4_000, 11, 0.03);
        assert!(pair.recovered[B].iter().all(|packet| sent.contains(packet)), "names of {bits} bits");
        let distinct: HashSet<_> = pair.recovered[B].iter().collect();
        assert_eq!(distinct.len(), pair.recovered[B].len(), "a packet injected twice");
        let wrong = pair.status(B, |peer| peer.ingress.unused.count(Unused::WrongRecovery));
        assert!(bits > 6 || wrong > 0, "the test should provoke wrong recoveries");
        assert!(bits < 6 || distinct.len() > 30, "names of {bits} bits: {} back", distinct.len());
    }
}

/// Each egress has a code of its own; an ingress accepts any.
#[test]
fn the_two_directions_may_have_different_codes_and_one_may_change() {
    let mut pair = Pair::up([trusting(A), blocks(B, 4)]);
    let exchange = |pair: &mut Pair| {
        let sent = pair.lose_one_in_forty();
        pair.advance(500_000);
        for (from, lost) in [A, B].into_iter().zip(sent) {
            let recovered = std::mem::take(&mut pair.recovered[1 - from]);
            assert_eq!(sorted(recovered), sorted(lost), "from side {from}");
        }
    };
    exchange(&mut pair);
    pair.gateways[A].reconfigure(blocks(A, 4)).unwrap();
    pair.run_until_up();
    exchange(&mut pair);
}

#[test]
fn a_block_that_no_recipe_can_name_is_refused() {
    let with = |r, c, interleave| {
        let config = Config { schedule: Schedule::ReedSolomon { r, c, interleave }, ..config(A) };
        Gateway::new(config, [1; 32]).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with(64, 8, 4), Ok(()));
    assert_eq!(with(65, 8, 4), Err("r: expected at most 64, saw 65".to_owned()));
    assert_eq!(with(8, 0, 4), Err("c: expected 1 to 64, saw 0".to_owned()));
    assert!(with(8, 3, 0).unwrap_err().starts_with("interleave: "));
    let layered = Config { schedule: Schedule::Layered { r: 8, interleaves: vec![] }, ..config(A) };
    assert!(matches!(Gateway::new(layered, [1; 32]), Err(ConfigError::Code(_))));
}
