//! Recovery after a gap in what the tap saw.
//!
//! Packets that arrived unseen must not count as lost. Packets that were seen must not stand for later, equal
//! ones, which may have been lost.
//!
//! From the gap on, repairs recover nothing and bind nothing. When the tap has caught up, the doubt *clears*:
//! a first repair shows how far the stream has come. Recovery resumes with the first repair that lies so far
//! behind that position that none of its packets can have arrived unseen. A slow stream would take minutes to
//! get there. It resumes after a time instead, when no repair names earlier packets any more.
//!
//! A far gateway that is short of time emits repairs long after their packets, which may have arrived before
//! the tap caught up, and any number of packets after them too. Repairs tell how late they are ([`Lag`]). The
//! first repairs after the gap give the time by the far gateway's clock, and the one that shows how far the
//! stream has come is the first of packets that left later.

use crate::arrivals::Arrivals;
use crate::ledger::Ledger;
use crate::wire::{Lag, RecipeView, SendTime};
use foundation::Seq;

/// Number of packets that may have passed unseen during a gap without being named yet, besides those in the
/// history.
const GAP_MARGIN: u64 = 512;
/// Maximum number of packets of the history that count for that.
const KNOWN_MAX: u64 = 4_096;

/// Longest time by which a repair may leave after the far gateway has read its clock again.
const WAIT_US: i64 = 10_000;

/// Whether packets may have arrived that the tap has not shown.
pub(super) struct Sight {
    state: State,
    /// Number of places beyond the newest one named at which packets may have arrived.
    margin: u64,
    /// Time after which repairs name no earlier packet.
    give_up_us: u64,
    /// Whether it has been other than clear since [`Sight::take_blindness`].
    was_blind: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The tap has shown all packets.
    Clear,
    /// Packets are missing, and more may be.
    Blind,
    /// Packets are missing, but no further ones.
    Clearing(Clearing),
}

/// The time after the tap has caught up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Clearing {
    until_us: u64,
    /// Number of arrivals kept when the tap had caught up.
    kept: u64,
    /// Time of sending that the first repair after that states.
    first: Option<SendTime>,
    /// The next such time. The far gateway reads its clock once for many packets and repairs: when it read it
    /// again, the first repair had left.
    since: Option<SendTime>,
    /// Place from which no packet had arrived, seen or unseen, when the first repair came after the gap.
    beyond: Option<Seq>,
    /// Place before which forgotten arrivals may lie.
    doubtful: Seq,
}

impl Clearing {
    /// Whether the newest packets before a repair left after the first repair that came after the gap, and
    /// arrived after the tap had caught up.
    fn is_later(&self, sent: Option<SendTime>, lag: Lag) -> bool {
        let (Some(since), Some(sent), Some(lag_us)) = (self.since, sent, lag.bound_us()) else {
            return false;
        };
        sent.since_us(since) > WAIT_US + lag_us as i64
    }

    fn on_repair(&mut self, sent: Option<SendTime>) {
        if let (Some(first), Some(sent)) = (self.first, sent) {
            self.since = self.since.or((sent.since_us(first) > 0).then_some(sent));
        }
        self.first = self.first.or(sent);
    }
}

/// How to treat a repair.
pub(super) enum Verdict {
    /// Use it.
    Use,
    /// Give up all places before this one, then use it.
    UseFrom(Seq),
    /// Give up all places before `limit`, and recover nothing with it. If `bind`, bind the names of the other
    /// places.
    Pass { limit: Seq, bind: bool },
}

impl Sight {
    /// Creates a clear sight for an ingress that keeps the names of `history` packets.
    pub(super) fn new(history: u64, give_up_us: u64) -> Self {
        Self {
            state: State::Clear,
            margin: history.min(KNOWN_MAX) / 4 + GAP_MARGIN,
            give_up_us,
            was_blind: false,
        }
    }

    /// Whether repairs are used.
    pub(super) fn is_clear(&self) -> bool {
        self.state == State::Clear
    }

    /// Notes that the tap has missed packets.
    pub(super) fn on_gap(&mut self) {
        self.state = State::Blind;
        self.was_blind = true;
    }

    /// Whether packets may have arrived unseen since the last call, or may do so now.
    pub(super) fn take_blindness(&mut self) -> bool {
        std::mem::replace(&mut self.was_blind, false) || !self.is_clear()
    }

