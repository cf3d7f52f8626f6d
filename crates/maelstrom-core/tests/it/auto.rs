//! Two whole gateways that choose the repair rate by themselves, in virtual time.

use crate::pair::{A, B, Pair, coin, config, udp};
use maelstrom_core::auto::{LADDER, START};
use maelstrom_core::controller::{self, Decision, Limit, Targets};
use maelstrom_core::{Config, RepairRate, Schedule};

/// Interval between packets: 10,000 packets per second.
const EVERY_US: u64 = 100;

fn auto(side: usize, targets: Targets) -> Config {
    Config { schedule: Schedule::Auto, targets, ..config(side) }
}

/// Two gateways 40 ms apart, which send short packets.
fn up(targets: Targets) -> Pair {
    let mut pair = Pair::new([A, B].map(|side| auto(side, targets)));
    pair.delay_us = 40_000;
    pair.run_until_up();
    pair
}

fn decision(pair: &Pair) -> Decision {
    pair.status(A, |peer| *peer.decision.unwrap())
}

/// Sends packets for a time, and loses packets and repairs at this rate; returns the number of packets lost,
/// and that of packets recovered until then.
fn stream(pair: &mut Pair, ms: u64, loss: f64, seed: u64) -> (usize, usize) {
    let mut lose = coin(seed, loss);
    pair.lose_datagram = Box::new(coin(seed + 1, loss));
    let before = pair.recovered[B].len();
    let mut lost = 0;
    for n in 0..ms * 1_000 / EVERY_US {
        let packet =
            udp(A, n as u16, &[&n.to_be_bytes()[..], &seed.to_be_bytes()[..], &[7; 60][..]].concat());
        let is_lost = lose();
        lost += usize::from(is_lost);
        pair.send(A, &packet, is_lost);
        pair.advance(EVERY_US);
    }
    (lost, pair.recovered[B].len() - before)
}

fn rate(text: &str) -> RepairRate {
    text.parse().unwrap()
}

#[test]
fn windows_follow_what_the_processor_can_pay_and_lose_no_packet_meanwhile() {
    let mut pair = up(Targets::default());
    let window = |pair: &Pair| pair.status(A, |peer| peer.code.to_string());
    stream(&mut pair, 2_000, 0.05, 31);
    assert!(window(&pair).starts_with("sliding (512; 1/"), "{}", decision(&pair));
    let mut lost = 0;
    for (round, products) in [30, 500, 45, 1].into_iter().enumerate() {
        pair.gateways[A].set_products(products);
        let (now_lost, _) = stream(&mut pair, 1_000, 0.05, 40 + round as u64);
        lost += now_lost;
        let Decision { rate, window: packets, is_short, .. } = decision(&pair);
        assert_eq!(window(&pair), format!("sliding ({packets}; {rate})"));
        assert_eq!(packets, controller::window(products, rate, 512), "{products} products");
        assert_eq!((is_short, packets < 512), (products < 64, products < 64), "{}", decision(&pair));
        let plan = pair.status(B, |peer| peer.far.plan);
        assert_eq!((plan.products, plan.window), (products, packets));
    }
    pair.advance(500_000);
    let residual = pair.status(B, |peer| peer.report.residual());
    assert!(lost > 1_900 && residual <= 20, "{residual} of {lost} stay lost");
    // A reload keeps the window, and what the processor can pay.
    pair.gateways[A].reconfigure(Config { max_delay_us: 20_000, ..auto(A, Targets::default()) }).unwrap();
    assert!(window(&pair).starts_with("sliding (128; "), "{}", window(&pair));
}

