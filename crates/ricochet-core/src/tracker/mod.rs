//! The packet tracker: which packets of which streams are known to exist and have not come (Thesis §4.3).
//!
//! A packet meets [`Tracker::on_received`], which tells the new from the duplicates; a name in a repair or a heartbeat
//! meets [`Tracker::on_named`]. Either may show that others exist before it. What is missing is kept as intervals, each
//! with a mark of the owner's (when it was found missing, how often it was asked for), in a pool common to all
//! streams.
//!
//! All is bounded, and all memory taken at construction. What no longer fits is given up, the oldest first, counted by
//! reason and [reported](Tracker::pop_lost). A packet that was given up and comes after all is
//! [`TooOld`](Arrival::TooOld), so that nothing is ever taken for new twice.

mod config;
mod found;
mod pool;
mod streams;

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::counters::{GivenUp, GivenUpCounts};
use crate::ids::StreamKey;
use crate::links::{Ends, Links};
pub use config::{TrackerConfig, TrackerConfigError};
pub use found::{Arrival, Found, Front, Interval, Lost, Mention};
use foundation::Seq;
use pool::{Pool, Span};

#[derive(Debug)]
struct Stream {
    key: StreamKey,
    /// The newest packet known to exist.
    highest: Seq,
    /// Everything before it is settled or given up.
    floor: Seq,
    /// Its intervals in order.
    spans: Ends,
    count: u32,
    last_us: u64,
    /// Whether anything of it came. If not, others only said that it exists.
    heard: bool,
    /// The newest packet that came; where none has, the one before the first that was named.
    came: Seq,
    /// The last claim that was too far ahead to be believed at once.
    doubted: Option<Seq>,
}

/// Reports of losses kept for the owner to fetch.
const REPORTS_MAX: usize = 1024;

/// Keeps, of many streams, what is missing.
///
/// ```
/// use ricochet_core::tracker::{Arrival, Mention, Tracker, TrackerConfig};
/// use ricochet_core::{GroupId, NodeId, StreamKey};
/// let mut tracker = Tracker::new(TrackerConfig::default()).unwrap();
/// let key = StreamKey { sender: NodeId(1), group: GroupId(7) };
/// // the mark is when a packet was found missing
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
    /// The streams of which something came, the one heard longest ago first.
    quiet: Ends,
    /// The streams that are known by name alone, the one named longest ago first.
    unheard: Ends,
    unheard_count: usize,
    quiet_links: Links,
    pool: Pool<M>,
    given_up: GivenUpCounts,
    lost: VecDeque<Lost>,
    unreported: u64,
    refused: u64,
}

impl<M: Copy + PartialEq> Tracker<M> {
    /// A tracker of no streams yet.
    ///
    /// # Errors
    /// [`TrackerConfigError`].
    pub fn new(config: TrackerConfig) -> Result<Self, TrackerConfigError> {
        config.check()?;
        Ok(Self {
            config,
            // Twice the room: then the table cleans itself in place and never grows.
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
        })
    }

