//! One run of the papers' setting (Ricochet §5): a grouping, a rate, a loss model, and the resulting figures.

use loss::LossModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::bins::Content;
use ricochet_core::node::{AnnounceConfig, NakConfig, NodeConfigError};
use ricochet_core::{GroupId, NodeConfig, NodeId, View};
use simnet::virtual_net::Conditions;
use thiserror::Error;

use crate::cluster::{Cluster, ClusterConfig};
use crate::figures::Figures;
use crate::grouping::{below, grouping};
use crate::traffic::Traffic;

/// Default time for which traffic continues after the measured time, so that repairs can recover its last
/// losses.
pub const AFTER_US: u64 = 2_000_000;
/// Time without traffic at the end, in which the last requests are answered.
pub const SILENCE_US: u64 = 12_000_000;
/// Interval of progress reports, in virtual microseconds.
const PROGRESS_US: u64 = 100_000;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Number of nodes, n.
    pub nodes: usize,
    /// Number of groups of each node, d.
    pub groups_per_node: usize,
    /// Mean number of members of a group, s.
    pub group_size: usize,
    /// Number of randomly drawn nodes that each node knows; `None` means all members of its groups.
    pub view: Option<usize>,
    /// Number of nodes in no group that send all packets; with 0, the members send.
    pub outside_senders: usize,
    /// Packets received per second at each node.
    pub rate: f64,
    /// Bytes of payload per packet.
    pub size: usize,
    /// Number of packets in a repair.
    pub r: u8,
    /// Number of repairs that each packet enters at each receiver.
    pub c: u8,
    /// Number of instances of each bin, which are fed in turn.
    pub stagger: u16,
    /// Maximum time for which a repair may stay part-filled; in the papers it is unlimited.
    pub max_delay_us: Option<u64>,
    /// Content of repairs.
    pub content: Content,
    /// Whether missing packets are requested. If so, senders that fall silent announce their last packet.
    pub nak: bool,
    /// Loss of data packets at each receiver.
    pub loss: LossModel,
    /// Loss of all other datagrams at each receiver.
    pub loss_other: LossModel,
    /// Whether `loss` applies to all datagrams of a receiver in the order of arrival, as if its buffer
    /// overflowed: a burst hits data and repairs alike. `loss_other` is unused in that case.
    pub one_loss: bool,
    /// Number of packets that a node keeps to answer requests and decode repairs.
    pub packets_kept: usize,
    /// Number of repairs with several missing packets that a node keeps.
    pub repairs_kept: usize,
    /// Delay of a datagram in microseconds.
    pub delay_us: u64,
    /// Maximum additional delay in microseconds.
    pub jitter_us: u64,
    /// Length of the measurement in seconds.
    pub seconds: f64,
    /// Time for which traffic continues afterwards, so that repairs can recover the last losses.
    pub after_us: u64,
    /// Random seed of grouping, traffic, losses and nodes.
    pub seed: u64,
    /// Reads the processor time of this thread in nanoseconds, if it is measured.
    pub clock: Option<fn() -> u64>,
}

impl Default for Setting {
    /// Returns 64 nodes, each in 128 groups of ten; 1,000 packets of 1 KiB per second; (8,5); 1 % uniform
    /// loss; no requests.
    fn default() -> Self {
        Self {
            nodes: 64,
            groups_per_node: 128,
            group_size: 10,
            view: None,
            outside_senders: 0,
            rate: 1_000.0,
            size: 1_024,
            r: 8,
            c: 5,
            stagger: 1,
            max_delay_us: None,
            content: Content::Xor,
            nak: false,
            loss: LossModel::Uniform(0.01),
            loss_other: LossModel::Uniform(0.01),
            one_loss: false,
            packets_kept: NodeConfig::new(NodeId(0)).packets,
            repairs_kept: NodeConfig::new(NodeId(0)).equations,
            delay_us: 50,
            jitter_us: 0,
            seconds: 10.0,
            after_us: AFTER_US,
            seed: 1,
            clock: None,
        }
    }
}

