//! Evidence that packets take another path: the excuses of missing packets, and the findings that they raise.

use std::net::Ipv4Addr;

use crate::fragments::long;
use crate::pair::{A, B, Pair, config};
use crate::path::{detour_of_flows, has, packet, pair, prove};
use maelstrom_core::{Config, Finding, Schedule};
use testkit::packet::udp4;

/// Lets packets of some flows arrive, from number `start` on.
fn arrive(pair: &mut Pair, flows: u32, start: u32, count: u32) {
    for n in start..start + count {
        pair.send(A, &packet((n % flows) as u16, n), false);
        pair.advance(1_000);
    }
}

/// Repairs that are lost later show that the link loses packets. Until then no flow is set aside for long,
/// even if it is the only one.
#[test]
fn recovery_resumes_as_soon_as_lost_repairs_explain_the_losses() {
    for flows in [1, 12] {
        let mut pair = pair();
        arrive(&mut pair, flows, 0, 600);
        let mut n = 600;
        while pair.status(B, |peer| peer.is_recovering) {
            assert!(n < 2_000, "losses without a lost repair must end recovery of {flows} flows");
            pair.send(A, &packet((n % flows) as u16, n), n % 5 == 0);
            pair.advance(1_000);
            n += 1;
        }
        let mut repairs = 0;
        pair.lose_datagram = Box::new(move || {
            repairs += 1;
            repairs <= 6
        });
        arrive(&mut pair, flows, n, 60);
        let lost = packet(0, 50_000);
        pair.send(A, &lost, true);
        arrive(&mut pair, flows, n + 60, 20);
        assert_eq!(pair.recovered[B].last(), Some(&lost), "two windows of packets have not passed");
    }
}

#[test]
fn a_finding_that_returns_ends_after_twice_as_many_windows() {
    let mut pair = pair();
    prove(&mut pair, 600);
    let (mut n, mut lengths) = (0, Vec::new());
    for round in 0..4 {
        // A long time without doubt halves the number.
        for _ in 0..if round == 3 { 80 * 256 } else { 0 } {
            n += 1;
            pair.send(A, &packet(7, n), false);
            pair.advance(1_000);
        }
        while !has(&pair, Finding::Rewritten) {
            n += 1;
            let mut rewritten = packet(7, n);
            rewritten[20] ^= 0x40;
            pair.leave(A, &packet(7, n));
            pair.arrive(B, &rewritten);
            pair.advance(1_000);
        }
        let start = n;
        while has(&pair, Finding::Rewritten) {
            n += 1;
            pair.send(A, &packet(7, n), false);
            pair.advance(1_000);
        }
        lengths.push(n - start);
    }
    // A window has 256 packets.
    assert!(lengths[0] > 2 * 256 && lengths[0] < 6 * 256, "{lengths:?}");
    assert!(lengths[1] > lengths[0] * 3 / 2 && lengths[2] > lengths[1] * 3 / 2, "{lengths:?}");
    assert!(lengths[3] < lengths[2] * 3 / 2, "{lengths:?}");
    // Losses of several windows that would not raise a finding do not bring it back.
    for k in 0..1_024 {
        n += 1;
        pair.send(A, &packet(7, n), k % 40 == 0);
        pair.advance(1_000);
        assert!(!has(&pair, Finding::PartlyElsewhere), "packet {k}");
    }
}

#[test]
fn an_mss_clamp_is_told_as_nothing_else_and_ends_no_recovery() {
    let mut pair = pair();
    prove(&mut pair, 200);
    let syn = |n: u16, mss: u8| {
        let mut bytes = udp4(Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10), 80, n, &[0; 16]);
        bytes[9] = 6;
        bytes[20..22].copy_from_slice(&(20_000 + n).to_be_bytes());
        bytes[24..28].copy_from_slice(&[1, 2, (n >> 8) as u8, n as u8]);
        bytes[32..34].copy_from_slice(&[0x60, 2]);
        bytes[40..44].copy_from_slice(&[2, 4, 5, mss]);
        bytes
    };
    let mut lost = Vec::new();
    for n in 0..400 {
        pair.leave(A, &syn(n, 180));
        pair.arrive(B, &syn(n, 100));
        for k in 0..4 {
            let bytes = packet(0, 4 * u32::from(n) + k);
            let is_lost = n % 80 == 79 && k == 1;
            pair.send(A, &bytes, is_lost);
            lost.extend(is_lost.then_some(bytes));
            pair.advance(1_000);
        }
        let others = Finding::ALL.into_iter().filter(|&finding| finding != Finding::OpeningRewritten);
        assert!(others.into_iter().all(|finding| !has(&pair, finding)), "connection {n}");
    }
    pair.advance(1_000_000);
    assert!(has(&pair, Finding::OpeningRewritten));
    assert_eq!(pair.recovered[B], lost);
}

