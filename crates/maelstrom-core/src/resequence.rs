//! Holds packets of a tunnel that came early, so that hosts get them in the order in which they were sent.
//!
//! A *gap* is a run of places in front of a packet that came, whose packets have not come. The time for which
//! a gap is waited for begins with the arrival of the packet behind it. No packet is held for longer than
//! that time, because every gap in front of it is at least as old as its arrival. Places before
//! [`Resequencer::awaited`] are decided, and packets there are handed on as the queue has room.

use std::collections::VecDeque;

use crate::outbox::{Origin, Queue};
use foundation::Seq;

/// Maximum number of places that are told apart: those of 90 ms at 1 Gbit/s.
const PLACES: u64 = 8_192;
/// Maximum number of bytes of packets that are held.
pub const RESEQUENCE_BYTES_MAX: usize = 8 << 20;

/// Counts of packets that were held for the sake of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequenceCounts {
    /// Packets held because packets in front of them had not come.
    pub held: u64,
    /// Of these, packets handed on because a gap in front of them had been waited for long enough.
    pub by_time: u64,
    /// Of these, packets handed on because there was no room for more.
    pub by_room: u64,
    /// Packets handed on after packets behind them.
    pub late: u64,
    /// Packets dropped, because there was no room, or because the session ended while they waited.
    pub dropped: u64,
}

/// State of the packets from a peer that are held for the sake of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResequenceState {
    /// Longest wait for a gap, in microseconds.
    pub limit_us: u64,
    /// Packets that are held at present.
    pub waiting: usize,
    /// Counts since the gateway's start.
    pub counts: ResequenceCounts,
}

/// Change of a packet at the time at which it is handed on.
pub(crate) type Stamp<'a> = &'a mut dyn FnMut(&Origin, &mut [u8]);

/// Reason not to wait for a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Time,
    Room,
    Hopeless,
}

/// Packets in the order of their places.
#[derive(Debug)]
pub(crate) struct Resequencer {
    limit_us: u64,
    slots: Box<[Option<Waiting>]>,
    /// Next place to hand on.
    next: Seq,
    /// First place that is awaited.
    open: Seq,
    /// Place behind the newest packet that came.
    end: Seq,
    /// Whether a packet of the stream has come.
    is_begun: bool,
    /// Of each gap the place of the packet behind it, and the time at which that came; ascending in both.
    gaps: VecDeque<(Seq, u64)>,
    waiting: usize,
    bytes: usize,
    /// Buffers that are not in use.
    spare: Vec<Vec<u8>>,
    counts: ResequenceCounts,
}

/// A packet that came early.
#[derive(Debug)]
struct Waiting {
    seq: Seq,
    origin: Origin,
    bytes: Vec<u8>,
}

impl Resequencer {
    /// `limit_us`: longest wait for a gap.
    pub(crate) fn new(limit_us: u64) -> Self {
        Self {
            limit_us,
            slots: (0..PLACES).map(|_| None).collect(),
            next: Seq(0),
            open: Seq(0),
            end: Seq(0),
            is_begun: false,
            gaps: VecDeque::new(),
            waiting: 0,
            bytes: 0,
            spare: Vec::new(),
            counts: ResequenceCounts::default(),
        }
    }

    pub(crate) fn set_limit(&mut self, limit_us: u64) {
        self.limit_us = limit_us;
    }

    /// Changes the number of the peer whose packets wait.
    pub(crate) fn renumber(&mut self, peer: usize) {
        self.slots.iter_mut().flatten().for_each(|waiting| waiting.origin.peer = peer);
    }

    /// Takes the packet of a place, once for each place, and hands it on if it is its turn. Packets behind it
    /// follow with [`Resequencer::drain`].
    pub(crate) fn push(
        &mut self,
        now_us: u64,
        seq: Seq,
        (origin, packet): (Origin, &[u8]),
        out: &mut Queue<Origin>,
        stamp: Stamp<'_>,
    ) {
        if !std::mem::replace(&mut self.is_begun, true) {
            (self.next, self.open, self.end) = (seq, seq, seq);
        }
        let has_room = self.make_room(seq, packet.len(), out, stamp);
        if seq < self.next {
            self.counts.late += 1;
            return self.pass_by((origin, packet), out, stamp);
        }
        if !has_room || self.is_waiting(seq) {
            self.counts.dropped += 1;
            return;
        }
        if seq >= self.end {
            if seq > self.end {
                self.gaps.push_back((seq, now_us));
            }
            self.end = seq.plus(1);
        }
        if seq == self.next && seq == self.open && hand_on(origin, packet, out, stamp) {
            self.next = seq.plus(1);
        } else {
            self.keep(seq, origin, packet);
        }
        if seq == self.open {
            self.open_to(seq.plus(1), End::Hopeless);
        }
    }

    /// Hands on a packet without a place in the stream.
    pub(crate) fn pass_by(
        &mut self,
        (origin, packet): (Origin, &[u8]),
        out: &mut Queue<Origin>,
        stamp: Stamp<'_>,
    ) {
        self.counts.dropped += u64::from(!hand_on(origin, packet, out, stamp));
    }

    /// First place whose packet has not come, if packets wait behind it.
    pub(crate) fn awaited(&self) -> Option<Seq> {
        (self.open < self.end).then_some(self.open)
    }

