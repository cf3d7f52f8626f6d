//! Sessions that are renewed while they are in use, and the randomness of Hellos.
//!
//! Tests that lose packets trust the path, because they lose no repairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::pair::{A, B, Pair, coin, config, payload, trusting, udp};
use maelstrom_core::counters::Rejected;
use maelstrom_core::{Entropy, Gateway};

const SECOND_US: u64 = 1_000_000;

/// Sends packets both ways for `us`, and asserts that all lost ones are recovered and no others.
fn exchange_and_lose(pair: &mut Pair, us: u64, seed: u64) {
    let mut lose = coin(seed, 0.02);
    pair.recovered = Default::default();
    let mut lost = [Vec::new(), Vec::new()];
    for n in 0..(us / 500) as u32 {
        for from in [A, B] {
            let mut bytes = payload(n % 100);
            bytes.extend_from_slice(&n.to_be_bytes());
            let packet = udp(from, n as u16, &bytes);
            let is_lost = lose();
            pair.send(from, &packet, is_lost);
            if is_lost {
                lost[1 - from].push(packet);
            }
        }
        pair.advance(500);
    }
    pair.advance(SECOND_US);
    for (mut lost, recovered) in lost.into_iter().zip(&mut pair.recovered) {
        lost.sort();
        recovered.sort();
        let missing = lost.iter().filter(|packet| recovered.binary_search(packet).is_err()).count();
        assert!(missing <= lost.len() / 100, "{missing} of {} stay lost", lost.len());
        assert!(recovered.iter().all(|packet| lost.binary_search(packet).is_ok()), "a packet comes twice");
    }
}

#[test]
fn a_session_is_renewed_after_an_hour_without_a_gap_in_protection() {
    for delay_us in [0, 20_000] {
        let mut pair = Pair::up([trusting(A), trusting(B)]);
        pair.delay_us = delay_us;
        let renewals = |pair: &Pair| [A, B].map(|side| pair.status(side, |peer| peer.renewals));
        pair.advance(3_595 * SECOND_US);
        assert_eq!(renewals(&pair), [0, 0]);
        // The side that begins does so after an hour, or a minute later.
        exchange_and_lose(&mut pair, 75 * SECOND_US, delay_us);
        assert_eq!(renewals(&pair), [1, 1]);
        assert_eq!([A, B].map(|side| pair.status(side, |peer| peer.sessions)), [1, 1]);
        for side in [A, B] {
            assert_eq!(pair.gateways[side].rejected().count(Rejected::UnknownEpoch), 0);
        }
    }
}

#[test]
fn a_session_is_renewed_though_datagrams_are_lost() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    pair.delay_us = 20_000;
    pair.advance(3_598 * SECOND_US);
    pair.lose_datagram = Box::new(coin(4, 0.4));
    pair.advance(80 * SECOND_US);
    pair.lose_datagram = Box::new(|| false);
    pair.advance(SECOND_US);
    assert!([A, B].iter().all(|&side| pair.status(side, |peer| peer.renewals == 1 && peer.sessions == 1)));
    exchange_and_lose(&mut pair, SECOND_US, 5);
}

#[test]
fn sessions_are_renewed_for_days() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    for _ in 0..40 {
        pair.advance(3_700 * SECOND_US);
        assert!([A, B].iter().all(|&side| pair.status(side, |peer| peer.is_up && peer.sessions == 1)));
    }
    assert!(pair.status(A, |peer| peer.renewals) >= 40);
    exchange_and_lose(&mut pair, SECOND_US, 6);
}

#[test]
fn a_gateway_that_restarts_during_a_renewal_is_found_again() {
    for restarted in [A, B] {
        for at_ms in (0..200).step_by(10) {
            let mut pair = Pair::up([trusting(A), trusting(B)]);
            pair.delay_us = 20_000;
            pair.gateways[A].handle_stall(pair.now_us, 300_000);
            pair.advance(1_000 * at_ms);
            pair.gateways[restarted] = Gateway::new(trusting(restarted), [99; 32]).unwrap();
            pair.advance(3 * SECOND_US);
            assert!([A, B].iter().all(|&side| pair.status(side, |peer| peer.is_up)), "after {at_ms} ms");
            exchange_and_lose(&mut pair, 300_000, at_ms);
        }
    }
}

#[test]
fn each_hello_draws_its_nonce_from_the_source_when_it_is_made() {
    let state = Arc::new(AtomicU8::new(1));
    let source = Arc::clone(&state);
    // A clone of the machine continues with the same memory; only the source differs.
    let entropy = Entropy::new(move |bytes| bytes.fill(source.load(Ordering::Relaxed)));
    let mut gateway = Gateway::new(config(A), entropy).unwrap();
    let mut out = gateway.outbox();
    for now_s in 1..50_u8 {
        state.store(now_s, Ordering::Relaxed);
        gateway.handle_timeout(u64::from(now_s) * SECOND_US, &mut out);
        let nonces: Vec<_> = out.datagrams.iter().map(|(_, hello)| hello[2..14].to_vec()).collect();
        assert_eq!(nonces, [[now_s; 12]]);
        out.datagrams.clear();
    }
}

#[test]
fn a_hello_that_comes_again_is_not_even_opened() {
    let mut pair = Pair::new([config(A), config(B)]);
    let mut out = pair.gateways[A].outbox();
    pair.gateways[A].handle_timeout(pair.now_us, &mut out);
    let hello = out.datagrams.iter().next().map(|(_, hello)| hello.to_vec()).unwrap();
    for _ in 0..1_000 {
        pair.inject(B, &hello);
        pair.advance(1_000);
    }
    assert!(pair.gateways[B].rejected().count(Rejected::Replayed) >= 999);
}
