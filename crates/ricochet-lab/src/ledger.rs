//! What was sent, and what became of it at each member.
//!
//! It stops the run, by a panic that says who and what, when a packet is delivered that nobody sent, or altered, or
//! twice, or after it was reported lost. At the end [`Ledger::unaccounted`] names what was neither delivered nor reported.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use ricochet_core::node::How;
use ricochet_core::tracker::Lost;
use ricochet_core::{GroupId, Seq, StreamKey};

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
    pub(crate) fn new() -> Self {
        let pattern = (0..PAYLOAD_MAX + PATTERNS).map(|at| (at * 7 + at / 256) as u8).collect();
        Self { pattern, ..Self::default() }
    }

    /// The payload of the packet that will be sent next: its number, and a pattern that depends on it.
    pub(crate) fn next_payload(&self, length: usize, into: &mut Vec<u8>) {
        let number = self.sent.len() as u32;
        into.clear();
        into.extend_from_slice(&number.to_be_bytes()[..length.min(4)]);
        into.extend_from_slice(self.tail(number, length));
    }

    fn tail(&self, number: u32, length: usize) -> &[u8] {
        &self.pattern[number as usize % PATTERNS..][..length.saturating_sub(4)]
    }

    fn is_payload(&self, number: u32, length: usize, payload: &[u8]) -> bool {
        let head = length.min(4);
        payload.len() == length
            && payload[..head] == number.to_be_bytes()[..head]
            && payload[head..] == *self.tail(number, length)
    }

    /// A node has sent a packet with the payload that was given out last.
    pub(crate) fn note_sent(&mut self, sender: usize, sent: Outgoing, members: &Rc<[usize]>) {
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
    pub(crate) fn note_missed(&mut self, now_us: u64, at: usize, key: StreamKey, seq: u32) {
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
        let told = |what: &str| format!("node {at}, {key:?}, packet {seq}, {how:?}: {what}");
        let Some(number) = self.number(key, seq) else { panic!("{}", told("was never sent")) };
        let length = self.sent[number as usize].length;
        assert!(self.is_payload(number, length, payload), "{}", told("was altered"));
        let Some(entry) = self.entry(number, at) else {
            assert!(self.late.insert((at, number)), "{}", told("was delivered twice"));
            return;
        };
        match entry.fate {
            Fate::Open => (entry.fate, entry.settled_us) = (Fate::Got(how), now_us),
            Fate::Lost => panic!("{}", told("was reported lost")),
            Fate::Own => panic!("{}", told("is its own")),
            Fate::Got(_) => panic!("{}", told("was delivered twice")),
            Fate::Excused => panic!("{}", told("was delivered to a node that is down")),
        }
    }

    /// A node was told that packets will not come.
    ///
    /// # Panics
    /// If they had come, were never sent, or were reported before.
    pub(crate) fn note_lost(&mut self, now_us: u64, at: usize, lost: &Lost) {
        let Lost { key, first, last, reason } = *lost;
        for seq in (first.0..=last.0).map(|position| Seq(position).to_wire()) {
            let told = |what: &str| format!("node {at}, {key:?}, packet {seq}, reported {reason:?}: {what}");
            let Some(number) = self.number(key, seq) else { panic!("{}", told("was never sent")) };
            assert!(!self.late.contains(&(at, number)), "{}", told("had come"));
            // What was sent before a node joined may be reported to it.
            let Some(entry) = self.entry(number, at) else { continue };
            match entry.fate {
                Fate::Open => (entry.fate, entry.settled_us) = (Fate::Lost, now_us),
                fate => panic!("{}", told(&format!("is {fate:?}"))),
            }
        }
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
pub(crate) struct Outgoing {
    pub(crate) now_us: u64,
    pub(crate) key: StreamKey,
    pub(crate) seq: u32,
    pub(crate) length: usize,
    pub(crate) counted: bool,
}
