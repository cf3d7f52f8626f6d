//! A datagram of any kind.

use foundation::bytes::Reader;

use super::data::{DATA_HEADER, Data, SYMBOL_HEAD};
use super::heartbeat::HeartbeatView;
use super::history::{History, HistoryRequest};
use super::kind::Kind;
use super::nak::NakView;
use super::name::NAME;
use super::question::{Answer, Question};
use super::repair::{REPAIR_HEADER, RepairView};
use super::room::{Probe, RoomsView};
use crate::counters::Malformed;

/// Any datagram, borrowed.
///
/// ```
/// use ricochet_core::wire::{Data, Datagram, Extras};
/// use ricochet_core::{GroupId, NodeId};
/// let data = Data {
///     sender: NodeId(1), group: GroupId(7), seq: 0, sender_seq: 0,
///     expires: false, fragment: false, joint: false, extras: Extras::NONE, payload: b"187.21",
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
    /// A data packet sent again on request.
    Retransmission(Data<'a>),
    /// A repair.
    Repair(RepairView<'a>),
    /// A request for packets.
    Nak(NakView<'a>),
    /// A sender's latest sequence numbers.
    Heartbeat(HeartbeatView<'a>),
    /// A question about a sender's newest packet.
    Question(Question),
    /// The answer to it.
    Answer(Answer),
    /// A receiver's report about its room.
    Rooms(RoomsView<'a>),
    /// A sender's request for such reports.
    Probe(Probe),
    /// The news that requested packets are not held, laid out as the request.
    Denial(NakView<'a>),
    /// A request for the history of a group.
    HistoryRequest(HistoryRequest),
    /// A part of the history of a group.
    History(History<'a>),
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
            Kind::Question => Question::read(body).map(Self::Question),
            Kind::Answer => Answer::read(body).map(Self::Answer),
            Kind::Room => RoomsView::read(body).map(Self::Rooms),
            Kind::Probe => Probe::read(body).map(Self::Probe),
            Kind::Denial => NakView::read(body).map(Self::Denial),
            Kind::HistoryRequest => HistoryRequest::read(body).map(Self::HistoryRequest),
            Kind::History => History::read(body).map(Self::History),
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Data(_) => Kind::Data,
            Self::Retransmission(_) => Kind::Retransmission,
            Self::Repair(_) => Kind::Repair,
            Self::Nak(_) => Kind::Nak,
            Self::Heartbeat(_) => Kind::Heartbeat,
            Self::Question(_) => Kind::Question,
            Self::Answer(_) => Kind::Answer,
            Self::Rooms(_) => Kind::Room,
            Self::Probe(_) => Kind::Probe,
            Self::Denial(_) => Kind::Denial,
            Self::HistoryRequest(_) => Kind::HistoryRequest,
            Self::History(_) => Kind::History,
        }
    }
}

/// Returns the longest payload of a data packet, in bytes.
///
/// The packet itself and a repair of `names` such packets both fit into `datagram_max` bytes of UDP payload,
/// including a trailer of `trailer` bytes (Thesis §4.3). `None` if not even an empty payload fits.
pub fn payload_max(datagram_max: usize, names: usize, trailer: usize) -> Option<usize> {
    let repair = REPAIR_HEADER + names * NAME + SYMBOL_HEAD;
    datagram_max.checked_sub(repair.max(DATA_HEADER) + trailer)
}
