//! Reed–Solomon blocks: which losses they recover, when they fire, and which configurations are refused.
#![allow(missing_docs)]

use crate::common::Random;
use crate::common::sender::{Sender, Sent, recover};
use fec::{
    BLOCK_C_MAX, BLOCK_R_MAX, INTERLEAVE_MAX, MEMORY_MAX, ReedSolomonConfig, ReedSolomonEncoder, Sending,
    cauchy, gf256,
};
use proptest::prelude::*;

fn config(r: u8, c: u8, interleave: u16) -> ReedSolomonConfig {
    ReedSolomonConfig { r, c, interleave, deadline_us: None, symbol_max: 16, ..ReedSolomonConfig::default() }
}

/// Returns all ways to choose `k` of `n`.
fn choices(n: usize, k: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..1u32 << n)
        .filter(move |bits| bits.count_ones() as usize == k)
        .map(move |bits| (0..n).filter(|at| bits >> at & 1 == 1).collect())
}

#[test]
fn any_r_of_r_plus_c_recover_a_block_and_no_fewer_do() {
    for (r, c) in [(1, 1), (1, 4), (2, 2), (3, 3), (5, 3), (8, 3), (4, 6), (7, 2), (9, 4)] {
        let sent = Sender::new(config(r, c, 1)).many(u64::from(r));
        assert_eq!(sent.len(), usize::from(c));
        let all = usize::from(r + c);
        for arrived in choices(all, usize::from(r)) {
            let lost: Vec<u64> = (0..u64::from(r)).filter(|&n| !arrived.contains(&(n as usize))).collect();
            let repairs: Vec<&Sent> = sent
                .iter()
                .enumerate()
                .filter(|(row, _)| arrived.contains(&(usize::from(r) + row)))
                .map(|(_, repair)| repair)
                .collect();
            assert_eq!(
                recover(repairs.iter().copied(), r.into(), &lost).len(),
                lost.len(),
                "({r},{c}) {arrived:?}"
            );
            if repairs.len() > 1 {
                assert_eq!(
                    recover(repairs[1..].iter().copied(), r.into(), &lost).len(),
                    0,
                    "({r},{c}) {arrived:?} less one"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn any_r_of_large_blocks_recover_them(
        r in 1..=BLOCK_R_MAX, c in 1..=BLOCK_C_MAX, interleave in 1..9u16, seed: u64, delayed: bool,
    ) {
        let sending = if delayed { Sending::Delayed } else { Sending::Immediate };
        let mut sender = Sender::new(ReedSolomonConfig { sending, ..config(r, c, interleave) });
        let packets = u64::from(r) * u64::from(interleave);
        let mut sent = sender.many(packets);
        sent.extend(sender.flush());
        prop_assert_eq!(sent.len(), usize::from(c) * usize::from(interleave));
        let mut random = Random(seed);
        // One block has losses; the others arrive complete.
        let block = random.below(interleave.into());
        let mut repairs: Vec<&Sent> = sent.iter().filter(|repair| repair.packets[0] == block).collect();
        prop_assert_eq!(repairs.len(), usize::from(c));
        let mut packets_of: Vec<u64> = (0..u64::from(r)).map(|k| block + k * u64::from(interleave)).collect();
        prop_assert_eq!(&repairs[0].packets, &packets_of);
        let losses = random.below(1 + u64::from(r.min(c))) as usize;
        let shuffle = |random: &mut Random, at: usize, end: usize| at + random.below((end - at) as u64) as usize;
        for at in 0..losses {
            let other = shuffle(&mut random, at, packets_of.len());
            packets_of.swap(at, other);
            let other = shuffle(&mut random, at, repairs.len());
            repairs.swap(at, other);
        }
        let lost = &packets_of[..losses];
        prop_assert_eq!(recover(repairs[..losses].iter().copied(), packets, lost).len(), losses);
    }

    #[test]
    fn part_filled_blocks_recover_by_any_of_their_repairs(r in 2..20u8, c in 1..8u8, interleave in 1..6u16, packets in 1..40u64) {
        let mut sender = Sender::new(config(r, c, interleave));
        let mut sent = sender.many(packets);
        sent.extend(sender.flush());
        let round = u64::from(r) * u64::from(interleave);
        let blocks = packets / round * u64::from(interleave) + (packets % round).min(interleave.into());
        prop_assert_eq!(sent.len() as u64, blocks * u64::from(c));
        // A burst up to the last packet, of as many packets as the blocks can recover.
        let lost: Vec<u64> = (0..packets).rev().take(usize::from(c.min(r)) * usize::from(interleave)).collect();
        let fits = lost.iter().all(|n| n / round == (packets - 1) / round);
        let repairs: Vec<&Sent> = sent.iter().collect();
        if fits {
            prop_assert_eq!(recover(repairs.iter().copied(), packets, &lost).len(), lost.len());
        }
    }
}

#[test]
fn every_square_submatrix_of_order_two_is_invertible() {
    for (a, b) in (0..BLOCK_C_MAX).flat_map(|a| (0..a).map(move |b| (a, b))) {
        for (x, y) in (0..BLOCK_R_MAX).flat_map(|x| (0..x).map(move |y| (x, y))) {
            let minor =
                gf256::product(cauchy(a, x), cauchy(b, y)) ^ gf256::product(cauchy(a, y), cauchy(b, x));
            assert!(minor != 0 && cauchy(a, x) != 0, "rows {a} {b}, columns {x} {y}");
        }
    }
}

#[test]
fn blocks_are_fed_in_turn_and_fire_when_full() {
    let mut sender = Sender::new(config(2, 1, 3));
    let sent: Vec<Vec<Vec<u64>>> =
        (0..7).map(|_| sender.push(0).into_iter().map(|repair| repair.packets).collect()).collect();
    assert_eq!(sent, [vec![], vec![], vec![], vec![vec![0, 3]], vec![vec![1, 4]], vec![vec![2, 5]], vec![]]);
}

#[test]
fn delayed_repairs_leave_row_by_row_with_the_packets_of_the_next_round() {
    let delayed = ReedSolomonConfig { sending: Sending::Delayed, ..config(3, 2, 2) };
    let mut sender = Sender::new(delayed);
    assert_eq!(sender.many(6), []);
    let sent: Vec<Vec<(usize, u64)>> = (0..6)
        .map(|_| sender.push(0).into_iter().map(|repair| (repair.row, repair.packets[0])).collect())
        .collect();
    assert_eq!(sent, [vec![(0, 0)], vec![(0, 1)], vec![(1, 0)], vec![(1, 1)], vec![], vec![]]);
    assert_eq!(sender.push(0)[0].packets, [6, 8, 10]);
    // There are more repairs than packets, and all leave before the next round is full.
    let mut sender = Sender::new(ReedSolomonConfig { sending: Sending::Delayed, ..config(2, 5, 1) });
    assert_eq!((sender.many(2).len(), sender.many(2).len()), (0, 5));
}

#[test]
fn a_part_filled_round_fires_at_its_deadline_and_the_next_packet_begins_a_round() {
    let mut sender = Sender::new(ReedSolomonConfig { deadline_us: Some(100), ..config(4, 2, 2) });
    assert_eq!(sender.encoder.next_deadline_us(), None);
    sender.push(10);
    sender.push(50);
    sender.push(60);
    assert_eq!((sender.encoder.next_deadline_us(), sender.due(109)), (Some(110), vec![]));
    let fired: Vec<(usize, Vec<u64>)> =
        sender.due(110).into_iter().map(|sent| (sent.row, sent.packets)).collect();
    assert_eq!(fired, [(0, vec![0, 2]), (0, vec![1]), (1, vec![0, 2]), (1, vec![1])]);
    assert_eq!((sender.encoder.next_deadline_us(), sender.due(10_000)), (None, vec![]));
    sender.push(20_000);
    assert_eq!(sender.flush()[0].packets, [3]);
    assert_eq!(sender.flush(), []);
}

#[test]
fn blocks_that_fired_do_not_fire_again_at_the_deadline() {
    let mut sender = Sender::new(ReedSolomonConfig { deadline_us: Some(100), ..config(2, 1, 2) });
    assert_eq!((0..3).map(|n| sender.push(n).len()).sum::<usize>(), 1);
    let fired = sender.due(100);
    assert_eq!(fired.iter().map(|sent| &sent.packets[..]).collect::<Vec<_>>(), [[1]]);
}

#[test]
fn delayed_repairs_leave_at_their_deadline() {
    let delayed = ReedSolomonConfig { sending: Sending::Delayed, deadline_us: Some(100), ..config(2, 2, 1) };
    let mut sender = Sender::new(delayed);
    sender.push(0);
    sender.push(1);
    sender.push(40);
    assert_eq!(sender.encoder.next_deadline_us(), Some(100), "one of two has left");
    assert_eq!(sender.due(100).len(), 1);
    assert_eq!(sender.encoder.next_deadline_us(), Some(140));
    assert_eq!(sender.due(140).len(), 2);
    // A clock that steps back changes nothing.
    assert_eq!(sender.due(3), []);
}

#[test]
fn bytes_of_longer_symbols_are_in_no_later_sum() {
    let mut encoder = ReedSolomonEncoder::<u8>::new(&config(1, 2, 1)).unwrap();
    let mut sent = Vec::new();
    for bytes in [&[9u8; 16][..], &[3], &[5, 5]] {
        encoder.push(0, 0, &[bytes], &mut |repair| sent.push(repair.payload.to_vec())).unwrap();
    }
    let scaled =
        |bytes: &[u8]| bytes.iter().map(|&byte| gf256::product(cauchy(1, 0), byte)).collect::<Vec<_>>();
    assert_eq!(sent[2..], [vec![3], scaled(&[3]), vec![5, 5], scaled(&[5, 5])]);
    assert!(encoder.push(0, 0, &[&[0; 17]], &mut |_| {}).is_err());
}

fn mistake(change: impl FnOnce(&mut ReedSolomonConfig)) -> String {
    let mut config = ReedSolomonConfig::default();
    change(&mut config);
    ReedSolomonEncoder::<u64>::new(&config).unwrap_err().to_string()
}

#[test]
fn configurations_out_of_range_are_refused() {
    assert!(ReedSolomonConfig::default().check().is_ok());
    assert_eq!(mistake(|config| config.r = 0), "r: expected 1 to 128, saw 0");
    assert_eq!(mistake(|config| config.r = 129), "r: expected 1 to 128, saw 129");
    assert_eq!(mistake(|config| config.c = 0), "c: expected 1 to 64, saw 0");
    assert_eq!(mistake(|config| config.c = 65), "c: expected 1 to 64, saw 65");
    assert_eq!(mistake(|config| config.interleave = 0), "interleave: expected 1 to 1024, saw 0");
    assert!(mistake(|config| config.interleave = INTERLEAVE_MAX + 1).ends_with("saw 1025"));
    assert!(mistake(|config| config.deadline_us = Some(0)).ends_with("saw 0"));
    assert!(mistake(|config| config.symbol_max = 0).starts_with("symbol_max: expected 1 to 131072"));
    let large = mistake(|config| (config.c, config.interleave, config.symbol_max) = (64, 1_024, 65_536));
    assert!(large.contains(&format!("at most {MEMORY_MAX} bytes")), "{large}");
}

#[test]
fn the_reported_memory_is_the_memory_held() {
    let encoder = ReedSolomonEncoder::<u64>::new(&ReedSolomonConfig::default()).unwrap();
    assert!((3 * 1_536..3 * 1_536 + 256).contains(&encoder.memory_bytes()), "{}", encoder.memory_bytes());
}
