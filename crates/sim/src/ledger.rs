//! What was sent, and what became of it at each member.
//!
//! What must not be is a [`Fault`]: that a packet is delivered which nobody sent, or altered, or twice, or after it was
//! reported lost. A cluster in virtual time stops there, by a panic that says who and what. At the end
//! [`Ledger::unaccounted`] names what was neither delivered nor reported.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use ricochet_core::message::How;
use ricochet_core::tracker::Lost;
use ricochet_core::{GroupId, Seq, StreamKey};
use thiserror::Error;

/// What became of a packet at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// It has not come, and nothing was said of it.
    Open,
    /// The member sent it itself.
    Own,
    /// It was delivered.
    Got(How),
    /// It was reported lost.
    Lost,
    /// The member went down or left before anything became of it.
    Excused,
}

/// What must not become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// Nobody sent it.
    #[error("was never sent")]
    NeverSent,
    /// Its payload is not what was sent.
    #[error("was altered")]
    Altered,
    /// It was delivered before.
    #[error("was delivered twice")]
    Twice,
    /// It was delivered, or reported again, after it was reported lost.
    #[error("was reported lost before")]
    Reported,
    /// It was reported lost after it was delivered.
    #[error("had come before it was reported lost")]
    HadCome,
    /// The member sent it itself.
    #[error("is its own")]
    Own,
    /// The member is down.
    #[error("came to a node that is down")]
    Down,
}

/// A packet at one member.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What became of it.
    pub fate: Fate,
    /// When the network dropped the copy for this member, if it did.
    pub missed_us: Option<u64>,
    /// When it was delivered or reported lost.
    pub settled_us: u64,
}

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its stream.
    pub key: StreamKey,
    /// Its place there.
    pub seq: u32,
    /// When it was sent.
    pub sent_us: u64,
    /// Who was in the group then.
    pub members: Rc<[usize]>,
    /// Whether it belongs to what is measured.
    pub counted: bool,
    length: usize,
    /// Where its entries begin, one for each of `members`.
    first: usize,
}

/// The book of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    sent: Vec<Sent>,
    entries: Vec<Entry>,
    /// Of each stream, its packets by sequence number.
    streams: HashMap<StreamKey, Vec<u32>>,
    /// What came to nodes that joined after it was sent.
    late: HashSet<(usize, u32)>,
    pattern: Vec<u8>,
}

/// Longest payload of a test packet in bytes.
const PAYLOAD_MAX: usize = 1 << 16;
/// Payloads begin at as many different places of the pattern.
const PATTERNS: usize = 251;

impl Ledger {
    /// An empty book.
    #[must_use]
    pub fn new() -> Self {
        let pattern = (0..PAYLOAD_MAX + PATTERNS).map(|at| (at * 7 + at / 256) as u8).collect();
        Self { pattern, ..Self::default() }
    }

    /// The payload of the packet that will be sent next.
    pub fn next_payload(&self, length: usize, into: &mut Vec<u8>) {
        self.payload(self.sent.len() as u32, length, into);
    }

