//! Cuts a super-packet into exactly the packets that the card, or the kernel in its place, puts on the wire.
//!
//! The rules are those of Linux' software segmentation (`tcp_gso_segment`, `__udp_gso_segment`,
//! `inet_gso_segment`, `skb_checksum_help`), which cards imitate:
//!
//! - the payload is cut every `segment_size` bytes; all headers and options are copied;
//! - IPv4 identification counts up from one segment to the next, unless [`Offload::fixed_id`];
//! - lengths and checksums are made anew; TCP sequence numbers go on;
//! - FIN and PSH stand on the last segment only, CWR on the first only.
//!
//! Only plain super-packets are cut. Of a tunnel's super-packet (VXLAN, Geneve and their like) the kernel cuts
//! what is inside and repeats all headers; no tap tells that it is one, so it is looked for (`segment/tunnel.rs`).
//!
//! One wire packet may differ in one bit pattern: where the TCP checksum comes out as zero, Linux' software
//! writes 0xffff into packets of a single segment, cards and software segmentation write 0x0000. Both mean
//! the same; we write 0x0000.

use crate::Gso;
use crate::Offload;
use crate::checksum::{Sum, copy_and_sum};
use crate::header::{Layout, TCP, UDP};

mod tunnel;

const FIN: u16 = 0x001;
const PSH: u16 = 0x008;
const CWR: u16 = 0x080;
/// `GSO_BY_FRAGS`: each segment has a size of its own (SCTP, also in UDP).
const BY_PIECES: u16 = 0xffff;
/// Tunnels in tunnels are followed so far.
const LAYERS_MAX: usize = 3;

/// Why a packet was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The headers of a super-packet do not parse.
    #[error("expected a whole IP packet, saw {seen} bytes that are none")]
    Malformed {
        /// Bytes there were.
        seen: usize,
    },
    /// A super-packet of a kind that is not cut.
    #[error("expected TCP or UDP segments, saw a super-packet of another kind")]
    Kind,
    /// The headers say otherwise than the offload.
    #[error("expected segments of {expected:?}, saw IP version {version} with protocol {protocol}")]
    Mismatch {
        /// What the offload said.
        expected: Gso,
        /// What the header said.
        version: u8,
        /// What the header said.
        protocol: u8,
    },
    /// A fragment, or an IPv6 routing header under way: not to be cut by us.
    #[error("expected a plain super-packet, saw a fragment or a routing header")]
    Indirect,
    /// A super-packet with no segment size.
    #[error("expected a segment size, saw zero")]
    SegmentSize,
    /// The payload does not make as many segments as the kernel says: it cuts elsewhere, inside a tunnel.
    #[error("expected {expected} segments by the payload, saw a super-packet of {seen}")]
    SegmentCount {
        /// What cutting the payload would give.
        expected: usize,
        /// What the offload said.
        seen: u16,
    },
    /// A super-packet of a tunnel over UDP, of which the kernel cuts the inner packet.
    #[error("expected plain UDP segments, saw a super-packet of a tunnel: {0}")]
    Tunnel(Sign),
    /// The scratch space cannot hold a segment.
    #[error("expected {needed} bytes of scratch space, saw {seen}")]
    Scratch {
        /// What the largest segment takes.
        needed: usize,
        /// What there was.
        seen: usize,
    },
}

/// What told that a UDP super-packet is one of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sign {
    /// It has no UDP checksum. Segments of UDP itself always have one.
    NoChecksum,
    /// The checksum to be finished is another than that of the outer UDP header.
    InnerChecksum,
    /// An IP packet inside it reaches to its end, over all segments.
    InnerPacket,
    /// It is from or to the port of a tunnel, and nothing tells that it is none.
    Port(u16),
}

impl std::fmt::Display for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoChecksum => f.write_str("it has no checksum"),
            Self::InnerChecksum => f.write_str("an inner checksum is to be finished"),
            Self::InnerPacket => f.write_str("one inner packet fills it"),
            Self::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// Cuts `packet` into wire packets and hands each to `emit`; returns how many.
