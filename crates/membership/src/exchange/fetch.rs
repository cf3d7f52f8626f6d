//! A list on its way here, in parts.

use ricochet_core::GroupId;

use super::list::is_sound;
use crate::wire::{CHUNK_GROUPS, Chunk, ChunkView, WANT_CHUNKS};

/// The parts of one version of one list.
///
/// Room is made for the parts that were asked for and no further, whatever length the list claims.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) version: u32,
    check: u32,
    total: usize,
    /// Whole up to part `first`, behind that where `got` says so.
    groups: Vec<GroupId>,
    first: usize,
    /// Bit i: part `first` + i is here.
    got: u8,
}

/// How a part of a list was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Was here already, or was not asked for.
    None,
    /// More parts are on their way.
    Some,
    /// All that was asked for is here, and there is more to ask for.
    AskOn,
    /// The list is whole.
    Whole,
}

impl Fetch {
    /// A list of which `chunk` tells.
    pub(crate) fn new(chunk: &ChunkView<'_>) -> Self {
        Self {
            version: chunk.version,
            check: chunk.check,
            total: chunk.total,
            groups: Vec::new(),
            first: 0,
            got: 0,
        }
    }

    /// Whether the part is of this list.
    pub(crate) fn fits(&self, chunk: &ChunkView<'_>) -> bool {
        (self.version, self.check, self.total) == (chunk.version, chunk.check, chunk.total)
    }

    /// Which parts to ask for: the first, and a bit for each.
    pub(crate) fn wanted(&self) -> (u16, u8) {
        (self.first as u16, !self.got & self.window())
    }

    /// A bit for each part from `first` on that the list has, [`WANT_CHUNKS`] at most.
    fn window(&self) -> u8 {
        let parts = (Chunk::count(self.total) - self.first).min(WANT_CHUNKS);
        ((1u16 << parts) - 1) as u8
    }

    /// Takes a part that [fits](Self::fits).
    pub(crate) fn put(&mut self, chunk: &ChunkView<'_>) -> Progress {
        let Some(place) = usize::from(chunk.number).checked_sub(self.first) else { return Progress::None };
        if place >= WANT_CHUNKS || self.got & (1 << place) != 0 {
            return Progress::None;
        }
        let start = usize::from(chunk.number) * CHUNK_GROUPS;
        let end = start + chunk.groups().len();
        if self.groups.len() < end {
            self.groups.resize(end, GroupId(0));
        }
        for (slot, group) in self.groups[start..end].iter_mut().zip(chunk.groups()) {
            *slot = group;
        }
        self.got |= 1 << place;
        if self.got != self.window() {
            return Progress::Some;
        }
        self.first += self.got.count_ones() as usize;
        self.got = 0;
        if self.first == Chunk::count(self.total) { Progress::Whole } else { Progress::AskOn }
    }

    /// The whole list, if it is what its check says.
    pub(crate) fn finish(self) -> Option<(u32, u32, Vec<GroupId>)> {
        is_sound(&self.groups, self.check).then_some((self.version, self.check, self.groups))
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<GroupId>()
    }
}
