//! The datagrams, byte for byte (`docs/wire.md`). All numbers are big-endian.
//!
//! Reading borrows the datagram and allocates nothing. Any bytes yield either a view or a counted reason.

mod addresses;
mod header;
mod identity;
mod lists;
mod presence;
mod steps;
mod summary;
pub mod swim;

use foundation::bytes::Reader;

use crate::counters::Malformed;

pub use addresses::{
    ADDRESS_REPLY_HEADER, ADDRESSES_MAX, AddressReplyView, AddressRequestView, write_address_reply,
    write_address_request,
};
pub use header::{DATAGRAM_MAX, FIRST_BYTE, GROUPS_MAX, HEADER, Kind};
pub use identity::{IdentityAnswer, IdentityQuestion};
pub use lists::{
    CHUNK_GROUPS, CHUNK_HEADER, Chunk, ChunkView, LIST_REQUESTS_MAX, ListRequest, ListRequestsView,
    REQUEST_CHUNKS, list_check, write_list_requests,
};
pub use presence::Presence;
pub use steps::{STEP_GROUPS_MAX, STEP_HEADER, STEPS_HEADER, STEPS_MAX, StepParts, StepView, StepsView};
pub use summary::{Held, SUMMARY_ENTRIES_MAX, SummaryView, write_summary};

/// Any datagram, borrowed.
///
/// ```
/// use membership::wire::{Datagram, Presence};
/// use ricochet_core::NodeId;
/// let presence =
///     Presence { id: NodeId(7), life: 1, number: 2, version: 3, check: 4, leaving: false, answer: true };
/// assert_eq!(Datagram::read(&presence.to_wire()), Ok(Datagram::Presence(presence)));
/// assert!(Datagram::read(b"something else").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A message of the failure detector.
    Swim(swim::SwimView<'a>),
    /// The versions of lists that the sender holds.
    Summary(SummaryView<'a>),
    /// Changes of lists.
    Steps(StepsView<'a>),
    /// Requests for lists.
    ListRequests(ListRequestsView<'a>),
    /// A part of a list.
    Chunk(ChunkView<'a>),
    /// A sign of life.
    Presence(Presence),
    /// A request for the addresses of nodes.
    AddressRequest(AddressRequestView<'a>),
    /// The reply to it.
    AddressReply(AddressReplyView<'a>),
    /// A question which node lives at the receiver's address.
    IdentityQuestion(IdentityQuestion),
    /// The answer to it.
    IdentityAnswer(IdentityAnswer),
}

impl<'a> Datagram<'a> {
    /// Reads a datagram whose trailer, if any, was cut off.
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
            Kind::Summary => SummaryView::read(reader).map(Self::Summary),
            Kind::Steps => StepsView::read(reader).map(Self::Steps),
            Kind::ListRequests => ListRequestsView::read(reader).map(Self::ListRequests),
            Kind::Chunk => ChunkView::read(reader).map(Self::Chunk),
            Kind::Presence => Presence::read(reader).map(Self::Presence),
            Kind::AddressRequest => AddressRequestView::read(reader).map(Self::AddressRequest),
            Kind::AddressReply => AddressReplyView::read(reader).map(Self::AddressReply),
            Kind::IdentityQuestion => IdentityQuestion::read(reader).map(Self::IdentityQuestion),
            Kind::IdentityAnswer => IdentityAnswer::read(reader).map(Self::IdentityAnswer),
        }
    }
}

#[cfg(test)]
mod tests;
