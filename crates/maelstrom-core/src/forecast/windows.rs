//! Virtual windows: for each rate of the ladder, the packets that a sliding window at that rate would leave.
//!
//! A repair of a window solves one unknown, whichever that is. Lost packets form a *batch* from the first
//! loss until as many repairs have arrived; then all of them are solved. Each arriving repair is therefore
//! matched with the oldest unmatched loss. If that loss leaves the window first, it and all older ones of its
//! batch stay lost. Counting this needs no field arithmetic.
//!
//! A window may have stripes, each of which is a code of its own with an equal share of every burst. Of
//! such a window only the first stripe is counted, for all of them.
//!
//! The repairs of a virtual window are never sent. A repair leaves with a packet and shares its fate, so that
//! a burst takes both.

use crate::auto::LADDER;

/// Number of candidates: one for each rate of the ladder.
pub const CANDIDATES: usize = LADDER.len();
/// Maximum number of losses in a batch. A batch that reaches it stays lost; no window recovers as many.
const LOSSES_MAX: usize = 1024;
/// Maximum number of stripes of the windows that `auto` chooses; their numbers are powers of two. A code can
/// have [more](fec::STRIPES_MAX).
pub const AUTO_STRIPES_MAX: u8 = 4;
const _: () = assert!(AUTO_STRIPES_MAX.is_power_of_two() && AUTO_STRIPES_MAX <= fec::STRIPES_MAX);
/// Number of different numbers of stripes.
const KINDS: usize = AUTO_STRIPES_MAX.ilog2() as usize + 1;
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
    /// Credit that each packet of a candidate's stripe adds, at most [`ONE`].
    steps: [u32; CANDIDATES],
    /// The same by a packet's position modulo [`AUTO_STRIPES_MAX`], 0 if it is not in the stripe.
    steps_at: [[u32; CANDIDATES]; AUTO_STRIPES_MAX as usize],
    /// Bits of the candidates that have a packet at such a position in their stripe.
    own_at: [u32; AUTO_STRIPES_MAX as usize],
    /// Credit toward the next repair, below [`ONE`].
    credits: [u32; CANDIDATES],
    batches: [Batch; CANDIDATES],
    /// Bits of the candidates whose batch is not empty.
    busy: u32,
    /// Losses of the first of 1, 2 and 4 stripes.
    losses: [Losses; KINDS],
}

/// Losses of a stripe.
#[derive(Clone, Debug)]
struct Losses {
    /// Number of losses so far.
    count: u64,
    /// Positions of the last losses, by their number modulo [`LOSSES_MAX`].
    at: Box<[u64]>,
}

/// The unsolved losses of one candidate: all from `first` on.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// Number of packets that a loss stays in the window.
    span: u64,
    /// Logarithm of the number of stripes.
    kind: usize,
    /// Number of the oldest loss.
    first: u64,
    /// Position of that loss.
    opened: u64,
    /// Number of repairs that have arrived for it.
    matched: u64,
    tail: Tail,
}

