//! Receivers and senders that share the processors of one machine, as in the comparison with other multicast
//! systems (`docs/bench.md`): how long messages take that were not lost.
//!
//! Each datagram takes the same time of a processor, a message or a repair. So a message waits for the
//! repairs that came just before it.

use loss::LossModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::message::How;
use ricochet_core::node::NodeConfigError;
use ricochet_core::wire::Kind;
use ricochet_core::{FlowConfig, GroupId, NodeConfig};
use simnet::virtual_net::{Conditions, Intake};

use crate::cluster::{Cluster, ClusterConfig};
use crate::figures::{Figures, Latency};
use crate::grouping::below;
use crate::ledger::{Fate, Ledger};
use crate::record::Recorded;

/// Bytes of payload of a message.
const SIZE: usize = 1_024;
/// Mean interval between two messages, in microseconds.
const INTERVAL_US: f64 = 1_000.0;
/// Time that counts as the same moment for repairs, in microseconds.
const MOMENT_US: u64 = 100;
/// Number of datagrams that are looked at for repairs that leave in the same moment.
const RECORDED: usize = 300_000;

/// A run with 1,000 messages a second, from senders that are in no group to receivers that are in all.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Number of receivers.
    pub receivers: usize,
    /// Number of senders.
    pub senders: usize,
    /// Number of groups.
    pub groups: u64,
    /// Configuration of all nodes.
    pub node: NodeConfig,
    /// Number of repairs that a packet enters at each receiver.
    pub c: u8,
    /// Flow control, if senders follow their readers.
    pub flow: Option<FlowConfig>,
    /// Whether intervals between messages are random rather than equal.
    pub is_irregular: bool,
    /// Processors, and the time that a datagram takes of one of them.
    pub intake: Intake,
    /// Loss of all datagrams.
    pub loss: LossModel,
    /// Number of seconds.
    pub seconds: u64,
    /// Random seed.
    pub seed: u64,
}

/// Result of a run. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Latency from sending to delivery of messages that came by themselves: median, 99th and 99.9th
    /// percentile.
    pub straight_ms: [f64; 3],
    /// Time to the recovery of the others.
    pub recovered_ms: Latency,
    /// Messages that were not delivered, each counted at each receiver.
    pub undelivered: u64,
    /// Bytes of frames per message, each counted at its sender and at each receiver.
    pub bytes_per_message: f64,
    /// Frames per message, counted likewise.
    pub frames_per_message: f64,
    /// Largest number of repairs that left within 100 µs in the second half of the run.
    pub crowd: usize,
}

impl Machine {
    /// Runs it.
    ///
    /// # Errors
    /// If the configuration of the nodes is out of range.
    ///
    /// # Panics
    /// If that of flow control is.
    pub fn run(&self) -> Result<Outcome, NodeConfigError> {
        let conditions = Conditions {
            loss: vec![self.loss.clone(), self.loss.clone()],
            delay_us: 50,
            jitter_us: 50,
            repeat: 0.0,
        };
        let config =
            ClusterConfig { conditions, node: self.node, c: self.c, ..ClusterConfig::new(self.seed) };
        let groups: Vec<GroupId> = (1..=self.groups).map(GroupId).collect();
        let mut grouping = vec![groups.clone(); self.receivers];
        grouping.extend(vec![Vec::new(); self.senders]);
        let mut cluster = Cluster::of(&grouping, config)?;
        cluster.set_intake(Some(self.intake));
        let view = cluster.view().clone();
        if let Some(flow) = self.flow {
            for at in 0..self.receivers + self.senders {
                cluster.life_mut(at).node.set_flow(flow, &view).expect("flow control is in range");
            }
        }
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed);
        let (end_us, mut at_us) = (self.seconds as f64 * 1e6, 0.0);
        let mut is_recorded = false;
        while at_us < end_us {
            cluster.run_until(at_us as u64);
            if !is_recorded && at_us * 2.0 >= end_us {
                is_recorded = true;
                cluster.record(RECORDED);
            }
            let from = self.receivers + below(&mut dice, self.senders.max(1));
            cluster.multicast(from, groups[below(&mut dice, groups.len())], SIZE, true);
            at_us += if self.is_irregular { irregular_us(&mut dice) } else { INTERVAL_US };
        }
        cluster.run_for(12_000_000);
        let figures = Figures::of(&cluster);
        Ok(Outcome {
            straight_ms: straight_ms(cluster.ledger()),
            recovered_ms: figures.latency_ms,
            undelivered: figures.undelivered,
            bytes_per_message: figures.wire_bytes_per_message,
            frames_per_message: figures.wire_frames_per_message,
            crowd: crowd(&cluster),
        })
    }
}

/// Returns an interval between messages of a Poisson process.
fn irregular_us(dice: &mut ChaCha8Rng) -> f64 {
    let unit = (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    -INTERVAL_US * (1.0 - unit).ln()
}

/// Returns the median, the 99th and the 99.9th percentile of the latency of messages that came by themselves.
fn straight_ms(ledger: &Ledger) -> [f64; 3] {
    let mut latencies_us: Vec<u64> = Vec::new();
    for sent in ledger.sent().iter().filter(|sent| sent.counted) {
        let came = ledger.entries(sent).filter(|(_, entry)| entry.fate == Fate::Delivered(How::Multicast));
        latencies_us.extend(came.map(|(_, entry)| entry.settled_us.saturating_sub(sent.sent_us)));
    }
    latencies_us.sort_unstable();
    let last = latencies_us.len().saturating_sub(1);
    [500, 990, 999].map(|share| latencies_us.get(last * share / 1_000).map_or(0.0, |&us| us as f64 / 1e3))
}

/// Returns the largest number of repairs that left in the same moment.
fn crowd(cluster: &Cluster) -> usize {
    let is_repair = |recorded: &&Recorded| recorded.datagram.first() == Some(&Kind::Repair.to_wire());
    let times: Vec<u64> =
        cluster.recorded().iter().filter(is_repair).map(|recorded| recorded.at_us).collect();
    let (mut first, mut most) = (0, 0);
    for (at, &time_us) in times.iter().enumerate() {
        while times[first] + MOMENT_US <= time_us {
            first += 1;
        }
        most = most.max(at + 1 - first);
    }
    most
}