    /// Notes that a packet came, by itself or recovered; `mark` goes to those that this shows to be missing.
    pub fn on_received(&mut self, now_us: u64, key: StreamKey, seq: u32, mark: M) -> Found<Arrival<M>> {
        self.forget_a_wrong_beginning(key, seq);
        let Some((stream, before)) = self.stream(now_us, key, seq, mark, true) else {
            return Found { seq: Seq::first_seen(seq), what: Arrival::NoRoom, discovered: 0 };
        };
        let seq = Seq::from_wire(seq, self.streams[stream].highest);
        if self.doubts(stream, seq) {
            return Found { seq, what: Arrival::Doubtful, discovered: 0 };
        }
        self.streams[stream].came = seq.max(self.streams[stream].came);
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

    /// Notes that a packet exists, for a repair or its sender named it; it and those before it that are thereby
    /// found missing get `mark`.
    pub fn on_named(&mut self, now_us: u64, key: StreamKey, seq: u32, mark: M) -> Found<Mention<M>> {
        let Some((stream, before)) = self.stream(now_us, key, seq, mark, false) else {
            return Found { seq: Seq::first_seen(seq), what: Mention::NoRoom, discovered: 0 };
        };
        let seq = Seq::from_wire(seq, self.streams[stream].highest);
        if self.doubts(stream, seq) {
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

    /// What is missing of a stream, in order.
    pub fn missing(&self, key: StreamKey) -> impl Iterator<Item = Interval<M>> + '_ {
        let ends = self.by_key.get(&key).map_or(Ends::EMPTY, |&at| self.streams[at as usize].spans);
        self.pool.in_order(ends).filter(|span| span.owed).map(Span::interval)
    }

    /// What is missing of all streams, the longest known first.
    pub fn oldest(&self) -> impl Iterator<Item = (StreamKey, Interval<M>)> + '_ {
        let owed = self.pool.by_age().filter(|span| span.owed);
        owed.map(|span| (self.streams[span.stream as usize].key, span.interval()))
    }

    /// Puts a new mark on the interval that `seq` lies in; false if it is not missing.
    pub fn mark(&mut self, key: StreamKey, seq: Seq, mark: M) -> bool {
        let Some(&stream) = self.by_key.get(&key) else { return false };
        let Some(slot) = self.find(stream as usize, seq) else { return false };
        let span = self.pool.span_mut(slot);
        if span.owed {
            span.mark = mark;
        }
        span.owed
    }

    /// Puts a new mark on the first `count` packets of the interval that `seq` begins, and leaves the rest as it was;
    /// where there is no room to part them, the rest gets it too.
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

    /// Gives up what is missing of a stream up to and with `through`: it was asked for in vain.
    pub fn give_up(&mut self, key: StreamKey, through: Seq) {
        if let Some(&stream) = self.by_key.get(&key) {
            let through = through.min(self.streams[stream as usize].highest);
            self.settle_before(stream as usize, through.plus(1), GivenUp::Unanswered);
        }
    }

    /// Forgets all streams for which `gone` is true, since their group was left or their sender is no more. What they
    /// miss is neither counted nor reported. Looks at every stream.
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

    /// How far a stream is settled: [`Front::END`] if it is not known.
    pub fn front(&self, key: StreamKey) -> Front {
        let Some(stream) = self.by_key.get(&key).map(|&at| &self.streams[at as usize]) else {
            return Front::END;
        };
        let end = stream.highest.plus(1);
        let settled = stream.spans.first().map_or(end, |slot| self.pool.span(slot).first);
        let awaited = self.pool.in_order(stream.spans).find(|span| span.owed).map_or(end, |span| span.first);
        Front { settled, awaited }
    }

    /// The reports of packets given up that were not fetched yet, in order of time.
    pub fn lost(&self) -> impl Iterator<Item = &Lost> + '_ {
        self.lost.iter()
    }

    /// Fetches the next report of packets given up, in order of time.
    pub fn pop_lost(&mut self) -> Option<Lost> {
        self.lost.pop_front()
    }

    /// The newest packet of a stream known to exist.
    pub fn highest(&self, key: StreamKey) -> Option<Seq> {
        self.by_key.get(&key).map(|&stream| self.streams[stream as usize].highest)
    }

    /// Streams known.
    pub fn streams(&self) -> usize {
        self.by_key.len()
    }

    /// Intervals in all streams together.
    pub fn intervals(&self) -> usize {
        self.pool.len()
    }

    /// Packets given up so far, by reason.
    pub fn given_up(&self) -> &GivenUpCounts {
        &self.given_up
    }

    /// Reports that were not kept, since the owner fetched none for long.
    pub fn unreported(&self) -> u64 {
        self.unreported
    }

    /// Packets and names that found no room for their stream.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Intervals that are waited for, in all streams together.
    pub fn owed(&self) -> usize {
        self.pool.owed()
    }

    /// Takes note that packets up to and with `to` exist; `to` itself is missing or has come. Returns how many are
    /// newly waited for.
    fn extend(&mut self, stream: usize, to: Seq, missing: bool, mark: M) -> u64 {
        let first = self.streams[stream].highest.plus(1);
        let last = if missing { to } else { to.minus(1) };
        self.streams[stream].highest = to;
        let start = to.minus(u64::from(self.config.window) - 1);
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

    /// Adds an interval behind all others of its stream.
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
        assert!(room, "whatever stands in the way may be given up");
        self.pool.append(&mut self.streams[stream].spans, span);
        self.streams[stream].count += 1;
    }

    /// The interval that a packet lies in; looks from the newest on, where most answers are.
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

    /// Takes a packet out of the interval it lies in.
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
            // It is itself the one to be given up first, and its older part is enough.
            self.pool.span_mut(slot).first = seq.plus(1);
            self.settle(stream, &Span { last: seq.minus(1), ..span }, self.room_reason(stream));
        }
    }

    /// Makes room for one more interval of a stream; false if only `keep` could make it.
    fn make_room(&mut self, stream: usize, keep: Option<usize>) -> bool {
        while self.streams[stream].count == self.config.stream_intervals_max || self.pool.is_full() {
            let reason = self.room_reason(stream);
            let victim = match reason {
                GivenUp::StreamFull => self.streams[stream].spans.first(),
                _ => self.pool.oldest(),
            };
            let victim = victim.expect("what is full has a first");
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

    /// Gives up everything of a stream that is missing before `end`.
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

    /// Counts the first interval of a stream, or its beginning, as given up. Since intervals leave in the order in
    /// which they stand, one floor is enough to know a packet that was given up.
    fn settle(&mut self, stream: usize, span: &Span<M>, reason: GivenUp) {
        let floor = &mut self.streams[stream].floor;
        assert!(*floor <= span.first, "what is missing lies above the floor");
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
