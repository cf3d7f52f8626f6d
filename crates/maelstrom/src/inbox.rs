//! Datagrams of the repair channel that are not decoded yet, in the order in which they were read.
//!
//! While a tap is behind, they wait until it has shown what had arrived when they were read.

use std::collections::VecDeque;

use maelstrom_core::Inbound;
use netio::udp;

/// Least room in bytes: the repairs of half a second at 1 Gbit/s and a rate of 1/4. Memory that is never
/// written takes no room.
pub(crate) const BYTES_MIN: usize = 16 << 20;

/// A bounded queue of datagrams. Each lies in one piece of the buffer, which is used in turn.
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    entries: VecDeque<Entry>,
    /// Where the next datagram goes.
    head: usize,
    /// Maximum number of datagrams and bytes from one read of all sockets.
    read_max: usize,
    read_bytes_max: usize,
    /// Number of datagrams taken in since the start.
    taken: u64,
}

struct Entry {
    from: Inbound,
    read_us: u64,
    start: usize,
    len: usize,
}

impl Inbox {
    /// Creates the inbox for one socket and those of further paths.
    pub(crate) fn new(doors: usize) -> Self {
        let (read_max, read_bytes_max) =
            ((1 + doors) * udp::RECEIVED_MAX, (1 + doors) * udp::RECEIVED_BYTES_MAX);
        Self {
            bytes: vec![0; BYTES_MIN.max(4 * read_bytes_max)].into_boxed_slice(),
            entries: VecDeque::with_capacity(read_max),
            head: 0,
            read_max,
            read_bytes_max,
            taken: 0,
        }
    }

    /// Drops all datagrams, and makes room for those of one socket and of `doors` further ones.
    pub(crate) fn reopen(&mut self, doors: usize) {
        *self = Self { taken: self.taken, ..Self::new(doors) };
    }

    /// Takes in a datagram that was read at `read_us`; returns whether there was room.
    pub(crate) fn push(&mut self, from: Inbound, read_us: u64, datagram: &[u8]) -> bool {
        let Some(start) = self.place(datagram.len()) else { return false };
        self.bytes[start..start + datagram.len()].copy_from_slice(datagram);
        self.head = start + datagram.len();
        self.entries.push_back(Entry { from, read_us, start, len: datagram.len() });
        self.taken += 1;
        true
    }

    /// Returns where a datagram of `len` bytes fits.
    fn place(&self, len: usize) -> Option<usize> {
        let Some(first) = self.entries.front() else { return (len <= self.bytes.len()).then_some(0) };
        // Never up to the first one, or a full buffer would look like an empty one.
        if self.head <= first.start {
            return (self.head + len < first.start).then_some(self.head);
        }
        if len <= self.bytes.len() - self.head { Some(self.head) } else { (len < first.start).then_some(0) }
    }

    /// Whether another read of all sockets fits.
    pub(crate) fn has_room(&self) -> bool {
        let Some(first) = self.entries.front() else { return true };
        let (before, behind) = (first.start, self.bytes.len() - self.head.min(self.bytes.len()));
        let free = if self.head <= first.start { before - self.head } else { before.max(behind) };
        free > self.read_bytes_max && self.entries.len() + self.read_max <= self.entries_max()
    }

    /// Largest number of datagrams: as many as fit if each has a hundred bytes.
    fn entries_max(&self) -> usize {
        (self.bytes.len() / 100).max(2 * self.read_max)
    }

    /// Returns the oldest datagram, with its source and the time at which it was read.
    pub(crate) fn first(&mut self) -> Option<(Inbound, u64, &mut [u8])> {
        let Entry { from, read_us, start, len } = *self.entries.front()?;
        Some((from, read_us, &mut self.bytes[start..start + len]))
    }

    /// Removes the oldest datagram.
    pub(crate) fn pop(&mut self) {
        self.entries.pop_front();
    }

    /// Sources of the datagrams that were read before `until_us`, oldest first.
    pub(crate) fn sources(&self, until_us: u64) -> impl Iterator<Item = Inbound> {
        self.entries.iter().take_while(move |entry| entry.read_us < until_us).map(|entry| entry.from)
    }

