//! Looks into tunnels for datagrams of the repair channel, which must not be protected by further repairs.

use std::net::SocketAddr;

use crate::packet::Packet;

const UDP: u8 = 17;
const GRE: u8 = 47;
const IPV4: u8 = 4;
const IPV6: u8 = 41;
/// Maximum nesting of tunnels that is followed.
const LAYERS_MAX: usize = 3;
/// VXLAN, VXLAN of early Linux, and Geneve without options.
const UDP_TUNNELS: [u16; 3] = [4789, 8472, 6081];
/// Length of UDP header, VXLAN or Geneve header, and Ethernet header.
const UDP_TUNNEL_LEN: usize = 8 + 8 + 14;

/// Returns the destination of a UDP datagram inside a tunnel, or `None` if the packet is no tunnel's, its
/// content is encrypted, or its content is no UDP.
pub(crate) fn udp_inside(packet: &Packet<'_>) -> Option<SocketAddr> {
    let mut at = 0;
    let bytes = packet.as_slice();
    for _ in 0..LAYERS_MAX {
        // A header may claim to be longer than its packet.
        let view = Packet::new_checked(bytes.get(at..)?).ok()?;
        let (protocol, transport) = view.transport()?;
        match inner(view.as_slice(), protocol, transport) {
            Some(next) => at += next,
            None if protocol == UDP && at > 0 => return view.udp_destination(),
            None => return None,
        }
    }
    None
}

/// Returns the offset of the packet inside a tunnel's packet.
fn inner(packet: &[u8], protocol: u8, transport: usize) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let is_ip = |ethertype: u16| matches!(ethertype, 0x0800 | 0x86dd);
    match protocol {
        IPV4 | IPV6 => Some(transport),
        GRE => {
            let (flags, kind) = (word(transport)?, word(transport + 2)?);
            // Checksum, key and sequence number (RFC 2784, RFC 2890).
            let fields = [0x8000, 0x2000, 0x1000].into_iter().filter(|flag| flags & flag != 0).count();
            let inner = transport + 4 + 4 * fields;
            match kind {
                0x6558 => is_ip(word(inner + 12)?).then_some(inner + 14),
                kind => is_ip(kind).then_some(inner),
            }
        }
        UDP if UDP_TUNNELS.contains(&word(transport + 2)?) => {
            let inner = transport + UDP_TUNNEL_LEN;
            is_ip(word(inner - 2)?).then_some(inner)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{udp4, udp6};

    /// An IPv4 packet of this protocol around `payload`.
    fn around(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = udp4([10, 0, 0, 1], [10, 0, 1, 1], 7, payload);
        packet.drain(20..28);
        let total = u16::try_from(packet.len()).unwrap();
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[9] = protocol;
        packet
    }

    fn found(packet: &[u8]) -> Option<SocketAddr> {
        udp_inside(&Packet::new_checked(packet).unwrap())
    }

    #[test]
    fn headers_that_claim_more_than_their_packet_has_are_no_tunnel() {
        for (flags, kind) in [([0x80, 0], [0x08, 0]), ([0x20, 0], [0x86, 0xdd]), ([0x10, 0], [0x08, 0])] {
            assert_eq!(found(&around(GRE, &[flags, kind].concat())), None);
        }
        // An authentication header of 1,028 bytes in a packet of 48.
        let mut v6 = udp6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), b"");
        (v6[6], v6[40], v6[41]) = (51, IPV4, 255);
        assert_eq!(found(&v6), None);
        assert_eq!(found(&around(IPV6, &v6)), None);
    }

    #[test]
    fn a_datagram_is_found_in_every_tunnel_and_a_plain_one_is_none() {
        let v4 = udp4([10, 9, 0, 1], [10, 9, 0, 2], 7, b"repair");
        let v6 = udp6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), b"repair");
        let port = |packet: &[u8], at: usize| u16::from_be_bytes(packet[at + 2..at + 4].try_into().unwrap());
        let to_v4 = SocketAddr::new([10, 9, 0, 2].into(), port(&v4, 20));
        let to_v6 = SocketAddr::new("fd00::2".parse().unwrap(), port(&v6, 40));
        assert_eq!((found(&v4), found(&v6)), (None, None));
        assert_eq!(found(&around(IPV4, &v4)), Some(to_v4));
        assert_eq!(found(&around(IPV6, &v6)), Some(to_v6));
        assert_eq!(found(&around(IPV4, &around(IPV4, &v4))), Some(to_v4));
        for (flags, fields) in [(0, 0), (0x2000, 4), (0xb000, 12)] {
            let gre = |kind: u16, inner: &[u8]| {
                [&u16::to_be_bytes(flags)[..], &kind.to_be_bytes(), &vec![0; fields], inner].concat()
            };
            assert_eq!(found(&around(GRE, &gre(0x86dd, &v6))), Some(to_v6));
            let frame = [&[0; 12][..], &[8, 0], &v4].concat();
            assert_eq!(found(&around(GRE, &gre(0x6558, &frame))), Some(to_v4));
            assert_eq!(found(&around(GRE, &gre(0x8847, &v4))), None);
        }
        let vxlan = [&[8][..], &[0; 7], &[0; 12], &[8, 0], &v4].concat();
        let mut vxlan = udp4([10, 0, 0, 1], [10, 0, 1, 1], 7, &vxlan);
        assert_eq!(found(&vxlan), None);
        vxlan[22..24].copy_from_slice(&4789_u16.to_be_bytes());
        assert_eq!(found(&vxlan), Some(to_v4));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(protocol: u8, payload: Vec<u8>) {
            for protocol in [protocol, IPV4, IPV6, GRE, UDP] {
                let _ = found(&around(protocol, &payload));
            }
        }
    }
}
