//! Fragments: parts of a message that is longer than a packet. A short head precedes the bytes in the
//! packet's payload.

use foundation::bytes::{Reader, Writer};

use crate::counters::{Malformed, Unfit};

/// Length of the head: length of the message (4), index (2), bytes in all parts but the last (2).
pub const FRAGMENT_HEAD: usize = 8;

/// Maximum number of fragments of a message.
pub const FRAGMENTS_MAX: u32 = 1 << 16;

/// A part of a message. A message is identified by the sequence number of its first part, which is the
/// packet's sequence number minus the part's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Length of the whole message in bytes, at least 1.
    pub total: u32,
    /// Index of this part, from 0.
    pub index: u16,
    /// Bytes of the message in each part but the last, at least 1.
    pub size: u16,
    /// Bytes of this part.
    pub bytes: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Returns the part at `index` of a message cut into parts of `size` bytes. `None` if there is no such
    /// part, or if the message has more than [`FRAGMENTS_MAX`] parts.
    pub fn of(message: &'a [u8], index: u16, size: u16) -> Option<Self> {
        let total = u32::try_from(message.len()).ok()?;
        let bytes = message.chunks(usize::from(size.max(1))).nth(usize::from(index))?;
        let fragment = Self { total, index, size: size.max(1), bytes };
        (fragment.count() <= FRAGMENTS_MAX).then_some(fragment)
    }

    /// Returns the number of parts of the message.
    pub fn count(&self) -> u32 {
        self.total.div_ceil(u32::from(self.size))
    }

    /// Returns the offset of its bytes in the message.
    pub fn offset(&self) -> usize {
        usize::from(self.index) * usize::from(self.size)
    }

    /// Writes the payload of its packet to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is too short.
    pub fn write(&self, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        writer.put(&self.total.to_be_bytes());
        writer.put(&self.index.to_be_bytes());
        writer.put(&self.size.to_be_bytes());
        writer.put(self.bytes);
        writer.written()
    }

    /// Reads the payload of a packet that is marked as a fragment.
    ///
    /// # Errors
    /// [`Unfit::TooShort`], or [`Unfit::Length`] if length, index and number of bytes do not agree.
    pub fn read(payload: &'a [u8]) -> Result<Self, Unfit> {
        let mut reader = Reader(payload);
        let mut head = || Ok((reader.u32()?, reader.u16()?, reader.u16()?));
        let (total, index, size) = head().map_err(|_: Malformed| Unfit::TooShort)?;
        if total == 0 || size == 0 {
            return Err(Unfit::Length);
        }
        let fragment = Self { total, index, size, bytes: reader.0 };
        let count = fragment.count();
        if count > FRAGMENTS_MAX || u32::from(index) >= count {
            return Err(Unfit::Length);
        }
        let expected = (total as usize - fragment.offset()).min(usize::from(size));
        if fragment.bytes.len() == expected { Ok(fragment) } else { Err(Unfit::Length) }
    }
}