/// On slow traffic a window of packets lasts longer than the evidence of a single one.
#[test]
fn packets_with_an_address_of_another_network_are_told_as_rewritten_at_once_and_as_nothing_else() {
    for every_us in [10_000, 1_000_000] {
        let mut pair = pair();
        prove(&mut pair, 100);
        let (mut wanted, mut told) = (0, 0);
        for n in 0..600 {
            let bytes = packet(7, n);
            pair.leave(A, &bytes);
            if pair.gateways[B].wants_strangers() {
                wanted += 1;
                let mut translated = bytes.clone();
                translated[12..16].copy_from_slice(&[203, 0, 113, 9]);
                let now_us = pair.now_us;
                pair.gateways[B].handle_stranger(now_us, &translated);
            }
            for _ in 0..every_us / 10_000 {
                pair.advance(10_000);
                assert!(told == 0 || !has(&pair, Finding::Elsewhere), "packet {n}");
                told += u32::from(has(&pair, Finding::Rewritten));
            }
            assert!(told > 0 || wanted < 40, "{wanted} strangers with contents of missing packets");
        }
        assert!(told > 0, "one in {every_us} us");
    }
}

#[test]
fn losses_are_recovered_beside_a_detour_that_is_told() {
    let mut pair = pair();
    let (doubles, injected, lost) = detour_of_flows(&mut pair, 26, 20_000, 0.01);
    assert!(has(&pair, Finding::PartlyElsewhere));
    assert!(doubles <= 40, "{doubles}");
    assert!(injected - doubles > lost * 8 / 10, "{injected} with {doubles} doubles, of {lost} lost");
}

#[test]
fn repairs_fit_the_path_from_the_moment_that_its_mtu_is_told() {
    let schedule = Schedule::Sliding { rate: "1".parse().unwrap(), window: 64, density: 15 };
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    let longest = |pair: &mut Pair, start: u32| {
        pair.sent_datagrams = Some(Vec::new());
        (start..start + 40).for_each(|n| pair.send(A, &long(n), false));
        pair.sent_datagrams.take().unwrap().iter().map(Vec::len).max().unwrap()
    };
    assert!(longest(&mut pair, 0) > 1_300);
    pair.gateways[A].handle_path_mtu(pair.now_us, (0, 0), 1_340);
    assert!(longest(&mut pair, 100) <= 1_340 - 28);
}

/// The outage would excuse as many lost packets as the link carries meanwhile.
#[test]
fn an_outage_of_the_repairs_is_no_excuse_for_packets_that_are_rewritten() {
    let schedule = Schedule::Sliding { rate: "1".parse().unwrap(), window: 256, density: 15 };
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    prove(&mut pair, 500);
    let rewrite = |pair: &mut Pair, numbers: std::ops::Range<u32>| {
        for n in numbers {
            let mut rewritten = packet(0, n);
            rewritten[20] ^= if n % 3 == 0 { 0x40 } else { 0 };
            pair.leave(A, &packet(0, n));
            pair.arrive(B, &rewritten);
            pair.advance(1_000);
        }
    };
    rewrite(&mut pair, 0..3_000);
    assert!(has(&pair, Finding::Rewritten));
    let twice = pair.recovered[B].len();
    pair.mute[A] = true;
    rewrite(&mut pair, 3_000..3_500);
    pair.mute[A] = false;
    rewrite(&mut pair, 3_500..6_000);
    assert_eq!(pair.recovered[B].len(), twice);
}

/// A new flow of a service is recovered as long as any flow of the service is in use.
#[test]
fn a_service_in_use_stays_known() {
    let mut pair = pair();
    prove(&mut pair, 10);
    for n in 0..400 {
        pair.send(A, &packet(0, n), false);
        pair.advance(1_000_000);
    }
    pair.send(A, &packet(1, 5_000), true);
    for n in 400..420 {
        pair.send(A, &packet(0, n), false);
        pair.advance(10_000);
    }
    assert_eq!(pair.recovered[B], [packet(1, 5_000)]);
}
