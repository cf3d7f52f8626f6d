//! Queries to the kernel's routing tables, over one blocking netlink socket.
//!
//! Netlink answers for the network namespace of the calling thread, which `/sys/class/net` does not.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::route::{Interface, Route};

/// Maximum number of datagrams in one answer: far more than a machine with thousands of interfaces sends.
const DATAGRAMS_MAX: usize = 4096;

/// Length of a netlink message's header in bytes (RFC 3549 §2.3.2).
const HEADER_BYTES: usize = 16;

/// A netlink socket.
pub(super) struct Netlink(Socket);

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Returns all interfaces with their addresses.
    pub(super) fn interfaces(&self) -> io::Result<Vec<Interface>> {
        let mut interfaces: Vec<Interface> = Vec::new();
        self.query(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                interfaces.extend(interface(&link));
            }
        })?;
        self.query(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP, |answer| {
            let RouteNetlinkMessage::NewAddress(message) = answer else { return };
            let Some(owner) = interfaces.iter_mut().find(|one| one.index == message.header.index) else {
                return;
            };
            owner.addresses.extend(own_address(&message));
        })?;
        Ok(interfaces)
    }

    /// Returns the route to `destination`, if there is one.
    pub(super) fn route(&self, destination: IpAddr, interfaces: &[Interface]) -> io::Result<Option<Route>> {
        let mut query = RouteMessage::default();
        let v4 = destination.is_ipv4();
        query.header.address_family = if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
        query.header.destination_prefix_length = if v4 { 32 } else { 128 };
        query.attributes.push(RouteAttribute::Destination(RouteAddress::from(destination)));
        let mut found = None;
        let answered = self.query(RouteNetlinkMessage::GetRoute(query), 0, |answer| {
            if let RouteNetlinkMessage::NewRoute(message) = answer {
                found = route(&message, interfaces);
            }
        });
        match answered {
            Ok(()) => Ok(found),
            // The kernel reports a missing route as an error.
            Err(error) => match error.raw_os_error() {
                Some(
                    nix::libc::ENETUNREACH | nix::libc::EHOSTUNREACH | nix::libc::EACCES | nix::libc::EINVAL,
                ) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Sends a request and passes each message of the answer to `each`.
    fn query(
        &self,
        request: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        for _ in 0..DATAGRAMS_MAX {
            let (datagram, _) = self.0.recv_from_full()?;
            let done = deliver(&datagram, &mut each)?;
            // Only a dump has several datagrams and a mark at its end.
            if done || flags & NLM_F_DUMP == 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("the kernel's answer has no end"))
    }
}

/// Passes the messages of a datagram to `each`; true if the answer ends in it. Messages that the parser does
/// not know are skipped, because newer kernels send more than it knows.
fn deliver(datagram: &[u8], each: &mut impl FnMut(RouteNetlinkMessage)) -> io::Result<bool> {
    let mut rest = datagram;
    while let Some(length) = rest.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes) as usize) {
        if length < HEADER_BYTES || length > rest.len() {
            return Ok(true);
        }
        if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..length]) {
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(inner) => each(inner),
                _ => {}
            }
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    Ok(false)
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    })?;
    let flags = link.header.flags;
    Some(Interface {
        name,
        index: link.header.index,
        mtu,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback),
        bridge: kind_of(link) == Some(&InfoKind::Bridge),
        tun: kind_of(link) == Some(&InfoKind::Tun),
        master: link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Controller(index) if *index > 0 => Some(*index),
            _ => None,
        }),
        carrier_index: carrier_index(link),
        addresses: Vec::new(),
    })
}

fn kind_of(link: &LinkMessage) -> Option<&InfoKind> {
    let infos = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    })
}

/// The interface that carries this one. The other end of a veth pair carries nothing, and an index in another
/// namespace says nothing here.
fn carrier_index(link: &LinkMessage) -> Option<u32> {
    let is_elsewhere = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::LinkNetNsId(_));
    if kind_of(link) == Some(&InfoKind::Veth) || link.attributes.iter().any(is_elsewhere) {
        return None;
    }
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) if *index > 0 && *index != link.header.index => Some(*index),
        _ => None,
    })
}

/// The address of this machine. On a point-to-point interface it is `Local`, and `Address` is the far end's.
/// On others both are equal, or only `Address` is present.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
    let pick = |local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) if local => Some(*ip),
            AddressAttribute::Address(ip) if !local => Some(*ip),
            _ => None,
        })
    };
    pick(true).or_else(|| pick(false))
}

fn route(message: &RouteMessage, interfaces: &[Interface]) -> Option<Route> {
    if matches!(message.header.kind, RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit) {
        return None;
    }
    let mut found = Route { interface: String::new(), gateway: None, mtu: None };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => {
                let owner = interfaces.iter().find(|interface| interface.index == *index);
                found.interface =
                    owner.map_or(format!("interface {index}"), |interface| interface.name.clone());
            }
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) => found.gateway = Some(IpAddr::V4(*ip)),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => found.gateway = Some(IpAddr::V6(*ip)),
            RouteAttribute::Metrics(metrics) => {
                found.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    (!found.interface.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_the_loopback_interface() {
        let netlink = Netlink::open().unwrap();
        let interfaces = netlink.interfaces().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.loopback).expect("a loopback interface");
        assert_eq!(loopback.name, "lo");
        assert!(loopback.mtu >= 1500);
    }

    #[test]
    fn a_route_names_an_interface_or_is_none() {
        let netlink = Netlink::open().unwrap();
        let interfaces = netlink.interfaces().unwrap();
        let up = interfaces.iter().any(|interface| interface.loopback && interface.up);
        let route = netlink.route(IpAddr::from([127, 0, 0, 1]), &interfaces).unwrap();
        assert_eq!(route.map(|route| route.interface), up.then(|| "lo".to_owned()));
        // A destination without a route is no error.
        netlink.route("2001:db8::1".parse().unwrap(), &interfaces).unwrap();
    }

    #[test]
    fn a_datagram_of_garbage_ends_the_answer() {
        for length in 0..64_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let _ = deliver(&bytes, &mut |_| {});
        }
    }
}
