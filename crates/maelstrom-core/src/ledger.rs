//! The fate of every packet that repairs have named, settled in order of the stream.

use crate::arrivals::{Arrivals, Place, Treatment};
use crate::wire::LossReport;
use foundation::Seq;

/// Interval between calls of [`Ledger::on_tick`].
pub(crate) const TICK_US: u64 = 100_000;

/// Upper bound of the ticks that a place stays open.
const TICKS_MAX: usize = 1 << 16;

/// Places since the last place that arrived and was named. It is not known which packet without a name
/// arrived, but the number of arrivals between two named ones is.
struct Between {
    /// Number of the last named arrival among all arrivals.
    count: u64,
    /// Places since then that no repair has named.
    unnamed: u64,
}

/// Settles places in order and counts their fates.
pub(crate) struct Ledger {
    report: LossReport,
    /// Time at which the latest packet that stayed lost was missed.
    missed_us: Option<u64>,
    /// Next place to settle.
    next: Seq,
    /// Newest place named.
    newest: Seq,
    /// Number of consecutive lost packets just before `next`.
    run: u64,
    /// Places settled since the last named arrival, if there was one.
    between: Option<Between>,
    /// Values of `newest` at the last ticks, the oldest at `oldest_tick`.
    ticks: Vec<Seq>,
    oldest_tick: usize,
    /// Maximum number of open places behind the newest one, unless answers to requests are on the way.
    open_max: u64,
}

impl Ledger {
    /// Creates a ledger that settles places `open_max` behind the newest, or `age_us` old.
    pub(crate) fn new(open_max: u64, age_us: u64) -> Self {
        let ticks = (age_us.div_ceil(TICK_US) as usize).clamp(1, TICKS_MAX);
        Self {
            report: LossReport::default(),
            missed_us: None,
            next: Seq(0),
            newest: Seq(0),
            run: 0,
            between: None,
            ticks: vec![Seq(0); ticks],
            oldest_tick: 0,
            open_max,
        }
    }

    /// Newest place named.
    pub(crate) fn newest(&self) -> Seq {
        self.newest
    }

    /// Oldest place that is still open.
    pub(crate) fn oldest_open(&self) -> Seq {
        self.next
    }

    pub(crate) fn report(&self) -> &LossReport {
        &self.report
    }

    /// Time at which the latest packet that stayed lost was missed, if one did.
    pub(crate) fn missed_us(&self) -> Option<u64> {
        self.missed_us
    }

    /// Oldest place that a repair may bind: names of earlier arrivals may be forgotten.
    pub(crate) fn oldest_bindable(&self) -> Seq {
        self.next.max(self.newest.minus(self.open_max))
    }

    /// Counts a repair that arrived.
    pub(crate) fn on_repair(&mut self) {
        self.report.repairs += 1;
    }

    /// Advances the newest place to `last` if it lies beyond; returns whether places were settled. Those from
    /// `pending` on stay open, as long as they can be told apart: answers to requests are on the way.
    pub(crate) fn advance_to(&mut self, arrivals: &mut Arrivals, last: Seq, pending: Option<Seq>) -> bool {
        if last <= self.newest {
            return false;
        }
        self.newest = last;
        // Places are settled in strides, because each time costs the decoder a search.
        let limit = self.spare(arrivals, last.minus(self.open_max), pending);
        limit >= self.next.plus(64) && self.settle_before(arrivals, limit)
    }

    /// Settles old places, but for those from `pending` on; returns whether there were any. Must be called
    /// every [`TICK_US`].
    pub(crate) fn on_tick(&mut self, arrivals: &mut Arrivals, pending: Option<Seq>) -> bool {
        let limit = std::mem::replace(&mut self.ticks[self.oldest_tick], self.newest.plus(1));
        self.oldest_tick = (self.oldest_tick + 1) % self.ticks.len();
        // The newest place stays open while no other follows, because a repair of a higher layer may still
        // name it.
        let limit = self.spare(arrivals, limit.minus(1), pending);
        self.settle_before(arrivals, limit)
    }

    /// Returns a limit that spares the places from `pending` on, as long as they can be told apart.
    fn spare(&self, arrivals: &Arrivals, limit: Seq, pending: Option<Seq>) -> Seq {
        let reach = arrivals.places() - arrivals.places() / 4;
        pending.map_or(limit, |seq| limit.min(seq.max(self.newest.minus(reach))))
    }

    /// Gives up all places before `limit` without counting them, because it is not known which packets
    /// arrived.
    pub(crate) fn skip_before(&mut self, arrivals: &mut Arrivals, limit: Seq) {
        self.end_run();
        self.between = None;
        for step in 0..arrivals.places().min(limit.0.saturating_sub(self.next.0)) {
            arrivals.settle(self.next.plus(step));
        }
        self.next = self.next.max(limit);
    }

    fn settle_before(&mut self, arrivals: &mut Arrivals, limit: Seq) -> bool {
        if limit <= self.next {
            return false;
        }
        // `limit` may lie further than there are places; none has a name beyond them.
        let last = limit.min(self.next.plus(arrivals.places()));
        while self.next < last {
            match arrivals.settle(self.next) {
                // A router dropped it, and not the link.
                Place::Missing { fields, .. } if arrivals.hops().arriving(fields.ttl).is_none() => {
                    self.between = None;
                    self.end_run();
                }
                place => self.count(place),
            }
            self.next = self.next.plus(1);
        }
        if last < limit {
            self.end_run();
            if let Some(between) = &mut self.between {
                between.unnamed += limit.0 - last.0;
            }
            self.next = limit;
        }
        true
    }

    fn count(&mut self, place: Place) {
        match place {
            Place::Unnamed => {
                if let Some(between) = &mut self.between {
                    between.unnamed += 1;
                }
                return self.end_run();
            }
            Place::Arrived { count, at_us, .. } => {
                match count {
                    0 => self.between = None,
                    _ => self.count_nameless(count, at_us),
                }
                self.end_run();
            }
            Place::Missing { since_us, .. } => {
                self.report.lost += 1;
                self.run += 1;
                self.missed_us = self.missed_us.max(Some(since_us));
            }
            Place::Recovered { since_us, treatment, .. } => {
                self.report.lost += 1;
                if treatment != Treatment::Injected {
                    self.missed_us = self.missed_us.max(Some(since_us));
                }
                match treatment {
                    Treatment::Injected => self.report.recovered += 1,
                    Treatment::Withheld => self.report.withheld += 1,
                    Treatment::Left => self.report.left += 1,
                    // It stays lost, and nothing speaks against the loss.
                    Treatment::Uninjected => {}
                }
                self.run += 1;
            }
        }
        self.report.named += 1;
    }

    /// Counts lost packets that no repair names, between the last named arrival and the one with number
    /// `count`: places minus arrivals. The count is too low if arrivals are reordered or do not belong to the
    /// stream.
    fn count_nameless(&mut self, count: u64, at_us: u64) {
        let before = self.between.replace(Between { count, unnamed: 0 });
        let Some(before) = before.filter(|before| before.unnamed > 0 && before.count < count) else { return };
        let nameless = before.unnamed.saturating_sub(count - before.count - 1);
        self.report.named += nameless;
        self.report.lost += nameless;
        if nameless > 0 {
            // Nothing tells when they were missing, but for what arrived behind them.
            self.missed_us = self.missed_us.max(Some(at_us));
        }
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            self.report.bursts[LossReport::burst_bucket(self.run)] += 1;
            self.run = 0;
        }
    }
}
