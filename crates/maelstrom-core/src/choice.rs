//! The controller of one egress, with what the egress itself sees.

use fec::RepairRate;

use crate::caps::Refusal;
use crate::config::Config;
use crate::controller::{Controller, Decision, Plan, Situation};
use crate::deadlines::Deadlines;
use crate::pace::Pace;
use crate::schedule::Schedule;
use crate::sender::EgressCounts;
use crate::wire::Report;

/// Longest time in milliseconds that repairs get because the far gateway holds packets. TCP's senders repeat
/// a packet of which nothing was heard for 200 ms and a round trip.
const HOLD_MS_MAX: u16 = 200;

/// Time for which a sample of the loss of repairs says how the link is.
const SAMPLE_MAX_US: u64 = 2_000_000;

/// Chooses the code of one egress.
pub(crate) struct Choice {
    controller: Controller,
    situation: Situation,
    packets: Pace,
    /// Repairs and their bytes at the last tick.
    repairs: (u64, u64),
    /// Time of the last sample of the share of lost repairs.
    sampled_us: Option<u64>,
}

impl Choice {
    /// Begins with the start rate; `None` if the configuration fixes the code.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        matches!(config.schedule, Schedule::Auto).then(|| Self {
            controller: Controller::new(config.targets),
            situation: Situation::default(),
            packets: Pace::default(),
            repairs: (0, 0),
            sampled_us: None,
        })
    }

    /// Continues an egress that had another code. Repairs fit the path from the rate `floor` on, which is
    /// told only when it changes.
    #[must_use]
    pub(crate) fn continuing(mut self, counts: &EgressCounts, floor: RepairRate) -> Self {
        self.situation.floor = Some(floor);
        self.controller.begin_within(self.situation);
        self.packets.begin_at(counts.source_packets);
        self.repairs = (counts.repairs, counts.repair_bytes);
        self
    }

    /// Takes the targets of another configuration.
    #[must_use]
    pub(crate) fn reconfigured(mut self, config: &Config) -> Self {
        self.controller.set_targets(config.targets);
        self
    }

    /// Changes the number of products for each packet that the processor has time for.
    pub(crate) fn set_products(&mut self, products: u16) {
        self.controller.set_products(products);
    }

    pub(crate) fn decision(&self) -> &Decision {
        self.controller.decision()
    }

    pub(crate) fn plan(&self) -> Plan {
        self.controller.plan()
    }

    /// Knowledge of the link.
    pub(crate) fn memory(&self) -> Vec<u64> {
        self.controller.memory()
    }

    /// Takes what another process knew of the link when it had this report.
    pub(crate) fn recall(&mut self, now_us: u64, numbers: &[u64], report: &Report) {
        self.controller.recall(now_us, numbers, report);
    }

    /// Notes that the counts in the peer's reports begin again.
    pub(crate) fn on_restart(&mut self) {
        self.controller.restart();
    }

    /// Takes the lowest rate whose repairs fit the path.
    pub(crate) fn on_floor(&mut self, now_us: u64, floor: RepairRate) {
        self.situation.floor = Some(floor);
        self.controller.decide(now_us, self.situation);
    }

    /// Takes the share of repairs that the link loses.
    pub(crate) fn set_repair_loss(&mut self, now_us: u64, share: f64) {
        (self.situation.repair_loss, self.sampled_us) = (share, Some(now_us));
    }

    /// Notes that nothing is known of the loss of repairs.
    pub(crate) fn forget_repair_loss(&mut self) {
        (self.situation.repair_loss, self.sampled_us) = (0.0, None);
    }

    /// Takes the peer's report, and the round trip to the peer.
    pub(crate) fn on_report(&mut self, now_us: u64, report: &Report, rtt_us: Option<u64>) {
        self.situation.rtt_us = rtt_us;
        self.situation.hold_us = 1_000 * u64::from(report.hold_ms.min(HOLD_MS_MAX));
        self.controller.on_report(now_us, report, self.situation);
    }

    /// Whether the controller asks to thin protection.
    pub(crate) fn wants_thin(&self) -> bool {
        self.controller.wants_thin()
    }

    /// Notes that the egress protects all packets from here on, or names a sample of them. The pace of its
    /// packets does not hold any more.
    pub(crate) fn on_thinning(&mut self, is_thin: bool) {
        self.controller.set_thin(is_thin);
        self.packets.restart();
        self.situation.per_second = 0;
    }

    /// Takes what the caps of the operator refused lately.
    pub(crate) fn set_refusal(&mut self, refusal: Option<Refusal>) {
        self.situation.refusal = refusal;
    }

    /// Must be called ten times a second.
    pub(crate) fn on_tick(&mut self, now_us: u64, counts: &EgressCounts, deadlines: Deadlines) {
        self.situation.deadlines = deadlines;
        if self.sampled_us.is_some_and(|us| now_us >= us + SAMPLE_MAX_US) {
            // In an outage no report comes, and the last sample says nothing about the link after it.
            self.forget_repair_loss();
        }
        self.packets.on_tick(counts.source_packets);
        self.situation.per_second = self.packets.per_second();
        // A repair that is cut in two leaves in two datagrams.
        let repairs = counts.repairs - self.repairs.0;
        if let Some(bytes) = (counts.repair_bytes - self.repairs.1).checked_div(repairs) {
            self.situation.repair_bytes = bytes;
        }
        self.repairs = (counts.repairs, counts.repair_bytes);
        self.controller.decide(now_us, self.situation);
    }
}
