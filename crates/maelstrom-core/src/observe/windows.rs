//! Counts of the last seconds, minutes and hour, in rings of fixed size.
//!
//! Once a second a sample of all counts is taken. A ring keeps samples at its step, and a window is the
//! difference between the latest sample and the oldest of the ring.

use std::array;
use std::collections::VecDeque;

use hdrhistogram::Histogram;

use crate::peer_status::PeerStatus;
use crate::wire::LossReport;

/// Lengths of the windows in seconds.
pub const SPANS_S: [u64; 3] = [10, 300, 3_600];
/// Interval between two samples of a ring.
const STEPS_US: [u64; 3] = [SAMPLE_US, 10_000_000, 60_000_000];
/// Interval between samples.
const SAMPLE_US: u64 = 1_000_000;
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
    /// Repairs sent.
    pub repair_packets: u64,
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
            repair_packets: peer.egress.repair_packets,
            repair_bytes: peer.egress.repair_bytes,
            received_packets: peer.ingress.source_packets,
            received_bytes: peer.ingress.source_bytes,
            here: Fates::of(&peer.report),
            there: Fates::of(&peer.far.loss),
            paused_us,
            delays,
        }
    }

    fn map(&self, other: &Self, with: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        Self {
            sent_packets: with(self.sent_packets, other.sent_packets),
            sent_bytes: with(self.sent_bytes, other.sent_bytes),
            repair_packets: with(self.repair_packets, other.repair_packets),
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

/// Counts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Length of time that it covers in microseconds: less than its span after the gateway's start.
    pub covered_us: u64,
    /// The counts.
    pub counts: Sample,
}

/// Counts of a minute of the last hour, or of the part of it that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time in microseconds since its end.
    pub ago_us: u64,
    /// Its length in microseconds.
    pub length_us: u64,
    /// The counts.
    pub counts: Sample,
}

#[derive(Debug, Default)]
struct Ring(VecDeque<(u64, Sample)>);

impl Ring {
    fn push(&mut self, now_us: u64, span_us: u64, step_us: u64, total: &Sample) {
        // Samples come a little late, which must not double the step.
        if self.0.back().is_some_and(|(at_us, _)| now_us < at_us + step_us - SAMPLE_US / 2) {
            return;
        }
        self.0.push_back((now_us, *total));
        while self.0.get(1).is_some_and(|(at_us, _)| at_us + span_us <= now_us) {
            self.0.pop_front();
        }
    }

    /// The differences between samples that follow each other, the earliest first, up to `total`.
    fn course(&self, now_us: u64, total: &Sample) -> Vec<Step> {
        let ends = self.0.iter().skip(1).copied().chain([(now_us, *total)]);
        let step = |((from_us, old), (to_us, new)): (&(u64, Sample), (u64, Sample))| Step {
            ago_us: now_us.saturating_sub(to_us),
            length_us: to_us.saturating_sub(*from_us),
            counts: new.map(old, u64::saturating_sub),
        };
        self.0.iter().zip(ends).map(step).filter(|step| step.length_us > 0).collect()
    }

    fn window(&self, now_us: u64, total: &Sample) -> Window {
        let Some((at_us, base)) = self.0.front() else { return Window::default() };
        Window { covered_us: now_us.saturating_sub(*at_us), counts: total.map(base, u64::saturating_sub) }
    }
}

/// The windows of one peer.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The counts at the last sample.
    latest: Sample,
    /// Their sum over all sessions. The peer's report begins again with each of them.
    total: Sample,
    at_us: u64,
    delay_count: u64,
    rings: [Ring; SPANS_S.len()],
}

impl Windows {
    /// Takes a sample if one is due; returns whether it did. `paused_us` as in [`Sample`].
    pub(super) fn sample(&mut self, now_us: u64, peer: &PeerStatus<'_>, paused_us: u64) -> bool {
        let is_first = self.rings[0].0.is_empty();
        if !is_first && now_us < self.at_us + SAMPLE_US {
            return false;
        }
        let counts = Sample::of(peer, paused_us, self.delays(peer.delays_us));
        self.add(now_us, counts);
        true
    }

