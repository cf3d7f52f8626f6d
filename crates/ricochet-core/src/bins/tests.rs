use std::collections::BTreeMap;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::*;
use crate::chance;
use crate::groups::{GroupConfig, Groups};
use crate::ids::GroupId;
use crate::view::{Member, View};
use crate::wire::{Data, Extras, SYMBOL_HEAD};

const C: u8 = 5;

/// A repair that was emitted.
#[derive(Clone, Debug)]
struct Kept {
    names: Vec<Name>,
    symbol: Option<Vec<u8>>,
    targets: Vec<NodeId>,
}

/// Bins, and the repairs that they emitted.
struct Bench {
    groups: Groups,
    view: View,
    bins: Bins,
    rng: ChaCha8Rng,
    kept: Vec<Kept>,
    seq: u32,
}

impl Bench {
    /// Makes a bench with `sizes` other nodes in each group, drawn at random.
    fn new(config: BinsConfig, seed: u64, nodes: u32, sizes: &[usize]) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let groups = Groups::new(
            (0..sizes.len() as u64).map(|id| GroupConfig { id: GroupId(id), c: C }).collect::<Vec<_>>(),
        );
        let (groups, mut of_node) = (groups.unwrap(), vec![Vec::new(); nodes as usize]);
        for (group, &size) in sizes.iter().enumerate() {
            let mut members: Vec<usize> = (0..nodes as usize).collect();
            for at in 0..size.min(members.len()) {
                let other = at + chance::below(&mut rng, members.len() - at);
                members.swap(at, other);
                of_node[members[at]].push(GroupId(group as u64));
            }
        }
        let members = of_node.into_iter().enumerate();
        let view = View::new(members.map(|(node, groups)| Member::new(NodeId(node as u32 + 1), groups)));
        let (regions, plan) = Self::planned(&groups, &view);
        let bins = Bins::new(config, regions, plan, &mut rng).unwrap();
        Self { groups, view, bins, rng, kept: Vec::new(), seq: 0 }
    }

    fn planned(groups: &Groups, view: &View) -> (Regions, Plan) {
        let regions = Regions::new(NodeId(0), groups, view);
        let plan = Plan::new(groups, &regions);
        (regions, plan)
    }

    fn data(group: usize, seq: u32, payload: &[u8]) -> Data<'_> {
        let group = GroupId(group as u64);
        Data {
            sender: NodeId(99),
            group,
            seq,
            sender_seq: seq,
            expires: false,
            fragment: false,
            joint: false,
            extras: Extras::NONE,
            payload,
        }
    }

    fn push(&mut self, now_us: u64, group: usize, payload: &[u8]) {
        let data = Self::data(group, self.seq, payload);
        self.seq += 1;
        let (head, kept) = (data.symbol_head(), &mut self.kept);
        let packet = Packet { group: GroupIndex::new(group), name: data.name(), symbol: &[&head, payload] };
        self.bins.push(now_us, &packet, &mut self.rng, &mut |repair| keep(kept, &repair)).unwrap();
    }

    fn fire_due(&mut self, now_us: u64) {
        let kept = &mut self.kept;
        self.bins.fire_due(now_us, &mut self.rng, &mut |repair| keep(kept, &repair));
    }

    /// Returns the average number of repairs that each packet of each group entered, counted once for each
    /// target.
    fn repairs_per_packet(&self, packets: &BTreeMap<usize, u32>) -> BTreeMap<usize, f64> {
        let mut sent = BTreeMap::<usize, usize>::new();
        for kept in &self.kept {
            for name in &kept.names {
                *sent.entry(name.group.0 as usize).or_default() += kept.targets.len();
            }
        }
        sent.into_iter().map(|(group, sent)| (group, sent as f64 / f64::from(packets[&group]))).collect()
    }
}

fn keep(kept: &mut Vec<Kept>, repair: &Outgoing<'_>) {
    kept.push(Kept {
        names: repair.names.to_vec(),
        symbol: repair.symbol.map(<[u8]>::to_vec),
        targets: repair.targets.to_vec(),
    });
}

fn config(r: u8) -> BinsConfig {
    BinsConfig { r, symbol_max: 200, ..BinsConfig::default() }
}

const SIZES: [usize; 12] = [9, 8, 12, 3, 10, 10, 2, 7, 15, 0, 5, 9];

