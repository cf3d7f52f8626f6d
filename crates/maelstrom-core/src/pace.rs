//! Packets per second while there is traffic.

/// Number of ticks in a second.
const TICKS: usize = 10;

/// Counts by tick of a tenth of a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    ticks: [u64; TICKS],
    at: usize,
    total: u64,
    per_second: u64,
}

impl Pace {
    /// Takes the total number so far. Must be called ten times a second. Returns whether another second
    /// begins.
    pub(crate) fn on_tick(&mut self, total: u64) -> bool {
        // A total that falls begins again.
        self.ticks[self.at] = total.saturating_sub(self.total);
        self.total = total;
        self.at = (self.at + 1) % TICKS;
        let busy = self.ticks.iter().filter(|&&count| count > 0).count() as u64;
        let per_second = (self.ticks.iter().sum::<u64>() * TICKS as u64).checked_div(busy);
        self.per_second = per_second.unwrap_or(self.per_second);
        self.at == 0
    }

    /// Begins with this total.
    pub(crate) fn begin_at(&mut self, total: u64) {
        *self = Self { total, ..Self::default() };
    }

    /// Forgets the pace. The total continues.
    pub(crate) fn restart(&mut self) {
        self.begin_at(self.total);
    }

    /// Number in a second, by the ticks with traffic within the last second that had any; 0 before the first.
    pub(crate) fn per_second(&self) -> u64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_without_traffic_do_not_count() {
        let mut pace = Pace::default();
        assert_eq!(pace.per_second(), 0);
        let begun: Vec<bool> = (1..=20).map(|tick| pace.on_tick(tick * 5)).collect();
        assert_eq!(begun.iter().filter(|&&begun| begun).count(), 2);
        assert_eq!(pace.per_second(), 50);
        (0..15).for_each(|_| _ = pace.on_tick(100));
        assert_eq!(pace.per_second(), 50, "traffic that pauses continues at the same pace");
        pace.on_tick(120);
        pace.on_tick(140);
        assert_eq!(pace.per_second(), 200);
    }
}
