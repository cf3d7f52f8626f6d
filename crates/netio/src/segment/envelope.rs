//! The outer headers of a tunnel's super-packet.
//!
//! The kernel cuts the innermost packet and repeats all headers before it (`gre_gso_segment`,
//! `ipip_gso_segment`, `skb_udp_tunnel_segment`). In each segment, lengths and checksums of the outer headers
//! are recomputed, and outer IPv4 identifications count up.

use super::refusal::Refusal;
use super::tunnel::{self, ETHERTYPE_V6, GRE, IPV4, IPV6};
use crate::checksum::Sum;
use crate::header::{Layout, TCP, UDP, put_word, word};
use crate::offload::{Gso, Offload};

const ETHERTYPE_V4: u16 = 0x0800;
/// Ethernet in GRE.
const BRIDGED: u16 = 0x6558;
const ETHERNET_LEN: usize = 14;
const VLANS: [u16; 2] = [0x8100, 0x88a8];
/// Maximum number of VLAN tags of an inner Ethernet frame.
const TAGS_MAX: usize = 2;

// RFC 2784, RFC 2890
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;

/// Maximum number of IP headers around the innermost packet. The kernel merges one and sends few.
const LAYERS_MAX: usize = 3;

/// The outer headers of a super-packet, and the packet inside.
pub(super) struct Envelope<'p> {
    pub(super) headers: &'p [u8],
    pub(super) inner: &'p [u8],
    layers: [Option<Layer>; LAYERS_MAX],
    offload: Offload,
}

/// An IP header of the envelope, and what follows it before the next IP header.
#[derive(Clone, Copy)]
struct Layer {
    /// Offset of the IP header.
    at: usize,
    layout: Layout,
    behind: Behind,
}

/// The header that follows an outer IP header. The offsets are those of its checksum field.
#[derive(Clone, Copy)]
enum Behind {
    Nothing,
    Gre { checksum: Option<usize> },
    Udp { checksum: Option<usize> },
}

impl<'p> Envelope<'p> {
    /// Returns the outer headers, or `None` if this is no tunnel's packet.
    pub(super) fn of(packet: &'p [u8], offload: &Offload) -> Result<Option<Self>, Refusal> {
        let mut layers = [None; LAYERS_MAX];
        let (mut at, mut inner) = (0, packet);
        for slot in &mut layers {
            let Some((layer, next)) = step(inner, at, offload)? else { break };
            *slot = Some(layer);
            at += next;
            inner = &packet[at..layer.at + layer.layout.total];
        }
        Ok((at > 0).then(|| Self { headers: &packet[..at], inner, layers, offload: *offload }))
    }

    /// Returns the offload of the inner packet. The kind of a super-packet in UDP is a guess by its outer
    /// header.
    pub(super) fn inner_offload(&self) -> Offload {
        let gso = match (
            self.offload.gso,
            Layout::of(self.inner).map(|layout| (layout.version, layout.protocol)),
        ) {
            (Gso::Udp4 | Gso::Udp6, Some((4, UDP))) => Gso::Udp4,
            (Gso::Udp4 | Gso::Udp6, Some((_, UDP))) => Gso::Udp6,
            (Gso::Udp4 | Gso::Udp6, Some((4, TCP))) => Gso::Tcp4,
            (Gso::Udp4 | Gso::Udp6, Some((_, TCP))) => Gso::Tcp6,
            (gso, _) => gso,
        };
        let depth = self.layers.iter().flatten().count();
        Offload { gso, counting: self.offload.counting >> depth, ..self.offload }
    }

    /// Writes the outer headers of segment number `index` before its inner packet.
    pub(super) fn write(&self, index: usize, segment: &mut [u8]) {
        segment[..self.headers.len()].copy_from_slice(self.headers);
        let total = segment.len();
        // The innermost checksum comes first, because the outer ones cover it.
        for (depth, layer) in self.layers.iter().enumerate().rev() {
            let Some(Layer { at, layout, behind }) = layer else { continue };
            let transport = at + layout.transport;
            let ip = &mut segment[*at..];
            if layout.version == 4 {
                let step = if has_fixed_id(ip, depth, &self.offload) { 0 } else { index as u16 };
                let id = word(ip, 4).wrapping_add(step);
                put_word(ip, 2, (total - at) as u16);
                put_word(ip, 4, id);
                put_word(ip, 10, 0);
                let sum = Sum::of(&ip[..layout.transport]).finish();
                put_word(ip, 10, sum);
            } else {
                put_word(ip, 4, (total - at - 40) as u16);
            }
            match *behind {
                Behind::Gre { checksum: Some(field) } => {
                    put_word(segment, field, 0);
                    let sum = Sum::of(&segment[transport..]).finish();
                    put_word(segment, field, sum);
                }
                Behind::Udp { checksum } => {
                    let length = (total - transport) as u16;
                    put_word(segment, transport + 4, length);
                    if let Some(field) = checksum {
                        put_word(segment, field, 0);
                        let pseudo = layout.pseudo(&segment[*at..]).word(length);
                        let sum = pseudo.bytes(&segment[transport..]);
                        super::write_checksum(&mut segment[field..], sum, true);
                    }
                }
                Behind::Nothing | Behind::Gre { checksum: None } => {}
            }
        }
    }
}

