//! Reassembly of messages longer than a packet from fragments in any order.
//!
//! The fragments of a message are consecutive packets of one stream, so the position of the first identifies
//! the message (`docs/wire.md`). A message is delivered when its last missing fragment comes, and stands at
//! the position of its first. When one of its packets is given up, or there is no room for it, the whole
//! message is reported lost once, as far as it is known, and later fragments of it are dropped. The same
//! holds for a message whose beginning was lost before this node learned of the rest: the report of its first
//! packets stands for the whole.
//!
//! A message whose missing packets are awaited, or not sent yet, stays incomplete for any time. One of which
//! nothing is awaited is given up some time after its last fragment came.
//!
//! Memory is allocated message by message within the bounds, and reused for later messages.

mod config;

use foundation::Seq;
use hashbrown::HashMap;

use crate::counters::{GivenUp, Unfit};
use crate::ids::{NodeId, StreamKey};
use crate::links::{Ends, Links};
use crate::message::{How, Message, Sent};
use crate::order::COPY_HEAD;
use crate::tracker::{Front, Lost};
use crate::wire::Fragment;
pub use config::{FragmentsConfig, FragmentsConfigError, FragmentsCounts};

/// Result of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The message in this slot is complete.
    Whole(usize),
    /// There is nothing to deliver.
    Nothing,
}

/// An incomplete message, or one that was given up.
#[derive(Debug)]
struct Entry {
    key: StreamKey,
    first: Seq,
    total: u32,
    size: u16,
    count: u32,
    /// Number of fragments that have not come.
    missing: u32,
    /// Whether it can still be completed.
    alive: bool,
    /// Time at which its last fragment came, or at which it was given up.
    since_us: u64,
    how: How,
    missed_us: Option<u64>,
    sent: Option<Sent>,
    /// Whether the message begins with an envelope.
    enveloped: bool,
    /// Bit map of the fragments that came.
    came: Vec<u64>,
    bytes: Vec<u8>,
}

/// Buffers of an incomplete message.
type Room = (Vec<u64>, Vec<u8>);

impl Entry {
    fn last(&self) -> Seq {
        self.first.plus(u64::from(self.count) - 1)
    }

    fn overlaps(&self, lost: &Lost) -> bool {
        self.key == lost.key && self.first <= lost.last && self.last() >= lost.first
    }

    /// Copies a fragment to its place; returns false if it was there already.
    fn put(&mut self, fragment: &Fragment<'_>) -> bool {
        let (word, bit) = (usize::from(fragment.index) / 64, 1 << (fragment.index % 64));
        if self.came[word] & bit != 0 {
            return false;
        }
        self.came[word] |= bit;
        self.missing -= 1;
        self.bytes[fragment.offset()..][..fragment.bytes.len()].copy_from_slice(fragment.bytes);
        true
    }
}

/// The incomplete messages of all streams.
#[derive(Debug)]
pub(crate) struct Fragments {
    config: FragmentsConfig,
    by_name: HashMap<(StreamKey, Seq), u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    links: Links,
    /// The messages in order of the time at which a fragment of them last came, or at which they were given
    /// up.
    ages: Ends,
    /// Bytes of incomplete messages.
    bytes: usize,
    /// Buffers of earlier messages.
    spare: Vec<Room>,
    /// Bytes allocated, including the spare buffers.
    capacity: usize,
    counts: FragmentsCounts,
}

impl Fragments {
    pub(crate) fn new(config: FragmentsConfig) -> Result<Self, FragmentsConfigError> {
        config.check()?;
        // A packet of total order may hold a message of any length.
        let message_max = config.message_max + COPY_HEAD;
        let bytes_max = config.bytes_max.max(message_max);
        let config = FragmentsConfig { message_max, bytes_max, ..config };
        Ok(Self {
            // With twice the room the table rehashes in place and never grows.
            by_name: HashMap::with_capacity(2 * config.messages_max),
            entries: Vec::with_capacity(config.messages_max),
            free: Vec::with_capacity(config.messages_max),
            links: Links::new(config.messages_max),
            ages: Ends::EMPTY,
            bytes: 0,
            spare: Vec::with_capacity(config.messages_max),
            capacity: 0,
            counts: FragmentsCounts::default(),
            config,
        })
    }