/// 10,000 packets a second with a burst of 40 losses in every 2,000.
#[test]
fn fast_traffic_gets_windows_of_stripes_that_recover_bursts_with_fewer_repairs() {
    for (late_us, products, stripes, rates) in [
        // 512 packets do not come in the time of the first, and the others have time for 1,024.
        (50_000, 512, 1, ["1/12", "1/6"]),
        (200_000, 512, 2, ["1/24", "1/16"]),
        (200_000, 20, 4, ["1/24", "1/16"]),
    ] {
        let mut pair = up(Targets { late_us: Some(late_us), ..Targets::default() });
        pair.gateways[A].set_products(products);
        let mut lost = 0;
        for n in 0..60_000u32 {
            let is_lost = n % 2_000 < 40;
            // Those of the first seconds teach the gateway.
            lost += usize::from(is_lost && n >= 30_000);
            if n == 30_000 {
                pair.recovered[B].clear();
            }
            // The repairs beside the packets of a burst are lost with them.
            pair.mute[A] = is_lost;
            pair.send(A, &udp(A, n as u16, &[&n.to_be_bytes()[..], &[9; 60]].concat()), is_lost);
            pair.mute[A] = false;
            pair.advance(100);
        }
        pair.advance(300_000);
        let decision = decision(&pair);
        assert_eq!((decision.window > 512, decision.stripes), (stripes > 1, stripes), "{decision}");
        assert!((rate(rates[0])..=rate(rates[1])).contains(&decision.rate), "{stripes}: {decision}");
        assert_eq!(pair.recovered[B].len(), lost, "{stripes}: {decision}");
        let shown = pair.status(A, |peer| peer.code.to_string());
        assert_eq!(shown.contains("stripes"), stripes > 1, "{shown}");
    }
}

/// Flights of four packets, the last two of which are lost. Repairs of packets come with every second flight.
#[test]
fn after_a_silence_a_second_repair_leaves_where_packets_are_lost() {
    // At a low loss the second repairs last as long as the budget is ample.
    for (loss, whole) in [(0.06, 5..=6), (0.002, 2..=4), (0.0, 0..=1)] {
        let mut pair = up(Targets { rate_max: rate("1/8"), ..Targets::default() });
        stream(&mut pair, 3_000, loss, 51);
        pair.lose_datagram = Box::new(|| false);
        // No loss of the stream is left in the window.
        pair.advance(1_500_000);
        let mut back = Vec::new();
        for flight in 0..6u32 {
            pair.recovered[B].clear();
            for n in 0..4u32 {
                pair.send(A, &udp(A, (9_000 + 4 * flight + n) as u16, &[flight as u8; 700]), n >= 2);
            }
            // The repairs are there, and the next flight is not.
            pair.advance(pair.delay_us + 8_000);
            back.push(pair.recovered[B].len());
            pair.advance(200_000);
        }
        let count = back.iter().filter(|&&count| count == 2).count();
        assert!(whole.contains(&count), "{loss}: {back:?}, {}", decision(&pair));
    }
}

#[test]
fn a_link_without_losses_gets_the_lowest_rate_and_both_ends_know_it() {
    let mut pair = up(Targets::default());
    assert_eq!((decision(&pair).rate, decision(&pair).limit), (START, Limit::Unknown));
    stream(&mut pair, 1_000, 0.0, 1);
    assert_eq!((decision(&pair).rate, decision(&pair).limit), (LADDER[0], Limit::Lowest));
    let repairs = pair.status(A, |peer| peer.egress.repair_packets);
    stream(&mut pair, 1_000, 0.0, 2);
    let repairs = pair.status(A, |peer| peer.egress.repair_packets) - repairs;
    assert!((248..=252).contains(&repairs), "{repairs} repairs for 10,000 packets");
    let plan = pair.status(B, |peer| peer.far.plan);
    assert_eq!((plan.rate, plan.window, plan.is_auto), (LADDER[0], 512, true));
    assert_eq!(pair.status(A, |peer| peer.rtt_us), Some(80_000));
    assert_eq!(plan.late_us, 20_000, "a quarter of the round trip");
}

/// The shares that the documents state.
#[test]
fn short_packets_pay_a_larger_share_of_bytes_than_long_ones() {
    for (len, lossless, lossy) in [(1_300, 3.3, 41.2), (600, 4.3, 45.4), (200, 8.0, 61.3), (100, 13.4, 85.1)]
    {
        let highest = Schedule::Sliding { rate: Targets::RATE_MAX, window: 512, density: 15 };
        for (schedule, expected) in [(Schedule::Auto, lossless), (highest, lossy)] {
            let side = |side| Config { schedule: schedule.clone(), ..config(side) };
            let mut pair = Pair::up([side(A), side(B)]);
            let mut before = (0, 0);
            for n in 0..20_000_u32 {
                if n == 10_000 {
                    before = pair.status(A, |peer| (peer.egress.source_bytes, peer.egress.repair_bytes));
                }
                let packet = udp(A, n as u16, &[&n.to_be_bytes()[..], &vec![7; len - 32]].concat());
                pair.send(A, &packet, false);
                pair.advance(EVERY_US);
            }
            let (source, repair) =
                pair.status(A, |peer| (peer.egress.source_bytes, peer.egress.repair_bytes));
            let percent = 100.0 * (repair - before.1) as f64 / (source - before.0) as f64;
            assert!((percent - expected).abs() < 0.2, "{len} bytes, {schedule}: {percent:.2} %");
        }
    }
}

