//! The log of a group at one member: packets in the order in which they came, those of a stream in their
//! order.

use std::collections::VecDeque;

use foundation::Seq;
use hashbrown::HashMap;

use super::pieces::{PIECE, Pieces, Pool};
use super::record::{RECORD_HEAD, Record, RecordHead, messages_in};
use super::{HistoryConfig, Wish};
use crate::ids::{GroupId, NodeId};
use crate::wire::Data;

/// Number of records between two marks.
const MARK_EVERY: u64 = 64;
/// Number of marks for which there is room at first.
const MARKS_FIRST: usize = 256;
/// Maximum number of streams of a log.
pub(crate) const STREAMS_MAX: usize = 1 << 14;

/// A place in a log from which records are counted.
#[derive(Clone, Copy, Debug)]
struct Mark {
    offset: u64,
    at_us: u64,
    /// Number of messages before it, ever.
    messages: u64,
}

/// Part of a log that somebody wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Offset at which it begins.
    pub(crate) start: u64,
    /// Offset at which the log ends.
    pub(crate) end: u64,
    /// Number of messages in the first record that are not part of it.
    pub(crate) skip: u16,
    /// Number of messages.
    pub(crate) messages: u64,
    /// Whether these are all that were wanted.
    pub(crate) is_complete: bool,
}

/// The packets of a group.
#[derive(Debug)]
pub(crate) struct Log {
    pieces: Pieces,
    /// Offset of the oldest record.
    start: u64,
    /// Number of records, and of messages, ever.
    records: u64,
    messages: u64,
    /// Number of messages forgotten.
    forgotten: u64,
    /// Time of the newest record forgotten.
    forgotten_us: Option<u64>,
    /// Time from which on everything was appended.
    since_us: u64,
    marks: VecDeque<Mark>,
    /// Time of the newest record.
    newest_us: u64,
    /// Position of the next packet of each stream.
    next: HashMap<NodeId, Seq>,
}

/// The logs of a node.
#[derive(Debug)]
pub(crate) struct Logs {
    config: HistoryConfig,
    pool: Pool,
    logs: HashMap<GroupId, Log>,
    /// Number of packets that found no room.
    refused: u64,
}

