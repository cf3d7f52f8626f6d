//! Comments of captured packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use maelstrom_core::counters::{Rejected, Unforwarded, Uninjected, Unprotected};
use maelstrom_core::wire::{Outer, SealedHeader};
use netio::checksum::Sum;

use crate::config::GatewayConfig;

/// Fate of a packet or datagram.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A packet left this site; why it was not protected.
    Left(Option<Unprotected>),
    /// A packet for the site of a peer in tunnel mode; why it was dropped.
    Tunnelled(Option<Unprotected>),
    /// A packet to an IP group, from a host of this site; why it does not cross.
    Heard(Option<Unforwarded>),
    /// A packet arrived from the site of a peer.
    Arrived,
    /// A datagram of ours.
    Sent { peer: usize, to: SocketAddr },
    /// A datagram of a peer, or of a stranger, and why it was refused.
    Received { peer: Option<usize>, from: SocketAddr, refused: Option<Rejected> },
    /// A lost packet, the number of the repair that brought it back, and why it was not injected.
    Recovered { peer: usize, repair: Option<u32>, late_us: Option<u64>, refused: Option<Uninjected> },
}

/// The names of the peers, and our end of the repair channel.
#[derive(Debug)]
pub(super) struct Names {
    listen: SocketAddr,
    peers: Vec<(String, Vec<IpNet>)>,
}

impl Names {
    pub(super) fn of(config: &GatewayConfig) -> Self {
        let peers = config.peers.iter().map(|peer| (peer.label(), peer.networks.clone()));
        Self { listen: config.gateway.listen, peers: peers.collect() }
    }

    #[cfg(test)]
    pub(super) fn empty() -> Self {
        Self { listen: ([0, 0, 0, 0], 4700).into(), peers: Vec::new() }
    }

    fn name(&self, peer: usize) -> &str {
        self.peers.get(peer).map_or("a peer", |(name, _)| name.as_str())
    }

    /// The peer whose site an address belongs to.
    fn owner(&self, address: Option<IpAddr>) -> &str {
        let is_of = |(_, networks): &&(String, Vec<IpNet>)| {
            address.is_some_and(|address| networks.iter().any(|network| network.contains(&address)))
        };
        self.peers.iter().find(is_of).map_or("no peer", |(name, _)| name.as_str())
    }

    /// Returns the packet as it was on the link, whether it came in, and the comment. `bytes`: the packet, or
    /// the payload of a datagram.
    pub(super) fn describe(&self, event: &Event, bytes: &[u8]) -> (Vec<u8>, bool, String) {
        match *event {
            Event::Left(reason) => {
                let to = self.owner(addresses(bytes).map(|[_, to]| to));
                let text = match reason {
                    None => format!("left for {to}, protected"),
                    Some(reason) => format!("left for {to}, not protected: {reason}"),
                };
                (bytes.to_vec(), false, text)
            }
            Event::Tunnelled(reason) => {
                let to = self.owner(addresses(bytes).map(|[_, to]| to));
                let text = match reason {
                    None => format!("left for {to} by the tunnel"),
                    Some(reason) => format!("dropped before the tunnel to {to}: {reason}"),
                };
                (bytes.to_vec(), false, text)
            }
            Event::Heard(reason) => {
                let text = match reason {
                    None => "left for the far sites that want its group".to_owned(),
                    Some(reason) => format!("not for far sites: {reason}"),
                };
                (bytes.to_vec(), false, text)
            }
            Event::Arrived => {
                let from = self.owner(addresses(bytes).map(|[from, _]| from));
                (bytes.to_vec(), true, format!("arrived from {from}"))
            }
            Event::Sent { peer, to } => {
                let text = format!("{} to {}", kind_of(bytes), self.name(peer));
                (udp(self.listen, to, bytes), false, text)
            }
            Event::Received { peer, from, refused } => {
                let sender = peer.map_or("a stranger", |peer| self.name(peer));
                let mut text = format!("{} of {sender}", kind_of(bytes));
                if let Some(reason) = refused {
                    text += &format!(", refused: {reason}");
                }
                (udp(from, self.listen, bytes), true, text)
            }
            Event::Recovered { peer, repair, late_us, refused } => {
                let means = match repair {
                    Some(number) => format!("recovered by repair {number} of {}", self.name(peer)),
                    None => "recovered when a late packet arrived".to_owned(),
                };
                let mut text = format!("lost, {means}");
                if let Some(us) = late_us {
                    text += &format!(", {:.1} ms late", us as f64 / 1_000.0);
                }
                if let Some(reason) = refused {
                    text += &format!(", not injected: {reason}");
                }
                (bytes.to_vec(), true, text)
            }
        }
    }
}

/// The kind of a datagram of the repair channel, by its outer header.
fn kind_of(datagram: &[u8]) -> String {
    match Outer::read(datagram) {
        Ok(Outer::Hello(_)) => "Hello".to_owned(),
        Ok(Outer::Sealed(SealedHeader { counter, .. })) => format!("datagram {counter}"),
        Err(_) => "unknown datagram".to_owned(),
    }
}

