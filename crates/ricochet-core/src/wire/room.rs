//! Reports of receivers about their room, and the request of a sender for such reports (flow control).

use foundation::bytes::{Reader, Writer};

use super::kind::Kind;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};

/// Maximum number of streams in one report.
pub const ROOMS_MAX: usize = 64;
/// Length of a report before its streams: kind, count, node that reports (4).
pub const ROOMS_HEADER: usize = 6;
/// Length of a stream in a report: group (8), position (4), newest packet (4), window (4).
pub const ROOM: usize = 20;
/// Length of a request for reports: kind, reserved byte, sender (4), group (8), newest sequence number (4).
pub const PROBE: usize = 18;

/// How far a receiver has got in one stream of the node that gets the report, and its room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Group of the stream.
    pub group: GroupId,
    /// Low 32 bits of the position before which every packet has come or was given up.
    pub position: u32,
    /// Low 32 bits of the newest packet that has come.
    pub newest: u32,
    /// Number of packets from the position on for which there is room.
    pub window: u32,
}

impl Room {
    fn to_wire(self) -> [u8; ROOM] {
        let mut bytes = [0; ROOM];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.position.to_be_bytes());
        writer.put(&self.newest.to_be_bytes());
        writer.put(&self.window.to_be_bytes());
        bytes
    }

    fn read(mut bytes: Reader<'_>) -> Result<Self, Malformed> {
        let group = GroupId(bytes.u64()?);
        Ok(Self { group, position: bytes.u32()?, newest: bytes.u32()?, window: bytes.u32()? })
    }
}

/// A report as the receiver writes it.
#[derive(Clone, Copy, Debug)]
pub struct Rooms<'a> {
    /// Node that reports.
    pub from: NodeId,
    /// 1 to [`ROOMS_MAX`] streams.
    pub rooms: &'a [Room],
}

impl Rooms<'_> {
    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        ROOMS_HEADER + self.rooms.len() * ROOM
    }

    /// Writes the report to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If it has no stream or too many, or if `to` is shorter than [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        let count = self.rooms.len();
        assert!((1..=ROOMS_MAX).contains(&count), "a report: expected 1 to {ROOMS_MAX} streams, saw {count}");
        let mut writer = Writer::new(to);
        writer.put(&[Kind::Room.to_wire(), count as u8]);
        writer.put(&self.from.0.to_be_bytes());
        for room in self.rooms {
            writer.put(&room.to_wire());
        }
        writer.written()
    }
}

/// A report as the sender of the streams reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomsView<'a> {
    /// Node that reports.
    pub from: NodeId,
    rooms: &'a [[u8; ROOM]],
}

impl<'a> RoomsView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let from = NodeId(body.u32()?);
        let view = Self { from, rooms: body.list(count, ROOMS_MAX)? };
        body.end()?;
        Ok(view)
    }

    /// Returns the 1 to [`ROOMS_MAX`] streams.
    pub fn rooms(&self) -> impl Iterator<Item = Room> + use<'a> {
        self.rooms.iter().filter_map(|bytes| Room::read(Reader(bytes)).ok())
    }
}

/// Asks all members of a group for a report, because the sender has no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Node that asks, the sender of the stream.
    pub sender: NodeId,
    /// Group of the stream.
    pub group: GroupId,
    /// Low 32 bits of the newest packet's sequence number.
    pub newest: u32,
}

impl Probe {
    /// Writes the request to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is shorter than [`PROBE`].
    pub fn write(&self, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        writer.put(&[Kind::Probe.to_wire(), 0]);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.newest.to_be_bytes());
        writer.written()
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        body.flags(0)?;
        let probe = Self { sender: NodeId(body.u32()?), group: GroupId(body.u64()?), newest: body.u32()? };
        body.end()?;
        Ok(probe)
    }
}
