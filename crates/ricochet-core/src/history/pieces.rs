//! A growing sequence of bytes of which the oldest are forgotten, in pieces that are used again.

use std::collections::VecDeque;

/// Bytes of a piece.
pub(crate) const PIECE: usize = 16_384;
/// Maximum number of pieces that are allocated at once, so that packets rarely wait for an allocation.
const BATCH_MAX: usize = 64;

/// Pieces that no log uses, and the number of all.
#[derive(Debug)]
pub(crate) struct Pool {
    spare: Vec<Box<[u8]>>,
    /// Number of pieces, spare ones included.
    allocated: usize,
    max: usize,
}

impl Pool {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { spare: Vec::new(), allocated: 0, max: bytes / PIECE }
    }

    fn take(&mut self) -> Option<Box<[u8]>> {
        if let Some(piece) = self.spare.pop() {
            return Some(piece);
        }
        let batch = (self.max / 16).clamp(1, BATCH_MAX).min(self.max - self.allocated);
        self.allocated += batch;
        self.spare.extend((0..batch).map(|_| vec![0; PIECE].into_boxed_slice()));
        self.spare.pop()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.allocated * PIECE
    }
}

/// The bytes from `start` to `end`; offsets count from the first byte ever written.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Box<[u8]>>,
    /// Offset of the first piece.
    base: u64,
    end: u64,
}

impl Pieces {
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes that the pieces take.
    pub(crate) fn held(&self) -> usize {
        self.pieces.len() * PIECE
    }

    /// Reserves room for the places of some pieces.
    pub(crate) fn reserve_places(&mut self) {
        self.pieces.reserve(BATCH_MAX);
    }

    /// Reserves room for `length` more bytes. Returns whether the pool has enough.
    pub(crate) fn reserve(&mut self, length: usize, pool: &mut Pool) -> bool {
        while self.base + self.held() as u64 - self.end < length as u64 {
            let Some(piece) = pool.take() else { return false };
            self.pieces.push_back(piece);
        }
        true
    }

    /// Appends bytes for which there is room.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (self.end - self.base) as usize;
            let Some(piece) = self.pieces.get_mut(at / PIECE) else { return };
            let room = &mut piece[at % PIECE..];
            let length = room.len().min(bytes.len());
            room[..length].copy_from_slice(&bytes[..length]);
            self.end += length as u64;
            bytes = &bytes[length..];
        }
    }

    /// Copies the bytes from an offset on to `to`; returns their number.
    pub(crate) fn read(&self, mut offset: u64, to: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < to.len() && offset >= self.base && offset < self.end {
            let at = (offset - self.base) as usize;
            let left = (self.end - offset) as usize;
            let piece = &self.pieces[at / PIECE][at % PIECE..];
            let length = piece.len().min(left).min(to.len() - copied);
            to[copied..copied + length].copy_from_slice(&piece[..length]);
            copied += length;
            offset += length as u64;
        }
        copied
    }

    /// Forgets the bytes before an offset, as far as they fill pieces.
    pub(crate) fn forget(&mut self, before: u64, pool: &mut Pool) {
        while self.base + PIECE as u64 <= before
            && let Some(piece) = self.pieces.pop_front()
        {
            self.base += PIECE as u64;
            pool.spare.push(piece);
        }
    }

    /// Gives all pieces back.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        pool.spare.extend(self.pieces.drain(..));
        self.base = self.end;
    }
}
