//! The forecast of an ingress, its knowledge about congestion, and the facts for both.

use super::Ingress;
use crate::congestion::{CongestionState, OnCongestion};
use crate::controller::Plan;
use crate::forecast::Forecast;
use crate::record::Record;
use crate::wire::SealedHeader;

impl Ingress {
    /// Passes on the fates that newly named packets reveal.
    pub(super) fn on_names(&mut self, now_us: u64) {
        let (reach, wait_us) = (&self.reach, self.held.wait_us());
        let is_ripe = |seq| reach.since_us(now_us, seq) + wait_us <= now_us;
        self.forecaster.advance(&self.arrivals, self.ledger.newest(), is_ripe, &mut self.congestion);
        self.forecaster.set_congested(self.congestion.is_leaving());
    }

    /// Notes a sealed datagram by its number in the session. `shown`: its path and time of arrival, if they
    /// show the queue.
    pub(crate) fn on_sealed(&mut self, header: &SealedHeader, shown: Option<(usize, u64)>) {
        if let Some((path, arrived_us)) = shown {
            self.congestion.on_datagram(arrived_us, path, header.sent);
        }
        self.forecaster.set_standing(self.congestion.is_standing());
        self.forecaster.set_congested(self.congestion.is_leaving());
        let lost = self.path.on_sealed(header);
        self.forecaster.on_sealed(lost);
    }

    /// Changes the treatment of packets that a full queue drops.
    pub(crate) fn set_on_congestion(&mut self, mode: OnCongestion) {
        self.congestion.set_mode(mode);
    }

    /// Whether packets that a full queue drops are left to their senders.
    pub(crate) fn is_congested(&self) -> bool {
        self.forecaster.is_congested()
    }

    /// Whether the queue that causes them stands full without a break.
    pub(crate) fn is_standing(&self) -> bool {
        self.congestion.is_standing()
    }

    /// Whether losses say nothing about the path of the packets: the far egress sends hardly any datagrams
    /// that would show whether the link loses them, and no repairs.
    pub(super) fn is_excused(&self) -> bool {
        self.forecaster.is_thin()
    }

    /// Notes whether the far gateway may name a sample of its packets only.
    pub(crate) fn set_far_thin(&mut self, is_thin: bool) {
        self.path.set_far_thin(is_thin);
    }

    /// Knowledge about the queue on the way.
    pub(crate) fn congestion(&self) -> CongestionState {
        self.congestion.state()
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

    /// Continues the record of an ingress with other settings.
    pub(crate) fn continue_record(&mut self, earlier: Self) {
        self.forecaster.continue_record(earlier.forecaster);
    }

    /// The losses since the gateway's start, of a peer that is gone.
    pub(crate) fn into_record(self) -> Record {
        self.forecaster.into_record()
    }

    /// The losses since the gateway's start, to which earlier ones may be added.
    pub(crate) fn record_mut(&mut self) -> &mut Record {
        self.forecaster.record_mut()
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
