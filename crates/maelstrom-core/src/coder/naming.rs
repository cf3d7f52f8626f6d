//! Choice of the packets that a sliding window's repairs name, and of those too old for the window
//! (`docs/adr/0007-names-of-a-sliding-window.md`).

use std::collections::VecDeque;
use std::ops::Range;

use fec::RepairRate;
use fec::names::{APART_MAX, HELD_MAX, NAMES_MAX, Names, spread};
use foundation::Seq;

use super::CodedRepair;
use crate::wire::{Entry, Recipe, TERMS_MAX};

const _: () = assert!(NAMES_MAX == TERMS_MAX, "a repair names as many packets as the wire format allows");

/// Age at which a packet leaves the window, besides the longest wait for its first repair.
///
/// The far ingress gives up missing packets after a second, and a repair must not reach back further than its
/// memory. Only streams of fewer than W packets in this time reach the age.
pub(crate) const AGE_MAX_US: u64 = 500_000;

/// Age from which a packet is named a second time by a datagram of names. The datagrams of a gateway's tick,
/// or of a super-packet, leave as a train, in which a burst of losses would take both copies.
const SETTLED_US: u64 = 500;

/// Time after the deadline of its first repair at which a packet is about to reach the age.
pub(super) const LATE_US: u64 = AGE_MAX_US - 20_000;

/// The second copy of a name follows in the next repair, the last one a spread after the first.
fn distances(rate: RepairRate, window: u16) -> [usize; 2] {
    [1, spread(rate, window)]
}

/// The state that a window's encoder needs beside the packets.
pub(super) struct Naming {
    /// Whether the packets carry their positions, so that none is named.
    is_numbered: bool,
    /// Number of packets in a repair, and its maximum.
    window: u16,
    window_max: u16,
    names: Names,
    age_max_us: u64,
    /// Departure times of the window's packets, oldest first.
    sent_us: VecDeque<u64>,
    /// The newest packets, at least those that a datagram of names may name.
    recent: Vec<Entry>,
}

impl Naming {
    /// Starts at `next` of a stream whose packets wait at most `max_delay_us` for a repair. `window`: maximum
    /// number of packets in a repair, and that at present.
    pub(super) fn new(rate: RepairRate, window: u16, max_delay_us: u64, next: Seq) -> Self {
        // A spread is at most the window and 1, or 2.
        let reach = usize::from(window) + 2;
        Self {
            is_numbered: false,
            window,
            window_max: window,
            names: Names::new(rate, distances(rate, window), reach, next.0),
            age_max_us: AGE_MAX_US + max_delay_us,
            sent_us: VecDeque::with_capacity(usize::from(window)),
            recent: Vec::with_capacity(2 * APART_MAX),
        }
    }

    /// Names no packets if they carry their positions.
    pub(super) fn numbered(self, is_numbered: bool) -> Self {
        Self { is_numbered, ..self }
    }

    /// Changes the rate. Copies of names still owed at the old rate are named as far as there is room.
    pub(super) fn set_rate(&mut self, rate: RepairRate) {
        self.names.set_rate(rate, distances(rate, self.window));
    }

    /// Changes the number of packets in a repair, at this rate. Copies of names are owed as before.
    pub(super) fn set_window(&mut self, rate: RepairRate, packets: u16) {
        self.window = packets.min(self.window_max);
        self.set_rate(rate);
    }

    /// Takes the share of repairs that the link loses.
    pub(super) fn set_loss(&mut self, share: f64) {
        self.names.set_loss(share);
    }

    /// Forgets packets that are too old; returns the number left if there were any.
    pub(super) fn expire(&mut self, now_us: u64) -> Option<usize> {
        let before = self.sent_us.len();
        while self.sent_us.front().is_some_and(|&sent_us| sent_us + self.age_max_us < now_us) {
            self.sent_us.pop_front();
        }
        let left = self.sent_us.len();
        (left < before).then_some(left)
    }