///
/// A single packet is emitted as it is, but for two things: a checksum left to the card is finished (told by
/// `offload`, or by the field holding just the pseudo-header's sum, also inside a tunnel), and link-layer padding behind the packet
/// is cut off. What is no IP packet at all is emitted untouched. Nothing is emitted where a reason is
/// returned.
///
/// `scratch` must hold the largest packet emitted; 64 KiB always do. Its content is lost.
///
/// ```
/// use netio::{Offload, segment};
/// let (packet, mut scratch) = ([0x45; 3], [0; 2048]); // no IP packet
/// let count = segment::cut(&packet, &Offload::default(), &mut scratch, |wire| assert_eq!(wire, packet));
/// assert_eq!(count, Ok(1));
/// ```
///
/// # Errors
/// [`Refusal`] says why a super-packet was not cut.
pub fn cut(
    packet: &[u8],
    offload: &Offload,
    scratch: &mut [u8],
    mut emit: impl FnMut(&mut [u8]),
) -> Result<usize, Refusal> {
    if !offload.is_super() {
        emit(single(packet, offload, scratch)?);
        return Ok(1);
    }
    let plan = Plan::new(packet, offload)?;
    if plan.payload.len() <= plan.size {
        // the kernel does not cut it either
        emit(single(packet, &Offload { needs_checksum: true, ..*offload }, scratch)?);
        return Ok(1);
    }
    let needed = plan.headers.len() + plan.size;
    if scratch.len() < needed {
        return Err(Refusal::Scratch { needed, seen: scratch.len() });
    }
    let count = plan.count();
    for (index, payload) in plan.payload.chunks(plan.size).enumerate() {
        let segment = &mut scratch[..plan.headers.len() + payload.len()];
        plan.write(index, index + 1 == count, payload, segment);
        emit(segment);
    }
    Ok(count)
}

/// The kind of super-packet that a packet with segments must be, for taps that tell the segment size only.
#[must_use]
pub fn kind_of(packet: &[u8]) -> Gso {
    let Some(layout) = Layout::of(packet) else { return Gso::Unknown };
    match (layout.version, layout.protocol) {
        (4, TCP) => Gso::Tcp4,
        (6, TCP) => Gso::Tcp6,
        (4, UDP) => Gso::Udp4,
        (6, UDP) => Gso::Udp6,
        _ => Gso::Unknown,
    }
}

/// A packet that is no super-packet: copied, padding removed, checksum finished if that was left to the card.
fn single<'s>(packet: &[u8], offload: &Offload, scratch: &'s mut [u8]) -> Result<&'s mut [u8], Refusal> {
    let layout = Layout::of(packet);
    let packet = layout.map_or(packet, |layout| &packet[..layout.total]);
    let seen = scratch.len();
    let Some(copy) = scratch.get_mut(..packet.len()) else {
        return Err(Refusal::Scratch { needed: packet.len(), seen });
    };
    copy.copy_from_slice(packet);
    if let Some(layout) = layout {
        finish(copy, &layout, offload);
    }
    Ok(copy)
}

/// Finishes the checksum where it was left to the card.
fn finish(packet: &mut [u8], layout: &Layout, offload: &Offload) {
    if offload.needs_checksum && offload.checksum_start > 0 {
        // wherever it is, also inside a tunnel: the field holds the sum of the pseudo-header, whatever that was
        let (start, offset) = (usize::from(offload.checksum_start), usize::from(offload.checksum_offset));
        if start + offset + 2 <= packet.len() {
            let udp = start == layout.transport && layout.protocol == UDP;
            let sum = Sum::of(&packet[start..]);
            write_checksum(&mut packet[start + offset..], sum, udp);
        }
        return;
    }
    finish_transport(packet, layout, offload.needs_checksum);
    // That of a packet inside a tunnel may have been left to the card as well, and nothing tells. The outer checksum
    // has been made for the finished packet (the kernel's "local checksum offload").
    let (mut at, mut layout) = (0, *layout);
    for _ in 0..LAYERS_MAX {
        let Some((inner_at, inner)) = tunnel::inner_packet(&packet[at..], &layout) else { return };
        at += inner_at;
        layout = inner;
        finish_transport(&mut packet[at..], &layout, false);
    }
}

/// Finishes the checksum of the transport header if that `needs` it, or holds just the pseudo-header's sum.
fn finish_transport(packet: &mut [u8], layout: &Layout, needs: bool) {
    let Some(offset) = layout.checksum_offset() else { return };
    if layout.fragment || layout.routed {
        return;
    }
    let at = layout.transport + offset;
    let length = (layout.total - layout.transport) as u16; // in range: an IP packet
    let pseudo = layout.pseudo(packet).word(length);
    // A finished checksum holds this very value once in 65,536 packets, and then finishing it changes nothing.
    if needs || word(packet, at) == pseudo.fold() {
        packet[at..at + 2].fill(0);
        let sum = pseudo.bytes(&packet[layout.transport..layout.total]);
        write_checksum(&mut packet[at..], sum, layout.protocol == UDP);
    }
}

/// Where the cut pieces come from, and the sums that all segments share.
struct Plan<'p> {
    headers: &'p [u8],
    payload: &'p [u8],
    layout: Layout,
    size: usize,
    fixed_id: bool,
    /// IPv4 header without total length, identification and checksum.
    network: Sum,
    /// Pseudo-header and transport header without what differs between segments.
    transport: Sum,
}

