//! Repair bins: where received packets become repairs for others (Ricochet §4.2.1).
//!
//! A packet that was delivered enters [`Bins::push`]: one instance of each bin that its [`Plan`] names. How many nodes
//! a repair will go to was drawn when its bin began; where that is none the packet is counted and nothing is computed
//! (Ricochet §4.2.5). So at most c sums are touched for each packet, on average, whatever the number of groups.

mod choice;
mod config;
mod sums;

use fec::SymbolTooLong;
use rand_chacha::rand_core::Rng;

use crate::chance;
use crate::ids::{BinIndex, GroupIndex, GroupTag, NodeId};
use crate::links::{Ends, Links};
use crate::regions::Regions;
use crate::targets::{Plan, choose_targets};
use crate::wire::Name;
pub use choice::Conditions;
pub use config::{BinsConfig, BinsConfigError, Content, STAGGER_MAX, SUMS_MAX};
use sums::{SumSlot, Sums};

/// A repair to be sent to each of its targets.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The packets in it, oldest first.
    pub names: &'a [Name],
    /// The XOR of their symbols; `None` where repairs carry names alone.
    pub symbol: Option<&'a [u8]>,
    /// Who gets it: distinct nodes, at least one.
    pub targets: &'a [NodeId],
}

/// What the bins have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinsCounts {
    /// Packets that entered.
    pub packets: u64,
    /// Repairs made, however many nodes each went to.
    pub repairs: u64,
    /// Repairs sent, one for each target.
    pub sent: u64,
    /// Symbols added to sums; the first of a sum, which is only copied, included.
    pub additions: u64,
    /// Repairs made part-filled, at their deadline or since the view changed.
    pub early: u64,
    /// Repairs skipped since no sum was free.
    pub skipped: u64,
}

/// One of the instances of a bin that are fed in turn.
#[derive(Clone, Copy, Debug)]
struct Instance {
    /// Packets in it.
    count: u8,
    /// Fires at this many.
    size: u8,
    /// Nodes its repair goes to; 0 makes none.
    targets: u32,
    sum: Option<SumSlot>,
    begun_us: u64,
    /// Smoothed length of its symbols, and whether its last repair was a digest, if that is to be chosen.
    length: u16,
    digest: bool,
}

/// The bins of one view.
///
/// All memory is taken at construction and at a change of the view.
///
/// ```
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
/// use ricochet_core::bins::{Bins, BinsConfig};
/// use ricochet_core::wire::Data;
/// use ricochet_core::{GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};
/// let group = GroupId(7);
/// let groups = Groups::new([GroupConfig { id: group, c: 1 }])?;
/// let regions = Regions::new(NodeId(0), &groups, &View::new([Member::new(NodeId(1), [group])]));
/// let plan = Plan::new(&groups, &regions);
/// let mut rng = ChaCha8Rng::seed_from_u64(1);
/// let mut bins = Bins::new(BinsConfig { r: 2, ..BinsConfig::default() }, regions, plan, &mut rng)?;
/// let mut sent = Vec::new();
/// for seq in 0..20 {
///     let data = Data { sender: NodeId(5), group, seq, sender_seq: seq, expires: false, fragment: false, payload: b"x" };
///     let symbol = [&data.symbol_head()[..], data.payload];
///     bins.push(0, groups.index(group).unwrap(), data.name(), &symbol, &mut rng, &mut |repair| {
///         sent.push((repair.names.len(), repair.targets.to_vec()));
///     })?;
/// }
/// assert!(sent.contains(&(2, vec![NodeId(1)])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Bins {
    config: BinsConfig,
    regions: Regions,
    plan: Plan,
    /// Of each bin, which instance the next packet enters.
    cursors: Box<[u16]>,
    /// Of each bin, `stagger` instances.
    instances: Box<[Instance]>,
    /// Of each instance, room for r names.
    names: Box<[Name]>,
    /// Of each instance, how many nodes of each region that its bin feeds.
    drawn: Box<[u16]>,
    sums: Sums,
    /// The instances that will make a repair and are not empty, the longest begun first.
    begun: Ends,
    begun_links: Links,
    /// Latest time seen: a clock that steps back must not disturb the order of the deadlines.
    now_us: u64,
    conditions: Conditions,
    targets: Vec<NodeId>,
    counts: BinsCounts,
}

