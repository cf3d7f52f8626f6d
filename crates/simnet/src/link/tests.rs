use super::*;

const GIGABIT: u64 = 1_000_000_000;

fn plain() -> LinkConfig {
    LinkConfig { rate_bps: Some(GIGABIT), delay_us: 50_000, ..LinkConfig::default() }
}

/// Returns a packet that carries its number.
fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut packet = vec![0; length];
    packet[..4].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[..4].try_into().unwrap())
}

/// Delivers all packets in flight, with the microsecond of each arrival.
fn drain(link: &mut Link) -> Vec<(u64, Vec<u8>)> {
    let mut arrivals = Vec::new();
    while let Some(due) = link.next_due_us() {
        if due > 0 {
            assert_eq!(link.deliver(due - 1, |_| ()), 0, "a packet arrived early");
        }
        let count = link.deliver(due, |arrival| arrivals.push((due, arrival.packet.to_vec())));
        assert!(count > 0, "a due packet did not arrive");
    }
    arrivals
}

#[test]
fn a_burst_leaves_at_the_rate_of_the_wire_and_takes_the_delay() {
    let mut link = Link::new(&plain()).unwrap();
    for number in 0..100 {
        assert_eq!(link.offer(1_000, &numbered(number, 1250)), Fate::Carried);
    }
    let arrivals = drain(&mut link);
    assert_eq!(arrivals.len(), 100);
    for (index, (due, packet)) in (0..).zip(&arrivals) {
        assert_eq!(*due, 1_000 + 50_000 + 10 * (u64::from(index) + 1));
        assert_eq!(number_of(packet), index);
    }
}

#[test]
fn a_slow_sender_never_waits() {
    let mut link = Link::new(&plain()).unwrap();
    for number in 0..10 {
        link.offer(u64::from(number) * 1_000, &numbered(number, 1250));
    }
    for (index, (due, _)) in (0..).zip(drain(&mut link)) {
        assert_eq!(due, index * 1_000 + 50_010);
    }
}

#[test]
fn the_rate_holds_in_the_long_run_for_odd_sizes() {
    let config = LinkConfig { rate_bps: Some(123_456_789), queue_bytes: Some(100_000_000), ..plain() };
    let mut link = Link::new(&config).unwrap();
    let bytes: u64 = (0..50_000).map(|n| link.offer(0, &numbered(n, 40 + (n as usize * 7) % 1400))).fold(
        0,
        |sum, fate| {
            assert_eq!(fate, Fate::Carried);
            sum + 1
        },
    );
    assert_eq!(bytes, 50_000);
    let total = link.counters().offered_bytes;
    let (last, _) = drain(&mut link).pop().unwrap();
    let ideal = total as f64 * 8.0 / 123.456_789 + 50_000.0;
    assert!((last as f64 - ideal).abs() < ideal * 1e-4, "{last} {ideal}");
}

#[test]
fn the_queue_holds_its_bytes_and_drops_the_rest() {
    let config = LinkConfig { queue_bytes: Some(125_000), ..plain() };
    let mut link = Link::new(&config).unwrap();
    let fates: Vec<Fate> = (0..150).map(|n| link.offer(0, &numbered(n, 1250))).collect();
    assert!(fates[..100].iter().all(|&fate| fate == Fate::Carried));
    assert!(fates[100..].iter().all(|&fate| fate == Fate::QueueFull));
    assert_eq!(link.counters().queue_full, 50);
    // 10 µs later, one packet has left.
    assert_eq!(link.offer(10, &numbered(200, 1250)), Fate::Carried);
    assert_eq!(link.offer(10, &numbered(201, 1250)), Fate::QueueFull);
}

#[test]
fn a_loss_uses_time_on_the_wire_and_a_queue_drop_does_not() {
    let config = LinkConfig { loss: LossModel::Uniform(1.0), ..plain() };
    let mut link = Link::new(&config).unwrap();
    for number in 0..10 {
        assert_eq!(link.offer(0, &numbered(number, 1250)), Fate::Lost);
    }
    link.set_loss(&LossModel::None);
    link.offer(0, &numbered(10, 1250));
    assert_eq!(link.next_due_us(), Some(50_000 + 110));
}

