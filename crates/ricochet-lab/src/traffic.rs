//! Packets to random groups, so many a second at each receiver (Ricochet §5): from random members, or from nodes that are
//! in no group.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::GroupId;

use crate::cluster::Cluster;
use crate::grouping::below;

/// A source of packets for a whole cluster.
///
/// Packets leave at even distances, each to a group drawn at random among those with at least two members. So the
/// arrivals at one node are as good as random in time.
#[derive(Debug)]
pub struct Traffic {
    groups: Vec<GroupId>,
    interval_us: f64,
    next_us: f64,
    size: usize,
    /// Who sends, if not the members.
    outside: Vec<usize>,
    dice: ChaCha8Rng,
}

impl Traffic {
    /// Packets of `size` bytes, `rate` a second at each node that is in a group on average, from now on. Nodes that are in
    /// no group send all of them, if there are any.
    ///
    /// # Panics
    /// If no group has two members.
    #[must_use]
    pub fn new(cluster: &Cluster, rate: f64, size: usize, seed: u64) -> Self {
        let mut groups: Vec<GroupId> =
            cluster.lives().iter().flat_map(|life| &life.groups).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        groups.retain(|&group| cluster.members(group).len() > 1);
        assert!(!groups.is_empty(), "expected a group with two members or more, saw none");
        let is_outside = |at: &usize| cluster.lives()[*at].groups.is_empty();
        let outside: Vec<usize> = (0..cluster.lives().len()).filter(is_outside).collect();
        let own = usize::from(outside.is_empty());
        let receivers: usize = groups.iter().map(|&group| cluster.members(group).len() - own).sum();
        let nodes = cluster.lives().iter().filter(|life| life.up && !life.groups.is_empty()).count();
        let packets_per_second = rate * nodes as f64 * groups.len() as f64 / receivers as f64;
        Self {
            groups,
            interval_us: 1e6 / packets_per_second,
            next_us: cluster.now_us() as f64,
            size,
            outside,
            dice: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Packets in a second, of all senders together.
    #[must_use]
    pub fn packets_per_second(&self) -> f64 {
        1e6 / self.interval_us
    }

    /// Sends until a time; what is on its way then stays so.
    pub fn run_until(&mut self, cluster: &mut Cluster, end_us: u64, counted: bool) {
        while self.next_us < end_us as f64 {
            cluster.run_until(self.next_us as u64);
            self.next_us += self.interval_us;
            let group = self.groups[below(&mut self.dice, self.groups.len())];
            let senders = if self.outside.is_empty() { cluster.members(group) } else { &self.outside };
            let Some(&from) = senders.get(below(&mut self.dice, senders.len().max(1))) else { continue };
            cluster.multicast(from, group, self.size, counted);
        }
        cluster.run_until(end_us);
    }
}
