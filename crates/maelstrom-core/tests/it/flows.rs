//! Trouble of one flow, which must not end recovery for the others.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use crate::pair::{A, B, Pair, coin, config};
use crate::path::{has, packet, prove};
use maelstrom_core::Finding;
use maelstrom_core::counters::Withheld;
use testkit::packet::{internet_checksum, udp4};

fn up(loss: f64) -> Pair {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.delay_us = 2_000;
    prove(&mut pair, 100);
    pair.lose_datagram = Box::new(coin(42, loss));
    pair
}

fn finish(pair: &mut Pair) {
    pair.lose_datagram = Box::new(|| false);
    pair.advance(3_000_000);
}

fn flow(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[20], bytes[21]]) - 1_000
}

/// A host sends each datagram twice, byte for byte, as redundant media streams do.
#[test]
fn a_host_that_sends_each_datagram_twice_does_not_end_recovery() {
    let mut pair = up(0.02);
    let (mut lose, mut again) = (coin(41, 0.02), VecDeque::new());
    let mut lost = [0; 2];
    for n in 0..30_000u32 {
        let sender = (n % 2) as u16;
        let (bytes, is_lost) = (packet(sender, n), lose());
        lost[usize::from(sender)] += usize::from(is_lost);
        if sender == 0 {
            again.push_back((pair.now_us + 60_000, bytes.clone()));
        }
        pair.send(A, &bytes, is_lost);
        while let Some((_, bytes)) = again.pop_front_if(|&mut (due_us, _)| due_us <= pair.now_us) {
            pair.send(A, &bytes, lose());
        }
        pair.advance(1_600);
    }
    finish(&mut pair);
    let others = pair.recovered[B].iter().filter(|bytes| flow(bytes) == 1).count();
    assert!(10 * others >= 9 * lost[1], "{others} of {} lost of another flow", lost[1]);
    let own = pair.recovered[B].len() - others;
    assert!(10 * own >= 9 * lost[0], "{own} of {} lost of its own", lost[0]);
    assert!(!has(&pair, Finding::SlowPath));
    let twice = pair.status(B, |peer| peer.ingress.after_recovery);
    assert!(twice <= 3, "{twice} count as delivered twice");
}

/// Sends packets of four flows, of which some of the first flow's arrive by a slower link. Returns the number
/// of packets of the others that were lost.
fn four_flows(
    pair: &mut Pair,
    packets: u32,
    mut lose: impl FnMut() -> bool,
    mut slow: impl FnMut() -> bool,
) -> usize {
    let (mut road, mut lost) = (VecDeque::new(), 0);
    for n in 0..packets {
        let (bytes, is_lost) = (packet((n % 4) as u16, n), lose());
        if n % 4 == 0 && slow() {
            pair.leave(A, &bytes);
            road.push_back((pair.now_us + 80_000, bytes));
        } else {
            lost += usize::from(n % 4 > 0 && is_lost);
            pair.send(A, &bytes, is_lost);
        }
        while let Some((_, bytes)) = road.pop_front_if(|&mut (due_us, _)| due_us <= pair.now_us) {
            pair.arrive(B, &bytes);
        }
        pair.advance(1_000);
    }
    finish(pair);
    lost
}

/// Nothing of a flow whose packets come by a slower link is recovered in the end. Others are not affected.
#[test]
fn a_slow_flow_is_left_alone() {
    let mut pair = up(0.01);
    let lost = four_flows(&mut pair, 40_000, coin(41, 0.01), coin(43, 0.02));
    assert!(pair.status(B, |peer| peer.ingress.after_recovery) <= 20);
    let others = pair.recovered[B].iter().filter(|bytes| flow(bytes) > 0).count();
    assert!(10 * others >= 9 * lost, "{others} of {lost}");
}

#[test]
fn a_policed_flow_does_not_end_recovery_of_the_others() {
    for policed in [1, 3] {
        let mut pair = up(0.01);
        let (mut lose, mut police, mut lost) = (coin(41, 0.01), coin(43, 0.15), 0);
        for n in 0..35_000u32 {
            let (sender, is_lost) = ((n % 12) as u16, lose());
            let is_policed = sender < policed;
            lost += usize::from(!is_policed && is_lost && n > 2_000);
            pair.send(A, &packet(sender, n), is_lost || is_policed && police());
            pair.advance(if policed == 1 { 300 } else { 600 });
        }
        finish(&mut pair);
        let others = pair.recovered[B].iter().filter(|bytes| flow(bytes) >= policed).count();
        assert!(10 * others >= 8 * lost, "{others} of {lost}, {policed} policed");
        let withheld = pair.status(B, |peer| peer.withheld.count(Withheld::LossyFlow));
        assert!(withheld > 100, "{withheld} of the policed ones, {policed} policed");
    }
}