/// Reason why a setting is refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A value is out of range.
    #[error("{name}: expected {expected}, saw {seen}")]
    OutOfRange {
        /// Name of the value.
        name: &'static str,
        /// Its range.
        expected: &'static str,
        /// The value.
        seen: f64,
    },
    /// A group has more members than there are nodes.
    #[error("group size: expected at most the number of nodes, {nodes}, saw {group_size}")]
    GroupTooLarge {
        /// Number of nodes.
        nodes: usize,
        /// Requested number of members.
        group_size: usize,
    },
    /// A node is in more groups than there are.
    #[error("groups per node: expected at most nodes x groups per node / group size = {groups}, saw {saw}")]
    TooManyGroups {
        /// Number of groups.
        groups: usize,
        /// Requested groups per node.
        saw: usize,
    },
    /// Repairs of r packets of this size do not fit a datagram.
    #[error("size: expected at most {payload_max} bytes with repairs of {r}, saw {size}")]
    TooLong {
        /// Maximum size.
        payload_max: usize,
        /// Number of packets in a repair.
        r: u8,
        /// Requested size.
        size: usize,
    },
    /// The nodes refuse their configuration.
    #[error(transparent)]
    Node(#[from] NodeConfigError),
}

impl Setting {
    /// Checks every range that the nodes do not check themselves; returns the first error.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn check(&self) -> Result<(), SettingError> {
        let range = |name, seen: f64, low: f64, high: f64, expected| {
            if (low..=high).contains(&seen) {
                Ok(())
            } else {
                Err(SettingError::OutOfRange { name, expected, seen })
            }
        };
        range("nodes", self.nodes as f64, 2.0, 10_000.0, "2 to 10000")?;
        range("groups per node", self.groups_per_node as f64, 1.0, 65_536.0, "1 to 65536")?;
        range("group size", self.group_size as f64, 2.0, 10_000.0, "2 to 10000")?;
        range("outside senders", self.outside_senders as f64, 0.0, 10_000.0, "at most 10000")?;
        range("rate", self.rate, 0.1, 1e6, "0.1 to 1000000 packets a second")?;
        range("seconds", self.seconds, 0.001, 3_600.0, "0.001 to 3600")?;
        if self.group_size > self.nodes {
            let Self { nodes, group_size, .. } = *self;
            return Err(SettingError::GroupTooLarge { nodes, group_size });
        }
        let groups = (self.nodes * self.groups_per_node).div_ceil(self.group_size);
        if self.groups_per_node > groups {
            return Err(SettingError::TooManyGroups { groups, saw: self.groups_per_node });
        }
        let room = ricochet_core::wire::payload_max(usize::from(u16::MAX), usize::from(self.r), 0);
        match room {
            Some(payload_max) if self.size > payload_max => {
                Err(SettingError::TooLong { payload_max, r: self.r, size: self.size })
            }
            _ => Ok(()),
        }
    }

    /// Returns the configuration of each node, except for its id.
    pub fn node(&self) -> NodeConfig {
        let config = NodeConfig::new(NodeId(0));
        // Packets are kept in slots of the maximum length, so the maximum should be tight.
        let names =
            ricochet_core::wire::payload_max(9_000, usize::from(self.r), 0).map_or(0, |rest| 9_000 - rest);
        NodeConfig {
            r: self.r,
            stagger: self.stagger,
            max_delay_us: self.max_delay_us,
            content: self.content,
            packets: self.packets_kept,
            equations: self.repairs_kept,
            datagram_max: (self.size + names).clamp(1_200, usize::from(u16::MAX)),
            nak: NakConfig { enabled: self.nak, ..config.nak },
            announce: AnnounceConfig {
                times: if self.nak { config.announce.times } else { 0 },
                ..config.announce
            },
            ..config
        }
    }

    fn cluster(&self) -> Result<Cluster, SettingError> {
        self.check()?;
        let conditions = Conditions {
            loss: vec![self.loss.clone(), self.loss_other.clone()],
            delay_us: self.delay_us,
            jitter_us: self.jitter_us,
            repeat: 0.0,
        };
        let config = ClusterConfig {
            conditions,
            node: self.node(),
            c: self.c,
            one_loss: self.one_loss,
            clock: self.clock,
            ..ClusterConfig::new(self.seed)
        };
        let mut cluster = Cluster::of(&self.grouping(), config)?;
        if let Some(size) = self.view {
            self.narrow_views(&mut cluster, size);
        }
        Ok(cluster)
    }

    /// Makes each node forget all but `size` others (Slingshot §3.3).
    fn narrow_views(&self, cluster: &mut Cluster, size: usize) {
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed ^ 0x7669_6577);
        let members = cluster.view().members().to_vec();
        for at in 0..cluster.lives().len() {
            let mut others: Vec<usize> = (0..members.len()).filter(|&other| other != at).collect();
            let known = size.min(others.len());
            for place in 0..known {
                let other = place + below(&mut dice, others.len() - place);
                others.swap(place, other);
            }
            cluster.set_view(at, &View::new(others[..known].iter().map(|&other| members[other].clone())));
        }
    }

    /// Returns the groups of each node; nodes outside all groups come last.
    pub fn grouping(&self) -> Vec<Vec<GroupId>> {
        let mut grouping = grouping(self.nodes, self.groups_per_node, self.group_size, self.seed);
        grouping.extend((0..self.outside_senders).map(|_| Vec::new()));
        grouping
    }

    /// Returns the random seed of the schedule.
    pub fn traffic_seed(&self) -> u64 {
        self.seed ^ 0x7261_6666
    }

    /// Runs the setting; `progress` is called regularly with the completed share of the run.
    ///
    /// The packets sent in the first `seconds` are measured. Traffic continues for `after_us`, followed by
    /// twelve seconds of silence.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn run(&self, progress: &mut dyn FnMut(f64)) -> Result<Figures, SettingError> {
        let mut cluster = self.cluster()?;
        let mut traffic = Traffic::new(&cluster, self.rate, self.size, self.traffic_seed());
        let measured_us = (self.seconds * 1e6) as u64;
        let end_us = measured_us + self.after_us;
        while cluster.now_us() < end_us {
            let step_us = cluster.now_us() + PROGRESS_US;
            let counted = cluster.now_us() < measured_us;
            let until_us = if counted { step_us.min(measured_us) } else { step_us.min(end_us) };
            traffic.run_until(&mut cluster, until_us, counted);
            progress(until_us as f64 / end_us as f64);
        }
        cluster.run_for(SILENCE_US);
        Ok(Figures::of(&cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Setting {
        Setting {
            nodes: 16,
            groups_per_node: 16,
            group_size: 6,
            size: 64,
            seconds: 2.0,
            ..Setting::default()
        }
    }

    #[test]
    fn same_seed_same_figures() {
        let run = |seed| Setting { seed, ..small() }.run(&mut |_| {}).unwrap();
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn repairs_recover_their_share_and_requests_the_rest() {
        let figures = small().run(&mut |_| {}).unwrap();
        assert!(figures.lost > 200 && figures.recovered_percent > 97.0, "{figures:?}");
        assert!((33.0..39.0).contains(&figures.overhead_percent), "{figures:?}");
        assert!(figures.xors_per_packet <= 5.0 && figures.requested == 0, "{figures:?}");
        assert_eq!(figures.undelivered, figures.lost - figures.repaired);
        let figures = Setting { nak: true, ..small() }.run(&mut |_| {}).unwrap();
        assert_eq!((figures.undelivered, figures.recovered_percent), (0, 100.0), "{figures:?}");
        assert!(figures.requested > 0, "{figures:?}");
    }

    #[test]
    fn with_losses_of_all_datagrams_requests_are_answered_in_time() {
        // If waits doubled from the first, one packet in 10,000 would take seconds or be given up after eight
        // tries.
        for seed in 1..4 {
            let loss = LossModel::Uniform(0.2);
            let stormy = Setting { nak: true, loss_other: loss.clone(), loss, seed, ..small() };
            let figures = stormy.run(&mut |_| {}).unwrap();
            assert!(figures.requested > 100, "{figures:?}");
            assert_eq!(figures.undelivered, 0, "seed {seed}: {figures:?}");
            assert!(figures.latency_ms.max <= 250.0, "seed {seed}: {figures:?}");
        }
    }

    #[test]
    fn announcements_cost_less_than_repairs_when_little_is_lost() {
        let figures = Setting { groups_per_node: 128, nak: true, ..small() }.run(&mut |_| {}).unwrap();
        let [data, _, repairs, _, heartbeats] = figures.datagrams;
        // Doubling waits would take eight announcements per message.
        assert!(
            heartbeats < 3 * data && heartbeats < repairs,
            "{data} data, {repairs} repairs, {heartbeats} heartbeats"
        );
    }

    #[test]
    fn a_node_with_a_small_view_repairs_only_for_its_view() {
        let one_group = Setting { groups_per_node: 1, group_size: 16, ..small() };
        let all = one_group.run(&mut |_| {}).unwrap();
        let few = Setting { view: Some(6), ..one_group.clone() }.run(&mut |_| {}).unwrap();
        assert!(few.recovered_percent > 97.0 && few != all, "{few:?}");
        // A node that knows no other repairs nothing.
        let none = Setting { view: Some(0), ..one_group }.run(&mut |_| {}).unwrap();
        assert_eq!((none.repaired, none.datagrams[2]), (0, 0), "{none:?}");
    }

    #[test]
    fn a_burst_that_takes_repairs_too_costs_more() {
        let loss = LossModel::Bursty { rate: 0.02, burst: 20 };
        let apart = Setting { loss_other: loss.clone(), loss, seconds: 4.0, ..small() };
        let alike = Setting { one_loss: true, ..apart.clone() };
        let run = |setting: &Setting| setting.run(&mut |_| {}).unwrap();
        let (apart, together) = (run(&apart), run(&alike));
        assert!(together.recovered_percent < apart.recovered_percent - 1.0, "{together:?} {apart:?}");
        // Repairs with several missing packets decode together, unless none of them is kept.
        let forgetful = run(&Setting { repairs_kept: 1, ..alike });
        assert!(forgetful.recovered_percent < together.recovered_percent - 5.0, "{forgetful:?} {together:?}");
    }

    #[test]
    fn without_losses_nothing_is_recovered() {
        let quiet = Setting { loss: LossModel::None, loss_other: LossModel::None, ..small() };
        let figures = quiet.run(&mut |_| {}).unwrap();
        assert_eq!((figures.lost, figures.undelivered, figures.received_again), (0, 0, 0));
        assert_eq!(figures.latency_ms, crate::figures::Latency::default());
        // 16 nodes that each receive 1,000 packets per second for two seconds.
        assert!((30_000..34_000).contains(&figures.expected), "{figures:?}");
    }

    #[test]
    fn impossible_settings_are_refused_with_a_reason() {
        let said = |setting: Setting| setting.run(&mut |_| {}).unwrap_err().to_string();
        assert_eq!(said(Setting { nodes: 1, ..small() }), "nodes: expected 2 to 10000, saw 1");
        assert_eq!(
            said(Setting { group_size: 17, ..small() }),
            "group size: expected at most the number of nodes, 16, saw 17"
        );
        assert!(said(Setting { size: 70_000, ..small() }).starts_with("size: expected at most 65"));
        assert!(said(Setting { r: 0, ..small() }).starts_with("r: expected 1 to 64, saw 0"));
        assert!(said(Setting { rate: 0.0, ..small() }).starts_with("rate: expected"));
    }
}
