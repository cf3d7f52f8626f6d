//! Virtual windows: for each rate of the ladder, the packets that a sliding window at that rate would leave.
//!
//! A repair of a window solves one unknown, whichever that is. Lost packets form a *batch* from the first
//! loss until as many repairs have arrived; then all of them are solved. Each arriving repair is therefore
//! matched with the oldest unmatched loss. If that loss leaves the window first, it and all older ones of its
//! batch stay lost. Counting this needs no field arithmetic.
//!
//! The repairs of a virtual window are never sent. A repair leaves with a packet and shares its fate, so that
//! a burst takes both.

use crate::auto::LADDER;

/// Number of candidates: one for each rate of the ladder.
pub const CANDIDATES: usize = LADDER.len();
/// Maximum number of losses in a batch. A batch that reaches it stays lost; no window recovers as many.
const LOSSES_MAX: usize = 1024;
/// Credit of a repair. Credits wrap at it.
const ONE: u32 = 1 << 24;

/// Losses that one candidate has left, or would soon leave. Counts wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// Losses of batches that lasted more than half of the window.
    pub half: u32,
    /// Losses of batches that lasted more than three quarters of the window.
    pub most: u32,
    /// Losses that stay lost.
    pub failed: u32,
}

impl Tail {
    /// Returns the counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            half: self.half.wrapping_sub(earlier.half),
            most: self.most.wrapping_sub(earlier.most),
            failed: self.failed.wrapping_sub(earlier.failed),
        }
    }

    fn fail(&mut self, losses: u32) {
        self.failed = self.failed.wrapping_add(losses);
        self.most = self.most.wrapping_add(losses);
        self.half = self.half.wrapping_add(losses);
    }
}

/// One virtual window for each candidate.
#[derive(Clone, Debug)]
pub struct Windows {
    /// Position of the next packet.
    position: u64,
    /// Credit that each packet adds, at most [`ONE`].
    steps: [u32; CANDIDATES],
    /// Credit toward the next repair, below [`ONE`].
    credits: [u32; CANDIDATES],
    batches: [Batch; CANDIDATES],
    /// Bits of the candidates whose batch is not empty.
    busy: u32,
    /// Number of losses so far.
    losses: u64,
    /// Positions of the last losses, by their number modulo [`LOSSES_MAX`].
    lost_at: Box<[u64]>,
}

/// The unsolved losses of one candidate: all from `first` on.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Number of packets that a loss stays in the window.
    span: u64,
    /// Number of the oldest loss.
    first: u64,
    /// Position of that loss.
    opened: u64,
    /// Number of repairs that have arrived for it.
    matched: u64,
    tail: Tail,
}

impl Default for Windows {
    fn default() -> Self {
        Self::new()
    }
}

impl Windows {
    /// Creates windows of 512 packets without losses.
    pub fn new() -> Self {
        let mut windows = Self {
            position: 0,
            steps: [0; CANDIDATES],
            credits: [0; CANDIDATES],
            batches: [Batch { span: u64::from(crate::auto::WINDOW), ..Batch::default() }; CANDIDATES],
            busy: 0,
            losses: 0,
            lost_at: vec![0; LOSSES_MAX].into_boxed_slice(),
        };
        windows.set_service(1.0);
        windows
    }

    /// Changes the share of repairs that arrive, beside those that are lost together with packets.
    pub fn set_service(&mut self, share: f64) {
        let share = share.clamp(0.0, 1.0);
        self.steps = LADDER.map(|rate| ((f64::from(ONE) * rate.as_f64() * share) as u32).min(ONE));
    }

    /// Changes the number of packets after which each candidate gives a loss up.
    pub fn set_spans(&mut self, spans: [u64; CANDIDATES]) {
        for (batch, span) in self.batches.iter_mut().zip(spans) {
            batch.span = span.max(1);
        }
    }

    /// Takes the next `count` packets, all of which have arrived.
    pub fn on_arrived(&mut self, mut count: u64) {
        while count > 0 && self.busy != 0 {
            self.on_one_arrived();
            count -= 1;
        }
        // There is nothing to solve. Credits wrap at a divisor of 2³².
        let count_low = count as u32;
        for (credit, step) in self.credits.iter_mut().zip(self.steps) {
            *credit = credit.wrapping_add(step.wrapping_mul(count_low)) % ONE;
        }
        self.position += count;
    }

    fn on_one_arrived(&mut self) {
        let mut due = 0;
        for (index, (credit, step)) in self.credits.iter_mut().zip(self.steps).enumerate() {
            let sum = *credit + step;
            due |= (sum / ONE) << index;
            *credit = sum % ONE;
        }
        due &= self.busy;
        while due != 0 {
            self.match_oldest(due.trailing_zeros() as usize);
            due &= due - 1;
        }
        self.position += 1;
    }

    /// Takes the next packet, which is lost.
    pub fn on_lost(&mut self) {
        for (credit, step) in self.credits.iter_mut().zip(self.steps) {
            // A repair that leaves with this packet is lost too.
            *credit = (*credit + step) % ONE;
        }
        for index in 0..CANDIDATES {
            let batch = &mut self.batches[index];
            let len = self.losses - batch.first;
            if len >= LOSSES_MAX as u64 {
                batch.tail.fail(len as u32);
                self.busy &= !(1 << index);
            }
            if self.busy & (1 << index) == 0 {
                (batch.first, batch.opened, batch.matched) = (self.losses, self.position, 0);
            }
        }
        self.busy = (1 << CANDIDATES) - 1;
        self.lost_at[self.losses as usize % LOSSES_MAX] = self.position;
        self.losses += 1;
        self.position += 1;
    }

