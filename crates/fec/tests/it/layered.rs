//! Which repairs the layered encoder sends, and when.
#![allow(missing_docs)]

use fec::{
    ConfigError, LayeredConfig, LayeredEncoder, MEMORY_MAX, Repair, Sending, SymbolTooLong, first_size,
};

fn config(r: u8, interleaves: &[u16]) -> LayeredConfig {
    LayeredConfig {
        r,
        interleaves: interleaves.to_vec(),
        deadline_us: None,
        symbol_max: 16,
        ..LayeredConfig::default()
    }
}

/// A repair without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    interleave: u16,
    packets: Vec<u32>,
}

/// An encoder whose packets are identified by number.
struct Sender {
    interleaves: Vec<u16>,
    encoder: LayeredEncoder<u32>,
    next: u32,
}

impl Sender {
    fn new(config: &LayeredConfig) -> Self {
        let encoder = LayeredEncoder::new(config).unwrap();
        Self { interleaves: config.interleaves.clone(), encoder, next: 0 }
    }

    fn push(&mut self, now_us: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        let n = self.next;
        self.next += 1;
        let mut emit = |repair: Repair<'_, u32>| sent.push(check(&repair, &self.interleaves));
        self.encoder.push(now_us, n, &[&n.to_le_bytes()], &mut emit).unwrap();
        sent
    }

    fn fire_due(&mut self, now_us: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.encoder.fire_due(now_us, &mut |repair| sent.push(check(&repair, &self.interleaves)));
        sent
    }

    fn flush(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.encoder.flush(&mut |repair| sent.push(check(&repair, &self.interleaves)));
        sent
    }
}

fn check(repair: &Repair<'_, u32>, interleaves: &[u16]) -> Sent {
    let sum = repair.packets.iter().fold(0, |sum, n| sum ^ n);
    assert_eq!(repair.payload, sum.to_le_bytes());
    assert!(repair.coefficients.len() == repair.packets.len() && repair.coefficients.iter().all(|&c| c == 1));
    Sent { interleave: interleaves[repair.row], packets: repair.packets.to_vec() }
}

fn sent(interleave: u16, packets: &[u32]) -> Sent {
    Sent { interleave, packets: packets.to_vec() }
}

