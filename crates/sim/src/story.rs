//! A run that nothing but its seed decides: a small cluster, some weather, and what befalls its nodes meanwhile.
//!
//! What must never happen stops the run at once ([`crate::ledger`], [`crate::ordered`]); what must be true at the end is
//! looked at by [`Story::run`].

use std::fmt;

use loss::LossModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::Content;
use ricochet_core::node::NakConfig;
use ricochet_core::{GroupConfig, GroupId, Groups, Node, NodeConfig, NodeId, StreamKey, TrackerConfig, View};
use simnet::virtual_net::Weather;

use crate::cluster::{Cluster, ClusterConfig};
use crate::grouping::{below, grouping};
use crate::ledger::Fate;

/// After the last packet: long enough for the last announcement and the last request.
const END_US: u64 = 40_000_000;

/// Something that befalls the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// A node stops, its number reduced to those that run.
    Crash(usize),
    /// A new node starts, in the groups of an earlier one.
    Join(usize),
    /// The nodes fall apart: each bit is the side of one.
    Part(u64),
    /// They hear each other again.
    Heal,
    /// All learn who is there in truth.
    Tell,
    /// One learns of some only, and of one that is gone.
    Mislead(usize),
}

/// A run as its seed decides it.
#[derive(Clone, Debug)]
pub struct Story {
    /// The seed.
    pub seed: u64,
    config: ClusterConfig,
    grouping: Vec<Vec<GroupId>>,
    /// Packets sent.
    pub packets: usize,
    interval_us: u64,
    size_max: usize,
    /// What befalls it, each before a certain packet.
    pub blows: Vec<(usize, Blow)>,
}

/// What came of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Packets at members, by their fate: by themselves, repaired, on request, reported lost.
    pub fates: [usize; 4],
    /// Packets of which a member neither got anything nor heard, since their sender was gone before it could say so, or
    /// since they precede the first one that a newcomer saw.
    pub unheard: usize,
    /// Packets that came to nodes that joined after they were sent.
    pub late: usize,
    /// Virtual time at the end.
    pub end_us: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [came, repaired, requested, lost] = self.fates;
        let Self { unheard, late, .. } = self;
        write!(f, "{came} came, {repaired} repaired, {requested} on request, {lost} lost, ")?;
        write!(f, "{unheard} unheard of, {late} for newcomers")
    }
}