/// Returns the kind of super-packet inside IP in IP or GRE, for taps that report only the segment size.
pub(super) fn inner_kind(packet: &[u8], layout: &Layout) -> Gso {
    if !matches!(layout.protocol, GRE | IPV4 | IPV6) {
        return Gso::Unknown;
    }
    // No checksum's place is known, so that only the outer headers decide.
    match Envelope::of(packet, &Offload::default()) {
        Ok(Some(envelope)) => {
            let inner = Layout::of(envelope.inner);
            inner.map_or(Gso::Unknown, |inner| match (inner.version, inner.protocol) {
                (4, TCP) => Gso::Tcp4,
                (_, TCP) => Gso::Tcp6,
                (4, UDP) => Gso::Udp4,
                (_, UDP) => Gso::Udp6,
                _ => Gso::Unknown,
            })
        }
        _ => Gso::Unknown,
    }
}

/// Returns the outermost layer of `packet`, which lies `at` bytes behind the start, and the offset of the
/// packet inside it; `None` if there is none.
fn step(packet: &[u8], at: usize, offload: &Offload) -> Result<Option<(Layer, usize)>, Refusal> {
    let malformed = Refusal::Malformed { seen: packet.len() };
    let Some(layout) = Layout::of(packet) else { return Err(malformed) };
    let packet = &packet[..layout.total];
    let (behind, next) = match layout.protocol {
        UDP if layout.checksum_offset().is_some() => {
            let Some(sign) = tunnel::sign(packet, &layout, at, offload) else { return Ok(None) };
            let inner = tunnel::over_udp(packet, &layout).ok_or(Refusal::Tunnel(sign))?;
            let field = layout.transport + 6;
            (Behind::Udp { checksum: (word(packet, field) != 0).then_some(at + field) }, inner)
        }
        GRE => {
            let (checksum, inner) = gre(packet, layout.transport)?;
            (Behind::Gre { checksum: checksum.map(|field| at + field) }, inner)
        }
        IPV4 | IPV6 => (Behind::Nothing, layout.transport),
        _ => return Ok(None),
    };
    if layout.fragment || layout.routed {
        return Err(Refusal::Indirect);
    }
    // The inner packet ends where the outer one ends.
    let inner = packet.get(next..).and_then(Layout::of).ok_or(malformed)?;
    if next + inner.total != layout.total {
        return Err(malformed);
    }
    Ok(Some((Layer { at, layout, behind }, next)))
}

/// Returns the offsets of the checksum field, if there is one, and of the packet inside.
fn gre(packet: &[u8], at: usize) -> Result<(Option<usize>, usize), Refusal> {
    let malformed = Refusal::Malformed { seen: packet.len() };
    let header = packet.get(at..at + 4).ok_or(malformed)?;
    let (flags, protocol) = (word(header, 0), word(header, 2));
    let refused = Refusal::Gre { flags, protocol };
    if flags & !(GRE_CHECKSUM | GRE_KEY) != 0 {
        return Err(refused);
    }
    let has = |flag| usize::from(flags & flag != 0);
    let mut inner = at + 4 + 4 * has(GRE_CHECKSUM) + 4 * has(GRE_KEY);
    let checksum = (flags & GRE_CHECKSUM != 0).then_some(at + 4);
    let mut ethertype = protocol;
    if protocol == BRIDGED {
        inner += ETHERNET_LEN;
        ethertype = packet.get(inner - 2..inner).map(|field| word(field, 0)).ok_or(malformed)?;
        for _ in 0..TAGS_MAX {
            if VLANS.contains(&ethertype) {
                inner += 4;
                ethertype = packet.get(inner - 2..inner).map(|field| word(field, 0)).ok_or(malformed)?;
            }
        }
    }
    if inner > packet.len() {
        return Err(malformed);
    }
    if matches!(ethertype, ETHERTYPE_V4 | ETHERTYPE_V6) { Ok((checksum, inner)) } else { Err(refused) }
}

/// Whether all segments share the identification of this IPv4 header, number `depth` from the outside: "don't
/// fragment" with identification 0, unless its flow was seen counting.
pub(super) fn has_fixed_id(packet: &[u8], depth: usize, offload: &Offload) -> bool {
    packet.len() >= 20
        && packet[0] >> 4 == 4
        && packet[6] & 0x40 != 0
        && word(packet, 4) == 0
        && offload.counting >> depth & 1 == 0
}

/// Calls `found` with the packet of each IP header of a super-packet, from the outside, and with whether it
/// is the innermost. A super-packet that cannot be cut has none.
pub(crate) fn each_ip_header(packet: &[u8], offload: &Offload, mut found: impl FnMut(&[u8], bool)) {
    match Envelope::of(packet, offload) {
        Ok(Some(envelope)) => {
            envelope.layers.iter().flatten().for_each(|layer| found(&packet[layer.at..], false));
            found(envelope.inner, true);
        }
        Ok(None) => found(packet, true),
        Err(_) => {}
    }
}
