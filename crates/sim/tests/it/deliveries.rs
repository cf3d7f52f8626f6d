//! A crash, a newcomer and a healed partition of ten seconds in the middle of a run, with the deliveries to
//! each node.
#![allow(missing_docs)]

use loss::LossModel;
use ricochet_core::message::How;
use sim::{Cluster, ClusterConfig, Fate, Traffic, grouping};
use simnet::virtual_net::Conditions;

const SECOND_US: u64 = 1_000_000;
const FATES: [Fate; 5] = [
    Fate::Delivered(How::Multicast),
    Fate::Delivered(How::Repaired),
    Fate::Delivered(How::Requested),
    Fate::Lost,
    Fate::Open,
];

#[test]
fn despite_a_crash_a_newcomer_and_a_partition_every_running_member_gets_everything_once() {
    let loss = vec![LossModel::Uniform(0.01), LossModel::Uniform(0.01)];
    let conditions = Conditions { loss, delay_us: 50, jitter_us: 100, repeat: 0.001 };
    let config = ClusterConfig { conditions, ..ClusterConfig::new(7) };
    let mut cluster = Cluster::of(&grouping(16, 16, 6, 7), config).unwrap();
    (0..16).for_each(|at| cluster.subscribe_in_order(at));
    let mut traffic = Traffic::new(&cluster, 200.0, 300, 7);
    traffic.run_until(&mut cluster, 5 * SECOND_US, true);
    // Node 3 crashes; the others notice two seconds later.
    cluster.crash(3);
    traffic.run_until(&mut cluster, 7 * SECOND_US, true);
    cluster.update_views();
    // Node 16 replaces it, and the others learn of it a second later.
    let groups = cluster.lives()[3].groups.clone();
    let newcomer = cluster.join(&groups).unwrap();
    traffic.run_until(&mut cluster, 8 * SECOND_US, true);
    cluster.update_views();
    traffic.run_until(&mut cluster, 10 * SECOND_US, true);
    // Half of the nodes are cut off from the others for ten seconds and continue among themselves.
    (8..16).for_each(|at| cluster.set_side(at, 1));
    traffic.run_until(&mut cluster, 20 * SECOND_US, true);
    (8..16).for_each(|at| cluster.set_side(at, 0));
    traffic.run_until(&mut cluster, 30 * SECOND_US, true);
    cluster.run_for(30 * SECOND_US);

    let table = cluster.ledger().by_member(None);
    println!("node   by multicast  repaired  on request  lost  open");
    for at in 0..cluster.lives().len() {
        let [came, repaired, requested, lost, open] = FATES.map(|fate| table[&at].get(&fate).unwrap_or(&0));
        println!("{at:>4} {came:>16} {repaired:>9} {requested:>11} {lost:>5} {open:>5}");
        if at == 3 {
            continue;
        }
        assert_eq!((*lost, *open), (0, 0), "node {at}");
        // The newcomer receives from both sides too: it is on that of the first eight.
        assert!(*requested > 100, "node {at}: expected requests after the partition");
    }
    assert!(table[&newcomer].get(&FATES[0]).is_some_and(|&came| came > 2_000));
    assert_eq!(cluster.out_of_order(), (0, 0));
    println!("packets for the newcomer that were sent before it joined: {}", cluster.ledger().late());
}