#[test]
fn first_sizes_are_those_of_the_paper() {
    let sizes = |i: u16, r: u8| (1..=i).map(|x| first_size(x, i, r)).collect::<Vec<_>>();
    // "for r = 4 and i = 2, the initial firing sizes would be 2 for the first bin and 4 for the second"
    assert_eq!(sizes(2, 4), [2, 4]);
    // "in Figure 6 (r = 5, I = 1,4,8), the first repair bin in the second layer would fire at size 1, the
    // second at 2"
    assert_eq!(sizes(4, 5), [1, 2, 3, 5]);
    assert_eq!(sizes(8, 5), [1, 2, 3, 4, 5, 1, 2, 3]);
    assert_eq!(sizes(8, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(sizes(1, 8), [8]);
    assert_eq!(sizes(3, 1), [1, 1, 1]);
}

#[test]
fn first_sizes_are_valid_for_all_parameters() {
    for r in 1..=fec::R_MAX {
        for i in 1..=200 {
            assert!((1..=i).all(|x| (1..=r).contains(&first_size(x, i, r))), "r {r} i {i}");
        }
    }
}

#[test]
fn bins_fire_at_different_sizes_first_and_then_at_r() {
    let mut sender = Sender::new(&config(4, &[8]));
    let fired: Vec<Vec<Sent>> = (0..64).map(|_| sender.push(0)).collect();
    assert_eq!(fired[0], [sent(8, &[0])]);
    assert_eq!(fired[4], [sent(8, &[4])], "bins 1 and 5 begin at 1");
    assert_eq!(fired[9], [sent(8, &[1, 9])]);
    assert_eq!(fired[27], [sent(8, &[3, 11, 19, 27])]);
    assert_eq!(fired[32], [sent(8, &[8, 16, 24, 32])], "at r from the second time on");
    for round in fired.chunks(4) {
        assert_eq!(round.iter().flatten().count(), 1, "one repair for every r packets");
    }
}

#[test]
fn bins_of_an_interleave_below_r_also_start_at_different_sizes() {
    let mut sender = Sender::new(&config(4, &[2]));
    let fired: Vec<usize> = (0..40).filter(|_| !sender.push(0).is_empty()).collect();
    assert_eq!(fired, [2, 7, 10, 15, 18, 23, 26, 31, 34, 39]);
}

#[test]
fn a_packet_enters_one_bin_of_every_layer() {
    let mut sender = Sender::new(&config(2, &[1, 3]));
    let mut all: Vec<Sent> = (0..60).flat_map(|_| sender.push(0)).collect();
    all.extend(sender.flush());
    for interleave in [1, 3] {
        let layer: Vec<&Sent> = all.iter().filter(|sent| sent.interleave == interleave).collect();
        let mut packets: Vec<u32> = layer.iter().flat_map(|sent| sent.packets.clone()).collect();
        packets.sort_unstable();
        assert_eq!(packets, (0..60).collect::<Vec<u32>>());
        assert!(
            layer
                .iter()
                .all(|sent| sent.packets.windows(2).all(|pair| pair[1] - pair[0] == u32::from(interleave)))
        );
    }
}

#[test]
fn r_of_one_sends_every_packet_again_in_every_layer() {
    let mut sender = Sender::new(&config(1, &[1, 4]));
    for n in 0..20 {
        assert_eq!(sender.push(0), [sent(1, &[n]), sent(4, &[n])]);
    }
}

#[test]
fn delayed_r_of_one_sends_every_packet_again_one_interleave_later() {
    let mut sender = Sender::new(&LayeredConfig { sending: Sending::Delayed, ..config(1, &[4]) });
    for n in 0..20 {
        let expected = if n < 4 { vec![] } else { vec![sent(4, &[n - 4])] };
        assert_eq!(sender.push(0), expected);
    }
}

#[test]
fn delayed_repairs_leave_when_the_next_packet_enters_their_bin() {
    let mut sender = Sender::new(&LayeredConfig { sending: Sending::Delayed, ..config(2, &[1, 3]) });
    assert_eq!(sender.push(0), []);
    assert_eq!(sender.push(0), [sent(1, &[0, 1])], "the layer of single losses does not wait");
    assert_eq!(sender.push(0), []);
    let both = [sent(1, &[2, 3]), sent(3, &[0])];
    assert_eq!(sender.push(0), both, "the first bin of layer 3 began at 1 and is entered again");
    assert_eq!(sender.flush(), [sent(3, &[1]), sent(3, &[2]), sent(3, &[3])]);
}

#[test]
fn a_part_filled_bin_fires_at_its_deadline() {
    let mut sender = Sender::new(&LayeredConfig { deadline_us: Some(100), ..config(4, &[1]) });
    assert_eq!(sender.encoder.next_deadline_us(), None);
    sender.push(1_000);
    sender.push(1_050);
    assert_eq!(sender.encoder.next_deadline_us(), Some(1_100), "counted from the first packet");
    assert_eq!(sender.fire_due(1_099), []);
    assert_eq!(sender.fire_due(1_100), [sent(1, &[0, 1])]);
    assert_eq!(sender.encoder.next_deadline_us(), None);
    assert_eq!(sender.fire_due(9_999), []);
}

#[test]
fn deadlines_grow_with_the_interleave() {
    let mut sender = Sender::new(&LayeredConfig { deadline_us: Some(100), ..config(64, &[2, 3, 7]) });
    sender.push(0);
    let mut deadlines = Vec::new();
    while let Some(due_us) = sender.encoder.next_deadline_us() {
        let fired = sender.fire_due(due_us);
        assert!(fired.iter().all(|sent| sent.packets == [0]));
        deadlines.push((due_us, fired.iter().map(|sent| sent.interleave).collect::<Vec<_>>()));
    }
    assert_eq!(deadlines, [(100, vec![2]), (150, vec![3]), (350, vec![7])]);
}

#[test]
fn where_the_first_layer_fills_in_time_no_layer_fires_early() {
    // 8 packets in 20 ms: one every 2.5 ms.
    let mut sender = Sender::new(&LayeredConfig { deadline_us: Some(20_000), ..config(8, &[1, 11, 19]) });
    for n in 0..5_000 {
        assert_eq!(sender.fire_due(n * 2_500), []);
        sender.push(n * 2_500);
    }
}

#[test]
fn bins_of_a_layer_fire_in_the_order_in_which_they_were_begun() {
    let mut sender = Sender::new(&LayeredConfig { deadline_us: Some(10), ..config(3, &[5]) });
    // Bins fill and fire in between, so that the list loses members at all positions.
    for now_us in 0..24 {
        sender.push(now_us / 1_000);
    }
    let first: Vec<u32> = sender.fire_due(1_000).iter().map(|sent| sent.packets[0]).collect();
    assert!(!first.is_empty() && first.is_sorted(), "{first:?}");
}

#[test]
fn a_held_repair_leaves_at_its_deadline() {
    let config = LayeredConfig { sending: Sending::Delayed, deadline_us: Some(100), ..config(1, &[2]) };
    let mut sender = Sender::new(&config);
    sender.push(10);
    assert_eq!(sender.push(20), []);
    assert_eq!(sender.encoder.next_deadline_us(), Some(110));
    assert_eq!(sender.fire_due(110), [sent(2, &[0])]);
    assert_eq!(sender.push(115), [], "it does not leave twice");
    assert_eq!(sender.encoder.next_deadline_us(), Some(120));
}

#[test]
fn a_layer_emptied_by_its_deadline_returns_to_its_first_sizes() {
    let mut sender = Sender::new(&LayeredConfig { deadline_us: Some(100), ..config(4, &[8]) });
    let sizes = |sender: &mut Sender, now_us| -> Vec<usize> {
        (0..32).flat_map(|_| sender.push(now_us)).map(|sent| sent.packets.len()).collect()
    };
    let fresh = sizes(&mut sender, 0);
    assert_eq!(fresh, [1, 1, 2, 2, 3, 3, 4, 4]);
    sender.push(0);
    assert_ne!(sender.fire_due(800).len(), 0);
    assert_eq!(sizes(&mut sender, 1_000), fresh);
    sender.push(1_000);
    assert_ne!(sender.flush().len(), 0);
    assert_eq!(sizes(&mut sender, 2_000), fresh);
}

#[test]
fn a_clock_that_steps_back_delays_no_deadline() {
    let mut sender = Sender::new(&LayeredConfig { deadline_us: Some(100), ..config(4, &[3]) });
    sender.push(1_000);
    sender.push(0);
    assert_eq!(sender.encoder.next_deadline_us(), Some(1_100));
    assert_eq!(sender.fire_due(1_100).len(), 1);
}

#[test]
fn without_a_deadline_a_bin_waits_without_limit() {
    let mut sender = Sender::new(&config(4, &[1]));
    sender.push(0);
    assert_eq!(sender.encoder.next_deadline_us(), None);
    assert_eq!(sender.fire_due(u64::MAX), []);
}

#[test]
fn a_payload_is_as_long_as_its_longest_symbol() {
    let mut encoder = LayeredEncoder::new(&config(3, &[1])).unwrap();
    let mut payloads = Vec::new();
    let mut emit = |repair: Repair<'_, ()>| payloads.push(repair.payload.to_vec());
    for symbol in [&[1u8, 2, 3][..], &[4], &[5, 6, 7, 8], &[], &[], &[], &[9], &[9], &[1, 1]] {
        encoder.push(0, (), &[symbol], &mut emit).unwrap();
    }
    assert_eq!(payloads, [vec![1 ^ 4 ^ 5, 2 ^ 6, 3 ^ 7, 8], vec![], vec![1, 1]]);
}

#[test]
fn a_symbol_too_long_enters_no_bin() {
    let mut encoder = LayeredEncoder::new(&config(2, &[1])).unwrap();
    let mut sent = Vec::new();
    let mut emit = |repair: Repair<'_, u8>| sent.push(repair.packets.to_vec());
    encoder.push(0, 1, &[&[0; 16]], &mut emit).unwrap();
    let refused = encoder.push(0, 2, &[&[0; 9], &[0; 8]], &mut emit);
    assert_eq!(refused, Err(SymbolTooLong { length: 17, symbol_max: 16 }));
    assert_eq!(refused.unwrap_err().to_string(), "symbol: expected at most 16 bytes, saw 17");
    encoder.push(0, 3, &[&[0; 16]], &mut emit).unwrap();
    assert_eq!(sent, [[1, 3]]);
}

fn mistake(change: impl FnOnce(&mut LayeredConfig)) -> String {
    let mut config = LayeredConfig::default();
    change(&mut config);
    LayeredEncoder::<u64>::new(&config).unwrap_err().to_string()
}

#[test]
fn every_mistake_in_the_configuration_is_named() {
    assert!(LayeredConfig::default().check().is_ok());
    assert_eq!(mistake(|c| c.r = 0), "r: expected 1 to 64, saw 0");
    assert_eq!(mistake(|c| c.r = 65), "r: expected 1 to 64, saw 65");
    assert_eq!(mistake(|c| c.interleaves.clear()), "number of interleaves: expected 1 to 16, saw 0");
    assert_eq!(
        mistake(|c| c.interleaves = (1..=17).collect()),
        "number of interleaves: expected 1 to 16, saw 17"
    );
    assert_eq!(mistake(|c| c.interleaves = vec![1, 0]), "interleaves: expected 1 to 1024, saw 0");
    assert_eq!(mistake(|c| c.interleaves = vec![1025]), "interleaves: expected 1 to 1024, saw 1025");
    assert_eq!(
        mistake(|c| c.interleaves = vec![3, 1, 3]),
        "interleaves: expected distinct ones, saw 3 twice"
    );
    assert_eq!(mistake(|c| c.deadline_us = Some(0)), "deadline_us: expected 1 to 60000000, saw 0");
    assert!(mistake(|c| c.deadline_us = Some(60_000_001)).starts_with("deadline_us: "));
    assert_eq!(mistake(|c| c.symbol_max = 0), "symbol_max: expected 1 to 131072, saw 0");
    assert_eq!(mistake(|c| c.symbol_max = 131_073), "symbol_max: expected 1 to 131072, saw 131073");
}

#[test]
fn bins_of_too_much_memory_are_refused() {
    let config = LayeredConfig {
        interleaves: (1_000..1_016).collect(),
        symbol_max: 65_536,
        ..LayeredConfig::default()
    };
    let refused = LayeredEncoder::<u64>::new(&config).map(|_| ());
    assert!(matches!(refused, Err(ConfigError::Memory { seen, .. }) if seen > MEMORY_MAX), "{refused:?}");
}
