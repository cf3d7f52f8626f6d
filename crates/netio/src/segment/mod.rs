//! Cuts a super-packet into exactly the packets that the card, or the kernel in its place, puts on the wire.
//!
//! The rules are those of Linux' software segmentation (`tcp_gso_segment`, `__udp_gso_segment`,
//! `inet_gso_segment`, `skb_checksum_help`), which cards imitate:
//!
//! - the payload is cut every `segment_size` bytes; all headers and options are copied;
//! - the IPv4 identification counts up from one segment to the next, unless it is fixed
//!   ([`Offload::counting`]);
//! - lengths and checksums are recomputed; TCP sequence numbers advance;
//! - FIN and PSH are set on the last segment only, CWR on the first only.
//!
//! For a tunnel's super-packet (IP in IP, GRE, VXLAN, Geneve and similar) the kernel cuts the inner packet
//! and repeats all headers. No tap marks such packets, so `tunnel.rs` detects them, and `envelope.rs` follows
//! and repeats the outer headers.
//!
//! One bit pattern may differ from the wire. If a TCP checksum is zero, Linux' software writes 0xffff into
//! packets of a single segment, while cards and software segmentation write 0x0000. Both mean the same; this
//! module writes 0x0000.

mod envelope;
mod refusal;
#[cfg(test)]
pub(crate) mod shape;
mod tunnel;

use crate::checksum::{Sum, copy_and_sum};
use crate::header::{Layout, TCP, UDP, put_word, word};
use crate::offload::{Gso, Offload};
use envelope::{Envelope, has_fixed_id};

pub(crate) use envelope::each_ip_header;
pub use refusal::Refusal;
pub use tunnel::Sign;

const FIN: u16 = 0x001;
const PSH: u16 = 0x008;
const CWR: u16 = 0x080;
/// `GSO_BY_FRAGS`: every segment has its own size (SCTP, also in UDP).
const BY_PIECES: u16 = 0xffff;
/// Maximum nesting of tunnels that is followed.
const LAYERS_MAX: usize = 3;

