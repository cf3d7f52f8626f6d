//! A random run, given by its seed: a small cluster, network conditions, and faults.
//!
//! A violation stops the run at once ([`crate::ledger`], `ordered.rs`). [`Scenario::run`] checks the
//! conditions that must hold at the end.

use std::fmt;

use loss::LossModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::Content;
use ricochet_core::node::NakConfig;
use ricochet_core::{GroupConfig, GroupId, Groups, Node, NodeConfig, NodeId, StreamKey, TrackerConfig, View};
use simnet::virtual_net::Conditions;

use crate::cluster::{Cluster, ClusterConfig};
use crate::grouping::{below, grouping};
use crate::ledger::Fate;

/// Time after the last packet, long enough for the last announcement and the last request.
const END_US: u64 = 40_000_000;

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node stops; its number counts modulo the running nodes.
    Crash(usize),
    /// A new node starts, in the groups of an earlier one.
    Join(usize),
    /// The network is partitioned; each bit is the side of one node.
    Partition(u64),
    /// The partition ends.
    Heal,
    /// All nodes get the true membership.
    UpdateViews,
    /// One node gets a view with some members missing and one that is gone.
    Mislead(usize),
}

/// A run as decided by its seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The random seed.
    pub seed: u64,
    config: ClusterConfig,
    grouping: Vec<Vec<GroupId>>,
    /// Number of packets sent.
    pub packets: usize,
    interval_us: u64,
    size_max: usize,
    /// The faults, each with the number of the packet before which it happens.
    pub faults: Vec<(usize, Fault)>,
}

/// Outcome of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Packets at members by fate: by multicast, repaired, on request, reported lost.
    pub fates: [usize; 4],
    /// Packets that a member neither received nor had reported, because their sender crashed before it could
    /// announce them, or because they precede the first packet that a newcomer saw.
    pub unannounced: usize,
    /// Packets delivered to nodes that joined after they were sent.
    pub late: usize,
    /// Virtual time at the end.
    pub end_us: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [arrived, repaired, requested, lost] = self.fates;
        let Self { unannounced, late, .. } = self;
        write!(f, "{arrived} arrived, {repaired} repaired, {requested} on request, {lost} lost, ")?;
        write!(f, "{unannounced} unannounced, {late} for newcomers")
    }
}

