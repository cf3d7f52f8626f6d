//! Lists of groups: the question for them, and the parts in which they travel.

use ricochet_core::{GroupId, NodeId};
use xxhash_rust::xxh3::Xxh3;

use super::{GROUPS_MAX, HEADER, Kind, Reader, Writer, groups_of};
use crate::counters::Malformed;

/// Groups in every chunk of a list but its last.
pub const CHUNK_GROUPS: usize = 160;
/// Length of a chunk before its groups: first byte, kind, id (4), version (4), check (4), total (4), number (2).
pub const CHUNK_HEADER: usize = HEADER + 18;
/// Chunks that one question asks for at most.
pub const WANT_CHUNKS: usize = 8;
/// Most questions in one datagram.
pub const WANTS_MAX: usize = 64;
const WANT: usize = 15;

const _: () = assert!(CHUNK_HEADER + CHUNK_GROUPS * 8 <= super::DATAGRAM_MAX);
const _: () = assert!(HEADER + 1 + WANTS_MAX * WANT <= super::DATAGRAM_MAX);

/// What tells one list from another: the low 32 bits of XXH3-64 of its groups, in order, 8 bytes each.
pub fn list_check(groups: &[GroupId]) -> u32 {
    let mut hash = Xxh3::new();
    for group in groups {
        hash.update(&group.0.to_be_bytes());
    }
    hash.digest() as u32
}

/// A question for a node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Whose list.
    pub id: NodeId,
    /// Which version of it the asking node holds, and would like to hear the changes since; 0 for none.
    pub have: u32,
    /// Which version the parts are wanted of; 0 for the newest.
    pub version: u32,
    /// Number of the first part in question.
    pub first: u16,
    /// Bit i: part `first` + i is wanted.
    pub mask: u8,
}

/// Writes 1 to [`WANTS_MAX`] questions into the front of `to`; returns how many bytes.
///
/// # Panics
/// If there is none or too many, or if `to` is too short.
pub fn write_wants(wants: &[Want], to: &mut [u8]) -> usize {
    let count = wants.len();
    assert!((1..=WANTS_MAX).contains(&count), "a datagram has 1 to {WANTS_MAX} questions, not {count}");
    let mut writer = Writer::new(to);
    writer.put(&Kind::Wants.to_wire());
    writer.put(&[count as u8]);
    for want in wants {
        writer.put(&want.id.0.to_be_bytes());
        writer.put(&want.have.to_be_bytes());
        writer.put(&want.version.to_be_bytes());
        writer.put(&want.first.to_be_bytes());
        writer.put(&[want.mask]);
    }
    writer.written()
}

/// Questions as their receiver reads them; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantsView<'a>(&'a [[u8; WANT]]);

impl<'a> WantsView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let wants = body.list(count, WANTS_MAX)?;
        body.end()?;
        Ok(Self(wants))
    }

    /// 1 to [`WANTS_MAX`] questions.
    pub fn wants(&self) -> impl Iterator<Item = Want> + use<'a> {
        fn read(mut bytes: Reader<'_>) -> Result<Want, Malformed> {
            Ok(Want {
                id: NodeId(bytes.u32()?),
                have: bytes.u32()?,
                version: bytes.u32()?,
                first: bytes.u16()?,
                mask: bytes.u8()?,
            })
        }
        self.0.iter().filter_map(|bytes| read(Reader(bytes)).ok())
    }
}

/// A part of a list as its sender writes it.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Whose list.
    pub id: NodeId,
    /// Which version of it.
    pub version: u32,
    /// Its check.
    pub check: u32,
    /// The whole list.
    pub list: &'a [GroupId],
    /// Which part: the groups from `number` · [`CHUNK_GROUPS`] on.
    pub number: u16,
}

impl Chunk<'_> {
    /// How many parts a list of `total` groups has; an empty one has one.
    pub fn count(total: usize) -> usize {
        total.div_ceil(CHUNK_GROUPS).max(1)
    }

    /// Writes the part into the front of `to`; returns how many bytes.
    ///
    /// # Panics
    /// If the list has no such part, or if `to` is too short.
    pub fn write(&self, to: &mut [u8]) -> usize {
        let start = usize::from(self.number) * CHUNK_GROUPS;
        let part = &self.list[start..self.list.len().min(start + CHUNK_GROUPS)];
        let mut writer = Writer::new(to);
        writer.put(&Kind::Chunk.to_wire());
        writer.put(&self.id.0.to_be_bytes());
        writer.put(&self.version.to_be_bytes());
        writer.put(&self.check.to_be_bytes());
        writer.put(&(self.list.len() as u32).to_be_bytes());
        writer.put(&self.number.to_be_bytes());
        for group in part {
            writer.put(&group.0.to_be_bytes());
        }
        writer.written()
    }
}

/// A part of a list as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkView<'a> {
    /// Whose list.
    pub id: NodeId,
    /// Which version of it.
    pub version: u32,
    /// Its check.
    pub check: u32,
    /// Groups in the whole list, at most [`GROUPS_MAX`]: a claim, by which nothing is allocated.
    pub total: usize,
    /// Which part, below [`Chunk::count`] of the total.
    pub number: u16,
    groups: &'a [[u8; 8]],
}

impl<'a> ChunkView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let (id, version, check) = (NodeId(body.u32()?), body.u32()?, body.u32()?);
        let (total, number) = (body.u32()? as usize, body.u16()?);
        if total > GROUPS_MAX || usize::from(number) >= Chunk::count(total) {
            return Err(Malformed::Count);
        }
        let here = (total - usize::from(number) * CHUNK_GROUPS).min(CHUNK_GROUPS);
        let groups = body.entries(here)?;
        body.end()?;
        Ok(Self { id, version, check, total, number, groups })
    }

    /// The groups of this part: [`CHUNK_GROUPS`], or of the last part what is left.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupId> + Clone + use<'a> {
        groups_of(self.groups)
    }
}
