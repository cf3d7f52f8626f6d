//! The last message of each key of a group, as a member keeps it for those who join later.
//!
//! Of two messages with one key, the one that was sent later counts, by the times in their packets; of equal
//! times, the greater sender and number. All members therefore come to the same values in whatever order the
//! messages come. A message without payload deletes its key. It is kept for a while as well, so that an
//! earlier message that comes late does not bring the key back.

use std::collections::{BTreeMap, VecDeque};

use foundation::bytes::{ReadError, Reader, Writer};
use hashbrown::{HashMap, HashSet};

use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId, StreamKey};
use crate::message::{Message, Output};
use crate::view::View;
use crate::wire::{Envelope, messages_of};

/// Longest message that is kept, with its envelope, in bytes.
pub const KEYED_MAX: usize = 64 << 10;
/// Time for which a deletion is kept, in microseconds.
const DELETED_US: u64 = 600_000_000;
/// Bytes of memory that a key takes beside key and message, roughly.
const OVERHEAD: usize = 128;
/// Length of a record before its message: length (4), flags, sender (4), sequence number (4), time of sending
/// (8), time of coming (8).
const HEAD: usize = 29;
const DELETED: u8 = 1;
/// Length of the front of a copy: end of the log (8), number of positions (4).
const FRONT: usize = 12;
/// Length of a position: sender (4), next sequence number (4).
const POSITION: usize = 8;
/// Maximum number of positions in a copy.
const POSITIONS_MAX: usize = 1 << 14;
/// Maximum number of nodes that are known to have joined a group after this node.
const JOINERS_MAX: usize = 1 << 14;

/// Bounds of the last messages of keys that a node keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedConfig {
    /// Maximum number of bytes of each group, with 128 bytes for each key; 0 keeps nothing. A node that keeps
    /// no [history](super::HistoryConfig) keeps no last messages either.
    pub group_bytes: usize,
    /// Maximum number of bytes of all groups together.
    pub bytes: usize,
    /// Maximum number of keys of each group, including deleted ones.
    pub group_keys: usize,
}

/// Order of the messages of a key: time of sending, sender, sequence number.
type Version = (u64, NodeId, u32);

/// The last message of a key.
#[derive(Debug)]
struct Value {
    version: Version,
    /// Time at which it came.
    at_us: u64,
    is_deleted: bool,
    /// Whether it was read from another member.
    is_read: bool,
    /// Place in the order of coming.
    place: u64,
    message: Vec<u8>,
}

/// Values of a group that a node had when it began to take part in it.
#[derive(Debug, Default)]
enum Beginning {
    /// Keys may be missing.
    #[default]
    Partial,
    /// The last messages of all keys.
    Whole,
    /// Nothing, because its view had no member of the group. There may have been members that it could not
    /// reach. The nodes named here were none: they were in the view without the group, or have read the
    /// history of this node when they joined.
    Alone(HashSet<NodeId>),
}

/// The last messages of the keys of a group.
#[derive(Debug, Default)]
pub(crate) struct Keyed {
    values: HashMap<Box<[u8]>, Value>,
    places: BTreeMap<u64, Box<[u8]>>,
    next_place: u64,
    /// Deletions in order of their coming.
    deleted: VecDeque<(u64, Version, Box<[u8]>)>,
    bytes: usize,
    /// Whether a key was forgotten to make room, or not kept.
    has_forgotten: bool,
    beginning: Beginning,
    /// Time until which messages may come that are older than those read from another member.
    settled_us: u64,
}

/// Bounds of one group.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    bytes: usize,
    keys: usize,
}

/// The last messages that a node keeps.
#[derive(Debug)]
pub(crate) struct KeyedStore {
    config: KeyedConfig,
    groups: HashMap<GroupId, Keyed>,
    /// Bytes of all groups.
    bytes: usize,
}

/// A record of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedRecord<'a> {
    pub(crate) is_deleted: bool,
    pub(crate) sender: NodeId,
    pub(crate) seq: u32,
    pub(crate) sent_us: u64,
    pub(crate) at_us: u64,
    /// The message with its envelope.
    pub(crate) message: &'a [u8],
}

/// A copy of the last messages of a group, as others read it, and their number without the deletions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: u64,
    pub(crate) is_complete: bool,
}