    /// Removes the datagrams that `stays` denies, and returns their number.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&Inbound) -> bool) -> usize {
        let before = self.entries.len();
        self.entries.retain(|entry| stays(&entry.from));
        before - self.entries.len()
    }

    /// Whether no datagram waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of datagrams taken in since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Number of datagrams, counted like [`Inbox::taken`], of which none waits any more.
    pub(crate) fn done(&self) -> u64 {
        self.taken - self.entries.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use maelstrom_core::{Ecn, Source};

    use super::*;

    fn from(number: u16) -> Inbound {
        let source = Source { door: 0, address: ([10, 0, 0, 1], number).into() };
        Inbound { source, ecn: Ecn::NotEct, arrived_us: 0 }
    }

    fn datagram(number: u16, len: usize) -> Vec<u8> {
        (0..len).map(|at| (usize::from(number) * 31 + at) as u8).collect()
    }

    #[test]
    fn datagrams_come_out_as_they_went_in_however_often_the_buffer_is_used() {
        let mut inbox = Inbox::new(0);
        inbox.bytes = vec![0; 10_000].into_boxed_slice();
        let mut random = testkit::Random(7);
        let mut waiting = VecDeque::new();
        let (mut refused, mut number) = (0, 0);
        for step in 0..50_000 {
            if random.below(100) < if step / 500 % 2 == 0 { 60 } else { 40 } {
                let len = 1 + random.below(1_500) as usize;
                if inbox.push(from(number), u64::from(number), &datagram(number, len)) {
                    waiting.push_back((number, len));
                } else {
                    let held: usize = waiting.iter().map(|&(_, len)| len).sum();
                    assert!(held + 2 * 1_500 + len > 10_000, "{held} bytes are held");
                    refused += 1;
                }
                number = number.wrapping_add(1);
            } else if let Some((number, len)) = waiting.pop_front() {
                let (source, read_us, bytes) = inbox.first().unwrap();
                assert_eq!((source, read_us), (from(number), u64::from(number)));
                assert_eq!(bytes, datagram(number, len));
                inbox.pop();
            }
            assert_eq!(
                (inbox.is_empty(), inbox.done()),
                (waiting.is_empty(), inbox.taken() - waiting.len() as u64)
            );
        }
        assert!(refused > 100 && inbox.taken() > 10_000);
    }

    #[test]
    fn a_read_of_all_sockets_fits_while_there_is_room() {
        for doors in [0, 2] {
            let mut inbox = Inbox::new(doors);
            let mut reads = 0;
            while inbox.has_room() {
                // The most that a read of all sockets brings, in packets as long as there are.
                for number in 0..(1 + doors) * udp::RECEIVED_BYTES_MAX / 1_472 {
                    assert!(inbox.push(from(number as u16), reads, &[0; 1_472]), "read {reads}");
                }
                reads += 1;
                // Room in front, not behind.
                if reads == 3 {
                    (0..inbox.entries.len() / 3 * 2).for_each(|_| inbox.pop());
                }
            }
            assert!(reads > 3);
            while !inbox.is_empty() {
                inbox.pop();
            }
            assert!(inbox.has_room());
        }
    }

    #[test]
    fn many_short_datagrams_do_not_take_all_memory() {
        let mut inbox = Inbox::new(0);
        let mut pushed = 0;
        while inbox.has_room() {
            (0..udp::RECEIVED_MAX).for_each(|_| assert!(inbox.push(from(1), 1, &[1])));
            pushed += udp::RECEIVED_MAX;
        }
        assert!(pushed <= inbox.bytes.len() / 100);
    }

    #[test]
    fn datagrams_wait_by_the_time_at_which_they_were_read() {
        let mut inbox = Inbox::new(0);
        (1..6).for_each(|number| assert!(inbox.push(from(number), u64::from(number), &[1])));
        let sources =
            |inbox: &Inbox| inbox.sources(4).map(|from| from.source.address.port()).collect::<Vec<_>>();
        assert_eq!(sources(&inbox), [1, 2, 3]);
        assert_eq!(inbox.retain(|from| from.source.address.port() != 2), 1);
        assert_eq!((sources(&inbox), inbox.done()), (vec![1, 3], 1));
        inbox.reopen(0);
        assert_eq!((inbox.is_empty(), inbox.taken(), inbox.done()), (true, 5, 5));
    }
}
