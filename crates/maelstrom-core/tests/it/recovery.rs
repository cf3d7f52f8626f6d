//! Two whole gateways over a lossy link in virtual time.
//!
//! Most tests trust the path: they are about what recovers packets, and lose packets but no repairs.

use std::collections::HashSet;

use crate::pair::{A, B, Pair, coin, config, payload, run, trusting, udp};
use maelstrom_core::counters::{Unprotected, Unused};
use maelstrom_core::{Config, Schedule};

#[test]
fn lost_packets_are_recovered_bit_for_bit() {
    let mut pair = Pair::up([config(A), config(B)]);
    let lost = run(&mut pair, 20_000, 7, 0.01);
    assert!(lost.len() > 120, "{} lost", lost.len());
    let recovered: HashSet<_> = pair.recovered[B].iter().cloned().collect();
    assert_eq!(recovered.len(), pair.recovered[B].len(), "no packet is injected twice");
    let missed = lost.iter().filter(|packet| !recovered.contains(*packet)).count();
    assert_eq!(missed, 0, "of {}", lost.len());
    assert_eq!(recovered.len(), lost.len(), "only lost packets are injected");
    assert!(pair.recovered[A].is_empty());
}

#[test]
fn the_longest_packet_that_the_link_carries_is_recovered() {
    let mut pair = Pair::up([config(A), config(B)]);
    let packet = |n: u16| udp(A, n, &vec![n as u8; 1500 - 28]);
    for n in 0..200 {
        pair.send(A, &packet(n), n == 100);
        pair.advance(1_000);
    }
    pair.advance(1_000_000);
    assert_eq!(pair.recovered[B], [packet(100)]);
    assert_eq!(pair.status(B, |peer| peer.ingress.too_long), 0);
    let longer = udp(A, 9, &[9; 1501 - 28]);
    pair.arrive(B, &longer);
    assert_eq!(pair.status(B, |peer| peer.ingress.too_long), 1);
}

#[test]
fn losses_are_reported_to_the_far_side() {
    let mut pair = Pair::up([config(A), config(B)]);
    let lost = run(&mut pair, 5_000, 3, 0.02).len() as u64;
    let report = pair.status(A, |peer| peer.far.loss);
    assert_eq!(report, pair.status(B, |peer| peer.report));
    assert!((4_990..=5_000).contains(&report.named), "{report:?}");
    assert_eq!((report.lost, report.residual()), (lost, lost - pair.recovered[B].len() as u64));
    let bursts: u64 = report.bursts.iter().sum();
    assert!(bursts > lost / 2 && report.bursts[0] > 0, "{report:?}");
}

#[test]
fn equal_packets_are_recovered_one_by_one() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let (mut lose, mut lost) = (coin(5, 0.05), 0);
    for _ in 0..2_000 {
        let is_lost = lose();
        lost += usize::from(is_lost);
        pair.send(A, &udp(A, 0, b"heartbeat"), is_lost);
        pair.advance(1000);
    }
    pair.advance(2_000_000);
    assert_eq!(pair.recovered[B].len(), lost);
    assert!(pair.recovered[B].iter().all(|packet| *packet == udp(A, 0, b"heartbeat")));
}

#[test]
fn packets_that_repairs_overtake_are_not_injected() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    for n in 0..4_000u32 {
        let late_us = u64::from(n % 7) * 25;
        pair.send_overtaken(A, &udp(A, n as u16, &payload(n)), late_us);
        pair.advance(1000 - late_us);
    }
    pair.advance(3_000_000);
    let injected = pair.recovered[B].len();
    assert!(injected <= 3, "{injected} before the wait was learnt; none after it");
    assert!(pair.status(B, |peer| peer.ingress.late) > 1_000);
    let wait_us = pair.status(B, |peer| peer.wait_us);
    assert!((100..=200).contains(&wait_us), "packets were late by up to 150 us, repairs wait {wait_us} us");
}