/// Segments of the usual limit on a path of a common tunnel.
#[test]
fn packets_too_long_for_a_path_that_turns_out_to_be_narrow_do_not_raise_the_rate() {
    let mut pair = Pair::new([A, B].map(|side| auto(side, Targets::default())));
    (pair.delay_us, pair.datagram_max) = (40_000, 1_420 - 28);
    pair.run_until_up();
    for n in 0..50_000_u32 {
        if n == 500 {
            assert_eq!(pair.status(A, |peer| peer.egress.cut_in_two), 0);
            pair.gateways[A].handle_path_mtu(pair.now_us, (0, 0), 1_420);
        }
        let packet = udp(A, n as u16, &[&n.to_be_bytes()[..], &[7; 1_269]].concat());
        assert_eq!(packet.len(), 1_301);
        pair.send(A, &packet, false);
        pair.advance(EVERY_US);
        if n % 100 == 0 {
            let decision = decision(&pair);
            assert!(decision.rate <= START && decision.limit != Limit::Mtu, "after {n} packets: {decision}");
        }
    }
    assert_eq!((decision(&pair).rate, decision(&pair).limit), (LADDER[0], Limit::Lowest));
    assert!(pair.status(A, |peer| peer.egress.cut_in_two) > 0, "as the documents say");
}

#[test]
fn a_link_that_gets_worse_is_answered_within_a_round_trip_and_a_tenth_of_a_second() {
    let mut pair = up(Targets::default());
    stream(&mut pair, 2_000, 0.0001, 3);
    assert_eq!(decision(&pair).rate, LADDER[0]);
    // The window at the lowest rate recovers a part.
    let (lost, recovered) = stream(&mut pair, 180, 0.05, 4);
    assert!(decision(&pair).rate >= rate("1/8"), "{}", decision(&pair));
    assert!(lost > 50 && recovered < lost, "{recovered} of {lost}");
    stream(&mut pair, 100, 0.05, 5);
    let (lost, recovered) = stream(&mut pair, 1_000, 0.05, 6);
    assert!(lost > 400 && lost.abs_diff(recovered) < 60, "{recovered} of {lost}");
    stream(&mut pair, 100, 0.0, 7);
    pair.advance(3_000_000);
    let residual = pair.status(A, |peer| peer.far.loss.residual());
    stream(&mut pair, 2_000, 0.05, 8);
    // The last losses need repairs that follow them.
    stream(&mut pair, 100, 0.0, 7);
    pair.advance(3_000_000);
    assert_eq!(
        pair.status(A, |peer| peer.far.loss.residual()),
        residual,
        "nothing stays lost: {}",
        decision(&pair)
    );
    let text = decision(&pair).to_string();
    assert!(text.contains(" % lost in bursts of up to ") && text.contains(" would leave "), "{text}");
    assert_eq!(decision(&pair).limit, Limit::Needed);
}

#[test]
fn protection_is_back_with_the_link_after_an_outage_that_began_with_lost_repairs() {
    let mut pair = up(Targets::default());
    stream(&mut pair, 3_000, 0.01, 71);
    stream(&mut pair, 2_000, 0.97, 72);
    stream(&mut pair, 40_000, 1.0, 73);
    stream(&mut pair, 2_000, 0.01, 74);
    let (lost, recovered) = stream(&mut pair, 1_000, 0.01, 75);
    assert!(10 * recovered > 9 * lost, "{recovered} of {lost}: {}", decision(&pair));
    assert!(!decision(&pair).is_thin && decision(&pair).limit != Limit::Useless, "{}", decision(&pair));
}

