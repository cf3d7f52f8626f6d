//! A bounded store of the newest symbols.

use std::ops::Range;

/// Handle of one symbol in a [`SymbolRing`]. It becomes stale for good when the ring drops the symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolHandle(u64);

/// Keeps the newest symbols within a capacity in symbols and in bytes; the oldest is dropped first.
///
/// All memory is allocated at construction. A symbol is one slice, so up to one symbol's length is unused at
/// the end of the byte ring.
///
/// ```
/// let mut ring = fec::SymbolRing::new(2, 64);
/// let a = ring.push(&[b"length", b"packet"]).unwrap();
/// let b = ring.push(&[b"second"]).unwrap();
/// assert_eq!(ring.get(a), Some(&b"lengthpacket"[..]));
/// ring.push(&[b"third"]).unwrap();
/// assert_eq!(ring.get(a), None, "two symbols fit; the oldest was dropped");
/// assert_eq!(ring.get(b), Some(&b"second"[..]));
/// ```
#[derive(Debug)]
pub struct SymbolRing {
    bytes: Box<[u8]>,
    entries: Box<[Entry]>,
    /// Handle of the oldest symbol kept; `next` when empty.
    first: u64,
    /// Handle of the symbol pushed next.
    next: u64,
    /// Position of the next symbol: it only grows, and is taken modulo the capacity.
    position: u64,
    length: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    position: u64,
    /// `position` modulo the capacity.
    offset: usize,
    length: usize,
}

impl SymbolRing {
    /// Creates a ring for `symbols` symbols of together at most `bytes` bytes.
    ///
    /// # Panics
    /// If either is zero.
    pub fn new(symbols: usize, bytes: usize) -> Self {
        assert!(symbols > 0 && bytes > 0, "a symbol ring needs room: {symbols} symbols, {bytes} bytes");
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            entries: vec![Entry { position: 0, offset: 0, length: 0 }; symbols].into_boxed_slice(),
            first: 0,
            next: 0,
            position: 0,
            length: 0,
        }
    }

    /// Keeps a symbol, given as consecutive pieces, and drops as many of the oldest as its room requires.
    ///
    /// Returns `None` if the symbol is longer than the whole ring; then nothing changes.
    pub fn push(&mut self, symbol: &[&[u8]]) -> Option<SymbolHandle> {
        let length: usize = symbol.iter().map(|piece| piece.len()).sum();
        let capacity = self.bytes.len();
        if length > capacity {
            return None;
        }
        let mut offset = (self.position % capacity as u64) as usize;
        if offset + length > capacity {
            self.position += (capacity - offset) as u64;
            offset = 0;
        }
        let end = self.position + length as u64;
        while self.len() == self.entries.len() || self.oldest_overlaps(end) {
            self.evict();
        }
        let mut at = offset;
        for piece in symbol {
            self.bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let handle = self.next;
        let slot = self.slot(handle);
        self.entries[slot] = Entry { position: self.position, offset, length };
        self.next += 1;
        self.position = end;
        self.length += length;
        Some(SymbolHandle(handle))
    }

    /// Returns the symbol, unless the ring has dropped it.
    #[inline]
    pub fn get(&self, handle: SymbolHandle) -> Option<&[u8]> {
        if handle.0 < self.first || handle.0 >= self.next {
            return None;
        }
        Some(&self.bytes[self.range(handle.0)])
    }

    /// Returns the symbol for changes in place, unless the ring has dropped it.
    pub fn get_mut(&mut self, handle: SymbolHandle) -> Option<&mut [u8]> {
        if handle.0 < self.first || handle.0 >= self.next {
            return None;
        }
        let range = self.range(handle.0);
        Some(&mut self.bytes[range])
    }

    /// Handle of the oldest symbol kept; every handle below it is stale. `None` when empty.
    pub fn oldest(&self) -> Option<SymbolHandle> {
        (self.first < self.next).then_some(SymbolHandle(self.first))
    }

    /// Number of symbols kept.
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// Whether the ring holds no symbol.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Total length of the symbols kept, in bytes.
    pub fn symbol_bytes(&self) -> usize {
        self.length
    }

    /// Number of symbols dropped since construction.
    pub fn evicted(&self) -> u64 {
        self.first
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.entries)
    }

    #[inline]
    fn range(&self, handle: u64) -> Range<usize> {
        let Entry { offset, length, .. } = self.entries[self.slot(handle)];
        offset..offset + length
    }

    fn slot(&self, handle: u64) -> usize {
        (handle % self.entries.len() as u64) as usize
    }

    /// Whether a symbol that ends at `end` would overwrite the oldest one.
    fn oldest_overlaps(&self, end: u64) -> bool {
        !self.is_empty() && self.entries[self.slot(self.first)].position + (self.bytes.len() as u64) < end
    }

    fn evict(&mut self) {
        self.length -= self.entries[self.slot(self.first)].length;
        self.first += 1;
    }
}
