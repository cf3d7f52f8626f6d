//! The code of an egress, chosen by what the far gateway reports of the link.

use fec::RepairRate;

use super::Egress;
use crate::choice::Choice;
use crate::controller::{Decision, Plan};
use crate::wire::Report;

impl Egress {
    /// The rate that was chosen; `None` if the configuration fixes the code.
    fn auto_rate(&self) -> Option<RepairRate> {
        self.decision().map(|decision| decision.rate)
    }

    /// The choice and its reason; `None` if the configuration fixes the code.
    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.auto.as_ref().map(Choice::decision)
    }

    pub(super) fn apply_rate(&mut self) {
        if let Some(&Decision { rate, window, stripes, .. }) = self.decision() {
            self.coder.set_rate(rate);
            self.coder.set_window(window, stripes);
        }
    }

    /// Chooses among the rates whose repairs fit the path.
    pub(super) fn on_floor(&mut self, now_us: u64) {
        if let Some(auto) = &mut self.auto {
            auto.on_floor(now_us, self.floor.rate());
        }
        self.apply_rate();
    }

    /// Takes a possible report of the peer ([`Report::is_possible`]), and the round trip to the peer; returns
    /// whether the rate changes.
    pub(crate) fn on_report(&mut self, now_us: u64, report: &Report, rtt_us: Option<u64>) -> bool {
        let before = self.auto_rate();
        let shortest_us = rtt_us.unwrap_or(0);
        self.quiet.set_rtt(rtt_us);
        let elapsed_us = report.echo.map_or(shortest_us, |echo| echo.sent.until_us(now_us));
        let sent_us = now_us.saturating_sub(elapsed_us);
        if let Some(loss) = self.sender.loss.on_report(sent_us, report.loss.repairs) {
            self.repair_loss = loss;
            self.coder.set_steady_loss(self.sender.loss.steady());
            self.adapt_to_missing_repairs();
            self.auto.iter_mut().for_each(|auto| auto.set_repair_loss(now_us, loss));
        }
        if let Some(auto) = &mut self.auto {
            auto.on_report(now_us, report, rtt_us);
        }
        self.answers.set_rtt(rtt_us);
        self.follow_lone_repairs(now_us);
        self.apply_rate();
        self.auto_rate() != before
    }

    /// Changes the number of products for each packet that the processor has time for.
    pub(crate) fn set_products(&mut self, products: u16) {
        if let Some(auto) = &mut self.auto {
            auto.set_products(products);
        }
    }

    /// Must be called ten times a second. Returns whether the rate changes.
    pub(crate) fn on_tick(&mut self, now_us: u64) -> bool {
        self.answers.expire(now_us);
        self.sender.loss.on_tick(now_us);
        let refused = self.sender.caps.refusal();
        self.sender.caps.on_tick();
        if self.sender.caps.refusal() != refused {
            self.adapt_to_missing_repairs();
        }
        let before = self.auto_rate();
        if let Some(auto) = &mut self.auto {
            auto.set_refusal(self.sender.caps.refusal());
            auto.on_tick(now_us, &self.sender.counts, self.deadlines.present());
        }
        self.follow_lone_repairs(now_us);
        self.apply_rate();
        self.auto_rate() != before
    }

    /// Notes that the counts in the peer's reports begin again.
    pub(crate) fn on_far_restart(&mut self) {
        if let Some(auto) = &mut self.auto {
            auto.on_restart();
        }
    }

    /// The code and its limits, for the peer.
    pub(crate) fn plan(&self) -> Plan {
        let plan = self.auto.as_ref().map_or_else(|| Plan::of(self.coder.code()), Choice::plan);
        Plan { is_thin: self.thinning.is_on(), ..plan }
    }

    /// Whether the controller asks to thin protection, and no class has a rate that the operator states.
    pub(crate) fn wants_thin(&self, now_us: u64) -> bool {
        let is_wanted = self.auto.as_ref().is_some_and(Choice::wants_thin);
        // In a tunnel nothing is ever taken for lost that is not.
        is_wanted && now_us >= self.rated_until_us && !self.is_tunnel
    }

    /// Notes that nothing is known of the loss of repairs.
    pub(super) fn forget_repair_loss(&mut self) {
        self.sender.loss.forget();
        self.repair_loss = 0.0;
        self.adapt_to_missing_repairs();
        self.auto.iter_mut().for_each(Choice::forget_repair_loss);
    }
}
