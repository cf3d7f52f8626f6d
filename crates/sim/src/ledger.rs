//! Record of all sent packets and their fates at each member.
//!
//! A [`Violation`] is a delivery that must not happen: a packet that was never sent, altered, delivered
//! twice, or delivered after it was reported lost. A cluster in virtual time stops at a violation, by a panic
//! with node and packet. At the end, [`Ledger::unaccounted`] lists packets that were neither delivered nor
//! reported.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use ricochet_core::message::How;
use ricochet_core::tracker::Lost;
use ricochet_core::{GroupId, Seq, StreamKey};
use thiserror::Error;

/// Fate of a packet at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// Neither delivered nor reported yet.
    Open,
    /// Sent by the member itself.
    Own,
    /// Delivered.
    Delivered(How),
    /// Reported lost.
    Lost,
    /// Excused: the member went down or left before.
    Excused,
}

/// Violation of the delivery guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The packet was never sent.
    #[error("was never sent")]
    NeverSent,
    /// The payload differs from the one sent.
    #[error("was altered")]
    Altered,
    /// The packet was delivered before.
    #[error("was delivered twice")]
    Twice,
    /// The packet was delivered, or reported again, after it was reported lost.
    #[error("was reported lost before")]
    Reported,
    /// The packet was reported lost after it was delivered.
    #[error("was delivered before it was reported lost")]
    Delivered,
    /// The member sent the packet itself.
    #[error("is the member's own")]
    Own,
    /// The member is down.
    #[error("reached a node that is down")]
    Down,
}

/// A packet at one member.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Fate of the packet.
    pub fate: Fate,
    /// Time at which the network dropped the member's copy, if it did.
    pub missed_us: Option<u64>,
    /// Time at which it was delivered or reported lost.
    pub settled_us: u64,
}

/// A sent packet.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its stream.
    pub key: StreamKey,
    /// Its sequence number.
    pub seq: u32,
    /// Time of sending.
    pub sent_us: u64,
    /// Members of the group at that time.
    pub members: Rc<[usize]>,
    /// Whether it is measured.
    pub counted: bool,
    length: usize,
    /// Index of its first entry; there is one entry for each of `members`.
    first: usize,
}

/// Ledger of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    sent: Vec<Sent>,
    entries: Vec<Entry>,
    /// Packets of each stream by sequence number.
    streams: HashMap<StreamKey, Vec<u32>>,
    /// Packets delivered to nodes that joined after they were sent.
    late: HashSet<(usize, u32)>,
    pattern: Vec<u8>,
}

/// Maximum payload of a test packet in bytes.
const PAYLOAD_MAX: usize = 1 << 16;
/// Number of positions in the pattern at which payloads begin.
const PATTERNS: usize = 251;

impl Ledger {
    /// Makes an empty ledger.
    pub fn new() -> Self {
        let pattern = (0..PAYLOAD_MAX + PATTERNS).map(|at| (at * 7 + at / 256) as u8).collect();
        Self { pattern, ..Self::default() }
    }

    /// Builds the payload of the packet that will be sent next.
    pub fn next_payload(&self, length: usize, into: &mut Vec<u8>) {
        self.payload(self.sent.len() as u32, length, into);
    }

    /// Builds the payload of a packet: its number, and a pattern that depends on it.
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

    /// Records that a node sent a packet with the payload of [`Ledger::next_payload`].
    ///
    /// # Panics
    /// If the packet is not the next of its stream.
    pub fn note_sent(&mut self, sender: usize, sent: Outgoing, members: &Rc<[usize]>) {
        let Outgoing { now_us, key, seq, length, counted } = sent;
        let numbers = self.streams.entry(key).or_default();
        assert_eq!(numbers.len(), seq as usize, "expected the next sequence number of the stream");
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

    /// Records that the network dropped a member's copy.
    pub fn note_missed(&mut self, now_us: u64, at: usize, key: StreamKey, seq: u32) {
        let Some(number) = self.number(key, seq) else { return };
        if let Some(entry) = self.entry(number, at) {
            entry.missed_us.get_or_insert(now_us);
        }
    }

    /// Records a delivery.
    ///
    /// # Panics
    /// On a violation.
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
        if let Err(violation) = self.deliver(now_us, at, (key, seq, how), is_sound) {
            panic!("node {at}, {key:?}, packet {seq}, {how:?}: {violation}");
        }
    }

    /// Records a delivery. `is_sound` checks the payload, given the packet's number and length.
    ///
    /// # Errors
    /// On a violation; nothing is changed.
    pub fn deliver(
        &mut self,
        now_us: u64,
        at: usize,
        (key, seq, how): (StreamKey, u32, How),
        is_sound: impl FnOnce(&Self, u32, usize) -> bool,
    ) -> Result<(), Violation> {
        let number = self.number(key, seq).ok_or(Violation::NeverSent)?;
        if !is_sound(self, number, self.sent[number as usize].length) {
            return Err(Violation::Altered);
        }
        let Some(entry) = self.entry(number, at) else {
            return if self.late.insert((at, number)) { Ok(()) } else { Err(Violation::Twice) };
        };
        match entry.fate {
            Fate::Open => (entry.fate, entry.settled_us) = (Fate::Delivered(how), now_us),
            Fate::Lost => return Err(Violation::Reported),
            Fate::Own => return Err(Violation::Own),
            Fate::Delivered(_) => return Err(Violation::Twice),
            Fate::Excused => return Err(Violation::Down),
        }
        Ok(())
    }

