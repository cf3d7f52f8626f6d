//! A bounded store of the newest symbols.

use std::ops::Range;

/// Points at one symbol of a [`SymbolRing`]; goes stale, for ever, when the ring gives the symbol up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolHandle(u64);

/// Keeps the newest symbols within a capacity in symbols and in bytes, the oldest leaving first.
///
/// All memory is taken at construction. A symbol lies in one piece, so up to one symbol's length is idle at the end
/// of the byte ring each time round.
///
/// ```
/// let mut ring = fec::SymbolRing::new(2, 64);
/// let a = ring.push(&[b"length", b"packet"]).unwrap();
/// let b = ring.push(&[b"second"]).unwrap();
/// assert_eq!(ring.get(a), Some(&b"lengthpacket"[..]));
/// ring.push(&[b"third"]).unwrap();
/// assert_eq!(ring.get(a), None, "two symbols fit, the oldest left");
/// assert_eq!(ring.get(b), Some(&b"second"[..]));
/// ```
#[derive(Debug)]
pub struct SymbolRing {
    bytes: Box<[u8]>,
    entries: Box<[Entry]>,
    /// Handle of the oldest symbol kept; `next` when empty.
    first: u64,
    /// Handle of the next symbol pushed.
    next: u64,
    /// Where the next symbol goes: a position that only grows, taken modulo the capacity.
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
    /// A ring for `symbols` symbols that together take at most `bytes` bytes.
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

    /// Keeps a symbol, given as pieces that follow each other, and gives up as many of the oldest as it needs room.
    ///
    /// `None` if the symbol is longer than the whole ring; then nothing changes.
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

    /// The symbol, unless the ring has given it up.
    #[inline]
    pub fn get(&self, handle: SymbolHandle) -> Option<&[u8]> {
        if handle.0 < self.first || handle.0 >= self.next {
            return None;
        }
        Some(&self.bytes[self.range(handle.0)])
    }

    /// The symbol, to be changed in place, unless the ring has given it up.
    pub fn get_mut(&mut self, handle: SymbolHandle) -> Option<&mut [u8]> {
        if handle.0 < self.first || handle.0 >= self.next {
            return None;
        }
        let range = self.range(handle.0);
        Some(&mut self.bytes[range])
    }

    /// The oldest symbol kept: every handle below it is stale. `None` when empty.
    pub fn oldest(&self) -> Option<SymbolHandle> {
        (self.first < self.next).then_some(SymbolHandle(self.first))
    }

    /// Symbols kept.
    pub fn len(&self) -> usize {
        (self.next - self.first) as usize
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Bytes of the symbols kept.
    pub fn symbol_bytes(&self) -> usize {
        self.length
    }

    /// Symbols given up so far.
    pub fn evicted(&self) -> u64 {
        self.first
    }

    /// Memory held, from construction on.
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

    /// Whether the oldest symbol lies where a symbol that ends at `end` must go.
    fn oldest_overlaps(&self, end: u64) -> bool {
        !self.is_empty() && self.entries[self.slot(self.first)].position + (self.bytes.len() as u64) < end
    }

    fn evict(&mut self) {
        self.length -= self.entries[self.slot(self.first)].length;
        self.first += 1;
    }
}
