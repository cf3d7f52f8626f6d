//! The last runs of losses, from which the state of a changing link is estimated.

/// Number of runs over which loss and burst length are averaged.
pub const RUNS: usize = 32;
/// Longest run that counts in the averages. A longer one is an outage, which hardly any window recovers, and
/// one among [`RUNS`] would make all losses look like long bursts.
const RUN_MAX: u32 = 128;

/// A loss rate and a mean burst length: Gilbert's model of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Packets since the first of the last [`RUNS`] runs of losses; 0 if there were fewer runs.
    pub packets: u32,
    /// Lost packets among them.
    pub lost: u32,
}

impl Fit {
    /// Share of lost packets, and mean number of consecutive losses, if there were enough runs.
    pub fn estimate(self) -> Option<(f64, f64)> {
        (self.lost as usize >= RUNS && self.lost <= self.packets)
            .then(|| (f64::from(self.lost) / f64::from(self.packets), f64::from(self.lost) / RUNS as f64))
    }
}

/// Remembers where the last runs of losses began.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// Position of each run's first packet, and the number of losses before it, both without outages.
    starts: [(u64, u64); RUNS],
    /// The start that the present run has replaced.
    replaced: (u64, u64),
    /// Number of runs, without outages.
    count: u64,
    position: u64,
    lost: u64,
    /// Number of packets of outages, all of which were lost.
    outages: u64,
    /// Length of the present run.
    length: u32,
    /// Longest run in the present period, and in the one before it.
    longest: [u32; 2],
}

impl Runs {
    /// Takes the next `count` packets, all of which have arrived.
    pub fn on_arrived(&mut self, count: u64) {
        self.length = if count > 0 { 0 } else { self.length };
        self.position += count;
    }

    /// Takes the next packet, which is lost.
    pub fn on_lost(&mut self) {
        if self.length == 0 {
            let start = (self.position - self.outages, self.lost - self.outages);
            self.replaced = std::mem::replace(&mut self.starts[self.count as usize % RUNS], start);
            self.count += 1;
        }
        self.length = self.length.saturating_add(1);
        self.longest[0] = self.longest[0].max(self.length);
        self.lost += 1;
        self.position += 1;
        if self.length > RUN_MAX {
            self.on_outage();
        }
    }

    /// Notes that the present run has become longer than those of the averages.
    fn on_outage(&mut self) {
        self.outages += 1;
        if self.length == RUN_MAX + 1 {
            self.outages += u64::from(RUN_MAX);
            // The run may have begun before the runs were forgotten.
            self.count = self.count.saturating_sub(1);
            self.starts[self.count as usize % RUNS] = self.replaced;
        }
    }

    /// Forgets the runs. The totals continue.
    pub fn forget(&mut self) {
        (self.count, self.length, self.longest) = (0, 0, [0; 2]);
    }

    /// Number of packets, and of lost ones among them.
    pub fn totals(&self) -> (u64, u64) {
        (self.position, self.lost)
    }

    /// Estimates the link by the last runs.
    pub fn fit(&self) -> Fit {
        if self.count < RUNS as u64 {
            return Fit::default();
        }
        let (position, lost) = self.starts[self.count as usize % RUNS];
        let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let packets = self.position - self.outages - position;
        Fit { packets: narrow(packets), lost: narrow(self.lost - self.outages - lost) }
    }

    /// Begins another period for [`Runs::longest`], if there were losses in this one.
    pub fn begin_period(&mut self) {
        if self.longest[0] > 0 {
            self.longest = [self.length, self.longest[0]];
        }
    }

    /// Longest run of this period and of the last one with losses.
    pub fn longest(&self) -> u32 {
        self.longest[0].max(self.longest[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_runs_give_loss_and_burst_length() {
        let mut runs = Runs::default();
        let burst = |runs: &mut Runs, gap, len| {
            runs.on_arrived(gap);
            (0..len).for_each(|_| runs.on_lost());
        };
        (0..31).for_each(|_| burst(&mut runs, 99, 1));
        assert_eq!(runs.fit().estimate(), None, "too few runs");
        (0..33).for_each(|_| burst(&mut runs, 99, 1));
        let (loss, length) = runs.fit().estimate().unwrap();
        assert!((loss - 0.0103).abs() < 1e-4 && length == 1.0, "{loss} {length}");
        // Only the last runs count.
        (0..32).for_each(|_| burst(&mut runs, 12, 4));
        let (loss, length) = runs.fit().estimate().unwrap();
        assert!((loss - 0.256).abs() < 2e-3 && length == 4.0, "{loss} {length}");
        assert_eq!(runs.totals(), (64 * 100 + 32 * 16, 64 + 128));
    }

    #[test]
    fn an_outage_among_the_last_runs_makes_no_long_bursts() {
        let mut runs = Runs::default();
        let mut burst = |gap, len| {
            runs.on_arrived(gap);
            (0..len).for_each(|_| runs.on_lost());
            runs.fit()
        };
        let before = (0..40).map(|_| burst(99, 1)).last().unwrap();
        assert_eq!(burst(0, 127), Fit { packets: before.packets + 127, lost: before.lost + 127 });
        assert_eq!(burst(0, 1), Fit { packets: 3_200, lost: 32 }, "the last run does not count any more");
        burst(0, 1_000);
        for _ in 0..31 {
            burst(99, 1);
        }
        let (loss, length) = burst(99, 1).estimate().unwrap();
        assert!((loss - 0.0103).abs() < 1e-4 && length == 1.0, "{loss} {length}");
        assert_eq!(runs.totals().1, 39 + 1_128 + 32 + 1);
        assert_eq!(runs.longest(), 1_129);
    }

    #[test]
    fn the_longest_run_is_forgotten_after_two_periods() {
        let mut runs = Runs::default();
        (0..9).for_each(|_| runs.on_lost());
        runs.on_arrived(1);
        runs.begin_period();
        runs.on_lost();
        assert_eq!(runs.longest(), 9);
        runs.begin_period();
        assert_eq!(runs.longest(), 1);
        runs.on_arrived(1);
        runs.begin_period();
        assert_eq!(runs.longest(), 1, "a period without losses does not count");
    }
}
