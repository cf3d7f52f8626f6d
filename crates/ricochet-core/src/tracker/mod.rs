//! The packet tracker: which packets of which streams are known to exist and have not come (Thesis §4.3).
//!
//! A packet goes to [`Tracker::on_received`], which distinguishes new packets from duplicates. A name in a
//! repair or a heartbeat goes to [`Tracker::on_named`]. Either may show that packets before it are missing.
//! Missing packets are kept as intervals in a pool common to all streams. The owner of the tracker puts a
//! mark on each interval, such as the time at which it was found missing.
//!
//! All tables are bounded, and memory is allocated at construction. When a table is full, the oldest interval
//! is given up, counted by reason and [reported](Tracker::pop_lost). A packet that comes after it was given
//! up is [`TooOld`](Arrival::TooOld), so that no packet counts as new twice.

mod config;
mod found;
mod pool;
mod streams;
mod truth;

use std::collections::VecDeque;

use foundation::Seq;
use hashbrown::HashMap;

use crate::counters::{GivenUp, GivenUpCounts};
use crate::ids::StreamKey;
use crate::links::{Ends, Links};
pub use config::{TrackerConfig, TrackerConfigError};
pub use found::{Arrival, Found, Front, Interval, Lost, Mention};
use pool::{Pool, Span};
pub use truth::Judgment;

#[derive(Debug)]
struct Stream {
    key: StreamKey,
    /// The newest packet known to exist.
    highest: Seq,
    /// Every packet before it has come or was given up.
    floor: Seq,
    /// Its intervals, in order.
    spans: Ends,
    count: u32,
    last_us: u64,
    /// Whether any packet of it came from a member. If not, it is known by name alone or from a stranger.
    heard: bool,
    /// The newest packet that came; if none has, the one before the first that was named.
    received: Seq,
    /// The first packet that came or was named.
    start: Seq,
    /// Whether earlier packets were given up.
    is_cut: bool,
    /// Every packet up to this position exists, as its sender itself has confirmed.
    verified: Seq,
    /// The newest packet that came since the sender was last asked.
    since_asked: Seq,
}

/// A packet that came or was named.
#[derive(Clone, Copy)]
struct Sighting<M> {
    now_us: u64,
    key: StreamKey,
    seq: u32,
    /// Mark for packets found missing.
    mark: M,
    /// Whether the packet came from a member. Otherwise it was named, or came from a stranger.
    heard: bool,
}

/// Maximum number of reports kept for the owner to fetch.
const REPORTS_MAX: usize = 1024;

/// Tracks the missing packets of many streams.
///
/// ```
/// use ricochet_core::tracker::{Arrival, Mention, Tracker, TrackerConfig};
/// use ricochet_core::{GroupId, NodeId, StreamKey};
/// let mut tracker = Tracker::new(TrackerConfig::default()).unwrap();
/// let key = StreamKey { sender: NodeId(1), group: GroupId(7) };
/// // The mark is the time at which a packet was found missing.
/// assert_eq!(tracker.on_received(10, key, 500, 10).what, Arrival::New);
/// assert_eq!(tracker.on_received(20, key, 504, 20).discovered, 3);
/// assert_eq!(tracker.on_received(25, key, 502, 25).what, Arrival::Missed(20));
/// assert_eq!(tracker.on_received(26, key, 502, 26).what, Arrival::Duplicate);
/// assert_eq!(tracker.on_named(30, key, 505, 30).what, Mention::Missing(30));
/// let missing: Vec<u32> = tracker.missing(key).map(|interval| interval.first.to_wire()).collect();
/// assert_eq!(missing, [501, 503, 505]);
/// ```
#[derive(Debug)]
pub struct Tracker<M> {
    config: TrackerConfig,
    by_key: HashMap<StreamKey, u32>,
    streams: Vec<Stream>,
    free_streams: Vec<u32>,
    /// The streams of which a packet came from a member, in order of their last mention.
    quiet: Ends,
    /// The other streams, in order of their last mention.
    unheard: Ends,
    unheard_count: usize,
    quiet_links: Links,
    pool: Pool<M>,
    given_up: GivenUpCounts,
    lost: VecDeque<Lost>,
    unreported: u64,
    refused: u64,
    /// The stream that was added last, until the owner fetches it.
    begun: Option<StreamKey>,
}

