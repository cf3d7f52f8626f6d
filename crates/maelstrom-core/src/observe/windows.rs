//! Counts of a peer in the last seconds, minutes and hour, and the delays of recovered packets by range.

use std::array;

pub use foundation::windows::SPANS_S;
use foundation::windows::Tally;
use hdrhistogram::Histogram;

use crate::peer_status::PeerStatus;
use crate::wire::LossReport;

/// Number of ranges of the delay of recovered packets. The last range has no end.
pub const DELAY_BUCKETS: usize = 32;

/// Returns the longest delay of a range in microseconds: two ranges for each power of two, from 100 µs on.
///
/// # Panics
/// If there is no such range.
pub fn delay_bound_us(bucket: usize) -> Option<u64> {
    assert!(bucket < DELAY_BUCKETS, "no such range of delays: {bucket}");
    let first = if bucket.is_multiple_of(2) { 100 } else { 141 };
    (bucket + 1 < DELAY_BUCKETS).then_some(first << (bucket / 2))
}

fn bucket_of(delay_us: u64) -> usize {
    (0..DELAY_BUCKETS - 1)
        .find(|&bucket| delay_bound_us(bucket).is_some_and(|bound| delay_us <= bound))
        .unwrap_or(DELAY_BUCKETS - 1)
}

/// Packets of one direction whose fate is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Packets counted.
    pub packets: u64,
    /// Packets lost on the link.
    pub lost: u64,
    /// Lost packets that were recovered.
    pub recovered: u64,
    /// Lost packets that were left to their senders, because a full queue had dropped them.
    pub left: u64,
    /// Repairs that arrived.
    pub repairs: u64,
}

impl Fates {
    fn of(report: &LossReport) -> Self {
        let LossReport { named, lost, recovered, left, repairs, .. } = *report;
        Self { packets: named, lost, recovered, left, repairs }
    }

    /// Packets that should have been recovered and were not.
    pub fn residual(&self) -> u64 {
        self.lost.saturating_sub(self.recovered).saturating_sub(self.left)
    }

    fn map(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            packets: with(self.packets, other.packets),
            lost: with(self.lost, other.lost),
            recovered: with(self.recovered, other.recovered),
            left: with(self.left, other.left),
            repairs: with(self.repairs, other.repairs),
        }
    }
}

/// Counts of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Packets protected.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Repairs sent, each in one datagram or in two: the peer counts those that are whole.
    pub repairs: u64,
    /// Their bytes on the link.
    pub repair_bytes: u64,
    /// Protected packets that arrived.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that arrive here.
    pub here: Fates,
    /// Packets that leave, as the peer reports them.
    pub there: Fates,
    /// Time in microseconds in which recovery paused here while packets or repairs arrived.
    pub paused_us: u64,
    /// Recovered packets by their delay ([`delay_bound_us`]).
    pub delays: [u32; DELAY_BUCKETS],
}

impl Sample {
    fn of(peer: &PeerStatus<'_>, paused_us: u64, delays: [u32; DELAY_BUCKETS]) -> Self {
        Self {
            sent_packets: peer.egress.source_packets,
            sent_bytes: peer.egress.source_bytes,
            repairs: peer.egress.repairs,
            repair_bytes: peer.egress.repair_bytes,
            received_packets: peer.ingress.source_packets,
            received_bytes: peer.ingress.source_bytes,
            here: Fates::of(&peer.report),
            there: Fates::of(&peer.far.loss),
            paused_us,
            delays,
        }
    }

    /// The median delay of recovered packets in microseconds; `None` if none was recovered.
    pub fn delay_us(&self) -> Option<u64> {
        let total: u64 = self.delays.iter().map(|&count| u64::from(count)).sum();
        let mut below = 0;
        for (bucket, &count) in self.delays.iter().enumerate() {
            let count = u64::from(count);
            if count > 0 && 2 * (below + count) >= total {
                let low = if bucket == 0 { 50 } else { delay_bound_us(bucket - 1)? };
                let high = delay_bound_us(bucket).unwrap_or(low);
                let part = (total as f64 / 2.0 - below as f64) / count as f64;
                return Some((low as f64 * (high as f64 / low as f64).powf(part)) as u64);
            }
            below += count;
        }
        None
    }
}

