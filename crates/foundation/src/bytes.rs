//! Readers and writers of consecutive fields of a datagram. All numbers are big-endian.

use thiserror::Error;

/// Reason why fields could not be read. Each protocol converts it into a counted reason of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The bytes end before the field does.
    #[error("too short")]
    TooShort,
    /// A count is zero or too large.
    #[error("count out of range")]
    Count,
    /// A reserved bit is set.
    #[error("reserved bit set")]
    Reserved,
    /// Bytes follow the last field.
    #[error("too long")]
    TooLong,
}

/// Takes fields off the front. It copies only numbers, does not allocate, and never panics.
///
/// ```
/// use foundation::bytes::{ReadError, Reader};
/// let mut reader = Reader(&[1, 0, 2, 9]);
/// assert_eq!((reader.u8(), reader.u16(), reader.rest()), (Ok(1), Ok(2), &[9][..]));
/// assert_eq!(reader.u32(), Err(ReadError::TooShort));
/// assert_eq!(reader.end(), Err(ReadError::TooLong));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes the next `len` bytes.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ReadError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes the next N bytes.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ReadError::TooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Takes a byte.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u8(&mut self) -> Result<u8, ReadError> {
        self.array().map(|[byte]| byte)
    }

    /// Takes a number of 16 bits.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u16(&mut self) -> Result<u16, ReadError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a number of 32 bits.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a number of 64 bits.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u64(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes `count` entries of N bytes each, without copying them.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn entries<const N: usize>(&mut self, count: usize) -> Result<&'a [[u8; N]], ReadError> {
        let (entries, _) = self.take(count.saturating_mul(N))?.as_chunks();
        Ok(entries)
    }

    /// Takes a list of `count` entries, 1 to `max`, of N bytes each.
    ///
    /// # Errors
    /// [`ReadError::Count`], [`ReadError::TooShort`].
    pub fn list<const N: usize>(&mut self, count: u8, max: usize) -> Result<&'a [[u8; N]], ReadError> {
        let count = usize::from(count);
        if !(1..=max).contains(&count) {
            return Err(ReadError::Count);
        }
        self.entries(count)
    }

    /// Takes a byte of flags in which only the bits of `known` may be set.
    ///
    /// # Errors
    /// [`ReadError::Reserved`], [`ReadError::TooShort`].
    pub fn flags(&mut self, known: u8) -> Result<u8, ReadError> {
        let flags = self.u8()?;
        if flags & !known == 0 { Ok(flags) } else { Err(ReadError::Reserved) }
    }

    /// Returns all remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Checks that no bytes remain.
    ///
    /// # Errors
    /// [`ReadError::TooLong`].
    pub fn end(self) -> Result<(), ReadError> {
        if self.0.is_empty() { Ok(()) } else { Err(ReadError::TooLong) }
    }
}

/// Writes consecutive fields into a buffer of sufficient length.
#[derive(Debug)]
pub struct Writer<'a> {
    to: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Creates a writer at the front of `to`.
    pub fn new(to: &'a mut [u8]) -> Self {
        Self { to, at: 0 }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If the buffer is too short.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.to[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Number of bytes written.
    pub fn written(&self) -> usize {
        self.at
    }
}