    /// Records a report of lost packets.
    ///
    /// # Panics
    /// On a violation: a packet had arrived, was never sent, or was reported before.
    pub(crate) fn note_lost(&mut self, now_us: u64, at: usize, lost: &Lost) {
        let Lost { key, first, last, reason } = *lost;
        for seq in (first.0..=last.0).map(|position| Seq(position).to_wire()) {
            if let Err(violation) = self.report(now_us, at, key, seq) {
                panic!("node {at}, {key:?}, packet {seq}, reported {reason:?}: {violation}");
            }
        }
    }

    /// Records a report of one lost packet.
    ///
    /// # Errors
    /// On a violation: the packet had arrived, was never sent, or was reported before; nothing is changed.
    pub fn report(&mut self, now_us: u64, at: usize, key: StreamKey, seq: u32) -> Result<(), Violation> {
        let number = self.number(key, seq).ok_or(Violation::NeverSent)?;
        if self.late.contains(&(at, number)) {
            return Err(Violation::Delivered);
        }
        // Packets sent before a node joined may be reported to it.
        let Some(entry) = self.entry(number, at) else { return Ok(()) };
        match entry.fate {
            Fate::Open => (entry.fate, entry.settled_us) = (Fate::Lost, now_us),
            Fate::Lost => return Err(Violation::Reported),
            Fate::Own => return Err(Violation::Own),
            Fate::Delivered(_) => return Err(Violation::Delivered),
            Fate::Excused => return Err(Violation::Down),
        }
        Ok(())
    }

    /// Excuses a node that is down from all open packets.
    pub(crate) fn excuse(&mut self, at: usize) {
        for sent in &self.sent {
            let Ok(place) = sent.members.binary_search(&at) else { continue };
            let entry = &mut self.entries[sent.first + place];
            if entry.fate == Fate::Open {
                entry.fate = Fate::Excused;
            }
        }
    }

    /// Returns all sent packets, in order.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Returns the entries of a packet, one per member.
    pub fn entries(&self, sent: &Sent) -> impl Iterator<Item = (usize, Entry)> + '_ {
        let entries = &self.entries[sent.first..sent.first + sent.members.len()];
        let members = Rc::clone(&sent.members);
        entries.iter().enumerate().map(move |(place, entry)| (members[place], *entry))
    }

    /// Returns the packets of which members received neither data nor a report.
    pub fn unaccounted(&self) -> Vec<(usize, StreamKey, u32)> {
        let open = |sent: &Sent| -> Vec<_> {
            let entries = self.entries(sent).filter(|(_, entry)| entry.fate == Fate::Open);
            entries.map(|(at, _)| (at, sent.key, sent.seq)).collect()
        };
        self.sent.iter().flat_map(open).collect()
    }

    /// Returns the packets of one stream that a node had to receive, in order, with their entries.
    pub fn stream(&self, at: usize, key: StreamKey) -> impl Iterator<Item = (&Sent, Entry)> + '_ {
        let numbers = self.streams.get(&key).map_or(&[][..], |numbers| numbers);
        let sent = numbers.iter().map(|&number| &self.sent[number as usize]);
        sent.filter_map(move |sent| {
            let place = sent.members.binary_search(&at).ok()?;
            Some((sent, self.entries[sent.first + place]))
        })
    }

    /// Returns the number of packets with a certain fate, over all members.
    pub fn count(&self, fate: Fate) -> usize {
        self.entries.iter().filter(|entry| entry.fate == fate).count()
    }

    /// Returns the number of packets delivered to nodes that joined their group after they were sent.
    pub fn late(&self) -> usize {
        self.late.len()
    }

    /// Returns the number of packets by fate, for each member; of one group, or of all.
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

/// A packet that leaves a node.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Time of sending.
    pub now_us: u64,
    /// Its stream.
    pub key: StreamKey,
    /// Its sequence number.
    pub seq: u32,
    /// Bytes of payload.
    pub length: usize,
    /// Whether it is measured.
    pub counted: bool,
}

#[cfg(test)]
mod tests {
    use ricochet_core::NodeId;

    use super::*;

    const KEY: StreamKey = StreamKey { sender: NodeId(0), group: GroupId(7) };

    /// Returns a ledger with one packet of node 0, for nodes 1 and 2.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        let sent = Outgoing { now_us: 10, key: KEY, seq: 0, length: 100, counted: true };
        ledger.note_sent(0, sent, &Rc::from([0, 1, 2]));
        ledger
    }

    fn deliver(ledger: &mut Ledger, at: usize, seq: u32) -> Result<(), Violation> {
        ledger.deliver(20, at, (KEY, seq, How::Multicast), |_, number, length| (number, length) == (0, 100))
    }

    #[test]
    fn every_violation_is_named() {
        let mut ledger = ledger();
        assert_eq!(deliver(&mut ledger, 1, 1), Err(Violation::NeverSent));
        assert_eq!(deliver(&mut ledger, 0, 0), Err(Violation::Own));
        let altered = ledger.deliver(20, 1, (KEY, 0, How::Repaired), |_, _, _| false);
        assert_eq!(altered, Err(Violation::Altered));
        assert_eq!(deliver(&mut ledger, 1, 0), Ok(()));
        assert_eq!(deliver(&mut ledger, 1, 0), Err(Violation::Twice));
        assert_eq!(ledger.report(30, 1, KEY, 0), Err(Violation::Delivered));
        assert_eq!(ledger.report(30, 2, KEY, 0), Ok(()));
        assert_eq!(ledger.report(30, 2, KEY, 0), Err(Violation::Reported));
        assert_eq!(deliver(&mut ledger, 2, 0), Err(Violation::Reported));
        assert_eq!((ledger.count(Fate::Delivered(How::Multicast)), ledger.count(Fate::Lost)), (1, 1));
    }

    #[test]
    fn payloads_identify_packets() {
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
