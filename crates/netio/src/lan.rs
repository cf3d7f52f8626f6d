//! IP groups at an interface of a router: packets of other hosts are heard, and packets of hosts elsewhere
//! are sent, with their own addresses.
//!
//! Both pass by packet sockets: the kernel neither forwards nor filters them, and programs of this host
//! neither hear nor send them.

use std::fmt;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use ipnet::IpNet;

use crate::error::step;
use crate::interface::{Interface, LinkKind, check, check_len};
use crate::tap::{Captured, Drained, Tap, TapConfig, TapKind};

/// Bytes of packets that may wait to be read.
const BUFFER_BYTES: usize = 4 << 20;
/// Length of an Ethernet address.
const ADDRESS: usize = 6;

/// Groups of the link to which hosts and routers send what they say about members (RFC 2236 §9, RFC 3376 §4,
/// RFC 3810 §5), besides the groups themselves.
const MEMBERS: [IpAddr; 6] = [
    IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(224, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(224, 0, 0, 22)),
    IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16)),
];

/// The groups of an interface.
///
/// Its descriptor becomes readable when packets wait.
pub struct Lan {
    tap: Tap,
    socket: OwnedFd,
    interface: Interface,
}

impl Lan {
    /// Opens the interface, in the network namespace of the calling thread, for packets of other hosts to
    /// these networks, and if `hears_members` to what they say about members of groups. It takes the packets
    /// of all groups until this is dropped.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`, `Unsupported` for an interface without Ethernet addresses,
    /// otherwise the kernel's error with the failed step.
    pub fn open(interface: &str, groups: &[IpNet], hears_members: bool) -> io::Result<Self> {
        let found = Interface::open(interface)
            .map_err(|error| step(&format!("find interface {interface}"), &error))?;
        if found.link_kind()? != LinkKind::Ethernet {
            let text = format!("expected an interface with Ethernet addresses, saw {interface} without them");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let members = MEMBERS.into_iter().filter(|_| hears_members).map(IpNet::from);
        let tap = Tap::open(&TapConfig {
            interface: interface.to_owned(),
            incoming_to: groups.iter().copied().chain(members).collect(),
            all_groups: true,
            kind: TapKind::Packet,
            buffer_bytes: BUFFER_BYTES,
            ..TapConfig::default()
        })?;
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // With protocol 0 the socket receives nothing.
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
            .map_err(|error| step("open a packet socket", &error))?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { tap, socket, interface: found })
    }

    /// Passes packets that were heard to `handle`, at most `budget` of them. They may be super-packets
    /// ([`crate::segment::cut`]).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn drain(&mut self, budget: usize, handle: impl FnMut(Captured<'_>)) -> io::Result<Drained> {
        self.tap.drain(budget, handle)
    }

    /// Sends a whole IP packet, from its IP header on, to the group that is its destination.
    ///
    /// # Errors
    /// `InvalidInput` if the destination is no group, otherwise the kernel's error: `EMSGSIZE` for a packet
    /// longer than the interface's MTU.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let Some((protocol, group)) = link_address(packet) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected a packet to a group, saw another one",
            ));
        };
        // SAFETY: all fields are numbers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = self.interface.index().cast_signed();
        address.sll_halen = ADDRESS as u8;
        address.sll_addr[..ADDRESS].copy_from_slice(&group);
        let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let (bytes, to) = (packet.as_ptr().cast(), (&raw const address).cast());
        // SAFETY: packet and address live through the call, and their lengths are given.
        check_len(unsafe { libc::sendto(fd, bytes, packet.len(), flags, to, len) }).map(drop)
    }

    /// Returns the addresses of this host on the interface: the first of IPv4, and the link-local one of
    /// IPv6. It queries the kernel, in the network namespace of the calling thread.
    pub fn addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        (self.interface.ipv4_address().ok().flatten(), self.interface.ipv6_link_local())
    }

    /// Whether the interface is still the one that was opened.
    pub fn is_alive(&self) -> bool {
        self.interface.is_alive()
    }

    /// Returns the number of packets that were not heard because nobody read them in time.
    pub fn dropped(&self) -> u64 {
        self.tap.dropped()
    }
}

impl AsFd for Lan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

impl fmt::Debug for Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lan").field("interface", &self.interface.name()).finish_non_exhaustive()
    }
}

/// Returns the Ethernet type of an IP packet, and the Ethernet address of the group to which it goes (RFC
/// 1112 §6.4, RFC 2464 §7).
fn link_address(packet: &[u8]) -> Option<(u16, [u8; ADDRESS])> {
    match packet.first()? >> 4 {
        4 => match *packet.get(16..20)?.first_chunk::<4>()? {
            [224..=239, b, c, d] => Some((libc::ETH_P_IP as u16, [0x01, 0x00, 0x5e, b & 0x7f, c, d])),
            _ => None,
        },
        6 => {
            let to = packet.get(24..40)?.first_chunk::<16>()?;
            let group = [0x33, 0x33, to[12], to[13], to[14], to[15]];
            (to[0] == 0xff).then_some((libc::ETH_P_IPV6 as u16, group))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_ethernet_addresses_and_others_none() {
        let v4 = |to: [u8; 4]| [&[0x45][..], &[0; 15], &to].concat();
        assert_eq!(link_address(&v4([239, 129, 2, 3])), Some((0x0800, [1, 0, 0x5e, 1, 2, 3])));
        assert_eq!(link_address(&v4([10, 129, 2, 3])), None);
        assert_eq!(link_address(&v4([239, 1, 2, 3])[..19]), None);
        let group: Ipv6Addr = "ff3e::8000:7".parse().unwrap();
        let v6 = [&[0x60][..], &[0; 23], &group.octets()].concat();
        assert_eq!(link_address(&v6), Some((0x86dd, [0x33, 0x33, 0x80, 0, 0, 7])));
        assert_eq!(link_address(&[]), None);
    }
}
