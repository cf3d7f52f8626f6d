//! Caps of the operator on what a gateway sends besides its packets: they hold for everything but Hellos,
//! reports and announcements.

use crate::pair::{A, B, Pair, coin, config, tunnel, udp};
use maelstrom_core::controller::{Limit, Targets};
use maelstrom_core::counters::{Refused, Unanswered, Unsent};
use maelstrom_core::{Cap, Config, EgressCounts, Requests, Schedule};

const SECOND: u64 = 1_000_000;
/// Length of the longest repair of these tests on the link.
const LONGEST: u64 = 1_400;

/// Two gateways 20 ms apart that answer requests. A has these caps.
fn up(targets: [Targets; 2]) -> Pair {
    let side = |side: usize| Config {
        schedule: Schedule::Auto,
        targets: targets[side],
        requests: Requests::All,
        ..config(side)
    };
    let mut pair = Pair::new([side(A), side(B)]);
    pair.delay_us = 20_000;
    pair.run_until_up();
    pair.advance(SECOND);
    pair
}

fn bits(bps: u64) -> Targets {
    Targets { repair_bps_max: Some(bps), ..Targets::default() }
}

fn overhead(rate: &str) -> Targets {
    let rate = rate.parse().unwrap();
    Targets { overhead_max: Some(rate), rate_max: rate, ..Targets::default() }
}

fn counts(pair: &Pair) -> EgressCounts {
    pair.status(A, |peer| *peer.egress)
}

/// Sends packets from A for some seconds: streams of 2,500 packets a second, single packets, and silences.
/// The link loses single packets, repairs, and bursts. Returns what A had sent at each time.
fn traffic(pair: &mut Pair, seconds: u64, seed: u64) -> Vec<(u64, EgressCounts)> {
    let (mut busy, mut single, mut lose, mut burst) =
        (coin(seed, 0.6), coin(seed + 1, 0.2), coin(seed + 2, 0.02), coin(seed + 3, 0.004));
    pair.lose_datagram = Box::new(coin(seed + 4, 0.02));
    let end_us = pair.now_us + seconds * SECOND;
    let (mut samples, mut n, mut left) = (Vec::new(), 0_u32, 0_u32);
    while pair.now_us < end_us {
        // A tenth of a second of the same kind.
        let (is_busy, is_single) = (busy(), single());
        for step in 0..250 {
            if is_busy || is_single && step % 50 == 0 {
                left = if burst() { 40 } else { left.saturating_sub(1) };
                let payload =
                    [&n.to_be_bytes()[..], &[n as u8; 400][..], &vec![7; (n % 700) as usize]].concat();
                pair.mute[A] = left > 0;
                pair.send(A, &udp(A, n as u16, &payload), left > 0 || lose());
                pair.mute[A] = false;
                n += 1;
            }
            pair.advance(400);
            samples.push((pair.now_us, counts(pair)));
        }
    }
    samples
}

/// The most bytes of repairs, names and answers in any second.
fn most_in_a_second(samples: &[(u64, EgressCounts)]) -> u64 {
    let mut most = 0;
    let mut first = 0;
    for (at_us, counts) in samples {
        while samples[first].0 + SECOND < *at_us {
            first += 1;
        }
        most = most.max(counts.repair_bytes - samples[first].1.repair_bytes);
    }
    most
}

#[test]
fn no_second_sees_more_than_the_bit_rate_of_the_cap() {
    // Without a cap, this traffic takes more than any of these.
    let mut free = up([Targets::default(); 2]);
    let unbounded = most_in_a_second(&traffic(&mut free, 4, 11));
    assert!(8 * unbounded > 1_000_000, "{unbounded}");
    for (bps, seed) in [(1_000, 11), (40_000, 11), (400_000, 21), (700_000, 31)] {
        let mut pair = up([bits(bps), Targets::default()]);
        let samples = traffic(&mut pair, 4, seed);
        let most = most_in_a_second(&samples);
        assert!(8 * most <= bps + 8 * LONGEST, "{most} bytes in a second at {bps} bit/s");
        // The gateway uses the cap.
        let used = 8 * (samples.last().unwrap().1.repair_bytes - samples[0].1.repair_bytes);
        assert!(3 * used > bps * 4, "{used} of {bps}");
        let counts = counts(&pair);
        assert!(counts.unsent.count(Unsent::BitRate) > 0, "{counts:?}");
        assert!(counts.refused.count(Refused::Regular) > 0 || bps > 400_000, "{counts:?}");
        assert_eq!(counts.unsent.count(Unsent::Overhead), 0);
        let decision = pair.status(A, |peer| *peer.decision.unwrap());
        let told = decision.refusal.is_some_and(|refusal| refusal.cap == Cap::BitRate);
        assert!(told || decision.limit == Limit::Bandwidth, "{bps}: {decision}");
    }
}

