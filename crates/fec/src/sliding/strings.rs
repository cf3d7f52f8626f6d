//! Byte strings of one capacity in one allocation.

/// Alignment of strings in bytes, at which vector instructions read them fastest.
const ALIGNMENT: usize = 64;

/// A fixed number of byte strings of one capacity.
#[derive(Debug)]
pub(super) struct Strings {
    bytes: Box<[u8]>,
    /// Offset at which the memory is aligned.
    start: usize,
    /// Capacity of one string, rounded up to the alignment.
    stride: usize,
    lengths: Box<[usize]>,
}

impl Strings {
    /// Creates `count` empty strings.
    pub(super) fn new(count: usize, capacity: usize) -> Self {
        let stride = capacity.next_multiple_of(ALIGNMENT);
        let bytes = vec![0; count * stride + ALIGNMENT].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, stride, lengths: vec![0; count].into_boxed_slice() }
    }

    /// Bytes of memory that such strings hold.
    pub(super) fn memory_bytes(count: usize, capacity: usize) -> usize {
        count * (capacity.next_multiple_of(ALIGNMENT) + size_of::<usize>()) + ALIGNMENT
    }

    /// Returns `count` strings, `step` apart from number `first` on, with numbers taken modulo the number of
    /// strings, which must not be below `step`.
    pub(super) fn round(&self, first: u64, step: usize, count: usize) -> impl Iterator<Item = &[u8]> + Clone {
        let strings = self.lengths.len();
        let first = (first % strings as u64) as usize;
        let next = move |&at: &usize| Some(if at + step < strings { at + step } else { at + step - strings });
        std::iter::successors(Some(first), next).take(count).map(|at| self.get(at))
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.start + at * self.stride..][..self.lengths[at]]
    }

    /// Replaces one string by consecutive pieces.
    pub(super) fn set(&mut self, at: usize, pieces: &[&[u8]]) {
        let string = &mut self.bytes[self.start + at * self.stride..][..self.stride];
        let mut length = 0;
        for piece in pieces {
            string[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        self.lengths[at] = length;
    }

    /// Empties one string. Its room is all zeros afterwards if the room behind it was.
    pub(super) fn clear(&mut self, at: usize) {
        self.bytes[self.start + at * self.stride..][..self.lengths[at]].fill(0);
        self.lengths[at] = 0;
    }

    /// Extends one string to at least `length`, with the bytes that its room holds there.
    pub(super) fn extend(&mut self, at: usize, length: usize) {
        debug_assert!(length <= self.stride);
        self.lengths[at] = self.lengths[at].max(length);
    }

    /// Returns the whole room of each string.
    pub(super) fn rooms_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let count = self.lengths.len();
        self.bytes[self.start..][..count * self.stride].chunks_exact_mut(self.stride)
    }
}
