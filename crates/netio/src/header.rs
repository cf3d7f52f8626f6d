//! Parses IP headers just far enough to find the transport header.

use crate::checksum::Sum;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
/// Maximum number of extension headers followed in one packet.
const EXTENSIONS_MAX: usize = 8;

/// Offsets and fields of an IP packet. All lengths that it claims were checked against the bytes present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) version: u8,
    /// Offset of the transport header, after options and extension headers.
    pub(crate) transport: usize,
    /// Transport protocol, after the extension headers.
    pub(crate) protocol: u8,
    /// Length claimed by the IP header, at most the bytes present. Ethernet padding lies behind it.
    pub(crate) total: usize,
    /// The packet is a fragment, so its transport checksum covers bytes of other packets too.
    pub(crate) fragment: bool,
    /// An IPv6 routing header has segments left: the checksum covers another destination than the header's.
    pub(crate) routed: bool,
}

impl Layout {
    /// Finds the headers; returns `None` if this is not a whole IP packet.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::of_v4(packet),
            6 => Self::of_v6(packet),
            _ => None,
        }
    }

    fn of_v4(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<IPV4_HEADER_LEN>()?;
        let transport = usize::from(header[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if transport < IPV4_HEADER_LEN || transport > total || total > packet.len() {
            return None;
        }
        // more-fragments bit or offset
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        Some(Self { version: 4, transport, protocol: header[9], total, fragment, routed: false })
    }

    fn of_v6(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<IPV6_HEADER_LEN>()?;
        let total = IPV6_HEADER_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
        if total > packet.len() {
            return None;
        }
        let (mut protocol, mut transport) = (header[6], IPV6_HEADER_LEN);
        let (mut fragment, mut routed) = (false, false);
        for _ in 0..EXTENSIONS_MAX {
            // hop-by-hop, routing, fragment, authentication, destination options (RFC 8200 §4)
            if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
                return Some(Self { version: 6, transport, protocol, total, fragment, routed });
            }
            let extension = packet[transport..total].first_chunk::<8>()?;
            let length = match protocol {
                44 => 8,
                51 => (usize::from(extension[1]) + 2) * 4,
                _ => (usize::from(extension[1]) + 1) * 8,
            };
            match protocol {
                44 => fragment = true,
                43 => routed |= extension[3] != 0,
                _ => {}
            }
            protocol = extension[0];
            transport += length;
            if transport > total {
                return None;
            }
            if fragment {
                // the bytes after a fragment header may belong to the middle of any header
                return Some(Self { version: 6, transport, protocol, total, fragment, routed });
            }
        }
        None
    }

    /// Returns source and destination address as in the header, 8 or 32 bytes.
    pub(crate) fn addresses<'p>(&self, packet: &'p [u8]) -> &'p [u8] {
        if self.version == 4 { &packet[12..20] } else { &packet[8..40] }
    }

    /// Returns the sum of the pseudo-header without its length field (RFC 9293 §3.1, RFC 8200 §8.1).
    pub(crate) fn pseudo(&self, packet: &[u8]) -> Sum {
        Sum::of(self.addresses(packet)).word(u16::from(self.protocol))
    }

    /// Returns the offset of the checksum field within the transport header, if the header is long enough to
    /// hold it.
    pub(crate) fn checksum_offset(&self) -> Option<usize> {
        match self.protocol {
            TCP if self.total - self.transport >= 20 => Some(16),
            UDP if self.total - self.transport >= 8 => Some(6),
            _ => None,
        }
    }
}

/// Reads the big-endian 16-bit field at offset `at`.
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a big-endian 16-bit field at offset `at`.
pub(crate) fn put_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(next: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
        packet[6] = next;
        packet.extend_from_slice(body);
        packet
    }

    #[test]
    fn extension_headers_are_walked() {
        // hop-by-hop, destination options of 16 bytes, UDP
        let mut body = vec![60, 0, 0, 0, 0, 0, 0, 0, 17, 1];
        body.resize(24 + 8, 0);
        let layout = Layout::of(&v6(0, &body)).unwrap();
        assert_eq!((layout.protocol, layout.transport, layout.total), (17, 64, 72));
        assert!(!layout.fragment && !layout.routed);
    }

    #[test]
    fn fragments_and_routes_are_marked() {
        let layout = Layout::of(&v6(44, &[17, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3])).unwrap();
        assert!(layout.fragment);
        let mut routing = vec![6, 2, 4, 1, 0, 0, 0, 0];
        routing.resize(24 + 20, 0);
        let layout = Layout::of(&v6(43, &routing)).unwrap();
        assert!(layout.routed && layout.protocol == 6 && layout.transport == 64);
    }

    #[test]
    fn false_lengths_are_detected() {
        assert_eq!(Layout::of(&[]), None);
        assert_eq!(Layout::of(&[0x45; 19]), None);
        // header length below 20, and longer than the packet
        let mut packet = vec![0; 20];
        packet[3] = 20;
        for first in [0x44, 0x46, 0x4f] {
            packet[0] = first;
            assert_eq!(Layout::of(&packet), None);
        }
        packet[0] = 0x45;
        assert!(Layout::of(&packet).is_some());
        packet[3] = 21;
        assert_eq!(Layout::of(&packet), None);
        // an extension header that runs past the end, and an endless chain
        assert_eq!(Layout::of(&v6(0, &[6, 9, 0, 0, 0, 0, 0, 0])), None);
        assert_eq!(Layout::of(&v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(20))), None);
        assert_eq!(Layout::of(&v6(60, &[])), None);
    }
}
