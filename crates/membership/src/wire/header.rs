//! The two bytes in front of every datagram, and the bounds that all kinds share.

use foundation::bytes::Reader;
use ricochet_core::GroupId;

use crate::counters::Malformed;

/// First byte of every membership datagram: version 10 in the high half, as in Ricochet's other datagrams.
pub const FIRST_BYTE: u8 = 0xb6;
/// Maximum length of a datagram in bytes, without trailer: fits an Ethernet frame together
/// with a trailer and a tunnel.
pub const DATAGRAM_MAX: usize = 1_400;
/// Length of the header of every datagram: first byte and kind.
pub const HEADER: usize = 2;
/// Maximum number of groups of one member.
pub const GROUPS_MAX: usize = ricochet_core::groups::GROUPS_MAX;

/// Kind of a datagram; its second byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message of the failure detector.
    Swim = 1,
    /// The versions of lists that the sender holds.
    Summary = 2,
    /// Changes of lists.
    Steps = 3,
    /// Requests for lists.
    ListRequests = 4,
    /// A part of a list.
    Chunk = 5,
    /// A sign of life of a node that others know from a file.
    Presence = 6,
    /// A request for the addresses of nodes.
    AddressRequest = 7,
    /// The reply to it.
    AddressReply = 8,
    /// A question which node lives at the receiver's address.
    IdentityQuestion = 9,
    /// The answer to it.
    IdentityAnswer = 10,
}

impl Kind {
    /// Returns the header of a datagram of this kind.
    pub fn to_wire(self) -> [u8; HEADER] {
        [FIRST_BYTE, self as u8]
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.u8()? != FIRST_BYTE {
            return Err(Malformed::Protocol);
        }
        match reader.u8()? {
            1 => Ok(Self::Swim),
            2 => Ok(Self::Summary),
            3 => Ok(Self::Steps),
            4 => Ok(Self::ListRequests),
            5 => Ok(Self::Chunk),
            6 => Ok(Self::Presence),
            7 => Ok(Self::AddressRequest),
            8 => Ok(Self::AddressReply),
            9 => Ok(Self::IdentityQuestion),
            10 => Ok(Self::IdentityAnswer),
            _ => Err(Malformed::Kind),
        }
    }
}

/// Returns the groups in a row of big-endian ids.
pub(super) fn groups_of(entries: &[[u8; 8]]) -> impl ExactSizeIterator<Item = GroupId> + Clone + '_ {
    entries.iter().map(|bytes| GroupId(u64::from_be_bytes(*bytes)))
}
