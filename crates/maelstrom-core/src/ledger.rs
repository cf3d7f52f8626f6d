//! The fate of every packet that repairs have named, settled in order of the stream.

use crate::shelf::{Place, Shelf};
use crate::wire::LossReport;
use foundation::Seq;

/// How often [`Ledger::tick`] wants to be called.
pub(crate) const TICK_US: u64 = 100_000;

/// More than the longest that a place may stay open.
const TICKS_MAX: usize = 1 << 16;

/// Places between two that arrived and bear a name. Whether a packet that no repair names has arrived cannot be seen; but
/// how many arrived between the two can.
struct Between {
    /// The number among all arrivals of the place before.
    count: u64,
    /// Places that no repair has named.
    unnamed: u64,
}

/// Settles places and counts what became of them.
pub(crate) struct Ledger {
    report: LossReport,
    /// The next place to settle.
    next: Seq,
    /// The newest place named.
    newest: Seq,
    /// Consecutive lost packets just before `next`.
    run: u64,
    /// What was settled since the last place that arrived, if one did.
    between: Option<Between>,
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
            between: None,
            ticks: vec![Seq(0); ticks],
            oldest_tick: 0,
            open_max,
        }
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
        self.between = None;
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
            self.between = None;
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
            Place::Arrived { count, .. } => {
                match count {
                    0 => self.between = None,
                    _ => self.count_nameless(count),
                }
                self.end_run();
            }
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

    /// Counts as lost what no repair names and what has not arrived either, between the last place that arrived and the
    /// one that came as number `count`. Where arrivals come out of order, or besides the stream, it counts too few.
    fn count_nameless(&mut self, count: u64) {
        let before = self.between.replace(Between { count, unnamed: 0 });
        let Some(before) = before.filter(|before| before.unnamed > 0 && before.count < count) else { return };
        let nameless = before.unnamed.saturating_sub(count - before.count - 1);
        self.report.named += nameless;
        self.report.lost += nameless;
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            self.report.bursts[LossReport::burst_bucket(self.run)] += 1;
            self.run = 0;
        }
    }
}