impl Scenario {
    /// Returns the scenario of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x73_746f_7279);
        let mut draw = |bound: usize| below(&mut dice, bound);
        let nodes = 3 + draw(8);
        let group_size = 2 + draw(nodes - 2);
        let per_node = 1 + draw(6);
        let rates = [0.0, 0.01, 0.05, 0.1, 0.2];
        let mut loss = || match (draw(4), rates[draw(rates.len())]) {
            (0, _) => LossModel::None,
            (1, rate) => LossModel::Uniform(rate),
            (2, rate) => LossModel::bursty(rate, 2 + draw(20) as u32).unwrap_or_default(),
            (_, rate) => LossModel::markov(rate, 2.0 + draw(10) as f64).unwrap_or_default(),
        };
        let loss = vec![loss(), loss()];
        let delay_us = 20 + draw(2_000) as u64;
        let conditions = Conditions {
            loss,
            delay_us,
            jitter_us: [0, delay_us / 4, 3 * delay_us][draw(3)],
            repeat: [0.0, 0.0, 0.01, 0.1][draw(4)],
        };
        let base = NodeConfig::new(NodeId(0));
        let nak =
            NakConfig { enabled: draw(8) > 0, gap_us: [None, Some(1_000), Some(5_000)][draw(3)], ..base.nak };
        let node = NodeConfig {
            r: 1 + draw(8) as u8,
            stagger: 1 + draw(3) as u16,
            max_delay_us: [None, Some(5_000), Some(50_000)][draw(3)],
            content: if draw(3) == 0 { Content::Names } else { Content::Xor },
            nak,
            ..base
        };
        let config = ClusterConfig { conditions, node, c: draw(6) as u8, ..ClusterConfig::new(seed) };
        let packets = 100 + draw(400);
        let interval_us = [50, 300, 2_000, 10_000][draw(4)];
        let size_max = [1, 100, 1_300][draw(3)];
        let faults = (0..draw(7)).map(|_| (draw(packets), Fault::draw(&mut draw))).collect::<Vec<_>>();
        let mut scenario =
            Self { seed, config, grouping: Vec::new(), packets, interval_us, size_max, faults };
        scenario.faults.sort_by_key(|&(at, _)| at);
        let per_node = per_node.min((nodes * per_node).div_ceil(group_size));
        scenario.grouping = grouping(nodes, per_node, group_size, seed);
        scenario
    }

    /// Runs the scenario to its end.
    ///
    /// # Panics
    /// If a guarantee is violated.
    pub fn run(&self) -> Outcome {
        let mut cluster = Cluster::of(&self.grouping, self.config.clone()).expect("scenarios are in range");
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed ^ 0x7472_6166);
        (0..cluster.lives().len()).step_by(2).for_each(|at| cluster.subscribe_in_order(at));
        for number in 0..self.packets {
            for &(_, fault) in self.faults.iter().filter(|&&(at, _)| at == number) {
                self.apply(&mut cluster, fault, &mut dice);
            }
            let up = running(&cluster);
            let Some(&from) = up.get(below(&mut dice, up.len().max(1))) else { break };
            let groups = &cluster.lives()[from].groups;
            let group = groups[below(&mut dice, groups.len())];
            let size = below(&mut dice, self.size_max + 1);
            cluster.multicast(from, group, size, true);
            cluster.run_for(self.interval_us);
        }
        // All faults end, so that everything recoverable is recovered.
        self.apply(&mut cluster, Fault::Heal, &mut dice);
        let calm = Conditions { loss: Vec::new(), ..self.config.conditions.clone() };
        cluster.set_conditions(calm);
        cluster.update_views();
        cluster.run_for(END_US);
        self.check(&cluster)
    }

    fn apply(&self, cluster: &mut Cluster, fault: Fault, dice: &mut ChaCha8Rng) {
        let up = running(cluster);
        match fault {
            // The last node stays, so that there is a sender.
            Fault::Crash(which) if up.len() > 1 => cluster.crash(up[which % up.len()]),
            Fault::Crash(_) => {}
            Fault::Join(like) => {
                let groups = cluster.lives()[like % cluster.lives().len()].groups.clone();
                let at = cluster.join(&groups).expect("as the others");
                if dice.next_u32().is_multiple_of(2) {
                    cluster.subscribe_in_order(at);
                }
            }
            Fault::Partition(sides) => {
                (0..cluster.lives().len())
                    .for_each(|at| cluster.set_side(at, (sides >> (at % 64)) as u8 & 1));
            }
            Fault::Heal => (0..cluster.lives().len()).for_each(|at| cluster.set_side(at, 0)),
            Fault::UpdateViews => cluster.update_views(),
            Fault::Mislead(whom) => {
                let known = |_: &_| dice.next_u32().is_multiple_of(2);
                let mut members: Vec<_> =
                    cluster.view().members().iter().filter(known_by(known)).cloned().collect();
                let groups = cluster.lives()[0].groups.clone();
                members.push(ricochet_core::Member::new(NodeId(9_999), groups));
                cluster.set_view(up[whom % up.len()], &View::new(members));
            }
        }
    }

    fn check(&self, cluster: &Cluster) -> Outcome {
        use ricochet_core::message::How;
        let ledger = cluster.ledger();
        let mut unannounced = 0;
        for (at, key, seq) in ledger.unaccounted() {
            assert!(
                is_excused(cluster, at, key, seq),
                "node {at}, {key:?}, packet {seq}: expected a delivery or a report, saw neither"
            );
            unannounced += 1;
        }
        let fates = [
            Fate::Delivered(How::Multicast),
            Fate::Delivered(How::Repaired),
            Fate::Delivered(How::Requested),
            Fate::Lost,
        ];
        let fates = fates.map(|fate| ledger.count(fate));
        if self.is_mild() {
            assert_eq!((fates[3], unannounced), (0, 0), "expected every packet to arrive without faults");
        }
        assert_eq!(cluster.out_of_order(), (0, 0), "ordered subscriptions lost or still hold messages");
        for at in running(cluster) {
            self.check_memory(cluster, at);
        }
        Outcome { fates, unannounced, late: ledger.late(), end_us: cluster.now_us() }
    }

    /// Returns whether no node crashed or was cut off, requests are enabled, and most datagrams arrive.
    fn is_mild(&self) -> bool {
        let harmless = |&(_, fault): &(usize, Fault)| matches!(fault, Fault::Heal | Fault::UpdateViews);
        let loss = self.config.conditions.loss.iter().map(LossModel::rate).fold(0.0, f64::max);
        self.faults.iter().all(harmless) && self.config.node.nak.enabled && loss <= 0.05
    }

    /// Checks that a node holds no more memory than a fresh one with the same groups and neighbours.
    fn check_memory(&self, cluster: &Cluster, at: usize) {
        let life = &cluster.lives()[at];
        let groups: Vec<_> = life.groups.iter().map(|&id| GroupConfig { id, c: self.config.c }).collect();
        let groups = Groups::new(groups).expect("the groups are distinct");
        let config = NodeConfig { id: NodeId(at as u32), ..self.config.node };
        let new = Node::new(config, groups, cluster.view(), 1).expect("the configuration is in range");
        let (held, new) = (life.node.memory_bytes(), new.memory_bytes());
        assert!(held <= new, "node {at} holds {held} bytes, a new one {new}");
    }
}

impl Fault {
    fn draw(draw: &mut impl FnMut(usize) -> usize) -> Self {
        match draw(8) {
            0 => Self::Crash(draw(64)),
            1 | 2 => Self::Join(draw(64)),
            3 => Self::Partition(draw(1 << 20) as u64),
            4 => Self::Heal,
            5 => Self::UpdateViews,
            _ => Self::Mislead(draw(64)),
        }
    }
}

fn running(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.lives().len()).filter(|&at| cluster.lives()[at].up).collect()
}

fn known_by<T>(mut known: impl FnMut(&T) -> bool) -> impl FnMut(&&T) -> bool {
    move |member| known(member)
}

/// Returns whether a node may lack a packet. Either the packet's sender crashed before it could announce it,
/// and nothing sent later arrived; or the node joined late or was cut off, and the packet was sent before the
/// first of its stream that the node received.
fn is_excused(cluster: &Cluster, at: usize, key: StreamKey, seq: u32) -> bool {
    let stream = || cluster.ledger().stream(at, key);
    let got = || stream().filter(|(_, entry)| matches!(entry.fate, Fate::Delivered(_)));
    let nothing_after = got().all(|(sent, _)| sent.seq < seq);
    let first_us = got().map(|(_, entry)| entry.settled_us).min().unwrap_or(u64::MAX);
    let before_all = stream().any(|(sent, _)| sent.seq == seq && sent.sent_us < first_us);
    let young = TrackerConfig::default().lookback;
    let dead = !cluster.lives()[key.sender.0 as usize].up;
    let old = stream().any(|(sent, _)| sent.seq >= young);
    dead && nothing_after || old && before_all
}
