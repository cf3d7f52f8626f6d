//! State and counts of an ingress, for status and reports, and corrections of them by the driver.

use fec::Term;
use hdrhistogram::Histogram;

use super::halves::HALVES;
use super::{Ingress, IngressCounts};
use crate::counters::{Uninjected, WithheldCounts};
use crate::findings::Findings;
use crate::wire::LossReport;
use foundation::Seq;

impl Ingress {
    /// Losses of this session.
    pub(crate) fn report(&self) -> &LossReport {
        self.ledger.report()
    }

    /// Losses since the gateway's start.
    pub(crate) fn losses(&self) -> LossReport {
        self.earlier.plus(self.ledger.report())
    }

    /// Time at which the latest packet of this session that stayed lost was missed.
    pub(crate) fn missed_us(&self) -> Option<u64> {
        self.ledger.missed_us()
    }

    /// Takes the report that the driver could not inject the packet of a place.
    pub(crate) fn on_uninjected(&mut self, seq: Seq, reason: Uninjected) {
        if self.arrivals.on_uninjected(seq) {
            self.counts.recovered_packets -= 1;
            self.counts.uninjected.add(reason);
        }
    }

    pub(crate) fn counts(&self) -> &IngressCounts {
        &self.counts
    }

    /// Differences from the configuration on the path from the far site.
    pub(crate) fn findings(&self) -> Findings {
        self.path.findings()
    }

    /// Whether solved packets are injected, as far as the path is concerned.
    pub(crate) fn is_recovering(&self) -> bool {
        self.path.is_recovering()
    }

    /// Whether recovery has paused since the last call, or does so now.
    pub(crate) fn take_blindness(&mut self) -> bool {
        self.sight.take_blindness()
    }

    /// Counts of solved packets that were not injected, by reason.
    pub(crate) fn withheld(&self) -> &WithheldCounts {
        self.path.withheld()
    }

    pub(crate) fn delays_us(&self) -> &Histogram<u64> {
        &self.delays_us
    }

    /// Takes the time by which repairs come later than their packets, because they take a slower path.
    pub(crate) fn set_repair_lag(&mut self, lag_us: u64) {
        self.rung.set_lag(lag_us);
    }

    /// Takes the time by which packets may be overtaken by others, because several paths carry them.
    pub(crate) fn set_overtaken(&mut self, overtaken_us: u64) {
        self.held.set_overtaken(overtaken_us);
    }

    pub(crate) fn newest(&self) -> Seq {
        self.ledger.newest()
    }

    /// Present time that a repair waits for packets it misses.
    pub(crate) fn wait_us(&self) -> u64 {
        self.held.wait_us()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.arrivals.memory_bytes()
            + self.decoder.memory_bytes()
            + self.held.memory_bytes()
            + self.path.memory_bytes()
            + self.forecaster.memory_bytes()
            + self.congestion.memory_bytes()
            + self.rung.memory_bytes()
            + self.terms.capacity() * size_of::<Term>()
            + self.symbol_max * (2 + HALVES)
    }
}