#[test]
fn missing_packets_are_exactly_those_reported_lost() {
    for loss in ["uniform:0.02", "bursty:0.05:10", "markov:0.05:4"] {
        let config =
            LinkConfig { loss: loss.parse().unwrap(), queue_bytes: Some(2_000_000), seed: 3, ..plain() };
        let mut link = Link::new(&config).unwrap();
        let (mut expected, mut arrived) = (Vec::new(), Vec::new());
        for number in 0..100_000 {
            let now = u64::from(number) * 9; // slightly faster than the wire, so that the queue drops too
            if !link.offer(now, &numbered(number, 1250)).is_loss() {
                expected.push(number);
            }
            link.deliver(now, |arrival| arrived.push(number_of(arrival.packet)));
        }
        arrived.extend(drain(&mut link).iter().map(|(_, packet)| number_of(packet)));
        assert_eq!(arrived, expected);
        let counters = link.counters();
        assert!(counters.lost > 1_000 && counters.queue_full > 1_000, "{counters:?}");
        assert_eq!(
            counters.offered_packets,
            counters.delivered_packets + counters.lost + counters.queue_full
        );
    }
}

#[test]
fn jitter_spreads_arrivals_and_keeps_their_order() {
    let config = LinkConfig { jitter_us: 5_000, ..plain() };
    let mut link = Link::new(&config).unwrap();
    for n in 0..2_000 {
        link.offer(u64::from(n) * 100, &numbered(n, 1000));
    }
    let arrivals = drain(&mut link);
    let delays: Vec<u64> =
        arrivals.iter().map(|(due, packet)| due - u64::from(number_of(packet)) * 100).collect();
    assert!(arrivals.windows(2).all(|pair| number_of(&pair[0].1) < number_of(&pair[1].1)));
    assert!(delays.iter().all(|delay| (50_008..=55_009).contains(delay)), "{:?}", delays.iter().max());
    assert!(delays.iter().max().unwrap() - delays.iter().min().unwrap() > 2_000);
}

#[test]
fn reordered_packets_are_overtaken_and_all_arrive() {
    let config = LinkConfig { reorder: Some("0.1:5ms".parse().unwrap()), ..plain() };
    let mut link = Link::new(&config).unwrap();
    for n in 0..10_000 {
        link.offer(u64::from(n) * 20, &numbered(n, 1250));
    }
    let arrivals = drain(&mut link);
    let late = arrivals.iter().filter(|(due, p)| *due == u64::from(number_of(p)) * 20 + 55_010).count();
    let on_time = arrivals.iter().filter(|(due, p)| *due == u64::from(number_of(p)) * 20 + 50_010).count();
    assert_eq!(late + on_time, 10_000);
    assert_eq!(link.counters().reordered, late as u64);
    assert!((800..1_200).contains(&late), "{late}");
    let mut numbers: Vec<u32> = arrivals.iter().map(|(_, packet)| number_of(packet)).collect();
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..10_000));
}

#[test]
fn a_duplicated_packet_arrives_twice() {
    let config = LinkConfig { duplicate: 0.5, ..plain() };
    let mut link = Link::new(&config).unwrap();
    let doubled: Vec<bool> =
        (0..1_000).map(|n| link.offer(u64::from(n) * 20, &numbered(n, 100)) == Fate::Duplicated).collect();
    let expected: Vec<u32> = (0..1_000)
        .zip(&doubled)
        .flat_map(|(n, &twice)| std::iter::repeat_n(n, 1 + usize::from(twice)))
        .collect();
    let arrived: Vec<u32> = drain(&mut link).iter().map(|(_, packet)| number_of(packet)).collect();
    assert_eq!(arrived, expected);
    assert_eq!(link.counters().duplicated, doubled.iter().filter(|&&twice| twice).count() as u64);
}

#[test]
fn a_corrupted_packet_differs_in_one_bit_and_is_marked() {
    let config = LinkConfig { corrupt: 0.3, ..plain() };
    let mut link = Link::new(&config).unwrap();
    let fates: Vec<Fate> = (0..1_000).map(|_| link.offer(0, &[0x5a; 500])).collect();
    let mut flipped = std::collections::HashSet::new();
    let mut fates = fates.iter();
    link.deliver(u64::MAX / 1_000, |arrival| {
        let bits: u32 = arrival.packet.iter().map(|byte| (byte ^ 0x5a).count_ones()).sum();
        assert_eq!(bits, u32::from(arrival.corrupted));
        assert_eq!(*fates.next().unwrap() == Fate::Corrupted, arrival.corrupted);
        flipped.insert(arrival.packet.iter().position(|&byte| byte != 0x5a));
    });
    assert!(flipped.len() > 100, "too few distinct bits: {}", flipped.len());
}

