use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::*;
use crate::groups::GroupConfig;
use crate::ids::GroupId;
use crate::view::{Member, View};

/// What the tests look at: for each bin, by the names of its groups, what it takes of each region, named likewise.
type Named = BTreeMap<Vec<u64>, BTreeMap<Vec<u64>, f64>>;

fn plan(c: &BTreeMap<u64, u8>, nodes: &[BTreeSet<u64>]) -> (Groups, Regions, Plan) {
    let groups =
        Groups::new(c.iter().map(|(&id, &c)| GroupConfig { id: GroupId(id), c }).collect::<Vec<_>>())
            .unwrap();
    let view = View::new(nodes.iter().enumerate().map(|(id, groups)| {
        Member::new(NodeId(id as u32 + 1), groups.iter().map(|&id| GroupId(id)).collect::<Vec<_>>())
    }));
    let regions = Regions::new(NodeId(0), &groups, &view);
    let plan = Plan::new(&groups, &regions);
    (groups, regions, plan)
}

fn named(groups: &Groups, regions: &Regions, plan: &Plan) -> Named {
    let names = |set: &[GroupIndex]| set.iter().map(|&group| groups.id(group).0).collect::<Vec<_>>();
    plan.iter()
        .map(|bin| {
            let feeds =
                plan.feeds(bin).iter().map(|feed| (names(regions.groups(feed.region)), feed.mean)).collect();
            (names(plan.groups(bin)), feeds)
        })
        .collect()
}

/// Ricochet Fig. 7: c of A, B, C is 5, 4, 3, and "the repair bin for ab selects 0.4 targets from region ab and 0.8
/// from abc", that for abc 1.2. The text does not give the sizes; these are the smallest that fit all three numbers
/// and make each region occupied as in Fig. 5.
#[test]
fn the_worked_example_of_the_paper() {
    const A: u64 = 1;
    const B: u64 = 2;
    const C: u64 = 3;
    let sizes: [(&[u64], usize); 7] =
        [(&[A], 5), (&[B], 1), (&[C], 5), (&[A, B], 2), (&[A, C], 3), (&[B, C], 7), (&[A, B, C], 10)];
    let nodes: Vec<BTreeSet<u64>> = sizes
        .iter()
        .flat_map(|&(set, size)| std::iter::repeat_n(set.iter().copied().collect(), size))
        .collect();
    let (groups, regions, plan) = plan(&[(A, 5), (B, 4), (C, 3)].into(), &nodes);
    let mut seen = named(&groups, &regions, &plan);
    for feed in seen.values_mut().flat_map(BTreeMap::values_mut) {
        *feed = (*feed * 1e9).round() / 1e9;
    }
    let (a, b, c) = (vec![A], vec![B], vec![C]);
    let (ab, ac, bc, abc) = (vec![A, B], vec![A, C], vec![B, C], vec![A, B, C]);
    let expected: Named = [
        (abc.clone(), [(abc.clone(), 1.2)].into()),
        (ab.clone(), [(ab.clone(), 0.4), (abc.clone(), 0.8)].into()),
        (ac.clone(), [(ac.clone(), 0.36)].into()),
        (bc.clone(), [(bc.clone(), 0.84)].into()),
        (a.clone(), [(a, 1.25), (ab, 0.1), (ac, 0.39), (abc, 0.5)].into()),
        (b.clone(), [(b, 0.2), (bc, 0.56)].into()),
        (c.clone(), [(c, 0.6)].into()),
    ]
    .into();
    assert_eq!(seen, expected);
}

#[test]
fn a_group_of_one_rate_and_size_needs_one_bin_for_each_region() {
    // All want the same of a region of one node, 5/9: there is nothing left for remainders.
    let nodes: Vec<BTreeSet<u64>> = (0..9).map(|_| (0..100).collect()).collect();
    let (_, regions, plan) = plan(&(0..100).map(|id| (id, 5)).collect(), &nodes);
    assert_eq!((regions.len(), plan.len()), (1, 1));
    assert_eq!(plan.feeds(BinIndex::new(0)), [Feed { region: RegionIndex::new(0), mean: 5.0 }]);
}

fn groupings() -> impl Strategy<Value = (BTreeMap<u64, u8>, Vec<BTreeSet<u64>>)> {
    (
        prop::collection::btree_map(0u64..14, prop_oneof![Just(5u8), 0..12u8], 0..12),
        prop::collection::vec(prop::collection::btree_set(0u64..16, 0..14), 0..40),
    )
}

proptest! {
    #[test]
    fn each_packet_reaches_c_targets_and_no_region_more_than_it_has((c, nodes) in groupings()) {
        let (groups, regions, plan) = plan(&c, &nodes);
        for (index, group) in groups.iter() {
            let mut of_region: BTreeMap<RegionIndex, f64> = BTreeMap::new();
            for &bin in plan.bins(index) {
                prop_assert!(plan.groups(bin).contains(&index));
                for feed in plan.feeds(bin) {
                    *of_region.entry(feed.region).or_default() += feed.mean;
                }
            }
            let size = regions.group_size(index);
            for (&region, &mean) in &of_region {
                let members = regions.members(region).len();
                prop_assert!(mean <= members as f64 + 1e-9);
                prop_assert!((mean - share(group.c, members, size)).abs() < 1e-9, "in proportion to the size");
            }
            let total: f64 = of_region.values().sum();
            prop_assert!((total - usize::from(group.c).min(size) as f64).abs() < 1e-9, "{} of {}", total, group.c);
        }
        for bin in plan.iter() {
            prop_assert!(!plan.feeds(bin).is_empty());
            let mut fed = BTreeSet::new();
            for feed in plan.feeds(bin) {
                let wanted = regions.groups(feed.region);
                prop_assert!(plan.groups(bin).iter().all(|group| wanted.contains(group)), "nobody gets what it is not in");
                prop_assert!(feed.mean > 0.0 && feed.mean <= regions.members(feed.region).len() as f64);
                prop_assert!(fed.insert(feed.region), "each region once");
            }
            let inverse = |group: &GroupIndex| plan.bins(*group).contains(&bin);
            prop_assert!(plan.groups(bin).iter().all(inverse));
        }
    }

    #[test]
    fn drawn_targets_are_distinct_members_and_as_many_as_drawn((c, nodes) in groupings(), seed: u64) {
        let (_, regions, plan) = plan(&c, &nodes);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for feed in plan.iter().flat_map(|bin| plan.feeds(bin)) {
            let count = feed.draw(&mut rng);
            let mut targets = Vec::new();
            choose_targets(&mut rng, &regions, feed.region, count, &mut targets);
            prop_assert_eq!(targets.len(), count as usize);
            prop_assert!(targets.iter().all(|target| regions.members(feed.region).contains(target)));
            prop_assert_eq!(targets.iter().collect::<BTreeSet<_>>().len(), targets.len());
        }
    }
}
