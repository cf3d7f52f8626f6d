//! The core's output, in preallocated queues that the driver empties.

use std::net::SocketAddr;

use crate::config::Source;
use crate::ecn::Ecn;
use crate::paths::PathSet;
use foundation::Seq;

/// A bounded queue of byte strings in one buffer. A writer reserves room, fills it, and commits or abandons
/// it.
#[derive(Debug)]
pub struct Queue<M> {
    bytes: Vec<u8>,
    used: usize,
    entries: Vec<(M, usize)>,
    entries_max: usize,
}

impl<M: Copy> Queue<M> {
    /// Creates a queue for at most `entries` strings of together at most `bytes` bytes. All memory is
    /// allocated here.
    pub fn new(entries: usize, bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], used: 0, entries: Vec::with_capacity(entries), entries_max: entries }
    }

    /// Returns room for `len` bytes, or `None` if the queue is full.
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.entries.len() == self.entries_max {
            return None;
        }
        self.bytes.get_mut(self.used..self.used + len)
    }

    /// Appends the first `len` bytes of the room reserved last to the queue.
    pub fn commit(&mut self, meta: M, len: usize) {
        assert!(
            self.entries.len() < self.entries_max && self.used + len <= self.bytes.len(),
            "commit after reserve"
        );
        self.used += len;
        self.entries.push((meta, self.used));
    }

    /// Returns the queued strings, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (M, &[u8])> {
        let starts = std::iter::once(0).chain(self.entries.iter().map(|&(_, end)| end));
        starts.zip(&self.entries).map(|(start, &(meta, end))| (meta, &self.bytes[start..end]))
    }

    /// Returns the queued strings for changes in place, oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (M, &mut [u8])> {
        let mut rest = &mut self.bytes[..self.used];
        let mut start = 0;
        self.entries.iter().map(move |&(meta, end)| {
            let (entry, behind) = std::mem::take(&mut rest).split_at_mut(end - start);
            (rest, start) = (behind, end);
            (meta, entry)
        })
    }

    /// Returns what was committed with the strings behind the first `before`, for changes, and the strings.
    pub(crate) fn metas_behind(&mut self, before: usize) -> impl Iterator<Item = (&mut M, &[u8])> {
        let bytes = &self.bytes;
        let mut start = before.checked_sub(1).map_or(0, |last| self.entries[last].1);
        self.entries.iter_mut().skip(before).map(move |(meta, end)| {
            let string = &bytes[start..*end];
            start = *end;
            (meta, string)
        })
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of queued strings.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the queue is more than half full, so that the driver should empty it.
    pub fn is_nearly_full(&self) -> bool {
        self.used > self.bytes.len() / 2 || self.entries.len() > self.entries_max / 2
    }

    /// Removes the queued string with this number, counted from the oldest.
    pub(crate) fn remove(&mut self, number: usize) {
        let start = number.checked_sub(1).map_or(0, |before| self.entries[before].1);
        let (_, end) = self.entries.remove(number);
        self.bytes.copy_within(end..self.used, start);
        self.used -= end - start;
        self.entries[number..].iter_mut().for_each(|(_, later)| *later -= end - start);
    }

    /// Removes the strings that `stays` denies, and returns their number.
    pub fn retain(&mut self, mut stays: impl FnMut(&M) -> bool) -> usize {
        let (before, mut start, mut used) = (self.entries.len(), 0, 0);
        let bytes = &mut self.bytes;
        self.entries.retain_mut(|(meta, end)| {
            let (string, len) = (start..*end, *end - start);
            start = *end;
            let is_kept = stays(meta);
            if is_kept {
                bytes.copy_within(string, used);
                used += len;
                *end = used;
            }
            is_kept
        });
        self.used = used;
        before - self.entries.len()
    }

    /// Empties the queue.
    pub fn clear(&mut self) {
        self.used = 0;
        self.entries.clear();
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<(M, usize)>()
    }
}

/// Addressee and marking of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Number of the peer.
    pub peer: usize,
    /// DSCP of its IP header.
    pub dscp: u8,
    /// ECN field of its IP header.
    pub ecn: Ecn,
    /// Address to which it goes, and the socket from which it leaves; `None` for those of its paths.
    pub elsewhere: Option<Source>,
    /// Paths that it takes, unless it goes elsewhere.
    pub paths: PathSet,
}

impl Envelope {
    /// The envelope of a datagram that carries no repair: best effort.
    pub fn to(peer: usize) -> Self {
        Self { peer, dscp: 0, ecn: Ecn::NotEct, elsewhere: None, paths: PathSet::FIRST }
    }

    /// Type of service, or traffic class, of its IP header.
    pub fn tos(&self) -> u8 {
        self.ecn.set(self.dscp << 2)
    }

    /// The same for a datagram with this type of service.
    #[must_use]
    pub(crate) fn marked(self, tos: u8) -> Self {
        Self { dscp: tos >> 2, ecn: Ecn::of(tos), ..self }
    }