    /// The payload of a packet: its number among all, and a pattern that depends on it.
    pub fn payload(&self, number: u32, length: usize, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&number.to_be_bytes()[..length.min(4)]);
        into.extend_from_slice(&self.pattern[number as usize % PATTERNS..][..length.saturating_sub(4)]);
    }

    fn is_payload(&self, number: u32, length: usize, payload: &[u8]) -> bool {
        let head = length.min(4);
        let tail = &self.pattern[number as usize % PATTERNS..][..length - head];
        payload.len() == length && payload[..head] == number.to_be_bytes()[..head] && payload[head..] == *tail
    }

    /// A node has sent a packet with the payload that was given out last.
    ///
    /// # Panics
    /// If the packet is not the next of its stream.
    pub fn note_sent(&mut self, sender: usize, sent: Outgoing, members: &Rc<[usize]>) {
        let Outgoing { now_us, key, seq, length, counted } = sent;
        let numbers = self.streams.entry(key).or_default();
        assert_eq!(numbers.len(), seq as usize, "a sender counts its packets one by one");
        numbers.push(self.sent.len() as u32);
        let first = self.entries.len();
        self.entries.extend(members.iter().map(|&member| {
            let fate = if member == sender { Fate::Own } else { Fate::Open };
            Entry { fate, missed_us: None, settled_us: now_us }
        }));
        let members = Rc::clone(members);
        self.sent.push(Sent { key, seq, sent_us: now_us, members, counted, length, first });
    }

    fn number(&self, key: StreamKey, seq: u32) -> Option<u32> {
        self.streams.get(&key)?.get(seq as usize).copied()
    }

    fn entry(&mut self, number: u32, at: usize) -> Option<&mut Entry> {
        let sent = &self.sent[number as usize];
        let place = sent.members.binary_search(&at).ok()?;
        Some(&mut self.entries[sent.first + place])
    }

    /// The network dropped the copy for one member.
    pub fn note_missed(&mut self, now_us: u64, at: usize, key: StreamKey, seq: u32) {
        let Some(number) = self.number(key, seq) else { return };
        if let Some(entry) = self.entry(number, at) {
            entry.missed_us.get_or_insert(now_us);
        }
    }

    /// A node was handed a packet.
    ///
    /// # Panics
    /// If that must not be.
    pub(crate) fn note_delivered(
        &mut self,
        now_us: u64,
        at: usize,
        got: (StreamKey, Seq, How),
        payload: &[u8],
    ) {
        let (key, seq, how) = got;
        let seq = seq.to_wire();
        let is_sound = |ledger: &Self, number, length| ledger.is_payload(number, length, payload);
        if let Err(fault) = self.deliver(now_us, at, (key, seq, how), is_sound) {
            panic!("node {at}, {key:?}, packet {seq}, {how:?}: {fault}");
        }
    }

    /// A node was handed a packet; `is_sound` is told the number and the length that its payload should have.
    ///
    /// # Errors
    /// If that must not be; then nothing is changed.
    pub fn deliver(
        &mut self,
        now_us: u64,
        at: usize,
        (key, seq, how): (StreamKey, u32, How),
        is_sound: impl FnOnce(&Self, u32, usize) -> bool,
    ) -> Result<(), Fault> {
        let number = self.number(key, seq).ok_or(Fault::NeverSent)?;
        if !is_sound(self, number, self.sent[number as usize].length) {
            return Err(Fault::Altered);
        }
        let Some(entry) = self.entry(number, at) else {
            return if self.late.insert((at, number)) { Ok(()) } else { Err(Fault::Twice) };
        };
        match entry.fate {
            Fate::Open => (entry.fate, entry.settled_us) = (Fate::Got(how), now_us),
            Fate::Lost => return Err(Fault::Reported),
            Fate::Own => return Err(Fault::Own),
            Fate::Got(_) => return Err(Fault::Twice),
            Fate::Excused => return Err(Fault::Down),
        }
        Ok(())
    }

    /// A node was told that packets will not come.
    ///
    /// # Panics
    /// If they had come, were never sent, or were reported before.
    pub(crate) fn note_lost(&mut self, now_us: u64, at: usize, lost: &Lost) {
        let Lost { key, first, last, reason } = *lost;
        for seq in (first.0..=last.0).map(|position| Seq(position).to_wire()) {
            if let Err(fault) = self.report(now_us, at, key, seq) {
                panic!("node {at}, {key:?}, packet {seq}, reported {reason:?}: {fault}");
            }
        }
    }

    /// A node was told that a packet will not come.
    ///
    /// # Errors
    /// If it had come, was never sent, or was reported before; then nothing is changed.
    pub fn report(&mut self, now_us: u64, at: usize, key: StreamKey, seq: u32) -> Result<(), Fault> {
        let number = self.number(key, seq).ok_or(Fault::NeverSent)?;
        if self.late.contains(&(at, number)) {
            return Err(Fault::HadCome);
        }
        // What was sent before a node joined may be reported to it.
        let Some(entry) = self.entry(number, at) else { return Ok(()) };
        match entry.fate {
            Fate::Open => (entry.fate, entry.settled_us) = (Fate::Lost, now_us),
            Fate::Lost => return Err(Fault::Reported),
            Fate::Own => return Err(Fault::Own),
            Fate::Got(_) => return Err(Fault::HadCome),
            Fate::Excused => return Err(Fault::Down),
        }
        Ok(())
    }

    /// A node is no more: nothing is expected of it.
    pub(crate) fn excuse(&mut self, at: usize) {
        for sent in &self.sent {
            let Ok(place) = sent.members.binary_search(&at) else { continue };
            let entry = &mut self.entries[sent.first + place];
            if entry.fate == Fate::Open {
                entry.fate = Fate::Excused;
            }
        }
    }

    /// All that was sent, in order.
    #[must_use]
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// What became of a packet, for each of its members.
    pub fn entries(&self, sent: &Sent) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let entries = &self.entries[sent.first..sent.first + sent.members.len()];
        let members = Rc::clone(&sent.members);
        entries.iter().enumerate().map(move |(place, entry)| (members[place], *entry))
    }

    /// What members neither got nor were told of.
    #[must_use]
    pub fn unaccounted(&self) -> Vec<(usize, StreamKey, u32)> {
        let open = |sent: &Sent| -> Vec<_> {
            let entries = self.entries(sent).filter(|(_, entry)| entry.fate == Fate::Open);
            entries.map(|(at, _)| (at, sent.key, sent.seq)).collect()
        };
        self.sent.iter().flat_map(open).collect()
    }

    /// Of one stream, the packets that a node was to get, in order, and what became of them.
    pub fn stream(&self, at: usize, key: StreamKey) -> impl Iterator<Item = (&Sent, Entry)> + '_ {
        let numbers = self.streams.get(&key).map_or(&[][..], |numbers| numbers);
        let sent = numbers.iter().map(|&number| &self.sent[number as usize]);
        sent.filter_map(move |sent| {
            let place = sent.members.binary_search(&at).ok()?;
            Some((sent, self.entries[sent.first + place]))
        })
    }

    /// How many packets had a certain fate, over all members.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.entries.iter().filter(|entry| entry.fate == fate).count()
    }

    /// How many packets came to nodes that joined their group after they were sent.
    #[must_use]
    pub fn late(&self) -> usize {
        self.late.len()
    }

    /// Of one group, what each member got, and of what it was told that it will not come; by member.
    #[must_use]
    pub fn by_member(&self, group: Option<GroupId>) -> HashMap<usize, HashMap<Fate, usize>> {
        let mut table: HashMap<usize, HashMap<Fate, usize>> = HashMap::new();
        for sent in self.sent.iter().filter(|sent| group.is_none_or(|group| group == sent.key.group)) {
            for (member, entry) in self.entries(sent) {
                *table.entry(member).or_default().entry(entry.fate).or_default() += 1;
            }
        }
        table
    }
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// When.
    pub now_us: u64,
    /// Its stream.
    pub key: StreamKey,
    /// Its place there.
    pub seq: u32,
    /// Bytes of payload.
    pub length: usize,
    /// Whether it belongs to what is measured.
    pub counted: bool,
}

