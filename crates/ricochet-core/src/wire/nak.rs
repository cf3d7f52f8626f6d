//! NAKs: requests for packets, sent to the packets' sender or to another node that holds them, and never
//! multicast.

use foundation::bytes::{Reader, Writer};

use super::kind::Kind;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId, StreamKey};

/// Maximum number of ranges in one request.
pub const NAK_RANGES_MAX: usize = 64;
/// Length of a request before its ranges: kind, count, sender (4).
pub const NAK_HEADER: usize = 6;
/// Length of a range: sender (4), group (8), first sequence number (4), count (2).
pub const NAK_RANGE: usize = 18;

/// A range of consecutive packets of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The stream.
    pub key: StreamKey,
    /// Low 32 bits of the first sequence number.
    pub first: u32,
    /// Number of packets, at least 1. The node that answers bounds the cost of this claim.
    pub count: u16,
}

impl Range {
    fn to_wire(self) -> [u8; NAK_RANGE] {
        let mut bytes = [0; NAK_RANGE];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&self.key.sender.0.to_be_bytes());
        writer.put(&self.key.group.0.to_be_bytes());
        writer.put(&self.first.to_be_bytes());
        writer.put(&self.count.to_be_bytes());
        bytes
    }

    fn read(mut bytes: Reader<'_>) -> Result<Self, Malformed> {
        let key = StreamKey { sender: NodeId(bytes.u32()?), group: GroupId(bytes.u64()?) };
        Ok(Self { key, first: bytes.u32()?, count: bytes.u16()? })
    }
}

/// A request as its sender writes it.
#[derive(Clone, Copy, Debug)]
pub struct Nak<'a> {
    /// Node that sends the request.
    pub from: NodeId,
    /// Requested ranges, 1 to [`NAK_RANGES_MAX`].
    pub ranges: &'a [Range],
}

impl Nak<'_> {
    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        NAK_HEADER + self.ranges.len() * NAK_RANGE
    }

    /// Writes the request to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If it has no range or too many, if a range is empty, or if `to` is shorter than
    /// [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        self.write_as(Kind::Nak, to)
    }

    /// Writes the news that the packets are not held, as [`write`](Self::write) writes the request for them.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_denial(&self, to: &mut [u8]) -> usize {
        self.write_as(Kind::Denial, to)
    }

    fn write_as(&self, kind: Kind, to: &mut [u8]) -> usize {
        let count = self.ranges.len();
        assert!(
            (1..=NAK_RANGES_MAX).contains(&count),
            "a request: expected 1 to {NAK_RANGES_MAX} ranges, saw {count}"
        );
        let mut writer = Writer::new(to);
        writer.put(&[kind.to_wire(), count as u8]);
        writer.put(&self.from.0.to_be_bytes());
        for range in self.ranges {
            assert!(range.count > 0, "a range: expected at least one packet, saw none");
            writer.put(&range.to_wire());
        }
        writer.written()
    }
}

/// A request as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakView<'a> {
    /// Node that sent the request.
    pub from: NodeId,
    ranges: &'a [[u8; NAK_RANGE]],
}

impl<'a> NakView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let from = NodeId(body.u32()?);
        let view = Self { from, ranges: body.list(count, NAK_RANGES_MAX)? };
        body.end()?;
        if view.ranges().any(|range| range.count == 0) { Err(Malformed::Count) } else { Ok(view) }
    }

    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        NAK_HEADER + self.ranges.len() * NAK_RANGE
    }

    /// Returns the 1 to [`NAK_RANGES_MAX`] requested ranges, which may overlap.
    pub fn ranges(&self) -> impl Iterator<Item = Range> + use<'a> {
        self.ranges.iter().filter_map(|bytes| Range::read(Reader(bytes)).ok())
    }
}