#[test]
fn packets_that_the_tap_missed_do_not_count_as_lost() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    for n in 0..3_000u32 {
        // B's tap misses 300 packets, which arrive nevertheless.
        let blind = (1_000..1_300).contains(&n);
        if n == 1_300 {
            pair.gateways[B].handle_gap();
            pair.gateways[B].handle_caught_up(pair.now_us);
        }
        pair.send(A, &udp(A, n as u16, &payload(n)), blind);
        pair.advance(100);
    }
    pair.advance(3_000_000);
    // Nobody can know of the gap before it is noticed. After that, none of its packets is recovered.
    let injected: Vec<_> = pair.recovered[B].drain(..).collect();
    assert!(injected.len() < 150, "{} injected", injected.len());
    for n in 0..64u32 {
        pair.send(A, &udp(A, n as u16, b"recovery resumes"), n % 20 == 5);
        pair.advance(100);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), 3);
}

/// Equal packets are distinguished by their places alone: arrivals that were seen must not stand for those
/// that were not.
#[test]
fn equal_packets_that_the_tap_missed_are_not_injected() {
    let window = Schedule::Sliding { rate: "3/8".parse().unwrap(), window: 160, density: 15 };
    for (schedule, every_us) in [window, Schedule::layered()].iter().flat_map(|s| [(s, 1_000), (s, 10_000)]) {
        let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..trusting(side) }));
        let packet = udp(A, 0, b"the same");
        // Five packets arrive before the repairs that they complete.
        let send = |pair: &mut Pair, fives: u64, is_seen: bool| {
            for _ in 0..fives {
                for _ in 0..5 {
                    pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut pair.out[A]);
                    if is_seen {
                        pair.gateways[B].handle_incoming(pair.now_us, &packet, &mut pair.out[B]);
                    }
                }
                pair.exchange();
                pair.advance(5 * every_us);
            }
        };
        send(&mut pair, 60, true);
        pair.gateways[B].handle_gap();
        send(&mut pair, 20, false);
        pair.gateways[B].handle_caught_up(pair.now_us);
        send(&mut pair, 3_000_000 / every_us / 5, true);
        pair.advance(3_000_000);
        let injected = pair.recovered[B].len();
        assert_eq!(injected, 0, "{schedule}, one in {every_us} us");
    }
}

/// A driver may drain a long backlog of packets before it reads the repairs that name them.
#[test]
fn packets_older_than_the_history_do_not_count_as_lost() {
    let window = Schedule::Sliding { rate: "3/8".parse().unwrap(), window: 256, density: 15 };
    for schedule in [Schedule::layered(), window] {
        drain_packets_before_repairs(|side| Config { schedule: schedule.clone(), ..trusting(side) });
    }
}

fn drain_packets_before_repairs(config: impl Fn(usize) -> Config) {
    let lag_max = Pair::new([config(A), config(B)]).gateways[B].lag_max();
    for backlog in [2_000, 5_000, 9_000, lag_max as u32] {
        let mut pair = Pair::up([config(A), config(B)]);
        let (mut out_a, mut out_b) = (pair.gateways[A].outbox(), pair.gateways[B].outbox());
        let mut repairs = Vec::new();
        for n in 0..backlog {
            let packet = udp(A, n as u16, &payload(n));
            pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut out_a);
            repairs.extend(out_a.datagrams.iter().map(|(_, datagram)| datagram.to_vec()));
            out_a.datagrams.clear();
            pair.gateways[B].handle_incoming(pair.now_us, &packet, &mut out_b);
        }
        for repair in repairs {
            pair.inject(B, &repair);
            pair.exchange();
        }
        pair.advance(3_000_000);
        assert!(pair.recovered[B].is_empty(), "backlog of {backlog}");
        let report = pair.status(B, |peer| peer.report);
        assert!(
            report.lost == 0 && report.repairs > u64::from(backlog) / 4,
            "backlog of {backlog}: {report:?}"
        );
    }
}