/// Source and destination of an IP packet.
fn addresses(packet: &[u8]) -> Option<[IpAddr; 2]> {
    match packet.first()? >> 4 {
        4 => {
            let at = |from: usize| Some(Ipv4Addr::from(*packet.get(from..)?.first_chunk::<4>()?).into());
            Some([at(12)?, at(16)?])
        }
        6 => {
            let at = |from: usize| Some(Ipv6Addr::from(*packet.get(from..)?.first_chunk::<16>()?).into());
            Some([at(8)?, at(24)?])
        }
        _ => None,
    }
}

/// Returns an IP packet with a UDP datagram. The headers are those that the kernel adds, apart from its
/// identification.
fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let (from_ip, to_ip) = (from.ip().to_canonical(), to.ip().to_canonical());
    let length = (8 + payload.len()).min(usize::from(u16::MAX) - 20) as u16;
    let payload = &payload[..usize::from(length) - 8];
    let mut packet = Vec::with_capacity(40 + usize::from(length));
    let addresses = match (from_ip, to_ip) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [high, low] = (20 + length).to_be_bytes();
            packet.extend_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0]);
            [from.octets(), to.octets()].concat()
        }
        _ => {
            let wide = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let [high, low] = length.to_be_bytes();
            packet.extend_from_slice(&[0x60, 0, 0, 0, high, low, 17, 64]);
            [wide(from_ip), wide(to_ip)].concat()
        }
    };
    packet.extend_from_slice(&addresses);
    if packet[0] == 0x45 {
        let sum = Sum::of(&packet).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let header = [from.port(), to.port(), length].map(u16::to_be_bytes).concat();
    let sum = Sum::of(&addresses).word(17).word(length).bytes(&header).bytes(payload).finish();
    // A checksum of zero means that there is none (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    packet.extend_from_slice(&header);
    packet.extend_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let listen = "10.81.9.1:4700".parse().unwrap();
        Names { listen, peers: vec![("osaka".to_owned(), vec!["10.81.2.0/24".parse().unwrap()])] }
    }

    #[test]
    fn comments_say_what_happened() {
        let packet = testkit::packet::udp4([10, 81, 1, 2].into(), [10, 81, 2, 3].into(), 0, 1, b"x");
        let said = |event| {
            let (bytes, is_incoming, text) = names().describe(&event, &packet);
            assert_eq!(bytes, packet);
            (is_incoming, text)
        };
        let left = |text: &str| (false, text.to_owned());
        assert_eq!(said(Event::Left(None)), left("left for osaka, protected"));
        let reason = Unprotected::PeerDown;
        assert_eq!(said(Event::Left(Some(reason))), left("left for osaka, not protected: peer down"));
        assert_eq!(said(Event::Tunnelled(None)), left("left for osaka by the tunnel"));
        assert_eq!(
            said(Event::Tunnelled(Some(reason))),
            left("dropped before the tunnel to osaka: peer down")
        );
        assert_eq!(said(Event::Heard(None)), left("left for the far sites that want its group"));
        assert_eq!(
            said(Event::Heard(Some(Unforwarded::Expiring))),
            left("not for far sites: time to live ends here")
        );
        assert_eq!(said(Event::Arrived), (true, "arrived from no peer".to_owned()));
        let recovered = Event::Recovered { peer: 0, repair: Some(4711), late_us: Some(3_210), refused: None };
        assert_eq!(
            said(recovered),
            (true, "lost, recovered by repair 4711 of osaka, 3.2 ms late".to_owned())
        );
    }

    #[test]
    fn datagrams_get_the_headers_that_the_kernel_adds() {
        for (from, to) in [("10.81.9.1:4700", "203.0.113.7:999"), ("[2001:db8::1]:4700", "[2001:db8::2]:999")]
        {
            let packet = udp(from.parse().unwrap(), to.parse().unwrap(), b"payload");
            let checked = maelstrom_core::packet::Packet::new_checked(&packet).unwrap();
            let to: SocketAddr = to.parse().unwrap();
            assert!(checked.is_udp_to(to) && checked.destination() == to.ip());
            let header = if to.is_ipv4() { 20 } else { 40 };
            assert_eq!(packet.len(), header + 8 + 7);
            if to.is_ipv4() {
                assert_eq!(Sum::of(&packet[..20]).fold(), 0xffff);
            }
            let addresses = &packet[header - if to.is_ipv4() { 8 } else { 32 }..header];
            assert_eq!(Sum::of(addresses).word(17).word(15).bytes(&packet[header..]).fold(), 0xffff);
        }
        let (_, is_incoming, text) = names().describe(
            &Event::Received {
                peer: None,
                from: "192.0.2.1:1".parse().unwrap(),
                refused: Some(Rejected::UnknownSender),
            },
            &[0x61; 60],
        );
        assert_eq!(
            (is_incoming, text.as_str()),
            (true, "unknown datagram of a stranger, refused: unknown sender")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_description(bytes: Vec<u8>) {
            let to = "10.81.9.2:4700".parse().unwrap();
            for event in [Event::Left(None), Event::Arrived, Event::Sent { peer: 7, to }] {
                let _ = names().describe(&event, &bytes);
            }
        }
    }
}