impl Logs {
    pub(crate) fn new(config: HistoryConfig) -> Self {
        Self { pool: Pool::new(config.bytes), config, logs: HashMap::new(), refused: 0 }
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.config.group_bytes > 0
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn get(&self, group: GroupId) -> Option<&Log> {
        self.logs.get(&group)
    }

    pub(crate) fn get_mut(&mut self, group: GroupId) -> Option<&mut Log> {
        self.logs.get_mut(&group)
    }

    /// Begins the logs of further groups, and forgets those that were left.
    pub(crate) fn regroup(&mut self, groups: impl Iterator<Item = GroupId>, kept: impl Fn(GroupId) -> bool) {
        if !self.are_kept() {
            return;
        }
        let pool = &mut self.pool;
        self.logs.retain(|&group, log| {
            let is_kept = kept(group);
            if !is_kept {
                log.pieces.clear(pool);
            }
            is_kept
        });
        for group in groups {
            self.logs.entry(group).or_insert_with(Log::new);
        }
    }

    /// Appends a packet.
    pub(crate) fn append(&mut self, at_us: u64, data: &Data<'_>) {
        let Self { config, pool, logs, refused } = self;
        let Some(log) = logs.get_mut(&data.group) else { return };
        let length = RECORD_HEAD + data.payload.len();
        log.since_us = log.since_us.min(at_us);
        log.forget_old(at_us, config, length, pool);
        while !log.pieces.reserve(length, pool) {
            if log.start == log.pieces.end() {
                *refused += 1;
                log.on_forgotten(at_us);
                return;
            }
            log.forget_first(pool);
        }
        // The search by time needs them in order.
        log.newest_us = log.newest_us.max(at_us);
        log.push(&Record { data: *data, at_us: log.newest_us });
    }

    /// Returns the part of a group's log that is wanted.
    pub(crate) fn cut(&mut self, now_us: u64, group: GroupId, wish: Wish) -> Option<Cut> {
        let log = self.logs.get_mut(&group)?;
        log.since_us = log.since_us.min(now_us);
        log.forget_old(now_us, &self.config, 0, &mut self.pool);
        Some(log.cut(now_us, wish))
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes()
    }
}

impl Log {
    fn new() -> Self {
        Self {
            pieces: Pieces::default(),
            start: 0,
            records: 0,
            messages: 0,
            forgotten: 0,
            forgotten_us: None,
            since_us: u64::MAX,
            marks: VecDeque::new(),
            newest_us: 0,
            next: HashMap::new(),
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn end(&self) -> u64 {
        self.pieces.end()
    }

    /// Returns the position of the next packet of a stream.
    pub(crate) fn next(&self, sender: NodeId) -> Option<Seq> {
        self.next.get(&sender).copied()
    }

    pub(crate) fn streams(&self) -> usize {
        self.next.len()
    }

    /// Returns the streams and the positions up to which they are in the log.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (NodeId, Seq)> + '_ {
        self.next.iter().map(|(&sender, &next)| (sender, next))
    }

    pub(crate) fn retain_streams(&mut self, mut kept: impl FnMut(NodeId) -> bool) {
        self.next.retain(|&sender, _| kept(sender));
    }

    /// Notes the position of the next packet of a stream.
    pub(crate) fn set_next(&mut self, sender: NodeId, next: Seq) {
        self.next.insert(sender, next);
    }

    /// Forgets the position of a stream, which was a false one.
    pub(crate) fn forget_next(&mut self, sender: NodeId) {
        self.next.remove(&sender);
    }

    /// Notes that everything since a time is in the log.
    pub(crate) fn set_since(&mut self, since_us: u64) {
        self.since_us = self.since_us.min(since_us);
    }

    /// Copies bytes of the log from an offset on to `to`; returns their number.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        if offset < self.start { 0 } else { self.pieces.read(offset, to) }
    }

    fn push(&mut self, record: &Record<'_>) {
        if self.records.is_multiple_of(MARK_EVERY) || self.marks.is_empty() {
            if self.records == 0 {
                self.marks.reserve(MARKS_FIRST);
                self.pieces.reserve_places();
            }
            let (offset, at_us, messages) = (self.pieces.end(), record.at_us, self.messages);
            self.marks.push_back(Mark { offset, at_us, messages });
        }
        self.records += 1;
        self.messages += messages_in(&record.data);
        self.pieces.push(&record.head());
        self.pieces.push(record.data.payload);
    }

    fn forget_old(&mut self, now_us: u64, config: &HistoryConfig, length: usize, pool: &mut Pool) {
        let bytes_max = (config.group_bytes as u64).saturating_sub(length as u64);
        while self.start < self.pieces.end() {
            let is_long = self.pieces.end() - self.start > bytes_max;
            let is_old = || self.head(self.start).is_some_and(|head| head.at_us + config.age_us < now_us);
            if !is_long && !is_old() {
                return;
            }
            self.forget_first(pool);
        }
    }

    fn forget_first(&mut self, pool: &mut Pool) {
        let Some(head) = self.head(self.start) else { return };
        self.forgotten += self.messages_at(self.start);
        self.on_forgotten(head.at_us);
        self.start += (RECORD_HEAD + head.length) as u64;
        while self.marks.get(1).is_some_and(|mark| mark.offset <= self.start) {
            self.marks.pop_front();
        }
        if let Some(first) = self.marks.front_mut().filter(|first| first.offset < self.start) {
            *first =
                Mark { offset: self.start, at_us: first.at_us.max(head.at_us), messages: self.forgotten };
        }
        if self.start == self.pieces.end() {
            self.marks.clear();
        }
        self.pieces.forget(self.start, pool);
    }

    fn on_forgotten(&mut self, at_us: u64) {
        self.forgotten_us = self.forgotten_us.max(Some(at_us));
    }

