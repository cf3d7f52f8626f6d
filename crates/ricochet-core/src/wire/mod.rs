//! The datagrams, byte for byte (`docs/wire.md`). All numbers are big-endian.
//!
//! Reading borrows the datagram, copies no payload and allocates nothing; whatever the bytes, it ends in a view or in
//! a counted reason. A driver with a cluster key appends a trailer of its own to each datagram, and checks and cuts it
//! off before anything here sees the rest.

mod data;
mod fragment;
mod heartbeat;
mod nak;
mod repair;

pub use data::{DATA_HEADER, Data, SYMBOL_HEAD};
pub use fragment::{FRAGMENT_HEAD, FRAGMENTS_MAX, Fragment};
pub use heartbeat::{HEARTBEAT_ENTRY, HEARTBEAT_HEADER, HEARTBEAT_MAX, Heartbeat, HeartbeatView, Latest};
pub use nak::{NAK_HEADER, NAK_RANGE, NAK_RANGES_MAX, Nak, NakView, Range};
pub use repair::{NAME, NAMES_MAX, Name, REPAIR_HEADER, Repair, RepairView};

use foundation::bytes::{Reader, Writer};

use crate::counters::Malformed;

/// Version of the wire format, the high half of a datagram's first byte. Ricochet's versions count from 9 and
/// Maelstrom's from 1, so that neither takes the other's datagrams for its own.
pub const VERSION: u8 = 9;

/// What a datagram is; the low half of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A data packet, as its sender multicast it.
    Data = 1,
    /// A data packet sent again, by whoever holds it.
    Retransmission = 2,
    /// A repair.
    Repair = 3,
    /// A request for packets.
    Nak = 4,
    /// A sender's latest sequence numbers.
    Heartbeat = 5,
}

impl Kind {
    /// The first byte of a datagram of this kind.
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
            1 => Ok(Kind::Data),
            2 => Ok(Kind::Retransmission),
            3 => Ok(Kind::Repair),
            4 => Ok(Kind::Nak),
            5 => Ok(Kind::Heartbeat),
            _ => Err(Malformed::Kind),
        }
    }
}

/// Any datagram, borrowed.
///
/// ```
/// use ricochet_core::wire::{Data, Datagram};
/// use ricochet_core::{GroupId, NodeId};
/// let data = Data {
///     sender: NodeId(1), group: GroupId(7), seq: 0, sender_seq: 0, expires: false, fragment: false, payload: b"187.21",
/// };
/// let mut buffer = [0; 64];
/// let length = data.write(&mut buffer);
/// assert_eq!(Datagram::read(&buffer[..length]), Ok(Datagram::Data(data)));
/// assert!(Datagram::read(b"something else").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A data packet.
    Data(Data<'a>),
    /// A data packet sent again.
    Retransmission(Data<'a>),
    /// A repair.
    Repair(RepairView<'a>),
    /// A request for packets.
    Nak(NakView<'a>),
    /// A sender's latest sequence numbers.
    Heartbeat(HeartbeatView<'a>),
}

impl<'a> Datagram<'a> {
    /// Reads a datagram from which any trailer was cut off.
    ///
    /// # Errors
    /// [`Malformed`], by reason.
    pub fn read(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let kind = Kind::read(datagram)?;
        let body = Reader(&datagram[1..]);
        match kind {
            Kind::Data => Data::read(body).map(Self::Data),
            Kind::Retransmission => Data::read(body).map(Self::Retransmission),
            Kind::Repair => RepairView::read(body).map(Self::Repair),
            Kind::Nak => NakView::read(body).map(Self::Nak),
            Kind::Heartbeat => HeartbeatView::read(body).map(Self::Heartbeat),
        }
    }
}

/// Longest payload of a data packet, so that the packet itself and a repair of `names` packets as long both fit into
/// `datagram_max` bytes of UDP payload, a trailer of `trailer` bytes included (Thesis §4.3). `None` if not even an
/// empty one fits.
pub fn payload_max(datagram_max: usize, names: usize, trailer: usize) -> Option<usize> {
    let repair = REPAIR_HEADER + names * NAME + SYMBOL_HEAD;
    datagram_max.checked_sub(repair.max(DATA_HEADER) + trailer)
}

#[cfg(test)]
mod tests;
