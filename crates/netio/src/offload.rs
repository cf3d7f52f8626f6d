//! Work that the kernel leaves undone on a packet, as described by a virtio-net header or a tap: segmentation
//! and checksum.

/// Length in bytes of the virtio-net header before each packet.
pub const VIRTIO_HEADER_LEN: usize = 10;

// linux/virtio_net.h
const FLAG_NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Kind of super-packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gso {
    /// A single packet.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4: equal-sized datagrams, the last may be shorter.
    Udp4,
    /// UDP over IPv6: equal-sized datagrams, the last may be shorter.
    Udp6,
    /// A super-packet of a kind that is not cut (SCTP, encapsulated, the old UDP fragmentation offload).
    Unknown,
}

/// Work left before a packet looks as it does on the wire.
///
/// `Offload::default()` is a packet with no work left. More fields may be added, so build other values from
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offload {
    /// Kind of super-packet, `Gso::None` for a single packet.
    pub gso: Gso,
    /// Payload bytes of every segment except the last; 0 for a single packet.
    pub segment_size: u16,
    /// Number of segments according to the kernel; 0 or 1 on a super-packet if the kernel did not report it.
    /// No virtio-net header reports it, and the kernel does not know it for a super-packet that came with
    /// one.
    pub segment_count: u16,
    /// The transport checksum is unfinished: its field holds the folded sum of the pseudo-header. A tap that
    /// cannot know reports `false`; [`crate::segment::cut`] then examines the field itself.
    pub needs_checksum: bool,
    /// Offset from the IP header where the data of the unfinished checksum begins; 0 if unknown.
    pub checksum_start: u16,
    /// Offset of the checksum field from `checksum_start`.
    pub checksum_offset: u16,
    /// IPv4 headers whose flows were seen counting their identifications, a bit for each IP header: bit 0 is
    /// the outermost. Without the bit, identification 0 with "don't fragment" is that of all segments: some
    /// systems send it with every TCP segment, GRO merges these too, and no header reports it.
    pub counting: u8,
}

impl Offload {
    /// Describes a super-packet of that kind with an unfinished checksum.
    pub fn segments(gso: Gso, segment_size: u16) -> Self {
        Self { gso, segment_size, needs_checksum: true, ..Self::default() }
    }

    /// Returns whether this is a super-packet.
    pub fn is_super(&self) -> bool {
        self.gso != Gso::None
    }

    /// Reads a virtio-net header in the machine's byte order. `packet` gives the IP version of a UDP
    /// super-packet.
    pub fn from_virtio(header: &[u8; VIRTIO_HEADER_LEN], packet: &[u8]) -> Self {
        let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let gso = match (header[1] & !GSO_ECN, packet.first().map(|byte| byte >> 4)) {
            (GSO_NONE, _) => Gso::None,
            (GSO_TCPV4, _) => Gso::Tcp4,
            (GSO_TCPV6, _) => Gso::Tcp6,
            (GSO_UDP_L4, Some(4)) => Gso::Udp4,
            (GSO_UDP_L4, Some(6)) => Gso::Udp6,
            _ => Gso::Unknown,
        };
        let needs_checksum = header[0] & FLAG_NEEDS_CSUM != 0;
        Self {
            gso,
            segment_size: if gso == Gso::None { 0 } else { field(4) },
            segment_count: 0,
            needs_checksum,
            checksum_start: if needs_checksum { field(6) } else { 0 },
            checksum_offset: if needs_checksum { field(8) } else { 0 },
            counting: 0,
        }
    }

    /// Returns the virtio-net header for this offload. `header_len` is the length of all headers of a
    /// super-packet.
    ///
    /// `checksum_start` must be known if `needs_checksum` is set. `congestion` reports that the TCP header
    /// has CWR set.
    pub fn to_virtio(&self, header_len: u16, congestion: bool) -> [u8; VIRTIO_HEADER_LEN] {
        let mut header = [0; VIRTIO_HEADER_LEN];
        if self.needs_checksum {
            header[0] = FLAG_NEEDS_CSUM;
            header[6..8].copy_from_slice(&self.checksum_start.to_ne_bytes());
            header[8..10].copy_from_slice(&self.checksum_offset.to_ne_bytes());
        }
        let kind = match self.gso {
            Gso::None | Gso::Unknown => return header,
            Gso::Tcp4 => GSO_TCPV4,
            Gso::Tcp6 => GSO_TCPV6,
            Gso::Udp4 | Gso::Udp6 => GSO_UDP_L4,
        };
        header[1] = if congestion { kind | GSO_ECN } else { kind };
        header[2..4].copy_from_slice(&header_len.to_ne_bytes());
        header[4..6].copy_from_slice(&self.segment_size.to_ne_bytes());
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_header_survives_the_round_trip() {
        for (gso, first) in [(Gso::Tcp4, 0x45), (Gso::Tcp6, 0x60), (Gso::Udp4, 0x45), (Gso::Udp6, 0x60)] {
            let offload = Offload { checksum_start: 40, checksum_offset: 16, ..Offload::segments(gso, 1300) };
            assert_eq!(Offload::from_virtio(&offload.to_virtio(60, false), &[first]), offload);
            assert_eq!(Offload::from_virtio(&offload.to_virtio(60, true), &[first]), offload);
        }
        assert_eq!(
            Offload::from_virtio(&Offload::default().to_virtio(0, false), &[0x45]),
            Offload::default()
        );
    }

    #[test]
    fn other_kinds_are_unknown() {
        let mut header = [0; VIRTIO_HEADER_LEN];
        for kind in [2, 3, 6, 0x7f] {
            header[1] = kind;
            assert_eq!(Offload::from_virtio(&header, &[0x45]).gso, Gso::Unknown);
        }
        header[1] = GSO_UDP_L4;
        assert_eq!(Offload::from_virtio(&header, &[]).gso, Gso::Unknown);
    }
}
