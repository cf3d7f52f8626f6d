//! Recovered packets on their way to a WAN interface: how many were written, and how many did not arrive.

/// The packets of one TUN device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Packets that were written on all ways to the WAN interface.
    written: u64,
    /// Packets that arrived on earlier ways.
    arrived_before: u64,
    /// `written` at the latest check. These packets have had time to arrive by the next one.
    due: u64,
    /// Largest number of due packets that had not arrived at a check. It does not fall when some are late.
    missing: u64,
}

impl Arrivals {
    pub(crate) fn on_written(&mut self) {
        self.written += 1;
    }

    /// Notes the end of a way, on which this number of packets `arrived`.
    pub(crate) fn on_way_over(&mut self, arrived: u64) {
        self.arrived_before += arrived;
    }

    /// Compares what was written with what has `arrived` on the present way.
    pub(crate) fn check(&mut self, arrived: u64) {
        self.missing = self.missing.max(self.missing_of(self.due, arrived));
        self.due = self.written;
    }

    /// Packets that had not arrived at the checks.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// The same at the end of the device, after which nothing arrives.
    pub(crate) fn missing_at_end(&self, arrived: u64) -> u64 {
        self.missing.max(self.missing_of(self.written, arrived))
    }

    fn missing_of(&self, written: u64, arrived: u64) -> u64 {
        written.saturating_sub(self.arrived_before + arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_count_as_missing_a_check_later_and_the_count_does_not_fall() {
        let mut arrivals = Arrivals::default();
        let write = |arrivals: &mut Arrivals, count| (0..count).for_each(|_| arrivals.on_written());
        write(&mut arrivals, 10);
        arrivals.check(7);
        assert_eq!(arrivals.missing(), 0, "three are on their way");
        arrivals.check(8);
        assert_eq!(arrivals.missing(), 2);
        arrivals.check(10);
        assert_eq!(arrivals.missing(), 2, "two were late");
        arrivals.on_way_over(10);
        write(&mut arrivals, 5);
        arrivals.check(0);
        arrivals.check(1);
        assert_eq!((arrivals.missing(), arrivals.missing_at_end(1)), (4, 4));
        write(&mut arrivals, 2);
        assert_eq!((arrivals.missing_at_end(5), arrivals.missing_at_end(1)), (4, 6));
    }
}