    fn add(&mut self, now_us: u64, counts: Sample) {
        if self.rings[0].0.is_empty() {
            self.latest = counts;
        }
        let grown = counts.map(&self.latest, |new, old| if new < old { new } else { new - old });
        self.total = self.total.map(&grown, u64::saturating_add);
        (self.latest, self.at_us) = (counts, now_us);
        for (at, ring) in self.rings.iter_mut().enumerate() {
            ring.push(now_us, SPANS_S[at] * 1_000_000, STEPS_US[at], &self.total);
        }
    }

    /// Counts the delays by range, if there are further ones.
    fn delays(&mut self, delays: &Histogram<u64>) -> [u32; DELAY_BUCKETS] {
        if delays.len() == self.delay_count {
            return self.latest.delays;
        }
        self.delay_count = delays.len();
        delay_counts(delays)
    }

    /// The last hour by minute, the earliest first.
    pub(super) fn course(&self) -> Vec<Step> {
        self.rings[SPANS_S.len() - 1].course(self.at_us, &self.total)
    }

    pub(super) fn windows(&self) -> [Window; SPANS_S.len()] {
        array::from_fn(|at| self.rings[at].window(self.at_us, &self.total))
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

    fn sample(sent: u64, lost: u64, far: u64) -> Sample {
        let here = Fates { packets: sent, lost, recovered: lost / 2, ..Fates::default() };
        let there = Fates { packets: far, ..Fates::default() };
        Sample { sent_packets: sent, here, there, ..Sample::default() }
    }

    #[test]
    fn windows_cover_their_span_in_bounded_memory() {
        let mut windows = Windows::default();
        // Ten packets a second, of which one is lost in the last minute.
        for second in 0..10_000_u64 {
            let lost = second.saturating_sub(9_940);
            windows.add(1_000_000 * second, sample(10 * second, lost, 0));
        }
        let [seconds, minutes, hour] = windows.windows();
        assert_eq!((seconds.covered_us, seconds.counts.sent_packets), (10_000_000, 100));
        assert_eq!((seconds.counts.here.lost, seconds.counts.here.residual()), (10, 5));
        assert!((300..=310).contains(&(minutes.covered_us / 1_000_000)), "{minutes:?}");
        assert_eq!(minutes.counts.here.lost, 59);
        assert!((3_600..=3_660).contains(&(hour.covered_us / 1_000_000)), "{hour:?}");
        assert_eq!(hour.counts.sent_packets, hour.covered_us / 100_000);
        assert!(windows.rings.iter().all(|ring| ring.0.len() <= 63));
    }

    #[test]
    fn the_course_of_an_hour_adds_up_to_its_window() {
        let mut windows = Windows::default();
        assert_eq!(windows.course(), []);
        for second in 0..7_230_u64 {
            windows.add(1_000_000 * second, sample(10 * second, second / 100, 0));
        }
        let (course, [.., hour]) = (windows.course(), windows.windows());
        assert!((60..=62).contains(&course.len()), "{}", course.len());
        assert_eq!(course.iter().map(|step| step.counts.sent_packets).sum::<u64>(), hour.counts.sent_packets);
        assert_eq!(course.iter().map(|step| step.counts.here.lost).sum::<u64>(), hour.counts.here.lost);
        assert_eq!(course.iter().map(|step| step.length_us).sum::<u64>(), hour.covered_us);
        let [first, last] = [course.first().unwrap(), course.last().unwrap()];
        assert_eq!((last.ago_us, first.ago_us + first.length_us), (0, hour.covered_us));
        assert!(course.iter().all(|step| step.counts.sent_packets == step.length_us / 100_000));
    }

    #[test]
    fn a_report_that_begins_again_does_not_go_back() {
        let mut windows = Windows::default();
        for (second, far) in [500, 600, 700, 20, 120].into_iter().enumerate() {
            windows.add(1_000_000 * second as u64, sample(0, 0, far));
        }
        let [seconds, ..] = windows.windows();
        assert_eq!(seconds.counts.there.packets, 100 + 100 + 20 + 100);
        assert_eq!(seconds.covered_us, 4_000_000, "less than the span after the start");
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