impl Bins {
    /// Empty bins for a view's regions and the plan made from them.
    ///
    /// # Errors
    /// [`BinsConfigError`].
    pub fn new(
        config: BinsConfig,
        regions: Regions,
        plan: Plan,
        rng: &mut impl Rng,
    ) -> Result<Self, BinsConfigError> {
        config.check()?;
        let stagger = usize::from(config.stagger);
        let instances = plan.len() * stagger;
        let feeds = |bin: BinIndex| plan.feeds(bin).len();
        let targets_max =
            plan.iter().map(|bin| plan.feeds(bin).iter().map(|feed| feed.mean.ceil() as usize).sum());
        let targets_max: usize = targets_max.max().unwrap_or(0);
        let empty = Instance {
            count: 0,
            size: config.r,
            targets: 0,
            sum: None,
            begun_us: 0,
            length: 0,
            digest: false,
        };
        let nameless = Name { sender: NodeId(0), group: GroupTag(0), seq: 0 };
        let sums = match config.content {
            Content::Xor | Content::Auto => config.sums_max.min(instances),
            Content::Names => 0,
        };
        let mut bins = Self {
            cursors: vec![0; plan.len()].into_boxed_slice(),
            instances: vec![empty; instances].into_boxed_slice(),
            names: vec![nameless; instances * usize::from(config.r)].into_boxed_slice(),
            drawn: vec![0; plan.iter().map(feeds).sum::<usize>() * stagger].into_boxed_slice(),
            sums: Sums::new(sums, config.symbol_max),
            begun: Ends::EMPTY,
            begun_links: Links::new(instances),
            now_us: 0,
            conditions: Conditions::default(),
            targets: Vec::with_capacity(targets_max),
            counts: BinsCounts::default(),
            config,
            regions,
            plan,
        };
        for bin in bins.plan.iter() {
            for at in bins.instances_of(bin) {
                bins.draw(bin, at, rng);
                // Neighbours receive the same packets. Bins that all began together would make the same repairs.
                bins.instances[at].size = 1 + chance::below(rng, usize::from(bins.config.r)) as u8;
            }
        }
        Ok(bins)
    }

    /// Puts a received packet into the bins of its group, and emits the repairs that this makes full.
    ///
    /// `symbol` is given as pieces that follow each other. Does not look at deadlines.
    ///
    /// # Errors
    /// [`SymbolTooLong`]; then the packet entered no bin.
    ///
    /// # Panics
    /// If the group is none of those that the plan was made for.
    pub fn push(
        &mut self,
        now_us: u64,
        group: GroupIndex,
        name: Name,
        symbol: &[&[u8]],
        rng: &mut impl Rng,
        emit: &mut impl FnMut(Outgoing<'_>),
    ) -> Result<(), SymbolTooLong> {
        let length = symbol.iter().map(|piece| piece.len()).sum();
        if length > self.config.symbol_max {
            return Err(SymbolTooLong { length, symbol_max: self.config.symbol_max });
        }
        self.now_us = self.now_us.max(now_us);
        self.counts.packets += 1;
        for place in self.plan.bin_range(group) {
            let bin = self.plan.bin_at(place);
            let at = self.next_instance(bin);
            // Most instances make no repair: at a thousand groups a packet meets some sixty of them.
            if self.instances[at].targets == 0 && self.pass(bin, at, rng) {
                continue;
            }
            if self.instances[at].count == 0 && !self.begin(at, length) {
                self.pass(bin, at, rng);
                continue;
            }
            self.add(at, name, symbol);
            if self.instances[at].count == self.instances[at].size {
                self.fire(bin, at, rng, emit);
            }
        }
        Ok(())
    }

    /// When [`fire_due`](Self::fire_due) next has something to do; `None` without a bound on the delay, or without a
    /// repair in the making.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let oldest = self.begun.first()?;
        Some(self.instances[oldest].begun_us.saturating_add(self.config.max_delay_us?))
    }

