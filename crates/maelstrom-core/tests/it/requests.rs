//! Packets that the code does not bring back in time, and that the ingress requests from the far egress.

use crate::fuzz::Liar;
use crate::pair::{A, B, Pair, coin, config, payload, udp};
use maelstrom_core::counters::{Unanswered, Unused};
use maelstrom_core::{Config, Requests, Schedule};

const DELAY_US: u64 = 20_000;
const RTT_US: u64 = 2 * DELAY_US;

fn sliding(side: usize, rate: &str, window: u16) -> Config {
    let schedule = Schedule::Sliding { rate: rate.parse().unwrap(), window, density: 15 };
    Config { schedule, requests: Requests::All, ..config(side) }
}

/// Two gateways that know their round-trip time.
fn up(configs: [Config; 2]) -> Pair {
    let mut pair = Pair::new(configs);
    pair.delay_us = DELAY_US;
    pair.run_until_up();
    pair.advance(1_000_000);
    assert!(pair.status(B, |peer| peer.rtt_us).is_some());
    pair
}

fn packet(n: u32) -> Vec<u8> {
    udp(A, n as u16, &payload(n))
}

/// Sends packets from A every 100 µs, of which `lose` takes some, with the repairs that leave beside them.
/// Returns the lost packets.
fn stream(pair: &mut Pair, numbers: std::ops::Range<u32>, lose: impl Fn(u32) -> bool) -> Vec<Vec<u8>> {
    let mut lost = Vec::new();
    for n in numbers {
        let is_lost = lose(n);
        if is_lost {
            pair.mute[A] = true;
            lost.push(packet(n));
        }
        pair.send(A, &packet(n), is_lost);
        pair.mute[A] = false;
        pair.advance(100);
    }
    lost
}

fn numbers(packets: &[Vec<u8>]) -> Vec<u16> {
    packets.iter().map(|packet| u16::from_be_bytes([packet[4], packet[5]])).collect()
}

fn recovered(pair: &Pair) -> Vec<Vec<u8>> {
    let mut recovered = pair.recovered[B].clone();
    recovered.sort_by_key(|packet| u16::from_be_bytes([packet[4], packet[5]]));
    recovered
}

#[test]
fn the_packets_that_are_kept_are_counted_by_flow() {
    let mut pair = up([sliding(A, "1/8", 256), sliding(B, "1/8", 256)]);
    stream(&mut pair, 0..500, |_| false);
    let lost = stream(&mut pair, 500..560, |_| true);
    stream(&mut pair, 560..1_500, |_| false);
    let kept = pair.gateways[A].kept(pair.now_us, 0, |_| true);
    let [(ends, flow)] = kept.flows.iter().collect::<Vec<_>>()[..] else { panic!("{kept:?}") };
    assert_eq!((ends.source, ends.destination), ([10, 81, 1, 10].into(), [10, 81, 2, 10].into()));
    assert_eq!((ends.protocol, ends.ports.is_some()), (Some(17), true));
    let bytes: u64 = (0..1_500).map(|n| packet(n).len() as u64).sum();
    assert_eq!((flow.packets, flow.bytes, kept.packets, kept.others), (1_500, bytes, 1_500, 0));
    // Of the burst, repairs bring back a part.
    let answers = pair.status(A, |peer| peer.egress.answers);
    assert!(flow.answers > 20 && flow.answers == answers, "{} of {answers} for {}", flow.answers, lost.len());
    assert!(flow.oldest_us < flow.newest_us && flow.newest_us <= pair.now_us);
    assert!(kept.bytes <= kept.bytes_max && kept.keep_us > 2 * RTT_US);
    assert!(pair.gateways[B].kept(pair.now_us, 0, |_| true).flows.is_empty(), "nothing has left there");
    // Those that are too old do not count, whether or not further ones come.
    let packets = |pair: &Pair| pair.gateways[A].kept(pair.now_us, 0, |_| true).packets;
    pair.advance(kept.keep_us - 10_000);
    assert!((50..150).contains(&packets(&pair)), "{}", packets(&pair));
    pair.advance(10_000);
    assert_eq!(packets(&pair), 0);
    pair.advance(1_000_000);
    assert_eq!(packets(&pair), 0);
    stream(&mut pair, 2_000..2_001, |_| false);
    assert_eq!(packets(&pair), 1);
}

#[test]
fn a_burst_beyond_the_codes_reach_comes_back_after_one_round_trip() {
    for requests in [Requests::All, Requests::Udp] {
        let with = |side| Config { requests, ..sliding(side, "1/8", 256) };
        a_burst_comes_back_after_one_round_trip(up([with(A), with(B)]));
    }
}