impl Story {
    /// The story of a seed.
    #[must_use]
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
        let weather = Weather {
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
        let config = ClusterConfig { weather, node, c: draw(6) as u8, ..ClusterConfig::new(seed) };
        let packets = 100 + draw(400);
        let interval_us = [50, 300, 2_000, 10_000][draw(4)];
        let size_max = [1, 100, 1_300][draw(3)];
        let blows = (0..draw(7)).map(|_| (draw(packets), Blow::drawn(&mut draw))).collect::<Vec<_>>();
        let mut story = Self { seed, config, grouping: Vec::new(), packets, interval_us, size_max, blows };
        story.blows.sort_by_key(|&(at, _)| at);
        let per_node = per_node.min((nodes * per_node).div_ceil(group_size));
        story.grouping = grouping(nodes, per_node, group_size, seed);
        story
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If anything happens that must not.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let mut cluster = Cluster::of(&self.grouping, self.config.clone()).expect("stories are in range");
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed ^ 0x7472_6166);
        (0..cluster.lives().len()).step_by(2).for_each(|at| cluster.order(at));
        for number in 0..self.packets {
            for &(_, blow) in self.blows.iter().filter(|&&(at, _)| at == number) {
                self.befall(&mut cluster, blow, &mut dice);
            }
            let up = running(&cluster);
            let Some(&from) = up.get(below(&mut dice, up.len().max(1))) else { break };
            let groups = &cluster.lives()[from].groups;
            let group = groups[below(&mut dice, groups.len())];
            let size = below(&mut dice, self.size_max + 1);
            cluster.multicast(from, group, size, true);
            cluster.run_for(self.interval_us);
        }
        // Whatever was wrong ends, so that what can be had is had.
        self.befall(&mut cluster, Blow::Heal, &mut dice);
        let calm = Weather { loss: Vec::new(), ..self.config.weather.clone() };
        cluster.change_weather(calm);
        cluster.tell_all();
        cluster.run_for(END_US);
        self.check(&cluster)
    }

    fn befall(&self, cluster: &mut Cluster, blow: Blow, dice: &mut ChaCha8Rng) {
        let up = running(cluster);
        match blow {
            // The last one stays, so that there is somebody to send.
            Blow::Crash(which) if up.len() > 1 => cluster.crash(up[which % up.len()]),
            Blow::Crash(_) => {}
            Blow::Join(like) => {
                let groups = cluster.lives()[like % cluster.lives().len()].groups.clone();
                let at = cluster.join(&groups).expect("as the others");
                if dice.next_u32().is_multiple_of(2) {
                    cluster.order(at);
                }
            }
            Blow::Part(sides) => {
                (0..cluster.lives().len())
                    .for_each(|at| cluster.set_side(at, (sides >> (at % 64)) as u8 & 1));
            }
            Blow::Heal => (0..cluster.lives().len()).for_each(|at| cluster.set_side(at, 0)),
            Blow::Tell => cluster.tell_all(),
            Blow::Mislead(whom) => {
                let known = |_: &_| dice.next_u32().is_multiple_of(2);
                let mut members: Vec<_> =
                    cluster.view().members().iter().filter(known_by(known)).cloned().collect();
                let groups = cluster.lives()[0].groups.clone();
                members.push(ricochet_core::Member::new(NodeId(9_999), groups));
                cluster.tell(up[whom % up.len()], &View::new(members));
            }
        }
    }

    fn check(&self, cluster: &Cluster) -> Outcome {
        use ricochet_core::message::How;
        let ledger = cluster.ledger();
        let mut unheard = 0;
        for (at, key, seq) in ledger.unaccounted() {
            assert!(
                is_excused(cluster, at, key, seq),
                "node {at}, {key:?}, packet {seq}: neither came nor was reported lost"
            );
            unheard += 1;
        }
        let fates =
            [Fate::Got(How::Multicast), Fate::Got(How::Repaired), Fate::Got(How::Requested), Fate::Lost];
        let fates = fates.map(|fate| ledger.count(fate));
        if self.is_mild() {
            assert_eq!((fates[3], unheard), (0, 0), "nothing stood in the way of any packet");
        }
        assert_eq!(cluster.out_of_order(), (0, 0), "swallowed, and held for ever, by ordered subscriptions");
        for at in running(cluster) {
            self.check_memory(cluster, at);
        }
        Outcome { fates, unheard, late: ledger.late(), end_us: cluster.now_us() }
    }

    /// Nobody died or was cut off, requests are made, and most datagrams come through.
    fn is_mild(&self) -> bool {
        let harmless = |&(_, blow): &(usize, Blow)| matches!(blow, Blow::Heal | Blow::Tell);
        let loss = self.config.weather.loss.iter().map(LossModel::rate).fold(0.0, f64::max);
        self.blows.iter().all(harmless) && self.config.node.nak.enabled && loss <= 0.05
    }

    /// A node holds no more than one that was set up a moment ago for the same groups and neighbours.
    fn check_memory(&self, cluster: &Cluster, at: usize) {
        let life = &cluster.lives()[at];
        let groups: Vec<_> = life.groups.iter().map(|&id| GroupConfig { id, c: self.config.c }).collect();
        let groups = Groups::new(groups).expect("as at its start");
        let config = NodeConfig { id: NodeId(at as u32), ..self.config.node };
        let new = Node::new(config, groups, cluster.view(), 1).expect("as at its start");
        let (held, new) = (life.node.memory_bytes(), new.memory_bytes());
        assert!(held <= new, "node {at} holds {held} bytes, a new one {new}");
    }
}

impl Blow {
    fn drawn(draw: &mut impl FnMut(usize) -> usize) -> Self {
        match draw(8) {
            0 => Self::Crash(draw(64)),
            1 | 2 => Self::Join(draw(64)),
            3 => Self::Part(draw(1 << 20) as u64),
            4 => Self::Heal,
            5 => Self::Tell,
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

/// Whether it is nobody's fault that a node knows nothing of a packet. Either its sender died before it could say that it
/// had sent it, and sent nothing after it that came; or the node first heard of the stream in its middle, having joined
/// late or been cut off, and the packet was sent before anything of the stream came to it.
fn is_excused(cluster: &Cluster, at: usize, key: StreamKey, seq: u32) -> bool {
    let stream = || cluster.ledger().stream(at, key);
    let got = || stream().filter(|(_, entry)| matches!(entry.fate, Fate::Got(_)));
    let nothing_after = got().all(|(sent, _)| sent.seq < seq);
    let first_us = got().map(|(_, entry)| entry.settled_us).min().unwrap_or(u64::MAX);
    let before_all = stream().any(|(sent, _)| sent.seq == seq && sent.sent_us < first_us);
    let young = TrackerConfig::default().lookback;
    let dead = !cluster.lives()[key.sender.0 as usize].up;
    let old = stream().any(|(sent, _)| sent.seq >= young);
    dead && nothing_after || old && before_all
}
