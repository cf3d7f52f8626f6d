//! The streams of a tracker: which are known, and which make room for others.

use foundation::Seq;

use super::pool::Span;
use super::truth::LEAP_MAX;
use super::{Sighting, Stream, Tracker};
use crate::counters::GivenUp;
use crate::ids::StreamKey;
use crate::links::Ends;

/// Inverse of the share of streams that may be known by name alone or from strangers.
const UNHEARD_SHARE: usize = 4;

impl<M: Copy + PartialEq> Tracker<M> {
    /// Returns the index of a stream, which is added if it is new and there is room. Returns too how many
    /// packets before this one are awaited since it was added.
    pub(super) fn stream_or_insert(&mut self, sighting: Sighting<M>) -> Option<(usize, u64)> {
        let Sighting { now_us, key, seq, mark, heard } = sighting;
        if let Some(&stream) = self.by_key.get(&key) {
            let stream = stream as usize;
            let last_us = &mut self.streams[stream].last_us;
            *last_us = now_us.max(*last_us);
            self.refresh(stream, heard);
            return Some((stream, 0));
        }
        let Some(place) = self.make_place(now_us, heard) else {
            self.refused += 1;
            return None;
        };
        // The packet itself is noted by the caller. Here only the packets before it are.
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
            heard,
            received: highest,
            start: first,
            is_cut: false,
            verified: Seq(0),
            since_asked: Seq(0),
        };
        self.put(place, stream);
        self.begun = (!young).then_some(key);
        if floor < first {
            self.append(Span { stream: place as u32, first: floor, last: first.minus(1), mark, owed: young });
        }
        Some((place, if young { first.0 - floor.0 } else { 0 }))
    }

    /// Begins a stream that is not known, with the packet `seq`, whose predecessors are not awaited.
    pub fn begin(&mut self, now_us: u64, key: StreamKey, seq: u32) {
        if self.by_key.contains_key(&key) {
            return;
        }
        let Some(place) = self.make_place(now_us, true) else {
            self.refused += 1;
            return;
        };
        let first = Seq::first_seen(seq);
        let highest = first.minus(1);
        let stream = Stream {
            key,
            highest,
            floor: first,
            spans: Ends::EMPTY,
            count: 0,
            last_us: now_us,
            heard: true,
            received: highest,
            start: first,
            // It begins where history says, and nothing before it was owed.
            is_cut: true,
            verified: highest,
            since_asked: Seq(0),
        };
        self.put(place, stream);
    }

    /// Gives up the packets of a stream from `from` on that precede the first one that came or was named,
    /// because their sender expected this node to get them. Does so once, and not if they are awaited, as
    /// those of a stream seen from its start are. Returns that first packet.
    pub fn give_up_before_start(&mut self, key: StreamKey, from: u32) -> Option<Seq> {
        let stream = *self.by_key.get(&key)? as usize;
        let Stream { start, floor, is_cut, .. } = self.streams[stream];
        let from = Seq::from_wire(from, start);
        if is_cut || from >= start || start.to_wire() < self.config.lookback {
            return Some(start);
        }
        self.streams[stream].is_cut = true;
        // Packets that the first one may have overtaken are accepted from the floor on, if none was given up
        // since.
        let end = if floor <= start { floor } else { start.minus(u64::from(self.config.lookback)) };
        if from < end {
            self.report(stream, from, end.minus(1), GivenUp::Behind);
        }
        while let Some(slot) = self.streams[stream].spans.first() {
            let span = *self.pool.span(slot);
            if span.owed || span.last >= start {
                break;
            }
            self.settle(stream, &span, GivenUp::Behind);
            self.drop_span(slot);
            if span.last >= from {
                self.report(stream, span.first.max(from), span.last, GivenUp::Behind);
            }
        }
        Some(start)
    }

    fn put(&mut self, place: usize, stream: Stream) {
        let Stream { key, heard, .. } = stream;
        if place == self.streams.len() {
            self.streams.push(stream);
        } else {
            self.streams[place] = stream;
        }
        self.by_key.insert(key, place as u32);
        self.unheard_count += usize::from(!heard);
        self.quiet_links.push_last(if heard { &mut self.quiet } else { &mut self.unheard }, place);
    }

    /// Makes a stream that was heard or named the last one to make room.
    fn refresh(&mut self, stream: usize, came: bool) {
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

    /// Removes a stream that is known by name alone if its first packet comes far from the named ones: the
    /// names were wrong.
    pub(super) fn drop_false_start(&mut self, key: StreamKey, seq: u32) {
        let Some(&stream) = self.by_key.get(&key) else { return };
        let Stream { heard, highest, .. } = self.streams[stream as usize];
        let seq = Seq::from_wire(seq, highest);
        if !heard && seq.0.abs_diff(highest.0) > LEAP_MAX {
            self.remove(stream as usize);
        }
    }

    /// Finds an index for a new stream. Streams known by name alone or from strangers make room first. Of the
    /// others, the one that has been silent longest makes room, if that is long enough.
    fn make_place(&mut self, now_us: u64, came: bool) -> Option<usize> {
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

    /// Gives up the missing packets of a stream, and removes it.
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
