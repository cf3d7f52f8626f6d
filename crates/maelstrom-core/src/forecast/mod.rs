//! The forecast of an ingress: what each rate of the ladder would leave of the losses of this link.
//!
//! The path of a packet: [`Cursor`] learns its fate when repairs have named its neighbours → [`Windows`], the
//! virtual window of each candidate, and [`Runs`], the last bursts. The counts travel in reports to the
//! egress, which decides ([`crate::controller`]).

mod cursor;
mod runs;
mod windows;

pub use runs::{Fit, RUNS, Runs};
pub use windows::{AUTO_STRIPES_MAX, CANDIDATES, Tail, Windows};

use foundation::Seq;

use crate::arrivals::Arrivals;
use crate::congestion::{Congestion, Verdict};
use crate::controller::Plan;
use crate::pace::Pace;
use crate::record::Record;
use cursor::{Cursor, Fate};

/// Shortest interval between urgent reports.
const URGENT_US: u64 = 10_000;
/// Number of packets between urgent reports, so that these do not load a slow link.
const URGENT_PACKETS: u64 = 32;
/// Factor by which the share of lost packets has grown since the last report if the link has become worse.
const WORSE: f64 = 1.5;
/// Interval between reports while packets are lost.
const LOSSY_US: u64 = 100_000;
/// Number of sealed datagrams over which the share of those that arrive is measured.
const SERVICE_SPAN: u64 = 64;

/// Counts since the session began that the egress decides by. They wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Packets whose fate is known.
    pub packets: u32,
    /// Lost packets among them.
    pub lost: u32,
    /// The link as the last runs of losses show it.
    pub fit: Fit,
    /// Longest run of losses within the last seconds.
    pub burst: u16,
    /// Losses that each candidate would have left.
    pub tails: [Tail; CANDIDATES],
}

impl Forecast {
    /// The forecast of a session that has just begun.
    pub const NONE: Self = Self {
        packets: 0,
        lost: 0,
        fit: Fit { packets: 0, lost: 0 },
        burst: 0,
        tails: [Tail { half: 0, most: 0, failed: 0 }; CANDIDATES],
    };
}

/// Makes the forecast of one stream.
pub(crate) struct Forecaster {
    cursor: Cursor,
    windows: Windows,
    runs: Runs,
    record: Record,
    pace: Pace,
    /// The far egress' choice, as its last report states it.
    plan: Plan,
    service: Service,
    last: LastReport,
    /// Whether packets that a full queue drops are left to their senders.
    is_congested: bool,
    /// Whether that queue stands full.
    is_standing: bool,
}

/// Contents of the last report.
#[derive(Clone, Copy, Debug, Default)]
struct LastReport {
    /// Its time, and the number of packets and losses then.
    sent_us: u64,
    packets: u64,
    lost: u64,
    /// Losses that the present candidate had left then.
    failed: u32,
    /// The share of packets that the last runs of losses showed then, if there were enough.
    loss: Option<f64>,
    is_standing: bool,
}

/// The share of the far gateway's datagrams that arrive.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    arrived: u64,
    lost: u64,
    /// Packets and losses when this measurement began.
    since: (u64, u64),
}

impl Forecaster {
    pub(crate) fn new() -> Self {
        Self {
            cursor: Cursor::default(),
            windows: Windows::new(),
            runs: Runs::default(),
            record: Record::new(),
            pace: Pace::default(),
            plan: Plan::default(),
            service: Service::default(),
            last: LastReport::default(),
            is_congested: false,
            is_standing: false,
        }
    }

    /// Takes the fates that repairs have revealed, up to the newest place named. Packets before a place are
    /// no longer expected if `is_ripe` says so of the place.
    ///
    /// Packets that a full queue drops need no repair, and count as if they had arrived. A sample of the
    /// packets shows how many are lost, but not what windows of all packets would leave of them.
    pub(crate) fn advance(
        &mut self,
        arrivals: &Arrivals,
        newest: Seq,
        is_ripe: impl Fn(Seq) -> bool,
        congestion: &mut Congestion,
    ) {
        let Self { cursor, windows, runs, record, plan, .. } = self;
        cursor.advance(arrivals, newest, is_ripe, &mut |seq, fate| match fate {
            // No window bridges an outage, and none says how the link is otherwise.
            Fate::Outage { lost, arrived } => {
                record.on_all_lost(lost);
                record.on_arrived(arrived);
            }
            Fate::Unknown => record.on_unknown(),
            Fate::Arrived(count) => {
                congestion.on_arrived(seq, count);
                windows.on_arrived(count);
                runs.on_arrived(count);
                record.on_arrived(count);
            }
            Fate::Lost => {
                record.on_lost();
                if congestion.on_lost(seq) == Verdict::Leave {
                    windows.on_arrived(1);
                    runs.on_arrived(1);
                } else {
                    if plan.is_thin {
                        windows.on_arrived(1);
                    } else {
                        windows.on_lost();
                    }
                    runs.on_lost();
                }
            }
        });
    }

    /// Forgets the places before `limit`, of which it is not known which packets arrived.
    pub(crate) fn skip_to(&mut self, limit: Seq) {
        self.cursor.skip_to(limit);
        self.windows.forget();
        self.record.on_unknown();
    }

