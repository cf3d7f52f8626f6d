//! The fate of every packet that repairs have named, settled in order of the stream.

use crate::seq::Seq;
use crate::shelf::{Place, Shelf};
use crate::wire::LossReport;

/// How often [`Ledger::tick`] wants to be called.
pub(crate) const TICK_US: u64 = 100_000;

const TICKS_MAX: usize = 64;

/// Settles places and counts what became of them.
pub(crate) struct Ledger {
    report: LossReport,
    /// The next place to settle.
    next: Seq,
    /// The newest place named.
    newest: Seq,
    /// Consecutive lost packets just before `next`.
    run: u64,
    /// `newest` as it was at the last ticks, oldest at `oldest_tick`.
    ticks: Vec<Seq>,
    oldest_tick: usize,
    /// How many places stay open behind the newest one.
    open_max: u64,
}

impl Ledger {
    /// Settles what is `open_max` places behind the newest, or `age_us` old.
    pub(crate) fn new(open_max: u64, age_us: u64) -> Self {
        let ticks = (age_us.div_ceil(TICK_US) as usize).clamp(1, TICKS_MAX);
        Self {
            report: LossReport::default(),
            next: Seq(0),
            newest: Seq(0),
            run: 0,
            ticks: vec![Seq(0); ticks],
            oldest_tick: 0,
            open_max,
        }
    }

    /// Whether the fate of `seq` is settled: nothing may change it any more.
    pub(crate) fn is_settled(&self, seq: Seq) -> bool {
        seq < self.next
    }

    /// The newest place named so far.
    pub(crate) fn newest(&self) -> Seq {
        self.newest
    }

    /// The oldest place that is still open.
    pub(crate) fn oldest_open(&self) -> Seq {
        self.next
    }

    pub(crate) fn report(&self) -> &LossReport {
        &self.report
    }

    pub(crate) fn count_repair(&mut self) {
        self.report.repairs += 1;
    }

    /// Notes that a repair reaches to `last`; true if places were settled by it.
    pub(crate) fn reach(&mut self, shelf: &mut Shelf, last: Seq) -> bool {
        if last <= self.newest {
            return false;
        }
        self.newest = last;
        // In strides, so that the decoder is told seldom.
        let limit = last.minus(self.open_max);
        limit >= self.next.plus(64) && self.settle_before(shelf, limit)
    }

    /// Settles what has been open for long; to be called every [`TICK_US`]. True if places were settled.
    pub(crate) fn tick(&mut self, shelf: &mut Shelf) -> bool {
        let limit = std::mem::replace(&mut self.ticks[self.oldest_tick], self.newest.plus(1));
        self.oldest_tick = (self.oldest_tick + 1) % self.ticks.len();
        // The newest one itself stays open while nothing follows: a repair of a higher layer may still name it.
        self.settle_before(shelf, limit.minus(1))
    }

    /// Gives up all places before `limit` without counting them: nothing is known of what arrived there.
    pub(crate) fn skip_before(&mut self, shelf: &mut Shelf, limit: Seq) {
        self.end_run();
        for step in 0..shelf.places().min(limit.0.saturating_sub(self.next.0)) {
            shelf.settle(self.next.plus(step));
        }
        self.next = self.next.max(limit);
    }

    fn settle_before(&mut self, shelf: &mut Shelf, limit: Seq) -> bool {
        if limit <= self.next {
            return false;
        }
        // A leap over more places than there are: beyond them nothing can be open.
        let last = limit.min(self.next.plus(shelf.places()));
        while self.next < last {
            let place = shelf.settle(self.next);
            self.count(place);
            self.next = self.next.plus(1);
        }
        if last < limit {
            self.end_run();
            self.next = limit;
        }
        true
    }

    fn count(&mut self, place: Place) {
        match place {
            Place::Unnamed => return self.end_run(),
            Place::Arrived { .. } => self.end_run(),
            Place::Missing { .. } => {
                self.report.lost += 1;
                self.run += 1;
            }
            Place::Recovered { .. } => {
                self.report.lost += 1;
                self.report.recovered += 1;
                self.run += 1;
            }
        }
        self.report.named += 1;
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            self.report.bursts[LossReport::burst_bucket(self.run)] += 1;
            self.run = 0;
        }
    }
}