    fn head(&self, offset: u64) -> Option<RecordHead> {
        let mut head = [0; RECORD_HEAD];
        let length = self.pieces.read(offset, &mut head);
        RecordHead::read(&head[..length]).ok()
    }

    /// Returns the number of messages that begin in the record at an offset.
    fn messages_at(&self, offset: u64) -> u64 {
        let Some(head) = self.head(offset) else { return 0 };
        if Data::is_single(head.flags) {
            return 1;
        }
        let mut bytes = vec![0; RECORD_HEAD + head.length];
        let length = self.pieces.read(offset, &mut bytes);
        match Record::read(GroupId(0), &bytes[..length]) {
            Ok(Some((record, _))) => messages_in(&record.data),
            _ => 0,
        }
    }

    fn cut(&self, now_us: u64, wish: Wish) -> Cut {
        let held = self.messages - self.forgotten;
        let all = Cut { start: self.start, end: self.end(), skip: 0, messages: held, is_complete: true };
        match wish {
            // The keys' messages are kept elsewhere.
            Wish::LastPerKey => Cut { start: all.end, messages: 0, ..all },
            Wish::Last(count) if count >= held => Cut { is_complete: count == held, ..all },
            Wish::Last(count) => {
                let target = self.messages - count;
                let (start, before) =
                    self.search(|mark| mark.messages <= target, |before, count, _| before + count > target);
                let skip = u16::try_from(target.saturating_sub(before)).unwrap_or(0);
                Cut { start, skip, messages: count, is_complete: true, ..all }
            }
            Wish::Since(age_us) => {
                let from_us = now_us.saturating_sub(age_us);
                let (start, before) =
                    self.search(|mark| mark.at_us < from_us, |_, _, at_us| at_us >= from_us);
                let is_kept =
                    self.since_us <= from_us && self.forgotten_us.is_none_or(|at_us| at_us < from_us);
                Cut { start, messages: self.messages - before, is_complete: is_kept, ..all }
            }
        }
    }

    /// Returns the offset of the first record for which `found` is true, given the number of messages before
    /// it, that of its own, and its time; and the number of messages before it. The search begins at the last
    /// mark for which `before` is true.
    fn search(&self, before: impl Fn(&Mark) -> bool, found: impl Fn(u64, u64, u64) -> bool) -> (u64, u64) {
        let at = self.marks.partition_point(before).saturating_sub(1);
        let Some(mark) = self.marks.get(at) else { return (self.end(), self.messages) };
        let (mut offset, mut messages) = (mark.offset, mark.messages);
        while let Some(head) = self.head(offset) {
            let count = self.messages_at(offset);
            if found(messages, count, head.at_us) {
                break;
            }
            messages += count;
            offset += (RECORD_HEAD + head.length) as u64;
        }
        (offset, messages)
    }
}

/// A piece holds the head of a record.
const _: () = assert!(PIECE > RECORD_HEAD);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Extras;

    const GROUP: GroupId = GroupId(7);

