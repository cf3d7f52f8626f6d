//! The last message of each key: what this node tells others, and what it reads from them when it joins.

use std::sync::Arc;

use foundation::Seq;

use super::Node;
use super::history::Replayed;
use crate::counters::Malformed;
use crate::history::catch_up::CatchUp;
use crate::history::keyed::{KeyedRecord, Snapshot, read_front};
use crate::history::log::Log;
use crate::ids::{GroupId, NodeId, StreamKey};
use crate::message::{How, Message, Output};
use crate::tracker::Front;
use crate::wire::HistoryRequest;

/// Maximum number of nodes that read copies at once.
const READERS_MAX: usize = 256;
/// Maximum number of copies that others read at once, not counting short ones.
const LONG_MAX: usize = 4;
/// Length of a short copy in bytes.
const SHORT: usize = 64 << 10;
/// Time for which further nodes get the same copy, in microseconds. It bounds the cost of requests.
const SHARED_US: u64 = 1_000_000;
/// Time after the last request of a node for which its copy is kept, in microseconds.
const KEPT_US: u64 = 3_000_000;
/// Longest time for which a copy is kept, in microseconds. A node that reads longer gets another one.
const AGE_US_MAX: u64 = 60_000_000;

/// A copy of the last messages of a group.
#[derive(Debug)]
pub(super) struct Copied {
    group: GroupId,
    at_us: u64,
    pub(super) snapshot: Snapshot,
}

/// A node that reads a copy.
#[derive(Debug)]
struct CopyReader {
    node: NodeId,
    token: u64,
    until_us: u64,
    copied: Arc<Copied>,
}

impl CopyReader {
    fn ends_us(&self) -> u64 {
        self.until_us.min(self.copied.at_us + AGE_US_MAX)
    }
}

/// Copies that others read. The messages change meanwhile, and the copies do not.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    readers: Vec<CopyReader>,
    /// The different copies.
    copies: Vec<Arc<Copied>>,
    /// Time before which no reader ends.
    due_us: Option<u64>,
}

impl Snapshots {
    /// Returns the copy that a request belongs to.
    pub(super) fn of(&mut self, now_us: u64, request: &HistoryRequest) -> Option<Arc<Copied>> {
        self.forget(now_us);
        let reader = self.reader_of(request)?;
        reader.until_us = now_us + KEPT_US;
        Some(Arc::clone(&reader.copied))
    }

    /// Notes that a node requests the log that follows a copy, so that it has read its copy, if it had one.
    pub(super) fn on_read(&mut self, now_us: u64, request: &HistoryRequest) {
        let Some(reader) = self.reader_of(request) else { return };
        // Further nodes get the copy until then, as if it were still read.
        reader.until_us = reader.copied.at_us + SHARED_US;
        let ends_us = reader.ends_us();
        self.due_us = self.due_us.into_iter().chain([ends_us]).min();
        self.forget(now_us);
    }

    fn reader_of(&mut self, request: &HistoryRequest) -> Option<&mut CopyReader> {
        let is_own = |reader: &&mut CopyReader| {
            (reader.node, reader.token, reader.copied.group) == (request.from, request.token, request.group)
        };
        self.readers.iter_mut().find(is_own)
    }

    /// Returns when copies may have to be forgotten.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// Forgets the copies that nobody reads any more.
    pub(super) fn forget(&mut self, now_us: u64) {
        if self.due_us.is_some_and(|due_us| due_us <= now_us) {
            self.retain(|reader| reader.ends_us() > now_us);
        }
    }

    fn retain(&mut self, kept: impl Fn(&CopyReader) -> bool) {
        self.readers.retain(kept);
        // The copy itself holds one count.
        self.copies.retain(|copied| Arc::strong_count(copied) > 1);
        self.due_us = self.readers.iter().map(CopyReader::ends_us).min();
    }

    fn add(&mut self, reader: CopyReader) {
        if !self.copies.iter().any(|copied| Arc::ptr_eq(copied, &reader.copied)) {
            self.copies.push(Arc::clone(&reader.copied));
        }
        self.due_us = self.due_us.into_iter().chain([reader.ends_us()]).min();
        self.readers.push(reader);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.copies.iter().map(|copied| copied.snapshot.bytes.capacity()).sum()
    }
}

