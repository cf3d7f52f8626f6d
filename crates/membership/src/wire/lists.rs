//! Lists of groups: the requests for them, and the parts in which they travel.

use foundation::bytes::{Reader, Writer};
use ricochet_core::{GroupId, NodeId};
use xxhash_rust::xxh3::Xxh3;

use super::header::{DATAGRAM_MAX, GROUPS_MAX, HEADER, Kind, groups_of};
use crate::counters::Malformed;

/// Number of groups in every chunk of a list except the last.
pub const CHUNK_GROUPS: usize = 160;
/// Length of a chunk before its groups: first byte, kind, id (4), version (4),
/// check (4), total (4), number (2).
pub const CHUNK_HEADER: usize = HEADER + 18;
/// Maximum number of chunks that one request asks for.
pub const REQUEST_CHUNKS: usize = 8;
/// Maximum number of requests in one datagram.
pub const LIST_REQUESTS_MAX: usize = 64;
const REQUEST: usize = 15;

const _: () = assert!(CHUNK_HEADER + CHUNK_GROUPS * 8 <= DATAGRAM_MAX);
const _: () = assert!(HEADER + 1 + LIST_REQUESTS_MAX * REQUEST <= DATAGRAM_MAX);

/// Returns the check of a list: the low 32 bits of XXH3-64 of its groups in ascending order, 8 bytes each.
pub fn list_check(groups: &[GroupId]) -> u32 {
    let mut hash = Xxh3::new();
    for group in groups {
        hash.update(&group.0.to_be_bytes());
    }
    hash.digest() as u32
}

/// A request for a node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Node whose list is requested.
    pub id: NodeId,
    /// Version that the requester holds, whose successors it would take as steps; 0 for none.
    pub have: u32,
    /// Version whose parts are requested; 0 for the newest.
    pub version: u32,
    /// Number of the first part that `mask` refers to.
    pub first: u16,
    /// Bit i: part `first` + i is requested.
    pub mask: u8,
}

/// Writes 1 to [`LIST_REQUESTS_MAX`] requests to the front of `to` and returns the length in bytes.
///
/// # Panics
/// If the number of requests is out of range, or if `to` is too short.
pub fn write_list_requests(requests: &[ListRequest], to: &mut [u8]) -> usize {
    let count = requests.len();
    assert!(
        (1..=LIST_REQUESTS_MAX).contains(&count),
        "expected 1 to {LIST_REQUESTS_MAX} requests in a datagram, saw {count}"
    );
    let mut writer = Writer::new(to);
    writer.put(&Kind::ListRequests.to_wire());
    writer.put(&[count as u8]);
    for request in requests {
        writer.put(&request.id.0.to_be_bytes());
        writer.put(&request.have.to_be_bytes());
        writer.put(&request.version.to_be_bytes());
        writer.put(&request.first.to_be_bytes());
        writer.put(&[request.mask]);
    }
    writer.written()
}

/// Requests as their receiver reads them; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequestsView<'a>(&'a [[u8; REQUEST]]);

impl<'a> ListRequestsView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let requests = body.list(count, LIST_REQUESTS_MAX)?;
        body.end()?;
        Ok(Self(requests))
    }

    /// Returns the 1 to [`LIST_REQUESTS_MAX`] requests.
    pub fn requests(&self) -> impl Iterator<Item = ListRequest> + use<'a> {
        fn read(mut bytes: Reader<'_>) -> Result<ListRequest, Malformed> {
            Ok(ListRequest {
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
    /// Node whose list it is.
    pub id: NodeId,
    /// Version of the list.
    pub version: u32,
    /// Check of the whole list.
    pub check: u32,
    /// The whole list.
    pub list: &'a [GroupId],
    /// Number of the part, which begins at group `number` · [`CHUNK_GROUPS`].
    pub number: u16,
}

impl Chunk<'_> {
    /// Returns the number of parts of a list of `total` groups; an empty list has one part.
    pub fn count(total: usize) -> usize {
        total.div_ceil(CHUNK_GROUPS).max(1)
    }

    /// Writes the part to the front of `to` and returns its length in bytes.
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
    /// Node whose list it is.
    pub id: NodeId,
    /// Version of the list.
    pub version: u32,
    /// Check of the whole list.
    pub check: u32,
    /// Number of groups in the whole list, at most [`GROUPS_MAX`]. The sender claims it,
    /// so nothing is allocated by it.
    pub total: usize,
    /// Number of the part, below [`Chunk::count`] of the total.
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

    /// Returns the groups of this part: [`CHUNK_GROUPS`], or fewer in the last part.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupId> + Clone + use<'a> {
        groups_of(self.groups)
    }
}