fn a_burst_comes_back_after_one_round_trip(mut pair: Pair) {
    stream(&mut pair, 0..2_000, |_| false);
    // A window of 256 at 1/8 recovers bursts of 28 packets.
    let lost = stream(&mut pair, 2_000..2_060, |_| true);
    let answers_before = pair.status(A, |peer| peer.egress.answers);
    // The packet after the burst arrives after DELAY_US. Its repair shows that the code falls short.
    stream(&mut pair, 2_060..2_060 + (DELAY_US / 100) as u32 + 40, |_| false);
    assert!(pair.recovered[B].len() < 10, "the code alone cannot recover it");
    stream(&mut pair, 3_000..3_000 + (RTT_US / 100) as u32 + 300, |_| false);
    assert_eq!(numbers(&recovered(&pair)), numbers(&lost));
    let asked = pair.status(B, |peer| peer.ingress.requests);
    let answers = pair.status(A, |peer| peer.egress.answers) - answers_before;
    // The deficit, and a margin for repairs that may be lost; not the whole burst.
    assert!((28..=50).contains(&asked.packets) && answers == asked.packets, "{asked:?}, {answers}");
    assert!(asked.overflown == 0 && asked.answered >= 25, "{asked:?}");
    assert_eq!(pair.status(B, |peer| peer.report.residual()), 0);
    assert_eq!(pair.status(B, |peer| peer.ingress.unused.count(Unused::WrongRecovery)), 0);
}

/// At the lowest rates a repair has no room for the names of all new packets. The others have arrived, and
/// their names follow.
#[test]
fn packets_whose_names_are_still_to_come_are_not_asked_for() {
    for rate in ["1/28", "1/40"] {
        let mut pair = up([sliding(A, rate, 512), sliding(B, rate, 512)]);
        stream(&mut pair, 0..6_000, |_| false);
        let asked = pair.status(B, |peer| peer.ingress.requests);
        assert_eq!(asked.packets, 0, "{rate}: {asked:?}");
        // One lost packet, and none of those around it.
        stream(&mut pair, 6_000..9_000, |n| n == 7_000);
        let asked = pair.status(B, |peer| peer.ingress.requests);
        assert!(pair.recovered[B].len() == 1 && asked.packets <= 1, "{rate}: {asked:?}");
    }
}

#[test]
fn without_requests_the_same_burst_stays_lost() {
    let off = |side| Config { requests: Requests::Off, ..sliding(side, "1/8", 256) };
    for configs in [[off(A), off(B)], [off(A), sliding(B, "1/8", 256)], [sliding(A, "1/8", 256), off(B)]] {
        let mut pair = up(configs);
        let lost = stream(&mut pair, 0..4_000, |n| (2_000..2_060).contains(&n));
        pair.advance(3_000_000);
        assert!(pair.recovered[B].len() < lost.len() / 2, "{} recovered", pair.recovered[B].len());
        assert_eq!(pair.status(A, |peer| peer.egress.answers), 0);
    }
}

#[test]
fn a_lost_request_and_lost_answers_are_made_up_for_once() {
    // The request leaves B some 200 packets after the burst, and the answers leave A 200 packets later.
    for (side, mute) in [(B, 6_230..6_330), (A, 6_450..6_480)] {
        let mut pair = up([sliding(A, "1/8", 256), sliding(B, "1/8", 256)]);
        stream(&mut pair, 0..6_000, |_| false);
        let lost = stream(&mut pair, 6_000..6_060, |_| true);
        stream(&mut pair, 6_060..mute.start, |_| false);
        // Packets arrive, and datagrams do not.
        for n in mute.clone() {
            pair.mute[side] = true;
            pair.send(A, &packet(n), false);
            pair.advance(100);
        }
        pair.mute[side] = false;
        let before = pair.status(B, |peer| peer.ingress.requests);
        assert!(before.requests > 0 && before.answered == 0 && pair.recovered[B].is_empty(), "{before:?}");
        stream(&mut pair, mute.end..8_000, |_| false);
        assert_eq!(numbers(&recovered(&pair)), numbers(&lost), "side {side}");
        let asked = pair.status(B, |peer| peer.ingress.requests);
        assert!(asked.requests > before.requests && asked.packets <= 2 * 60, "{asked:?}");
    }
}

