//! The receiver's side: when to report to a sender how far this node has got in its stream.
//!
//! A report is due after a number of packets, and at once when the sender asks for it. A stream of few
//! packets costs nothing: its sender may send some before it needs a report. A busy stream gets fewer
//! reports, as its sender may send more ahead.

use foundation::Seq;
use hashbrown::HashMap;

use crate::ids::StreamKey;
use crate::tracker::Front;
use crate::wire::Room;

/// Number of packets after which the first report of a stream is due.
pub(crate) const STEP_FIRST: u32 = 16;
/// Number of reports for each window of a busy stream.
pub(super) const REPORTS_PER_WINDOW: u32 = 8;
/// Time between two reports below which the stream is busy, in microseconds.
const QUICK_US: u64 = 10_000;
/// Time without a report after which a stream no longer has a share of the window, in microseconds.
const BUSY_US: u64 = 200_000;
/// Maximum number of streams that share the window.
const BUSY_MAX: usize = 1_024;
/// Maximum number of streams with state. A full table is cleared; then each stream's next report comes later.
const STREAMS_MAX: usize = 1 << 14;

#[derive(Clone, Copy, Debug)]
struct Told {
    position: Seq,
    at_us: u64,
    /// Packets since the last report.
    since: u32,
    step: u32,
}

/// Reports of the streams that this node receives.
#[derive(Debug)]
pub(crate) struct Reports {
    window: u32,
    streams: HashMap<StreamKey, Told>,
    /// Streams that were reported lately, and when.
    busy: Vec<(StreamKey, u64)>,
}

impl Reports {
    /// Creates the state of a node with room for `window` packets; 0 reports nothing.
    pub(crate) fn new(window: u32) -> Self {
        Self { window, streams: HashMap::new(), busy: Vec::with_capacity(BUSY_MAX) }
    }

    pub(crate) fn are_sent(&self) -> bool {
        self.window > 0
    }

    /// Notes that a packet came. Returns whether a report is due.
    pub(crate) fn on_packet(&mut self, now_us: u64, key: StreamKey, front: Front) -> bool {
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&key) {
            self.streams.clear();
        }
        let step = STEP_FIRST.min((self.window / REPORTS_PER_WINDOW).max(1));
        let new = Told { position: front.awaited, at_us: now_us, since: 0, step };
        let told = self.streams.entry(key).or_insert(new);
        told.since += 1;
        let advanced = front.awaited.0.saturating_sub(told.position.0);
        told.since.max(u32::try_from(advanced).unwrap_or(u32::MAX)) >= told.step
    }

    /// Returns a report of a stream.
    pub(crate) fn report(&mut self, now_us: u64, key: StreamKey, front: Front, newest: Seq) -> Room {
        let window = self.share(now_us, key);
        let step_max = (window / REPORTS_PER_WINDOW).max(1);
        if let Some(told) = self.streams.get_mut(&key) {
            let is_quick = now_us.saturating_sub(told.at_us) < QUICK_US;
            let step = if is_quick { told.step.saturating_mul(2) } else { STEP_FIRST };
            *told = Told { position: front.awaited, at_us: now_us, since: 0, step: step.min(step_max) };
        }
        Room { group: key.group, position: front.awaited.to_wire(), newest: newest.to_wire(), window }
    }

    /// Returns the part of the window that is a stream's: all busy streams have the same.
    fn share(&mut self, now_us: u64, key: StreamKey) -> u32 {
        self.busy.retain(|&(other, at_us)| other != key && now_us < at_us + BUSY_US);
        if self.busy.len() < BUSY_MAX {
            self.busy.push((key, now_us));
        }
        (self.window / self.busy.len().max(1) as u32).max(1)
    }

    pub(crate) fn forget(&mut self, mut gone: impl FnMut(StreamKey) -> bool) {
        self.streams.retain(|&key, _| !gone(key));
        self.busy.retain(|&(key, _)| !gone(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, NodeId};

    fn key(sender: u32) -> StreamKey {
        StreamKey { sender: NodeId(sender), group: GroupId(7) }
    }

    fn front(position: u64) -> Front {
        Front { settled: Seq(position), awaited: Seq(position) }
    }

    /// Reports of a stream of `packets`, one in each interval.
    fn reports(reports: &mut Reports, packets: u64, interval_us: u64) -> Vec<Room> {
        (1..=packets)
            .filter_map(|at| {
                let (now_us, front) = (at * interval_us, front(at));
                reports
                    .on_packet(now_us, key(1), front)
                    .then(|| reports.report(now_us, key(1), front, Seq(at)))
            })
            .collect()
    }

    #[test]
    fn quiet_streams_are_rarely_reported_and_busy_ones_by_their_window() {
        assert_eq!(reports(&mut Reports::new(2_048), 15, 20_000).len(), 0);
        assert_eq!(reports(&mut Reports::new(2_048), 160, 20_000).len(), 10);
        assert!((5..12).contains(&reports(&mut Reports::new(2_048), 1_024, 10).len()));
        assert!(reports(&mut Reports::new(32), 1_024, 10).len() >= 250, "a small window needs more");
    }

    #[test]
    fn a_gap_delays_no_report_and_its_end_is_reported_at_once() {
        let mut state = Reports::new(2_048);
        let due = |state: &mut Reports, position| state.on_packet(0, key(1), front(position));
        assert!((0..15).all(|_| !due(&mut state, 5)));
        assert!(due(&mut state, 5), "the sender learns that this node still hears it");
        assert_eq!(state.report(0, key(1), front(5), Seq(20)).position, 5);
        assert!(due(&mut state, 37));
    }

    #[test]
    fn busy_streams_share_the_window() {
        let mut state = Reports::new(2_048);
        for sender in 0..8 {
            state.on_packet(0, key(sender), front(9));
            state.report(0, key(sender), front(9), Seq(9));
        }
        assert_eq!(state.report(1_000, key(3), front(9), Seq(9)).window, 256);
        assert_eq!(state.report(BUSY_US + 1_000, key(3), front(9), Seq(9)).window, 2_048);
    }
}