    pub(crate) fn counts(&self) -> &FragmentsCounts {
        &self.counts
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.capacity
    }

    /// Takes a new fragment, given as the packet that carries it. Calls `report` for messages that this gives
    /// up.
    pub(crate) fn take(
        &mut self,
        now_us: u64,
        packet: &Message<'_>,
        report: &mut impl FnMut(&Lost),
    ) -> Progress {
        self.counts.fragments += 1;
        let key = StreamKey { sender: packet.sender, group: packet.group };
        let fragment = match Fragment::read(packet.payload) {
            Ok(fragment) => fragment,
            Err(reason) => {
                self.counts.unfit.add(reason);
                report(&Lost { key, first: packet.seq, last: packet.seq, reason: GivenUp::Unfit });
                return Progress::Nothing;
            }
        };
        let first = packet.seq.minus(u64::from(fragment.index));
        let slot = match self.by_name.get(&(key, first)) {
            Some(&slot) => slot as usize,
            None => self.begin(now_us, packet, &fragment, report),
        };
        let entry = &mut self.entries[slot];
        let agrees =
            (entry.total, entry.size, entry.enveloped) == (fragment.total, fragment.size, packet.enveloped);
        if !entry.alive {
            self.counts.vain += 1;
            if packet.front.settled > entry.last() {
                self.remove(slot);
            }
            return Progress::Nothing;
        }
        if !agrees || !entry.put(&fragment) {
            self.counts.unfit.add(Unfit::Differs);
            self.give_up(now_us, slot, Some(GivenUp::Unfit), report);
            return Progress::Nothing;
        }
        entry.how = entry.how.max(packet.how);
        entry.missed_us = entry.missed_us.max(packet.missed_us);
        if entry.missing == 0 {
            return Progress::Whole(slot);
        }
        self.renew(now_us, slot);
        Progress::Nothing
    }

