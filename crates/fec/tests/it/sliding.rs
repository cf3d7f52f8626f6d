//! The sliding window: its coefficients, when repairs leave, what they recover, and which configurations are
//! refused.
#![allow(missing_docs)]

use crate::common::Random;
use crate::common::sender::{Sender, Sent, recover, symbol};
use fec::{
    DENSITY_FULL, Draw, Encoder, ReedSolomonConfig, Repair, RepairRate, SlidingConfig, SlidingEncoder,
    TinyMt32, WINDOW_MAX, coding_coefficients, gf256,
};
use proptest::prelude::*;

fn rate(repairs: u32, sources: u32) -> RepairRate {
    RepairRate::new(repairs, sources).unwrap()
}

fn config(repairs: u32, sources: u32, window: u16) -> SlidingConfig {
    SlidingConfig {
        rate: rate(repairs, sources),
        window,
        deadline_us: None,
        symbol_max: 16,
        ..SlidingConfig::default()
    }
}

#[test]
fn coefficients_at_full_density_are_the_bytes_of_the_generator_without_zeros() {
    let mut coefficients = [0; 6];
    coding_coefficients(1, DENSITY_FULL, &mut coefficients);
    // The low bytes of RFC 8682's published numbers.
    assert_eq!(
        coefficients,
        [2545341989u32, 981918433, 3715302833, 2387538352, 3591001365, 3820442102].map(|n| n as u8)
    );
    for seed in 0..200 {
        let mut coefficients = [0; 600];
        coding_coefficients(seed, DENSITY_FULL, &mut coefficients);
        let mut numbers = TinyMt32::new(seed.into());
        let bytes: Vec<u8> =
            std::iter::repeat_with(|| numbers.below_256()).filter(|&byte| byte != 0).take(600).collect();
        assert_eq!(coefficients[..], bytes);
    }
}

#[test]
fn each_sparse_coefficient_takes_a_choice_and_a_value() {
    // Low four bits of the published numbers, each followed by a byte where it is at most the threshold:
    // 5 → 33; 1 → 240; 5 → 246; 6 no; 11 no; 8 no; 13 no; 3 → 59.
    let mut coefficients = [0; 8];
    coding_coefficients(1, 5, &mut coefficients);
    let low = |number: u32| number as u8;
    let expected = [low(981918433), low(2387538352), low(3820442102), 0, 0, 0, 0, low(1822416315)];
    assert_eq!(coefficients, expected);
}

#[test]
fn the_share_of_nonzero_coefficients_is_that_of_the_threshold() {
    for density in 0..=DENSITY_FULL {
        let mut some = 0;
        for seed in 0..400 {
            let mut coefficients = [0; 256];
            coding_coefficients(seed, density, &mut coefficients);
            some += coefficients.iter().filter(|&&coefficient| coefficient != 0).count();
        }
        let share = some as f64 / (400.0 * 256.0);
        assert!((share - f64::from(density + 1) / 16.0).abs() < 0.01, "{density}: {share}");
    }
}

/// Checks that a repair is the sum of the last packets, none older than `oldest`.
fn check(sent: &Sent, oldest: u64, newest: u64, window: u16) {
    let names: Vec<u64> = (oldest.max((newest + 1).saturating_sub(window.into()))..=newest).collect();
    assert_eq!(sent.packets, names);
    sent.check_sum();
}