impl KeyedStore {
    pub(crate) fn new(config: KeyedConfig) -> Self {
        Self { config, groups: HashMap::new(), bytes: 0 }
    }

    pub(crate) fn keeps(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    /// Begins to keep the messages of further groups, and forgets those of groups that were left.
    pub(crate) fn regroup(&mut self, groups: impl Iterator<Item = GroupId>, kept: impl Fn(GroupId) -> bool) {
        if self.config.group_bytes == 0 {
            return;
        }
        self.groups.retain(|&group, _| kept(group));
        for group in groups {
            self.groups.entry(group).or_default();
        }
        self.bytes = self.groups.values().map(|keyed| keyed.bytes).sum();
    }

    /// Notes that the last messages of all keys of a group have been read.
    pub(crate) fn on_whole(&mut self, group: GroupId) {
        if let Some(keyed) = self.groups.get_mut(&group) {
            keyed.beginning = Beginning::Whole;
        }
    }

    /// Notes that a group had no members in a view of these nodes.
    pub(crate) fn on_alone(&mut self, group: GroupId, nodes: &[NodeId]) {
        if let Some(keyed) = self.groups.get_mut(&group) {
            keyed.beginning = Beginning::Alone(nodes.iter().copied().collect());
        }
    }

    /// Notes that a node joins a group, and asks this one for its history.
    pub(crate) fn on_joiner(&mut self, group: GroupId, node: NodeId) {
        if let Some(Keyed { beginning: Beginning::Alone(others), .. }) = self.groups.get_mut(&group)
            && others.len() < JOINERS_MAX
        {
            others.insert(node);
        }
    }

    /// Notes the members of a view. One that is not known to have joined a group after this node may hold
    /// messages of keys from before.
    pub(crate) fn on_view(&mut self, me: NodeId, view: &View) {
        for (&group, keyed) in &mut self.groups {
            let Beginning::Alone(others) = &keyed.beginning else { continue };
            let mut members = view.members().iter().filter(|member| member.id() != me);
            let may_be_older = members.any(|member| {
                !others.contains(&member.id()) && member.groups().binary_search(&group).is_ok()
            });
            if may_be_older {
                keyed.beginning = Beginning::Partial;
            }
        }
    }

    /// Notes that the reading of a group has ended. Messages sent before have come by `settled_us`, or are
    /// given up.
    pub(crate) fn on_read_all(&mut self, group: GroupId, settled_us: u64) {
        if let Some(keyed) = self.groups.get_mut(&group) {
            keyed.settled_us = settled_us;
        }
    }

    /// Changes the messages of a group within its bounds; returns `None` if none are kept.
    fn change<R>(&mut self, group: GroupId, change: impl FnOnce(&mut Keyed, Bounds) -> R) -> Option<R> {
        let Self { config, groups, bytes } = self;
        let keyed = groups.get_mut(&group)?;
        let others = *bytes - keyed.bytes;
        let of_group = config.group_bytes.min(config.bytes.saturating_sub(others));
        let result = change(keyed, Bounds { bytes: of_group, keys: config.group_keys });
        *bytes = others + keyed.bytes;
        Some(result)
    }

    /// Keeps the messages in a packet that have keys.
    pub(crate) fn note(&mut self, now_us: u64, message: &Message<'_>) {
        if message.enveloped {
            self.change(message.group, |keyed, bounds| keyed.take_all(bounds, now_us, message));
        }
    }

    /// Keeps the messages in a packet that have keys, and delivers the packet. Leaves out messages that this
    /// node has read from another member, or that are older than those; returns their number.
    pub(crate) fn pass(&mut self, now_us: u64, message: &Message<'_>, out: &mut impl Output) -> u64 {
        let take = |keyed: &mut Keyed, bounds| keyed.take_all(bounds, now_us, message);
        let known = if message.enveloped { self.change(message.group, take).unwrap_or(0) } else { 0 };
        if known == 0 {
            out.deliver(message);
            return 0;
        }
        if message.joint {
            let new = messages_of(message.payload).enumerate().filter(|(at, _)| known >> at & 1 == 0);
            for (at, payload) in new {
                let seq = message.seq.plus(at as u64);
                out.deliver(&Message { payload, joint: false, packets: 1, seq, ..*message });
            }
        }
        out.on_settled(StreamKey { sender: message.sender, group: message.group }, message.front);
        known.count_ones().into()
    }

    /// Keeps a message that was read from another member. Returns whether it is new.
    pub(crate) fn read(&mut self, group: GroupId, now_us: u64, record: &KeyedRecord<'_>) -> bool {
        let Ok((Envelope { key: Some(key), .. }, _)) = Envelope::read(record.message) else { return false };
        let version = (record.sent_us, record.sender, record.seq);
        let value = || Value {
            version,
            at_us: record.at_us.min(now_us),
            is_deleted: record.is_deleted,
            is_read: true,
            place: 0,
            message: record.message.to_vec(),
        };
        let is_new = self.change(group, |keyed, bounds| {
            keyed.settled_us = u64::MAX;
            let is_known = keyed.values.get(key).is_some_and(|value| value.version >= version);
            if !is_known {
                keyed.put(bounds, key, value());
            }
            !is_known
        });
        is_new.unwrap_or(true) && !record.is_deleted
    }

    /// Notes that packets of a group were given up, which may have held the last messages of keys.
    pub(crate) fn on_lost(&mut self, group: GroupId) {
        if let Some(keyed) = self.groups.get_mut(&group) {
            keyed.has_forgotten = true;
        }
    }

    /// Returns a copy of the last messages of a group, each sender's in order, behind the end of the log and
    /// the positions of streams. Messages from these positions on are left out: those who read the copy get
    /// them from the log, in their order.
    pub(crate) fn snapshot(
        &mut self,
        now_us: u64,
        group: GroupId,
        log_end: u64,
        positions: impl Iterator<Item = (NodeId, u32)>,
    ) -> Snapshot {
        self.change(group, |keyed, _| keyed.forget_deleted(now_us, usize::MAX));
        let keyed = self.groups.get(&group);
        let positions: HashMap<NodeId, u32> = positions.take(POSITIONS_MAX).collect();
        let precedes = |value: &&Value| {
            let (_, sender, seq) = value.version;
            positions.get(&sender).is_none_or(|&next| (seq.wrapping_sub(next) as i32) < 0)
        };
        let all = keyed.into_iter().flat_map(|keyed| keyed.values.values());
        let mut values: Vec<&Value> = all.filter(precedes).collect();
        values.sort_unstable_by_key(|value| (value.version.1, value.version.0, value.version.2));
        let is_complete = keyed.is_some_and(|keyed| keyed.is_whole() && !keyed.has_forgotten);
        let mut snapshot = Snapshot { bytes: Vec::new(), messages: 0, is_complete };
        snapshot.bytes.extend(log_end.to_be_bytes());
        snapshot.bytes.extend((positions.len() as u32).to_be_bytes());
        for (sender, next) in positions {
            snapshot.bytes.extend([sender.0, next].map(u32::to_be_bytes).as_flattened());
        }
        for value in values {
            snapshot.messages += u64::from(!value.is_deleted);
            value.record().write(&mut snapshot.bytes);
        }
        snapshot
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// Reads the front of a copy; `None` if it is not complete yet. Passes on the positions of streams. Returns
/// the end of the log, and the number of bytes read.
///
/// # Errors
/// [`Malformed`] if there are too many positions.
pub(crate) fn read_front(
    bytes: &[u8],
    mut note: impl FnMut(NodeId, u32),
) -> Result<Option<(u64, usize)>, Malformed> {
    let mut reader = Reader(bytes);
    let (Ok(log_end), Ok(count)) = (reader.u64(), reader.u32()) else { return Ok(None) };
    let length = count as usize * POSITION;
    if length > POSITIONS_MAX * POSITION {
        return Err(Malformed::Count);
    }
    let Ok(positions) = reader.take(length) else { return Ok(None) };
    let mut reader = Reader(positions);
    while let (Ok(sender), Ok(next)) = (reader.u32(), reader.u32()) {
        note(NodeId(sender), next);
    }
    Ok(Some((log_end, FRONT + length)))
}

impl Keyed {
    /// Returns whether the node began with the messages of all keys that there were.
    fn is_whole(&self) -> bool {
        !matches!(self.beginning, Beginning::Partial)
    }

    /// Keeps the messages in a packet that have keys. Returns those that must not be delivered, as a bit map:
    /// messages that were read from another member, and older ones that were sent before the reading ended.
    fn take_all(&mut self, bounds: Bounds, now_us: u64, message: &Message<'_>) -> u32 {
        let seq = message.seq.to_wire();
        if !message.joint {
            return u32::from(!self.take(bounds, now_us, message, seq, message.payload));
        }
        let mut known = 0;
        for (payload, at) in messages_of(message.payload).zip(0..32) {
            let is_new = self.take(bounds, now_us, message, seq.wrapping_add(at), payload);
            known |= u32::from(!is_new) << at;
        }
        known
    }

    /// Keeps a message if it has a key and is the last one. Returns whether it must be delivered.
    fn take(&mut self, bounds: Bounds, now_us: u64, packet: &Message<'_>, seq: u32, message: &[u8]) -> bool {
        let Ok((Envelope { key: Some(key), .. }, payload)) = Envelope::read(message) else { return true };
        let version = (packet.sent.map_or(0, |sent| sent.at_us), packet.sender, seq);
        if let Some(value) = self.values.get(key).filter(|value| value.version >= version) {
            // Later on, a message is older only by a clock that was ahead, and so may all that follow be.
            let may_be_late = now_us < self.settled_us;
            return !(value.is_read && (may_be_late || value.version == version));
        }
        if message.len() > KEYED_MAX {
            self.remove(key);
            self.has_forgotten = true;
            return true;
        }
        let is_deleted = payload.is_empty();
        let (message, at_us) = (message.to_vec(), packet.past_us.unwrap_or(now_us));
        self.put(bounds, key, Value { version, at_us, is_deleted, is_read: false, place: 0, message });
        self.forget_deleted(now_us, bounds.keys);
        true
    }

    fn put(&mut self, bounds: Bounds, key: &[u8], value: Value) {
        self.remove(key);
        let place = self.next_place;
        self.next_place += 1;
        if value.is_deleted {
            self.deleted.push_back((value.at_us, value.version, key.into()));
        }
        self.bytes += cost(key, &value);
        self.places.insert(place, key.into());
        self.values.insert(key.into(), Value { place, ..value });
        while self.bytes > bounds.bytes || self.values.len() > bounds.keys {
            let Some((_, oldest)) = self.places.pop_first() else { return };
            self.remove(&oldest);
            self.has_forgotten = true;
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.values.remove(key) {
            self.places.remove(&value.place);
            self.bytes -= cost(key, &value);
        }
    }

    /// Forgets deletions that are old, and the oldest beyond a number.
    fn forget_deleted(&mut self, now_us: u64, count_max: usize) {
        while let Some((at_us, ..)) = self.deleted.front() {
            if at_us.saturating_add(DELETED_US) > now_us && self.deleted.len() <= count_max {
                return;
            }
            let Some((_, version, key)) = self.deleted.pop_front() else { return };
            if self.values.get(&key).is_some_and(|value| value.is_deleted && value.version == version) {
                self.remove(&key);
            }
        }
    }
}

fn cost(key: &[u8], value: &Value) -> usize {
    OVERHEAD + 2 * key.len() + value.message.len()
}

impl Value {
    fn record(&self) -> KeyedRecord<'_> {
        let (sent_us, sender, seq) = self.version;
        let Self { is_deleted, at_us, ref message, .. } = *self;
        KeyedRecord { is_deleted, sender, seq, sent_us, at_us, message }
    }
}

impl<'a> KeyedRecord<'a> {
    fn write(&self, to: &mut Vec<u8>) {
        let mut head = [0; HEAD];
        let mut writer = Writer::new(&mut head);
        writer.put(&(self.message.len() as u32).to_be_bytes());
        writer.put(&[u8::from(self.is_deleted) * DELETED]);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.seq.to_be_bytes());
        writer.put(&self.sent_us.to_be_bytes());
        writer.put(&self.at_us.to_be_bytes());
        to.extend_from_slice(&head);
        to.extend_from_slice(self.message);
    }

    /// Reads a record from the front of `bytes`; `None` if it is not complete yet. Returns too the number of
    /// bytes that it takes.
    ///
    /// # Errors
    /// [`Malformed`] if it cannot be one.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut reader = Reader(bytes);
        let mut head =
            || Ok((reader.u32()?, reader.u8()?, reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?));
        let Ok((length, flags, sender, seq, sent_us, at_us)) = head().map_err(|_: ReadError| ()) else {
            return Ok(None);
        };
        let length = length as usize;
        if length > KEYED_MAX {
            return Err(Malformed::TooLong);
        }
        if flags & !DELETED != 0 {
            return Err(Malformed::Reserved);
        }
        let Some(message) = bytes.get(HEAD..HEAD + length) else { return Ok(None) };
        if Envelope::read(message)?.0.key.is_none() {
            return Err(Malformed::TooShort);
        }
        let (is_deleted, sender) = (flags & DELETED != 0, NodeId(sender));
        Ok(Some((Self { is_deleted, sender, seq, sent_us, at_us, message }, HEAD + length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{How, Sent, To};
    use crate::tracker::{Front, Lost};
    use crate::view::Member;
    use foundation::Seq;

    const GROUP: GroupId = GroupId(7);
    const CONFIG: KeyedConfig = KeyedConfig { group_bytes: 100_000, bytes: 150_000, group_keys: 100 };

    fn store(config: KeyedConfig) -> KeyedStore {
        let mut store = KeyedStore::new(config);
        store.regroup([GROUP].into_iter(), |_| true);
        store
    }

    fn enveloped(key: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Envelope { key: Some(key), ..Envelope::default() }.write(&mut bytes);
        [bytes, payload.to_vec()].concat()
    }

    fn message(sender: u32, seq: u32, sent_us: u64, payload: &[u8]) -> Message<'_> {
        Message {
            sender: NodeId(sender),
            group: GROUP,
            seq: Seq::first_seen(seq),
            payload,
            joint: false,
            packets: 1,
            how: How::Multicast,
            missed_us: None,
            front: Front::END,
            past_us: None,
            sent: Some(Sent { at_us: sent_us, since_us: 0 }),
            enveloped: true,
        }
    }

    fn copy(store: &mut KeyedStore, now_us: u64) -> Snapshot {
        store.snapshot(now_us, GROUP, 0, std::iter::empty())
    }

    /// Returns the payload of each key that is not deleted.
    fn values(store: &mut KeyedStore, now_us: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = copy(store, now_us);
        let (_, skip) = read_front(&snapshot.bytes, |_, _| {}).unwrap().unwrap();
        let (mut rest, mut values) = (&snapshot.bytes[skip..], Vec::new());
        while let Ok(Some((record, length))) = KeyedRecord::read(rest) {
            let (envelope, payload) = Envelope::read(record.message).unwrap();
            if !record.is_deleted {
                values.push((envelope.key.unwrap().to_vec(), payload.to_vec()));
            }
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        assert_eq!(snapshot.messages, values.len() as u64);
        values.sort();
        values
    }

    fn pair(key: &[u8], payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        (key.to_vec(), payload.to_vec())
    }

    #[test]
    fn members_agree_on_the_last_value_whatever_the_order() {
        let messages =
            [(1, 0, 10, "a", "old"), (2, 0, 20, "a", "new"), (1, 1, 15, "b", "b"), (2, 1, 30, "c", "c")];
        let mut seen = None;
        for order in [[0, 1, 2, 3], [1, 0, 3, 2], [3, 2, 1, 0]] {
            let mut store = store(CONFIG);
            for at in order {
                let (sender, seq, sent_us, key, payload) = messages[at];
                let bytes = enveloped(key.as_bytes(), payload.as_bytes());
                store.note(0, &message(sender, seq, sent_us, &bytes));
            }
            let values = values(&mut store, 0);
            assert_eq!(values, [pair(b"a", b"new"), pair(b"b", b"b"), pair(b"c", b"c")]);
            let bytes = copy(&mut store, 0).bytes;
            assert_eq!(*seen.get_or_insert(bytes.clone()), bytes);
        }
    }

    #[test]
    fn a_deletion_hides_earlier_values_for_a_while() {
        let mut store = store(CONFIG);
        let (value, deletion) = (enveloped(b"a", b"value"), enveloped(b"a", b""));
        store.note(0, &message(1, 0, 10, &value));
        store.note(0, &message(1, 2, 30, &deletion));
        store.note(0, &message(1, 1, 20, &value));
        assert_eq!(values(&mut store, DELETED_US - 1), []);
        assert!(store.memory_bytes() > 0);
        assert_eq!(values(&mut store, DELETED_US), []);
        assert_eq!(store.memory_bytes(), 0, "the deletion is forgotten");
        store.note(0, &message(1, 3, 40, &value));
        assert_eq!(values(&mut store, 0), [pair(b"a", b"value")]);
    }

    #[test]
    fn keys_and_bytes_are_bounded_and_it_is_told_what_was_forgotten() {
        let mut store = store(CONFIG);
        store.on_whole(GROUP);
        assert!(copy(&mut store, 0).is_complete);
        for number in 0..1_000u32 {
            let bytes = enveloped(&(number % 500).to_be_bytes(), &vec![7; number as usize]);
            store.note(0, &message(1, number, number.into(), &bytes));
            assert!(store.memory_bytes() <= CONFIG.group_bytes);
        }
        let kept = values(&mut store, 0);
        assert!(kept.len() > 50 && kept.len() <= 100, "{}", kept.len());
        assert!(!copy(&mut store, 0).is_complete);
        let long = enveloped(b"long", &vec![0; KEYED_MAX]);
        store.note(0, &message(1, 2_000, 2_000, &long));
        assert!(values(&mut store, 0).iter().all(|(key, _)| key != b"long"));
        for number in 0..10_000u32 {
            let bytes = enveloped(b"same", b"");
            store.note(0, &message(1, 3_000 + number, 3_000 + u64::from(number), &bytes));
        }
        assert!(store.groups[&GROUP].deleted.len() <= 100);
        // A second group gets what the first leaves of the bytes of all.
        store.regroup([GroupId(8)].into_iter(), |_| true);
        for number in 0..1_000u32 {
            let bytes = enveloped(&number.to_be_bytes(), &[7; 1_000]);
            for group in [GROUP, GroupId(8)] {
                store.note(0, &Message { group, ..message(1, 20_000 + number, 20_000, &bytes) });
            }
            assert!(store.memory_bytes() <= CONFIG.bytes);
        }
        assert!(store.groups.values().all(|keyed| keyed.bytes > 30_000), "{}", store.memory_bytes());
        store.regroup([].into_iter(), |_| false);
        assert_eq!(store.memory_bytes(), 0);
    }

    #[test]
    fn a_copy_tells_the_positions_of_streams_and_nonsense_is_refused() {
        let mut store = store(CONFIG);
        store.note(0, &message(1, 0, 10, &enveloped(b"a", b"value")));
        let positions = [(NodeId(7), 70)];
        let copy = store.snapshot(0, GROUP, 1_234, positions.into_iter());
        assert!(!copy.is_complete, "nobody knows what was before");
        let mut read = Vec::new();
        let (end, skip) = read_front(&copy.bytes, |sender, next| read.push((sender, next))).unwrap().unwrap();
        assert_eq!((&read[..], end, skip), (&positions[..], 1_234, 20));
        let record = &copy.bytes[skip..];
        assert!(KeyedRecord::read(record).unwrap().is_some_and(|(_, length)| length == record.len()));
        for length in 0..record.len() {
            assert_eq!(KeyedRecord::read(&record[..length]), Ok(None));
        }
        for length in 0..skip {
            assert_eq!(read_front(&copy.bytes[..length], |_, _| {}), Ok(None));
        }
        assert_eq!(read_front(&[0xff; 12], |_, _| {}), Err(Malformed::Count));
        let wrong = |at: usize, byte: u8| {
            let mut bytes = record.to_vec();
            bytes[at] = byte;
            KeyedRecord::read(&bytes).map(drop)
        };
        assert_eq!(wrong(0, 1), Err(Malformed::TooLong));
        assert_eq!(wrong(4, 2), Err(Malformed::Reserved));
        assert!(wrong(HEAD + 2, 3).is_err(), "a record without a key");
    }

    #[test]
    fn a_copy_leaves_out_what_follows_the_positions() {
        let mut store = store(CONFIG);
        for (sender, seq) in [(1, u32::MAX), (1, 0), (1, 1), (2, 5), (3, 9)] {
            store.note(0, &message(sender, seq, 10, &enveloped(&[sender as u8, seq as u8], b"value")));
        }
        let copy = store.snapshot(0, GROUP, 0, [(NodeId(1), 1), (NodeId(2), 5)].into_iter());
        let (_, skip) = read_front(&copy.bytes, |_, _| {}).unwrap().unwrap();
        let (mut rest, mut seqs) = (&copy.bytes[skip..], Vec::new());
        while let Some((record, length)) = KeyedRecord::read(rest).unwrap() {
            seqs.push((record.sender.0, record.seq));
            rest = &rest[length..];
        }
        seqs.sort_unstable();
        assert_eq!(seqs, [(1, 0), (1, u32::MAX), (3, 9)], "the stream of node 3 is not known");
        assert_eq!(copy.messages, 3);
    }

    #[test]
    fn a_loss_may_be_that_of_a_last_value() {
        let mut store = store(CONFIG);
        store.on_whole(GROUP);
        assert!(copy(&mut store, 0).is_complete);
        store.on_lost(GroupId(99));
        assert!(copy(&mut store, 0).is_complete);
        store.on_lost(GROUP);
        assert!(!copy(&mut store, 0).is_complete);
    }

    #[test]
    fn a_node_that_was_alone_has_all_until_it_meets_a_member_that_may_be_older() {
        let mut store = store(CONFIG);
        store.on_alone(GROUP, &[NodeId(2)]);
        store.on_joiner(GROUP, NodeId(3));
        let member = |id, group| Member::new(NodeId(id), vec![group]);
        let view = [member(1, GROUP), member(2, GROUP), member(3, GROUP), member(4, GroupId(8))];
        store.on_view(NodeId(1), &View::new(view));
        assert!(copy(&mut store, 0).is_complete, "the others have joined later");
        store.on_view(NodeId(1), &View::new([member(5, GROUP)]));
        assert!(!copy(&mut store, 0).is_complete);
        store.on_view(NodeId(1), &View::new([]));
        assert!(!copy(&mut store, 0).is_complete);
    }

    #[test]
    fn a_message_that_was_read_is_not_delivered_again_and_an_older_one_not_at_all() {
        let mut store = store(CONFIG);
        let value = enveloped(b"a", b"value");
        let read = |seq, sent_us| KeyedRecord {
            is_deleted: false,
            sender: NodeId(1),
            seq,
            sent_us,
            at_us: 0,
            message: &value,
        };
        assert!(store.read(GROUP, 0, &read(5, 50)));
        assert!(!store.read(GROUP, 0, &read(5, 50)) && !store.read(GROUP, 0, &read(4, 40)));
        let mut take = |seq, sent_us| {
            let message = message(1, seq, sent_us, &value);
            store.change(GROUP, |keyed, bounds| keyed.take_all(bounds, 0, &message)).unwrap() == 0
        };
        assert!(!take(5, 50) && !take(3, 30));
        assert!(take(6, 60));
        assert!(take(4, 40), "what this node itself has received comes in any order");
    }

    #[test]
    fn a_value_of_a_clock_that_was_ahead_hides_later_ones_only_for_a_while() {
        let mut store = store(CONFIG);
        let (ahead, value) = (enveloped(b"a", b"ahead"), enveloped(b"a", b"value"));
        let hour_us = 3_600_000_000;
        let record = KeyedRecord {
            is_deleted: false,
            sender: NodeId(1),
            seq: 5,
            sent_us: hour_us,
            at_us: 0,
            message: &ahead,
        };
        assert!(store.read(GROUP, 0, &record));
        store.on_read_all(GROUP, 1_000);
        let mut taken = Taken(0);
        let mut pass = |now_us, message| (store.pass(now_us, &message, &mut taken), taken.0);
        let live = |seq| message(2, seq, seq.into(), &value);
        assert_eq!(pass(999, live(0)), (1, 0), "it may have been under way since before");
        assert_eq!(pass(1_000, live(1)), (0, 1));
        assert_eq!(pass(2_000, live(2)), (0, 2));
        let again = message(1, 5, hour_us, &ahead);
        assert_eq!(pass(3_000, again), (1, 2), "the message that was read never comes twice");
        assert_eq!(values(&mut store, 3_000), [pair(b"a", b"ahead")], "all members keep the same one");
    }

    /// Counts messages.
    struct Taken(usize);

    impl Output for Taken {
        fn send(&mut self, _: To, _: &[u8]) {}

        fn deliver(&mut self, _: &Message<'_>) {
            self.0 += 1;
        }

        fn on_lost(&mut self, _: &Lost) {}
    }
}