/// A gateway that was suspended finds many repairs at once, each of which misses a packet.
#[test]
fn more_repairs_than_can_wait_are_used_early_and_few_in_one_call() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let (mut out_a, mut out_b) = (pair.gateways[A].outbox(), pair.gateways[B].outbox());
    let (mut repairs, mut lost) = (Vec::new(), Vec::new());
    for n in 0..3_200 {
        let packet = udp(A, n as u16, &payload(n));
        pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut out_a);
        repairs.extend(out_a.datagrams.iter().map(|(_, datagram)| datagram.to_vec()));
        out_a.datagrams.clear();
        if n % 8 == 3 {
            lost.push(packet);
        } else {
            pair.gateways[B].handle_incoming(pair.now_us, &packet, &mut out_b);
        }
    }
    for repair in &repairs {
        pair.inject(B, repair);
        pair.exchange();
    }
    assert!(repairs.len() > 1_000 && pair.recovered[B].len() > 100, "no room for {} repairs", repairs.len());
    pair.now_us += 100;
    let now_us = pair.now_us;
    pair.gateways[B].handle_timeout(now_us, &mut out_b);
    assert!(out_b.recovered.len() <= 32, "{} at once", out_b.recovered.len());
    assert!(pair.gateways[B].poll_timeout().unwrap() <= now_us, "the rest stays due");
    pair.recovered[B].extend(out_b.recovered.iter().map(|(_, packet)| packet.to_vec()));
    pair.advance(1_000_000);
    assert_eq!(pair.status(B, |peer| peer.ingress.unused.count(Unused::NoRoom)), 0);
    let sorted = |mut packets: Vec<Vec<u8>>| {
        packets.sort();
        packets
    };
    assert!(sorted(std::mem::take(&mut pair.recovered[B])) == sorted(lost));
}

/// The repairs' path is faster than the packets'.
#[test]
fn repairs_that_run_far_ahead_learn_to_wait() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let (mut in_transit, mut lost) = (std::collections::VecDeque::new(), coin(3, 0.01));
    let mut injected_early = 0;
    for n in 0..60_000u32 {
        let packet = udp(A, n as u16, &payload(n));
        pair.send(A, &packet, true);
        if !lost() {
            in_transit.push_back((pair.now_us + 3_000, packet));
        }
        while in_transit.front().is_some_and(|&(due_us, _)| due_us <= pair.now_us) {
            let (_, packet) = in_transit.pop_front().unwrap();
            pair.arrive(B, &packet);
        }
        pair.advance(100);
        if n == 20_000 {
            injected_early = pair.recovered[B].len();
        }
    }
    let injected = pair.recovered[B].len() - injected_early;
    assert!((380..440).contains(&injected), "{injected} of about 400 lost after the wait was learnt");
    assert!(injected_early < 300, "{injected_early} before it was, some 200 of them lost");
}

/// A packet lost together with all its repairs has no name, but is counted as lost.
#[test]
fn packets_that_no_repair_names_are_counted_as_lost() {
    let mut pair = Pair::up([config(A), config(B)]);
    let mut nameless = 0;
    for n in 0..40_000u32 {
        let packet = udp(A, n as u16, &payload(n));
        // With (8; 1,11,19) all repairs of packet n leave within the next 152 packets.
        let is_dark = (n / 1_000) % 2 == 1 && (200..600).contains(&(n % 1_000));
        pair.lose_datagram = Box::new(move || is_dark);
        let is_lost = is_dark && n % 1_000 == 300;
        nameless += u32::from(is_lost);
        pair.send(A, &packet, is_lost);
        pair.advance(100);
    }
    pair.advance(3_000_000);
    let report = pair.status(B, |peer| peer.report);
    assert_eq!((report.lost, report.recovered), (u64::from(nameless), 0), "{report:?}");
}

/// A gateway that was suspended has lost packets and repairs alike, from full buffers.
#[test]
fn packets_that_arrived_while_a_gateway_was_suspended_are_not_injected() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    for n in 0..20_000u32 {
        let still = (2_000..8_000).contains(&n);
        if n == 8_000 {
            pair.gateways[B].handle_gap();
            pair.gateways[B].handle_caught_up(pair.now_us);
        }
        pair.lose_datagram = Box::new(move || still);
        let is_lost = n > 12_000 && n % 100 == 7;
        pair.send(A, &udp(A, n as u16, &payload(n)), still || is_lost);
        pair.advance(100);
    }
    pair.advance(3_000_000);
    assert_eq!(pair.recovered[B].len(), 80, "only packets lost later");
}

