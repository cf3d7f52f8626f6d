//! Messages in the order of their stream. A message that has overtaken others is held back until these have
//! come or are lost.
//!
//! The node reports how far each stream is settled ([`Message::front`],
//! [`Output::on_settled`](crate::message::Output)). So the stage waits for exactly the packets that its node
//! waits for, even if it was set up long after the stream began. A loss is reported at its position in the
//! stream.
//!
//! - A stream seen from its start (`lookback` in [`TrackerConfig`](crate::TrackerConfig)): packet 0 is
//!   awaited.
//! - A stream first seen in its middle: nothing earlier is awaited. Its first messages are held for
//!   `settle_us`, since packets may have overtaken each other.
//! - A full stage: the stream whose first message has waited longest skips the packets missing before it. A
//!   report of reason [`Skipped`](GivenUp::Skipped) takes their place, and all messages up to the next gap
//!   are released.
//! - A stream first seen in its middle whose sender expected the node to get earlier messages: the loss of
//!   these is reported when the node learns of it, after later messages.
//! - A message that comes too late, because it was skipped or precedes the first message released of its
//!   stream: it is discarded and counted.
//!
//! A message that need not wait passes without a copy. Held payloads lie in a pool that grows to its bound
//! and is then reused.

mod config;
mod held;

use foundation::Seq;
use hashbrown::HashMap;

use crate::counters::GivenUp;
use crate::ids::StreamKey;
use crate::links::{Ends, Links};
use crate::message::Message;
use crate::tracker::{Front, Lost};
pub use config::{FifoConfig, FifoConfigError, FifoCounts};
use held::{Held, Item, What};

/// Output of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released<'a> {
    /// A message, in the order of its stream.
    Message(Message<'a>),
    /// Packets between the messages before and after this report that will not be released.
    Lost(Lost),
}

#[derive(Debug)]
struct Stream {
    key: StreamKey,
    /// Lower bound of the next position to release.
    next: Seq,
    /// The first position released.
    begun: Option<Seq>,
    front: Front,
    /// Time until which its beginning is uncertain.
    settles_us: Option<u64>,
    held: Ends,
}

/// Puts the messages of many streams into order, for one subscription.
///
/// ```
/// use ricochet_core::delivery::{Fifo, FifoConfig, Released};
/// use ricochet_core::message::{How, Message};
/// use ricochet_core::tracker::{Tracker, TrackerConfig};
/// use ricochet_core::{GroupId, NodeId, StreamKey};
/// let mut tracker = Tracker::new(TrackerConfig::default()).unwrap();
/// let mut fifo = Fifo::new(FifoConfig::default()).unwrap();
/// let key = StreamKey { sender: NodeId(1), group: GroupId(7) };
/// let mut order = Vec::new();
/// for number in [1, 2, 0, 4] {
///     let seq = tracker.on_received(0, key, number, ()).seq;
///     let message = Message {
///         sender: key.sender, group: key.group, seq, payload: b"", joint: false, packets: 1,
///         how: How::Multicast, missed_us: None, front: tracker.front(key), past_us: None, sent: None,
///         enveloped: false,
///     };
///     fifo.handle_message(0, &message, &mut |released| {
///         if let Released::Message(message) = released {
///             order.push(message.seq.to_wire());
///         }
///     });
/// }
/// assert_eq!(order, [0, 1, 2], "packet 3 is awaited");
/// ```
#[derive(Debug)]
pub struct Fifo {
    config: FifoConfig,
    by_key: HashMap<StreamKey, u32>,
    streams: Vec<Stream>,
    free: Vec<u32>,
    links: Links,
    /// Streams whose beginning is uncertain, in order of `settles_us`. All others are in `quiet`.
    settling: Ends,
    /// Streams in order of their last message, the oldest first.
    quiet: Ends,
    held: Held,
    counts: FifoCounts,
}

impl Fifo {
    /// Makes an empty stage.
    ///
    /// # Errors
    /// [`FifoConfigError`].
    pub fn new(config: FifoConfig) -> Result<Self, FifoConfigError> {
        config.check()?;
        Ok(Self {
            // With twice the room the table rehashes in place and never grows.
            by_key: HashMap::with_capacity(2 * config.streams_max),
            streams: Vec::with_capacity(config.streams_max),
            free: Vec::with_capacity(config.streams_max),
            links: Links::new(config.streams_max),
            settling: Ends::EMPTY,
            quiet: Ends::EMPTY,
            held: Held::new(config.messages_max, config.bytes_max),
            counts: FifoCounts::default(),
            config,
        })
    }