impl<M: Copy + PartialEq> Tracker<M> {
    /// Makes a tracker without streams.
    ///
    /// # Errors
    /// [`TrackerConfigError`].
    pub fn new(config: TrackerConfig) -> Result<Self, TrackerConfigError> {
        config.check()?;
        Ok(Self {
            config,
            // With twice the room the table rehashes in place and never grows.
            by_key: HashMap::with_capacity(config.streams_max * 2),
            streams: Vec::with_capacity(config.streams_max),
            free_streams: Vec::with_capacity(config.streams_max),
            quiet: Ends::EMPTY,
            unheard: Ends::EMPTY,
            unheard_count: 0,
            quiet_links: Links::new(config.streams_max),
            pool: Pool::new(config.intervals_max),
            given_up: GivenUpCounts::default(),
            lost: VecDeque::with_capacity(REPORTS_MAX),
            unreported: 0,
            refused: 0,
            begun: None,
        })
    }

    /// Notes that a packet came or was recovered; packets that this shows to be missing get `mark`.
    pub fn on_received(&mut self, now_us: u64, key: StreamKey, seq: u32, mark: M) -> Found<Arrival<M>> {
        self.receive(Sighting { now_us, key, seq, mark, heard: true })
    }

    /// Notes a packet of a sender that is no member, and may be made up. Such a stream makes room for those
    /// of members.
    pub fn on_received_from_stranger(
        &mut self,
        now_us: u64,
        key: StreamKey,
        seq: u32,
        mark: M,
    ) -> Found<Arrival<M>> {
        self.receive(Sighting { now_us, key, seq, mark, heard: false })
    }

    fn receive(&mut self, sighting: Sighting<M>) -> Found<Arrival<M>> {
        let Sighting { key, seq, mark, .. } = sighting;
        self.drop_false_start(key, seq);
        let Some((stream, before)) = self.stream_or_insert(sighting) else {
            return Found { seq: Seq::first_seen(seq), what: Arrival::NoRoom, discovered: 0 };
        };
        let seq = Seq::from_wire(seq, self.streams[stream].highest);
        if self.is_doubtful(stream, seq, true) {
            return Found { seq, what: Arrival::Doubtful, discovered: 0 };
        }
        let Stream { received, since_asked, .. } = &mut self.streams[stream];
        (*received, *since_asked) = (seq.max(*received), seq.max(*since_asked));
        if seq > self.streams[stream].highest {
            let discovered = before + self.extend(stream, seq, false, mark);
            return Found { seq, what: Arrival::New, discovered };
        }
        let what = match self.find(stream, seq) {
            Some(slot) => {
                let Span { owed, mark, .. } = *self.pool.span(slot);
                self.fill(stream, slot, seq);
                if owed { Arrival::Missed(mark) } else { Arrival::New }
            }
            None if seq < self.streams[stream].floor => Arrival::TooOld,
            None => Arrival::Duplicate,
        };
        Found { seq, what, discovered: 0 }
    }

    /// Notes that a repair or its sender named a packet; if it is found missing, it and the missing packets
    /// before it get `mark`.
    pub fn on_named(&mut self, now_us: u64, key: StreamKey, seq: u32, mark: M) -> Found<Mention<M>> {
        let sighting = Sighting { now_us, key, seq, mark, heard: false };
        let Some((stream, before)) = self.stream_or_insert(sighting) else {
            return Found { seq: Seq::first_seen(seq), what: Mention::NoRoom, discovered: 0 };
        };
        let seq = Seq::from_wire(seq, self.streams[stream].highest);
        if self.is_doubtful(stream, seq, false) {
            return Found { seq, what: Mention::Doubtful, discovered: 0 };
        }
        if seq > self.streams[stream].highest {
            let discovered = before + self.extend(stream, seq, true, mark);
            return Found { seq, what: Mention::Missing(mark), discovered };
        }
        let what = match self.find(stream, seq).map(|slot| self.pool.span(slot)) {
            Some(span) if span.owed => Mention::Missing(span.mark),
            Some(_) => Mention::TooOld,
            None if seq < self.streams[stream].floor => Mention::TooOld,
            None => Mention::Held,
        };
        Found { seq, what, discovered: 0 }
    }