    /// Notes that the tap sees every packet again, `kept` arrivals after the start. Without a gap this does
    /// nothing.
    pub(super) fn on_caught_up(&mut self, now_us: u64, kept: u64) {
        if self.state == State::Blind {
            let until_us = now_us + self.give_up_us;
            let clearing =
                Clearing { until_us, kept, first: None, since: None, beyond: None, doubtful: Seq(0) };
            self.state = State::Clearing(clearing);
        }
    }

    /// Decides whether a repair, sent at `sent`, may be used, or may miss packets that arrived unseen.
    ///
    /// The first repair after a gap is never used, however long it took to come. Earlier repairs may have
    /// been lost with all the names in them, and only this one shows which places to give up.
    pub(super) fn judge(
        &mut self,
        now_us: u64,
        sent: Option<SendTime>,
        arrivals: &mut Arrivals,
        ledger: &Ledger,
        view: &RecipeView<'_>,
    ) -> Verdict {
        let behind_newest = ledger.newest().plus(1);
        let mut clearing = match self.state {
            State::Clear => return Verdict::Use,
            State::Blind => return Verdict::Pass { limit: behind_newest, bind: false },
            State::Clearing(clearing) => clearing,
        };
        let is_later = clearing.is_later(sent, view.lag);
        let beyond = clearing.beyond.or(is_later.then(|| behind_newest.plus(self.margin)));
        let limit = beyond.unwrap_or(behind_newest).max(clearing.doubtful);
        if clearing.beyond.is_some() && view.first() >= limit {
            self.state = State::Clear;
            return Verdict::UseFrom(limit);
        }
        if let Some(reach) =
            self.forget_passed(now_us, &clearing, arrivals, view, ledger.oldest_open()..limit)
        {
            clearing.doubtful = clearing.doubtful.max(behind_newest.plus(reach));
        }
        clearing.beyond = beyond;
        clearing.on_repair(sent);
        let is_over = beyond.is_some() && now_us >= clearing.until_us && behind_newest >= clearing.doubtful;
        self.state = if is_over { State::Clear } else { State::Clearing(clearing) };
        Verdict::Pass { limit: behind_newest.min(limit), bind: true }
    }

    /// Forgets arrivals that lie before the places that repairs may still bind: all that came before the tap
    /// had caught up and, of each name that this repair gives up, those that came long enough before it. Of
    /// equal packets that follow each other faster, no one can tell which one a repair names.
    ///
    /// Not all of these arrivals lie where this repair reaches, because a repair of a wide interleave names
    /// none of the newest packets. If arrivals were forgotten that no repair has named, returns how far
    /// beyond the newest place they may lie: the number of arrivals without a name, and as many again that
    /// were lost.
    fn forget_passed(
        &self,
        now_us: u64,
        clearing: &Clearing,
        arrivals: &mut Arrivals,
        view: &RecipeView<'_>,
        given_up: std::ops::Range<Seq>,
    ) -> Option<u64> {
        let reach = (2 * arrivals.unbound()).min(self.margin);
        let mut forgotten = if clearing.beyond.is_none() { arrivals.forget_before(clearing.kept) } else { 0 };
        let names = || view.entries().filter(|entry| given_up.contains(&entry.seq)).map(|entry| entry.name);
        names().for_each(|name| arrivals.pass_over(now_us, name));
        names().for_each(|name| forgotten += arrivals.forget_name(now_us, name));
        (forgotten > 0).then_some(reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_left_later_than_the_second_time_of_sending_that_repairs_state() {
        let at = |ms: u64| Some(SendTime::at(5_000_000 + 1_000 * ms));
        let mut clearing =
            Clearing { until_us: 0, kept: 0, first: None, since: None, beyond: None, doubtful: Seq(0) };
        // Many repairs leave under one time, the last of them long after it.
        (0..3).for_each(|_| clearing.on_repair(at(0)));
        assert!(!clearing.is_later(at(900), Lag::of(0)));
        clearing.on_repair(None);
        clearing.on_repair(at(80));
        clearing.on_repair(at(90));
        let within_ms = |ms: u64| Lag::of(1_000 * ms - 1);
        assert!(!clearing.is_later(at(91), within_ms(1)) && clearing.is_later(at(92), within_ms(1)));
        assert!(!clearing.is_later(at(218), within_ms(128)) && clearing.is_later(at(219), within_ms(128)));
        // A repair that was overtaken, one that has waited here, and one that does not know.
        assert!(!clearing.is_later(at(70), within_ms(1)));
        assert!(!clearing.is_later(None, within_ms(1)) && !clearing.is_later(at(900), Lag::UNKNOWN));
    }
}