/// A slow stream takes minutes to pass the places that a gap leaves in doubt.
#[test]
fn recovery_resumes_soon_after_a_gap_even_in_a_slow_stream() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    for n in 0..100u16 {
        pair.send(A, &udp(A, n, b"slow"), false);
        pair.advance(100_000);
    }
    pair.gateways[B].handle_gap();
    pair.gateways[B].handle_caught_up(pair.now_us);
    for n in 100..200u16 {
        pair.send(A, &udp(A, n, b"slow"), n == 150);
        pair.advance(100_000);
    }
    assert_eq!(pair.recovered[B], [udp(A, 150, b"slow")]);
}

/// Repairs of packets from before the gap arrive long after it.
#[test]
fn packets_from_before_a_gap_are_not_injected_even_by_late_repairs() {
    for arrived in [1, 2] {
        let mut pair = Pair::up([trusting(A), trusting(B)]);
        pair.send(A, &udp(A, 0, b"before"), false);
        pair.advance(5_000_000);
        let mut late = Vec::new();
        for n in 0..arrived {
            pair.advance(3_500_000);
            let packet = udp(A, n, b"arrived");
            let mut out = pair.gateways[A].outbox();
            pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut out);
            pair.arrive(B, &packet);
            pair.now_us += 2_000;
            pair.gateways[A].handle_timeout(pair.now_us, &mut out);
            late.extend(out.datagrams.iter().map(|(_, datagram)| datagram.to_vec()));
        }
        pair.gateways[B].handle_gap();
        pair.gateways[B].handle_caught_up(pair.now_us);
        let repairs = pair.status(B, |peer| peer.report.repairs);
        for datagram in late {
            pair.advance(2_000_000);
            pair.inject(B, &datagram);
        }
        let repairs = pair.status(B, |peer| peer.report.repairs) - repairs;
        assert_eq!(repairs, 3 * u64::from(arrived), "one of each layer");
        pair.advance(30_000_000);
        assert!(pair.recovered[B].is_empty(), "{} of {arrived} injected", pair.recovered[B].len());
        for n in 2..20 {
            pair.send(A, &udp(A, n, b"recovery resumes"), n == 12);
            pair.advance(1_100_000);
        }
        assert_eq!(pair.recovered[B], [udp(A, 12, b"recovery resumes")]);
    }
}

#[test]
fn losses_of_a_sparse_stream_are_recovered_after_a_silence() {
    let one_layer =
        |side| Config { schedule: Schedule::Layered { r: 8, interleaves: vec![1] }, ..trusting(side) };
    let mut pair = Pair::up([one_layer(A), one_layer(B)]);
    pair.send(A, &udp(A, 1, b"alone"), true);
    pair.advance(1_900);
    assert!(pair.recovered[B].is_empty());
    pair.advance(600);
    assert_eq!(pair.recovered[B], [udp(A, 1, b"alone")]);
}

#[test]
fn a_wrong_recovery_is_never_injected_even_if_names_collide() {
    for bits in [0, 3, 6, 10, 16] {
        let weak = |side| Config { name_bits: bits, ..trusting(side) };
        let mut pair = Pair::up([weak(A), weak(B)]);
        let sent: HashSet<_> = (0..4_000u32).map(|n| udp(A, n as u16, &payload(n))).collect();
        let lost = run(&mut pair, 4_000, 11, 0.03);
        for packet in &pair.recovered[B] {
            assert!(sent.contains(packet), "a packet that was never sent, with names of {bits} bits");
        }
        let distinct: HashSet<_> = pair.recovered[B].iter().collect();
        assert_eq!(distinct.len(), pair.recovered[B].len(), "a packet injected twice");
        // With shorter names, chance may bind a packet that arrived to the place of another.
        if bits >= 16 {
            let lost: HashSet<_> = lost.iter().collect();
            assert!(distinct.is_subset(&lost), "a packet injected that was never lost");
        }
        let wrong = pair.status(B, |peer| peer.ingress.unused.count(Unused::WrongRecovery));
        if bits == 3 || bits == 6 {
            assert!(wrong > 0, "the test should provoke wrong recoveries");
        }
        assert!(!lost.is_empty());
    }
}