    /// Matches an arriving repair with the oldest unmatched loss of a batch, which is not empty.
    fn match_oldest(&mut self, index: usize) {
        let batch = &mut self.batches[index];
        let lost_at = |number: u64| self.lost_at[number as usize % LOSSES_MAX];
        while lost_at(batch.first + batch.matched) + batch.span <= self.position {
            batch.tail.fail(batch.matched as u32 + 1);
            batch.first += batch.matched + 1;
            batch.matched = 0;
            if batch.first == self.losses {
                self.busy &= !(1 << index);
                return;
            }
            batch.opened = lost_at(batch.first);
        }
        batch.matched += 1;
        let losses = self.losses - batch.first;
        if batch.matched < losses {
            return;
        }
        let lasted = self.position - batch.opened;
        if 2 * lasted > batch.span {
            batch.tail.half = batch.tail.half.wrapping_add(losses as u32);
        }
        if 4 * lasted > 3 * batch.span {
            batch.tail.most = batch.tail.most.wrapping_add(losses as u32);
        }
        batch.first = self.losses;
        self.busy &= !(1 << index);
    }

    /// Forgets the losses that are not solved.
    pub fn forget(&mut self) {
        self.busy = 0;
        self.batches.iter_mut().for_each(|batch| batch.first = self.losses);
    }

    /// Number of repairs that a candidate's batch still needs.
    pub fn backlog(&self, index: usize) -> u64 {
        let batch = &self.batches[index];
        if self.busy & (1 << index) == 0 { 0 } else { self.losses - batch.first - batch.matched }
    }

    /// Number of packets after which a candidate gives a loss up.
    pub fn span(&self, index: usize) -> u64 {
        self.batches[index].span
    }

    /// Counts of each candidate.
    pub fn tails(&self) -> [Tail; CANDIDATES] {
        self.batches.map(|batch| batch.tail)
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.lost_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Index of a rate on the ladder.
    fn at(rate: &str) -> usize {
        LADDER.iter().position(|one| one.to_string() == rate).unwrap()
    }

    fn feed(windows: &mut Windows, fates: &[(u64, u64)]) {
        for &(arrived, lost) in fates {
            windows.on_arrived(arrived);
            (0..lost).for_each(|_| windows.on_lost());
        }
    }

    #[test]
    fn a_burst_needs_as_many_repairs_as_it_has_packets() {
        let mut windows = Windows::new();
        feed(&mut windows, &[(1_000, 10), (77, 0)]);
        assert_eq!((windows.backlog(at("1/8")), windows.backlog(at("1/1"))), (1, 0));
        feed(&mut windows, &[(8, 0)]);
        assert_eq!(windows.backlog(at("1/8")), 0);
        let tail = windows.tails()[at("1/8")];
        assert_eq!(tail, Tail::default(), "80 packets are less than half of the window");
        // At 1/32 the tenth repair comes 320 packets later, after more than half of the window.
        feed(&mut windows, &[(400, 0)]);
        let tail = windows.tails()[at("1/32")];
        assert_eq!((tail.half, tail.most, tail.failed), (10, 0, 0));
        // A burst of 14 needs 448 packets, and one of 20 more than the window.
        feed(&mut windows, &[(1_000, 14), (1_000, 20), (2_000, 0)]);
        let tail = windows.tails()[at("1/32")];
        assert_eq!((tail.half, tail.most), (44, 34));
        assert!((1..=20).contains(&tail.failed), "{tail:?}");
        assert_eq!(windows.tails()[at("3/8")], Tail::default());
    }

    #[test]
    fn losses_that_leave_the_window_stay_lost_and_the_rest_of_the_batch_goes_on() {
        let mut windows = Windows::new();
        feed(&mut windows, &[(1_000, 250), (8, 0), (600, 1), (100, 0)]);
        for (rate, failed) in [("1/8", 250), ("1/1", 0)] {
            assert_eq!(windows.tails()[at(rate)].failed, failed, "{rate}");
            assert_eq!(windows.backlog(at(rate)), 0, "{rate}");
        }
    }

    #[test]
    fn a_batch_without_end_is_bounded() {
        let mut windows = Windows::new();
        feed(&mut windows, &[(10, 5_000)]);
        for tail in windows.tails() {
            assert_eq!(tail.failed, 4 * LOSSES_MAX as u32);
        }
        assert_eq!(windows.backlog(0), 5_000 - 4 * LOSSES_MAX as u64);
        windows.forget();
        assert_eq!(windows.backlog(0), 0);
    }

    #[test]
    fn packets_at_once_are_the_same_as_one_by_one() {
        let (mut once, mut single) = (Windows::new(), Windows::new());
        let mut random = testkit::Random(5);
        for _ in 0..2_000 {
            let (arrived, lost) = (random.below(700), random.below(12));
            feed(&mut once, &[(arrived, lost)]);
            (0..arrived).for_each(|_| single.on_arrived(1));
            feed(&mut single, &[(0, lost)]);
        }
        assert_eq!(
            (once.tails(), once.credits, once.position),
            (single.tails(), single.credits, single.position)
        );
        assert!(once.tails()[0].failed > 0);
    }

    #[test]
    fn repairs_that_do_not_arrive_solve_nothing() {
        let mut windows = Windows::new();
        windows.set_service(0.5);
        feed(&mut windows, &[(1_000, 10), (81, 0)]);
        assert!((4..=5).contains(&windows.backlog(at("1/8"))));
        windows.set_spans([40; CANDIDATES]);
        feed(&mut windows, &[(8, 0), (8, 0)]);
        assert_eq!(windows.tails()[at("1/8")].failed, 10, "a shorter span counts at once");
    }
}