#[test]
fn a_reload_to_the_default_code_begins_with_the_present_pace() {
    let targets = Targets { repair_bps_max: Some(8_000_000), ..Targets::default() };
    let fixed = Schedule::Sliding { rate: rate("1/8"), window: 512, density: 15 };
    let mut pair = Pair::new([A, B].map(|side| Config { schedule: fixed.clone(), ..auto(side, targets) }));
    pair.delay_us = 40_000;
    pair.run_until_up();
    stream(&mut pair, 5_000, 0.02, 81);
    pair.gateways[A].reconfigure(auto(A, targets)).unwrap();
    for round in 0..20 {
        stream(&mut pair, 100, 0.02, 82 + round);
        // The first reports show where the counts begin, and count few packets.
        let is_begun = round >= 5;
        let is_unknown = !is_begun && decision(&pair).limit == Limit::Unknown;
        assert!(is_unknown || decision(&pair).limit == Limit::Needed, "{}", decision(&pair));
        assert_eq!((decision(&pair).window, decision(&pair).stripes), (512, 1), "{}", decision(&pair));
    }
}

#[test]
fn a_reload_to_the_default_code_does_not_count_what_the_link_lost_earlier_in_the_session() {
    let fixed = Schedule::Sliding { rate: rate("3/8"), window: 512, density: 15 };
    let targets = Targets::default();
    let mut pair = Pair::new([A, B].map(|side| Config { schedule: fixed.clone(), ..auto(side, targets) }));
    pair.delay_us = 40_000;
    pair.run_until_up();
    stream(&mut pair, 2_000, 0.1, 101);
    stream(&mut pair, 5_000, 0.0, 103);
    pair.gateways[A].reconfigure(auto(A, targets)).unwrap();
    stream(&mut pair, 4_000, 0.0, 105);
    assert_eq!((decision(&pair).rate, decision(&pair).limit), (LADDER[0], Limit::Lowest));
    stream(&mut pair, 2_000, 0.1, 107);
    assert!(decision(&pair).rate > rate("1/8"), "{}", decision(&pair));
}

#[test]
fn a_reload_to_the_default_code_keeps_to_the_rates_whose_repairs_fit_the_path() {
    let fixed = Schedule::Sliding { rate: rate("3/8"), window: 512, density: 15 };
    let targets = Targets::default();
    let mut pair = Pair::new([A, B].map(|side| Config { schedule: fixed.clone(), ..auto(side, targets) }));
    pair.delay_us = 40_000;
    pair.run_until_up();
    let mut n = 0_u32;
    let mut send = |pair: &mut Pair, packets: u32| {
        for _ in 0..packets {
            let packet = udp(A, n as u16, &[&n.to_be_bytes()[..], &[7; 1_318]].concat());
            assert_eq!(packet.len(), 1_350);
            pair.send(A, &packet, false);
            pair.advance(EVERY_US);
            n += 1;
        }
    };
    send(&mut pair, 5_000);
    let cut = |pair: &Pair| pair.status(A, |peer| peer.egress.cut_in_two);
    assert_eq!(cut(&pair), 0);
    let floor = maelstrom_core::auto::floor(1_350, config(A).wan_mtu, false).unwrap();
    assert!(floor > START, "{floor}");
    pair.gateways[A].reconfigure(auto(A, targets)).unwrap();
    assert_eq!((decision(&pair).rate, decision(&pair).limit), (floor, Limit::Unknown));
    for _ in 0..20 {
        send(&mut pair, 1_000);
        assert!(decision(&pair).rate >= floor, "{}", decision(&pair));
    }
    // The floor limits the rate; nothing is lost.
    assert_eq!((decision(&pair).rate, decision(&pair).limit), (floor, Limit::Mtu));
    assert_eq!(cut(&pair), 0);
}

