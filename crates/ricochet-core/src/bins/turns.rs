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
        let lane = self.lane_of(at);
        let turn = pick(rng, lane.turns.clone(), |turn| self.lanes.turn(turn).share);
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
        let lane = self.lane_of(at);
        let turn =
            pick(rng, lane.turns.clone(), |turn| self.lanes.turn(turn).share / self.lasting(lane, turn));
        self.give(at, turn, rng);
    }

    /// Lets somebody have the turn.
    fn give(&mut self, at: usize, turn: usize, rng: &mut impl Rng) {
        let lane = self.lane_of(at);
        let level = self.lanes.turn(turn).level;
        let lasting = self.lasting(lane, turn);
        let last = if level == QUIET {
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

    /// How many packets of its region a turn lasts, on average: as many as it takes until as many as its bins get have
    /// come that enter. A pause is as long as the widest turn.
    fn lasting(&self, lane: &Lane, turn: usize) -> f64 {
        let widest = lane.turns.start + usize::from(self.lanes.turn(lane.turns.start).level == QUIET);
        let turn = if self.lanes.turn(turn).level == QUIET { widest } else { turn };
        let filling = match (self.filling[turn], self.filling[widest]) {
            (0.0, 0.0) => f64::from(self.config.r),
            (0.0, of_widest) => of_widest,
            (measured, _) => measured,
        };
        filling / self.entering(lane, turn)
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

/// One of these turns, by weight; the last if rounding leaves none.
fn pick(rng: &mut impl Rng, turns: std::ops::Range<usize>, weight: impl Fn(usize) -> f64) -> usize {
    let last = turns.end - 1;
    if turns.len() == 1 {
        return last;
    }
    let whole: f64 = turns.clone().map(&weight).sum();
    let mut left = chance::unit(rng) * whole;
    for turn in turns {
        left -= weight(turn);
        if left < 0.0 {
            return turn;
        }
    }
    last
}
