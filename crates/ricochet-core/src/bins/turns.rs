//! Whose turn it is at each lane: drawn so that every level has its share, whatever else is sent.

use rand_chacha::rand_core::Rng;

use super::lanes::{Lane, QUIET};
use super::{Bins, Gate, Outgoing};
use crate::chance;

/// How many turns the memory of how full their bins were goes back.
const SMOOTHING: f64 = 16.0;
/// How many packets the memory of which groups are busy goes back.
const SEEN_MAX: u32 = 1 << 14;
/// By so much longer than expected a turn may last.
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
            // As many as should have come: so much of its share it has used up.
            let due = f64::from(self.gates[at].ticks) * self.entering(self.lane_of(at), turn as usize);
            self.measure(turn as usize, due);
        }
        self.next_turn(at, rng);
    }

    pub(super) fn measure(&mut self, turn: usize, count: f64) {
        let filling = &mut self.filling[turn];
        *filling = if *filling == 0.0 { count } else { *filling + (count - *filling) / SMOOTHING };
    }

    /// The first turn of an instance, as if it had been going on for long: neighbours receive the same packets, and bins
    /// that all began together would make the same repairs.
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

    /// Draws, before an instance gets its first packet, who has the next turn (Ricochet §4.2.5).
    ///
    /// Turns that last longer must begin less often to have no more than their share.
    pub(super) fn next_turn(&mut self, at: usize, rng: &mut impl Rng) {
        self.shuffle(at, rng);
        self.forget(at);
        self.weigh(at);
        let turn = self.lane_of(at).turns.start + pick(rng, &self.weights);
        self.give(at, turn, rng);
    }

    /// Puts together what the turns of a lane weigh: their shares divided by how long they last, in one pass over its
    /// levels, which the turns name in order.
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

    /// Lets somebody have the turn.
    fn give(&mut self, at: usize, turn: usize, rng: &mut impl Rng) {
        let lane = self.lane_of(at);
        let level = self.lanes.turn(turn).level;
        let last = if level == QUIET {
            // As long as the widest turn, on average.
            let widest = lane.widest(&self.lanes);
            let lasting = filled(&self.filling, widest, widest, self.config.r) / self.entering(lane, widest);
            chance::floor_or_ceiling(rng, lasting).max(1)
        } else {
            (f64::from(self.config.r) / self.entering(lane, turn) * PATIENCE) as u32
        };
        self.gates[at] = Gate { level, ticks: 0, last };
        let instance = &mut self.instances[at];
        (instance.turn, instance.count, instance.size) = (Some(turn as u32), 0, self.config.r);
    }

    fn lane_of(&self, at: usize) -> &Lane {
        self.lanes.lane(at / usize::from(self.config.stagger))
    }

    /// Share of the packets of its region that enter in a turn, which is no pause; above 0.
    fn entering(&self, lane: &Lane, turn: usize) -> f64 {
        let seen = |levels: std::ops::Range<usize>| f64::from(self.seen[levels].iter().sum::<u32>());
        let first = lane.levels.start + self.lanes.turn(turn).level as usize - 1;
        seen(first..lane.levels.end) / seen(lane.levels.clone())
    }

    /// Halves what was seen of a region, once it is much.
    fn forget(&mut self, at: usize) {
        let levels = self.lane_of(at).levels.clone();
        let seen = &mut self.seen[levels];
        if seen.iter().sum::<u32>() > SEEN_MAX {
            seen.iter_mut().for_each(|seen| *seen = seen.div_ceil(2));
        }
    }

    /// Exchanges the nodes in the slots of an instance with others of its region, so that each gets as many repairs as
    /// the others; not with a bin that is being filled, whose packets would come to one node twice.
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

    /// Where the nodes lie that get the repairs of an instance.
    pub(super) fn slots(&self, at: usize) -> std::ops::Range<usize> {
        let stagger = usize::from(self.config.stagger);
        let first = self.regions_start(at % stagger);
        let slots = &self.lanes.lane(at / stagger).slots;
        first + slots.start..first + slots.end
    }
}

/// How many packets the bins of a turn get; where none was there yet as many as those of the widest turn.
///
/// Divided by the share of the region's packets that enter, it is how long the turn lasts. A pause is as long as the
/// widest turn.
fn filled(filling: &[f64], turn: usize, widest: usize, r: u8) -> f64 {
    match (filling[turn], filling[widest]) {
        (0.0, 0.0) => f64::from(r),
        (0.0, of_widest) => of_widest,
        (measured, _) => measured,
    }
}

/// The place of one of these weights, each as likely as it is heavy; the last if rounding leaves none.
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
