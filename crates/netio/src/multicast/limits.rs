//! What this machine allows a multicast node, read for a doctor: data without opinion.
//!
//! All of it is as the calling thread's network namespace has it. The settings below `/proc/sys/net` are those of the
//! thread that reads them; limits of buffers are found by asking a socket, for not every namespace may see the settings;
//! links are asked for by rtnetlink, for `/sys` tells of the namespace in which it was mounted.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use socket2::Socket;

use super::{IpVersion, OpenError, interface_of};
use crate::batch::options;
use crate::netlink::{attributes, link};

// linux/if_link.h, linux/if_bridge.h
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const BRIDGE_SNOOPING: u16 = 23;
const BRIDGE_QUERIER: u16 = 25;
const BRIDGE_GROUPS_MAX: u16 = 27;
const BRIDGE_QUERIER_STATE: u16 = 47;
const QUERIER_V4: u16 = 1;
const QUERIER_V6: u16 = 5;

/// More than any machine grants.
const BUFFER_ASKED: usize = 1 << 29;

/// What bounds a multicast node at one interface. What is `None` could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The interface.
    pub interface: InterfaceFacts,
    /// `net.ipv4.igmp_max_memberships`: IPv4 groups that one socket may join.
    pub igmp_max_memberships: Option<u64>,
    /// `net.core.optmem_max` in bytes: memory for the options of a socket, among them its memberships.
    pub optmem_max_bytes: Option<u64>,
    /// What sockets of this process receive into.
    pub receive_buffer: BufferLimits,
    /// What sockets of this process send from.
    pub send_buffer: BufferLimits,
    /// `net.ipv4.ip_local_port_range`: from here the kernel takes ports for whoever wants any.
    pub ephemeral_ports: Option<RangeInclusive<u16>>,
    /// `net.ipv4.ip_local_reserved_ports`: but not these.
    pub reserved_ports: Vec<RangeInclusive<u16>>,
    /// `net.ipv4.conf.*.rp_filter`: 0 off; 1 drops what comes by another interface than answers would leave by; 2 drops
    /// what no answer would reach. The larger of that for all and that of the interface is in force.
    pub reverse_path_filter: Option<u8>,
}

/// The buffers of a socket, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferLimits {
    /// What a socket has that does not ask (`net.core.rmem_default`, `wmem_default`).
    pub default_bytes: usize,
    /// The most that it may ask for (`net.core.rmem_max`, `wmem_max`). It then has twice as much, for the kernel's own
    /// records count as well.
    pub max_bytes: usize,
    /// This process may go beyond that (`CAP_NET_ADMIN`).
    pub may_exceed: bool,
}

/// An interface as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// It is switched on.
    pub is_up: bool,
    /// It has a carrier: a cable, or what stands for one.
    pub is_running: bool,
    /// It takes part in multicast (flag `MULTICAST`).
    pub is_multicast: bool,
    /// It leads back to this host.
    pub is_loopback: bool,
    /// Largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The bridge that it is, or of which it is a port. One in another namespace (that of the host, seen from a
    /// container) does not show.
    pub bridge: Option<BridgeFacts>,
}

/// A bridge, as far as it hands on multicast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeFacts {
    /// Its name.
    pub name: String,
    /// The interface asked about is one of its ports, not the bridge itself.
    pub is_port: bool,
    /// It sends a group only to ports behind which it is wanted. Without a querier it forgets who wants it.
    pub snooping: bool,
    /// It asks itself who wants what.
    pub querier: bool,
    /// Who asks for IPv4, if anyone was heard.
    pub querier_v4: Option<Ipv4Addr>,
    /// Who asks for IPv6, if anyone was heard.
    pub querier_v6: Option<Ipv6Addr>,
    /// So many groups it knows at most; with more it stops snooping.
    pub groups_max: Option<u32>,
}

impl Limits {
    /// Reads all of it, for the interface of that name.
    ///
    /// # Errors
    /// [`OpenError::Interface`] if there is no such interface, [`OpenError::System`] if no socket can be made.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = netio::multicast::Limits::read("lo")?;
    /// assert!(limits.interface.is_loopback);
    /// # Ok(()) }
    /// ```
    pub fn read(interface: &str) -> Result<Self, OpenError> {
        let facts = InterfaceFacts::read(interface)?;
        let socket = options::udp_socket(IpVersion::V4.wildcard(0))
            .or_else(|_| options::udp_socket(IpVersion::V6.wildcard(0)))
            .map_err(OpenError::system("make a UDP socket"))?;
        let filter = |name: &str| setting(&format!("ipv4/conf/{name}/rp_filter"))?.trim().parse::<u8>().ok();
        Ok(Self {
            igmp_max_memberships: number("ipv4/igmp_max_memberships"),
            optmem_max_bytes: number("core/optmem_max"),
            receive_buffer: BufferLimits::ask(
                &socket,
                Socket::recv_buffer_size,
                Socket::set_recv_buffer_size,
                options::force_receive_buffer,
            ),
            send_buffer: BufferLimits::ask(
                &socket,
                Socket::send_buffer_size,
                Socket::set_send_buffer_size,
                options::force_send_buffer,
            ),
            ephemeral_ports: setting("ipv4/ip_local_port_range").and_then(|text| {
                let mut ports = text.split_ascii_whitespace().map_while(|port| port.parse().ok());
                Some(ports.next()?..=ports.next()?)
            }),
            reserved_ports: setting("ipv4/ip_local_reserved_ports")
                .map_or_else(Vec::new, |text| text.trim().split(',').filter_map(port_range).collect()),
            reverse_path_filter: filter("all").max(filter(interface)),
            interface: facts,
        })
    }