impl<'p> Plan<'p> {
    fn new(packet: &'p [u8], offload: &Offload) -> Result<Self, Refusal> {
        if offload.gso == Gso::Unknown || offload.segment_size == BY_PIECES {
            return Err(Refusal::Kind);
        }
        let layout = Layout::of(packet).ok_or(Refusal::Malformed { seen: packet.len() })?;
        let (version, protocol) = (layout.version, layout.protocol);
        let expected = match offload.gso {
            Gso::Tcp4 => (4, TCP),
            Gso::Tcp6 => (6, TCP),
            Gso::Udp4 => (4, UDP),
            _ => (6, UDP),
        };
        if (version, protocol) != expected {
            return Err(Refusal::Mismatch { expected: offload.gso, version, protocol });
        }
        if layout.fragment || layout.routed {
            return Err(Refusal::Indirect);
        }
        if offload.segment_size == 0 {
            return Err(Refusal::SegmentSize);
        }
        let malformed = Refusal::Malformed { seen: packet.len() };
        layout.checksum_offset().ok_or(malformed)?;
        let transport_len =
            if protocol == TCP { usize::from(packet[layout.transport + 12] >> 4) * 4 } else { 8 };
        let end = layout.transport + transport_len;
        if (protocol == TCP && transport_len < 20) || end > layout.total {
            return Err(malformed);
        }
        if protocol == UDP
            && let Some(sign) = tunnel::sign(&packet[..layout.total], &layout, offload)
        {
            return Err(Refusal::Tunnel(sign));
        }
        let mut plan = Self {
            headers: &packet[..end],
            payload: &packet[end..layout.total],
            layout,
            size: usize::from(offload.segment_size),
            fixed_id: offload.fixed_id,
            network: Sum::default(),
            transport: Sum::default(),
        };
        // The kernel has not counted, or not more than one, where a driver merged: then it says nothing.
        if offload.segment_count > 1 && usize::from(offload.segment_count) != plan.count() {
            return Err(Refusal::SegmentCount { expected: plan.count(), seen: offload.segment_count });
        }
        plan.sum_headers();
        Ok(plan)
    }

    /// How many segments the payload makes; a packet without payload is one.
    fn count(&self) -> usize {
        self.payload.len().div_ceil(self.size).max(1)
    }

    fn sum_headers(&mut self) {
        let (network, transport) = self.headers.split_at(self.layout.transport);
        if self.layout.version == 4 {
            self.network = Sum::of(&network[..2]).bytes(&network[6..10]).bytes(&network[12..]);
        }
        let pseudo = self.layout.pseudo(self.headers);
        self.transport = if self.layout.protocol == TCP {
            // all but sequence number, flags and checksum
            pseudo
                .bytes(&transport[..4])
                .bytes(&transport[8..12])
                .bytes(&transport[14..16])
                .bytes(&transport[18..])
        } else {
            pseudo.bytes(&transport[..4])
        };
    }

    fn write(&self, index: usize, last: bool, payload: &[u8], segment: &mut [u8]) {
        let (headers, body) = segment.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        let (network, transport) = headers.split_at_mut(self.layout.transport);
        let transport_len = (transport.len() + payload.len()) as u16; // in range: shorter than the super-packet
        self.write_network(index, transport_len, network);
        let sum = copy_and_sum(payload, body).plus(self.transport).word(transport_len);
        if self.layout.protocol == TCP {
            let offset = (index * self.size) as u32; // in range: within the super-packet
            let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            let sequence = sequence.wrapping_add(offset);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            let mut flags = word(transport, 12);
            if !last {
                flags &= !(FIN | PSH);
            }
            if index > 0 {
                flags &= !CWR;
            }
            put_word(transport, 12, flags);
            write_checksum(&mut transport[16..], sum.double(sequence).word(flags), false);
        } else {
            put_word(transport, 4, transport_len);
            write_checksum(&mut transport[6..], sum.word(transport_len), true);
        }
    }

    fn write_network(&self, index: usize, transport_len: u16, network: &mut [u8]) {
        if self.layout.version == 6 {
            let extensions = (network.len() - 40) as u16; // in range: within the super-packet
            put_word(network, 4, extensions + transport_len);
            return;
        }
        let total = network.len() as u16 + transport_len;
        let step = if self.fixed_id { 0 } else { index as u16 };
        let id = word(network, 4).wrapping_add(step);
        put_word(network, 2, total);
        put_word(network, 4, id);
        put_word(network, 10, self.network.word(total).word(id).finish());
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes the checksum to the start of `field`. UDP says "no checksum" by zero and so spells zero 0xffff (RFC
/// 768).
fn write_checksum(field: &mut [u8], sum: Sum, udp: bool) {
    let checksum = sum.finish();
    put_word(field, 0, if udp && checksum == 0 { 0xffff } else { checksum });
}

#[cfg(test)]
mod tests;