    /// Emits the part-filled repairs whose time has come.
    pub fn fire_due(&mut self, now_us: u64, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        self.now_us = self.now_us.max(now_us);
        while self.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
            self.fire_oldest(rng, emit);
        }
    }

    /// Emits everything that is in the making, and goes on with the bins of another view.
    pub fn change(
        &mut self,
        regions: Regions,
        plan: Plan,
        rng: &mut impl Rng,
        emit: &mut impl FnMut(Outgoing<'_>),
    ) {
        while self.begun.first().is_some() {
            self.fire_oldest(rng, emit);
        }
        let next = Self::new(self.config, regions, plan, rng).expect("the configuration was checked before");
        let Self { now_us, counts, conditions, .. } = *self;
        *self = Self { now_us, counts, conditions, ..next };
    }

    /// What was measured, by which repairs that begin from now on carry sums or not, if that is to be chosen.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// What was measured last.
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// The regions whose members get the repairs.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Which bins there are.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What was done so far, in all views.
    pub fn counts(&self) -> &BinsCounts {
        &self.counts
    }

    /// Memory held for this view, the regions and the plan aside.
    pub fn memory_bytes(&self) -> usize {
        let instances = self.instances.len() * (size_of::<Instance>() + 2 * size_of::<u32>());
        let rest = size_of_val(&*self.cursors) + size_of_val(&*self.names) + size_of_val(&*self.drawn);
        instances + rest + self.sums.memory_bytes()
    }

    fn instances_of(&self, bin: BinIndex) -> std::ops::Range<usize> {
        let stagger = usize::from(self.config.stagger);
        bin.at() * stagger..(bin.at() + 1) * stagger
    }

    /// Instances are fed in turn (Ricochet §4.2.2).
    fn next_instance(&mut self, bin: BinIndex) -> usize {
        if self.config.stagger == 1 {
            return bin.at();
        }
        let cursor = &mut self.cursors[bin.at()];
        let at = bin.at() * usize::from(self.config.stagger) + usize::from(*cursor);
        *cursor = if *cursor + 1 == self.config.stagger { 0 } else { *cursor + 1 };
        at
    }

    /// Counts a packet in an instance that makes no repair, and closes it when it is full; false if it had to be
    /// closed before, and its new draw makes a repair with this packet.
    ///
    /// It must close as early as one that makes a repair would have: else, where packets come slowly, more of them
    /// would find it open than their share, and get fewer repairs than c.
    #[inline]
    fn pass(&mut self, bin: BinIndex, at: usize, rng: &mut impl Rng) -> bool {
        let instance = &mut self.instances[at];
        if let Some(max_delay_us) = self.config.max_delay_us {
            if instance.count == 0 {
                instance.begun_us = self.now_us;
            } else if self.now_us - instance.begun_us >= max_delay_us {
                self.restart(bin, at, rng);
                if self.instances[at].targets > 0 {
                    return false;
                }
                self.instances[at].begun_us = self.now_us;
            }
        }
        let instance = &mut self.instances[at];
        instance.count += 1;
        if instance.count == instance.size {
            self.restart(bin, at, rng);
        }
        true
    }

    /// Opens an instance that makes a repair; false if there is no room for its sum, and it makes none after all.
    fn begin(&mut self, at: usize, length: usize) -> bool {
        let instance = &mut self.instances[at];
        instance.begun_us = self.now_us;
        let sums = match self.config.content {
            Content::Xor => true,
            Content::Names => false,
            Content::Auto => {
                // An eighth of each repair's first packet.
                let smoothed = (7 * usize::from(instance.length) + length).div_ceil(8);
                let length = if instance.length == 0 { length } else { smoothed };
                instance.length = u16::try_from(length).unwrap_or(u16::MAX);
                instance.digest = self.conditions.suit_digest(instance.digest, self.config.r, length);
                !instance.digest
            }
        };
        if sums {
            instance.sum = self.sums.take();
            if instance.sum.is_none() {
                instance.targets = 0;
                self.counts.skipped += 1;
                return false;
            }
        }
        self.begun_links.push_last(&mut self.begun, at);
        true
    }

    fn add(&mut self, at: usize, name: Name, symbol: &[&[u8]]) {
        let instance = &mut self.instances[at];
        self.names[at * usize::from(self.config.r) + usize::from(instance.count)] = name;
        instance.count += 1;
        if let Some(sum) = instance.sum {
            self.sums.add(sum, symbol);
            self.counts.additions += 1;
        }
    }

    fn fire_oldest(&mut self, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        let Some(at) = self.begun.first() else { return };
        self.counts.early += 1;
        self.fire(BinIndex::new(at / usize::from(self.config.stagger)), at, rng, emit);
    }

    fn fire(&mut self, bin: BinIndex, at: usize, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        self.targets.clear();
        let drawn = self.drawn_range(bin, at);
        for (feed, &count) in self.plan.feeds(bin).iter().zip(&self.drawn[drawn]) {
            choose_targets(rng, &self.regions, feed.region, u32::from(count), &mut self.targets);
        }
        let instance = &mut self.instances[at];
        let sum = instance.sum.take();
        self.counts.repairs += 1;
        self.counts.sent += self.targets.len() as u64;
        emit(Outgoing {
            names: &self.names[at * usize::from(self.config.r)..][..usize::from(instance.count)],
            symbol: sum.map(|sum| self.sums.symbol(sum)),
            targets: &self.targets,
        });
        if let Some(sum) = sum {
            self.sums.give_back(sum);
        }
        self.begun_links.remove(&mut self.begun, at);
        self.restart(bin, at, rng);
    }

    fn restart(&mut self, bin: BinIndex, at: usize, rng: &mut impl Rng) {
        self.instances[at].count = 0;
        self.instances[at].size = self.config.r;
        self.draw(bin, at, rng);
    }

    /// Draws, before an instance gets its first packet, how many nodes its repair will go to (Ricochet §4.2.5).
    fn draw(&mut self, bin: BinIndex, at: usize, rng: &mut impl Rng) {
        let drawn = self.drawn_range(bin, at);
        let mut targets = 0;
        for (feed, count) in self.plan.feeds(bin).iter().zip(&mut self.drawn[drawn]) {
            let nodes = feed.draw(rng);
            *count = nodes as u16;
            targets += nodes;
        }
        self.instances[at].targets = targets;
    }

    /// Where the draws of an instance lie: those of a bin's instances one after the other.
    fn drawn_range(&self, bin: BinIndex, at: usize) -> std::ops::Range<usize> {
        let stagger = usize::from(self.config.stagger);
        let feeds = self.plan.feed_range(bin);
        let start = feeds.start * stagger + (at % stagger) * feeds.len();
        start..start + feeds.len()
    }
}

#[cfg(test)]
mod tests;