#[test]
fn without_a_rate_only_the_delay_counts() {
    let config = LinkConfig { rate_bps: None, delay_us: 10, ..plain() };
    let mut link = Link::new(&config).unwrap();
    for n in 0..1_000 {
        link.offer(7, &numbered(n, 1500));
    }
    assert_eq!(link.deliver(16, |_| ()), 0);
    assert_eq!(link.deliver(17, |_| ()), 1_000);
}

#[test]
fn memory_is_bounded_and_overflow_is_counted() {
    let config = LinkConfig { rate_bps: Some(8_000_000), delay_us: 0, ..plain() };
    let mut link = Link::new(&config).unwrap();
    link.set_rate(None);
    let fates: Vec<Fate> = (0..2_000).map(|n| link.offer(0, &numbered(n, 1500))).collect();
    let kept = fates.iter().filter(|&&fate| fate == Fate::Carried).count();
    assert!((200..1_000).contains(&kept), "{kept}");
    assert_eq!(link.counters().overflow, 2_000 - kept as u64);
    assert_eq!(drain(&mut link).len(), kept);
}

#[test]
fn a_new_rate_applies_to_the_next_packet() {
    let mut link = Link::new(&plain()).unwrap();
    link.offer(0, &numbered(0, 1250));
    link.set_rate(Some(GIGABIT / 10));
    link.offer(0, &numbered(1, 1250));
    let dues: Vec<u64> = drain(&mut link).iter().map(|(due, _)| *due).collect();
    assert_eq!(dues, [50_010, 50_110]);
}

#[test]
fn fates_depend_on_the_seed_and_losses_on_no_other_setting() {
    let fates = |config: &LinkConfig| {
        let mut link = Link::new(config).unwrap();
        (0..5_000).map(|n| link.offer(u64::from(n) * 100, &numbered(n, 1000))).collect::<Vec<_>>()
    };
    let base = LinkConfig { loss: LossModel::Uniform(0.05), duplicate: 0.05, ..plain() };
    assert_eq!(fates(&base), fates(&base));
    assert_ne!(fates(&base), fates(&LinkConfig { seed: 2, ..base.clone() }));
    let other = LinkConfig { jitter_us: 3_000, corrupt: 0.1, duplicate: 0.0, delay_us: 1, ..base.clone() };
    let lost = |config| fates(config).iter().map(|&fate| fate == Fate::Lost).collect::<Vec<_>>();
    assert_eq!(lost(&base), lost(&other));
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let cases = [
        (LinkConfig { rate_bps: Some(0), ..plain() }, "rate"),
        (LinkConfig { duplicate: 1.5, ..plain() }, "duplicate"),
        (LinkConfig { corrupt: f64::NAN, ..plain() }, "corrupt"),
        (LinkConfig { delay_us: 61_000_000, ..plain() }, "delay"),
        (LinkConfig { jitter_us: u64::MAX, ..plain() }, "jitter"),
        (LinkConfig { queue_bytes: Some(1_500), ..plain() }, "queue"),
        (LinkConfig { queue_bytes: Some(u64::MAX), ..plain() }, "bytes of packets"),
        (LinkConfig { reorder: Some(Reorder { share: -0.1, extra_us: 1 }), ..plain() }, "reorder"),
    ];
    for (config, needle) in cases {
        let error = Link::new(&config).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
}

#[test]
fn the_default_queue_is_one_bandwidth_delay_product() {
    assert_eq!(plain().queue_bytes(), 12_500_000);
    assert_eq!(LinkConfig { delay_us: 0, ..plain() }.queue_bytes(), 262_144);
    assert_eq!(LinkConfig { queue_bytes: Some(70_000), ..plain() }.queue_bytes(), 70_000);
}

#[test]
fn reordering_parses_and_displays() {
    let reorder: Reorder = "0.001:5ms".parse().unwrap();
    assert_eq!(reorder, Reorder { share: 0.001, extra_us: 5_000 });
    assert_eq!(reorder.to_string(), "0.001:5ms");
    for text in ["", "0.1", "2:5ms", "0.1:5"] {
        assert!(text.parse::<Reorder>().is_err(), "{text:?}");
    }
}
