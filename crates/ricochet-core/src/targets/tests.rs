use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::groups::GroupConfig;
use crate::ids::{GroupId, NodeId};
use crate::view::{Member, View};

/// For each bin, identified by its groups, the number of nodes of each region, identified likewise.
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

/// The groups that enter a level of a region.
fn entering(groups: &Groups, plan: &Plan, region: RegionIndex, level: usize) -> Vec<GroupIndex> {
    let enters = |share: &&Share| share.region == region && share.levels as usize > level;
    groups
        .iter()
        .map(|(index, _)| index)
        .filter(|&index| plan.shares(index).iter().any(|s| enters(&s)))
        .collect()
}

fn named(groups: &Groups, regions: &Regions, plan: &Plan) -> Named {
    let names = |set: &[GroupIndex]| set.iter().map(|&group| groups.id(group).0).collect::<Vec<_>>();
    let mut named = Named::new();
    for region in regions.iter() {
        for (level, &mean) in plan.levels(region).iter().enumerate() {
            let bin = names(&entering(groups, plan, region, level));
            let before = named.entry(bin).or_default().insert(names(regions.groups(region)), mean);
            assert_eq!(before, None, "each level of a region has groups of its own");
        }
    }
    named
}

/// Ricochet Fig. 7: c of A, B, C is 5, 4, 3, and "the repair bin for ab selects 0.4 targets from region ab
/// and 0.8 from abc", the one for abc 1.2. The text does not give the sizes. These are the smallest that fit
/// all three numbers and give each region a member, as in Fig. 5.
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
    // All groups want the same number of the region's nodes, so there is no remainder.
    let nodes: Vec<BTreeSet<u64>> = (0..9).map(|_| (0..100).collect()).collect();
    let (_, regions, plan) = plan(&(0..100).map(|id| (id, 5)).collect(), &nodes);
    assert_eq!(regions.len(), 1);
    assert_eq!(plan.levels(RegionIndex::new(0)), [5.0]);
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
            let of_region: BTreeMap<RegionIndex, f64> = plan
                .shares(index)
                .iter()
                .map(|share| (share.region, plan.levels(share.region)[..share.levels as usize].iter().sum()))
                .collect();
            prop_assert_eq!(of_region.len(), plan.shares(index).len(), "each region once");
            prop_assert!(of_region.keys().all(|&region| regions.groups(region).contains(&index)));
            let size = regions.group_size(index);
            for (&region, &mean) in &of_region {
                let members = regions.members(region).len();
                prop_assert!(mean <= members as f64 + 1e-9);
                prop_assert!((mean - share(group.c, members, size)).abs() < 1e-9, "in proportion to the size");
            }
            let total: f64 = of_region.values().sum();
            prop_assert!((total - usize::from(group.c).min(size) as f64).abs() < 1e-9, "{} of {}", total, group.c);
        }
        for region in regions.iter() {
            let levels = plan.levels(region);
            prop_assert!(levels.iter().all(|&mean| mean > 0.0));
            let sets: Vec<_> = (0..levels.len()).map(|level| entering(&groups, &plan, region, level).len()).collect();
            prop_assert!(sets.windows(2).all(|pair| pair[0] > pair[1]), "each level takes fewer groups: {:?}", sets);
            prop_assert!(sets.last().is_none_or(|&last| last > 0));
        }
    }
}
