//! Packets to random groups at a given rate at each receiver (Ricochet §5), from random members or from nodes
//! in no group.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::GroupId;

use crate::cluster::Cluster;
use crate::grouping::below;

/// Schedule of senders and groups.
///
/// Packets leave at even intervals, each to a random group with at least two members. So arrivals at one node
/// are nearly random in time.
#[derive(Debug)]
pub struct Schedule {
    groups: Vec<GroupId>,
    interval_us: f64,
    next_us: f64,
    /// Senders, if the members do not send.
    outside: Vec<usize>,
    dice: ChaCha8Rng,
}

impl Schedule {
    /// Makes a schedule from `start_us` on, with a mean of `rate` packets per second at each node that is in
    /// a group. `grouping` has the groups of each node, `members` returns the size of a group. Nodes in no
    /// group send all packets, if there are any.
    ///
    /// # Panics
    /// If no group has two members.
    pub fn new(
        grouping: &[&[GroupId]],
        members: impl Fn(GroupId) -> usize,
        rate: f64,
        start_us: u64,
        seed: u64,
    ) -> Self {
        let mut groups = grouping.concat();
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|&group| members(group) > 1);
        assert!(!groups.is_empty(), "expected a group with two members or more, saw none");
        let outside: Vec<usize> = (0..grouping.len()).filter(|&at| grouping[at].is_empty()).collect();
        let own = usize::from(outside.is_empty());
        let receivers: usize = groups.iter().map(|&group| members(group) - own).sum();
        let nodes = grouping.len() - outside.len();
        let packets_per_second = rate * nodes as f64 * groups.len() as f64 / receivers as f64;
        Self {
            groups,
            interval_us: 1e6 / packets_per_second,
            next_us: start_us as f64,
            outside,
            dice: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Returns the packets per second of all senders together.
    pub fn packets_per_second(&self) -> f64 {
        1e6 / self.interval_us
    }

    /// Returns the time of the next packet.
    pub fn due_us(&self) -> u64 {
        self.next_us as u64
    }

    /// Returns sender and group of the next packet, or `None` if the group has no members left.
    pub fn next<'m>(&'m mut self, members: impl FnOnce(GroupId) -> &'m [usize]) -> Option<(usize, GroupId)> {
        self.next_us += self.interval_us;
        let group = self.groups[below(&mut self.dice, self.groups.len())];
        let senders = if self.outside.is_empty() { members(group) } else { &self.outside };
        let from = *senders.get(below(&mut self.dice, senders.len().max(1)))?;
        Some((from, group))
    }
}

/// Source of packets for a whole cluster in virtual time.
#[derive(Debug)]
pub struct Traffic {
    schedule: Schedule,
    size: usize,
}

impl Traffic {
    /// Makes a source of packets of `size` bytes from now on, with a mean of `rate` packets per second at
    /// each node that is in a group. Nodes in no group send all of them, if there are any.
    ///
    /// # Panics
    /// If no group has two members.
    pub fn new(cluster: &Cluster, rate: f64, size: usize, seed: u64) -> Self {
        let grouping: Vec<&[GroupId]> = cluster.lives().iter().map(|life| &life.groups[..]).collect();
        let members = |group| cluster.members(group).len();
        Self { schedule: Schedule::new(&grouping, members, rate, cluster.now_us(), seed), size }
    }

    /// Returns the packets per second of all senders together.
    pub fn packets_per_second(&self) -> f64 {
        self.schedule.packets_per_second()
    }

    /// Sends until a time; packets in flight at the end stay in flight.
    pub fn run_until(&mut self, cluster: &mut Cluster, end_us: u64, counted: bool) {
        while self.schedule.next_us < end_us as f64 {
            cluster.run_until(self.schedule.due_us());
            let Some((from, group)) = self.schedule.next(|group| cluster.members(group)) else { continue };
            cluster.multicast(from, group, self.size, counted);
        }
        cluster.run_until(end_us);
    }
}
