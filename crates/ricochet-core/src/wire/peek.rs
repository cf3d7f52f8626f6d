//! Kind, sender and groups of a datagram from one read of its first bytes, for a driver that sorts datagrams
//! before it copies or parses them.

use foundation::bytes::Reader;

use super::heartbeat::{HEARTBEAT_ENTRY, HEARTBEAT_HEADER, Latest};
use super::kind::Kind;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};

/// The fields that a driver sorts datagrams by.
///
/// A peek accepts every datagram that [`Datagram::read`](super::Datagram::read) accepts and reads the same
/// fields from it. It also accepts some that the full parser refuses, because it looks at nothing else.
///
/// ```
/// use ricochet_core::wire::{Data, Extras, Kind, Peek};
/// use ricochet_core::{GroupId, NodeId};
/// let data = Data {
///     sender: NodeId(1), group: GroupId(7), seq: 5, sender_seq: 0,
///     expires: false, fragment: false, joint: false, extras: Extras::NONE, payload: b"187.21",
/// };
/// let mut buffer = [0; 64];
/// let length = data.write(&mut buffer);
/// let peek = Peek::read(&buffer[..length])?;
/// assert_eq!((peek.kind, peek.sender, peek.packet), (Kind::Data, NodeId(1), Some((GroupId(7), 5))));
/// # Ok::<(), ricochet_core::counters::Malformed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Kind of the datagram.
    pub kind: Kind,
    /// Node that sent the packet, the repair, the request, the heartbeat, the question, the answer or the
    /// report. A retransmission names the packet's first sender, not the node that retransmits it.
    pub sender: NodeId,
    /// Group and sequence number (low 32 bits) of a data packet, a retransmission or a request for reports;
    /// `None` for other kinds.
    pub packet: Option<(GroupId, u32)>,
}

impl Peek {
    /// Reads the first bytes of a datagram from which any trailer was cut off.
    ///
    /// # Errors
    /// [`Malformed::TooShort`], [`Malformed::Version`], [`Malformed::Kind`].
    pub fn read(datagram: &[u8]) -> Result<Self, Malformed> {
        let kind = Kind::read(datagram)?;
        let mut body = Reader(&datagram[1..]);
        // Flags of a packet, a question or an answer; flags and count of a repair; count of a request, of a
        // heartbeat and of a report; a reserved byte.
        body.take(if kind == Kind::Repair { 2 } else { 1 })?;
        let sender = NodeId(body.u32()?);
        let packet = match kind {
            Kind::Data | Kind::Retransmission | Kind::Probe => Some((GroupId(body.u64()?), body.u32()?)),
            Kind::Heartbeat
            | Kind::Repair
            | Kind::Nak
            | Kind::Question
            | Kind::Answer
            | Kind::Room
            | Kind::Denial
            | Kind::HistoryRequest
            | Kind::History => None,
        };
        Ok(Self { kind, sender, packet })
    }

    /// Returns whether the datagram is for one node, and never multicast.
    pub fn is_unicast(&self) -> bool {
        !matches!(self.kind, Kind::Data | Kind::Heartbeat | Kind::Probe)
    }

    /// Returns the groups that the datagram is about: one for a packet, those of a heartbeat. Repairs and
    /// requests name the groups of each packet in them; these are not looked at. `datagram` is the one that
    /// was read.
    pub fn groups<'a>(&self, datagram: &'a [u8]) -> impl Iterator<Item = GroupId> + use<'a> {
        let entries = match self.kind {
            Kind::Heartbeat => datagram.get(HEARTBEAT_HEADER..).unwrap_or_default(),
            _ => &[],
        };
        let (latest, _) = entries.as_chunks::<HEARTBEAT_ENTRY>();
        let announced = latest.iter().map(|&entry| Latest::from_wire(entry).group);
        self.packet.map(|(group, _)| group).into_iter().chain(announced)
    }
}
