//! Facts about this machine that limit a multicast node, for diagnostics. This module does not judge them.
//!
//! All values are those of the calling thread's network namespace. Settings below `/proc/sys/net` are those
//! of the reading thread. Limits of buffers are found by setting them on a socket, because not every
//! namespace shows the settings. Links are described by rtnetlink, because `/sys` describes the namespace in
//! which it was mounted. It alone tells which of them are wireless.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;

use socket2::Socket;

use super::error::{OpenError, interface_of};
use super::version::IpVersion;
use super::wireless;
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

/// Larger than any machine grants.
const BUFFER_REQUEST: usize = 1 << 29;

/// Limits of a multicast node at one interface. `None` means that a value could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The interface.
    pub interface: InterfaceFacts,
    /// `net.ipv4.igmp_max_memberships`: IPv4 groups that one socket may join.
    pub igmp_max_memberships: Option<u64>,
    /// `net.core.optmem_max` in bytes: memory for the options of a socket, among them its memberships.
    pub optmem_max_bytes: Option<u64>,
    /// Limits of the receive buffers of this process.
    pub receive_buffer: BufferLimits,
    /// Limits of the send buffers of this process.
    pub send_buffer: BufferLimits,
    /// `net.ipv4.ip_local_port_range`: range from which the kernel assigns ports to sockets that do not name
    /// one.
    pub ephemeral_ports: Option<RangeInclusive<u16>>,
    /// `net.ipv4.ip_local_reserved_ports`: ports excluded from that range.
    pub reserved_ports: Vec<RangeInclusive<u16>>,
    /// `net.ipv4.conf.*.rp_filter`: 0 is off; 1 drops packets that arrive by another interface than answers
    /// would leave by; 2 drops packets whose source no route reaches. The larger of the values of `all` and
    /// of the interface applies.
    pub reverse_path_filter: Option<u8>,
}

/// Sizes of a socket's buffer, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferLimits {
    /// Size without a request (`net.core.rmem_default`, `wmem_default`).
    pub default_bytes: usize,
    /// Largest size that may be requested (`net.core.rmem_max`, `wmem_max`). The kernel grants the double,
    /// because its own records count too.
    pub max_bytes: usize,
    /// Whether this process may exceed the maximum (`CAP_NET_ADMIN`).
    pub may_exceed: bool,
}

/// Current state of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceFacts {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface.
    pub index: u32,
    /// The interface is switched on.
    pub is_up: bool,
    /// The interface has a carrier.
    pub is_running: bool,
    /// The interface takes part in multicast (flag `MULTICAST`).
    pub is_multicast: bool,
    /// The interface is a loopback interface.
    pub is_loopback: bool,
    /// Size of the largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Addresses of the interface.
    pub addresses: Vec<IpAddr>,
    /// Bridge that the interface is, or of which it is a port. A bridge in another namespace (that of the
    /// host, seen from a container) is invisible.
    pub bridge: Option<BridgeFacts>,
    /// Wireless interface that carries its packets: itself, or one below it. `None` if there is none, or if
    /// `/sys` shows another network namespace.
    pub wireless: Option<String>,
}

/// Multicast settings of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BridgeFacts {
    /// Name of the bridge.
    pub name: String,
    /// The interface is a port of the bridge, not the bridge itself.
    pub is_port: bool,
    /// The bridge forwards a group only to ports with members. Without a querier, it forgets them.
    pub snooping: bool,
    /// The bridge itself sends queries for members.
    pub querier: bool,
    /// IPv4 address of the querier, if one was heard.
    pub querier_v4: Option<Ipv4Addr>,
    /// IPv6 address of the querier, if one was heard.
    pub querier_v6: Option<Ipv6Addr>,
    /// Maximum number of groups that the bridge tracks; with more, it stops snooping.
    pub groups_max: Option<u32>,
}

impl Limits {
    /// Reads all limits for the interface of that name.
    ///
    /// # Errors
    /// [`OpenError::Interface`] if there is no such interface, [`OpenError::System`] if no socket can be
    /// made.
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
            receive_buffer: BufferLimits::probe(
                &socket,
                Socket::recv_buffer_size,
                Socket::set_recv_buffer_size,
                options::force_receive_buffer,
            ),
            send_buffer: BufferLimits::probe(
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

    /// Returns whether the kernel may assign that port to any other socket, so that a node finds it taken.
    /// `None` if the range is unknown.
    pub fn is_ephemeral(&self, port: u16) -> Option<bool> {
        let range = self.ephemeral_ports.as_ref()?;
        Some(range.contains(&port) && !self.reserved_ports.iter().any(|reserved| reserved.contains(&port)))
    }
}

impl BufferLimits {
    fn probe(
        socket: &Socket,
        read: impl Fn(&Socket) -> io::Result<usize>,
        set: impl Fn(&Socket, usize) -> io::Result<()>,
        force: impl Fn(&Socket, usize) -> io::Result<()>,
    ) -> Self {
        // the kernel does not double its default
        let default_bytes = read(socket).unwrap_or(0);
        let _ = set(socket, BUFFER_REQUEST);
        let max_bytes = read(socket).unwrap_or(0) / 2;
        let may_exceed = force(socket, max_bytes + 4096).is_ok();
        Self { default_bytes, max_bytes, may_exceed }
    }
}

impl InterfaceFacts {
    /// Reads the state of an interface.
    ///
    /// # Errors
    /// [`OpenError::Interface`].
    pub fn read(name: &str) -> Result<Self, OpenError> {
        let index = interface_of(name)?.index();
        let (flags, link_attributes) =
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
            bridge: BridgeFacts::read(&link_attributes),
            wireless: wireless::wireless_of(Path::new(wireless::INTERFACES), name, index),
            ..Self::default()
        };
        for (kind, data) in attributes(&link_attributes) {
            match kind {
                libc::IFLA_MTU => facts.mtu_bytes = word(data).unwrap_or(0),
                // the master may also be a bond or another kind that is not a bridge
                libc::IFLA_MASTER => {
                    let master = word(data).and_then(|master| link(master).ok());
                    let bridge = master.and_then(|(_, link_attributes)| BridgeFacts::read(&link_attributes));
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
    /// Parses a link's attributes; returns `None` if it is not a bridge.
    fn read(link_attributes: &[u8]) -> Option<Self> {
        let information = find(link_attributes, libc::IFLA_LINKINFO)?;
        if text(find(information, INFO_KIND)?) != "bridge" {
            return None;
        }
        let mut facts = Self { name: text(find(link_attributes, libc::IFLA_IFNAME)?), ..Self::default() };
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

/// Returns the addresses of an interface, or none if the kernel does not list them.
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

/// Parses `8080` or `8080-8090`.
fn port_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
