//! What it costs to get what was missed while one was cut off.
#![allow(missing_docs)]

use loss::LossModel;
use ricochet_core::bins::Content;
use ricochet_core::node::NodeCounts;
use ricochet_core::{GroupId, NodeConfig, NodeId, TrackerConfig};
use sim::{Cluster, ClusterConfig, Fate, Traffic};
use simnet::virtual_net::{Intake, Weather};

const SECOND_US: u64 = 1_000_000;
const GROUP: GroupId = GroupId(7);

/// A group of nodes, one of which is cut off for ten seconds.
#[derive(Clone, Copy, Debug)]
struct Story {
    content: Content,
    nodes: usize,
    /// Packets a second at each node.
    rate: f64,
    loss: f64,
    /// From socket to socket, and up to as long again.
    delay_us: u64,
    /// What a datagram takes to be taken in.
    datagram_us: u64,
}

/// What it took to get what was missed.
#[derive(Debug)]
#[allow(dead_code, reason = "printed whole")]
struct Cost {
    missed: u64,
    asked: u64,
    asked_again: u64,
    requests: u64,
    twice: u64,
    /// From when it heard the others again to when it had all.
    took_ms: u64,
}

impl Story {
    fn run(self) -> Cost {
        let Self { content, nodes, rate, loss, delay_us, datagram_us } = self;
        let loss = vec![LossModel::Uniform(loss), LossModel::Uniform(loss)];
        let weather = Weather { loss, delay_us, jitter_us: delay_us, repeat: 0.0 };
        // As the library sets its nodes up.
        let tracker = TrackerConfig { stream_intervals_max: 512, ..TrackerConfig::default() };
        let prompt = NodeConfig::prompt(NodeId(0));
        let node = NodeConfig { max_delay_us: Some(5_000), content, tracker, ..prompt };
        let config = ClusterConfig { weather, node, c: 3, ..ClusterConfig::new(1) };
        let mut cluster = Cluster::of(&vec![vec![GROUP]; nodes], config).unwrap();
        cluster.set_intake(Some(Intake { datagram_us, queue: 4_096 }));
        let mut traffic = Traffic::new(&cluster, rate, 1_000, 1);
        traffic.run_until(&mut cluster, SECOND_US, true);
        cluster.set_side(0, 1);
        traffic.run_until(&mut cluster, 11 * SECOND_US, true);
        cluster.set_side(0, 0);
        let before = *cluster.lives()[0].node.counts();
        traffic.run_until(&mut cluster, 13 * SECOND_US, true);
        cluster.run_for(30 * SECOND_US);
        assert_eq!((cluster.ledger().unaccounted(), cluster.ledger().count(Fate::Lost)), (vec![], 0));
        cost(&cluster, &before)
    }
}

fn cost(cluster: &Cluster, before: &NodeCounts) -> Cost {
    let (mut missed, mut last_us) = (0, 0);
    let while_cut_off = SECOND_US..11 * SECOND_US;
    for sent in cluster.ledger().sent().iter().filter(|sent| while_cut_off.contains(&sent.sent_us)) {
        let mut own =
            cluster.ledger().entries(sent).filter(|(at, entry)| *at == 0 && entry.fate != Fate::Own);
        if let Some((_, entry)) = own.next() {
            missed += 1;
            last_us = last_us.max(entry.settled_us);
        }
    }
    let after = cluster.lives()[0].node.counts();
    Cost {
        missed,
        asked: after.asked - before.asked,
        asked_again: after.asked_again - before.asked_again,
        requests: after.requests_sent - before.requests_sent,
        twice: after.duplicates - before.duplicates,
        took_ms: (last_us - 11 * SECOND_US) / 1_000,
    }
}

#[test]
fn who_was_cut_off_asks_once_for_what_it_missed() {
    let story =
        Story { content: Content::Names, nodes: 4, rate: 150.0, loss: 0.01, delay_us: 50, datagram_us: 20 };
    // Answers that queue, and a network as slow as they.
    let stories = [
        story,
        Story { datagram_us: 50, ..story },
        Story { delay_us: 2_000, ..story },
        Story { nodes: 16, rate: 200.0, datagram_us: 50, ..story },
    ];
    for story in stories.into_iter().flat_map(|story| [story, Story { content: Content::Xor, ..story }]) {
        let cost = story.run();
        println!("{story:?}: {cost:?}");
        assert!(cost.missed > 1_000, "{story:?}: {cost:?}");
        assert!(2 * cost.asked < 3 * cost.missed && 3 * cost.twice < cost.missed, "{story:?}: {cost:?}");
    }
}

#[test]
fn where_requests_and_answers_are_lost_it_asks_for_as_much_again() {
    for datagram_us in [1, 20, 50] {
        for content in [Content::Names, Content::Xor] {
            let story = Story { content, nodes: 4, rate: 150.0, loss: 0.2, delay_us: 50, datagram_us };
            let cost = story.run();
            println!("{story:?}: {cost:?}");
            // Two in three exchanges succeed.
            assert!(2 * cost.asked < 5 * cost.missed && 3 * cost.twice < cost.missed, "{story:?}: {cost:?}");
            assert!(cost.took_ms < 1_000, "{story:?}: {cost:?}");
        }
    }
}