#[test]
fn a_repair_is_the_sum_over_the_last_packets() {
    let mut sender = Sender::new(SlidingConfig { density: 9, seed: 65_500, ..config(2, 3, 7) });
    let mut seeds = Vec::new();
    for n in 0..200u64 {
        for sent in sender.push(0) {
            check(&sent, 0, n, 7);
            seeds.push(sent.seed);
        }
    }
    assert_eq!(seeds.len(), 200 * 2 / 3);
    assert!(seeds.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{seeds:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Plans are invalidated by other rates, deadlines and a new window.
    #[test]
    fn repairs_are_correct_sums_under_any_events(
        seed: u64, window in 1..90u16, density in 0..16u8, repairs in 0..30u32, sources in 1..40u32,
    ) {
        let repairs = repairs.min(8 * sources);
        let mut random = Random(seed);
        let config = SlidingConfig { density, deadline_us: Some(60), ..config(repairs, sources, window) };
        let mut sender = Sender::new(config.clone());
        let (mut oldest, mut now_us, mut saved, mut before) = (0, 0, 0, None);
        // Each event follows a period long enough for plans to be made.
        let calm = 5 + random.below(400);
        for n in 0..1_500u64 {
            now_us += random.below(5);
            let mut all = sender.push(now_us);
            let now = sender.sliding().rate();
            saved += now.repairs();
            prop_assert_eq!(all.len() as u32, saved / now.sources());
            saved %= now.sources();
            let (in_turn, began) = (all.len(), oldest);
            match if n % calm < calm / 2 { 99 } else { random.below(40) } {
                0 => now_us += 80,
                what @ (1 | 2) => {
                    let next = if what == 1 { rate(random.below(30) as u32, 30) } else { rate(random.below(8) as u32, 1) };
                    saved = saved * next.sources() / now.sources();
                    sender.sliding().set_rate(next);
                }
                3 => all.extend(sender.flush()),
                4 => {
                    sender.sliding().clear();
                    (oldest, saved) = (n + 1, 0);
                }
                5 => {
                    let packets = random.below(100).saturating_sub(9);
                    sender.sliding().keep_newest(packets as usize);
                    oldest = oldest.max((n + 1).saturating_sub(packets));
                }
                _ => {}
            }
            all.extend(sender.due(now_us));
            saved = if all.len() > in_turn { 0 } else { saved };
            for (at, sent) in all.iter().enumerate() {
                check(sent, if at < in_turn { began } else { oldest }, n, window);
                // A seed with coefficients that are all 0 is skipped.
                let passed = before.map_or(0, |seed: u16| sent.seed.wrapping_sub(seed.wrapping_add(1)));
                prop_assert!(passed == 0 || density < DENSITY_FULL && passed < 1_000);
                before = Some(sent.seed);
            }
        }
    }
}

/// Checks that a repair is the sum of consecutive packets up to `newest`.
fn check_any(sent: &Sent, newest: u64) {
    let window = u16::try_from(sent.packets.len()).unwrap();
    check(sent, 0, newest, window);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The window may even be shorter than the distance of two repairs.
    #[test]
    fn a_window_changes_in_mid_stream_and_every_packet_enters_a_repair(
        seed: u64, most in 40..90u16, density in 0..16u8, sources in 1..39u32,
    ) {
        let mut random = Random(seed);
        let mut sender = Sender::new(SlidingConfig { density, ..config(1, sources, most) });
        let (mut covered, mut changed, mut repairs) = (0, 0, 0);
        for n in 0..1_500u64 {
            for sent in sender.push(0) {
                check_any(&sent, n);
                prop_assert!(sent.packets[0] <= covered, "packets {covered} to {} are left out", sent.packets[0]);
                prop_assert!(sent.packets.len() <= usize::from(most));
                covered = n + 1;
                repairs += 1;
                // Repairs that were planned have left.
                if repairs > changed + 8 && n > u64::from(most) {
                    let packets = sent.packets.len() as u64;
                    prop_assert_eq!(packets, u64::from(sender.sliding().window()).max(u64::from(sources)));
                }
            }
            if random.below(120) == 0 {
                sender.sliding().set_window(random.below(u64::from(most) + 20) as u16);
                changed = repairs;
            }
        }
        prop_assert!(repairs > 0);
    }
}

#[test]
fn a_longer_window_reaches_back_at_once() {
    let mut sender = Sender::new(config(1, 4, 32));
    sender.sliding().set_window(8);
    sender.many(100);
    sender.sliding().set_window(32);
    let lengths: Vec<_> = sender.many(60).iter().map(|sent| sent.packets.len()).collect();
    let first = lengths.iter().position(|&packets| packets == 32).unwrap();
    assert!(first <= 8 && lengths[first..].iter().all(|&packets| packets == 32), "{lengths:?}");
    // More than the encoder keeps is not possible.
    sender.sliding().set_window(u16::MAX);
    assert_eq!(sender.sliding().window(), 32);
    sender.sliding().set_window(0);
    assert_eq!(sender.sliding().window(), 1);
}

#[test]
fn a_sparse_repair_is_never_empty() {
    let mut sender = Sender::new(SlidingConfig { density: 0, ..config(1, 1, 1) });
    let sent = sender.many(500);
    assert_eq!(sent.len(), 500);
    assert!(sent.iter().all(|sent| sent.coefficients[0] != 0));
}

#[test]
fn a_repair_carries_the_draw_of_its_coefficients_and_other_codes_carry_none() {
    let sliding = SlidingConfig { density: 5, seed: 40, ..config(1, 2, 7) };
    let mut encoder = Encoder::new(&sliding.into()).unwrap();
    let mut seeds = Vec::new();
    for n in 0..40u64 {
        let mut emit = |repair: Repair<'_, u64>| {
            let Draw { seed, density } = repair.draw;
            assert_eq!((repair.packets[0], repair.packets.last()), (n.saturating_sub(6), Some(&n)));
            let mut coefficients = [0; 7];
            coding_coefficients(seed, density, &mut coefficients[..repair.packets.len()]);
            assert_eq!(coefficients[..repair.packets.len()], *repair.coefficients);
            seeds.push(seed);
        };
        encoder.push(0, n, &[&symbol(n)], &mut emit).unwrap();
    }
    assert_eq!((seeds.first(), seeds.len()), (Some(&40), 20));
    let mut encoder = Encoder::new(&ReedSolomonConfig::default().into()).unwrap();
    for n in 0..40u64 {
        let mut emit = |repair: Repair<'_, u64>| assert_eq!(repair.draw, Draw::default());
        encoder.push(0, n, &[&symbol(n)], &mut emit).unwrap();
    }
}

#[test]
fn the_rate_holds_exactly_and_can_change() {
    let mut sender = Sender::new(config(3, 8, 4));
    assert_eq!(sender.many(8_000).len(), 3_000);
    sender.sliding().set_rate(rate(1, 8));
    assert_eq!((sender.many(8_000).len(), sender.sliding().rate()), (1_000, rate(1, 8)));
    sender.sliding().set_rate(rate(0, 1));
    assert_eq!(sender.many(1_000).len(), 0);
    sender.sliding().set_rate(rate(5, 2));
    assert_eq!(sender.many(1_000).len(), 2_500);
}

#[test]
fn almost_always_as_many_repairs_as_losses_are_enough() {
    let mut exact = 0;
    for seed in 0..1_000u16 {
        let mut sender = Sender::new(SlidingConfig { seed: seed * 61, ..config(1, 4, 128) });
        let sent = sender.many(160);
        // A burst of 20 and ten repairs of it each; the window holds them all.
        let lost: Vec<u64> = (60..80).collect();
        let useful: Vec<Sent> = sent.into_iter().filter(|sent| *sent.packets.last().unwrap() >= 79).collect();
        assert!(useful.len() >= 21);
        exact += usize::from(recover(&useful[..20], 160, &lost).len() == 20);
        assert!(recover(&useful[..19], 160, &lost).len() < 20, "19 equations cannot give 20 unknowns");
        // With two more, recovery is practically certain.
        assert_eq!(recover(&useful, 160, &lost).len(), 20, "seed {seed}");
    }
    // A random square matrix over GF(256) without zeros is regular with a probability of 0.996.
    assert!(exact >= 985, "{exact} of 1,000");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn losses_within_the_rate_are_recovered_whatever_they_are(seed: u64, window in 128..256u16, density in 7..16u8) {
        // Each loss is in half or more of at least 32 repairs. That none contains it, or that they do not
        // distinguish the losses, happens once in tens of millions of cases.
        let mut random = Random(seed);
        let mut sender = Sender::new(SlidingConfig { density, seed: seed as u16, ..config(1, 2, window) });
        let packets = u64::from(window) * 3;
        let sent = sender.many(packets);
        // All losses are in the window of the last repairs, and are half as many as these.
        let from = packets - u64::from(window) / 2;
        let mut lost: Vec<u64> = (0..u64::from(window) / 16).map(|_| from - random.below(u64::from(window) / 3)).collect();
        lost.sort_unstable();
        lost.dedup();
        prop_assert_eq!(recover(&sent, packets, &lost), lost);
    }
}

#[test]
fn a_packet_in_no_repair_gets_one_at_the_deadline() {
    let mut sender = Sender::new(SlidingConfig { deadline_us: Some(100), ..config(1, 4, 8) });
    assert_eq!(sender.encoder.next_deadline_us(), None);
    assert_eq!((sender.push(10), sender.push(60)), (vec![], vec![]));
    assert_eq!((sender.encoder.next_deadline_us(), sender.due(109)), (Some(110), vec![]));
    assert_eq!(sender.due(110)[0].packets, [0, 1]);
    assert_eq!((sender.encoder.next_deadline_us(), sender.due(9_999)), (None, vec![]));
    // The credit is used up: the next repair leaves after four packets.
    assert_eq!((0..4).map(|_| sender.push(20_000).len()).collect::<Vec<_>>(), [0, 0, 0, 1]);
    assert_eq!(sender.encoder.next_deadline_us(), None);
    sender.sliding().set_rate(rate(0, 1));
    sender.push(30_000);
    assert_eq!(sender.encoder.next_deadline_us(), None, "the rate is 0");
}

#[test]
fn a_cleared_window_contains_no_old_packet() {
    let mut sender = Sender::new(config(1, 1, 8));
    let before = sender.many(20).pop().unwrap();
    sender.sliding().clear();
    let after = sender.push(0).pop().unwrap();
    assert_eq!((after.packets, after.seed), (vec![20], before.seed.wrapping_add(1)));
    assert_eq!(sender.flush(), [], "every packet is in a repair");
}

fn mistake(change: impl FnOnce(&mut SlidingConfig)) -> String {
    let mut config = SlidingConfig::default();
    change(&mut config);
    SlidingEncoder::<u64>::new(&config).unwrap_err().to_string()
}

#[test]
fn configurations_out_of_range_are_refused() {
    assert!(SlidingConfig::default().check().is_ok());
    assert_eq!(mistake(|config| config.window = 0), "window: expected 1 to 1024, saw 0");
    assert!(mistake(|config| config.window = WINDOW_MAX + 1).ends_with("saw 1025"));
    assert_eq!(mistake(|config| config.density = 16), "density: expected 0 to 15, saw 16");
    assert!(mistake(|config| config.deadline_us = Some(0)).ends_with("saw 0"));
    assert!(mistake(|config| config.symbol_max = 0).starts_with("symbol_max: expected 1 to 131072"));
    let window = SlidingConfig { window: WINDOW_MAX, symbol_max: 1 << 17, ..SlidingConfig::default() };
    assert!(
        SlidingEncoder::<[u64; 8]>::new(&window).is_ok(),
        "the largest window of the longest symbols fits"
    );
    let error = SlidingEncoder::<u64>::new(&SlidingConfig::default()).unwrap().push(
        0,
        0,
        &[&[0; 1_537]],
        &mut |_| {},
    );
    assert_eq!(error.unwrap_err().to_string(), "symbol: expected at most 1536 bytes, saw 1537");
}

#[test]
fn a_shortened_window_drops_older_packets_and_grows_again() {
    let config =
        SlidingConfig { rate: RepairRate::new(1, 1).unwrap(), window: 8, ..SlidingConfig::default() };
    let mut sender = Sender::new(config.clone());
    sender.many(20);
    sender.sliding().keep_newest(3);
    let sent = sender.many(9);
    for (at, repair) in sent.iter().enumerate() {
        let newest = 20 + at as u64;
        assert_eq!(repair.packets, (newest + 1 - (4 + at as u64).min(8)..=newest).collect::<Vec<_>>());
        let sum =
            repair.packets.iter().zip(&repair.coefficients).fold(vec![0; 16], |mut sum, (&name, &factor)| {
                let symbol = symbol(name);
                gf256::mul_add(&mut sum[..symbol.len()], factor, &symbol);
                sum
            });
        assert_eq!(repair.payload, sum[..repair.payload.len()]);
    }
}