    /// Whether the kernel may give that port to somebody who wants any, so that it is taken when a node wants it.
    /// `None` if that is not known.
    #[must_use]
    pub fn is_ephemeral(&self, port: u16) -> Option<bool> {
        let range = self.ephemeral_ports.as_ref()?;
        Some(range.contains(&port) && !self.reserved_ports.iter().any(|reserved| reserved.contains(&port)))
    }
}

impl BufferLimits {
    fn ask(
        socket: &Socket,
        read: impl Fn(&Socket) -> io::Result<usize>,
        set: impl Fn(&Socket, usize) -> io::Result<()>,
        force: impl Fn(&Socket, usize) -> io::Result<()>,
    ) -> Self {
        // what nobody has asked for is not doubled
        let default_bytes = read(socket).unwrap_or(0);
        let _ = set(socket, BUFFER_ASKED);
        let max_bytes = read(socket).unwrap_or(0) / 2;
        let may_exceed = force(socket, max_bytes + 4096).is_ok();
        Self { default_bytes, max_bytes, may_exceed }
    }
}

impl InterfaceFacts {
    /// Reads it.
    ///
    /// # Errors
    /// [`OpenError::Interface`].
    pub fn read(name: &str) -> Result<Self, OpenError> {
        let index = interface_of(name)?.index();
        let (flags, told) =
            link(index).map_err(|source| OpenError::Interface { name: name.to_owned(), source })?;
        let has = |flag: libc::c_int| flags & flag.cast_unsigned() != 0;
        let mut facts = Self {
            name: name.to_owned(),
            index,
            is_up: has(libc::IFF_UP),
            is_running: has(libc::IFF_RUNNING),
            is_multicast: has(libc::IFF_MULTICAST),
            is_loopback: has(libc::IFF_LOOPBACK),
            addresses: addresses_of(name),
            bridge: BridgeFacts::read(&told),
            ..Self::default()
        };
        for (kind, data) in attributes(&told) {
            match kind {
                libc::IFLA_MTU => facts.mtu_bytes = word(data).unwrap_or(0),
                // the master of a port may also be a bond, or something else that is no bridge
                libc::IFLA_MASTER => {
                    let master = word(data).and_then(|master| link(master).ok());
                    let bridge = master.and_then(|(_, told)| BridgeFacts::read(&told));
                    facts.bridge =
                        bridge.map(|bridge| BridgeFacts { is_port: true, ..bridge }).or(facts.bridge);
                }
                _ => {}
            }
        }
        Ok(facts)
    }
}

impl BridgeFacts {
    /// Reads what is told of a link; `None` if it is no bridge.
    fn read(told: &[u8]) -> Option<Self> {
        let information = find(told, libc::IFLA_LINKINFO)?;
        if text(find(information, INFO_KIND)?) != "bridge" {
            return None;
        }
        let mut facts = Self { name: text(find(told, libc::IFLA_IFNAME)?), ..Self::default() };
        for (kind, data) in attributes(find(information, INFO_DATA)?) {
            match kind {
                BRIDGE_SNOOPING => facts.snooping = data.first().is_some_and(|&on| on != 0),
                BRIDGE_QUERIER => facts.querier = data.first().is_some_and(|&on| on != 0),
                BRIDGE_GROUPS_MAX => facts.groups_max = word(data),
                BRIDGE_QUERIER_STATE => {
                    let address = find(data, QUERIER_V4).and_then(|data| <[u8; 4]>::try_from(data).ok());
                    facts.querier_v4 = address.map(Ipv4Addr::from);
                    let address = find(data, QUERIER_V6).and_then(|data| <[u8; 16]>::try_from(data).ok());
                    facts.querier_v6 = address.map(Ipv6Addr::from);
                }
                _ => {}
            }
        }
        Some(facts)
    }
}

fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, data)| data)
}

fn word(data: &[u8]) -> Option<u32> {
    data.try_into().ok().map(u32::from_ne_bytes)
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).trim_end_matches('\0').to_owned()
}

/// The addresses of an interface; none if the kernel does not list them.
fn addresses_of(name: &str) -> Vec<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let address = |entry: nix::ifaddrs::InterfaceAddress| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    all.filter(|entry| entry.interface_name == name).filter_map(address).collect()
}

fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/{path}")).ok()
}

fn number(path: &str) -> Option<u64> {
    setting(path)?.trim().parse().ok()
}

/// `8080` or `8080-8090`.
fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
