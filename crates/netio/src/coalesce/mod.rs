//! Joins consecutive segments of a flow into one super-packet, for writing to a TUN device with offloads.
//!
//! The path of a packet: [`Coalescer::push`] → `Arrival::of` (can it be joined at all?) → the slot of its
//! flow → `Slot::join` or a new slot → `Slot::write`.
//!
//! Joining loses nothing: [`crate::segment::cut`] restores the packets bit for bit. So a packet joins only if
//! its headers continue those of the packet before and its checksums are right. Packets of one flow keep
//! their order. Between flows the order may change, as it does when the kernel merges packets that a card
//! receives.

use crate::checksum::{Sum, copy_and_sum};
use crate::header::{Layout, TCP, UDP};
use crate::offload::{Gso, Offload};

/// Number of flows joined at a time; a further flow makes the oldest be written.
const FLOWS: usize = 8;
/// Length of the longest IP packet.
const PACKET_MAX: usize = 65_535;
/// Maximum number of datagrams that a UDP socket puts into one super-packet.
const DATAGRAMS_MAX: usize = 64;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Super-packets under construction.
///
/// ```
/// use netio::{Offload, coalesce::Coalescer};
/// let mut coalescer = Coalescer::new(false);
/// let mut written = 0;
/// let mut write = |offload: &Offload, packet: &[u8]| written += packet.len();
/// coalescer.push(b"no IP packet", &mut write); // cannot be joined, so it is written at once
/// coalescer.flush(&mut write);
/// assert_eq!(written, 12);
/// ```
pub struct Coalescer {
    slots: [Slot; FLOWS],
    udp: bool,
    in_order: bool,
    opened: u64,
}

impl Coalescer {
    /// Makes an empty coalescer. `udp` permits joining UDP, see [`crate::tun::Tun::takes_udp_segments`].
    pub fn new(udp: bool) -> Self {
        Self { slots: std::array::from_fn(|_| Slot::new()), udp, in_order: false, opened: 0 }
    }

    /// Keeps the order between flows too: only directly consecutive packets are joined.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Adds a packet. `write` receives everything that cannot wait longer, possibly this packet too.
    pub fn push(&mut self, packet: &[u8], write: &mut impl FnMut(&Offload, &[u8])) {
        let Some(flow) = Flow::of(packet) else {
            // the packet's flow is unknown, so it must not overtake any
            self.flush(write);
            return write(&Offload::default(), packet);
        };
        let arrival = Arrival::of(packet, flow, self.udp);
        let found = self.slots.iter().position(|slot| slot.used > 0 && slot.is_of(packet, &flow));
        if self.in_order && found.is_none() {
            self.flush(write);
        }
        match (found, arrival) {
            (Some(at), Some(arrival)) => {
                let slot = &mut self.slots[at];
                if slot.join(&arrival) {
                    if slot.closed {
                        slot.write(write);
                    }
                    return;
                }
                slot.write(write);
                self.open(at, &arrival, write);
            }
            (None, Some(arrival)) => {
                let at = self.free_slot(write);
                self.open(at, &arrival, write);
            }
            (found, None) => {
                if let Some(at) = found {
                    self.slots[at].write(write);
                }
                write(&Offload::default(), packet);
            }
        }
    }

    /// Writes everything that is held back, oldest first.
    pub fn flush(&mut self, write: &mut impl FnMut(&Offload, &[u8])) {
        for _ in 0..FLOWS {
            let Some(oldest) = self.oldest() else { return };
            self.slots[oldest].write(write);
        }
    }

    /// Returns whether nothing is held back.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.used == 0)
    }

    fn open(&mut self, at: usize, arrival: &Arrival<'_>, write: &mut impl FnMut(&Offload, &[u8])) {
        if arrival.ends || !arrival.checksum_is_right() {
            return write(&Offload::default(), arrival.packet);
        }
        self.opened += 1;
        self.slots[at].open(arrival, self.opened);
    }

    fn free_slot(&mut self, write: &mut impl FnMut(&Offload, &[u8])) -> usize {
        if let Some(free) = self.slots.iter().position(|slot| slot.used == 0) {
            return free;
        }
        let oldest = self.oldest().unwrap_or(0);
        self.slots[oldest].write(write);
        oldest
    }

    fn oldest(&self) -> Option<usize> {
        let held = self.slots.iter().enumerate().filter(|(_, slot)| slot.used > 0);
        held.min_by_key(|(_, slot)| slot.opened).map(|(at, _)| at)
    }
}