    /// Notes whether packets that a full queue drops are left to their senders. Those that counted before
    /// that was known need no repairs.
    pub(crate) fn set_congested(&mut self, is_congested: bool) {
        if is_congested && !self.is_congested {
            self.windows.forget();
            self.runs.forget();
        }
        self.is_congested = is_congested;
    }

    /// Whether packets that a full queue drops are left to their senders.
    pub(crate) fn is_congested(&self) -> bool {
        self.is_congested
    }

    /// Notes whether the queue stands full.
    pub(crate) fn set_standing(&mut self, is_standing: bool) {
        self.is_standing = is_standing;
    }

    /// Whether the far egress names a sample of its packets only.
    pub(crate) fn is_thin(&self) -> bool {
        self.plan.is_thin
    }

    /// The losses since the gateway's start.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Continues a record from before the gateway's start.
    pub(crate) fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    /// Number of packets per second while there is traffic.
    pub(crate) fn per_second(&self) -> u64 {
        self.pace.per_second()
    }

    /// Continues the record of an earlier session.
    pub(crate) fn continue_record(&mut self, earlier: Self) {
        self.record = earlier.record;
        self.record.on_unknown();
    }

    /// Notes a sealed datagram, before which `lost` others were lost; -1 if it counted as lost.
    pub(crate) fn on_sealed(&mut self, lost: i64) {
        self.service.arrived += 1;
        self.service.lost = self.service.lost.saturating_add_signed(lost);
    }

    /// Takes the far egress' choice.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        if plan.is_thin != self.plan.is_thin {
            self.windows.forget();
            self.pace.restart();
        }
        if plan != self.plan {
            self.plan = plan;
            self.update_spans();
            self.last.failed = self.failed();
        }
    }

    /// Must be called ten times a second.
    pub(crate) fn on_tick(&mut self, now_us: u64) {
        self.record.on_tick(now_us);
        let (packets, lost) = self.runs.totals();
        if self.pace.on_tick(packets) {
            self.runs.begin_period();
            if let Some(share) = self.service.measure(packets, lost) {
                self.windows.set_service(share);
            }
        }
        self.update_spans();
    }

    fn update_spans(&mut self) {
        self.windows.set_stripes(self.plan.stripes());
        self.windows.set_spans(self.plan.spans(self.pace.per_second()));
    }

    fn failed(&self) -> u32 {
        self.plan.candidate().map_or(0, |index| self.windows.tails()[index].failed)
    }

    /// Time at which the egress must hear of losses, or of a queue that has ebbed; `None` if there is
    /// no such news since the last report.
    pub(crate) fn report_due_us(&self) -> Option<u64> {
        let (packets, lost) = self.runs.totals();
        let LastReport { sent_us, packets: reported, lost: reported_lost, is_standing, .. } = self.last;
        if is_standing && !self.is_standing {
            return Some(sent_us + URGENT_US);
        }
        if lost == reported_lost {
            return None;
        }
        let is_urgent = packets >= reported + URGENT_PACKETS && self.is_urgent();
        Some(sent_us + if is_urgent { URGENT_US } else { LOSSY_US })
    }

    /// Whether the present rate leaves losses, or will soon do so, or nothing recovers them, or the link has
    /// become worse.
    fn is_urgent(&self) -> bool {
        if self.plan.is_thin {
            return true;
        }
        let Some(index) = self.plan.candidate() else { return false };
        let rate = crate::auto::LADDER[index];
        let half = self.windows.span(index) * u64::from(rate.repairs()) / u64::from(2 * rate.sources());
        let is_worse = self.loss().is_some_and(|loss| self.last.loss.is_none_or(|last| loss >= WORSE * last));
        is_worse || self.windows.backlog(index) > 4 + half || self.failed() != self.last.failed
    }

    /// The share of packets lost that the last runs of losses show.
    fn loss(&self) -> Option<f64> {
        self.runs.fit().estimate().map(|(loss, _)| loss)
    }

    /// Notes that a report leaves.
    pub(crate) fn on_report(&mut self, now_us: u64) {
        let (packets, lost) = self.runs.totals();
        let (failed, loss, is_standing) = (self.failed(), self.loss(), self.is_standing);
        self.last = LastReport { sent_us: now_us, packets, lost, failed, loss, is_standing };
    }

    /// The counts for a report.
    pub(crate) fn counts(&self) -> Forecast {
        let (packets, lost) = self.runs.totals();
        Forecast {
            packets: packets as u32,
            lost: lost as u32,
            fit: self.runs.fit(),
            burst: u16::try_from(self.runs.longest()).unwrap_or(u16::MAX),
            tails: self.windows.tails(),
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.windows.memory_bytes() + self.record.memory_bytes()
    }
}

impl Service {
    /// Returns the share of repairs that arrive, by that of packets, once enough were sent.
    fn measure(&mut self, packets: u64, lost: u64) -> Option<f64> {
        let sent = self.arrived + self.lost;
        let of_packets = packets - self.since.0;
        if sent < SERVICE_SPAN || of_packets < SERVICE_SPAN {
            return None;
        }
        let arrived = self.arrived as f64 / sent as f64;
        let passed = 1.0 - (lost - self.since.1) as f64 / of_packets as f64;
        *self = Self { since: (packets, lost), ..Self::default() };
        Some(if passed > 0.0 { (arrived / passed).min(1.0) } else { 1.0 })
    }
}
