//! Packets and losses by the delay of the queue, and where losses begin to be more frequent.

/// Number of bins of delay: steps of 256 µs up to 8 ms, then sixteen to each doubling, up to 8 s.
pub(super) const BINS: usize = 192;
/// Microseconds in a unit of delay, as a power of two.
const UNIT: u32 = 8;
/// Number of bins in a doubling.
const STEPS: u64 = 16;
/// Shortest delay that counts as a queue: below it, clocks and schedulers of the gateways decide.
const QUEUE_MIN_US: u64 = 1_000;
/// Number of runs of losses above a delay that show anything.
const RUNS_MIN: f64 = 6.0;
/// Smallest logarithm of the likelihood ratio by which losses of the same moment depend on the delay. A link
/// that is bad for some seconds loses packets at the delays of these seconds.
const SURPRISE_MIN: f64 = 6.0;
/// Number of packets below it.
const PACKETS_MIN: f64 = 200.0;
/// Number of lost datagrams of a long run.
pub(super) const LONG: u32 = 4;
/// Factor by which losses above a delay are more frequent than below.
pub(super) const CONTRAST: f64 = 3.0;

/// Packets whose queue had delays of one bin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bin {
    pub(super) packets: f64,
    /// Lost packets, and runs of them. The packets of a run share their fate, so that runs are counted as
    /// evidence.
    pub(super) lost: f64,
    pub(super) runs: f64,
    /// Datagrams with which a run might have begun. Packets of a tunnel that share a datagram share its fate.
    pub(super) starts: f64,
    /// Runs of [`LONG`] datagrams or more. A full queue drops trains of packets one behind the other.
    pub(super) long: f64,
    /// Runs, and long runs, that would be here if the losses of each moment did not depend on the delay.
    pub(super) expected: f64,
    pub(super) expected_long: f64,
}

/// Counts by delay that fade with time.
#[derive(Clone, Debug)]
pub(super) struct Horizon {
    pub(super) bins: Box<[Bin]>,
    /// Share of the counts that a second with traffic leaves.
    keep: f64,
}

/// A delay from which losses are more frequent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Edge {
    pub(super) bin: usize,
    /// Logarithm of the likelihood ratio of two loss rates to one.
    pub(super) evidence: f64,
}

impl Bin {
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.runs += other.runs;
        self.starts += other.starts;
        self.long += other.long;
        self.expected += other.expected;
        self.expected_long += other.expected_long;
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            packets: self.packets - other.packets,
            lost: self.lost - other.lost,
            runs: self.runs - other.runs,
            starts: self.starts - other.starts,
            long: self.long - other.long,
            expected: self.expected - other.expected,
            expected_long: self.expected_long - other.expected_long,
        }
    }
}

/// Returns the bin of a delay.
pub(super) fn bin_of(delay_us: u64) -> usize {
    let units = delay_us >> UNIT;
    let octave = units.checked_ilog2().map_or(0, |log| u64::from(log).saturating_sub(4));
    let bin = octave * STEPS + (units >> octave);
    (bin as usize).min(BINS - 1)
}

/// Returns the shortest delay of a bin, in microseconds.
pub(super) fn delay_of(bin: usize) -> u64 {
    let bin = bin as u64;
    let octave = (bin / STEPS).saturating_sub(1);
    (bin - octave * STEPS) << octave << UNIT
}

impl Horizon {
    /// Counts fade to a share of 1/e in `seconds` with traffic.
    pub(super) fn new(seconds: f64) -> Self {
        Self { bins: vec![Bin::default(); BINS].into_boxed_slice(), keep: (-1.0 / seconds).exp() }
    }

    pub(super) fn fade(&mut self) {
        for bin in &mut self.bins {
            let Bin { packets, lost, runs, starts, long, expected, expected_long } = bin;
            for count in [packets, lost, runs, starts, long, expected, expected_long] {
                *count *= self.keep;
            }
        }
    }

    /// The packets below a bin, or from it on.
    pub(super) fn sum(&self, bins: impl std::slice::SliceIndex<[Bin], Output = [Bin]>) -> Bin {
        let mut sum = Bin::default();
        self.bins[bins].iter().for_each(|bin| sum.add(bin));
        sum
    }

    /// Returns the delay from which losses are more frequent, by the greatest likelihood; `None` if there is
    /// no such delay.
    pub(super) fn edge(&self) -> Option<Edge> {
        let all = self.sum(..);
        let (mut below, mut best) = (Bin::default(), None::<Edge>);
        for (index, bin) in self.bins.iter().enumerate() {
            let above = all.without(&below);
            if above.runs < RUNS_MIN {
                break;
            }
            let contrasts =
                above.lost * below.packets.max(1.0) > CONTRAST * below.lost * above.packets.max(1.0);
            if delay_of(index) >= QUEUE_MIN_US
                && below.packets >= PACKETS_MIN
                && contrasts
                && surprise(&below, &above) >= SURPRISE_MIN
            {
                let evidence = gain([below.runs, below.starts], [above.runs, above.starts])
                    + gain([below.long, below.runs], [above.long, above.runs]);
                if best.is_none_or(|best| evidence >= best.evidence) {
                    best = Some(Edge { bin: index, evidence });
                }
            }
            below.add(bin);
        }
        best
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.bins)
    }
}

/// Logarithm of the likelihood ratio of the runs, and of the long ones among them, to those that are expected
/// if the losses of each moment do not depend on the delay; 0 if there are fewer above than expected.
fn surprise(below: &Bin, above: &Bin) -> f64 {
    let term = |seen: f64, expected: f64| {
        if seen > 0.0 { seen * (seen / expected.max(1e-3)).ln() } else { 0.0 }
    };
    let both = |read: fn(&Bin) -> (f64, f64)| {
        let ((low, low_expected), (high, high_expected)) = (read(below), read(above));
        if high > high_expected { term(low, low_expected) + term(high, high_expected) } else { 0.0 }
    };
    both(|bin| (bin.runs, bin.expected)) + both(|bin| (bin.long, bin.expected_long))
}