fn expected(size: usize) -> f64 {
    usize::from(C).min(size) as f64
}

#[test]
fn every_packet_enters_c_repairs_on_average_and_costs_at_most_c_additions() {
    let mut bench = Bench::new(config(8), 1, 24, &SIZES);
    let mut packets = BTreeMap::new();
    for round in 0..60_000 {
        let group = round * 7 % SIZES.len();
        *packets.entry(group).or_default() += 1;
        bench.push(0, group, b"payload");
    }
    let averages = bench.repairs_per_packet(&packets);
    for (group, &size) in SIZES.iter().enumerate() {
        let average = averages.get(&group).copied().unwrap_or(0.0);
        assert!((average - expected(size)).abs() < 0.25, "group {group} of {size}: {average}");
    }
    let counts = bench.bins.counts();
    let mean_c = SIZES.iter().map(|&size| expected(size)).sum::<f64>() / SIZES.len() as f64;
    let additions = counts.additions as f64 / counts.packets as f64;
    assert!(additions <= mean_c * 1.02, "{additions} additions for each packet");
    assert_eq!((counts.packets, counts.early, counts.skipped), (60_000, 0, 0));
    assert_eq!(counts.sent, bench.kept.iter().map(|kept| kept.targets.len() as u64).sum::<u64>());
    // There are c/r repairs for each packet: at (8,5) and full groups 38 % of all packets are repairs.
    let sent = counts.sent as f64 / counts.packets as f64;
    assert!((sent - mean_c / 8.0).abs() < 0.02, "{sent} repairs for each packet");
}

/// Returns the average by group where deadlines close most bins.
fn closed_early(seed: u64, next: impl Fn(&mut ChaCha8Rng, usize) -> usize) -> BTreeMap<usize, f64> {
    let mut bench = Bench::new(BinsConfig { max_delay_us: Some(5_000), ..config(8) }, seed, 24, &SIZES);
    let (mut packets, mut now_us) = (BTreeMap::new(), 0);
    for round in 0..60_000 {
        let group = next(&mut bench.rng, round);
        *packets.entry(group).or_default() += 1;
        now_us += round as u64 * 7_919 % 4_000;
        bench.fire_due(now_us);
        bench.push(now_us, group, b"payload");
    }
    assert!(bench.bins.counts().early * 2 > bench.bins.counts().repairs, "most bins were closed early");
    bench.repairs_per_packet(&packets)
}

#[test]
fn the_average_holds_where_deadlines_close_the_bins() {
    let averages = closed_early(2, |rng, _| chance::below(rng, SIZES.len()));
    // A turn begins with a packet of its level, so a group that always follows finds it open more often than
    // others, the more so the shorter turns are.
    let of_a_cycle = closed_early(2, |_, round| round * 7 % SIZES.len());
    for (group, &size) in SIZES.iter().enumerate().filter(|(_, size)| **size > 0) {
        let (average, of_a_cycle) = (averages[&group], of_a_cycle[&group]);
        assert!((average - expected(size)).abs() < 0.2, "group {group} of {size}: {average}");
        assert!((of_a_cycle - expected(size)).abs() < 0.8, "group {group} of {size}: {of_a_cycle}");
    }
}

#[test]
fn a_node_gets_a_packet_at_most_once_and_as_often_as_its_group_wants() {
    let mut bench = Bench::new(config(8), 8, 24, &SIZES);
    let (mut packets, rounds) = (BTreeMap::<usize, u32>::new(), 200_000);
    for _ in 0..rounds {
        // Groups differ in how busy they are, by a factor of twelve.
        let group = chance::below(&mut bench.rng, SIZES.len());
        let group = chance::below(&mut bench.rng, group + 1);
        *packets.entry(group).or_default() += 1;
        bench.push(0, group, b"payload");
    }
    let mut got = BTreeMap::<(usize, NodeId), Vec<u32>>::new();
    for kept in &bench.kept {
        for &target in &kept.targets {
            for name in &kept.names {
                got.entry((name.group.0 as usize, target)).or_default().push(name.seq);
            }
        }
    }
    let (mut twice, mut all) = (0, 0);
    for ((group, node), seqs) in &mut got {
        seqs.sort_unstable();
        let copies = seqs.len();
        seqs.dedup();
        twice += copies - seqs.len();
        all += copies;
        let wanted = expected(SIZES[*group]) / SIZES[*group] as f64;
        let share = copies as f64 / f64::from(packets[group]);
        assert!((share - wanted).abs() < 0.06, "group {group}, {node}: {share} instead of {wanted}");
    }
    assert_eq!(got.len(), SIZES.iter().sum::<usize>());
    // This happens only where one lane's last packet is another's first, and the nodes change places between
    // the two.
    assert!(twice * 500 < all, "{twice} of {all} came to a node twice");
}