    /// Takes a message. Releases it and the messages that waited for it, or holds it.
    pub fn handle_message(&mut self, now_us: u64, message: &Message<'_>, out: &mut impl FnMut(Released<'_>)) {
        let key = StreamKey { sender: message.sender, group: message.group };
        let stream = self.stream_or_insert(now_us, key, message.seq, message.front, out);
        self.streams[stream].front = message.front;
        let Message { packets, joint, how, missed_us, past_us, sent, enveloped, .. } = *message;
        let what = What::Message { packets, joint, how, missed_us, past_us, sent, enveloped };
        self.put(Item { stream: stream as u32, first: message.seq, what }, message.payload, out);
        self.release(stream, None, out);
    }

    /// Takes a report of lost packets, which takes their position in the stream.
    pub fn on_lost(&mut self, now_us: u64, lost: &Lost, out: &mut impl FnMut(Released<'_>)) {
        let front = Front { settled: lost.first, awaited: lost.first };
        let stream = self.stream_or_insert(now_us, lost.key, lost.first, front, out);
        let Stream { begun, next, .. } = self.streams[stream];
        if begun.is_some_and(|begin| lost.last < begin) {
            // The node has learned late that it was to get them.
            return out(Released::Lost(*lost));
        }
        // The application already knows of skipped packets.
        let first = if begun.is_some() { lost.first.max(next) } else { lost.first };
        if first <= lost.last {
            let what = What::Lost { last: lost.last, reason: lost.reason };
            self.put(Item { stream: stream as u32, first, what }, &[], out);
        }
    }

    /// Notes how far a stream is settled, and releases the messages that this allows.
    pub fn on_settled(&mut self, key: StreamKey, front: Front, out: &mut impl FnMut(Released<'_>)) {
        if let Some(&stream) = self.by_key.get(&key) {
            self.streams[stream as usize].front = front;
            self.release(stream as usize, None, out);
        }
    }

    /// Returns when [`Fifo::handle_timeout`] is due next, if nothing else happens until then.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.settling.first().and_then(|stream| self.streams[stream].settles_us)
    }

    /// Begins the streams whose uncertain time is over.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl FnMut(Released<'_>)) {
        while let Some(stream) = self.settling.first() {
            if self.streams[stream].settles_us.is_some_and(|settles_us| settles_us > now_us) {
                return;
            }
            self.links.remove(&mut self.settling, stream);
            self.links.push_last(&mut self.quiet, stream);
            self.streams[stream].settles_us = None;
            self.release(stream, None, out);
        }
    }

    /// Forgets all streams for which `gone` returns true, and discards their held messages. Looks at every
    /// stream.
    pub fn forget(&mut self, mut gone: impl FnMut(StreamKey) -> bool) {
        let Self { by_key, streams, .. } = self;
        let leaving: Vec<u32> =
            by_key.values().copied().filter(|&at| gone(streams[at as usize].key)).collect();
        for stream in leaving {
            while let Some(slot) = self.streams[stream as usize].held.first() {
                self.counts.forgotten += u64::from(matches!(self.held.item(slot).what, What::Message { .. }));
                self.held.remove(&mut self.streams[stream as usize].held, slot);
            }
            self.remove(stream as usize);
        }
    }

    /// Returns the number of messages and reports held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the counts since the start.
    pub fn counts(&self) -> &FifoCounts {
        &self.counts
    }

    /// Returns the memory held for payloads, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.held.memory_bytes()
    }

    /// Returns the index of a stream, which is added if it is new.
    fn stream_or_insert(
        &mut self,
        now_us: u64,
        key: StreamKey,
        seq: Seq,
        front: Front,
        out: &mut impl FnMut(Released<'_>),
    ) -> usize {
        if let Some(&stream) = self.by_key.get(&key) {
            let stream = stream as usize;
            if self.streams[stream].settles_us.is_none() && self.quiet.last() != Some(stream) {
                self.links.remove(&mut self.quiet, stream);
                self.links.push_last(&mut self.quiet, stream);
            }
            return stream;
        }
        if self.by_key.len() == self.config.streams_max {
            self.evict(out);
        }
        let next = seq.min(front.awaited);
        let uncertain = front.settled < next && self.config.settle_us > 0;
        let settles_us = uncertain.then_some(now_us + self.config.settle_us);
        let stream = Stream { key, next, begun: None, front, settles_us, held: Ends::EMPTY };
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => self.streams.len(),
        };
        if place == self.streams.len() {
            self.streams.push(stream);
        } else {
            self.streams[place] = stream;
        }
        self.by_key.insert(key, place as u32);
        self.links.push_last(if uncertain { &mut self.settling } else { &mut self.quiet }, place);
        place
    }

    /// Makes room for a stream: the quietest one stops waiting and is forgotten.
    fn evict(&mut self, out: &mut impl FnMut(Released<'_>)) {
        let victim = self.quiet.first().or(self.settling.first()).expect("the table is full");
        while let Some(slot) = self.streams[victim].held.first() {
            self.counts.crowded += 1;
            self.skip_to(victim, self.held.item(slot).first, out);
            self.release(victim, None, out);
        }
        self.remove(victim);
    }

    fn remove(&mut self, stream: usize) {
        let list = match self.streams[stream].settles_us {
            Some(_) => &mut self.settling,
            None => &mut self.quiet,
        };
        self.links.remove(list, stream);
        self.by_key.remove(&self.streams[stream].key);
        self.free.push(stream as u32);
    }

    /// Releases an item, or holds it.
    fn put(&mut self, item: Item, payload: &[u8], out: &mut impl FnMut(Released<'_>)) {
        let at = item.stream as usize;
        let stream = &mut self.streams[at];
        if stream.begun.is_some() && item.first < stream.next {
            self.counts.late += 1;
            return;
        }
        stream.next = stream.next.min(item.first);
        self.release(at, Some(item.first), out);
        if self.is_releasable(at, item.first) {
            return self.pass(&item, payload, out);
        }
        while !self.held.has_room(payload.len()) {
            let oldest = self.held.oldest().map(|slot| self.held.item(slot).stream as usize);
            let victim = oldest.unwrap_or(at);
            self.counts.crowded += 1;
            let first = self.streams[victim].held.first().map(|slot| self.held.item(slot).first);
            let Some(first) = first.filter(|&first| victim != at || first < item.first) else {
                // The item itself is next to go, or is too large for the whole stage.
                self.skip_to(at, item.first, out);
                return self.pass(&item, payload, out);
            };
            self.skip_to(victim, first, out);
            self.release(victim, (victim == at).then_some(item.first), out);
            if self.is_releasable(at, item.first) {
                return self.pass(&item, payload, out);
            }
        }
        if !self.held.insert(&mut self.streams[at].held, item, payload) {
            self.counts.late += 1;
        }
    }

    /// Returns whether nothing before `seq` is awaited.
    fn is_releasable(&self, stream: usize, seq: Seq) -> bool {
        let Stream { begun, next, front, settles_us, .. } = self.streams[stream];
        let bound = if settles_us.is_some() { front.settled } else { front.awaited };
        seq < bound || (begun.is_some() && seq <= next)
    }

    /// Releases all items of a stream that need not wait, at most those before `end`.
    fn release(&mut self, stream: usize, end: Option<Seq>, out: &mut impl FnMut(Released<'_>)) {
        while let Some(slot) = self.streams[stream].held.first() {
            let item = self.held.item(slot);
            if end.is_some_and(|end| item.first >= end) || !self.is_releasable(stream, item.first) {
                return;
            }
            let Self { streams, held, counts, .. } = self;
            let release = Release { item: &item, payload: held.payload(slot), waited: true };
            release.emit(&mut streams[stream], counts, out);
            held.remove(&mut streams[stream].held, slot);
        }
    }

    /// Releases an item that did not wait.
    fn pass(&mut self, item: &Item, payload: &[u8], out: &mut impl FnMut(Released<'_>)) {
        let release = Release { item, payload, waited: false };
        release.emit(&mut self.streams[item.stream as usize], &mut self.counts, out);
    }

    /// Gives up the missing packets of a stream before `seq`.
    fn skip_to(&mut self, stream: usize, seq: Seq, out: &mut impl FnMut(Released<'_>)) {
        let Stream { key, next, .. } = self.streams[stream];
        if next < seq {
            self.counts.skipped += seq.0 - next.0;
            out(Released::Lost(Lost { key, first: next, last: seq.minus(1), reason: GivenUp::Skipped }));
            self.streams[stream].next = seq;
        }
        self.streams[stream].begun.get_or_insert(next);
    }
}

/// An item on its way to the application.
struct Release<'a> {
    item: &'a Item,
    payload: &'a [u8],
    /// Whether it was held back.
    waited: bool,
}

impl Release<'_> {
    /// Hands the item over, and advances its stream.
    fn emit(&self, stream: &mut Stream, counts: &mut FifoCounts, out: &mut impl FnMut(Released<'_>)) {
        let Self { item, payload, waited } = *self;
        stream.begun.get_or_insert(item.first);
        stream.next = stream.next.max(item.last().plus(1));
        let StreamKey { sender, group } = stream.key;
        match item.what {
            What::Message { packets, joint, how, missed_us, past_us, sent, enveloped } => {
                counts.released += 1;
                counts.waited += u64::from(waited);
                let (seq, front) = (item.first, stream.front);
                out(Released::Message(Message {
                    sender,
                    group,
                    seq,
                    payload,
                    joint,
                    packets,
                    how,
                    missed_us,
                    front,
                    past_us,
                    sent,
                    enveloped,
                }));
            }
            What::Lost { last, reason } => {
                out(Released::Lost(Lost { key: stream.key, first: item.first, last, reason }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
