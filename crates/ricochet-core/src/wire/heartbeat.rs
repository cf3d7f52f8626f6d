//! Heartbeats: the latest sequence numbers of a sender that has fallen silent. They show receivers that the
//! last packet of a burst is missing.

use foundation::bytes::{Reader, Writer};

use super::kind::Kind;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};

/// Maximum number of groups in one heartbeat.
pub const HEARTBEAT_MAX: usize = 64;
/// Length of a heartbeat before its groups: kind, count, sender (4), sender's last number (4).
pub const HEARTBEAT_HEADER: usize = 10;
/// Length of an entry: group (8), last sequence number (4).
pub const HEARTBEAT_ENTRY: usize = 12;

/// The newest packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The group.
    pub group: GroupId,
    /// Low 32 bits of the newest packet's sequence number.
    pub seq: u32,
}

impl Latest {
    fn to_wire(self) -> [u8; HEARTBEAT_ENTRY] {
        let mut bytes = [0; HEARTBEAT_ENTRY];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.seq.to_be_bytes());
        bytes
    }

    pub(super) fn from_wire([a, b, c, d, e, f, g, h, seq @ ..]: [u8; HEARTBEAT_ENTRY]) -> Self {
        Self { group: GroupId(u64::from_be_bytes([a, b, c, d, e, f, g, h])), seq: u32::from_be_bytes(seq) }
    }
}

/// A heartbeat as its sender writes it.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat<'a> {
    /// The sender.
    pub sender: NodeId,
    /// Its newest packet's number among all its packets.
    pub sender_seq: u32,
    /// Its newest packet in each of 1 to [`HEARTBEAT_MAX`] groups.
    pub latest: &'a [Latest],
}

impl Heartbeat<'_> {
    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        HEARTBEAT_HEADER + self.latest.len() * HEARTBEAT_ENTRY
    }

    /// Writes the heartbeat to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If it names no group or too many, or if `to` is shorter than [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        let count = self.latest.len();
        assert!(
            (1..=HEARTBEAT_MAX).contains(&count),
            "a heartbeat: expected 1 to {HEARTBEAT_MAX} groups, saw {count}"
        );
        let mut writer = Writer::new(to);
        writer.put(&[Kind::Heartbeat.to_wire(), count as u8]);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.sender_seq.to_be_bytes());
        for latest in self.latest {
            writer.put(&latest.to_wire());
        }
        writer.written()
    }
}

/// A heartbeat as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatView<'a> {
    /// The sender.
    pub sender: NodeId,
    /// Its newest packet's number among all its packets.
    pub sender_seq: u32,
    latest: &'a [[u8; HEARTBEAT_ENTRY]],
}

impl<'a> HeartbeatView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let (sender, sender_seq) = (NodeId(body.u32()?), body.u32()?);
        let latest = body.list(count, HEARTBEAT_MAX)?;
        body.end()?;
        Ok(Self { sender, sender_seq, latest })
    }

    /// Returns the newest packet in each of 1 to [`HEARTBEAT_MAX`] groups.
    pub fn latest(&self) -> impl Iterator<Item = Latest> + use<'a> {
        self.latest.iter().map(|&entry| Latest::from_wire(entry))
    }
}