#[test]
fn groups_that_fall_silent_keep_no_lane_from_the_others() {
    // The group of one neighbour alone has most of the levels of the region that it shares with the group of
    // nine.
    let mut bench = Bench::new(config(8), 9, 9, &[9, 1]);
    let mut packets = BTreeMap::new();
    for round in 0..40_000 {
        let group = usize::from(round < 10_000 && round % 2 == 0);
        *packets.entry(group).or_default() += 1;
        bench.push(0, group, b"x");
    }
    let averages = bench.repairs_per_packet(&packets);
    assert!((averages[&0] - 5.0).abs() < 0.1 && (averages[&1] - 1.0).abs() < 0.05, "{averages:?}");
}

#[test]
fn a_part_filled_bin_fires_at_its_deadline_and_not_before() {
    let mut bench = Bench::new(BinsConfig { max_delay_us: Some(1_000), ..config(64) }, 3, 5, &[5]);
    assert_eq!(bench.bins.next_deadline_us(), None, "no repair has begun");
    // With five others and c = 5, every repair goes to all of them. The first bin may be nearly full.
    while bench.bins.next_deadline_us().is_none() {
        bench.push(50, 0, b"x");
    }
    bench.kept.clear();
    // The node's own longest wait or its half, quarter or eighth, since the instance has measured little.
    let due_us = bench.bins.next_deadline_us().unwrap();
    let is_one = |halvings: u32| (900 >> halvings..=1_100 >> halvings).contains(&(due_us - 50));
    assert!((0..4).any(is_one), "{due_us}");
    bench.fire_due(due_us - 1);
    assert_eq!(bench.kept.len(), 0);
    bench.fire_due(due_us);
    assert_eq!((bench.kept.len(), bench.kept[0].targets.len(), bench.bins.next_deadline_us()), (1, 5, None));
    assert_eq!(bench.bins.counts().early, 1);
}

/// Returns the longest time for which a bin of the only group waits once 200 packets have come at an
/// interval, and the number of its packets.
fn longest_wait(interval_us: u64) -> (u64, usize) {
    let mut bench = Bench::new(BinsConfig { max_delay_us: Some(4_000), ..config(8) }, 5, 5, &[5]);
    let (mut longest_us, mut begun_us) = (0, None);
    for now_us in (0..interval_us * 300).step_by(100) {
        let emitted = bench.kept.len();
        bench.fire_due(now_us);
        if now_us.is_multiple_of(interval_us) {
            bench.push(now_us, 0, b"x");
        }
        if bench.kept.len() > emitted {
            let waited_us = begun_us.take().map_or(0, |begun_us| now_us - begun_us);
            longest_us = longest_us.max(if now_us > interval_us * 200 { waited_us } else { 0 });
        }
        begun_us = bench.bins.next_deadline_us().map(|_| begun_us.unwrap_or(now_us));
    }
    (longest_us, bench.kept.last().unwrap().names.len())
}

#[test]
fn a_bin_waits_for_packets_that_come_and_not_for_others() {
    // A packet a millisecond: as before, four or five share a repair.
    let (waited_us, packets) = longest_wait(1_000);
    assert!((3_600..=4_400).contains(&waited_us) && packets >= 4, "{waited_us} {packets}");
    // A packet each 20 ms would wait alone.
    let (waited_us, packets) = longest_wait(20_000);
    assert!((500..=600).contains(&waited_us) && packets == 1, "{waited_us} {packets}");
}

