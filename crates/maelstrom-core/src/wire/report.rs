//! The report of an ingress to the egress that it hears: losses, the path, and the repair channel itself.

use super::forecast::{FORECAST_LEN, PLAN_LEN, read_forecast, read_plan, write_forecast, write_plan};
use super::header::{BodyKind, SendTime};
use crate::controller::Plan;
use crate::counters::Rejected;
use crate::findings::Findings;
use crate::forecast::Forecast;
use foundation::bytes::{Reader, Writer};

/// Number of buckets of the burst length histogram: 1, 2, 3–4, 5–8, … 1025 and more.
pub const BURST_BUCKETS: usize = 12;

/// A silence that has lasted since the session began.
const NEVER: u32 = u32::MAX;
/// An echo of nothing.
const NO_ECHO: u32 = u32::MAX;

/// A gateway's statement to its peer, a few times each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Losses among the receiver's packets.
    pub loss: LossReport,
    /// Differences from the configuration on the path of the receiver's packets.
    pub findings: Findings,
    /// Whether the sender injects packets that it recovers. Without findings, it has done so since its last
    /// report.
    pub is_recovering: bool,
    /// Milliseconds since the sender opened a sealed datagram of the receiver; `None` if there was none in
    /// this session.
    pub silence_ms: Option<u32>,
    /// Length of the longest sealed datagram of the receiver that arrived lately, in bytes of UDP payload.
    pub longest: u16,
    /// Milliseconds for which the sender holds packets that came before those in front of them, at most.
    pub hold_ms: u16,
    /// The latest sealed datagram of the receiver that arrived in this session.
    pub echo: Option<Echo>,
    /// Whether it was sent between two regular reports, because packets were lost or the plan has changed.
    pub is_extra: bool,
    /// Whether packets that a full queue drops are left to their senders.
    pub is_congested: bool,
    /// Whether the queue that causes them stands full without a break.
    pub is_standing: bool,
    /// The code of the sender's own egress.
    pub plan: Plan,
    /// The receiver's packets that each rate would have left lost.
    pub forecast: Forecast,
}

/// The time of sending of a datagram, returned to its sender, which computes the round-trip time from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The datagram's time of sending.
    pub sent: SendTime,
    /// Microseconds between its arrival and this report.
    pub held_us: u32,
}

/// Bits of the flags.
const RECOVERING: u8 = 1;
const EXTRA: u8 = 2;
const CONGESTED: u8 = 4;
const STANDING: u8 = 8;

impl Report {
    /// Length on the wire in bytes. Zeros may follow, up to the longest datagram.
    pub const LEN: usize = 1 + LossReport::LEN + 18 + PLAN_LEN + FORECAST_LEN;

    /// Whether its counts are possible after `sent` packets of the stream.
    pub(crate) fn is_possible(&self, sent: u64) -> bool {
        // The count of the forecast wraps, and none is ahead of the stream.
        let unsettled = (sent as u32).wrapping_sub(self.forecast.packets);
        self.loss.named <= sent && u64::from(unsettled) <= sent
    }

    /// Writes the body into `to`, which is [`Report::LEN`] bytes or longer, and fills the rest with zeros.
    pub fn write(&self, to: &mut [u8]) {
        let mut writer = Writer::new(to);
        writer.put(&[BodyKind::Report.to_wire()]);
        self.loss.write(&mut writer);
        let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
        let flags = flag(self.is_recovering, RECOVERING)
            | flag(self.is_extra, EXTRA)
            | flag(self.is_congested, CONGESTED)
            | flag(self.is_standing, STANDING);
        writer.put(&[self.findings.to_wire(), flags]);
        writer.put(&self.silence_ms.map_or(NEVER, |ms| ms.min(NEVER - 1)).to_be_bytes());
        writer.put(&self.longest.to_be_bytes());
        writer.put(&self.hold_ms.to_be_bytes());
        writer.put(&self.echo.map_or(NO_ECHO, |echo| echo.sent.to_wire()).to_be_bytes());
        writer.put(&self.echo.map_or(0, |echo| echo.held_us).to_be_bytes());
        write_plan(&self.plan, &mut writer);
        write_forecast(&self.forecast, &mut writer);
        to[Self::LEN..].fill(0);
    }

    /// Reads an authenticated body.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for a wrong length, counts that contradict each other, or padding that is not
    /// zero.
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        reader.u8()?;
        let loss = LossReport::read(&mut reader)?;
        let [findings, flags] = reader.array()?;
        let silence = reader.u32()?;
        let (longest, hold_ms) = (reader.u16()?, reader.u16()?);
        let (sent, held_us) = (reader.u32()?, reader.u32()?);
        let echo = match SendTime::from_wire(sent) {
            Some(sent) => Some(Echo { sent, held_us }),
            None if sent == NO_ECHO => None,
            None => return Err(Rejected::Malformed),
        };
        let plan = read_plan(&mut reader)?;
        let forecast = read_forecast(&mut reader)?;
        if flags > RECOVERING | EXTRA | CONGESTED | STANDING || reader.rest().iter().any(|&byte| byte != 0) {
            return Err(Rejected::Malformed);
        }
        Ok(Self {
            loss,
            findings: Findings::from_wire(findings),
            is_recovering: flags & RECOVERING != 0,
            silence_ms: (silence != NEVER).then_some(silence),
            longest,
            hold_ms,
            echo,
            is_extra: flags & EXTRA != 0,
            is_congested: flags & CONGESTED != 0,
            is_standing: flags & STANDING != 0,
            plan,
            forecast,
        })
    }
}

