//! The choice of the repair rate at an egress: the lowest rate that leaves no more lost packets than wanted.
//!
//! The far ingress counts what each rate of the ladder would have left (`crate::forecast`), and reports the
//! counts. A rate suffices if three predictions are within the target: the tail of the counts over the last
//! minute, the same over the last second, and, while the link gets worse, Gilbert's model of the last bursts
//! (`fit.rs`). Going down takes a prediction of half the target. Where repairs do not help, the rate rests at
//! the floor (`useless.rs`), and where a queue stands full besides, most packets get none (`thin.rs`).

mod evidence;
mod fit;
mod history;
mod limit;
mod memory;
mod plan;
mod reach;
mod reason;
mod situation;
mod thin;
mod useless;

pub use limit::Limit;
pub use plan::{Plan, SPAN_MIN, Shape, WINDOW_MIN, window};
pub(crate) use reason::Percent;
pub use situation::{Situation, Targets};

use fec::RepairRate;

use crate::auto::{LADDER, START, WINDOW};
use crate::caps::{self, Refusal};
use crate::forecast::{Fit, Forecast};
use crate::wire::{LossReport, Report};
use evidence::Evidence;
use history::{Counts, History, Settled, outage_of};
use reach::Reach;
use thin::{Change, Facts, Thin};
use useless::Useless;

/// Number of products for each packet that a window may take at most: windows have 512 packets at any rate.
pub const PRODUCTS: u16 = WINDOW;
/// Number of packets that show what a link is like, at least.
const PACKETS_MIN: u64 = 1_000;
/// Time after which fewer packets do.
const PATIENCE_US: u64 = 60_000_000;
/// Factor by which the last bursts exceed the loss of the last minute while a link gets worse.
const WORSE: f64 = 1.5;
/// Time for which the last bursts say how the link is.
const RECENT_S: u64 = 30;
/// Time of a fate behind its packet beside the round trip: the next repairs, and the report.
const NEWS_US: u64 = 150_000;
/// Number of packets, and time, after which the far gateway settles the fate of a packet, about.
const SETTLED: u64 = 12_288;
const SETTLED_US: u64 = 1_100_000;
/// Share of lost repairs above which a full queue has no room for them.
const MOST_LOST: f64 = 0.5;
/// Number of reports with counts that fall after which the counts begin again.
const STALE_MAX: u32 = 8;

/// A rate, and what speaks for it. Displayed as a sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Repairs per packet.
    pub rate: RepairRate,
    /// Number of packets that a repair reaches back.
    pub window: u16,
    /// Number of stripes of the window, of which a repair contains one.
    pub stripes: u8,
    /// Longest burst of packets, and of the repairs between them, that any allowed code recovers: with the
    /// longest window since the targets were set, at the highest rate at present. 0 until that is known.
    pub longest_burst: u16,
    /// Whether the processor has no time for more packets in a repair.
    pub is_short: bool,
    /// Reason why the rate is not another one.
    pub limit: Limit,
    /// Share of packets that the link loses.
    pub loss: f64,
    /// Longest run of losses lately.
    pub burst: u16,
    /// Predicted share of packets that stay lost.
    pub residual: f64,
    /// The next lower rate that is allowed, and the share of packets that it would leave.
    pub lower: Option<(RepairRate, f64)>,
    /// Output that the caps of the operator refused lately.
    pub refusal: Option<Refusal>,
    /// Whether only a sample of the packets gets names, and none a repair ([`crate::thinning`]), by what the
    /// egress has told ([`Controller::set_thin`]).
    pub is_thin: bool,
}

impl Decision {
    pub(crate) const START: Self = Self {
        rate: START,
        window: WINDOW,
        stripes: 1,
        longest_burst: 0,
        is_short: false,
        limit: Limit::Unknown,
        loss: 0.0,
        burst: 0,
        residual: 0.0,
        lower: None,
        refusal: None,
        is_thin: false,
    };
}

