//! Pauses of recovery: why, how often, how long, and which of them are events.

use maelstrom_core::counters::Reason as _;
use maelstrom_core::observe::EventKind;
pub(crate) use maelstrom_core::observe::PauseReason as Reason;

use crate::status::{PauseStatus, counts};

/// Minimum interval between pauses that are events; those between are counted.
const EVENT_US: u64 = 10_000_000;

/// The pauses since the gateway started.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    active: Option<Active>,
    counts: [u64; Reason::ALL.len()],
    total_us: u64,
    last_end_us: Option<u64>,
    next_event_us: u64,
    unnoted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    reason: Reason,
    since_us: u64,
    is_noted: bool,
}

impl Pauses {
    /// Whether recovery pauses.
    pub(crate) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Begins a pause, unless one has begun. Returns the event, if it is one.
    pub(crate) fn begin(&mut self, now_us: u64, reason: Reason) -> Option<EventKind> {
        if self.is_active() {
            return None;
        }
        self.counts[reason as usize] += 1;
        let is_noted = now_us >= self.next_event_us;
        self.active = Some(Active { reason, since_us: now_us, is_noted });
        if !is_noted {
            self.unnoted += 1;
            return None;
        }
        self.next_event_us = now_us + EVENT_US;
        Some(EventKind::Paused { reason, unnoted: std::mem::take(&mut self.unnoted) })
    }

    /// Ends the pause, if there is one. Returns the event, if its beginning was one.
    pub(crate) fn end(&mut self, now_us: u64) -> Option<EventKind> {
        let Active { since_us, is_noted, .. } = self.active.take()?;
        let length_us = now_us.saturating_sub(since_us);
        self.total_us += length_us;
        self.last_end_us = Some(now_us);
        is_noted.then_some(EventKind::Resumed { after_us: length_us })
    }

    /// Number of pauses.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Reason of the present pause.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.active.map(|active| active.reason)
    }

    fn length_us(&self, now_us: u64) -> u64 {
        self.total_us + self.active.map_or(0, |active| now_us.saturating_sub(active.since_us))
    }

    /// Adds the pauses at an interface that is in use no more, and of which none goes on.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, count)| *own += count);
        self.total_us += other.total_us;
        self.last_end_us = self.last_end_us.max(other.last_end_us);
    }

    /// Sums the pauses at several interfaces.
    pub(crate) fn status(now_us: u64, all: &[&Self]) -> PauseStatus {
        let all = all.iter().copied();
        let reason = all.clone().find_map(Self::reason);
        let last_end_us = all.clone().filter_map(|pauses| pauses.last_end_us).max();
        let count = |reason: Reason| all.clone().map(|pauses| pauses.counts[reason as usize]).sum();
        PauseStatus {
            reason: reason.map(|reason| reason.to_string()),
            reason_id: reason.map(|reason| reason.name().to_owned()),
            count: all.clone().map(Self::count).sum(),
            total_ms: all.clone().map(|pauses| pauses.length_us(now_us)).sum::<u64>() / 1_000,
            last_end_ms: last_end_us.map(|end_us| now_us.saturating_sub(end_us) / 1_000),
            by_reason: counts(Reason::ALL.iter().map(|&reason| (reason, count(reason)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_by_reason_and_measured() {
        let mut pauses = Pauses::default();
        let event = pauses.begin(1_000, Reason::Lag);
        assert_eq!(event, Some(EventKind::Paused { reason: Reason::Lag, unnoted: 0 }));
        assert_eq!(pauses.begin(2_000, Reason::Missed), None);
        assert!(pauses.is_active());
        let status = Pauses::status(4_000, &[&pauses]);
        assert_eq!(status.reason.as_deref(), Some("repairs lag behind the tap"));
        assert_eq!(status.reason_id.as_deref(), Some("lag"));
        assert_eq!((status.count, status.total_ms), (1, 3));
        assert_eq!(pauses.end(6_000), Some(EventKind::Resumed { after_us: 5_000 }));
        assert_eq!(pauses.end(7_000), None);
        assert_eq!(pauses.begin(20_000, Reason::Missed), None, "too soon after the last event");
        assert_eq!(pauses.end(20_000), None);
        let status = Pauses::status(30_000, &[&pauses]);
        assert_eq!((status.count, status.total_ms, status.last_end_ms), (2, 5, Some(10)));
        assert_eq!(status.reason, None);
        assert_eq!(status.by_reason["missed"], 1);
        let mut other = Pauses::default();
        other.begin(28_000, Reason::Missed);
        let status = Pauses::status(30_000, &[&pauses, &other]);
        assert_eq!((status.count, status.total_ms, status.last_end_ms), (3, 7, Some(10)));
        assert_eq!((status.reason_id.as_deref(), status.by_reason["missed"]), (Some("missed"), 2));
        other.end(29_000);
        pauses.absorb(&other);
        let status = Pauses::status(30_000, &[&pauses]);
        assert_eq!((status.count, status.total_ms, status.last_end_ms), (3, 6, Some(1)));
    }

    #[test]
    fn pauses_that_are_no_event_are_told_with_the_next_one() {
        let mut pauses = Pauses::default();
        let mut events = Vec::new();
        for at in 0..30_u64 {
            events.extend(pauses.begin(1_000_000 * at, Reason::Lag));
            events.extend(pauses.end(1_000_000 * at + 500_000));
        }
        let paused = |unnoted| EventKind::Paused { reason: Reason::Lag, unnoted };
        let resumed = EventKind::Resumed { after_us: 500_000 };
        let expected = [paused(0), resumed.clone(), paused(9), resumed.clone(), paused(9), resumed];
        assert_eq!(events, expected);
    }
}