#[test]
fn nothing_is_injected_twice_and_only_lost_packets_are() {
    for (rate, seed, loss) in [("1/32", 1, 0.028), ("1/16", 2, 0.05), ("1/8", 3, 0.1)] {
        let mut pair = up([sliding(A, rate, 512), sliding(B, rate, 512)]);
        let mut lose = coin(seed, loss);
        let mut lost = Vec::new();
        pair.lose_datagram = Box::new(coin(seed + 10, loss));
        for n in 0..20_000u32 {
            let is_lost = lose();
            pair.send(A, &packet(n), is_lost);
            lost.extend(is_lost.then(|| packet(n)));
            pair.advance(100);
        }
        pair.lose_datagram = Box::new(|| false);
        pair.advance(3_000_000);
        let recovered = recovered(&pair);
        let lost: std::collections::HashSet<_> = lost.into_iter().collect();
        let distinct: std::collections::HashSet<_> = recovered.iter().cloned().collect();
        assert_eq!(distinct.len(), recovered.len(), "{rate}: injected twice");
        assert!(distinct.is_subset(&lost), "{rate}: packets that arrived");
        let (asked, answers) =
            (pair.status(B, |peer| peer.ingress.requests), pair.status(A, |peer| *peer.egress));
        assert!(asked.answered > 0, "{rate}: {asked:?}");
        // At most 5 % of the bytes.
        assert!(answers.answer_bytes * 20 <= answers.source_bytes, "{rate}: {answers:?}");
    }
}

#[test]
fn an_overflow_is_left_to_its_senders() {
    let mut pair = up([sliding(A, "1/8", 256), sliding(B, "1/8", 256)]);
    let lost = stream(&mut pair, 0..4_000, |n| (2_000..2_120).contains(&n));
    pair.advance(3_000_000);
    let asked = pair.status(B, |peer| peer.ingress.requests);
    assert_eq!((asked.packets, pair.status(A, |peer| peer.egress.answers)), (0, 0), "{asked:?}");
    assert!(asked.overflown > 64, "{asked:?}");
    assert!(pair.recovered[B].len() < lost.len());
    // A later burst is asked for again.
    let lost = stream(&mut pair, 5_000..7_000, |n| (6_000..6_060).contains(&n));
    pair.recovered[B].retain(|packet| lost.contains(packet));
    assert_eq!(numbers(&recovered(&pair)), numbers(&lost));
}

/// A peer with the key asks for whatever it likes.
#[test]
fn a_liar_gets_no_more_than_the_budget_and_only_packets_of_the_session() {
    let mut liar = Liar::new();
    liar.tell_round_trip();
    let ask = |liar: &mut Liar, oldest: u32| {
        liar.say(&[&[5, 64][..], &oldest.to_be_bytes(), &[0xff; 128]].concat());
        let egress = liar.egress();
        assert!(egress.answer_bytes * 20 <= egress.source_bytes, "{egress:?}");
        assert!(egress.answers <= 2 * egress.source_packets, "each packet is answered for twice at most");
    };
    for n in 0..2_000u32 {
        liar.leave(&udp(A, n as u16, &[7; 400]));
        liar.pass(20);
        // The whole stream, again and again, and numbers beyond it.
        [n.saturating_sub(60), 0, n + 1, 5_000, u32::MAX - 100]
            .iter()
            .for_each(|&oldest| ask(&mut liar, oldest));
    }
    let egress = liar.egress();
    assert!(egress.answers > 60, "{egress:?}");
    for reason in [Unanswered::Budget, Unanswered::Gone] {
        assert!(egress.unanswered.count(reason) > 0, "{reason}");
    }
}

#[test]
fn packets_that_have_left_the_cache_are_not_answered_for() {
    let mut liar = Liar::new();
    liar.tell_round_trip();
    let send = |liar: &mut Liar, count: u16| (0..count).for_each(|n| liar.leave(&udp(A, n, &[7; 400])));
    let ask = |liar: &mut Liar, seq: u32| {
        liar.say(&[&[5, 1][..], &seq.to_be_bytes(), &[0x80]].concat());
        (liar.egress().answers, liar.egress().unanswered.count(Unanswered::Gone))
    };
    send(&mut liar, 200);
    assert_eq!(ask(&mut liar, 150), (1, 0));
    assert_eq!(ask(&mut liar, 200), (1, 1), "it has not been sent");
    // The round-trip time of this peer is next to nothing.
    liar.pass(150_000);
    send(&mut liar, 1);
    assert_eq!(ask(&mut liar, 151), (1, 2));
    assert_eq!(ask(&mut liar, 200), (2, 2));
    // No further packet leaves.
    liar.wait(2);
    assert_eq!(ask(&mut liar, 200), (2, 3));
}

/// Packet `n` of a stream of which every second one is of TCP.
fn mixed(n: u32) -> Vec<u8> {
    let mut packet = packet(n);
    if n.is_multiple_of(2) {
        // Its gateway does not look at the header's checksum.
        packet[9] = 6;
    }
    packet
}