/// Chooses the rate of one egress.
#[derive(Clone, Debug)]
pub struct Controller {
    targets: Targets,
    history: History,
    useless: Useless,
    thin: Thin,
    /// Index of the rate that the forecasts call for.
    wanted: usize,
    decision: Decision,
    situation: Situation,
    /// Number of products for each packet that the processor has time for.
    products: u16,
    reach: Reach,
    last: (Forecast, LossReport),
    /// Whether the session goes on from before the first report, which then only shows where counts begin.
    begins_amid: bool,
    /// Time of the first report.
    since_us: Option<u64>,
    stale: u32,
    /// Whether packets that a full queue drops were left at the last report, and whether that queue stood
    /// full.
    is_congested: bool,
    is_standing: bool,
    /// Longest window that was allowed since the targets were set.
    longest_window: u16,
    /// Longest number of packets in the last minute or two after which a loss was given up, and its time.
    longest_span: (u64, u64),
}

/// Range of indices on the ladder, and what limits it above.
#[derive(Clone, Copy, Debug)]
struct Range {
    floor: usize,
    cap: usize,
    limit: Limit,
}

/// Time after which the far gateway settles the fate of a packet.
fn settled_us(situation: Situation) -> u64 {
    (SETTLED * 1_000_000 / situation.per_second.max(1)).min(SETTLED_US)
}

impl Controller {
    /// Begins with the start rate.
    pub fn new(targets: Targets) -> Self {
        Self {
            targets,
            history: History::new(),
            useless: Useless::new(),
            thin: Thin::new(),
            wanted: index_of(START),
            decision: Decision::START,
            situation: Situation::default(),
            products: PRODUCTS,
            reach: Reach::START,
            last: (Forecast::default(), LossReport::NONE),
            begins_amid: false,
            since_us: None,
            stale: 0,
            is_congested: false,
            is_standing: false,
            longest_window: 0,
            longest_span: (0, 0),
        }
    }

    /// Begins amid a session, with a rate that the path and the operator allow.
    pub fn begin_within(&mut self, situation: Situation) {
        (self.situation, self.begins_amid) = (situation, true);
        let Range { floor, cap, .. } = self.range();
        self.wanted = self.wanted.clamp(floor, cap);
        self.decision.rate = LADDER[self.wanted];
        let shape = self.plan().shape(self.decision.rate);
        (self.decision.window, self.decision.stripes) = (shape.packets, shape.stripes);
    }

    /// Changes the targets; what is known of the link stays.
    pub fn set_targets(&mut self, targets: Targets) {
        self.targets = targets;
        (self.longest_window, self.decision.longest_burst) = (0, 0);
    }

    /// Changes the number of products for each packet that the processor has time for.
    pub fn set_products(&mut self, products: u16) {
        self.products = products.min(PRODUCTS);
    }

    /// Notes that the counts of reports begin at 0 again. The link is the same.
    pub fn restart(&mut self) {
        self.last = (Forecast::default(), LossReport::NONE);
        (self.stale, self.begins_amid) = (0, false);
    }

    /// The present choice.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether protection should be thinned. The egress need not follow, nor at once.
    pub fn wants_thin(&self) -> bool {
        self.thin.is_on()
    }

    /// Notes whether protection is thinned in fact.
    pub fn set_thin(&mut self, is_thin: bool) {
        self.decision.is_thin = is_thin;
    }

    /// The plan to report.
    pub fn plan(&self) -> Plan {
        let late_us = self.late_us();
        Plan {
            rate: self.decision.rate,
            window: self.decision.window,
            products: self.products.min(self.reach.products),
            window_max: self.reach.window_max,
            late_us: late_us.map_or(0, |late_us| u32::try_from(late_us).unwrap_or(u32::MAX)),
            is_auto: true,
            is_striped: self.reach.is_striped,
            is_thin: false,
        }
    }