/// Returns the largest number of repairs that 24 nodes make within 10 µs when all of them receive the same
/// packets, which come at irregular intervals of a millisecond on average.
fn crowd(most_us: u64) -> usize {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut now_us = 0;
    let times: Vec<u64> = (0..2_000)
        .map(|_| {
            now_us += 1 + chance::below(&mut rng, 2_000) as u64;
            now_us
        })
        .collect();
    let mut fired = Vec::new();
    for seed in 0..24 {
        let config = BinsConfig { max_delay_us: Some(most_us), ..config(64) };
        let mut bench = Bench::new(config, seed, 24, &[24]);
        for &at_us in &times {
            while let Some(due_us) = bench.bins.next_deadline_us().filter(|&due_us| due_us <= at_us) {
                bench.fire_due(due_us);
                fired.push(due_us);
            }
            bench.push(at_us, 0, b"x");
        }
    }
    // At the beginning, the first bins of all nodes are of different sizes.
    fired.retain(|&at_us| at_us > now_us / 2);
    fired.sort_unstable();
    let together = |at: usize| fired[at..].iter().take_while(|&&other| other < fired[at] + 10).count();
    (0..fired.len()).map(together).max().unwrap_or(0)
}

#[test]
fn nodes_that_receive_the_same_packets_do_not_make_their_repairs_at_the_same_time() {
    for most_us in [3_000, 5_000, 20_000] {
        let together = crowd(most_us);
        assert!(
            (1..=9).contains(&together),
            "{together} of 24 nodes within 10 µs, longest wait {most_us} µs"
        );
    }
}

#[test]
fn a_stagger_keeps_consecutive_packets_out_of_one_repair() {
    let mut bench = Bench::new(BinsConfig { stagger: 3, ..config(4) }, 4, 5, &[5]);
    for _ in 0..100 {
        bench.push(0, 0, b"x");
    }
    assert!(bench.kept.len() > 20);
    for kept in &bench.kept {
        assert!(kept.names.windows(2).all(|pair| pair[1].seq == pair[0].seq + 3), "{kept:?}");
    }
}

#[test]
fn a_change_of_the_view_loses_no_packet() {
    let mut bench = Bench::new(config(8), 5, 5, &[5, 5]);
    for round in 0..10 {
        for _ in 0..5 {
            bench.push(0, round % 2, b"x");
        }
        if round % 2 == 0 {
            bench.view.remove(NodeId(1));
        } else {
            bench.view.set(Member::new(NodeId(1), [GroupId(0), GroupId(1)]));
        }
        let (regions, plan) = Bench::planned(&bench.groups, &bench.view);
        let kept = &mut bench.kept;
        bench.bins.change(regions, plan, &mut bench.rng, &mut |repair| keep(kept, &repair));
        assert_eq!(bench.bins.next_deadline_us(), None);
    }
    // All others are in both groups, so each packet goes to all members of the view.
    let mut named: Vec<u32> = bench.kept.iter().flat_map(|kept| &kept.names).map(|name| name.seq).collect();
    named.sort_unstable();
    assert_eq!(named, (0..50).collect::<Vec<_>>());
    assert!(bench.kept.iter().any(|kept| kept.targets.len() == 4));
    assert_eq!(bench.bins.counts().packets, 50);
}

#[test]
fn digests_cost_no_sums_and_too_few_sums_skip_repairs() {
    let mut digests = Bench::new(BinsConfig { content: Content::Names, ..config(8) }, 6, 24, &SIZES);
    let mut poor = Bench::new(BinsConfig { sums_max: 1, ..config(8) }, 6, 24, &SIZES);
    for round in 0..2_000 {
        digests.push(0, round % SIZES.len(), b"x");
        poor.push(0, round % SIZES.len(), b"x");
    }
    assert!(digests.kept.len() > 100 && digests.kept.iter().all(|kept| kept.symbol.is_none()));
    assert_eq!((digests.bins.counts().additions, digests.bins.counts().skipped), (0, 0));
    assert!(poor.bins.counts().skipped > 100 && poor.bins.counts().repairs > 10);
    assert!(poor.bins.memory_bytes() < digests.bins.memory_bytes() + 300);
}

