//! Windows of several stripes: which packets a repair contains, and what is recovered.
#![allow(missing_docs)]

use std::collections::BTreeSet;

use crate::common::sender::{Sender, Sent, recover};
use crate::common::{Loss, Random};
use fec::simulate::{Simulation, simulate};
use fec::{ConfigError, RepairRate, STRIPES_MAX, SlidingConfig, SlidingEncoder, stripes_max};
use proptest::prelude::*;

fn config(repairs: u32, sources: u32, window: u16, stripes: u8) -> SlidingConfig {
    let rate = RepairRate::new(repairs, sources).unwrap();
    SlidingConfig { rate, window, stripes, deadline_us: None, symbol_max: 16, ..SlidingConfig::default() }
}

/// Checks a repair that leaves after packet `newest`.
fn check(sent: &Sent, newest: u64) {
    sent.check_sum();
    let last = sent.packets[sent.packets.len() - 1];
    assert!(sent.packets.is_sorted_by(|one, next| next - one == sent.stripes as u64), "{:?}", sent.packets);
    assert!(newest - last < sent.stripes as u64, "{last} is not the newest of its stripe at {newest}");
}

#[test]
fn stripes_take_turns_and_each_repair_has_the_packets_of_one() {
    let mut sender = Sender::new(config(1, 4, 128, 4));
    let (mut turns, mut before) = (Vec::new(), None);
    for n in 0..2_000 {
        for sent in sender.push(0) {
            check(&sent, n);
            if n < 200 {
                continue;
            }
            assert_eq!((sent.stripes, sent.packets.len()), (4, 32));
            let own = sent.packets[0] % 4;
            if before != Some(own) {
                turns.push((own, n));
            }
            before = Some(own);
        }
    }
    assert!(turns.len() > 100 && turns.windows(2).all(|pair| pair[1].0 == (pair[0].0 + 1) % 4), "{turns:?}");
    // All stripes had their turn in at most 64 packets.
    assert!(turns.windows(5).all(|turns| turns[4].1 - turns[0].1 <= 64), "{turns:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Rates, windows and numbers of stripes change, and repairs leave out of turn. Repairs come often enough
    /// for any window.
    #[test]
    fn repairs_are_correct_sums_and_no_packet_is_left_out_under_any_events(
        seed: u64, window in 16..200u16, density in 0..16u8, repairs in 8..30u32, sources in 1..30u32, stripes in 1..=STRIPES_MAX,
    ) {
        let mut random = Random(seed);
        let code = SlidingConfig { density, deadline_us: Some(900), ..config(repairs.min(8 * sources), sources, window, stripes) };
        let mut sender = Sender::new(code);
        let calm = 5 + random.below(400);
        let (mut now_us, mut bare) = (0, BTreeSet::new());
        for n in 0..1_500u64 {
            now_us += random.below(5);
            bare.insert(n);
            let mut all = sender.push(now_us);
            match if n % calm < calm / 2 { 99 } else { random.below(40) } {
                0 => now_us += 2_000,
                1 => sender.sliding().set_rate(RepairRate::new(8 + random.below(40) as u32, 30).unwrap()),
                2 => sender.sliding().set_stripes(random.below(20) as u8),
                3 => sender.sliding().set_window(random.below(220) as u16),
                4 => all.extend(sender.flush()),
                5 => {
                    let packets = random.below(300);
                    sender.sliding().keep_newest(packets as usize);
                    bare.retain(|&packet| packet + packets > n);
                }
                _ => {}
            }
            all.extend(sender.due(now_us));
            for sent in &all {
                check(sent, n);
                prop_assert!(n + 1 - sent.packets[0] <= u64::from(window));
                sent.packets.iter().for_each(|packet| { bare.remove(packet); });
            }
            let oldest = (n + 1).saturating_sub(u64::from(window));
            prop_assert!(bare.first().is_none_or(|&packet| packet >= oldest), "{:?} at {n}", bare.first());
        }
    }
}

#[test]
fn a_packet_waits_for_no_stripe_longer_than_the_deadline() {
    let mut sender = Sender::new(SlidingConfig { deadline_us: Some(100), ..config(1, 4, 128, 4) });
    let last = (0..400).flat_map(|_| sender.push(0)).last().unwrap();
    // The repair that left last was not of all stripes, so packets wait.
    assert_eq!(last.stripes, 4);
    assert_eq!(sender.encoder.next_deadline_us(), Some(100));
    let due = sender.due(100);
    assert_eq!((due.len(), due[0].stripes, due[0].packets.last()), (1, 1, Some(&399)));
    // It has as many packets as one of a stripe, and those that are in no other repair.
    assert!((32..64).contains(&due[0].packets.len()), "{:?}", due[0].packets);
    assert_eq!(sender.encoder.next_deadline_us(), None);
    assert!(sender.flush().is_empty());
}

#[test]
fn low_rates_and_short_streams_have_no_stripes() {
    let max = |text: &str| stripes_max(text.parse().unwrap());
    assert_eq!(["1/40", "1/32", "1/16", "1/8", "1/1", "2/1"].map(max), [1, 2, 4, 8, 16, 16]);
    let mut sender = Sender::new(config(1, 40, 1_000, 2));
    assert!(sender.many(3_000).iter().all(|sent| sent.stripes == 1));
    let mut sender = Sender::new(config(1, 4, 1_000, 8));
    // Until 64 packets have come, the repairs of a stripe would not reach back to its turn before.
    assert!(sender.many(63).iter().all(|sent| sent.stripes == 1));
    assert!(sender.many(200).iter().any(|sent| sent.stripes == 8));
}

#[test]
fn numbers_of_stripes_out_of_range_are_refused() {
    for stripes in [0, STRIPES_MAX + 1] {
        let mistake = SlidingEncoder::<u64>::check(&config(1, 4, 100, stripes)).unwrap_err();
        assert!(matches!(mistake, ConfigError::Range { key: "stripes", .. }), "{mistake}");
    }
}

#[test]
fn stripes_recover_the_bursts_of_the_whole_window() {
    // 40 packets and 10 repairs are lost; a window of 64 recovers a fifth of 64.
    let lost: Vec<u64> = (400..440).collect();
    let back = |window, stripes| {
        let mut sender = Sender::new(config(1, 4, window, stripes));
        let sent = sender.many(900);
        let arrived = sent.iter().filter(|sent| {
            // Repairs leave with every fourth packet.
            let last = sent.packets[sent.packets.len() - 1];
            !(397..440).contains(&last)
        });
        recover(arrived, 900, &lost).len()
    };
    assert_eq!((back(256, 4), back(256, 1), back(64, 1)), (40, 40, 0));
}

/// Losses that a window leaves, of a million packets of which 1 % are lost in bursts of 20 on average.
fn left(rate: &str, window: u16, stripes: u8) -> u64 {
    let code = SlidingConfig { rate: rate.parse().unwrap(), window, stripes, ..SlidingConfig::default() };
    let simulation =
        Simulation { code: code.into(), packets: 1_000_000, history: 2_048, ..Simulation::default() };
    let mut loss = Loss::markov(0.01, 20.0, 5);
    let report = simulate(&simulation, |_| loss.lose()).unwrap();
    assert_eq!(report.wrong, 0);
    println!(
        "{rate} {window}/{stripes}: {} of {} lost stay lost, delay {:?}",
        report.lost - report.recovered,
        report.lost,
        report.delay_quantile(0.99)
    );
    report.lost - report.recovered
}

#[test]
fn stripes_leave_about_as_few_losses_as_the_window_that_costs_as_many_times_more() {
    let (whole, striped, short) = (left("1/6", 1_024, 1), left("1/6", 1_024, 4), left("1/6", 256, 1));
    assert!(short > 10 * striped.max(100), "{short} of a window of 256, {striped} of four stripes of 256");
    assert!(striped <= 2 * whole + 500, "{striped} of four stripes of 256, {whole} of a window of 1,024");
}