/// Repairs of packets as long as the WAN MTU leave in two datagrams each. `auto` chooses the rate that the
/// cap pays for as it does with shorter packets.
#[test]
fn a_rate_that_the_cap_pays_for_is_chosen_also_where_repairs_are_cut_in_two() {
    for length in [1_200, 1_500] {
        // At 2,000 packets a second this pays for one repair of some 26 packets. Twice as many would be
        // needed.
        let targets = [bits(2_000 * 8 * (length + 500) / 26), Targets::default()];
        let side = |side: usize| Config { schedule: Schedule::Auto, targets: targets[side], ..config(side) };
        let mut pair = Pair::up([A, B].map(side));
        pair.delay_us = 20_000;
        pair.advance(SECOND);
        let mut lose = coin(5, 0.02);
        pair.lose_datagram = Box::new(coin(6, 0.02));
        let mut before = counts(&pair);
        for n in 0..24_000_u32 {
            if n == 12_000 {
                before = counts(&pair);
            }
            let payload = [&n.to_be_bytes()[..], &vec![n as u8; length as usize - 32]].concat();
            pair.send(A, &udp(A, n as u16, &payload), lose());
            pair.advance(500);
        }
        let after = counts(&pair);
        let of = |counts: &EgressCounts| (counts.refused.count(Refused::Regular), counts.repairs);
        let (refused, sent) = (of(&after).0 - of(&before).0, of(&after).1 - of(&before).1);
        assert!(length < 1_500 || after.cut_in_two > 100, "{after:?}");
        let decision = pair.status(A, |peer| *peer.decision.unwrap());
        assert!(matches!(decision.limit, Limit::Bandwidth | Limit::Hopeless), "{length}: {decision}");
        assert!(10 * refused <= sent, "{length}: {refused} refused, {sent} sent, {decision}");
    }
}

#[test]
fn answers_and_requests_pass_the_caps_too() {
    let mut pair = up([bits(20_000), bits(2_000)]);
    traffic(&mut pair, 4, 11);
    let counts = counts(&pair);
    assert!(counts.refused.count(Refused::Answer) > 0, "{counts:?}");
    assert_eq!(counts.unanswered.count(Unanswered::Capped), counts.refused.count(Refused::Answer));
    let (asked, there) = pair.status(B, |peer| (peer.ingress.requests.requests, *peer.egress));
    let refused = there.refused.count(Refused::Request);
    // 2 kbit/s are two requests a second.
    assert!(refused > 0 && asked - refused <= 12, "{asked} requests, of which {refused} were refused");
}

#[test]
fn an_overhead_below_the_lowest_rate_holds_and_is_told() {
    for (rate, per) in [("1/64", 64), ("1/8", 8)] {
        let mut pair = up([overhead(rate), Targets::default()]);
        let samples = traffic(&mut pair, 6, 41);
        for (at_us, counts) in &samples {
            let sent = counts.repair_packets + counts.name_packets - counts.cut_in_two;
            assert!(sent * per <= counts.source_packets + per, "{sent} at {at_us}: {counts:?}");
        }
        if per == 8 {
            // The gateway may need less.
            continue;
        }
        let counts = counts(&pair);
        assert!(counts.unsent.count(Unsent::Overhead) > 0, "{counts:?}");
        let sent = counts.repair_packets + counts.name_packets;
        assert!(10 * sent * per > 8 * counts.source_packets, "what is allowed is used: {counts:?}");
        let told = pair.status(A, |peer| peer.decision.unwrap().to_string());
        assert!(told.contains("are not sent, because `overhead_max` allows no more"), "{told}");
    }
}

/// Single losses in a stream whose cap lets a third of the repairs of the lowest rate leave.
#[test]
fn the_repairs_that_a_cap_lets_leave_are_of_use() {
    let mut pair =
        up([overhead("1/96"), Targets::default()].map(|targets| Targets { residual: 0.1, ..targets }));
    let mut lose = coin(71, 0.003);
    let mut lost = 0;
    for n in 0..40_000_u32 {
        let is_lost = lose();
        lost += usize::from(is_lost);
        pair.send(A, &udp(A, n as u16, &[&n.to_be_bytes()[..], &[n as u8; 100]].concat()), is_lost);
        pair.advance(200);
    }
    let back = pair.recovered[B].len();
    assert!(lost > 80 && 5 * back > lost, "{back} of {lost}");
}

#[test]
fn repairs_that_wait_behind_packets_of_a_tunnel_are_within_the_caps() {
    // 40 packets pay for two repairs and a half at 1/16, and a kilobit per second for one.
    for (targets, most) in [(overhead("1/16"), 3), (bits(1_000), 1)] {
        let schedule = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 64, density: 15 };
        let side = |side| Config { schedule: schedule.clone(), targets, ..tunnel(side) };
        let mut pair = Pair::up([side(A), side(B)]);
        let packets: Vec<_> = (0..40).map(|n| udp(A, n, &[n as u8; 4])).collect();
        pair.send_by_tunnel(A, &packets);
        let counts = counts(&pair);
        assert_eq!((counts.tunnel_packets, counts.tunnel_datagrams), (40, 1));
        assert!((1..=most).contains(&counts.repair_packets), "{counts:?}");
    }
}

#[test]
fn without_a_stated_overhead_nothing_is_refused() {
    let mut pair = up([Targets::default(); 2]);
    traffic(&mut pair, 2, 61);
    assert!(Refused::ALL.iter().all(|&kind| counts(&pair).refused.count(kind) == 0));
}
