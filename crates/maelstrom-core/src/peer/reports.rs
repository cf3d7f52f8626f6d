//! Reports to the peer, and the peer's reports.

use super::{CALL_US, Peer};
use crate::controller::Plan;
use crate::counters::{Rejected, Unsent};
use crate::findings::Findings;
use crate::forecast::Forecast;
use crate::outbox::{Envelope, Outbox};
use crate::paths::Load;
use crate::wire::{LossReport, Report, SEALED_HEADER, TAG};

/// Interval between reports to a live peer, which also serve as signs of life.
const REPORT_US: u64 = 250_000;
/// Silence, as the peer reports it, up to which it hears us at present.
const HEARD_MS: u32 = 600;

/// The far report before there is one.
static NOTHING: Report = Report {
    loss: LossReport::NONE,
    findings: Findings::NONE,
    is_recovering: false,
    silence_ms: None,
    longest: 0,
    hold_ms: 0,
    echo: None,
    is_extra: false,
    is_congested: false,
    is_standing: false,
    plan: Plan::NONE,
    forecast: Forecast::NONE,
};

/// Occasion of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportKind {
    /// A sign of life, at regular intervals.
    Regular,
    /// Packets were lost, or the plan has changed.
    Extra,
    /// Padded to this length, in order to probe the path.
    Probe(usize),
}

impl Peer {
    /// The peer's last report of this session.
    pub(crate) fn far(&self) -> &Report {
        self.channel.far().unwrap_or(&NOTHING)
    }

    /// Takes the peer's report.
    ///
    /// # Errors
    /// [`Rejected::Impossible`] for counts that the peer cannot have: it lies, or the report was sent before
    /// it knew of the present stream.
    pub(super) fn on_report(&mut self, now_us: u64, report: Report) -> Result<(), Rejected> {
        if !report.is_possible(self.egress.next().0) {
            return Err(Rejected::Impossible);
        }
        if !report.is_extra {
            let is_heard = report.silence_ms.is_some_and(|ms| ms <= HEARD_MS);
            let sent = self.egress.take_longest();
            if report.is_standing {
                self.widths.on_full_queue(now_us);
            }
            if !self.paths.are_several() {
                self.widths.first().on_report(now_us, usize::from(report.longest), is_heard, sent);
            }
        }
        self.channel.on_report(now_us, report);
        self.ingress.set_rtt(self.rtt_us());
        self.ingress.set_plan(report.plan);
        self.is_plan_news |= self.egress.on_report(now_us, &report, self.rtt_us());
        self.update_thinning(now_us);
        self.update_up(now_us);
        Ok(())
    }

    /// The round trip of packets without queues. Reports, and the datagrams that they answer, take all paths,
    /// so that they show that of the fastest.
    pub(crate) fn rtt_us(&self) -> Option<u64> {
        self.paths.rtt_us().or(self.channel.rtt_us())
    }

    /// Time at which the next report is due.
    pub(super) fn report_due_us(&self) -> u64 {
        let losses = self.ingress.report_due_us().unwrap_or(u64::MAX);
        let plan = if self.is_plan_news { 0 } else { u64::MAX };
        self.next_report_us.min(losses).min(plan)
    }

    /// Sends the report that is due, if there is one.
    pub(super) fn send_due_report(&mut self, now_us: u64, out: &mut Outbox) {
        if self.session.is_none() || now_us < self.report_due_us() {
            return;
        }
        if now_us >= self.next_report_us {
            self.send_report(now_us, out);
        } else {
            self.send_report_as(now_us, ReportKind::Extra, out);
        }
    }

    /// Sends a regular report.
    pub(super) fn send_report(&mut self, now_us: u64, out: &mut Outbox) {
        self.next_report_us = now_us + if self.is_up { REPORT_US } else { CALL_US };
        self.send_report_as(now_us, ReportKind::Regular, out);
    }

    /// Sends a report at once.
    pub(super) fn send_report_as(&mut self, now_us: u64, kind: ReportKind, out: &mut Outbox) {
        let hold_ms = self.hold_ms();
        let Some(session) = &mut self.session else { return };
        let len_min = if let ReportKind::Probe(len) = kind { len } else { 0 };
        let len = (SEALED_HEADER + Report::LEN + TAG).max(len_min);
        let Some(datagram) = out.datagrams.reserve(len) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        self.is_plan_news = false;
        let forecast = self.ingress.take_forecast(now_us);
        let findings = self.ingress.findings();
        let has_paused = self.ingress.take_blindness() && findings.is_empty();
        let (silence_ms, longest) = self.channel.state(now_us, kind == ReportKind::Regular);
        let report = Report {
            loss: *self.ingress.report(),
            findings,
            is_recovering: self.ingress.is_recovering() && !has_paused,
            silence_ms,
            longest,
            hold_ms,
            is_extra: kind == ReportKind::Extra,
            is_congested: self.ingress.is_congested(),
            is_standing: self.ingress.is_standing(),
            echo: self.channel.echo(now_us),
            plan: self.egress.plan(),
            forecast,
        };
        report.write(&mut datagram[SEALED_HEADER..len - TAG]);
        session.sealer.seal(now_us, datagram);
        let paths = self.paths.on_sent(Load::Control, len + self.egress.outer());
        out.datagrams.commit(Envelope::to(self.index).by(paths), len);
    }
}
