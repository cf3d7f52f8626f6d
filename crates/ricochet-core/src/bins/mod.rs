//! Repair bins: received packets become repairs for others (Ricochet §4.2.1).
//!
//! A delivered packet goes to [`Bins::push`]. In each region of its group the levels of the [`Plan`] take
//! turns (see [`lanes`]). Each turn, and the number of nodes that its repair goes to, is drawn before its bin
//! begins to fill. A packet that does not enter in the current turn costs no computation (Ricochet §4.2.5).
//! So at most c sums are changed for each packet, on average, whatever the number of groups.

mod choice;
mod config;
mod density;
mod instance;
mod lanes;
mod sums;
mod turns;
mod waits;

use fec::SymbolTooLong;
use rand_chacha::rand_core::Rng;

use crate::groups::Groups;
use crate::ids::{GroupIndex, GroupTag, NodeId};
use crate::links::{Ends, Links};
use crate::regions::Regions;
use crate::targets::Plan;
use crate::wire::Name;
pub use choice::Conditions;
use choice::Prospect;
pub use config::{BinsConfig, BinsConfigError, Content, STAGGER_MAX, SUMS_MAX};
use density::Density;
use instance::{Gate, Instance};
use lanes::{Lanes, QUIET};
use sums::Sums;
use waits::{Gain, WAITS, own_longest_us};

/// A received packet for the bins.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its group.
    pub group: GroupIndex,
    /// Its name.
    pub name: Name,
    /// Its symbol, as consecutive pieces.
    pub symbol: &'a [&'a [u8]],
}

/// A repair, and the nodes to send it to.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Names of its packets, oldest first.
    pub names: &'a [Name],
    /// XOR of their symbols; `None` in a lateral digest.
    pub symbol: Option<&'a [u8]>,
    /// Nodes to send it to, each once; at least one.
    pub targets: &'a [NodeId],
}

/// Counts of the bins since their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinsCounts {
    /// Packets that entered.
    pub packets: u64,
    /// Repairs made, whatever the number of their targets.
    pub repairs: u64,
    /// Repairs sent, one for each target.
    pub sent: u64,
    /// Symbols added to sums, including the first of each sum, which is copied.
    pub additions: u64,
    /// Repairs made part-filled, at their deadline or because the view changed.
    pub early: u64,
    /// Repairs skipped because no sum was free.
    pub skipped: u64,
}

/// The bins of one view.
///
/// Memory is allocated at construction and at a change of the view.
///
/// ```
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
/// use ricochet_core::bins::{Bins, BinsConfig, Packet};
/// use ricochet_core::wire::{Data, Extras};
/// use ricochet_core::{GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};
/// let group = GroupId(7);
/// let groups = Groups::new([GroupConfig { id: group, c: 1 }])?;
/// let regions = Regions::new(NodeId(0), &groups, &View::new([Member::new(NodeId(1), [group])]));
/// let plan = Plan::new(&groups, &regions);
/// let mut rng = ChaCha8Rng::seed_from_u64(1);
/// let mut bins = Bins::new(BinsConfig { r: 2, ..BinsConfig::default() }, regions, plan, &mut rng)?;
/// let mut sent = Vec::new();
/// for seq in 0..20 {
///     let (sender, payload) = (NodeId(5), b"x");
///     let (expires, fragment, joint) = (false, false, false);
///     let extras = Extras::NONE;
///     let data = Data { sender, group, seq, sender_seq: seq, expires, fragment, joint, extras, payload };
///     let symbol = [&data.symbol_head()[..], data.payload];
///     let packet = Packet { group: groups.index(group).unwrap(), name: data.name(), symbol: &symbol };
///     bins.push(0, &packet, &mut rng, &mut |repair| {
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
    lanes: Lanes,
    /// For each turn, the smoothed number of packets in its bins; 0 before the first.
    filling: Box<[f64]>,
    /// For each level of all regions, the number of recent packets whose groups enter it and none beyond it.
    seen: Box<[u32]>,
    /// For each lane, the instance that the next packet meets.
    cursors: Box<[u16]>,
    /// For each lane, `stagger` instances and their gates.
    instances: Box<[Instance]>,
    gates: Box<[Gate]>,
    /// Room for `names_max` names for each instance.
    names: Box<[Name]>,
    /// Largest number of packets in a bin: r, or more with digests.
    names_max: usize,
    /// For each of the staggered instances, the members of all regions. Those in the slots of a lane get its
    /// repairs.
    members: Box<[NodeId]>,
    sums: Sums,
    /// For each number of halvings, the instances with a repair begun, in order of their begin.
    begun: [Ends; WAITS],
    begun_links: Links,
    /// Longest time that a bin stays part-filled at this node, with this view.
    longest_us: Option<u64>,
    /// Latest time seen, so that a clock that steps back does not disturb the order of the deadlines.
    now_us: u64,
    conditions: Conditions,
    /// Weights of a lane's turns, while one is picked.
    weights: Vec<f64>,
    counts: BinsCounts,
}

