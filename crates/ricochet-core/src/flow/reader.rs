//! A reader of a sender's packets to one group, as its reports show it.

use foundation::Seq;

use crate::ids::NodeId;

/// Window of a reader that has not reported yet, and the smallest budget.
pub(super) const START: u32 = 64;
/// Number of the first positions of a stream: a receiver that hears one of them first requests all earlier
/// ones too (`lookback` in [`TrackerConfig`](crate::TrackerConfig)).
const BEGINNING: u64 = 64;
/// Maximum number of times that a reader is asked where it began.
const DOUBTS_MAX: u8 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) id: NodeId,
    /// Position of the next packet when this node learned of it.
    pub(super) first: Seq,
    /// Position from which on it holds what it reports, as far as its reports show that: it heard the stream
    /// from there or from earlier on. `None` if it has reported nothing.
    pub(super) began: Option<Seq>,
    /// Number of times that it was asked where it began.
    pub(super) doubts: u8,
    pub(super) position: Seq,
    pub(super) window: u32,
    pub(super) heard_us: u64,
    pub(super) progress_us: u64,
    /// Time for which it has held up the sender while it lagged behind others.
    pub(super) held_us: u64,
    pub(super) is_reported: bool,
    /// Whether the sender runs ahead of it, because it reports nothing.
    pub(super) is_ahead: bool,
    /// Position at which it was left behind.
    pub(super) left_at: Option<Seq>,
}

impl Reader {
    /// Creates a reader that has reported nothing, when the next packet is that at `next`.
    pub(super) fn new(id: NodeId, next: Seq, now_us: u64) -> Self {
        Self {
            id,
            first: next,
            began: None,
            doubts: 0,
            position: next,
            window: START,
            heard_us: now_us,
            progress_us: now_us,
            held_us: 0,
            is_reported: false,
            is_ahead: false,
            left_at: None,
        }
    }

    /// Notes what a report shows of the first packet that it heard. Of a stream that it has heard from the
    /// start, it has got or given up all that it was sent.
    pub(super) fn note_beginning(&mut self, position: Seq, newest: Seq) {
        let is_whole = newest < Seq::first_seen(0).plus(BEGINNING);
        let began = if is_whole { self.first } else { position };
        self.began = Some(self.began.map_or(began, |known| known.min(began)));
    }

    /// Returns the packets that it was sent and may have heard nothing of, unless it was asked about them
    /// often enough: the number of the first, and how many.
    pub(super) fn doubt(&mut self) -> Option<(u32, u16)> {
        let count = self.began.map_or(0, |began| began.0.saturating_sub(self.first.0));
        if count == 0 || self.doubts == DOUBTS_MAX {
            return None;
        }
        self.doubts += 1;
        Some((self.first.to_wire(), u16::try_from(count).unwrap_or(u16::MAX)))
    }

    /// Returns whether it has reported a position after a packet, was a reader when that was sent, and had
    /// begun to hear the stream by then.
    pub(super) fn holds(&self, seq: Seq) -> bool {
        let has_begun = self.began.is_some_and(|began| began.max(self.first) <= seq);
        has_begun && self.position > seq
    }

    /// Returns the position up to which it has room, within the sender's budget. If it is silent, packets are
    /// kept for it up to `ahead`.
    pub(super) fn limit(&self, budget: u32, ahead: u32) -> Seq {
        let room = self.window.min(budget);
        self.position.plus(u64::from(if self.is_ahead { room.max(ahead) } else { room }))
    }

    pub(super) fn is_run_ahead_of(&self) -> bool {
        self.is_ahead && self.left_at.is_none()
    }

    /// Returns whether it is far behind the fastest reader.
    pub(super) fn lags(&self, budget: u32, fastest: Seq) -> bool {
        fastest >= self.position.plus(u64::from(self.window.min(budget) / 2).max(1))
    }
}
