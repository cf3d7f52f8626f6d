//! Turns at the lanes, drawn so that every level has its share, whichever groups are busy.

use rand_chacha::rand_core::Rng;

use super::lanes::{Lane, QUIET};
use super::{Bins, Gate, Outgoing};
use crate::chance;

/// Number of turns over which the fill of their bins is averaged.
const SMOOTHING: f64 = 16.0;
/// Number of packets of a region after which their counts by level are halved.
const SEEN_MAX: u32 = 1 << 14;
/// Factor by which a turn may last longer than expected.
const PATIENCE: f64 = 4.0;

impl Bins {
    /// Ends a turn that was a pause, or for which no more packets come.
    pub(super) fn end_turn(&mut self, at: usize, rng: &mut impl Rng, emit: &mut impl FnMut(Outgoing<'_>)) {
        if self.instances[at].count > 0 {
            self.counts.early += 1;
            self.empty(at, emit);
        }
        if let Some(turn) = self.instances[at].turn
            && self.gates[at].level != QUIET
        {
            // The number of packets that should have entered is the share that the turn has used up.
            let due = f64::from(self.gates[at].ticks) * self.entering(self.lane_of(at), turn as usize);
            self.measure(turn as usize, due);
        }
        self.next_turn(at, rng);
    }

    pub(super) fn measure(&mut self, turn: usize, count: f64) {
        let filling = &mut self.filling[turn];
        *filling = if *filling == 0.0 { count } else { *filling + (count - *filling) / SMOOTHING };
    }

    /// Draws the first turn of an instance, and begins it at a random point. Neighbours receive the same
    /// packets, and bins that all began together would make the same repairs.
    pub(super) fn start(&mut self, at: usize, rng: &mut impl Rng) {
        self.shuffle(at, rng);
        let Self { lanes, weights, config, .. } = self;
        let turns = lanes.lane(at / usize::from(config.stagger)).turns.clone();
        weights.clear();
        weights.extend(turns.clone().map(|turn| lanes.turn(turn).share));
        let turn = turns.start + pick(rng, weights);
        self.give(at, turn, rng);
        self.instances[at].size = 1 + chance::below(rng, usize::from(self.config.r)) as u8;
        if self.gates[at].level == QUIET {
            self.gates[at].last = 1 + chance::below(rng, self.gates[at].last as usize) as u32;
        }
    }

    /// Draws the next turn of an instance, before its first packet comes (Ricochet §4.2.5). Turns that last
    /// longer are drawn less often, so that each has its share.
    pub(super) fn next_turn(&mut self, at: usize, rng: &mut impl Rng) {
        self.shuffle(at, rng);
        self.forget(at);
        self.weigh(at);
        let turn = self.lane_of(at).turns.start + pick(rng, &self.weights);
        self.give(at, turn, rng);
    }

    /// Computes the weights of a lane's turns: their shares divided by their durations. One pass over the
    /// levels is enough, since turns are in the order of their levels.
    fn weigh(&mut self, at: usize) {
        let Self { lanes, seen, filling, weights, config, .. } = self;
        let lane = lanes.lane(at / usize::from(config.stagger));
        let seen = &seen[lane.levels.clone()];
        let whole: u32 = seen.iter().sum();
        weights.clear();
        let widest = lane.widest(lanes);
        let (mut passed, mut passing) = (0, seen.iter());
        let mut next = 1;
        let mut lasting = |turn: usize| {
            let level = lanes.turn(turn).level;
            passed += passing.by_ref().take((level - next) as usize).sum::<u32>();
            next = level;
            let entering = f64::from(whole - passed) / f64::from(whole);
            filled(filling, turn, widest, config.r) / entering
        };
        let of_widest = lasting(widest);
        for turn in lane.turns.clone() {
            let is_as_widest = turn == widest || lanes.turn(turn).level == QUIET;
            let lasting = if is_as_widest { of_widest } else { lasting(turn) };
            weights.push(lanes.turn(turn).share / lasting);
        }
    }

    /// Begins a turn.
    fn give(&mut self, at: usize, turn: usize, rng: &mut impl Rng) {
        let lane = self.lane_of(at);
        let level = self.lanes.turn(turn).level;
        let last = if level == QUIET {
            // A pause lasts as long as the widest turn, on average.
            let widest = lane.widest(&self.lanes);
            let lasting = filled(&self.filling, widest, widest, self.config.r) / self.entering(lane, widest);
            chance::floor_or_ceiling(rng, lasting).max(1)
        } else {
            (self.names_max as f64 / self.entering(lane, turn) * PATIENCE) as u32
        };
        self.gates[at] = Gate { level, ticks: 0, last };
        let instance = &mut self.instances[at];
        (instance.turn, instance.count, instance.size) = (Some(turn as u32), 0, self.config.r);
    }

    /// Returns the number of packets that the bins of this turn have on average.
    pub(super) fn usual_count(&self, at: usize) -> f64 {
        let Some(turn) = self.instances[at].turn else { return f64::from(self.config.r) };
        let widest = self.lane_of(at).widest(&self.lanes);
        filled(&self.filling, turn as usize, widest, self.config.r).clamp(1.0, f64::from(self.config.r))
    }

    fn lane_of(&self, at: usize) -> &Lane {
        self.lanes.lane(at / usize::from(self.config.stagger))
    }

    /// Returns the share of the region's packets that enter in a turn that is no pause; above 0.
    fn entering(&self, lane: &Lane, turn: usize) -> f64 {
        let seen = |levels: std::ops::Range<usize>| f64::from(self.seen[levels].iter().sum::<u32>());
        let first = lane.levels.start + self.lanes.turn(turn).level as usize - 1;
        seen(first..lane.levels.end) / seen(lane.levels.clone())
    }

    /// Halves the counts of a region's packets once they are large.
    fn forget(&mut self, at: usize) {
        let levels = self.lane_of(at).levels.clone();
        let seen = &mut self.seen[levels];
        if seen.iter().sum::<u32>() > SEEN_MAX {
            seen.iter_mut().for_each(|seen| *seen = seen.div_ceil(2));
        }
    }

    /// Exchanges the nodes in the slots of an instance with random nodes of its region, so that all nodes get
    /// equally many repairs. Slots of a bin that is being filled are left alone, or a node could get a packet
    /// twice.
    fn shuffle(&mut self, at: usize, rng: &mut impl Rng) {
        let stagger = usize::from(self.config.stagger);
        let (lane, turn) = (at / stagger, at % stagger);
        let Lane { slots, region, .. } = self.lanes.lane(lane).clone();
        let first = self.regions_start(turn);
        if region.len() == 1 {
            return;
        }
        for slot in slots {
            let other = region.start + chance::below(rng, region.len());
            let owner = self.lanes.owner(other);
            if owner.is_none_or(|owner| owner == lane || self.instances[owner * stagger + turn].count == 0) {
                self.members.swap(first + slot, first + other);
            }
        }
    }

    fn regions_start(&self, staggered: usize) -> usize {
        staggered * (self.members.len() / usize::from(self.config.stagger))
    }

    /// Returns the indices of the nodes that get the repairs of an instance.
    pub(super) fn slots(&self, at: usize) -> std::ops::Range<usize> {
        let stagger = usize::from(self.config.stagger);
        let first = self.regions_start(at % stagger);
        let slots = &self.lanes.lane(at / stagger).slots;
        first + slots.start..first + slots.end
    }
}

/// Returns the average number of packets in the bins of a turn; if there was none yet, that of the widest
/// turn.
///
/// Divided by the share of the region's packets that enter, it is the duration of the turn.
fn filled(filling: &[f64], turn: usize, widest: usize, r: u8) -> f64 {
    match (filling[turn], filling[widest]) {
        (0.0, 0.0) => f64::from(r),
        (0.0, of_widest) => of_widest,
        (measured, _) => measured,
    }
}

/// Returns a random index with probability proportional to its weight; the last if rounding leaves none.
fn pick(rng: &mut impl Rng, weights: &[f64]) -> usize {
    let last = weights.len() - 1;
    if last == 0 {
        return last;
    }
    let mut left = chance::unit(rng) * weights.iter().sum::<f64>();
    let is_it = |weight: &f64| {
        left -= weight;
        left < 0.0
    };
    weights.iter().position(is_it).unwrap_or(last)
}
