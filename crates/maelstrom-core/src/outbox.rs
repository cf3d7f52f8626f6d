//! What the core wants sent, in preallocated queues that the driver empties.

/// A bounded queue of byte strings in one buffer. Room is reserved, written, then committed or given up.
#[derive(Debug)]
pub struct Queue<M> {
    bytes: Vec<u8>,
    used: usize,
    entries: Vec<(M, usize)>,
    entries_max: usize,
}

impl<M: Copy> Queue<M> {
    /// For at most `entries` strings of `bytes` in all; allocates here and never again.
    pub fn new(entries: usize, bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], used: 0, entries: Vec::with_capacity(entries), entries_max: entries }
    }

    /// Room for `len` bytes, or `None` if the queue is full.
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.entries.len() == self.entries_max {
            return None;
        }
        self.bytes.get_mut(self.used..self.used + len)
    }

    /// Takes the first `len` bytes of the room reserved last into the queue.
    pub fn commit(&mut self, meta: M, len: usize) {
        assert!(
            self.entries.len() < self.entries_max && self.used + len <= self.bytes.len(),
            "commit after reserve"
        );
        self.used += len;
        self.entries.push((meta, self.used));
    }

    /// What is queued, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (M, &[u8])> {
        let starts = std::iter::once(0).chain(self.entries.iter().map(|&(_, end)| end));
        starts.zip(&self.entries).map(|(start, &(meta, end))| (meta, &self.bytes[start..end]))
    }

    /// What is queued, oldest first, to be changed in place.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (M, &mut [u8])> {
        let mut rest = &mut self.bytes[..self.used];
        let mut start = 0;
        self.entries.iter().map(move |&(meta, end)| {
            let (entry, behind) = std::mem::take(&mut rest).split_at_mut(end - start);
            (rest, start) = (behind, end);
            (meta, entry)
        })
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of strings queued.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether so little room is left that the driver should empty the queue now.
    pub fn is_nearly_full(&self) -> bool {
        self.used > self.bytes.len() / 2 || self.entries.len() > self.entries_max / 2
    }

    /// Forgets what was queued.
    pub fn clear(&mut self) {
        self.used = 0;
        self.entries.clear();
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<(M, usize)>()
    }
}

/// Everything that leaves the core.
#[derive(Debug)]
pub struct Outbox {
    /// Datagrams for the repair channel, each with the number of the peer it goes to.
    pub datagrams: Queue<usize>,
    /// Recovered packets, to be handed to the kernel as if they had arrived.
    pub recovered: Queue<()>,
}

impl Outbox {
    /// Queues for packets of up to `packet_max` bytes. So large that what one call makes fits if the queue was not
    /// nearly full: `bins` may fire at once, and one repair can bring back `equations` packets.
    pub fn new(packet_max: usize, bins: usize, equations: usize) -> Self {
        // A bin may give two datagrams.
        let datagrams = 512 + 4 * bins;
        let recovered = 64 + 2 * equations;
        Self {
            datagrams: Queue::new(datagrams, datagrams * 1536.max(packet_max)),
            recovered: Queue::new(recovered, recovered * packet_max),
        }
    }

    /// Whether so little room is left that the driver should empty the queues before it goes on.
    pub fn is_nearly_full(&self) -> bool {
        self.datagrams.is_nearly_full() || self.recovered.is_nearly_full()
    }
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
        queue.clear();
        assert!(queue.is_empty());
    }
}
