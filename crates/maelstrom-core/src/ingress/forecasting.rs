//! The forecast of an ingress, and what feeds it.

use super::Ingress;
use crate::controller::Plan;
use crate::forecast::Forecast;
use crate::record::Record;
use crate::wire::SealedHeader;

impl Ingress {
    /// Passes on the fates that newly named packets reveal.
    pub(super) fn on_names(&mut self, now_us: u64) {
        let (reach, wait_us) = (&self.reach, self.held.wait_us());
        let is_ripe = |seq| reach.since_us(now_us, seq) + wait_us <= now_us;
        self.forecaster.advance(&self.arrivals, self.ledger.newest(), is_ripe);
    }

    /// Notes a sealed datagram by its number in the session.
    pub(crate) fn on_sealed(&mut self, header: &SealedHeader) {
        let lost = self.path.on_sealed(header);
        self.forecaster.on_sealed(lost);
    }

    /// Takes the far egress' plan.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        self.forecaster.set_plan(plan);
    }

    /// Time at which the far egress must hear of losses, if there are any.
    pub(crate) fn report_due_us(&self) -> Option<u64> {
        self.forecaster.report_due_us()
    }

    /// Returns the forecast for a report that leaves.
    pub(crate) fn take_forecast(&mut self, now_us: u64) -> Forecast {
        self.forecaster.on_report(now_us);
        self.forecaster.counts()
    }

    /// The losses since the gateway's start.
    pub(crate) fn record(&self) -> &Record {
        self.forecaster.record()
    }

    /// Number of packets per second while there is traffic.
    pub(crate) fn per_second(&self) -> u64 {
        self.forecaster.per_second()
    }
}
