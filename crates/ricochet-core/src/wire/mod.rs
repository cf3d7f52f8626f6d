//! The datagrams, byte for byte (`docs/wire.md`). All numbers are big-endian.
//!
//! Reading borrows the datagram, copies no payload and allocates nothing. Whatever the bytes, it ends in a
//! view or in a counted reason. A driver with a cluster key appends a trailer of its own to each datagram; it
//! checks the trailer and cuts it off before these parsers see the rest.

mod data;
mod datagram;
mod envelope;
mod fragment;
mod heartbeat;
mod history;
mod joint;
mod kind;
mod nak;
mod name;
mod peek;
mod question;
mod repair;
mod room;

pub use data::{DATA_HEADER, Data, Extras, SENT, SYMBOL_HEAD};
pub use datagram::{Datagram, payload_max};
pub use envelope::{CONTENT_TYPE_MAX, DEADLINE_US_MAX, ENVELOPE_MAX, Envelope, HEADERS_MAX, KEY_MAX};
pub use fragment::{FRAGMENT_HEAD, FRAGMENTS_MAX, Fragment};
pub use heartbeat::{HEARTBEAT_ENTRY, HEARTBEAT_HEADER, HEARTBEAT_MAX, Heartbeat, HeartbeatView, Latest};
pub use history::{
    Ask, HISTORY_HEADER, HISTORY_REQUEST, History, HistoryBody, HistoryRequest, OFFER, STREAM, Streams,
};
pub use joint::{JOINT_MAX, MESSAGE_HEAD, is_joint, messages_of};
pub use kind::{Kind, VERSION};
pub use nak::{NAK_HEADER, NAK_RANGE, NAK_RANGES_MAX, Nak, NakView, Range};
pub use name::{NAME, Name};
pub use peek::Peek;
pub use question::{ANSWER, Answer, QUESTION, Question};
pub use repair::{NAMES_MAX, REPAIR_HEADER, Repair, RepairView};
pub use room::{PROBE, Probe, ROOM, ROOMS_HEADER, ROOMS_MAX, Room, Rooms, RoomsView};

#[cfg(test)]
mod tests;