/// Logarithm of the likelihood ratio of two rates to one, each from a number of events and one of trials; 0
/// if the first rate is the greater.
fn gain(below: [f64; 2], above: [f64; 2]) -> f64 {
    if above[0] * below[1] <= below[0] * above[1] {
        return 0.0;
    }
    let sum = [below[0] + above[0], below[1] + above[1]];
    (likelihood(below) + likelihood(above) - likelihood(sum)).max(0.0)
}

/// Logarithm of the likelihood of events at the rate that fits them best.
fn likelihood([events, trials]: [f64; 2]) -> f64 {
    let rest = (trials - events).max(0.0);
    let term = |part: f64| if part > 0.0 { part * (part / trials).ln() } else { 0.0 };
    term(events) + term(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizon(bins: &[(u64, f64, f64)]) -> Horizon {
        let mut horizon = Horizon::new(60.0);
        for &(delay_us, packets, lost) in bins {
            let of_packets = packets / bins.iter().map(|bin| bin.1).sum::<f64>();
            let expected = of_packets * bins.iter().map(|bin| bin.2).sum::<f64>();
            horizon.bins[bin_of(delay_us)].add(&Bin {
                packets,
                lost,
                runs: lost,
                starts: packets,
                expected,
                ..Bin::default()
            });
        }
        horizon
    }

    #[test]
    fn bins_ascend_and_tell_delays_apart_by_a_sixteenth() {
        for delay_us in (0..6_000_000).step_by(777) {
            let bin = bin_of(delay_us);
            let (from_us, to_us) = (delay_of(bin), delay_of(bin + 1));
            assert!((from_us..to_us).contains(&delay_us), "{delay_us} in {from_us}..{to_us}");
            assert!(to_us - from_us <= (from_us / 16).max(256));
        }
        assert_eq!(bin_of(u64::MAX >> 1), BINS - 1);
    }

    #[test]
    fn the_edge_lies_where_losses_begin() {
        let full = horizon(&[(0, 900.0, 0.0), (50_000, 4_000.0, 1.0), (100_000, 500.0, 20.0)]);
        let edge = full.edge().unwrap();
        assert!(edge.bin == bin_of(100_000) && edge.evidence > 20.0, "{edge:?}");
    }

    #[test]
    fn a_link_that_is_bad_for_seconds_has_no_edge() {
        // All losses came while the delay was 50 ms, and with it as often as any packet of that moment.
        let mut horizon = Horizon::new(60.0);
        horizon.bins[0] = Bin { packets: 9_000.0, starts: 9_000.0, ..Bin::default() };
        let (packets, starts, lost, runs) = (900.0, 900.0, 90.0, 90.0);
        let of_queue = Bin { packets, starts, lost, runs, expected: 90.0, ..Bin::default() };
        horizon.bins[bin_of(50_000)] = of_queue;
        assert_eq!(horizon.edge(), None);
        horizon.bins[bin_of(50_000)].expected = 45.0;
        horizon.bins[0].expected = 45.0;
        assert!(horizon.edge().is_some());
    }

    /// A link loses one packet in a hundred, and a queue drops trains of packets: their number alone is that
    /// of the losses of the link.
    #[test]
    fn long_runs_of_losses_at_long_delays_are_those_of_a_queue() {
        let (packets, starts) = (20_000.0, 19_996.0);
        let link = Bin { packets, starts, lost: 204.0, runs: 200.0, expected: 205.0, ..Bin::default() };
        let full = Bin {
            packets: 9_000.0,
            lost: 4_500.0,
            runs: 50.0,
            starts: 4_550.0,
            long: 48.0,
            expected: 45.0,
            expected_long: 9.6,
        };
        let mut horizon = Horizon::new(60.0);
        (horizon.bins[0], horizon.bins[bin_of(90_000)]) = (Bin { expected_long: 38.4, ..link }, full);
        let edge = horizon.edge().unwrap();
        assert!(edge.bin <= bin_of(90_000) && edge.evidence > 50.0, "{edge:?}");
        // Bursts at all delays, and one long burst, are no queue.
        let bursts = Bin { lost: 10_000.0, starts: 10_200.0, long: 192.0, expected_long: 192.0, ..link };
        horizon.bins[0] = bursts;
        horizon.bins[bin_of(90_000)] = Bin { expected_long: 48.0, ..full };
        assert_eq!(horizon.edge().filter(|edge| edge.evidence > 12.0), None);
        horizon.bins[0] = Bin { expected_long: 0.6, ..link };
        horizon.bins[bin_of(90_000)] = Bin {
            packets: 3_000.0,
            lost: 530.0,
            runs: 30.0,
            starts: 2_500.0,
            long: 1.0,
            expected: 27.0,
            expected_long: 0.4,
        };
        assert_eq!(horizon.edge().filter(|edge| edge.evidence > 12.0), None);
    }

    #[test]
    fn losses_that_do_not_depend_on_the_delay_have_no_edge() {
        let even = horizon(&[(0, 900.0, 9.0), (50_000, 4_000.0, 43.0), (100_000, 500.0, 6.0)]);
        assert_eq!(even.edge(), None);
        // A single delay, and delays that the gateways themselves cause, show nothing.
        assert_eq!(horizon(&[(90_000, 9_000.0, 900.0)]).edge(), None);
        assert_eq!(horizon(&[(0, 9_000.0, 0.0), (600, 1_000.0, 90.0)]).edge(), None);
    }
}