impl Bins {
    /// Makes empty bins for a view's regions and the plan made from them.
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
        let lanes = Lanes::new(&regions, &plan);
        let stagger = usize::from(config.stagger);
        let count = lanes.len() * stagger;
        let instance = Instance {
            turn: None,
            count: 0,
            size: config.r,
            sum: None,
            begun_us: 0,
            halvings: 0,
            gain: Gain::NONE,
            density: Density::NONE,
            length: 0,
            digest: false,
        };
        let nameless = Name { sender: NodeId(0), group: GroupTag(0), seq: 0 };
        let sums = match config.content {
            Content::Xor | Content::Auto => config.sums_max.min(count),
            Content::Names => 0,
        };
        let members: Vec<NodeId> =
            regions.iter().flat_map(|region| regions.members(region)).copied().collect();
        let names_max = match config.content {
            Content::Xor => usize::from(config.r),
            Content::Names | Content::Auto => density::names_max(config.r),
        };
        let mut bins = Self {
            filling: vec![0.0; lanes.turns()].into_boxed_slice(),
            // Starts as if each group had sent one packet.
            seen: lanes.groups().into(),
            cursors: vec![0; lanes.len()].into_boxed_slice(),
            instances: vec![instance; count].into_boxed_slice(),
            gates: vec![Gate { level: QUIET, ticks: 0, last: 0 }; count].into_boxed_slice(),
            names: vec![nameless; count * names_max].into_boxed_slice(),
            names_max,
            members: members.repeat(stagger).into_boxed_slice(),
            sums: Sums::new(sums, config.symbol_max),
            begun: [Ends::EMPTY; WAITS],
            begun_links: Links::new(count),
            longest_us: config.max_delay_us.map(|longest_us| own_longest_us(longest_us, rng)),
            now_us: 0,
            conditions: Conditions::default(),
            weights: Vec::with_capacity(lanes.turns_max()),
            counts: BinsCounts::default(),
            lanes,
            config,
            regions,
            plan,
        };
        (0..count).for_each(|at| bins.start(at, rng));
        Ok(bins)
    }

    /// Adds a received packet to the bins of its group, and emits the repairs that this completes. Does not
    /// look at deadlines.
    ///
    /// # Errors
    /// [`SymbolTooLong`]; then the packet entered no bin.
    ///
    /// # Panics
    /// If the group is none of those that the plan was made for.
    pub fn push(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        rng: &mut impl Rng,
        emit: &mut impl FnMut(Outgoing<'_>),
    ) -> Result<(), SymbolTooLong> {
        let Packet { group, name, symbol } = *packet;
        let length = symbol.iter().map(|piece| piece.len()).sum();
        if length > self.config.symbol_max {
            return Err(SymbolTooLong { length, symbol_max: self.config.symbol_max });
        }
        self.now_us = self.now_us.max(now_us);
        self.counts.packets += 1;
        for place in self.lanes.entry_range(group) {
            let entry = self.lanes.entry(place);
            self.seen[entry.last_level as usize] += 1;
            for lane in entry.first_lane..entry.first_lane + entry.lanes {
                let at = self.next_instance(lane as usize);
                let gate = &mut self.gates[at];
                gate.ticks = gate.ticks.saturating_add(1);
                if entry.levels >= gate.level
                    && (self.instances[at].count > 0 || self.begin(at, length, group))
                {
                    self.add(at, name, symbol);
                    if self.instances[at].count == self.instances[at].size {
                        self.fire(at, rng, emit);
                    }
                } else if self.gates[at].ticks >= self.gates[at].last {
                    self.end_turn(at, rng, emit);
                }
            }
        }
        Ok(())
    }

    /// Returns when [`fire_due`](Self::fire_due) is due next; `None` if there is no limit on the delay, or no
    /// repair begun.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.longest_us?;
        self.next_due().map(|(due_us, _)| due_us)
    }

    /// Emits the part-filled repairs whose deadline has come.
    pub fn fire_due(&mut self, now_us: u64, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        self.now_us = self.now_us.max(now_us);
        while self.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
            self.fire_next(rng, emit);
        }
    }

    /// Emits all part-filled repairs, and continues with the bins of another view.
    pub fn change(
        &mut self,
        regions: Regions,
        plan: Plan,
        rng: &mut impl Rng,
        emit: &mut impl FnMut(Outgoing<'_>),
    ) {
        self.change_to(self.config, regions, plan, rng, emit);
    }

    fn change_to(
        &mut self,
        config: BinsConfig,
        regions: Regions,
        plan: Plan,
        rng: &mut impl Rng,
        emit: &mut impl FnMut(Outgoing<'_>),
    ) {
        while self.next_due().is_some() {
            self.fire_next(rng, emit);
        }
        let next = Self::new(config, regions, plan, rng).expect("the configuration has been checked");
        let Self { now_us, counts, conditions, .. } = *self;
        *self = Self { now_us, counts, conditions, ..next };
    }

    /// Emits all part-filled repairs, and continues with another plan for the same view.
    pub fn change_plan(&mut self, plan: Plan, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        let regions = std::mem::replace(&mut self.regions, Regions::empty());
        self.change(regions, plan, rng, emit);
    }

    /// Emits all part-filled repairs, and continues with another number of instances of each bin, from 1 to
    /// [`STAGGER_MAX`].
    pub(crate) fn change_stagger(
        &mut self,
        stagger: u16,
        rng: &mut impl Rng,
        emit: &mut impl FnMut(Outgoing<'_>),
    ) {
        let regions = std::mem::replace(&mut self.regions, Regions::empty());
        let plan = std::mem::replace(&mut self.plan, Plan::new(&Groups::default(), &Regions::empty()));
        self.change_to(BinsConfig { stagger, ..self.config }, regions, plan, rng, emit);
    }

    /// Returns the number of instances of each bin that are fed in turn.
    pub fn stagger(&self) -> u16 {
        self.config.stagger
    }

    /// Sets the measured conditions. With [`Content::Auto`] they decide the content of each repair when it
    /// begins.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Returns the conditions set last.
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// Returns the regions whose members get the repairs.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns the plan of the bins.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the counts since the start, in all views.
    pub fn counts(&self) -> &BinsCounts {
        &self.counts
    }

    /// Returns the memory held for this view in bytes, without the regions and the plan.
    pub fn memory_bytes(&self) -> usize {
        let instances =
            self.instances.len() * (size_of::<Instance>() + size_of::<Gate>() + 2 * size_of::<u32>());
        let rest = size_of_val(&*self.cursors) + size_of_val(&*self.names) + size_of_val(&*self.members);
        instances
            + rest
            + size_of_val(&*self.filling)
            + size_of_val(&*self.seen)
            + self.lanes.memory_bytes()
            + self.sums.memory_bytes()
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the instance for the next packet of a lane; instances are fed in turn (Ricochet §4.2.2).
    #[inline]
    fn next_instance(&mut self, lane: usize) -> usize {
        if self.config.stagger == 1 {
            return lane;
        }
        let cursor = &mut self.cursors[lane];
        let at = lane * usize::from(self.config.stagger) + usize::from(*cursor);
        *cursor = if *cursor + 1 == self.config.stagger { 0 } else { *cursor + 1 };
        at
    }

    /// Begins a bin for a packet of a group, whose symbol has `length` bytes. Returns false if no sum is
    /// free; then the turn passes without a repair.
    fn begin(&mut self, at: usize, length: usize, group: GroupIndex) -> bool {
        let sums = self.wants_sum(at, length, group);
        let instance = &mut self.instances[at];
        let after_us = self.now_us - instance.begun_us;
        instance.density.on_begin(after_us, instance.gain.last());
        let halvings = match self.longest_us {
            Some(longest_us) => {
                instance.gain.on_begin(after_us, longest_us);
                instance.gain.halvings()
            }
            None => 0,
        };
        instance.begun_us = self.now_us;
        // The first bin of an instance stays smaller than r.
        if !sums && instance.size >= self.config.r {
            instance.size = instance.density.names(self.config.r);
        }
        if sums {
            instance.sum = self.sums.take();
            if instance.sum.is_none() {
                instance.turn = None;
                let gate = &mut self.gates[at];
                (gate.level, gate.last) = (QUIET, gate.ticks.saturating_add(u32::from(self.config.r) - 1));
                self.counts.skipped += 1;
                return false;
            }
        }
        instance.halvings = halvings as u8;
        self.begun_links.push_last(&mut self.begun[halvings], at);
        true
    }

    /// Returns whether a bin that begins gets a sum.
    fn wants_sum(&mut self, at: usize, length: usize, group: GroupIndex) -> bool {
        match self.config.content {
            Content::Xor => true,
            Content::Names => false,
            Content::Auto => {
                let (names, repairs) = (self.usual_count(at), self.plan.repairs(group));
                let instance = &mut self.instances[at];
                // Smoothed by an eighth of the length of each repair's first packet.
                let smoothed = (7 * usize::from(instance.length) + length).div_ceil(8);
                let length = if instance.length == 0 { length } else { smoothed };
                instance.length = u16::try_from(length).unwrap_or(u16::MAX);
                let repair = Prospect { names, length: length as f64, repairs };
                instance.digest = self.conditions.suit_digest(instance.digest, &repair);
                !instance.digest
            }
        }
    }

    fn add(&mut self, at: usize, name: Name, symbol: &[&[u8]]) {
        let instance = &mut self.instances[at];
        self.names[at * self.names_max + usize::from(instance.count)] = name;
        instance.count += 1;
        if let Some(sum) = instance.sum {
            self.sums.add(sum, symbol);
            self.counts.additions += 1;
        }
    }

    /// Returns the earliest deadline of a repair begun, and its instance.
    fn next_due(&self) -> Option<(u64, usize)> {
        let longest_us = self.longest_us.unwrap_or(u64::MAX);
        let firsts = self.begun.iter().enumerate().filter_map(|(halvings, begun)| {
            let at = begun.first()?;
            Some((self.instances[at].begun_us.saturating_add(longest_us >> halvings), at))
        });
        firsts.min()
    }

    fn fire_next(&mut self, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        let Some((_, at)) = self.next_due() else { return };
        self.counts.early += 1;
        self.fire(at, rng, emit);
    }

    /// Emits a bin that is full or at its deadline, and ends its turn.
    fn fire(&mut self, at: usize, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        let Instance { turn, count, size, .. } = self.instances[at];
        self.empty(at, emit);
        // The first bin of an instance is smaller than the others and not representative.
        if let Some(turn) = turn
            && size >= self.config.r
        {
            self.measure(turn as usize, f64::from(count));
        }
        self.next_turn(at, rng);
    }

    /// Emits the repair of a bin.
    fn empty(&mut self, at: usize, emit: &mut impl FnMut(Outgoing<'_>)) {
        let slots = self.slots(at);
        let instance = &mut self.instances[at];
        let turn = instance.turn.expect("a bin that is filled has a turn");
        let targets = &self.members[slots][..self.lanes.turn(turn as usize).targets as usize];
        let sum = instance.sum.take();
        self.counts.repairs += 1;
        self.counts.sent += targets.len() as u64;
        emit(Outgoing {
            names: &self.names[at * self.names_max..][..usize::from(instance.count)],
            symbol: sum.map(|sum| self.sums.symbol(sum)),
            targets,
        });
        instance.gain.on_end(instance.count);
        instance.count = 0;
        let begun = &mut self.begun[usize::from(instance.halvings)];
        if let Some(sum) = sum {
            self.sums.give_back(sum);
        }
        self.begun_links.remove(begun, at);
    }
}

#[cfg(test)]
mod tests;