impl std::fmt::Debug for Coalescer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.slots.iter().filter(|slot| slot.used > 0).count();
        f.debug_struct("Coalescer").field("flows", &held).field("udp", &self.udp).finish_non_exhaustive()
    }
}

/// A whole TCP or UDP packet: its layout and ports.
#[derive(Clone, Copy)]
struct Flow {
    layout: Layout,
    ports: [u8; 4],
}

impl Flow {
    fn of(packet: &[u8]) -> Option<Self> {
        let layout = Layout::of(packet)?;
        layout.checksum_offset()?;
        let plain = !layout.fragment && !layout.routed && layout.total == packet.len();
        let ports = *packet[layout.transport..].first_chunk()?;
        plain.then_some(Self { layout, ports })
    }
}

/// A packet that may become part of a super-packet.
struct Arrival<'p> {
    packet: &'p [u8],
    flow: Flow,
    /// Length of all headers.
    headers: usize,
    /// No packet may be joined after this one.
    ends: bool,
}

impl<'p> Arrival<'p> {
    fn of(packet: &'p [u8], flow: Flow, udp: bool) -> Option<Self> {
        let at = flow.layout.transport;
        let transport = &packet[at..];
        let (length, ends) = match flow.layout.protocol {
            TCP => {
                let flags = transport[13];
                if flags & (SYN | RST | URG) != 0 {
                    return None;
                }
                (usize::from(transport[12] >> 4) * 4, flags & (FIN | PSH) != 0)
            }
            UDP if udp && transport[6..8] != [0, 0] => (8, false),
            _ => return None,
        };
        let headers = at + length;
        let whole = flow.layout.protocol == TCP || word(packet, at + 4) == packet.len() - at;
        let header_is_right = flow.layout.version == 6 || Sum::of(&packet[..at]).fold() == 0xffff;
        if !whole || length < 8 || headers >= packet.len() || !header_is_right {
            return None;
        }
        Some(Self { packet, flow, headers, ends })
    }

    fn payload(&self) -> &'p [u8] {
        &self.packet[self.headers..]
    }

    /// Returns the sum of the pseudo-header and the transport header.
    fn header_sum(&self) -> Sum {
        let layout = &self.flow.layout;
        let length = (self.packet.len() - layout.transport) as u16; // in range: an IP packet
        layout.pseudo(self.packet).word(length).bytes(&self.packet[layout.transport..self.headers])
    }

    /// Returns whether the checksum is right; joining would hide a wrong one.
    fn checksum_is_right(&self) -> bool {
        self.header_sum().bytes(self.payload()).fold() == 0xffff
    }
}

/// Super-packet of one flow under construction; free while `used` is 0.
struct Slot {
    buffer: Box<[u8]>,
    used: usize,
    flow: Flow,
    headers: usize,
    segment_size: usize,
    segments: usize,
    closed: bool,
    opened: u64,
}

impl Slot {
    fn new() -> Self {
        let layout =
            Layout { version: 0, transport: 0, protocol: 0, total: 0, fragment: false, routed: false };
        let buffer = vec![0; PACKET_MAX].into_boxed_slice();
        let flow = Flow { layout, ports: [0; 4] };
        Self { buffer, used: 0, flow, headers: 0, segment_size: 0, segments: 0, closed: false, opened: 0 }
    }

    fn is_of(&self, packet: &[u8], flow: &Flow) -> bool {
        let (ours, theirs) = (&self.flow, flow);
        ours.ports == theirs.ports
            && ours.layout.version == theirs.layout.version
            && ours.layout.protocol == theirs.layout.protocol
            && ours.layout.addresses(&self.buffer) == theirs.layout.addresses(packet)
    }