    /// The deadline that all packets meet if repairs meet it, once it is known.
    fn late_us(&self) -> Option<u64> {
        self.situation.deadlines.shortest_us(self.usual_late_us())
    }

    /// The deadline of packets that have none of their own, once it is known.
    fn usual_late_us(&self) -> Option<u64> {
        let Situation { rtt_us, hold_us, .. } = self.situation;
        self.targets.late_us.or(rtt_us.map(|rtt_us| hold_us.max(rtt_us / 4)))
    }

    /// Takes the peer's report and what the egress sees; decides.
    pub fn on_report(&mut self, now_us: u64, report: &Report, situation: Situation) {
        let (forecast, loss) = (&report.forecast, &report.loss);
        let is_base = std::mem::take(&mut self.begins_amid);
        let is_stale = !is_base
            && (forecast.packets.wrapping_sub(self.last.0.packets) > u32::MAX / 2
                || loss.named < self.last.1.named
                || loss.lost < self.last.1.lost);
        // Without findings it only pauses.
        let is_closed = !report.is_recovering && !report.findings.is_empty();
        if is_stale && self.stale < STALE_MAX {
            // It was overtaken by another one, or the far gateway has begun again.
            self.stale += 1;
            return;
        }
        if !is_stale && !is_base {
            let span = self.plan().longest_span(situation.per_second);
            let plan = self.plan();
            let outage = outage_of(window(plan.products, RepairRate::THREE_EIGHTHS, plan.window_max));
            let last = (&self.last.0, &self.last.1);
            let mut counts = Counts::between(last, (forecast, loss), outage, is_closed);
            counts.span = span;
            self.history.add(now_us, &counts);
        }
        (self.last, self.stale) = ((*forecast, *loss), 0);
        if report.is_congested && !self.is_congested {
            // Losses that counted before the queue was known need no repairs.
            self.history = History::new();
        }
        self.is_congested = report.is_congested;
        self.is_standing = report.is_standing;
        if !report.is_recovering && !is_closed {
            // Repairs are of no use only where the path differs for good.
            self.useless.on_unused(now_us, situation.rtt_us.unwrap_or(0) + NEWS_US + settled_us(situation));
        }
        if self.since_us.is_none() {
            self.since_us = Some(now_us);
            self.useless.on_rise(now_us, situation.rtt_us.unwrap_or(0) + NEWS_US);
        }
        self.decide(now_us, situation);
    }

    /// Takes what the egress sees; decides.
    pub fn decide(&mut self, now_us: u64, situation: Situation) {
        self.situation = situation;
        let stated_us = situation.deadlines.longest_us(self.targets.late_us);
        self.reach.update(situation.per_second, self.late_us(), stated_us);
        let is_known = self.usual_late_us().is_some() || !situation.deadlines.has_usual;
        let longest_us = situation.deadlines.longest_us(self.usual_late_us()).filter(|_| is_known);
        self.reach.bound(situation.per_second, longest_us);
        self.note_longest_burst();
        self.history.add(now_us, &Counts::default());
        let delay_us = situation.rtt_us.unwrap_or(0) + NEWS_US;
        let range = self.range();
        self.update_thin(now_us, range, delay_us);
        let span = self.update_span(now_us);
        let (fast, slow) = (self.history.fast(), self.history.slow(range.cap, span));
        self.useless.on_settled(now_us, fast.settled, delay_us, self.may_rest(&fast, range));
        self.useless.on_repair_loss(now_us, situation.repair_loss, delay_us);
        if !self.is_standing {
            let latest = self.history.latest();
            self.useless.on_losses_of_link(now_us, latest.lost, latest.loss(), delay_us);
        }
        let is_young = self.history.is_young();
        // Counts of faster traffic, whose packets could wait for more repairs, promise too much.
        let is_estimated = is_young || self.history.is_slower(span);
        let estimate = self.last.0.fit.estimate();
        let evidence = Evidence {
            bursts: self.worse(&slow).filter(|_| fast.lost > 0).or(estimate.filter(|_| is_estimated)),
            is_vague: is_young && slow.lost > 0 && estimate.is_none(),
            fast,
            slow,
            spans: self.plan().spans(situation.per_second),
            stripes: self.plan().stripes(),
        };
        let mut decision = self.choose(now_us, &evidence, range);
        if self.useless.is_resting(now_us) {
            (decision.rate, decision.limit) = (LADDER[range.floor], Limit::Useless);
        }
        let shape = self.plan().shape(decision.rate);
        (decision.window, decision.stripes) = (shape.packets, shape.stripes);
        let most = Plan { products: self.reach.products, ..self.plan() }.shape(decision.rate);
        decision.is_short = shape.terms() < most.terms();
        decision.refusal = situation.refusal;
        if decision.rate > self.decision.rate {
            self.useless.on_rise(now_us, delay_us + settled_us(situation));
        }
        self.decision = decision;
    }