/// Counts since the session began. All packets counted are source packets whose fate is settled: they
/// arrived, were recovered, or were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossReport {
    /// Settled packets: those that a repair named, and an estimate of those lost together with all repairs
    /// that name them.
    pub named: u64,
    /// Settled packets that were lost on the link.
    pub lost: u64,
    /// Lost packets that were recovered.
    pub recovered: u64,
    /// Packets that did not arrive and were solved, but were not injected because they may have taken another
    /// path.
    pub withheld: u64,
    /// Packets that were solved, but left to their senders because a full queue had dropped them.
    pub left: u64,
    /// Repairs that arrived.
    pub repairs: u64,
    /// Runs of consecutive lost packets by length.
    pub bursts: [u64; BURST_BUCKETS],
}

impl LossReport {
    /// The report of a session that has just begun.
    pub const NONE: Self = Self {
        named: 0,
        lost: 0,
        recovered: 0,
        withheld: 0,
        left: 0,
        repairs: 0,
        bursts: [0; BURST_BUCKETS],
    };

    /// Length on the wire in bytes.
    const LEN: usize = 8 * (6 + BURST_BUCKETS);

    /// Number of packets lost and not solved.
    pub fn residual(&self) -> u64 {
        self.lost - self.recovered - self.withheld - self.left
    }

    /// Returns the sum of two reports.
    #[must_use]
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            named: self.named + other.named,
            lost: self.lost + other.lost,
            recovered: self.recovered + other.recovered,
            withheld: self.withheld + other.withheld,
            left: self.left + other.left,
            repairs: self.repairs + other.repairs,
            bursts: std::array::from_fn(|index| self.bursts[index] + other.bursts[index]),
        }
    }

    /// Returns the bucket that counts bursts of `len` ≥ 1 packets.
    pub fn burst_bucket(len: u64) -> usize {
        (u64::BITS - (len.max(1) - 1).leading_zeros()).min(BURST_BUCKETS as u32 - 1) as usize
    }

    fn write(&self, writer: &mut Writer<'_>) {
        for value in [self.named, self.lost, self.recovered, self.withheld, self.left, self.repairs] {
            writer.put(&value.to_be_bytes());
        }
        for bucket in self.bursts {
            writer.put(&bucket.to_be_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Rejected> {
        let mut report = Self {
            named: reader.u64()?,
            lost: reader.u64()?,
            recovered: reader.u64()?,
            withheld: reader.u64()?,
            left: reader.u64()?,
            repairs: reader.u64()?,
            ..Self::default()
        };
        for bucket in &mut report.bursts {
            *bucket = reader.u64()?;
        }
        let solved = report.recovered.checked_add(report.withheld);
        let solved = solved.and_then(|solved| solved.checked_add(report.left));
        if solved.is_none_or(|solved| solved > report.lost) || report.lost > report.named {
            return Err(Rejected::Malformed);
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Finding;

    #[test]
    fn survives_the_wire() {
        let mut bursts = [0; BURST_BUCKETS];
        bursts[2] = 5;
        let loss =
            LossReport { named: 100, lost: 8, recovered: 4, withheld: 2, left: 1, repairs: 40, bursts };
        let mut report =
            Report { loss, is_recovering: true, silence_ms: Some(17), longest: 1_400, ..Report::default() };
        report.echo = Some(Echo { sent: SendTime::at(9_000), held_us: 250 });
        (report.is_extra, report.is_congested, report.is_standing) = (true, true, true);
        report.hold_ms = 40;
        report.plan = Plan {
            window: 512,
            window_max: 1_024,
            late_us: 25_000,
            is_auto: true,
            is_thin: true,
            ..Plan::default()
        };
        report.forecast = Forecast { packets: 9, lost: 3, burst: 2, ..Forecast::default() };
        report.forecast.tails[13].failed = 77;
        report.forecast.fit.packets = 640;
        report.findings.set(Finding::Rewritten, true);
        let mut body = [7; Report::LEN + 90];
        report.write(&mut body);
        assert_eq!(Report::read(&body), Ok(report));
        assert_eq!(Report::read(&body[..Report::LEN]), Ok(report), "without padding");
        assert_eq!(Report::read(&body[..Report::LEN - 1]), Err(Rejected::Malformed));
        body[Report::LEN + 80] = 1;
        assert_eq!(Report::read(&body), Err(Rejected::Malformed), "padding that is not zero");
        for wrong in [
            LossReport { lost: 101, ..loss },
            LossReport { withheld: 4, ..loss },
            LossReport { left: u64::MAX, ..loss },
        ] {
            Report { loss: wrong, ..report }.write(&mut body);
            assert_eq!(Report::read(&body), Err(Rejected::Malformed));
        }
        let never = Report { silence_ms: None, echo: None, is_extra: false, ..report };
        never.write(&mut body);
        assert_eq!(Report::read(&body), Ok(never));
    }

    #[test]
    fn bursts_fall_into_doubling_buckets() {
        let buckets = [1, 2, 3, 4, 5, 8, 9, 1024, 1025, 1 << 40].map(LossReport::burst_bucket);
        assert_eq!(buckets, [0, 1, 2, 2, 3, 3, 4, 10, 11, 11]);
    }
}