/// Every gateway sends errors and is a hop of a route, and neither shows a mistake in a file.
#[test]
fn packets_of_gateways_and_errors_of_routers_show_no_difference_between_the_ends() {
    let mut pair = Pair::up([config(A), config(B)]);
    let unwatched = |pair: &Pair| pair.gateways[A].peers().next().unwrap().unwatched_source;
    let mut own = udp(A, 1, b"a trace");
    own[12..16].copy_from_slice(&match config(A).listen.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => unreachable!("the test's gateways have IPv4 addresses"),
    });
    let mut error = udp(A, 2, b"time exceeded");
    (error[9], error[14], error[20]) = (1, 77, 11);
    for packet in [own, error] {
        pair.send(A, &packet, true);
        assert_eq!(unwatched(&pair), None);
    }
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::ForeignSource), 2);
    let mut foreign = udp(A, 3, b"from a network that the peer does not know");
    foreign[14] = 77;
    pair.send(A, &foreign, true);
    assert!(unwatched(&pair).is_some());
    pair.advance(301_000_000);
    assert_eq!(unwatched(&pair), None, "it was long ago");
}

#[test]
fn packets_that_the_far_side_does_not_watch_are_not_protected() {
    let mut pair = Pair::up([config(A), config(B)]);
    let mut foreign = udp(A, 1, b"from the gateway itself");
    foreign[14] = 9;
    pair.send(A, &foreign, true);
    let mut elsewhere = udp(A, 1, b"to a third site");
    elsewhere[18] = 77;
    pair.send(A, &elsewhere, true);
    pair.advance(100_000);
    assert!(pair.recovered[B].is_empty());
    let unprotected = pair.gateways[A].unprotected();
    assert_eq!(unprotected.count(Unprotected::ForeignSource), 1);
    assert_eq!(unprotected.count(Unprotected::NoPeer), 1);
}

#[test]
fn repairs_longer_than_the_wan_mtu_travel_as_two_halves() {
    let mut pair = Pair::up([config(A), config(B)]);
    for n in 0..400u16 {
        pair.send(A, &udp(A, n, &[n as u8; 1472]), n % 50 == 7);
        pair.advance(1000);
    }
    pair.advance(1_000_000);
    assert_eq!(pair.recovered[B].len(), 8);
    assert!(pair.status(A, |peer| peer.egress.cut_in_two) > 100);
}

#[test]
fn no_datagram_exceeds_the_wan_mtu() {
    let mut pair = Pair::up([config(A), config(B)]);
    let longest = std::rc::Rc::new(std::cell::Cell::new(0));
    for n in 0..200u16 {
        let mut packet = udp(A, n, &[1; 1300]);
        maelstrom_core::packet::restore(
            &mut packet,
            maelstrom_core::packet::MutableFields { ttl: 40 + n as u8 % 9, tos: n as u8 },
        );
        pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut { pair.gateways[A].outbox() });
        let mut out = pair.gateways[A].outbox();
        pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut out);
        longest.set(
            out.datagrams.iter().map(|(_, datagram)| datagram.len()).max().unwrap_or(0).max(longest.get()),
        );
    }
    assert!((1300..=1472).contains(&longest.get()), "{}", longest.get());
}

#[test]
fn memory_is_bounded_and_stated() {
    let mut pair = Pair::up([config(A), config(B)]);
    let before = pair.gateways[B].memory_bytes();
    run(&mut pair, 10_000, 1, 0.2);
    assert_eq!(pair.gateways[B].memory_bytes(), before);
    // A history of 32,768 packets of 1,500 bytes takes 48 MiB (the paper: 3 MB for 1,024), and names of four
    // times as many, in two tables, 22 MiB; 131,072 places take 10 MiB. The rest are repairs that wait.
    assert!((78 << 20..85 << 20).contains(&before), "{before} bytes");
}