    /// Notes that the packet of the awaited place cannot come.
    pub(crate) fn give_up(&mut self) {
        if let Some(seq) = self.awaited() {
            self.open_to(seq.plus(1), End::Hopeless);
        }
    }

    /// Waits no longer for gaps whose time is up.
    pub(crate) fn expire(&mut self, now_us: u64) {
        while let Some(&(behind, since_us)) = self.gaps.front()
            && now_us >= since_us + self.limit_us
        {
            self.open_to(behind, End::Time);
        }
    }

    /// Hands on the packets whose turn it is, as long as the queue is not nearly full.
    pub(crate) fn drain(&mut self, out: &mut Queue<Origin>, stamp: Stamp<'_>) {
        while self.next < self.open {
            if self.waiting == 0 {
                self.next = self.open;
                return;
            }
            let at = slot(self.next);
            if let Some(waiting) = self.slots[at].take_if(|waiting| waiting.seq == self.next) {
                if out.is_nearly_full() || !hand_on(waiting.origin, &waiting.bytes, out, stamp) {
                    self.slots[at] = Some(waiting);
                    return;
                }
                self.release(waiting.bytes);
            }
            self.next = self.next.plus(1);
        }
    }

    /// Time at which [`Resequencer::expire`] and [`Resequencer::drain`] are due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        if self.next < self.open {
            return Some(0);
        }
        self.gaps.front().map(|&(_, since_us)| since_us + self.limit_us)
    }

    /// Drops all packets that wait, and begins with this place.
    pub(crate) fn begin(&mut self, first: Seq) {
        self.restart();
        self.is_begun = true;
        (self.next, self.open, self.end) = (first, first, first);
    }

    /// Drops all packets that wait, and begins with the next one, wherever it is.
    pub(crate) fn restart(&mut self) {
        self.counts.dropped += self.waiting as u64;
        let mut slots = std::mem::take(&mut self.slots);
        slots.iter_mut().filter_map(Option::take).for_each(|waiting| self.release(waiting.bytes));
        self.slots = slots;
        self.gaps.clear();
        self.is_begun = false;
        (self.next, self.open, self.end) = (Seq(0), Seq(0), Seq(0));
    }

    pub(crate) fn state(&self) -> ResequenceState {
        ResequenceState { limit_us: self.limit_us, waiting: self.waiting, counts: self.counts }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let waiting = self.slots.iter().flatten().map(|waiting| waiting.bytes.capacity());
        waiting.chain(self.spare.iter().map(Vec::capacity)).sum::<usize>()
            + size_of_val(&*self.slots)
            + self.gaps.capacity() * size_of::<(Seq, u64)>()
    }

    /// Makes room for a packet by giving up the oldest gaps; returns whether there is room.
    fn make_room(&mut self, seq: Seq, len: usize, out: &mut Queue<Origin>, stamp: Stamp<'_>) -> bool {
        loop {
            let is_far = seq.0.saturating_sub(self.next.0) >= PLACES;
            if !is_far && (self.waiting == 0 || self.bytes + len <= RESEQUENCE_BYTES_MAX) {
                return true;
            }
            if self.waiting == 0 {
                // The places between are too many to be waited for.
                (self.next, self.open, self.end) = (seq, seq, seq);
                self.gaps.clear();
                return true;
            }
            if self.next == self.open {
                let Some(&(behind, _)) = self.gaps.front() else { return false };
                self.open_to(behind, End::Room);
            }
            let before = self.next;
            self.drain(out, stamp);
            if self.next == before {
                return false;
            }
        }
    }

    /// Decides the places before `limit`, and those of packets that follow without a gap.
    fn open_to(&mut self, limit: Seq, end: End) {
        let mut released = 0;
        while self.open < limit || self.is_waiting(self.open) {
            released += u64::from(self.is_waiting(self.open));
            self.open = self.open.plus(1);
        }
        while self.gaps.pop_front_if(|&mut (behind, _)| behind <= self.open).is_some() {}
        match end {
            End::Time => self.counts.by_time += released,
            End::Room => self.counts.by_room += released,
            End::Hopeless => {}
        }
    }

    fn is_waiting(&self, seq: Seq) -> bool {
        self.slots[slot(seq)].as_ref().is_some_and(|waiting| waiting.seq == seq)
    }

    fn keep(&mut self, seq: Seq, origin: Origin, packet: &[u8]) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(packet);
        self.slots[slot(seq)] = Some(Waiting { seq, origin, bytes });
        self.waiting += 1;
        self.bytes += packet.len();
        self.counts.held += u64::from(seq > self.open);
    }

    fn release(&mut self, bytes: Vec<u8>) {
        self.waiting -= 1;
        self.bytes -= bytes.len();
        self.spare.push(bytes);
    }
}

/// Index of the slot of a place.
fn slot(seq: Seq) -> usize {
    (seq.0 % PLACES) as usize
}

/// Appends a packet to the queue; returns whether there was room.
fn hand_on(origin: Origin, packet: &[u8], out: &mut Queue<Origin>, stamp: Stamp<'_>) -> bool {
    let Some(room) = out.reserve(packet.len()) else { return false };
    room.copy_from_slice(packet);
    stamp(&origin, room);
    out.commit(origin, packet.len());
    true
}

#[cfg(test)]
mod tests;
