//! Packets for tests, written field by field and independently of the code under test.

use crate::offload::Gso;
use proptest::prelude::*;

/// The checksum by its definition.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let data = parts.concat();
    let mut sum = 0_u32;
    for pair in data.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(u16::try_from(sum).unwrap())
}

fn pseudo(packet: &[u8], transport_at: usize, protocol: u8) -> Vec<u8> {
    let addresses = if packet[0] >> 4 == 4 { &packet[12..20] } else { &packet[8..40] };
    let length = u32::try_from(packet.len() - transport_at).unwrap();
    [addresses, &length.to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

/// Headers of a test packet.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    pub(crate) ip_options: usize,
    pub(crate) tcp_options: usize,
    pub(crate) extension: bool,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
}

impl Shape {
    pub(crate) fn transport_at(&self) -> usize {
        if self.v6 { 40 + if self.extension { 16 } else { 0 } } else { 20 + self.ip_options * 4 }
    }

    pub(crate) fn header_len(&self) -> usize {
        self.transport_at() + if self.udp { 8 } else { 20 + self.tcp_options * 4 }
    }

    pub(crate) fn protocol(&self) -> u8 {
        if self.udp { 17 } else { 6 }
    }

    pub(crate) fn gso(&self) -> Gso {
        match (self.v6, self.udp) {
            (false, false) => Gso::Tcp4,
            (true, false) => Gso::Tcp6,
            (false, true) => Gso::Udp4,
            (true, true) => Gso::Udp6,
        }
    }

    /// Builds a packet whose checksums are right, field by field.
    pub(crate) fn packet(&self, id: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let at = self.transport_at();
        let mut packet = vec![0_u8; self.header_len()];
        packet.extend_from_slice(payload);
        let total = packet.len();
        if self.v6 {
            packet[0] = 0x6e;
            packet[3] = 0x77;
            packet[4..6].copy_from_slice(&u16::try_from(total - 40).unwrap().to_be_bytes());
            packet[6] = if self.extension { 60 } else { self.protocol() };
            packet[7] = 61;
            for (i, byte) in packet[8..40].iter_mut().enumerate() {
                *byte = u8::try_from(i * 7).unwrap();
            }
            if self.extension {
                packet[40] = self.protocol();
                packet[41] = 1;
            }
        } else {
            packet[0] = 0x40 | u8::try_from(5 + self.ip_options).unwrap();
            packet[1] = 0x02;
            packet[2..4].copy_from_slice(&u16::try_from(total).unwrap().to_be_bytes());
            packet[4..6].copy_from_slice(&id.to_be_bytes());
            packet[6] = 0x40;
            packet[8] = 63;
            packet[9] = self.protocol();
            packet[12..20].copy_from_slice(&[10, 1, 2, 3, 192, 168, 4, 5]);
            packet[20..at].fill(1);
            let sum = checksum(&[&packet[..at]]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        packet[at..at + 4].copy_from_slice(&[0x12, 0x34, 0x00, 0x50]);
        if self.udp {
            packet[at + 4..at + 6].copy_from_slice(&u16::try_from(total - at).unwrap().to_be_bytes());
        } else {
            packet[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            packet[at + 8..at + 12].copy_from_slice(&[9, 8, 7, 6]);
            packet[at + 12] = u8::try_from((5 + self.tcp_options) << 4).unwrap();
            packet[at + 13] = flags;
            packet[at + 14..at + 16].copy_from_slice(&[0x11, 0x22]);
            for (i, byte) in packet[at + 20..at + 20 + self.tcp_options * 4].iter_mut().enumerate() {
                *byte = u8::try_from(i + 1).unwrap();
            }
        }
        let field = at + if self.udp { 6 } else { 16 };
        let mut sum = checksum(&[&pseudo(&packet, at, self.protocol()), &packet[at..]]);
        if self.udp && sum == 0 {
            sum = 0xffff;
        }
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// Builds the same packet with the checksum left to the card.
    pub(crate) fn unfinished(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = self.packet(self.id, self.sequence, self.flags, payload);
        let at = self.transport_at();
        let field = at + if self.udp { 6 } else { 16 };
        let sum = !checksum(&[&pseudo(&packet, at, self.protocol())]);
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// Builds the wire packets, without using `cut`.
    pub(crate) fn wire(&self, payload: &[u8], size: usize, fixed_id: bool) -> Vec<Vec<u8>> {
        let count = payload.len().div_ceil(size);
        payload
            .chunks(size)
            .enumerate()
            .map(|(i, piece)| {
                let step = if fixed_id { 0 } else { i };
                let mut flags = self.flags;
                if i + 1 < count {
                    flags &= !0x09;
                }
                if i > 0 {
                    flags &= !0x80;
                }
                let sequence = self.sequence.wrapping_add(u32::try_from(i * size).unwrap());
                self.packet(self.id.wrapping_add(u16::try_from(step).unwrap()), sequence, flags, piece)
            })
            .collect()
    }
}

pub(crate) fn shapes() -> impl Strategy<Value = Shape> {
    (any::<(bool, bool, bool, u16, u32, u8)>(), 0..=10_usize, 0..=10_usize).prop_map(
        |((v6, udp, extension, id, sequence, flags), ip_options, tcp_options)| Shape {
            v6,
            udp,
            ip_options,
            tcp_options,
            extension,
            id,
            sequence,
            flags,
        },
    )
}

/// Returns TCP over IPv4 with options; identification and sequence number are about to wrap.
pub(crate) fn plain() -> Shape {
    Shape {
        v6: false,
        udp: false,
        ip_options: 0,
        tcp_options: 3,
        extension: false,
        id: 0xfffe,
        sequence: u32::MAX - 100,
        flags: 0x99,
    }
}