impl Batch {
    /// Counts losses of the stripe that stay lost, for all stripes.
    fn fail(&mut self, losses: u64) {
        self.tail.fail((losses << self.kind) as u32);
    }
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
            steps_at: [[0; CANDIDATES]; AUTO_STRIPES_MAX as usize],
            own_at: [(1 << CANDIDATES) - 1; AUTO_STRIPES_MAX as usize],
            credits: [0; CANDIDATES],
            batches: [Batch { span: u64::from(crate::auto::WINDOW), ..Batch::default() }; CANDIDATES],
            busy: 0,
            losses: std::array::from_fn(|_| Losses { count: 0, at: vec![0; LOSSES_MAX].into_boxed_slice() }),
        };
        windows.set_service(1.0);
        windows
    }

    /// Changes the share of repairs that arrive, beside those that are lost together with packets.
    pub fn set_service(&mut self, share: f64) {
        let share = share.clamp(0.0, 1.0);
        self.steps = LADDER.map(|rate| ((f64::from(ONE) * rate.as_f64() * share) as u32).min(ONE));
        self.place_steps();
    }

    fn place_steps(&mut self) {
        for (at, own) in self.own_at.into_iter().enumerate() {
            self.steps_at[at] =
                std::array::from_fn(|index| if own & (1 << index) == 0 { 0 } else { self.steps[index] });
        }
    }

    /// Changes the number of stripes of each candidate's window, a power of two of up to
    /// [`AUTO_STRIPES_MAX`]. A batch whose window changes is forgotten.
    pub fn set_stripes(&mut self, stripes: [u8; CANDIDATES]) {
        let kinds = stripes.map(|stripes| stripes.clamp(1, AUTO_STRIPES_MAX).ilog2() as usize);
        for (index, kind) in kinds.into_iter().enumerate() {
            let batch = &mut self.batches[index];
            if batch.kind == kind {
                continue;
            }
            (batch.kind, batch.first, batch.matched) = (kind, self.losses[kind].count, 0);
            self.busy &= !(1 << index);
            for (at, own) in self.own_at.iter_mut().enumerate() {
                *own = *own & !(1 << index) | u32::from(at.is_multiple_of(1 << kind)) << index;
            }
        }
        self.place_steps();
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
        let end = self.position + count;
        let packets: [u32; KINDS] =
            std::array::from_fn(|kind| (end.div_ceil(1 << kind) - self.position.div_ceil(1 << kind)) as u32);
        for (index, (credit, step)) in self.credits.iter_mut().zip(self.steps).enumerate() {
            let packets = packets[self.batches[index].kind];
            *credit = credit.wrapping_add(step.wrapping_mul(packets)) % ONE;
        }
        self.position = end;
    }

    fn on_one_arrived(&mut self) {
        let mut due = 0;
        let steps = self.steps_at[self.place()];
        for (index, (credit, step)) in self.credits.iter_mut().zip(steps).enumerate() {
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
        let place = self.place();
        for (credit, step) in self.credits.iter_mut().zip(self.steps_at[place]) {
            // A repair that leaves with this packet is lost too.
            *credit = (*credit + step) % ONE;
        }
        let own = self.own_at[place];
        for index in (0..CANDIDATES).filter(|index| own & (1 << index) != 0) {
            let batch = &mut self.batches[index];
            let losses = self.losses[batch.kind].count;
            let len = losses - batch.first;
            if len >= LOSSES_MAX as u64 {
                batch.fail(len);
                self.busy &= !(1 << index);
            }
            if self.busy & (1 << index) == 0 {
                (batch.first, batch.opened, batch.matched) = (losses, self.position, 0);
            }
        }
        self.busy |= own;
        for (kind, losses) in self.losses.iter_mut().enumerate() {
            if place.is_multiple_of(1 << kind) {
                losses.at[losses.count as usize % LOSSES_MAX] = self.position;
                losses.count += 1;
            }
        }
        self.position += 1;
    }

    /// Position of the next packet, modulo [`AUTO_STRIPES_MAX`].
    fn place(&self) -> usize {
        (self.position % u64::from(AUTO_STRIPES_MAX)) as usize
    }

    /// Matches an arriving repair with the oldest unmatched loss of a batch, which is not empty.
    fn match_oldest(&mut self, index: usize) {
        let batch = &mut self.batches[index];
        let losses = &self.losses[batch.kind];
        let lost_at = |number: u64| losses.at[number as usize % LOSSES_MAX];
        while lost_at(batch.first + batch.matched) + batch.span <= self.position {
            batch.fail(batch.matched + 1);
            batch.first += batch.matched + 1;
            batch.matched = 0;
            if batch.first == losses.count {
                self.busy &= !(1 << index);
                return;
            }
            batch.opened = lost_at(batch.first);
        }
        batch.matched += 1;
        let solved = losses.count - batch.first;
        if batch.matched < solved {
            return;
        }
        let lasted = self.position - batch.opened;
        let of_all = (solved << batch.kind) as u32;
        if 2 * lasted > batch.span {
            batch.tail.half = batch.tail.half.wrapping_add(of_all);
        }
        if 4 * lasted > 3 * batch.span {
            batch.tail.most = batch.tail.most.wrapping_add(of_all);
        }
        batch.first = losses.count;
        self.busy &= !(1 << index);
    }

    /// Forgets the losses that are not solved.
    pub fn forget(&mut self) {
        self.busy = 0;
        self.batches.iter_mut().for_each(|batch| batch.first = self.losses[batch.kind].count);
    }

    /// Number of repairs that a candidate's batch still needs.
    pub fn backlog(&self, index: usize) -> u64 {
        let batch = &self.batches[index];
        if self.busy & (1 << index) == 0 {
            return 0;
        }
        (self.losses[batch.kind].count - batch.first - batch.matched) << batch.kind
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
        size_of::<Self>() + self.losses.iter().map(|losses| size_of_val(&*losses.at)).sum::<usize>()
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
    fn a_window_of_stripes_counts_as_one_of_them_over_its_own_packets() {
        for stripes in [1, 2, 4] {
            let (mut striped, mut own) = (Windows::new(), Windows::new());
            striped.set_stripes([stripes; CANDIDATES]);
            striped.set_spans([100 * u64::from(stripes); CANDIDATES]);
            own.set_spans([100; CANDIDATES]);
            let mut random = testkit::Random(u64::from(stripes));
            for n in 0..200_000u64 {
                let is_lost = random.below(30) == 0 || n % 700 < 40;
                let is_own = n.is_multiple_of(u64::from(stripes));
                if is_lost {
                    striped.on_lost();
                } else {
                    striped.on_arrived(1);
                }
                match is_lost {
                    _ if !is_own => {}
                    true => own.on_lost(),
                    false => own.on_arrived(1),
                }
            }
            let all = own.tails().map(|tail| {
                let of_all = |losses: u32| losses * u32::from(stripes);
                Tail { half: of_all(tail.half), most: of_all(tail.most), failed: of_all(tail.failed) }
            });
            assert!(all[at("1/8")].failed > 1_000, "{all:?}");
            // A batch that lasted half of the window may count differently by a packet of another stripe.
            let near = |a: u32, b: u32| a.abs_diff(b) <= b / 20 + 100;
            for (index, (striped, all)) in striped.tails().into_iter().zip(all).enumerate() {
                let is_near = near(striped.half, all.half) && near(striped.most, all.most);
                assert!(
                    is_near && near(striped.failed, all.failed),
                    "{stripes}, {index}: {striped:?}, {all:?}"
                );
            }
        }
    }

    #[test]
    fn a_change_of_stripes_forgets_a_batch_and_keeps_the_counts() {
        let mut windows = Windows::new();
        feed(&mut windows, &[(1_000, 200), (9_000, 40)]);
        let before = windows.tails()[at("1/8")];
        windows.set_stripes([4; CANDIDATES]);
        assert_eq!((windows.backlog(at("1/8")), windows.tails()[at("1/8")]), (0, before));
        feed(&mut windows, &[(4, 16), (100, 0)]);
        assert!((1..16).contains(&windows.backlog(at("1/8"))), "{}", windows.backlog(at("1/8")));
        assert_eq!((before.failed > 0, windows.backlog(at("1/1"))), (true, 0));
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