impl Tally for Sample {
    fn map(&self, other: &Self, with: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        Self {
            sent_packets: with(self.sent_packets, other.sent_packets),
            sent_bytes: with(self.sent_bytes, other.sent_bytes),
            repairs: with(self.repairs, other.repairs),
            repair_bytes: with(self.repair_bytes, other.repair_bytes),
            received_packets: with(self.received_packets, other.received_packets),
            received_bytes: with(self.received_bytes, other.received_bytes),
            here: self.here.map(other.here, with),
            there: self.there.map(other.there, with),
            paused_us: with(self.paused_us, other.paused_us),
            delays: array::from_fn(|at| {
                u32::try_from(with(self.delays[at].into(), other.delays[at].into())).unwrap_or(u32::MAX)
            }),
        }
    }
}

/// Counts of a window.
pub type Window = foundation::windows::Window<Sample>;

/// Counts of a minute of the last hour, or of the part of it that has passed.
pub type Step = foundation::windows::Step<Sample>;

/// The windows of one peer. Its report begins again with each session.
#[derive(Debug, Default)]
pub(super) struct Windows {
    windows: foundation::windows::Windows<Sample>,
    delay_count: u64,
}

impl Windows {
    /// Takes a sample if one is due; returns whether it did. `paused_us` as in [`Sample`].
    pub(super) fn sample(&mut self, now_us: u64, peer: &PeerStatus<'_>, paused_us: u64) -> bool {
        let is_due = self.windows.is_due(now_us);
        if is_due {
            let delays = self.delays(peer.delays_us);
            self.windows.add(now_us, Sample::of(peer, paused_us, delays));
        }
        is_due
    }

    /// Counts the delays by range, if there are further ones.
    fn delays(&mut self, delays: &Histogram<u64>) -> [u32; DELAY_BUCKETS] {
        if delays.len() == self.delay_count {
            return self.windows.latest().delays;
        }
        self.delay_count = delays.len();
        delay_counts(delays)
    }

    /// The last hour by minute, the earliest first.
    pub(super) fn course(&self) -> Vec<Step> {
        self.windows.course()
    }

    pub(super) fn windows(&self) -> [Window; SPANS_S.len()] {
        self.windows.windows()
    }
}

/// Counts the delays of a histogram by range.
pub fn delay_counts(delays: &Histogram<u64>) -> [u32; DELAY_BUCKETS] {
    let mut counts = [0_u32; DELAY_BUCKETS];
    for recorded in delays.iter_recorded() {
        let count = &mut counts[bucket_of(recorded.value_iterated_to())];
        *count = count.saturating_add(u32::try_from(recorded.count_at_value()).unwrap_or(u32::MAX));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_combined_one_by_one() {
        let here = Fates { packets: 7, lost: 4, recovered: 2, left: 1, repairs: 3 };
        let mut new = Sample { sent_packets: 9, here, paused_us: 5, ..Sample::default() };
        new.delays[3] = 6;
        let mut old = Sample { sent_packets: 2, paused_us: 1, ..Sample::default() };
        old.delays[3] = 4;
        let grown = new.map(&old, u64::saturating_sub);
        assert_eq!((grown.sent_packets, grown.here, grown.paused_us, grown.delays[3]), (7, here, 4, 2));
        assert_eq!(grown.here.residual(), 1);
    }

    #[test]
    fn the_median_delay_is_within_its_range() {
        let mut delays = Histogram::<u64>::new_with_bounds(1, 60_000_000, 2).unwrap();
        for delay_us in (2_000..3_000).step_by(10) {
            delays.record(delay_us).unwrap();
        }
        let counts = Sample { delays: delay_counts(&delays), ..Sample::default() };
        let median = counts.delay_us().unwrap();
        assert!((2_300..2_700).contains(&median), "{median}");
        assert_eq!(Sample::default().delay_us(), None);
        for delay_us in [0, 100, 101, 141, 142, 3_276_800, 3_276_801, u64::MAX] {
            let bucket = bucket_of(delay_us);
            assert!(delay_bound_us(bucket).is_none_or(|bound| delay_us <= bound), "{delay_us}");
            let below = bucket.checked_sub(1).and_then(delay_bound_us);
            assert!(below.is_none_or(|bound| delay_us > bound), "{delay_us}");
        }
    }
}
