//! Counts of the last seconds, minutes and hour, in rings of fixed size.
//!
//! Once a second a sample of all counts is taken. A ring keeps samples at its step, and a window is the
//! difference between the latest sample and the oldest of the ring.

use std::array;
use std::collections::VecDeque;

/// Lengths of the windows in seconds.
pub const SPANS_S: [u64; 3] = [10, 300, 3_600];
/// Interval between two samples of a ring.
const STEPS_US: [u64; 3] = [SAMPLE_US, 10_000_000, 60_000_000];
/// Interval between samples.
const SAMPLE_US: u64 = 1_000_000;

/// Counts that grow.
pub trait Tally: Copy + Default {
    /// Combines each count with the same one of `other`.
    #[must_use]
    fn map(&self, other: &Self, with: impl Fn(u64, u64) -> u64 + Copy) -> Self;
}

/// Counts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window<T> {
    /// Length of time that it covers in microseconds: less than its span after the start.
    pub covered_us: u64,
    /// The counts.
    pub counts: T,
}

/// Counts of a minute of the last hour, or of the part of it that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// Time in microseconds since its end.
    pub ago_us: u64,
    /// Its length in microseconds.
    pub length_us: u64,
    /// The counts.
    pub counts: T,
}

#[derive(Debug)]
struct Ring<T>(VecDeque<(u64, T)>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Tally> Ring<T> {
    fn push(&mut self, now_us: u64, span_us: u64, step_us: u64, total: &T) {
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
    fn course(&self, now_us: u64, total: &T) -> Vec<Step<T>> {
        let ends = self.0.iter().skip(1).copied().chain([(now_us, *total)]);
        let step = |((from_us, old), (to_us, new)): (&(u64, T), (u64, T))| Step {
            ago_us: now_us.saturating_sub(to_us),
            length_us: to_us.saturating_sub(*from_us),
            counts: new.map(old, u64::saturating_sub),
        };
        self.0.iter().zip(ends).map(step).filter(|step| step.length_us > 0).collect()
    }

    fn window(&self, now_us: u64, total: &T) -> Window<T> {
        let Some((at_us, base)) = self.0.front() else { return Window::default() };
        Window { covered_us: now_us.saturating_sub(*at_us), counts: total.map(base, u64::saturating_sub) }
    }
}

/// The windows of a source of counts.
#[derive(Debug, Default)]
pub struct Windows<T> {
    /// The counts at the last sample.
    latest: T,
    /// Their sum, also over counts that began again.
    total: T,
    at_us: u64,
    rings: [Ring<T>; SPANS_S.len()],
}

impl<T: Tally> Windows<T> {
    /// Time at which a sample is due.
    pub fn due_us(&self) -> u64 {
        if self.rings[0].0.is_empty() { 0 } else { self.at_us + SAMPLE_US }
    }

    /// Whether a sample is due.
    pub fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.due_us()
    }

    /// Takes a sample. A count that is less than before has begun again at 0.
    pub fn add(&mut self, now_us: u64, counts: T) {
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

    /// The counts at the last sample.
    pub fn latest(&self) -> &T {
        &self.latest
    }

    /// The last hour by minute, the earliest first.
    pub fn course(&self) -> Vec<Step<T>> {
        self.rings[SPANS_S.len() - 1].course(self.at_us, &self.total)
    }

    /// The windows, each as long as [`SPANS_S`] says.
    pub fn windows(&self) -> [Window<T>; SPANS_S.len()] {
        array::from_fn(|at| self.rings[at].window(self.at_us, &self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Counts {
        sent: u64,
        lost: u64,
    }

    impl Tally for Counts {
        fn map(&self, other: &Self, with: impl Fn(u64, u64) -> u64 + Copy) -> Self {
            Self { sent: with(self.sent, other.sent), lost: with(self.lost, other.lost) }
        }
    }

    #[test]
    fn windows_cover_their_span_in_bounded_memory() {
        let mut windows = Windows::default();
        // Ten packets a second, of which one is lost in the last minute.
        for second in 0..10_000_u64 {
            let lost = second.saturating_sub(9_940);
            windows.add(1_000_000 * second, Counts { sent: 10 * second, lost });
        }
        let [seconds, minutes, hour] = windows.windows();
        assert_eq!((seconds.covered_us, seconds.counts), (10_000_000, Counts { sent: 100, lost: 10 }));
        assert!((300..=310).contains(&(minutes.covered_us / 1_000_000)), "{minutes:?}");
        assert_eq!(minutes.counts.lost, 59);
        assert!((3_600..=3_660).contains(&(hour.covered_us / 1_000_000)), "{hour:?}");
        assert_eq!(hour.counts.sent, hour.covered_us / 100_000);
        assert!(windows.rings.iter().all(|ring| ring.0.len() <= 63));
    }

    #[test]
    fn the_course_of_an_hour_adds_up_to_its_window() {
        let mut windows = Windows::default();
        assert_eq!(windows.course(), []);
        for second in 0..7_230_u64 {
            windows.add(1_000_000 * second, Counts { sent: 10 * second, lost: second / 100 });
        }
        let (course, [.., hour]) = (windows.course(), windows.windows());
        assert!((60..=62).contains(&course.len()), "{}", course.len());
        assert_eq!(course.iter().map(|step| step.counts.sent).sum::<u64>(), hour.counts.sent);
        assert_eq!(course.iter().map(|step| step.counts.lost).sum::<u64>(), hour.counts.lost);
        assert_eq!(course.iter().map(|step| step.length_us).sum::<u64>(), hour.covered_us);
        let [first, last] = [course.first().unwrap(), course.last().unwrap()];
        assert_eq!((last.ago_us, first.ago_us + first.length_us), (0, hour.covered_us));
        assert!(course.iter().all(|step| step.counts.sent == step.length_us / 100_000));
    }

    #[test]
    fn counts_that_begin_again_do_not_go_back() {
        let mut windows = Windows::default();
        for (second, sent) in [500, 600, 700, 20, 120].into_iter().enumerate() {
            windows.add(1_000_000 * second as u64, Counts { sent, lost: 0 });
        }
        let [seconds, ..] = windows.windows();
        assert_eq!(seconds.counts.sent, 100 + 100 + 20 + 100);
        assert_eq!(seconds.covered_us, 4_000_000, "less than the span after the start");
        assert_eq!(windows.latest().sent, 120);
    }
}
