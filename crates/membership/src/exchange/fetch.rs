//! Reassembly of a list from its parts.

use ricochet_core::GroupId;

use super::list::is_sound;
use crate::wire::{CHUNK_GROUPS, Chunk, ChunkView, REQUEST_CHUNKS};

/// The parts of one version of one list.
///
/// Memory grows with the parts that were requested and received, whatever length the list claims.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) version: u32,
    check: u32,
    total: usize,
    /// Complete up to part `first`; later parts are present where `received` has their bit.
    groups: Vec<GroupId>,
    first: usize,
    /// Bit i: part `first` + i is present.
    received: u8,
}

/// Effect of a part on its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The part was present already, or was not requested.
    Nothing,
    /// More parts are on their way.
    Partial,
    /// All requested parts are present, and others are still to request.
    RequestMore,
    /// The list is complete.
    Complete,
}

impl Fetch {
    /// Begins the list that `chunk` belongs to.
    pub(super) fn new(chunk: &ChunkView<'_>) -> Self {
        Self {
            version: chunk.version,
            check: chunk.check,
            total: chunk.total,
            groups: Vec::new(),
            first: 0,
            received: 0,
        }
    }

    /// Returns whether the part belongs to this version of the list.
    pub(super) fn fits(&self, chunk: &ChunkView<'_>) -> bool {
        (self.version, self.check, self.total) == (chunk.version, chunk.check, chunk.total)
    }

    /// Returns the parts to request: the number of the first, and a bit for each part from there on.
    pub(super) fn missing(&self) -> (u16, u8) {
        (self.first as u16, !self.received & self.requested())
    }

    /// Returns a bit for each of the next [`REQUEST_CHUNKS`] parts from `first` on that exist.
    fn requested(&self) -> u8 {
        let parts = (Chunk::count(self.total) - self.first).min(REQUEST_CHUNKS);
        ((1u16 << parts) - 1) as u8
    }

    /// Takes a part that [fits](Self::fits).
    pub(super) fn put(&mut self, chunk: &ChunkView<'_>) -> Progress {
        let Some(place) = usize::from(chunk.number).checked_sub(self.first) else { return Progress::Nothing };
        if place >= REQUEST_CHUNKS || self.received & (1 << place) != 0 {
            return Progress::Nothing;
        }
        let start = usize::from(chunk.number) * CHUNK_GROUPS;
        let end = start + chunk.groups().len();
        if self.groups.len() < end {
            self.groups.resize(end, GroupId(0));
        }
        for (slot, group) in self.groups[start..end].iter_mut().zip(chunk.groups()) {
            *slot = group;
        }
        self.received |= 1 << place;
        if self.received != self.requested() {
            return Progress::Partial;
        }
        self.first += self.received.count_ones() as usize;
        self.received = 0;
        if self.first == Chunk::count(self.total) { Progress::Complete } else { Progress::RequestMore }
    }

    /// Returns version, check and groups of the complete list, if it matches its check.
    pub(super) fn finish(self) -> Option<(u32, u32, Vec<GroupId>)> {
        is_sound(&self.groups, self.check).then_some((self.version, self.check, self.groups))
    }

    /// Returns the bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<GroupId>()
    }
}