    /// Whether repairs of the present rate may count as useless: not if the operator allows these losses, not
    /// if most of them were those of a full queue, nor at the lowest rate. A rest there would save nothing,
    /// and would keep the rate from rising.
    fn may_rest(&self, fast: &Counts, range: Range) -> bool {
        let Settled { packets, lost, residual, .. } = fast.settled;
        let of_link = 2 * u128::from(fast.lost) >= u128::from(lost);
        let is_allowed = residual as f64 <= self.targets.residual * packets as f64;
        self.decision.rate > LADDER[range.floor] && of_link && !is_allowed
    }

    /// Decides whether protection is thinned. When it returns, nothing is known of the link but its losses.
    fn update_thin(&mut self, now_us: u64, range: Range, delay_us: u64) {
        let fast = self.history.fast();
        let facts = Facts {
            is_standing: self.is_standing,
            is_useless: useless::are_useless(&fast.settled) || self.situation.repair_loss > MOST_LOST,
            is_starved: self.useless.is_starved(now_us),
            is_lowest: self.decision.rate <= LADDER[range.floor],
            packets: fast.packets,
            lost: fast.lost,
            loss: fast.loss(),
        };
        let change = self.thin.update(now_us, &facts);
        if matches!(change, Some(Change::Losses | Change::Ebb)) {
            self.useless.end_rest(now_us, delay_us);
            self.history = History::new();
        }
        if change == Some(Change::Losses) {
            self.wanted = index_of(START).clamp(range.floor, range.cap);
        }
    }

    /// Returns the largest number of packets after which a candidate gives a loss up. Where traffic has
    /// become far faster than in the last minute, these are far more, and rare batches have to show again.
    fn update_span(&mut self, now_us: u64) -> u64 {
        let span = self.plan().longest_span(self.situation.per_second);
        let (longest, since_us) = self.longest_span;
        if self.situation.per_second > 0 {
            let is_longer = 2 * span >= 3 * longest;
            if is_longer && longest > 0 {
                self.history.begin();
            }
            if is_longer || now_us >= since_us + PATIENCE_US {
                self.longest_span = (span, now_us);
            }
        }
        span
    }

    /// Takes the longest burst that the longest window recovers at the highest rate. Slow traffic has shorter
    /// windows for a while, which says nothing of the bursts of faster traffic. Without traffic it is not
    /// known which rate a bit rate pays for.
    fn note_longest_burst(&mut self) {
        self.longest_window = self.longest_window.max(self.reach.window_max);
        if self.targets.repair_bps_max.is_some() && self.repair_bits() <= 0.0 {
            return;
        }
        let rate = LADDER[self.range().cap].as_f64();
        // Less than the window, which is a `u16`.
        self.decision.longest_burst = (f64::from(self.longest_window) * rate / (1.0 + rate)) as u16;
    }