#[test]
fn a_packet_that_is_too_long_enters_no_bin_and_configurations_out_of_range_are_refused() {
    let mut bench = Bench::new(config(8), 7, 5, &[5]);
    let (payload, name) = ([0; 201], Name { sender: NodeId(1), group: GroupTag(0), seq: 0 });
    let packet = Packet { group: GroupIndex::new(0), name, symbol: &[&payload] };
    let result = bench.bins.push(0, &packet, &mut bench.rng, &mut |_| panic!("no repair"));
    assert_eq!(result, Err(SymbolTooLong { length: 201, symbol_max: 200 }));
    assert_eq!(bench.bins.counts(), &BinsCounts::default());

    let good = BinsConfig::default();
    for (bad, text) in [
        (BinsConfig { r: 0, ..good }, "r: expected 1 to 64, saw 0"),
        (BinsConfig { r: 65, ..good }, "r: expected 1 to 64, saw 65"),
        (BinsConfig { stagger: 0, ..good }, "stagger: expected 1 to 256, saw 0"),
        (BinsConfig { max_delay_us: Some(0), ..good }, "max_delay_us: expected none or 1 to 60000000, saw 0"),
        (BinsConfig { symbol_max: 0, ..good }, "symbol_max: expected 1 to 131072, saw 0"),
        (BinsConfig { sums_max: 0, ..good }, "sums_max: expected 1 to 65536, saw 0"),
    ] {
        let (regions, plan) = Bench::planned(&bench.groups, &bench.view);
        assert_eq!(Bins::new(bad, regions, plan, &mut bench.rng).unwrap_err().to_string(), text);
    }
}

proptest! {
    #[test]
    fn a_repair_recovers_the_one_packet_that_its_target_misses(
        seed: u64, r in 1u8..10, stagger in 1u16..4,
        sizes in prop::collection::vec(0usize..12, 1..8),
        packets in prop::collection::vec((0usize..8, prop::collection::vec(any::<u8>(), 0..150)), 0..150),
    ) {
        let config = BinsConfig { stagger, max_delay_us: Some(40), ..config(r) };
        let mut bench = Bench::new(config, seed, 12, &sizes);
        let packets: Vec<(usize, Vec<u8>)> = packets.into_iter().map(|(group, bytes)| (group % sizes.len(), bytes)).collect();
        for (at, (group, payload)) in packets.iter().enumerate() {
            bench.fire_due(at as u64);
            bench.push(at as u64, *group, payload);
        }
        bench.fire_due(u64::MAX);
        prop_assert_eq!(bench.bins.next_deadline_us(), None);
        let data = |name: Name| Bench::data(name.group.0 as usize, name.seq, &packets[name.seq as usize].1);
        for kept in &bench.kept {
            prop_assert!((1..=usize::from(r)).contains(&kept.names.len()) && !kept.targets.is_empty());
            for (at, target) in kept.targets.iter().enumerate() {
                prop_assert!(!kept.targets[..at].contains(target), "each target once");
                let wanted = bench.view.member(*target).unwrap().groups();
                prop_assert!(kept.names.iter().all(|name| wanted.contains(&GroupId(u64::from(name.group.0)))));
            }
            let symbol = kept.symbol.as_ref().unwrap();
            for &missing in &kept.names {
                let mut solved = symbol.clone();
                for &name in kept.names.iter().filter(|&&name| name != missing) {
                    let known = [&data(name).symbol_head()[..], data(name).payload].concat();
                    solved.iter_mut().zip(&known).for_each(|(sum, byte)| *sum ^= byte);
                }
                let group = data(missing).group;
                prop_assert_eq!(Data::from_symbol(missing, group, &solved), Ok(data(missing)));
            }
            prop_assert!(symbol.len() >= SYMBOL_HEAD);
        }
    }
}

#[test]
fn where_packets_come_densely_digests_name_more_of_them() {
    // Number of names of a digest, and that of the digests that a packet enters less the expected one.
    let run = |interval_us: u64| {
        let config = BinsConfig { content: Content::Names, ..config(8) };
        let mut bench = Bench::new(config, 1, 24, &SIZES);
        let mut packets = BTreeMap::new();
        for round in 0..120_000 {
            let group = round * 7 % SIZES.len();
            *packets.entry(group).or_default() += 1;
            bench.push(round as u64 * interval_us, group, b"payload");
        }
        for (group, average) in bench.repairs_per_packet(&packets) {
            let expected = expected(SIZES[group]);
            assert!((average - expected).abs() < 0.25, "{interval_us} us, group {group}: {average}");
        }
        let names: usize = bench.kept.iter().map(|kept| kept.names.len()).sum();
        names as f64 / bench.kept.len() as f64
    };
    let (slow, dense) = (run(1_000), run(1));
    assert!((7.5..=8.0).contains(&slow), "{slow} names");
    assert!((24.0..=32.0).contains(&dense), "{dense} names");
}
