//! Nodes that learn of each other, of crashes and of newcomers by gossip.
#![allow(missing_docs)]

use loss::LossModel;
use membership::GossipConfig;
use ricochet_core::message::How;
use sim::{Cluster, ClusterConfig, Fate, Traffic, grouping};
use simnet::virtual_net::Conditions;

const SECOND_US: u64 = 1_000_000;

/// Runs until the views agree; returns whether they do within `seconds`.
fn agree_within(cluster: &mut Cluster, seconds: u64) -> bool {
    (0..10 * seconds).any(|_| {
        cluster.run_for(SECOND_US / 10);
        cluster.views_agree()
    })
}

#[test]
fn views_converge_and_nothing_is_lost_meanwhile() {
    for seed in 0..4 {
        let loss = vec![LossModel::Uniform(0.02), LossModel::Uniform(0.02)];
        let conditions = Conditions { loss, delay_us: 100, jitter_us: 200, repeat: 0.01 };
        let config =
            ClusterConfig { conditions, gossip: Some(GossipConfig::lan()), ..ClusterConfig::new(seed) };
        let mut cluster = Cluster::of(&grouping(12, 8, 5, seed), config).unwrap();
        assert!(agree_within(&mut cluster, 20), "seed {seed}: the views never agreed");
        let mut traffic = Traffic::new(&cluster, 100.0, 200, seed);
        let mut go_on = |cluster: &mut Cluster, seconds: u64| {
            let end_us = cluster.now_us() + seconds * SECOND_US;
            traffic.run_until(cluster, end_us, true);
        };
        go_on(&mut cluster, 2);
        cluster.crash(3);
        go_on(&mut cluster, 1);
        let groups = cluster.lives()[3].groups.clone();
        cluster.join(&groups).unwrap();
        go_on(&mut cluster, 2);
        assert!(agree_within(&mut cluster, 20), "seed {seed}: the views must follow a crash and a newcomer");
        (6..12).for_each(|at| cluster.set_side(at, 1));
        go_on(&mut cluster, 10);
        assert!(
            !cluster.views_agree(),
            "seed {seed}: the halves of a partition must consider each other dead"
        );
        (6..12).for_each(|at| cluster.set_side(at, 0));
        go_on(&mut cluster, 2);
        assert!(agree_within(&mut cluster, 60), "seed {seed}: the views must agree after the partition");
        cluster.run_for(30 * SECOND_US);
        let ledger = cluster.ledger();
        assert_eq!((ledger.count(Fate::Lost), ledger.unaccounted()), (0, Vec::new()), "seed {seed}");
        assert!(
            ledger.count(Fate::Delivered(How::Repaired)) > 100,
            "seed {seed}: expected repairs by these views"
        );
    }
}