#[test]
fn a_reload_that_begins_sessions_again_keeps_what_was_recorded_of_the_link() {
    let mut pair = up(Targets::default());
    let (lost, _) = stream(&mut pair, 3_000, 0.01, 91);
    pair.advance(1_500_000);
    let recorded = |pair: &Pair| {
        let minutes = pair.status(B, |peer| peer.record.history()[0].clone());
        minutes.iter().map(|(_, tally)| tally.lost).sum::<u64>()
    };
    let before = recorded(&pair);
    assert!(before.abs_diff(lost as u64) < 20, "{before} of {lost}");
    pair.gateways[B].reconfigure(Config { max_delay_us: 33_000, ..auto(B, Targets::default()) }).unwrap();
    assert!(!pair.status(B, |peer| peer.is_up), "it has begun again");
    assert_eq!(recorded(&pair), before);
}

#[test]
fn a_far_gateway_without_a_choice_still_tells_what_each_rate_would_leave() {
    let layered = Config { schedule: Schedule::layered(), delayed: true, ..auto(A, Targets::default()) };
    let mut pair = Pair::up([layered, auto(B, Targets::default())]);
    stream(&mut pair, 3_000, 0.02, 9);
    pair.advance(2_000_000);
    let (forecast, loss) = pair.status(A, |peer| (peer.far.forecast, peer.far.loss));
    assert!(forecast.packets > 29_000 && forecast.packets < 30_001, "{forecast:?}");
    assert!(u64::from(forecast.lost).abs_diff(loss.lost) < 30, "{forecast:?} {loss:?}");
    assert!(forecast.tails[0].half > 0 && forecast.tails[12].half == 0, "{forecast:?}");
    let plan = pair.status(B, |peer| peer.far.plan);
    assert_eq!((plan.rate, plan.window, plan.is_auto), (rate("3/8"), 0, false));
}

#[test]
fn the_forecast_counts_what_the_link_lost() {
    for (loss, seed) in [(0.001, 11), (0.01, 12), (0.1, 13)] {
        let mut pair = up(Targets::default());
        let (lost, _) = stream(&mut pair, 3_000, loss, seed);
        stream(&mut pair, 200, 0.0, seed + 100);
        pair.advance(500_000);
        let forecast = pair.status(A, |peer| peer.far.forecast);
        let seen = forecast.lost as usize;
        assert!(seen.abs_diff(lost) * 50 <= lost + 50, "{seen} of {lost} at {loss}");
    }
}

/// 50,000 packets a second on a link of 50 ms, where the loss steps from next to nothing to each of these.
#[test]
fn a_worse_link_gets_a_higher_rate_within_a_round_trip_and_a_tenth_of_a_second() {
    for (loss, enough) in [(0.01, "1/24"), (0.05, "1/8")] {
        for seed in [51, 54, 57, 60] {
            let mut pair = up(Targets::default());
            pair.delay_us = 50_000;
            let mut n = 0_u32;
            let mut send = |pair: &mut Pair, is_lost: bool| {
                pair.send(A, &udp(A, n as u16, &[&n.to_be_bytes()[..], &[7; 60]].concat()), is_lost);
                pair.advance(20);
                n += 1;
            };
            let mut lose = coin(seed, 0.0001);
            // The step comes at another time after a report each time.
            (0..100_000 + 1_000 * seed).for_each(|_| send(&mut pair, lose()));
            assert!(decision(&pair).rate < rate("1/28"), "{}", decision(&pair));
            let began_us = pair.now_us;
            let mut lose = coin(seed + 1, loss);
            pair.lose_datagram = Box::new(coin(seed + 2, loss));
            while pair.now_us < began_us + 600_000 && decision(&pair).rate < rate(enough) {
                send(&mut pair, lose());
            }
            let took_us = pair.now_us - began_us;
            assert!(took_us < 200_000, "{loss}, seed {seed}: {took_us} us until {}", decision(&pair));
        }
    }
}

#[test]
fn a_new_session_keeps_the_choice() {
    let mut pair = up(Targets::default());
    stream(&mut pair, 1_000, 0.03, 14);
    let before = decision(&pair).rate;
    assert!(before > LADDER[0]);
    let stall_us = 500_000;
    pair.gateways[B].handle_stall(pair.now_us, stall_us);
    stream(&mut pair, 1_000, 0.03, 15);
    assert!(decision(&pair).rate >= before.min(rate("1/12")), "{}", decision(&pair));
    assert!(pair.status(A, |peer| peer.far.forecast.packets) < 11_000, "counts began again");
}
