//! The datagrams, byte for byte (`docs/wire.md`). All numbers are big-endian.
//!
//! Reading borrows the datagram and allocates nothing; whatever the bytes, it ends in a view or in a counted reason.

mod digest;
mod hello;
mod list;
mod steps;
pub mod swim;
mod who;

pub use digest::{DIGEST_ENTRIES_MAX, DigestView, Known, write_digest};
pub use hello::Hello;
pub use list::{
    CHUNK_GROUPS, CHUNK_HEADER, Chunk, ChunkView, WANT_CHUNKS, WANTS_MAX, Want, WantsView, list_check,
    write_wants,
};
pub use steps::{STEP_GROUPS_MAX, STEP_HEADER, STEPS_HEADER, STEPS_MAX, StepParts, StepView, StepsView};

pub use who::{WHERE_HEADER, WHO_MAX, WhereView, WhoView, write_where, write_who};

use foundation::bytes::{Reader, Writer};
use ricochet_core::GroupId;

use crate::counters::Malformed;

/// First byte of all datagrams of the membership: version 9 in the high half, as Ricochet's other datagrams.
pub const FIRST_BYTE: u8 = 0x96;
/// Longest datagram in bytes, without any trailer: it fits an Ethernet frame with a trailer and a tunnel around it.
pub const DATAGRAM_MAX: usize = 1_400;
/// Length of what all datagrams begin with: first byte and kind.
pub const HEADER: usize = 2;
/// Most groups of one member.
pub const GROUPS_MAX: usize = ricochet_core::groups::GROUPS_MAX;

/// What a datagram is; its second byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message of the failure detector.
    Swim = 1,
    /// Which version of whose list the sender holds.
    Digest = 2,
    /// What has changed in lists.
    Steps = 3,
    /// A question for lists.
    Wants = 4,
    /// A part of a list.
    Chunk = 5,
    /// A sign of life of a node that others know from a file.
    Hello = 6,
    /// A question for the addresses of nodes.
    Who = 7,
    /// The answer to it.
    Where = 8,
}

impl Kind {
    /// The two bytes that a datagram of this kind begins with.
    pub fn to_wire(self) -> [u8; HEADER] {
        [FIRST_BYTE, self as u8]
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.u8()? != FIRST_BYTE {
            return Err(Malformed::Protocol);
        }
        match reader.u8()? {
            1 => Ok(Self::Swim),
            2 => Ok(Self::Digest),
            3 => Ok(Self::Steps),
            4 => Ok(Self::Wants),
            5 => Ok(Self::Chunk),
            6 => Ok(Self::Hello),
            7 => Ok(Self::Who),
            8 => Ok(Self::Where),
            _ => Err(Malformed::Kind),
        }
    }
}

/// Any datagram, borrowed.
///
/// ```
/// use membership::wire::{Datagram, Hello};
/// use ricochet_core::NodeId;
/// let hello = Hello { id: NodeId(7), life: 1, number: 2, version: 3, check: 4, leaving: false, answer: true };
/// assert_eq!(Datagram::read(&hello.to_wire()), Ok(Datagram::Hello(hello)));
/// assert!(Datagram::read(b"something else").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A message of the failure detector.
    Swim(swim::SwimView<'a>),
    /// Which version of whose list the sender holds.
    Digest(DigestView<'a>),
    /// What has changed in lists.
    Steps(StepsView<'a>),
    /// A question for lists.
    Wants(WantsView<'a>),
    /// A part of a list.
    Chunk(ChunkView<'a>),
    /// A sign of life.
    Hello(Hello),
    /// A question for the addresses of nodes.
    Who(WhoView<'a>),
    /// The answer to it.
    Where(WhereView<'a>),
}

impl<'a> Datagram<'a> {
    /// Reads a datagram from which any trailer was cut off.
    ///
    /// # Errors
    /// [`Malformed`], by reason.
    pub fn read(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(datagram);
        let kind = Kind::read(&mut reader)?;
        if datagram.len() > DATAGRAM_MAX {
            return Err(Malformed::TooLong);
        }
        match kind {
            Kind::Swim => swim::SwimView::read(reader).map(Self::Swim),
            Kind::Digest => DigestView::read(reader).map(Self::Digest),
            Kind::Steps => StepsView::read(reader).map(Self::Steps),
            Kind::Wants => WantsView::read(reader).map(Self::Wants),
            Kind::Chunk => ChunkView::read(reader).map(Self::Chunk),
            Kind::Hello => Hello::read(reader).map(Self::Hello),
            Kind::Who => WhoView::read(reader).map(Self::Who),
            Kind::Where => WhereView::read(reader).map(Self::Where),
        }
    }
}

fn groups_of(entries: &[[u8; 8]]) -> impl ExactSizeIterator<Item = GroupId> + Clone + '_ {
    entries.iter().map(|bytes| GroupId(u64::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests;
