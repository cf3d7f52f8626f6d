//! Messages that wait for their number, and those that another member may still need.

use std::collections::BTreeMap;

use foundation::Seq;

use crate::ids::NodeId;
use crate::message::Message;
use crate::tracker::Front;

/// Maximum number of lost positions that are numbered at once.
const GAP_MAX: u64 = 1 << 30;
/// Maximum number of empty buffers kept for reuse.
const IDLE_MAX: usize = 256;

/// A message, kept.
#[derive(Debug)]
pub(super) struct Unit {
    message: Message<'static>,
    payload: Vec<u8>,
}

impl Unit {
    pub(super) fn message(&self) -> Message<'_> {
        Message { payload: &self.payload, ..self.message }
    }

    pub(super) fn packets(&self) -> u32 {
        self.message.packets.max(1)
    }
}

#[derive(Debug, Default)]
struct Stream {
    units: BTreeMap<Seq, Unit>,
    /// First packet that may still come.
    awaited: Seq,
    /// First packet that was given up.
    lost_from: Option<Seq>,
    /// Position after the last packet that was given up.
    lost_until: Seq,
}

/// The next positions of a stream to be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) seq: Seq,
    pub(super) count: u32,
    pub(super) lost: bool,
}

/// The messages of a group, by sender and position.
#[derive(Debug)]
pub(super) struct Hold {
    streams: BTreeMap<NodeId, Stream>,
    units: usize,
    bytes: usize,
    units_max: usize,
    bytes_max: usize,
    idle: Vec<Vec<u8>>,
}

impl Hold {
    pub(super) fn new(units_max: usize, bytes_max: usize) -> Self {
        Self { streams: BTreeMap::new(), units: 0, bytes: 0, units_max, bytes_max, idle: Vec::new() }
    }

    /// Keeps a message. Returns false if there is no room, unless it is `wanted`. It then counts as lost.
    pub(super) fn put(&mut self, message: &Message<'_>, wanted: bool) -> bool {
        let length = message.payload.len();
        let is_full =
            self.units >= self.units_max || (self.units > 0 && self.bytes + length > self.bytes_max);
        let stream = self.streams.entry(message.sender).or_default();
        stream.awaited = stream.awaited.max(message.front.awaited);
        if is_full && !wanted {
            stream.lost_until = stream.lost_until.max(message.seq.plus(message.packets.into()));
            return false;
        }
        if stream.units.contains_key(&message.seq) {
            return true;
        }
        let mut payload = self.idle.pop().unwrap_or_default();
        payload.extend_from_slice(message.payload);
        let message = Message { payload: &[], ..*message };
        stream.units.insert(message.seq, Unit { message, payload });
        self.units += 1;
        self.bytes += length;
        true
    }

    /// Notes that packets of a sender were given up.
    pub(super) fn on_lost(&mut self, sender: NodeId, first: Seq, last: Seq) {
        let stream = self.streams.entry(sender).or_default();
        stream.lost_from = Some(stream.lost_from.map_or(first, |known| known.min(first)));
        stream.lost_until = stream.lost_until.max(last.plus(1));
    }

    /// Notes how far a stream is settled.
    pub(super) fn on_settled(&mut self, sender: NodeId, front: Front) {
        let stream = self.streams.entry(sender).or_default();
        stream.awaited = stream.awaited.max(front.awaited);
    }

    pub(super) fn unit(&self, sender: NodeId, seq: Seq) -> Option<&Unit> {
        self.streams.get(&sender)?.units.get(&seq)
    }

    /// Returns the number of positions from `seq` on, at most `count`, at which no message is held.
    pub(super) fn absent(&self, sender: NodeId, seq: Seq, count: u32) -> u32 {
        let first = self.streams.get(&sender).and_then(|stream| stream.units.range(seq..).next());
        first.map_or(count, |(&at, _)| u32::try_from(at.0 - seq.0).unwrap_or(count).min(count))
    }

    /// Returns a position of a stream, near which its wire numbers are.
    pub(super) fn near(&self, sender: NodeId) -> Option<Seq> {
        self.streams.get(&sender)?.units.last_key_value().map(|(&seq, _)| seq)
    }

    /// Returns what of a stream follows `position`, if it must not wait for earlier packets.
    pub(super) fn ready(&self, sender: NodeId, position: Option<Seq>) -> Option<Ready> {
        let stream = self.streams.get(&sender)?;
        // A stream that has lost its first packets begins with those.
        let first = stream.units.first_key_value().map(|(&seq, _)| seq);
        let lost_first = stream.lost_from.filter(|&lost| first.is_none_or(|first| lost < first));
        let position = position.or(lost_first);
        let from = position.unwrap_or_default();
        let message = |seq: Seq, unit: &Unit| Ready { seq, count: unit.packets(), lost: false };
        let gap = |end: Seq| Ready {
            seq: from,
            count: end.0.saturating_sub(from.0).min(GAP_MAX) as u32,
            lost: true,
        };
        let next = stream.units.range(from..).next();
        match (next, position) {
            (Some((&seq, unit)), Some(position)) if seq == position => Some(message(seq, unit)),
            // The stream began before this node heard of it; what precedes its first packets is not awaited.
            (Some((&seq, unit)), None) if seq <= stream.awaited => Some(message(seq, unit)),
            // Nothing before this message can come any more.
            (Some((&seq, _)), Some(_)) if seq < stream.awaited => Some(gap(seq)),
            (next, Some(position)) => {
                let end = next.map_or(stream.lost_until, |(&seq, _)| stream.lost_until.min(seq));
                (end > position && end <= stream.awaited).then(|| gap(end))
            }
            _ => None,
        }
    }

    /// Forgets the messages of a stream from `seq` on whose positions are before `end`.
    pub(super) fn forget(&mut self, sender: NodeId, seq: Seq, end: Seq) {
        let Some(stream) = self.streams.get_mut(&sender) else { return };
        while let Some((&at, _)) = stream.units.range(seq..end).next()
            && let Some(unit) = stream.units.remove(&at)
        {
            self.units -= 1;
            self.bytes -= unit.payload.len();
            if self.idle.len() < IDLE_MAX {
                let mut payload = unit.payload;
                payload.clear();
                self.idle.push(payload);
            }
        }
    }

    /// Forgets a stream whole.
    pub(super) fn forget_stream(&mut self, sender: NodeId) {
        self.forget(sender, Seq(0), Seq(u64::MAX));
        self.streams.remove(&sender);
    }

    /// Returns the senders of messages.
    pub(super) fn senders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.streams.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.units
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
