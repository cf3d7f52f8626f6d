//! Fields of a datagram, read and written one behind the other. All numbers are big-endian.

use thiserror::Error;

/// Why fields could not be read. Each protocol makes a counted reason of its own of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The bytes end before the field does.
    #[error("too short")]
    TooShort,
    /// It counts none or too many of what follows.
    #[error("count out of range")]
    Count,
    /// A bit is set that has no meaning.
    #[error("reserved bit set")]
    Reserved,
    /// Bytes follow that nothing accounts for.
    #[error("too long")]
    TooLong,
}

/// Takes fields off the front; copies nothing but numbers, allocates nothing, and never panics.
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
    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`ReadError::TooShort`], as of all numbers.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ReadError::TooShort)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next N bytes.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ReadError::TooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A byte.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u8(&mut self) -> Result<u8, ReadError> {
        self.array().map(|[byte]| byte)
    }

    /// A number of 16 bits.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u16(&mut self) -> Result<u16, ReadError> {
        self.array().map(u16::from_be_bytes)
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn u64(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_be_bytes)
    }

    /// `count` entries of N bytes each, still in their place.
    ///
    /// # Errors
    /// [`ReadError::TooShort`].
    pub fn entries<const N: usize>(&mut self, count: usize) -> Result<&'a [[u8; N]], ReadError> {
        let (entries, _) = self.take(count.saturating_mul(N))?.as_chunks();
        Ok(entries)
    }

    /// A list of `count` entries, 1 to `max`, of N bytes each.
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

    /// Flags of which only the bits of `known` have a meaning.
    ///
    /// # Errors
    /// [`ReadError::Reserved`], [`ReadError::TooShort`].
    pub fn flags(&mut self, known: u8) -> Result<u8, ReadError> {
        let flags = self.u8()?;
        if flags & !known == 0 { Ok(flags) } else { Err(ReadError::Reserved) }
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Everything has been read.
    ///
    /// # Errors
    /// [`ReadError::TooLong`].
    pub fn end(self) -> Result<(), ReadError> {
        if self.0.is_empty() { Ok(()) } else { Err(ReadError::TooLong) }
    }
}

/// Puts fields behind each other into a buffer that was sized for them.
#[derive(Debug)]
pub struct Writer<'a> {
    to: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the front of `to`.
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

    /// Bytes written so far.
    pub fn written(&self) -> usize {
        self.at
    }
}
