//! Credit in advance: bytes that the end that dialed may send on new streams before the other end has heard
//! of them.
//!
//! Without it, a stream begins with [`INITIAL`](super::INITIAL) bytes, and gets more a round trip later. The
//! end that was dialed takes the advance out of its buffer before any stream needs it, so that the sum of
//! what may arrive stays bounded however many streams are opened at once. It gives none to an end that wants
//! none: clients that are answered late send nothing before their streams are open.

use super::frame::Fault;
use super::pool::Pool;

/// Most bytes that a new stream gets in advance.
pub const ADVANCE_MAX: u32 = 1 << 20;
/// Bytes that the end that dialed wants for a carrier: the first new stream gets [`ADVANCE_MAX`] of them.
pub(super) const WANTED: u32 = ADVANCE_MAX / 3 * 4;

/// The advance of a carrier, as the end keeps it that dialed.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: u64,
}

impl Held {
    pub(super) fn on_given(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes.into());
    }

    /// Takes the part of a new stream: three quarters, so that those that follow within a round trip get less
    /// each, and none gets nothing.
    pub(super) fn take(&mut self) -> u32 {
        let part = (self.bytes / 4 * 3).min(ADVANCE_MAX.into());
        self.bytes -= part;
        part as u32 // at most ADVANCE_MAX
    }
}

/// The advance of a carrier, as the end keeps it that was dialed. It must be closed.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Bytes that the other end would like to have.
    wanted: u64,
    /// Bytes that it has, and no stream yet.
    bytes: u64,
}

impl Given {
    pub(super) fn on_wanted(&mut self, bytes: u32) {
        self.wanted = bytes.into();
    }

    /// Returns the bytes that the other end gets in addition, as far as the pool has room.
    pub(super) fn give(&mut self, pool: &mut Pool) -> u32 {
        let wanted = self.wanted.min(pool.advance_share()).saturating_sub(self.bytes);
        let bytes = pool.advance(wanted);
        self.bytes += bytes;
        bytes as u32 // at most `wanted`, which was a u32
    }

    /// A new stream has `bytes` of it. They are free, and the stream must take them from the pool.
    pub(super) fn spend(&mut self, bytes: u32, pool: &mut Pool) -> Result<(), Fault> {
        let bytes = u64::from(bytes);
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Fault::Credit)?;
        pool.take_back(bytes);
        Ok(())
    }

    /// Gives everything back to the pool.
    pub(super) fn close(self, pool: &mut Pool) {
        pool.take_back(self.bytes);
    }
}