    /// The same for a datagram that takes these paths.
    #[must_use]
    pub fn by(self, paths: PathSet) -> Self {
        Self { paths, ..self }
    }

    /// The same for a datagram that goes to another address, if there is one.
    #[must_use]
    pub fn at(self, elsewhere: Option<SocketAddr>) -> Self {
        Self { elsewhere: elsewhere.map(|address| Source { door: 0, address }), ..self }
    }

    /// The same for a datagram that goes back to the source of another one.
    #[must_use]
    pub fn back(self, to: Source) -> Self {
        Self { elsewhere: Some(to), ..self }
    }
}

/// Origin of a packet for this site, by which the driver reports that it could not inject the packet
/// ([`Gateway::handle_uninjected`](crate::Gateway::handle_uninjected)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the peer.
    pub peer: usize,
    /// Place in the peer's stream; `None` for a packet beside it.
    pub(crate) seq: Option<Seq>,
    /// Number of the class whose recovered packets count it.
    pub(crate) class: Option<usize>,
    /// Whether it was lost; else it arrived in a tunnel.
    pub is_recovered: bool,
    /// Number of the datagram, low 32 bits, with the repair that completed its recovery; `None` if a packet
    /// that arrived did.
    pub repair: Option<u32>,
    /// Delay behind its neighbours in the stream, in microseconds, as far as it is known.
    pub late_us: Option<u64>,
}

/// All output of the core.
#[derive(Debug)]
pub struct Outbox {
    /// Datagrams for the repair channel.
    pub datagrams: Queue<Envelope>,
    /// Packets for this site, which the driver hands to the kernel: recovered ones, as if they had arrived,
    /// and all those that arrived in a tunnel.
    pub recovered: Queue<Origin>,
}

impl Outbox {
    /// Creates queues for packets of up to `packet_max` bytes. The output of one call fits unless a queue was
    /// nearly full: `bins` may fire at once, and one repair can recover `equations` packets.
    pub fn new(packet_max: usize, bins: usize, equations: usize) -> Self {
        // One bin may need two datagrams.
        let datagrams = 512 + 4 * bins;
        Self {
            datagrams: Queue::new(datagrams, datagrams * 1536.max(packet_max)),
            recovered: recovered(packet_max, equations),
        }
    }

    /// Whether a queue is more than half full, so that the driver should empty both before it continues.
    pub fn is_nearly_full(&self) -> bool {
        self.datagrams.is_nearly_full() || self.recovered.is_nearly_full()
    }
}

/// Creates a queue for the packets of up to `packet_max` bytes that one call brings, of which one repair can
/// recover `equations`.
pub(crate) fn recovered(packet_max: usize, equations: usize) -> Queue<Origin> {
    let entries = 64 + 2 * equations;
    Queue::new(entries, entries * packet_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_bounds() {
        let mut queue = Queue::new(2, 10);
        queue.reserve(4).unwrap()[..3].copy_from_slice(b"abc");
        queue.commit(1, 3);
        assert!(queue.reserve(8).is_none(), "out of bytes");
        queue.reserve(7).unwrap().copy_from_slice(b"defghij");
        queue.commit(2, 7);
        assert!(queue.reserve(0).is_none(), "out of entries");
        assert_eq!(queue.iter().collect::<Vec<_>>(), [(1, &b"abc"[..]), (2, &b"defghij"[..])]);
        queue.remove(0);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [(2, &b"defghij"[..])]);
        queue.reserve(2).unwrap().copy_from_slice(b"kl");
        queue.commit(3, 2);
        for (before, strings) in [(0, &[&b"defghij"[..], b"kl"][..]), (1, &[b"kl"]), (2, &[])] {
            assert!(queue.metas_behind(before).map(|(_, string)| string).eq(strings.iter().copied()));
        }
        queue.metas_behind(1).for_each(|(meta, _)| *meta += 4);
        assert!(queue.iter().map(|(meta, _)| meta).eq([2, 7]));
        queue.remove(1);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [(2, &b"defghij"[..])]);
        queue.clear();
        assert!(queue.is_empty());
    }

    #[test]
    fn retains_some_in_order() {
        for kept in 0..32_u8 {
            let strings = [&b"a"[..], b"", b"bcd", b"efghi", b"jk"];
            let mut queue = Queue::new(6, 16);
            for (number, string) in strings.iter().enumerate() {
                queue.reserve(string.len()).unwrap().copy_from_slice(string);
                queue.commit(number, string.len());
            }
            let stays = |number: &usize| kept >> number & 1 == 1;
            assert_eq!(queue.retain(stays), kept.count_zeros() as usize - 3);
            queue.reserve(2).unwrap().copy_from_slice(b"lm");
            queue.commit(5, 2);
            let expected = (0..5).filter(stays).map(|number| (number, strings[number]));
            assert!(queue.iter().eq(expected.chain([(5, &b"lm"[..])])), "{kept:b}");
        }
    }
}
