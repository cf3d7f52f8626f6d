//! The first byte of every datagram: protocol version and kind.

use crate::counters::Malformed;

/// Version of the wire format, the high half of a datagram's first byte.
///
/// Ricochet's versions count from 9 and Maelstrom's from 1, so that neither takes the other's datagrams for
/// its own.
pub const VERSION: u8 = 11;

/// Kind of a datagram, the low half of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A data packet, as its sender multicast it.
    Data = 1,
    /// A data packet sent again on request, by any node that holds it.
    Retransmission = 2,
    /// A repair.
    Repair = 3,
    /// A request for packets.
    Nak = 4,
    /// A sender's latest sequence numbers.
    Heartbeat = 5,
    /// A question to a sender: which of its packets to a group is the newest?
    Question = 7,
    /// The answer to a question.
    Answer = 8,
    /// A receiver's report about its room.
    Room = 9,
    /// A sender's request for such reports.
    Probe = 10,
    /// The news that requested packets are not held.
    Denial = 11,
    /// A request for the history of a group.
    HistoryRequest = 12,
    /// A part of the history of a group.
    History = 13,
}

impl Kind {
    /// Returns the first byte of a datagram of this kind.
    pub fn to_wire(self) -> u8 {
        VERSION << 4 | self as u8
    }

    /// Reads the first byte of a datagram.
    ///
    /// # Errors
    /// [`Malformed::TooShort`], [`Malformed::Version`], [`Malformed::Kind`].
    pub fn read(datagram: &[u8]) -> Result<Self, Malformed> {
        let &first = datagram.first().ok_or(Malformed::TooShort)?;
        if first >> 4 != VERSION {
            return Err(Malformed::Version);
        }
        match first & 0xf {
            1 => Ok(Self::Data),
            2 => Ok(Self::Retransmission),
            3 => Ok(Self::Repair),
            4 => Ok(Self::Nak),
            5 => Ok(Self::Heartbeat),
            7 => Ok(Self::Question),
            8 => Ok(Self::Answer),
            9 => Ok(Self::Room),
            10 => Ok(Self::Probe),
            11 => Ok(Self::Denial),
            12 => Ok(Self::HistoryRequest),
            13 => Ok(Self::History),
            _ => Err(Malformed::Kind),
        }
    }
}
