//! Messages that wait for their number, and those that another member may still need.

use std::collections::BTreeMap;

use foundation::Seq;

use super::log::SENDERS_MAX;
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
    /// First packet that was given up, or found no room.
    lost_from: Option<Seq>,
    /// Position after the last such packet.
    lost_until: Seq,
    /// Count of the hold at the last news of the stream.
    touched: u64,
}

impl Stream {
    /// Notes that positions from `first` on, before `end`, are lost. A stream may begin with them.
    fn on_lost(&mut self, first: Seq, end: Seq) {
        self.lost_from = Some(self.lost_from.map_or(first, |known| known.min(first)));
        self.lost_until = self.lost_until.max(end);
    }
}

/// The next positions of a stream to be numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) seq: Seq,
    pub(super) count: u32,
    pub(super) lost: bool,
}

/// Streams by sender: at most [`SENDERS_MAX`], beside those of which messages are kept.
#[derive(Debug, Default)]
struct Streams {
    all: BTreeMap<NodeId, Stream>,
    /// Counts the news of streams.
    touches: u64,
}

impl Streams {
    /// Returns the stream of a sender, of which there is news.
    fn touch(&mut self, sender: NodeId) -> &mut Stream {
        if self.all.len() >= SENDERS_MAX && !self.all.contains_key(&sender) {
            self.forget_idle();
        }
        self.touches += 1;
        let stream = self.all.entry(sender).or_default();
        stream.touched = self.touches;
        stream
    }

    /// Forgets those half of the streams without messages of which there was no news for longest.
    fn forget_idle(&mut self) {
        let idle = self.all.values().filter(|stream| stream.units.is_empty());
        let mut touched: Vec<u64> = idle.map(|stream| stream.touched).collect();
        touched.sort_unstable();
        if let Some(&until) = touched.get(touched.len() / 2) {
            self.all.retain(|_, stream| !stream.units.is_empty() || stream.touched > until);
        }
    }
}

/// The messages of a group, by sender and position.
#[derive(Debug)]
pub(super) struct Hold {
    streams: Streams,
    units: usize,
    bytes: usize,
    units_max: usize,
    bytes_max: usize,
    idle: Vec<Vec<u8>>,
}

impl Hold {
    pub(super) fn new(units_max: usize, bytes_max: usize) -> Self {
        Self { streams: Streams::default(), units: 0, bytes: 0, units_max, bytes_max, idle: Vec::new() }
    }

    /// Keeps a message. Returns false if there is no room, unless it is `wanted`. It then counts as lost.
    pub(super) fn put(&mut self, message: &Message<'_>, wanted: bool) -> bool {
        let length = message.payload.len();
        let is_full =
            self.units >= self.units_max || (self.units > 0 && self.bytes + length > self.bytes_max);
        let stream = self.streams.touch(message.sender);
        stream.awaited = stream.awaited.max(message.front.awaited);
        if is_full && !wanted {
            stream.on_lost(message.seq, message.seq.plus(message.packets.into()));
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

    /// Whether so much is kept that further messages will soon find no room.
    pub(super) fn is_nearly_full(&self) -> bool {
        4 * self.units >= 3 * self.units_max || self.bytes / 3 >= self.bytes_max / 4
    }

    /// Notes that packets of a sender were given up.
    pub(super) fn on_lost(&mut self, sender: NodeId, first: Seq, last: Seq) {
        self.streams.touch(sender).on_lost(first, last.plus(1));
    }

    /// Notes how far a stream is settled.
    pub(super) fn on_settled(&mut self, sender: NodeId, front: Front) {
        let stream = self.streams.touch(sender);
        stream.awaited = stream.awaited.max(front.awaited);
    }

    /// Returns whether messages of a sender are kept.
    pub(super) fn has_units(&self, sender: NodeId) -> bool {
        self.streams.all.get(&sender).is_some_and(|stream| !stream.units.is_empty())
    }

    pub(super) fn unit(&self, sender: NodeId, seq: Seq) -> Option<&Unit> {
        self.streams.all.get(&sender)?.units.get(&seq)
    }

    /// Returns the number of positions from `seq` on, at most `count`, at which no message is held.
    pub(super) fn absent(&self, sender: NodeId, seq: Seq, count: u32) -> u32 {
        let first = self.streams.all.get(&sender).and_then(|stream| stream.units.range(seq..).next());
        first.map_or(count, |(&at, _)| u32::try_from(at.0 - seq.0).unwrap_or(count).min(count))
    }

    /// Returns a position of a stream, near which its wire numbers are.
    pub(super) fn near(&self, sender: NodeId) -> Option<Seq> {
        self.streams.all.get(&sender)?.units.last_key_value().map(|(&seq, _)| seq)
    }

    /// Returns what of a stream follows `position`, if it must not wait for earlier packets.
    pub(super) fn ready(&self, sender: NodeId, position: Option<Seq>) -> Option<Ready> {
        let stream = self.streams.all.get(&sender)?;
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

    /// Forgets the messages of a stream from `seq` on whose positions are before `end`, and all losses before
    /// `end`: they have their numbers.
    pub(super) fn forget(&mut self, sender: NodeId, seq: Seq, end: Seq) {
        let Some(stream) = self.streams.all.get_mut(&sender) else { return };
        let is_later = stream.lost_until > end;
        stream.lost_from = stream.lost_from.map(|first| first.max(end)).filter(|_| is_later);
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
        self.streams.all.remove(&sender);
    }

    /// Returns the senders of messages.
    pub(super) fn senders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.streams.all.keys().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.units
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;

    fn put(hold: &mut Hold, sender: u32, seq: u64) {
        let front = Front { settled: Seq(seq + 1), awaited: Seq(seq + 1) };
        let message = Message::new(NodeId(sender), GroupId(1), Seq(seq), b"187.21");
        hold.put(&Message { front, ..message }, false);
    }

    #[test]
    fn streams_without_messages_are_bounded() {
        let mut hold = Hold::new(16, 1 << 20);
        put(&mut hold, 0, 7);
        let senders = 3 * SENDERS_MAX as u32;
        for sender in 1..senders {
            hold.on_settled(NodeId(sender), Front { settled: Seq(1), awaited: Seq(1) });
            assert!(hold.senders().count() <= SENDERS_MAX);
        }
        assert!(hold.has_units(NodeId(0)), "a message is kept");
        assert!(hold.senders().any(|sender| sender.0 == senders - 1), "so is the newest stream");
    }

    #[test]
    fn losses_that_have_their_numbers_are_not_numbered_again() {
        let (mut hold, sender) = (Hold::new(16, 1 << 20), NodeId(3));
        put(&mut hold, 3, 100);
        hold.on_lost(sender, Seq(5), Seq(8));
        assert_eq!(hold.ready(sender, None).map(|ready| (ready.seq, ready.lost)), Some((Seq(5), true)));
        hold.forget(sender, Seq(5), Seq(7));
        assert_eq!(hold.ready(sender, None).map(|ready| (ready.seq, ready.lost)), Some((Seq(7), true)));
        hold.forget(sender, Seq(7), Seq(9));
        assert_eq!(hold.ready(sender, None).map(|ready| (ready.seq, ready.lost)), Some((Seq(100), false)));
    }
}