/// Cuts `packet` into wire packets, passes each to `emit` and returns their number.
///
/// A single packet is emitted as it is, with two exceptions. A checksum left to the card is finished;
/// `offload` reports it, or the field holds just the pseudo-header's sum, also inside a tunnel. Link-layer
/// padding behind the packet is removed. Input that is not an IP packet is emitted unchanged. If an error is
/// returned, nothing was emitted.
///
/// `scratch` must hold the largest emitted packet; 64 KiB always suffice. Its content is overwritten.
///
/// ```
/// use netio::{Offload, segment};
/// let (packet, mut scratch) = ([0x45; 3], [0; 2048]); // not an IP packet
/// let count = segment::cut(&packet, &Offload::default(), &mut scratch, |wire| assert_eq!(wire, packet));
/// assert_eq!(count, Ok(1));
/// ```
///
/// # Errors
/// [`Refusal`] gives the reason why a super-packet was not cut.
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
    let envelope = Envelope::of(packet, offload)?;
    if let Some(envelope) = &envelope {
        return cut_inner(envelope, scratch, emit);
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

/// Cuts the innermost packet of a tunnel's super-packet, and repeats the outer headers before each segment.
fn cut_inner(
    envelope: &Envelope<'_>,
    scratch: &mut [u8],
    mut emit: impl FnMut(&mut [u8]),
) -> Result<usize, Refusal> {
    let plan = Plan::new(envelope.inner, &envelope.inner_offload())?;
    let outer = envelope.headers.len();
    let needed = outer + plan.headers.len() + plan.size.min(plan.payload.len());
    if scratch.len() < needed {
        return Err(Refusal::Scratch { needed, seen: scratch.len() });
    }
    let count = plan.count();
    for index in 0..count {
        let from = index * plan.size;
        let payload = &plan.payload[from..plan.payload.len().min(from + plan.size)];
        let segment = &mut scratch[..outer + plan.headers.len() + payload.len()];
        plan.write(index, index + 1 == count, payload, &mut segment[outer..]);
        envelope.write(index, segment);
        emit(segment);
    }
    Ok(count)
}

/// Returns the kind of super-packet, for taps that report only the segment size. For IP in IP and GRE this is
/// the kind of the inner packet. For UDP it is that of UDP itself, also in a tunnel over UDP.
pub fn kind_of(packet: &[u8]) -> Gso {
    let Some(layout) = Layout::of(packet) else { return Gso::Unknown };
    match (layout.version, layout.protocol) {
        (4, TCP) => Gso::Tcp4,
        (6, TCP) => Gso::Tcp6,
        (4, UDP) => Gso::Udp4,
        (6, UDP) => Gso::Udp6,
        _ => envelope::inner_kind(packet, &layout),
    }
}

/// Copies a single packet, removes padding and finishes its checksum if that was left to the card.
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

/// Finishes the checksum if it was left to the card.
fn finish(packet: &mut [u8], layout: &Layout, offload: &Offload) {
    if offload.needs_checksum && offload.checksum_start > 0 {
        // The checksum may be anywhere, also inside a tunnel: its field holds the sum of the pseudo-header.
        let (start, offset) = (usize::from(offload.checksum_start), usize::from(offload.checksum_offset));
        if start + offset + 2 <= packet.len() {
            let udp = start == layout.transport && layout.protocol == UDP;
            let sum = Sum::of(&packet[start..]);
            write_checksum(&mut packet[start + offset..], sum, udp);
        }
        return;
    }
    finish_transport(packet, layout, offload.needs_checksum);
    // The checksum of a packet inside a tunnel may also have been left to the card, without any mark. The
    // outer checksum was computed for the finished packet (the kernel's "local checksum offload").
    let (mut at, mut layout) = (0, *layout);
    for _ in 0..LAYERS_MAX {
        let Some((inner_at, inner)) = tunnel::inner_packet(&packet[at..], &layout) else { return };
        at += inner_at;
        layout = inner;
        finish_transport(&mut packet[at..], &layout, false);
    }
}

/// Finishes the checksum of the transport header if `needs` is set or if it holds just the pseudo-header's
/// sum.
fn finish_transport(packet: &mut [u8], layout: &Layout, needs: bool) {
    let Some(offset) = layout.checksum_offset() else { return };
    if layout.fragment || layout.routed {
        return;
    }
    let at = layout.transport + offset;
    let length = (layout.total - layout.transport) as u16; // in range: an IP packet
    let pseudo = layout.pseudo(packet).word(length);
    // A finished checksum equals this value once in 65,536 packets; finishing it again changes nothing.
    if needs || word(packet, at) == pseudo.fold() {
        packet[at..at + 2].fill(0);
        let sum = pseudo.bytes(&packet[layout.transport..layout.total]);
        write_checksum(&mut packet[at..], sum, layout.protocol == UDP);
    }
}

/// Headers and payload of a super-packet, and the sums that all segments share.
struct Plan<'p> {
    headers: &'p [u8],
    payload: &'p [u8],
    layout: Layout,
    size: usize,
    fixed_id: bool,
    /// IPv4 header without total length, identification and checksum.
    network: Sum,
    /// Pseudo-header and transport header without the fields that differ between segments.
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
        let mut plan = Self {
            headers: &packet[..end],
            payload: &packet[end..layout.total],
            layout,
            size: usize::from(offload.segment_size),
            fixed_id: layout.protocol == TCP && has_fixed_id(packet, 0, offload),
            network: Sum::default(),
            transport: Sum::default(),
        };
        // Where a driver merged, the kernel counted nothing or one segment, and the count is meaningless.
        if offload.segment_count > 1 && usize::from(offload.segment_count) != plan.count() {
            return Err(Refusal::SegmentCount { expected: plan.count(), seen: offload.segment_count });
        }
        plan.sum_headers();
        Ok(plan)
    }

    /// Returns the number of segments; a packet without payload is one.
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

/// Writes the checksum to the start of `field`. Zero means "no checksum" in UDP, which so writes zero as
/// 0xffff (RFC 768).
fn write_checksum(field: &mut [u8], sum: Sum, udp: bool) {
    let checksum = sum.finish();
    put_word(field, 0, if udp && checksum == 0 { 0xffff } else { checksum });
}

#[cfg(test)]
mod tests;