#[cfg(test)]
mod tests {
    use ricochet_core::NodeId;

    use super::*;

    const KEY: StreamKey = StreamKey { sender: NodeId(0), group: GroupId(7) };

    /// One packet of node 0, to nodes 1 and 2.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        let sent = Outgoing { now_us: 10, key: KEY, seq: 0, length: 100, counted: true };
        ledger.note_sent(0, sent, &Rc::from([0, 1, 2]));
        ledger
    }

    fn deliver(ledger: &mut Ledger, at: usize, seq: u32) -> Result<(), Fault> {
        ledger.deliver(20, at, (KEY, seq, How::Multicast), |_, number, length| (number, length) == (0, 100))
    }

    #[test]
    fn what_must_not_be_is_named() {
        let mut ledger = ledger();
        assert_eq!(deliver(&mut ledger, 1, 1), Err(Fault::NeverSent));
        assert_eq!(deliver(&mut ledger, 0, 0), Err(Fault::Own));
        let altered = ledger.deliver(20, 1, (KEY, 0, How::Repaired), |_, _, _| false);
        assert_eq!(altered, Err(Fault::Altered));
        assert_eq!(deliver(&mut ledger, 1, 0), Ok(()));
        assert_eq!(deliver(&mut ledger, 1, 0), Err(Fault::Twice));
        assert_eq!(ledger.report(30, 1, KEY, 0), Err(Fault::HadCome));
        assert_eq!(ledger.report(30, 2, KEY, 0), Ok(()));
        assert_eq!(ledger.report(30, 2, KEY, 0), Err(Fault::Reported));
        assert_eq!(deliver(&mut ledger, 2, 0), Err(Fault::Reported));
        assert_eq!((ledger.count(Fate::Got(How::Multicast)), ledger.count(Fate::Lost)), (1, 1));
    }

    #[test]
    fn payloads_tell_packets_apart() {
        let ledger = ledger();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for length in [0, 1, 4, 5, 100] {
            ledger.payload(0, length, &mut first);
            ledger.next_payload(length, &mut second);
            assert_eq!((first.len(), second.len()), (length, length));
            assert!(ledger.is_payload(0, length, &first) && ledger.is_payload(1, length, &second));
            assert_eq!(ledger.is_payload(0, length, &second), length < 4, "{length}");
        }
    }
}
