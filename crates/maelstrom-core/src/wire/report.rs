//! The loss report: counts by the ingress of the stream that the egress protects.

use super::header::BodyKind;
use crate::counters::Rejected;
use foundation::bytes::{Reader, Writer};

/// Number of buckets of the burst length histogram: 1, 2, 3–4, 5–8, … 1025 and more.
pub const BURST_BUCKETS: usize = 12;

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
    /// Repairs that arrived.
    pub repairs: u64,
    /// Runs of consecutive lost packets by length.
    pub bursts: [u64; BURST_BUCKETS],
}

impl LossReport {
    /// Length on the wire in bytes.
    pub const LEN: usize = 1 + 8 * (4 + BURST_BUCKETS);

    /// Number of packets lost and not recovered.
    pub fn residual(&self) -> u64 {
        self.lost - self.recovered
    }

    /// Returns the bucket that counts bursts of `len` ≥ 1 packets.
    pub fn burst_bucket(len: u64) -> usize {
        (u64::BITS - (len.max(1) - 1).leading_zeros()).min(BURST_BUCKETS as u32 - 1) as usize
    }

    /// Writes the body.
    pub fn write(&self, to: &mut [u8]) {
        let mut writer = Writer::new(to);
        writer.put(&[BodyKind::Report.to_wire()]);
        for value in [self.named, self.lost, self.recovered, self.repairs] {
            writer.put(&value.to_be_bytes());
        }
        for bucket in self.bursts {
            writer.put(&bucket.to_be_bytes());
        }
    }

    /// Reads an authenticated body.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for a wrong length or counts that contradict each other.
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        reader.u8()?;
        let mut report = Self {
            named: reader.u64()?,
            lost: reader.u64()?,
            recovered: reader.u64()?,
            repairs: reader.u64()?,
            ..Self::default()
        };
        for bucket in &mut report.bursts {
            *bucket = reader.u64()?;
        }
        if report.recovered > report.lost || report.lost > report.named || !reader.rest().is_empty() {
            return Err(Rejected::Malformed);
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let mut report =
            LossReport { named: 100, lost: 7, recovered: 6, repairs: 40, bursts: [0; BURST_BUCKETS] };
        report.bursts[2] = 5;
        let mut body = [0; LossReport::LEN];
        report.write(&mut body);
        assert_eq!(LossReport::read(&body), Ok(report));
        assert_eq!(LossReport::read(&body[1..]), Err(Rejected::Malformed));
        report.lost = 101;
        report.write(&mut body);
        assert_eq!(LossReport::read(&body), Err(Rejected::Malformed));
    }

    #[test]
    fn bursts_fall_into_doubling_buckets() {
        let buckets = [1, 2, 3, 4, 5, 8, 9, 1024, 1025, 1 << 40].map(LossReport::burst_bucket);
        assert_eq!(buckets, [0, 1, 2, 2, 3, 3, 4, 10, 11, 11]);
    }
}