/// A port that a host's own firewall drops: SYNs arrive, and are sent again until one side gives up.
#[test]
fn a_lost_retransmission_of_a_syn_is_recovered_and_none_is_called_rewritten() {
    let mut pair = up(0.03);
    let (mut lose, mut lost) = (coin(41, 0.03), 0);
    for connection in 0..100u16 {
        for try_ in 0..4u16 {
            let mut bytes = udp4(Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10), 80, 0, &[0; 16]);
            bytes[9] = 6;
            bytes[4..6].copy_from_slice(&(4 * connection + try_).to_be_bytes());
            bytes[20..22].copy_from_slice(&(20_000 + connection).to_be_bytes());
            bytes[24..28].copy_from_slice(&u32::from(connection).to_be_bytes());
            bytes[32..34].copy_from_slice(&[0x60, 2]);
            let is_lost = lose() && try_ > 0;
            lost += usize::from(is_lost);
            pair.send(A, &bytes, is_lost);
            for n in 0..100 {
                pair.send(A, &packet(1, 1_000 * u32::from(4 * connection + try_) + n), lose());
                pair.advance(10_000);
            }
            assert!(!has(&pair, Finding::OpeningRewritten), "connection {connection}, try {try_}");
        }
    }
    finish(&mut pair);
    let recovered = pair.recovered[B].iter().filter(|bytes| bytes[9] == 6).count();
    assert!(lost >= 5 && 10 * recovered >= 8 * lost, "{recovered} of {lost}");
}

#[test]
fn equal_heartbeats_are_not_told_as_delivered_twice() {
    let mut pair = up(0.02);
    let (mut lose, heartbeat) = (coin(41, 0.02), packet(3, 5));
    for n in 0..3_000u32 {
        pair.send(A, &packet(0, n), lose());
        if n % 10 == 0 {
            pair.send(A, &heartbeat, lose());
        }
        pair.advance(5_000);
    }
    finish(&mut pair);
    let twice = pair.status(B, |peer| peer.ingress.after_recovery);
    assert!(twice <= 1, "{twice}");
}

/// Its late packets are no evidence against the others, however few of them the link loses.
#[test]
fn many_late_packets_of_one_flow_do_not_end_the_recovery_of_the_others() {
    let mut pair = up(0.002);
    let lost = four_flows(&mut pair, 24_000, coin(51, 0.002), coin(53, 0.2));
    let others = pair.recovered[B].iter().filter(|bytes| flow(bytes) > 0).count();
    assert!(lost > 20 && 10 * others >= 9 * lost, "{others} of {lost}");
    let findings = pair.status(B, |peer| peer.findings);
    assert!(
        !findings.contains(Finding::PartlyElsewhere) && findings.contains(Finding::SlowPath),
        "{findings:?}"
    );
}

/// The next of them is not taken for the missing one that comes late.
#[test]
fn a_detour_of_equal_packets_is_told() {
    let mut pair = up(0.0);
    let (mut detour, heartbeat) = (coin(45, 0.3), packet(3, 5));
    for n in 0..1_200u32 {
        pair.send(A, &heartbeat, detour());
        pair.send(A, &packet(0, n), false);
        pair.advance(100_000);
        assert!(!has(&pair, Finding::SlowPath), "heartbeat {n}");
    }
    assert!(has(&pair, Finding::PartlyElsewhere));
    let twice = pair.recovered[B].len();
    assert!(twice <= 40, "{twice}");
}

/// The flow that begins has the link to itself, and all losses of the link are its own.
#[test]
fn a_flow_that_begins_when_another_ends_is_not_taken_for_a_lossy_one() {
    for seed in 0..5 {
        let (mut pair, mut lose, mut n) = (up(0.0), coin(2 * seed, 0.01), 0);
        pair.lose_datagram = Box::new(coin(2 * seed + 1, 0.01));
        for (flow, packets) in [(1, 40_000), (2, 8_000)] {
            for _ in 0..packets {
                n += 1;
                pair.send(A, &packet(flow, n), lose());
                pair.advance(50);
            }
            pair.advance(400_000);
        }
        let withheld = pair.status(B, |peer| peer.withheld.count(Withheld::LossyFlow));
        assert_eq!(withheld, 0, "seed {seed}");
    }
}

/// A segment of which a later one has arrived with a newer timestamp would be discarded by its receiver.
#[test]
fn a_recovered_tcp_segment_has_the_newest_timestamp_of_its_connection() {
    let mut pair = up(0.0);
    let segment = |n: u32| {
        let mut bytes = packet(7, n);
        let options = [&[1, 1, 8, 10][..], &(5_000 + n).to_be_bytes(), &[0; 4]].concat();
        let mut tcp =
            [&bytes[20..24], &n.to_be_bytes(), &[0; 4], &[0x80, 0x10, 1, 0, 0, 0, 0, 0], &options].concat();
        tcp.extend_from_slice(&[7; 600]);
        bytes.truncate(20);
        bytes[9] = 6;
        let total = (20 + tcp.len()) as u16;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = internet_checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(tcp);
        bytes
    };
    let timestamp = |bytes: &[u8]| u32::from_be_bytes(bytes[44..48].try_into().unwrap());
    for n in 0..400 {
        pair.send(A, &segment(n), n % 37 == 36);
        pair.advance(100);
    }
    finish(&mut pair);
    let mut raised = 0;
    assert_eq!(pair.recovered[B].len(), 10);
    for bytes in &pair.recovered[B] {
        let number = u32::from_be_bytes(bytes[24..28].try_into().unwrap());
        let original = segment(number);
        assert!((timestamp(&original)..5_400).contains(&timestamp(bytes)));
        raised += u64::from(timestamp(bytes) > timestamp(&original));
        assert_eq!((&bytes[..36], &bytes[48..]), (&original[..36], &original[48..]));
    }
    // Of eight packets in a repair, seven have a later one behind them that has arrived.
    assert!(raised >= 5, "{raised}");
    assert_eq!(pair.status(B, |peer| peer.ingress.raised_timestamps), raised);
}