impl Node {
    /// Returns a copy of the last messages of a group for a node that joins; `None` if others read as many
    /// copies as there may be. A node that repeats its request gets the same copy: it may have read a part of
    /// it, or wait for the first offer, which tells the length of that copy.
    pub(super) fn copy_for(&mut self, now_us: u64, request: &HistoryRequest) -> Option<Arc<Copied>> {
        if let Some(copied) = self.snapshots.of(now_us, request) {
            return Some(copied);
        }
        let HistoryRequest { from: node, token, group, .. } = *request;
        let snapshots = &mut self.snapshots;
        snapshots.retain(|reader| reader.ends_us() > now_us && (reader.node, reader.token) != (node, token));
        if snapshots.readers.len() >= READERS_MAX {
            return None;
        }
        let is_young = |copied: &&Arc<Copied>| copied.group == group && now_us < copied.at_us + SHARED_US;
        let copied = match snapshots.copies.iter().find(is_young) {
            Some(young) => Arc::clone(young),
            None => {
                let long = |copied: &&Arc<Copied>| copied.snapshot.bytes.len() > SHORT;
                if snapshots.copies.iter().filter(long).count() >= LONG_MAX {
                    return None;
                }
                let snapshot = self.snapshot(now_us, group);
                Arc::new(Copied { group, at_us: now_us, snapshot })
            }
        };
        let until_us = now_us + KEPT_US;
        self.snapshots.add(CopyReader { node, token, until_us, copied: Arc::clone(&copied) });
        Some(copied)
    }

    /// Returns a copy of the last messages of a group, empty if none are kept.
    fn snapshot(&mut self, now_us: u64, group: GroupId) -> Snapshot {
        let log = self.logs.get(group);
        let positions = log.into_iter().flat_map(Log::positions);
        let positions = positions.map(|(sender, next)| (sender, next.to_wire()));
        self.keyed.snapshot(now_us, group, log.map_or(0, Log::end), positions)
    }

    /// Delivers the last messages of keys that came, as long as their readers have room.
    pub(super) fn process_keyed(&mut self, now_us: u64, catch_up: &mut CatchUp, out: &mut impl Output) {
        let group = catch_up.group;
        loop {
            let read = match catch_up.take_front() {
                Ok(true) => KeyedRecord::read(catch_up.carry()),
                Ok(false) => Ok(None),
                Err(reason) => Err(reason),
            };
            let is_over = catch_up.is_at_end() && (catch_up.lacks_front() || !catch_up.carry().is_empty());
            let (record, length) = match read {
                Ok(Some(read)) => read,
                Ok(None) if !is_over => return,
                Ok(None) => return self.on_nonsense(catch_up, Malformed::TooShort),
                Err(reason) => return self.on_nonsense(catch_up, reason),
            };
            if !out.has_room(group, 1) {
                return catch_up.on_full(now_us);
            }
            let at_us = catch_up.local_us(now_us, record.at_us);
            let message = record.message.to_vec();
            let record = KeyedRecord { at_us, message: &message, ..record };
            let KeyedRecord { sender, seq, .. } = record;
            // A stream that is known brings its messages itself.
            let is_open = self.tracker.highest(StreamKey { sender, group }).is_none();
            let is_past = sender != self.config.id && is_open && catch_up.precedes(sender, seq);
            if is_past && self.keyed.read(group, now_us, &record) {
                self.counts.past += 1;
                catch_up.on_fresh();
                let near = catch_up.near(sender).map(Seq::first_seen);
                out.deliver(&self.message_of(now_us, group, &record, near, None));
            }
            catch_up.on_processed(length, Some(at_us));
        }
    }

    /// Hands the last messages that this node itself keeps of a group to `deliver`.
    pub(super) fn replay_keyed(
        &mut self,
        now_us: u64,
        group: GroupId,
        begin: &mut impl FnMut(Replayed),
        deliver: &mut impl FnMut(&Message<'_>),
    ) {
        // All of them: what lies behind a missing packet has been delivered too.
        let snapshot = self.keyed.snapshot(now_us, group, 0, std::iter::empty());
        let Snapshot { bytes, messages, is_complete } = snapshot;
        begin(Replayed { messages, is_complete });
        let Ok(Some((_, skip))) = read_front(&bytes, |_, _| {}) else { return };
        let mut rest = &bytes[skip..];
        while let Ok(Some((record, length))) = KeyedRecord::read(rest) {
            if !record.is_deleted && record.sender != self.config.id {
                let key = StreamKey { sender: record.sender, group };
                let near = self.tracker.highest(key);
                let front = near.map(|_| self.tracker.front(key));
                deliver(&self.message_of(now_us, group, &record, near, front));
            }
            rest = &rest[length..];
        }
    }

    /// Returns the message of a record, with the position nearest to `near`. Nothing of its stream is awaited
    /// up to `front`, or before the message if there is none: the messages between are not the last of their
    /// keys.
    fn message_of<'r>(
        &self,
        now_us: u64,
        group: GroupId,
        record: &KeyedRecord<'r>,
        near: Option<Seq>,
        front: Option<Front>,
    ) -> Message<'r> {
        let KeyedRecord { sender, seq, sent_us, at_us, message, .. } = *record;
        let seq = near.map_or(Seq::first_seen(seq), |near| Seq::from_wire(seq, near));
        Message {
            sender,
            group,
            seq,
            payload: message,
            joint: false,
            packets: 1,
            how: How::Multicast,
            missed_us: None,
            front: front.unwrap_or(Front { settled: seq.plus(1), awaited: seq.plus(1) }),
            past_us: Some(at_us),
            sent: Some(self.clocks.of_past(now_us, sender, sent_us, at_us)),
            enveloped: true,
        }
    }
}