    /// Notes that a packet has entered the window.
    pub(super) fn on_packet(&mut self, now_us: u64, entry: Entry) {
        if self.recent.len() == 2 * APART_MAX {
            self.recent.drain(..APART_MAX);
        }
        self.recent.push(entry);
        if self.sent_us.len() == usize::from(self.window_max) {
            self.sent_us.pop_front();
        }
        self.sent_us.push_back(now_us);
    }

    /// Returns the names that travel apart after the newest packet, if a datagram of them is due.
    pub(super) fn next_apart(&mut self) -> Option<CodedRepair<'_>> {
        if self.is_numbered {
            return None;
        }
        let (last, sent_us) = (self.recent.last()?.seq.0, &self.sent_us);
        let named = self.names.next_apart(last, || {
            let until_us = sent_us.back().map_or(0, |&newest_us| newest_us.saturating_sub(SETTLED_US));
            let held = sent_us.iter().rev().take_while(|&&at_us| at_us > until_us);
            (last + 1).saturating_sub(held.take(HELD_MAX as usize).count() as u64)
        })?;
        self.apart(named)
    }

    /// Returns the same after a silence, if packets have no name yet.
    pub(super) fn owed_apart(&mut self) -> Option<CodedRepair<'_>> {
        if self.is_numbered {
            return None;
        }
        let named = self.names.owed_apart(self.recent.last()?.seq.0)?;
        self.apart(named)
    }

    fn apart(&self, named: Range<u64>) -> Option<CodedRepair<'_>> {
        let behind = self.recent.last()?.seq.0 + 1;
        let back = |seq: u64| self.recent.len().saturating_sub(behind.saturating_sub(seq) as usize);
        let entries = &self.recent[back(named.start)..back(named.end)];
        (!entries.is_empty()).then_some(CodedRepair { recipe: Recipe::Names { entries }, symbol: &[] })
    }

    /// Returns the packets that the next repair, of the packets `first` to `last`, names; in order of the
    /// stream.
    pub(super) fn next(&mut self, first: Seq, last: Seq) -> [Range<Seq>; 3] {
        if self.is_numbered {
            return [first..first, first..first, first..first];
        }
        self.names.next(first.0, last.0).map(|run| Seq(run.start)..Seq(run.end))
    }

    /// Returns the packets `first` to `last`, all of which the next repair names.
    pub(super) fn next_all(&mut self, first: Seq, last: Seq) -> [Range<Seq>; 3] {
        self.names.next_all(first.0, last.0).map(|run| Seq(run.start)..Seq(run.end))
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.names.memory_bytes()
            + self.sent_us.capacity() * size_of::<u64>()
            + self.recent.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Name;
    use crate::packet::MutableFields;

    #[test]
    fn packets_with_positions_are_never_named() {
        let entry = |seq| Entry { seq: Seq(seq), name: Name(0), fields: MutableFields::default() };
        let mut naming = Naming::new("1/4".parse().unwrap(), 16, 20_000, Seq(0)).numbered(true);
        for seq in 0..200 {
            naming.on_packet(seq, entry(seq));
            assert!(naming.next_apart().is_none() && naming.owed_apart().is_none());
            assert!(naming.next(Seq(seq.saturating_sub(15)), Seq(seq)).iter().all(Range::is_empty));
        }
    }

    #[test]
    fn packets_of_a_slow_stream_leave_the_window_by_age() {
        let entry = Entry { seq: Seq(0), name: Name(0), fields: MutableFields::default() };
        let mut naming = Naming::new("1/2".parse().unwrap(), 4, 20_000, Seq(0));
        let left = [0, 1, 2, 3, 4, 520_001, 520_003, 2_000_000].map(|now_us| {
            let left = naming.expire(now_us);
            naming.on_packet(now_us, entry);
            left
        });
        assert_eq!(left, [None, None, None, None, None, None, Some(3), Some(0)]);
    }
}