/// Number of packets of UDP.
fn count_udp(packets: &[Vec<u8>]) -> usize {
    packets.iter().filter(|packet| packet[9] == 17).count()
}

/// Sends packets from A, of which half are of TCP, and loses some with the repairs beside them.
fn stream_mixed(pair: &mut Pair, numbers: std::ops::Range<u32>, lost: std::ops::Range<u32>, step_us: u64) {
    for n in numbers {
        let is_lost = lost.contains(&n);
        pair.mute[A] = is_lost;
        pair.send(A, &mixed(n), is_lost);
        pair.mute[A] = false;
        pair.advance(step_us);
    }
}

/// With `udp`, TCP's packets are left to TCP.
#[test]
fn requests_may_be_for_all_but_tcp() {
    let udp_only = |side| Config { requests: Requests::Udp, ..sliding(side, "1/8", 256) };
    let mut pair = up([udp_only(A), udp_only(B)]);
    stream_mixed(&mut pair, 0..4_000, 2_000..2_060, 100);
    pair.advance(1_000_000);
    assert_eq!(count_udp(&pair.recovered[B]), 30);
    let egress = pair.status(A, |peer| *peer.egress);
    assert!(egress.answers == 30 && egress.unanswered.count(Unanswered::Tcp) > 0, "{egress:?}");
}

/// At a gigabit, thousands of packets pass in a round trip, and on the longest links tens of thousands.
#[test]
fn a_round_trip_may_be_longer_than_the_history() {
    for (delay_us, count) in [(50_000, 24_000), (250_000, 60_000u32)] {
        let mut pair = Pair::new([sliding(A, "1/8", 512), sliding(B, "1/8", 512)]);
        pair.delay_us = delay_us;
        pair.run_until_up();
        pair.advance(3_000_000);
        let mut lost = Vec::new();
        for n in 0..count {
            let is_lost = (6_000..6_080).contains(&n);
            pair.mute[A] = is_lost;
            pair.send(A, &packet(n), is_lost);
            pair.mute[A] = false;
            lost.extend(is_lost.then(|| packet(n)));
            pair.advance(12);
        }
        pair.advance(1_000_000);
        assert_eq!(numbers(&recovered(&pair)), numbers(&lost), "{delay_us} us one way");
    }
}

/// Loses more packets than the window recovers, on a path with this delay one way, and with them the answers
/// that leave in this step. Returns the lost packets, those that came back, and the step of the first answer.
fn recovered_over(delay_us: u64, muted_step: Option<u32>) -> ([Vec<u16>; 2], Option<u32>) {
    let mut pair = Pair::new([sliding(A, "1/32", 512), sliding(B, "1/32", 512)]);
    pair.delay_us = delay_us;
    pair.run_until_up();
    pair.advance(4 * delay_us);
    let (mut lost, mut answered_at) = (Vec::new(), None);
    for n in 0..12_000 {
        let is_lost = (2_000..2_030).contains(&n);
        pair.mute[A] = is_lost || muted_step == Some(n);
        pair.send(A, &packet(n), is_lost);
        lost.extend(is_lost.then(|| packet(n)));
        pair.advance(1_000);
        if answered_at.is_none() && pair.status(A, |peer| peer.egress.answers) > 0 {
            answered_at = Some(n);
        }
    }
    ([numbers(&lost), numbers(&recovered(&pair))], answered_at)
}

#[test]
fn answers_may_take_longer_than_packets_are_hoped_for() {
    for delay_us in [450_000, 1_000_000] {
        let ([lost, recovered], answered_at) = recovered_over(delay_us, None);
        assert!(answered_at.is_some());
        assert_eq!(recovered, lost, "{delay_us} us one way");
    }
}

#[test]
fn packets_are_requested_again_over_a_long_path() {
    let (_, answered_at) = recovered_over(400_000, None);
    let ([lost, recovered], _) = recovered_over(400_000, answered_at);
    assert_eq!(recovered, lost, "the first answers are lost");
}

#[test]
fn nothing_is_requested_while_packets_take_another_path() {
    let mut pair = up([sliding(A, "1/8", 256), sliding(B, "1/8", 256)]);
    stream(&mut pair, 0..2_000, |_| false);
    let mut left = 2_000..20_000;
    let leave = |pair: &mut Pair, n: u32| {
        pair.leave(A, &packet(n));
        pair.advance(100);
    };
    while pair.status(B, |peer| peer.is_recovering) {
        leave(&mut pair, left.next().expect("the detour is found"));
    }
    let requests = |pair: &Pair| pair.status(B, |peer| peer.ingress.requests.requests);
    let before = requests(&pair);
    left.by_ref().take(2_000).for_each(|n| leave(&mut pair, n));
    assert_eq!(requests(&pair), before);
}
