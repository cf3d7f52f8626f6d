//! A part of a message that is longer than a packet: what stands at the front of its payload.

use super::{Reader, Writer};
use crate::counters::Unfit;

/// Length of what precedes the bytes of the message: its length (4), index (2), bytes in all parts but the last (2).
pub const FRAGMENT_HEAD: usize = 8;

/// Most fragments of a message.
pub const FRAGMENTS_MAX: u32 = 1 << 16;

/// A part of a message. The sequence number of the first part names the message: it is the packet's minus its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Length of the whole message in bytes, at least 1.
    pub total: u32,
    /// Which part, from 0.
    pub index: u16,
    /// How many bytes of the message are in each part but the last, at least 1.
    pub size: u16,
    /// Those of this part.
    pub bytes: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// The part at `index` of a message cut into parts of `size` bytes; `None` if there is none, or the message is too
    /// long for such parts.
    pub fn of(message: &'a [u8], index: u16, size: u16) -> Option<Self> {
        let total = u32::try_from(message.len()).ok()?;
        let bytes = message.chunks(usize::from(size.max(1))).nth(usize::from(index))?;
        let fragment = Self { total, index, size: size.max(1), bytes };
        (fragment.count() <= FRAGMENTS_MAX).then_some(fragment)
    }

    /// How many parts the message has.
    pub fn count(&self) -> u32 {
        self.total.div_ceil(u32::from(self.size))
    }

    /// Where in the message its bytes belong.
    pub fn offset(&self) -> usize {
        usize::from(self.index) * usize::from(self.size)
    }

    /// Writes the payload of its packet into the front of `to`; returns how many bytes.
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
    /// [`Unfit::TooShort`], [`Unfit::Length`]: its bytes are not as many as belong in its place.
    pub fn read(payload: &'a [u8]) -> Result<Self, Unfit> {
        let mut reader = Reader(payload);
        let mut head = || Ok((reader.u32()?, reader.u16()?, reader.u16()?));
        let (total, index, size) = head().map_err(|_: crate::counters::Malformed| Unfit::TooShort)?;
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