    fn open(&mut self, arrival: &Arrival<'_>, opened: u64) {
        self.buffer[..arrival.packet.len()].copy_from_slice(arrival.packet);
        self.used = arrival.packet.len();
        self.flow = arrival.flow;
        self.headers = arrival.headers;
        self.segment_size = arrival.payload().len();
        self.segments = 1;
        self.closed = false;
        self.opened = opened;
    }

    /// Joins the packet if it is the next segment.
    fn join(&mut self, arrival: &Arrival<'_>) -> bool {
        let payload = arrival.payload();
        let udp = self.flow.layout.protocol == UDP;
        let fits = self.used + payload.len() <= PACKET_MAX && payload.len() <= self.segment_size;
        if self.closed || !fits || (udp && self.segments == DATAGRAMS_MAX) || !self.continues_with(arrival) {
            return false;
        }
        let sum = copy_and_sum(payload, &mut self.buffer[self.used..]);
        if arrival.header_sum().plus(sum).fold() != 0xffff {
            return false;
        }
        self.used += payload.len();
        self.segments += 1;
        self.closed = payload.len() < self.segment_size || arrival.ends;
        if !udp {
            let at = self.flow.layout.transport + 13;
            self.buffer[at] |= arrival.packet[at] & (FIN | PSH);
        }
        true
    }

    /// Returns whether cutting would give these headers to the segment after those held.
    fn continues_with(&self, arrival: &Arrival<'_>) -> bool {
        if arrival.headers != self.headers || arrival.flow.layout != self.same_layout(arrival) {
            return false;
        }
        let (ours, theirs) = (&self.buffer[..self.headers], arrival.packet);
        let at = self.flow.layout.transport;
        let same = |range: std::ops::Range<usize>| ours[range.clone()] == theirs[range];
        let network = if self.flow.layout.version == 4 {
            let id = (word(ours, 4) + self.segments) & 0xffff;
            word(theirs, 4) == id && same(0..2) && same(6..10) && same(12..at)
        } else {
            same(0..4) && same(6..at)
        };
        if !network || self.flow.layout.protocol == UDP {
            return network;
        }
        let offset = (self.segments * self.segment_size) as u32; // in range: within the super-packet
        let sequence = double(ours, at + 4).wrapping_add(offset);
        double(theirs, at + 4) == sequence
            && same(at + 8..at + 13)
            && theirs[at + 13] & !(FIN | PSH) == ours[at + 13] & !CWR
            && same(at + 14..at + 16)
            && same(at + 18..self.headers)
    }

    /// Returns our layout with the arrival's total length.
    fn same_layout(&self, arrival: &Arrival<'_>) -> Layout {
        Layout { total: arrival.packet.len(), ..self.flow.layout }
    }

    /// Writes the held packet and frees the slot.
    fn write(&mut self, write: &mut impl FnMut(&Offload, &[u8])) {
        let packet = &mut self.buffer[..self.used];
        self.used = 0;
        if self.segments < 2 {
            return write(&Offload::default(), packet);
        }
        let layout = Layout { total: packet.len(), ..self.flow.layout };
        let at = layout.transport;
        let gso = match (layout.version, layout.protocol) {
            (4, TCP) => Gso::Tcp4,
            (4, _) => Gso::Udp4,
            (_, TCP) => Gso::Tcp6,
            _ => Gso::Udp6,
        };
        // all in range: an IP packet
        if layout.version == 4 {
            put_word(packet, 2, packet.len() as u16);
            put_word(packet, 10, 0);
            let sum = Sum::of(&packet[..at]).finish();
            put_word(packet, 10, sum);
        } else {
            put_word(packet, 4, (packet.len() - 40) as u16);
        }
        let length = (packet.len() - at) as u16;
        let offset = if layout.protocol == TCP { 16 } else { 6 };
        if layout.protocol == UDP {
            put_word(packet, at + 4, length);
        }
        let pseudo = layout.pseudo(packet).word(length).fold();
        put_word(packet, at + offset, pseudo);
        let offload = Offload {
            segment_count: self.segments as u16,
            checksum_start: at as u16,
            checksum_offset: offset as u16,
            counting: 1, // only such packets are joined
            ..Offload::segments(gso, self.segment_size as u16)
        };
        write(&offload, packet);
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn double(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