    fn data(seq: u32, payload: &[u8]) -> Data<'_> {
        Data {
            sender: NodeId(1),
            group: GROUP,
            seq,
            sender_seq: seq,
            expires: false,
            fragment: false,
            joint: false,
            extras: Extras::NONE,
            payload,
        }
    }

    fn logs(group_bytes: usize, bytes: usize, age_us: u64) -> Logs {
        let mut logs = Logs::new(HistoryConfig { group_bytes, bytes, age_us });
        logs.regroup([GROUP].into_iter(), |_| true);
        logs
    }

    /// Returns the numbers in a part of a log.
    fn numbers(logs: &Logs, cut: Cut) -> Vec<u32> {
        let log = logs.get(GROUP).unwrap();
        let mut bytes = vec![0; (cut.end - cut.start) as usize];
        assert_eq!(log.read(cut.start, &mut bytes), bytes.len());
        let (mut rest, mut seqs) = (&bytes[..], Vec::new());
        while let Some((record, length)) = Record::read(GROUP, rest).unwrap() {
            seqs.push(record.data.seq);
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        seqs
    }

    #[test]
    fn the_last_messages_and_those_of_a_time_are_found() {
        let mut logs = logs(1 << 20, 1 << 20, 1_000_000_000);
        (0..1_000).for_each(|seq| logs.append(u64::from(seq) * 10 + 100, &data(seq, &[7; 50])));
        for count in [0, 1, 63, 64, 65, 500, 999, 1_000] {
            let cut = logs.cut(10_100, GROUP, Wish::Last(count)).unwrap();
            assert_eq!((cut.messages, cut.is_complete, cut.skip), (count, true, 0));
            assert_eq!(numbers(&logs, cut), (1_000 - count as u32..1_000).collect::<Vec<_>>());
        }
        let cut = logs.cut(10_100, GROUP, Wish::Since(95)).unwrap();
        assert_eq!((numbers(&logs, cut).len(), cut.messages, cut.is_complete), (9, 9, true));
        let cut = logs.cut(10_100, GROUP, Wish::Since(50_000)).unwrap();
        assert_eq!((cut.messages, cut.is_complete), (1_000, false), "the log does not go back that far");
    }

    #[test]
    fn bytes_and_age_bound_the_log_and_what_lacks_is_told() {
        let mut logs = logs(20_000, 1 << 20, 1_000_000_000);
        (0..10_000).for_each(|seq| logs.append(u64::from(seq), &data(seq, &[7; 100])));
        let cut = logs.cut(10_000, GROUP, Wish::Last(1_000)).unwrap();
        assert_eq!((cut.messages, cut.is_complete), (162, false));
        assert_eq!(numbers(&logs, cut), (9_838..10_000).collect::<Vec<_>>());
        assert!(cut.end - cut.start <= 20_000);
        assert!(logs.cut(10_000, GROUP, Wish::Last(100)).unwrap().is_complete);
        assert!(!logs.cut(10_000, GROUP, Wish::Since(5_000)).unwrap().is_complete);
        assert!(logs.cut(10_000, GROUP, Wish::Since(50)).unwrap().is_complete);
        assert!(logs.memory_bytes() <= 4 * PIECE);
        let cut = logs.cut(1_000_009_990, GROUP, Wish::Last(1_000)).unwrap();
        assert_eq!(cut.messages, 10, "older messages are forgotten when they have the age");
    }

    #[test]
    fn all_groups_together_have_a_bound() {
        let mut logs =
            Logs::new(HistoryConfig { group_bytes: 1 << 20, bytes: 10 * PIECE, age_us: 1_000_000_000 });
        let groups = || (0..100).map(GroupId);
        logs.regroup(groups(), |_| true);
        for round in 0..50 {
            groups().for_each(|group| logs.append(round, &Data { group, ..data(round as u32, &[7; 500]) }));
        }
        assert!(logs.memory_bytes() <= 10 * PIECE);
        assert!(logs.refused() > 0);
        assert!(
            !logs.cut(100, GroupId(99), Wish::Last(1)).unwrap().is_complete,
            "a group without room says so"
        );
        logs.regroup(std::iter::empty(), |group| group == GroupId(99));
        logs.append(60, &Data { group: GroupId(99), ..data(77, b"room") });
        assert_eq!(logs.cut(100, GroupId(99), Wish::Last(1)).unwrap().messages, 1);
    }

    #[test]
    fn several_messages_in_a_packet_are_cut_between_them() {
        let mut logs = logs(1 << 20, 1 << 20, 1_000_000_000);
        let joint = [&[0, 1][..], b"a", &[0, 1], b"b", &[0, 1], b"c"].concat();
        logs.append(1, &Data { joint: true, ..data(0, &joint) });
        logs.append(2, &data(3, b"d"));
        let cut = logs.cut(3, GROUP, Wish::Last(3)).unwrap();
        assert_eq!((cut.skip, cut.messages, numbers(&logs, cut)), (1, 3, vec![0, 3]));
        let cut = logs.cut(3, GROUP, Wish::Last(1)).unwrap();
        assert_eq!((cut.skip, numbers(&logs, cut)), (0, vec![3]));
    }
}
