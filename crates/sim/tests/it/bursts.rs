//! With `auto`, the number of instances of each bin follows the bursts of losses.
#![allow(missing_docs)]

use loss::LossModel;
use ricochet_core::bins::Content;
use ricochet_core::{GroupId, NodeConfig, NodeId};
use sim::{Cluster, ClusterConfig, Figures, Traffic};
use simnet::virtual_net::Conditions;

/// Returns the mean number of instances at the end, and the share of lost packets that repairs brought back.
/// Eight members receive tiny packets, which get sums, 8,000 a second.
fn run(content: Content, loss: LossModel, seed: u64) -> (f64, f64) {
    let loss = vec![loss, LossModel::None];
    let conditions = Conditions { loss, delay_us: 50, jitter_us: 20, repeat: 0.0 };
    let node = NodeConfig { content, ..NodeConfig::prompt(NodeId(0)) };
    let config = ClusterConfig { conditions, node, c: 5, ..ClusterConfig::new(seed) };
    let mut cluster = Cluster::of(&vec![vec![GroupId(7)]; 8], config).unwrap();
    let mut traffic = Traffic::new(&cluster, 8_000.0, 24, seed);
    traffic.run_until(&mut cluster, 1_000_000, false);
    traffic.run_until(&mut cluster, 3_000_000, true);
    cluster.run_for(3_000_000);
    assert_eq!(cluster.ledger().unaccounted(), []);
    let figures = Figures::of(&cluster);
    let instances = cluster.lives().iter().map(|life| f64::from(life.node.bins().stagger()));
    (instances.sum::<f64>() / 8.0, figures.repaired as f64 / figures.lost as f64)
}

#[test]
fn bursts_get_more_instances_and_single_losses_do_not() {
    for seed in 1..=4 {
        let bursts = LossModel::Bursty { rate: 0.02, burst: 16 };
        let ((one, fixed), (several, adaptive)) =
            (run(Content::Xor, bursts.clone(), seed), run(Content::Auto, bursts, seed));
        println!("seed {seed}: {one} instances: {fixed:.3}; {several}: {adaptive:.3}");
        assert!((one - 1.0).abs() < 1e-9 && several > 2.0, "seed {seed}: {several}");
        assert!(adaptive > fixed + 0.05, "seed {seed}: {fixed} and {adaptive}");
        for loss in [0.01, 0.1] {
            let (instances, _) = run(Content::Auto, LossModel::Uniform(loss), seed);
            assert!((instances - 1.0).abs() < 1e-9, "seed {seed}, {loss}: {instances}");
        }
    }
}
