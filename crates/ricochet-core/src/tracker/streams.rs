//! Which streams a tracker knows, which make room for others, and what it does not believe of them.

use super::pool::Span;
use super::{Stream, Tracker};
use crate::counters::GivenUp;
use crate::ids::StreamKey;
use crate::links::Ends;
use foundation::Seq;

/// A packet further ahead of all that came, and of the window, is believed only when its neighbourhood is mentioned
/// twice: one wrong number must not put a stream out of reach of its own packets.
const LEAP_MAX: u64 = 1 << 16;
/// How close two mentions must be to bear each other out.
const NEIGHBOURHOOD: u64 = 64;
/// One in so many streams may be known by name alone.
const UNHEARD_SHARE: usize = 4;

impl<M: Copy + PartialEq> Tracker<M> {
    /// The place of a stream, which is taken up if it is new and there is room; and how many packets before this one are
    /// waited for since then.
    pub(super) fn stream(
        &mut self,
        now_us: u64,
        key: StreamKey,
        seq: u32,
        mark: M,
        came: bool,
    ) -> Option<(usize, u64)> {
        if let Some(&stream) = self.by_key.get(&key) {
            let stream = stream as usize;
            let last_us = &mut self.streams[stream].last_us;
            *last_us = now_us.max(*last_us);
            self.move_to_end(stream, came);
            return Some((stream, 0));
        }
        let Some(place) = self.place(now_us, came) else {
            self.refused += 1;
            return None;
        };
        // The packet itself is still to come: so far only what lies before it is known.
        let (first, young) = (Seq::first_seen(seq), seq < self.config.lookback);
        let floor = if young { Seq::first_seen(0) } else { first.minus(u64::from(self.config.lookback)) };
        let (highest, spans) = (first.minus(1), Ends::EMPTY);
        let stream = Stream {
            key,
            highest,
            floor,
            spans,
            count: 0,
            last_us: now_us,
            heard: came,
            came: highest,
            doubted: None,
        };
        if place == self.streams.len() {
            self.streams.push(stream);
        } else {
            self.streams[place] = stream;
        }
        self.by_key.insert(key, place as u32);
        self.unheard_count += usize::from(!came);
        self.quiet_links.push_last(if came { &mut self.quiet } else { &mut self.unheard }, place);
        if floor < first {
            self.append(Span { stream: place as u32, first: floor, last: first.minus(1), mark, owed: young });
        }
        Some((place, if young { first.0 - floor.0 } else { 0 }))
    }

    /// A stream was heard or named: it is now the last to make room.
    fn move_to_end(&mut self, stream: usize, came: bool) {
        let heard = self.streams[stream].heard;
        let ends = if heard { &mut self.quiet } else { &mut self.unheard };
        if heard == (heard || came) && ends.last() == Some(stream) {
            return;
        }
        self.quiet_links.remove(ends, stream);
        if came && !heard {
            self.streams[stream].heard = true;
            self.unheard_count -= 1;
        }
        let ends = if heard || came { &mut self.quiet } else { &mut self.unheard };
        self.quiet_links.push_last(ends, stream);
    }

    /// If nothing of a stream came so far, and what comes now is nowhere near what was said of it, that was wrong.
    pub(super) fn forget_a_wrong_beginning(&mut self, key: StreamKey, seq: u32) {
        let Some(&stream) = self.by_key.get(&key) else { return };
        let Stream { heard, highest, .. } = self.streams[stream as usize];
        let seq = Seq::from_wire(seq, highest);
        if !heard && seq.0.abs_diff(highest.0) > LEAP_MAX {
            self.remove(stream as usize);
        }
    }

    /// Whether a packet is too far ahead to be believed on one mention.
    pub(super) fn doubts(&mut self, stream: usize, seq: Seq) -> bool {
        let reach = LEAP_MAX.max(u64::from(self.config.window));
        let Stream { came, doubted, .. } = &mut self.streams[stream];
        if seq <= came.plus(reach) {
            return false;
        }
        let borne_out = doubted.is_some_and(|doubted| doubted.0.abs_diff(seq.0) <= NEIGHBOURHOOD);
        *doubted = Some(seq);
        !borne_out
    }

    /// Where a new stream goes. Streams known by name alone are few, and make room first: nothing of theirs was
    /// delivered, so they have no duplicates to tell. Of the others the one that was silent longest makes room, if it
    /// was silent long enough.
    fn place(&mut self, now_us: u64, came: bool) -> Option<usize> {
        let full = self.by_key.len() == self.config.streams_max;
        let crowded = !came && self.unheard_count >= self.config.streams_max.div_ceil(UNHEARD_SHARE);
        match self.unheard.first() {
            Some(unheard) if full || crowded => self.push_out(unheard, GivenUp::PoolFull),
            _ if full => {
                let quietest = self.quiet.first()?;
                if now_us.saturating_sub(self.streams[quietest].last_us) < self.config.idle_us_min {
                    return None;
                }
                self.push_out(quietest, GivenUp::Idle);
            }
            _ => {}
        }
        Some(self.free_streams.pop().map_or(self.streams.len(), |free| free as usize))
    }

    fn push_out(&mut self, stream: usize, reason: GivenUp) {
        let end = self.streams[stream].highest.plus(1);
        self.settle_before(stream, end, reason);
        self.remove(stream);
    }

    pub(super) fn remove(&mut self, stream: usize) {
        while let Some(slot) = self.streams[stream].spans.first() {
            self.drop_span(slot);
        }
        let Stream { key, heard, .. } = self.streams[stream];
        self.by_key.remove(&key);
        self.unheard_count -= usize::from(!heard);
        self.quiet_links.remove(if heard { &mut self.quiet } else { &mut self.unheard }, stream);
        self.free_streams.push(stream as u32);
    }
}