    /// Returns the missing intervals of a stream, in order.
    pub fn missing(&self, key: StreamKey) -> impl Iterator<Item = Interval<M>> + '_ {
        let ends = self.by_key.get(&key).map_or(Ends::EMPTY, |&at| self.streams[at as usize].spans);
        self.pool.in_order(ends).filter(|span| span.owed).map(Span::interval)
    }

    /// Returns the missing intervals of all streams, the oldest first.
    pub fn oldest(&self) -> impl Iterator<Item = (StreamKey, Interval<M>)> + '_ {
        let owed = self.pool.by_age().filter(|span| span.owed);
        owed.map(|span| (self.streams[span.stream as usize].key, span.interval()))
    }

    /// Puts a new mark on the interval that contains `seq`; returns false if `seq` is not missing.
    pub fn mark(&mut self, key: StreamKey, seq: Seq, mark: M) -> bool {
        let Some(&stream) = self.by_key.get(&key) else { return false };
        let Some(slot) = self.find(stream as usize, seq) else { return false };
        let span = self.pool.span_mut(slot);
        if span.owed {
            span.mark = mark;
        }
        span.owed
    }

    /// Puts a new mark on the first `count` packets of the interval that begins at `seq`. The rest keeps its
    /// mark, unless there is no room to split the interval.
    pub fn mark_first(&mut self, key: StreamKey, seq: Seq, count: u64, mark: M) {
        let Some(&stream) = self.by_key.get(&key) else { return };
        let Some(slot) = self.find(stream as usize, seq) else { return };
        let (stream, span) = (stream as usize, *self.pool.span(slot));
        let rest = seq.plus(count);
        let room = self.streams[stream].count < self.config.stream_intervals_max && !self.pool.is_full();
        if rest <= span.last && room {
            self.pool.span_mut(slot).last = rest.minus(1);
            self.pool.insert_after(&mut self.streams[stream].spans, slot, Span { first: rest, ..span });
            self.streams[stream].count += 1;
        }
        if span.owed {
            self.pool.span_mut(slot).mark = mark;
        }
    }

    /// Gives up the missing packets of a stream up to and including `through`, because requests for them were
    /// in vain.
    pub fn give_up(&mut self, key: StreamKey, through: Seq) {
        self.give_up_for(key, through, GivenUp::Unanswered);
    }

    /// Does the same for another reason.
    pub fn give_up_for(&mut self, key: StreamKey, through: Seq, reason: GivenUp) {
        if let Some(&stream) = self.by_key.get(&key) {
            let through = through.min(self.streams[stream as usize].highest);
            self.settle_before(stream as usize, through.plus(1), reason);
        }
    }

    /// Forgets all streams for which `gone` returns true, because their group was left or their sender is
    /// gone. Their missing packets are neither counted nor reported. Looks at every stream.
    pub fn forget(&mut self, mut gone: impl FnMut(StreamKey) -> bool) {
        for ends in [self.quiet, self.unheard] {
            let mut next = ends.first();
            while let Some(stream) = next {
                next = self.quiet_links.after(stream);
                if gone(self.streams[stream].key) {
                    self.remove(stream);
                }
            }
        }
    }

    /// Returns how far a stream is settled; [`Front::END`] if the stream is not known.
    pub fn front(&self, key: StreamKey) -> Front {
        let Some(stream) = self.by_key.get(&key).map(|&at| &self.streams[at as usize]) else {
            return Front::END;
        };
        let end = stream.highest.plus(1);
        let settled = stream.spans.first().map_or(end, |slot| self.pool.span(slot).first);
        let awaited = self.pool.in_order(stream.spans).find(|span| span.owed).map_or(end, |span| span.first);
        Front { settled, awaited }
    }

    /// Returns the reports of packets given up that are not yet fetched, in order of time.
    pub fn lost(&self) -> impl Iterator<Item = &Lost> + '_ {
        self.lost.iter()
    }

    /// Fetches the next report of packets given up, in order of time.
    pub fn pop_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// Returns the newest packet of a stream that is known to exist.
    pub fn highest(&self, key: StreamKey) -> Option<Seq> {
        self.by_key.get(&key).map(|&stream| self.streams[stream as usize].highest)
    }

    /// Returns the newest packet of a stream that has come.
    pub fn received(&self, key: StreamKey) -> Option<Seq> {
        self.by_key.get(&key).map(|&stream| self.streams[stream as usize].received)
    }

    /// Returns the number of known streams.
    pub fn streams(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of intervals in all streams together.
    pub fn intervals(&self) -> usize {
        self.pool.len()
    }

    /// Returns the number of packets given up, by reason.
    pub fn given_up(&self) -> &GivenUpCounts {
        &self.given_up
    }

    /// Returns the number of reports dropped because the owner did not fetch them.
    pub fn unreported(&self) -> u64 {
        self.unreported
    }

    /// Returns the number of packets and names refused because there was no room for their stream.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of awaited intervals in all streams together.
    pub fn owed(&self) -> usize {
        self.pool.owed()
    }

    /// Notes that packets up to and including `to` exist; `to` itself is `missing` or has come. Returns the
    /// number of packets found missing.
    fn extend(&mut self, stream: usize, to: Seq, missing: bool, mark: M) -> u64 {
        let first = self.streams[stream].highest.plus(1);
        let last = if missing { to } else { to.minus(1) };
        self.streams[stream].highest = to;
        let start = to.minus(u64::from(self.config.lag_max) - 1);
        self.settle_before(stream, start, GivenUp::Behind);
        if first < start {
            self.report(stream, first, start.minus(1), GivenUp::Behind);
        }
        let first = first.max(start);
        if first > last {
            return 0;
        }
        self.append(Span { stream: stream as u32, first, last, mark, owed: true });
        last.0 - first.0 + 1
    }

    /// Adds an interval after all others of its stream.
    fn append(&mut self, span: Span<M>) {
        let stream = span.stream as usize;
        if let Some(newest) = self.streams[stream].spans.last() {
            let newest = self.pool.span_mut(newest);
            if newest.last.plus(1) == span.first && newest.owed && span.owed && newest.mark == span.mark {
                newest.last = span.last;
                return;
            }
        }
        let room = self.make_room(stream, None);
        assert!(room, "any interval may be given up");
        self.pool.append(&mut self.streams[stream].spans, span);
        self.streams[stream].count += 1;
    }

    /// Returns the interval that contains a packet. Searches from the newest, which is the most likely.
    fn find(&self, stream: usize, seq: Seq) -> Option<usize> {
        let mut next = self.streams[stream].spans.last();
        while let Some(slot) = next {
            let span = self.pool.span(slot);
            if span.first <= seq {
                return (seq <= span.last).then_some(slot);
            }
            next = self.pool.before(slot);
        }
        None
    }

    /// Removes a packet from the interval that contains it.
    fn fill(&mut self, stream: usize, slot: usize, seq: Seq) {
        let span = *self.pool.span(slot);
        if span.first == span.last {
            self.drop_span(slot);
        } else if seq == span.first {
            self.pool.span_mut(slot).first = seq.plus(1);
        } else if seq == span.last {
            self.pool.span_mut(slot).last = seq.minus(1);
        } else if self.make_room(stream, Some(slot)) {
            self.pool.span_mut(slot).last = seq.minus(1);
            self.pool.insert_after(
                &mut self.streams[stream].spans,
                slot,
                Span { first: seq.plus(1), ..span },
            );
            self.streams[stream].count += 1;
        } else {
            // This interval is itself the one to give up. Giving up its older part makes the room.
            self.pool.span_mut(slot).first = seq.plus(1);
            self.settle(stream, &Span { last: seq.minus(1), ..span }, self.room_reason(stream));
        }
    }

    /// Makes room for one more interval of a stream; returns false if that requires giving up `keep`.
    fn make_room(&mut self, stream: usize, keep: Option<usize>) -> bool {
        while self.streams[stream].count == self.config.stream_intervals_max || self.pool.is_full() {
            let reason = self.room_reason(stream);
            let victim = match reason {
                GivenUp::StreamFull => self.streams[stream].spans.first(),
                _ => self.pool.oldest(),
            };
            let victim = victim.expect("a full list has a first interval");
            if Some(victim) == keep {
                return false;
            }
            let span = *self.pool.span(victim);
            self.settle(span.stream as usize, &span, reason);
            self.drop_span(victim);
        }
        true
    }

    fn room_reason(&self, stream: usize) -> GivenUp {
        let full = self.streams[stream].count == self.config.stream_intervals_max;
        if full { GivenUp::StreamFull } else { GivenUp::PoolFull }
    }

    /// Gives up the missing packets of a stream before `end`.
    fn settle_before(&mut self, stream: usize, end: Seq, reason: GivenUp) {
        while let Some(slot) = self.streams[stream].spans.first() {
            let span = *self.pool.span(slot);
            if span.last < end {
                self.settle(stream, &span, reason);
                self.drop_span(slot);
                continue;
            }
            if span.first < end {
                self.settle(stream, &Span { last: end.minus(1), ..span }, reason);
                self.pool.span_mut(slot).first = end;
            }
            break;
        }
        let floor = &mut self.streams[stream].floor;
        *floor = end.max(*floor);
    }

    /// Counts the first interval of a stream, or the beginning of it, as given up. Intervals are given up in
    /// order, so one floor is enough to recognize packets that were given up.
    fn settle(&mut self, stream: usize, span: &Span<M>, reason: GivenUp) {
        let floor = &mut self.streams[stream].floor;
        assert!(*floor <= span.first, "missing packets lie above the floor");
        *floor = span.last.plus(1);
        if span.owed {
            self.report(stream, span.first, span.last, reason);
        }
    }

    fn report(&mut self, stream: usize, first: Seq, last: Seq, reason: GivenUp) {
        self.given_up.add_times(reason, last.0 - first.0 + 1);
        if self.lost.len() == REPORTS_MAX {
            self.unreported += 1;
            return;
        }
        self.lost.push_back(Lost { key: self.streams[stream].key, first, last, reason });
    }

    fn drop_span(&mut self, slot: usize) {
        let stream = &mut self.streams[self.pool.span(slot).stream as usize];
        stream.count -= 1;
        self.pool.remove(&mut stream.spans, slot);
    }
}

#[cfg(test)]
mod tests;