    /// Bits per second of a repair for each packet; 0 until that is known.
    fn repair_bits(&self) -> f64 {
        self.situation.per_second as f64 * self.situation.repair_bytes as f64 * 8.0
    }

    /// Rates that the path and the operator allow.
    fn range(&self) -> Range {
        let floor = self.situation.floor;
        let within = |rate_max: f64| LADDER.iter().rposition(|rate| rate.as_f64() <= rate_max).unwrap_or(0);
        let by_rate = within(self.targets.rate_max.as_f64());
        let bits = self.repair_bits();
        let by_bytes = self
            .targets
            .repair_bps_max
            .filter(|_| bits > 0.0)
            .map_or(by_rate, |max| within(max as f64 * caps::REFILL / bits));
        let cap = by_rate.min(by_bytes);
        let limit = if by_bytes < by_rate { Limit::Bandwidth } else { Limit::Highest };
        Range { floor: floor.map_or(0, index_of).min(cap), cap, limit }
    }

    /// Returns loss and burst length by the last bursts if they are worse than the last minute.
    fn worse(&self, slow: &Counts) -> Option<(f64, f64)> {
        let fit: Fit = self.last.0.fit;
        let (loss, burst) = fit.estimate()?;
        let usual = if slow.packets > PACKETS_MIN { slow.loss() } else { 0.0 };
        let is_recent = u64::from(fit.packets) < self.situation.per_second.max(1) * RECENT_S;
        (is_recent && loss > WORSE * usual).then_some((loss, burst))
    }

    fn choose(&mut self, now_us: u64, evidence: &Evidence, range: Range) -> Decision {
        let Range { floor, cap, .. } = range;
        // A loss that is known outlasts a pause, although the history of the link begins again after it.
        let known = self.decision.loss;
        let age_us = if known > 0.0 {
            Some(self.history.age_us(now_us))
        } else {
            self.since_us.map(|since_us| now_us.saturating_sub(since_us))
        };
        let has_waited = age_us.is_some_and(|age_us| age_us >= PATIENCE_US);
        let packets = evidence.slow.packets;
        let are_enough = packets >= PACKETS_MIN || (has_waited && packets > 0);
        let may_fall = are_enough && !evidence.is_vague;
        let lowest = if may_fall { floor } else { self.wanted.clamp(floor, cap) };
        let suffices = |index: usize| {
            let target =
                if index < self.wanted { self.targets.residual / 2.0 } else { self.targets.residual };
            evidence.residual(index) <= target
        };
        let found = (lowest..=cap).find(|&index| suffices(index));
        let (index, limit) = match found {
            Some(index) if !may_fall && self.decision.limit == Limit::Unknown && index == self.wanted => {
                (index, Limit::Unknown)
            }
            Some(index) if index > floor => (index, Limit::Needed),
            Some(0) => (0, Limit::Lowest),
            Some(index) => (index, Limit::Mtu),
            None => evidence
                .cheapest(range, self.targets.residual)
                .map_or((cap, range.limit), |index| (index, Limit::Hopeless)),
        };
        self.wanted = index;
        let loss = match limit {
            Limit::Hopeless => evidence.fast.loss(),
            _ => evidence.bursts.map_or(evidence.slow.loss(), |(loss, _)| loss),
        };
        // A few packets without losses do not disprove what was known before them.
        let known = if are_enough { 0.0 } else { known };
        let lower = (index > floor && limit != Limit::Unknown).then(|| index - 1);
        Decision {
            rate: LADDER[index],
            limit,
            loss: loss.max(known),
            burst: self.last.0.burst,
            residual: evidence.residual(index),
            lower: lower.map(|index| (LADDER[index], evidence.residual(index))),
            ..self.decision
        }
    }
}

/// Index of the lowest rate on the ladder that is not below `rate`.
fn index_of(rate: RepairRate) -> usize {
    LADDER.iter().position(|&one| one >= rate).unwrap_or(LADDER.len() - 1)
}

#[cfg(test)]
mod tests;