    /// Returns the complete message in a slot.
    pub(crate) fn message(&self, slot: usize, front: Front) -> Message<'_> {
        let Entry { key, first, count, how, missed_us, sent, enveloped, ref bytes, .. } = self.entries[slot];
        let StreamKey { sender, group } = key;
        Message {
            sender,
            group,
            seq: first,
            payload: bytes,
            joint: false,
            packets: count,
            how,
            missed_us,
            front,
            past_us: None,
            sent,
            enveloped,
        }
    }

    /// Notes that the message in a slot was delivered, and removes it.
    pub(crate) fn on_delivered(&mut self, slot: usize) {
        self.counts.messages += 1;
        self.remove(slot);
    }

    /// Notes that packets were given up. Reports these and the messages that they are part of, and nothing
    /// twice.
    pub(crate) fn on_lost(&mut self, now_us: u64, lost: &Lost, report: &mut impl FnMut(&Lost)) {
        if self.by_name.is_empty() {
            return report(lost);
        }
        let touched = |entry: &&Entry| entry.overlaps(lost);
        let whole = self.known().filter(|entry| entry.alive).filter(touched).fold(*lost, |whole, entry| {
            Lost { first: whole.first.min(entry.first), last: whole.last.max(entry.last()), ..whole }
        });
        let mut first = whole.first;
        while first <= whole.last {
            let rest = Lost { first, ..whole };
            let reported = self.known().filter(|entry| !entry.alive && entry.overlaps(&rest));
            let next = reported.min_by_key(|entry| entry.first).map(|entry| (entry.first, entry.last()));
            let (end, after) = next.unwrap_or((whole.last.plus(1), whole.last.plus(1)));
            if first < end {
                report(&Lost { last: end.minus(1), ..rest });
            }
            first = after.max(first).plus(u64::from(next.is_some()));
        }
        let mut next = self.ages.first();
        while let Some(slot) = next {
            next = self.links.after(slot);
            if self.entries[slot].alive && self.entries[slot].overlaps(lost) {
                self.counts.lost += 1;
                self.give_up(now_us, slot, None, report);
            }
        }
    }

    /// Returns when [`Fragments::expire`] is due next.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.ages.first().map(|slot| self.entries[slot].since_us.saturating_add(self.config.age_us_max))
    }

    /// Gives up messages of which no fragment has come for too long, unless `is_awaited` returns true for
    /// their stream and their last packet. Forgets those given up long ago.
    pub(crate) fn expire(
        &mut self,
        now_us: u64,
        is_awaited: impl Fn(StreamKey, Seq) -> bool,
        report: &mut impl FnMut(&Lost),
    ) {
        // Each of them once.
        for _ in 0..self.by_name.len() {
            let Some(slot) = self.ages.first() else { return };
            let entry = &self.entries[slot];
            if entry.since_us.saturating_add(self.config.age_us_max) > now_us {
                return;
            }
            if !entry.alive {
                self.remove(slot);
            } else if is_awaited(entry.key, entry.last()) {
                self.renew(now_us, slot);
            } else {
                self.counts.aged += 1;
                self.give_up(now_us, slot, Some(GivenUp::Aged), report);
            }
        }
    }

    /// Forgets the messages of all streams for which `gone` returns true.
    pub(crate) fn forget(&mut self, mut gone: impl FnMut(StreamKey) -> bool) {
        let mut next = self.ages.first();
        while let Some(slot) = next {
            next = self.links.after(slot);
            if gone(self.entries[slot].key) {
                self.remove(slot);
            }
        }
    }

    fn known(&self) -> impl Iterator<Item = &Entry> {
        std::iter::successors(self.ages.first(), |&slot| self.links.after(slot))
            .map(|slot| &self.entries[slot])
    }

    /// Adds a message, which may be one that cannot be completed; returns its slot.
    fn begin(
        &mut self,
        now_us: u64,
        packet: &Message<'_>,
        fragment: &Fragment<'_>,
        report: &mut impl FnMut(&Lost),
    ) -> usize {
        let key = StreamKey { sender: packet.sender, group: packet.group };
        let first = packet.seq.minus(u64::from(fragment.index));
        let (total, size, count) = (fragment.total, fragment.size, fragment.count());
        let too_large = total as usize > self.config.message_max;
        // The parts before it were given up and reported, or precede the first packet known of the stream.
        let beheaded = fragment.index > 0 && first < packet.front.settled;
        let alive = !too_large && !beheaded;
        self.make_room(now_us, if alive { total as usize } else { 0 }, report);
        let (how, missed_us, since_us) = (How::Multicast, None, now_us);
        let (came, bytes) = (Vec::new(), Vec::new());
        let (missing, sent, enveloped) = (count, packet.sent, packet.enveloped);
        let entry = Entry {
            key,
            first,
            total,
            size,
            count,
            missing,
            alive,
            since_us,
            how,
            missed_us,
            sent,
            enveloped,
            came,
            bytes,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot as usize
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        if alive {
            self.bytes += total as usize;
            let entry = &mut self.entries[slot];
            (entry.came, entry.bytes) = self.spare.pop().unwrap_or_default();
            let before = capacity(&entry.came, &entry.bytes);
            entry.came.resize(count.div_ceil(64) as usize, 0);
            entry.bytes.reserve_exact(total as usize);
            entry.bytes.resize(total as usize, 0);
            self.capacity += capacity(&entry.came, &entry.bytes) - before;
        }
        self.by_name.insert((key, first), slot as u32);
        self.links.push_last(&mut self.ages, slot);
        if too_large {
            self.counts.unfit.add(Unfit::TooLarge);
            report(&Lost { key, first, last: self.entries[slot].last(), reason: GivenUp::Unfit });
        }
        slot
    }

    /// Makes room for a message of `bytes` bytes by giving up the one that has waited longest for a fragment,
    /// first of a sender that takes more than its part: the length of a message is only a claim.
    fn make_room(&mut self, now_us: u64, bytes: usize, report: &mut impl FnMut(&Lost)) {
        while self.by_name.len() == self.config.messages_max {
            let slot = self.ages.first().expect("the table is full");
            if self.entries[slot].alive {
                self.counts.crowded += 1;
                self.give_up(now_us, slot, Some(GivenUp::Crowded), report);
            }
            self.remove(slot);
        }
        while self.bytes + bytes > self.config.bytes_max {
            let slot = self.oldest_of_a_large_sender().expect("a message holds the bytes");
            self.counts.crowded += 1;
            self.give_up(now_us, slot, Some(GivenUp::Crowded), report);
        }
    }

    /// Returns the oldest message that can still be completed, of a sender with more than a quarter of the
    /// bytes if there is one.
    fn oldest_of_a_large_sender(&self) -> Option<usize> {
        let slots = || {
            let all = std::iter::successors(self.ages.first(), |&slot| self.links.after(slot));
            all.filter(|&slot| self.entries[slot].alive)
        };
        // Candidates for more than a quarter, after Misra and Gries: at most three senders.
        let mut candidates: [Option<(NodeId, usize)>; 3] = [None; 3];
        for slot in slots() {
            let (sender, bytes) = (self.entries[slot].key.sender, self.entries[slot].total as usize);
            count(&mut candidates, sender, bytes);
        }
        let of = |sender: NodeId| slots().filter(move |&slot| self.entries[slot].key.sender == sender);
        let held = |sender| of(sender).map(|slot| self.entries[slot].total as usize).sum::<usize>();
        let largest = candidates.iter().flatten().map(|&(sender, _)| (held(sender), sender)).max();
        let large =
            largest.filter(|&(bytes, _)| 4 * bytes > self.bytes).and_then(|(_, sender)| of(sender).next());
        large.or_else(|| slots().next())
    }

    /// Gives up a message. It stays known, so that later fragments of it are not taken for a new message.
    fn give_up(&mut self, now_us: u64, slot: usize, reason: Option<GivenUp>, report: &mut impl FnMut(&Lost)) {
        let entry = &mut self.entries[slot];
        if let Some(reason) = reason {
            report(&Lost { key: entry.key, first: entry.first, last: entry.last(), reason });
        }
        entry.alive = false;
        self.release(slot);
        self.renew(now_us, slot);
    }

    /// Lets the age of a message begin again.
    fn renew(&mut self, now_us: u64, slot: usize) {
        self.entries[slot].since_us = now_us;
        self.links.remove(&mut self.ages, slot);
        self.links.push_last(&mut self.ages, slot);
    }

    /// Releases the buffers of a message.
    fn release(&mut self, slot: usize) {
        let entry = &mut self.entries[slot];
        self.bytes -= entry.bytes.len();
        let (mut came, mut bytes) = (std::mem::take(&mut entry.came), std::mem::take(&mut entry.bytes));
        came.clear();
        bytes.clear();
        if self.capacity > self.config.bytes_max {
            self.capacity -= capacity(&came, &bytes);
        } else if bytes.capacity() > 0 {
            self.spare.push((came, bytes));
        }
    }

    fn remove(&mut self, slot: usize) {
        self.release(slot);
        let entry = &self.entries[slot];
        self.by_name.remove(&(entry.key, entry.first));
        self.links.remove(&mut self.ages, slot);
        self.free.push(slot as u32);
    }
}

fn capacity(came: &Vec<u64>, bytes: &Vec<u8>) -> usize {
    came.capacity() * size_of::<u64>() + bytes.capacity()
}

/// Counts the bytes of a sender: one more step of the algorithm of Misra and Gries.
fn count(candidates: &mut [Option<(NodeId, usize)>], sender: NodeId, mut bytes: usize) {
    loop {
        if let Some((_, held)) = candidates.iter_mut().flatten().find(|(other, _)| *other == sender) {
            *held += bytes;
            return;
        }
        if let Some(free) = candidates.iter_mut().find(|candidate| candidate.is_none()) {
            *free = Some((sender, bytes));
            return;
        }
        let least = candidates.iter().flatten().map(|&(_, held)| held).min().unwrap_or(0).min(bytes);
        for candidate in candidates.iter_mut() {
            *candidate = candidate.map(|(other, held)| (other, held - least)).filter(|&(_, held)| held > 0);
        }
        bytes -= least;
        if bytes == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
