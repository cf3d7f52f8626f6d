//! Where the kernel would forward a packet that arrives by an interface.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::interface::{check, check_len};
use crate::netlink::{attributes, word};

/// `nlmsghdr`: length, kind, flags, sequence, port.
const HEADER: usize = 16;
/// `rtmsg`: family, lengths of destination and source, type of service, table, protocol, scope, kind, flags.
const ROUTE: usize = 12;
/// Length of a request with two IPv6 addresses and an interface.
const REQUEST_MAX: usize = HEADER + ROUTE + 2 * (4 + 16) + 8;
/// Longest answer that is read; a route with many next hops is longer, and its end is not needed.
const ANSWER_MAX: usize = 4096;

// linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;

/// Asks the kernel for routes, in the network namespace of the thread that opened it.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// let routes = netio::route::Routes::open()?;
/// let wan = netio::interface::Interface::open("wan0")?.index();
/// let out = routes.leaves_by("10.81.1.2".parse().unwrap(), "10.81.2.2".parse().unwrap(), wan)?;
/// println!("it leaves by interface {out:?}");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Routes {
    socket: OwnedFd,
}

impl Routes {
    /// Opens a socket to the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Returns the index of the interface by which a packet leaves that arrives by the interface
    /// `arrives_by`, or `None` if the kernel would drop it. Packets for this machine leave by the loopback
    /// interface. Costs two system calls.
    ///
    /// # Errors
    /// The kernel's error, except that it would drop the packet.
    pub fn leaves_by(&self, source: IpAddr, destination: IpAddr, arrives_by: u32) -> io::Result<Option<u32>> {
        let mut bytes = [0; REQUEST_MAX];
        let request = request(&mut bytes, source, destination, arrives_by);
        let fd = self.socket.as_raw_fd();
        // SAFETY: the request is readable memory of that length; without an address it goes to the kernel.
        check_len(unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) })?;
        let mut answer = [0_u8; ANSWER_MAX];
        // The kernel answers before `send` returns, so this call does not wait.
        // SAFETY: the answer is writable memory of that length.
        let len = check_len(unsafe { libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) })?;
        interface_in(&answer[..len])
    }
}

fn request(bytes: &mut [u8; REQUEST_MAX], source: IpAddr, destination: IpAddr, arrives_by: u32) -> &[u8] {
    let family = if destination.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let bits = if destination.is_ipv4() { 32 } else { 128 };
    bytes[4..6].copy_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes[HEADER..HEADER + 3].copy_from_slice(&[family as u8, bits, bits]);
    let mut len = HEADER + ROUTE;
    let mut append = |kind: u16, data: &[u8]| {
        let end = len + 4 + data.len();
        bytes[len..len + 2].copy_from_slice(&(4 + data.len() as u16).to_ne_bytes());
        bytes[len + 2..len + 4].copy_from_slice(&kind.to_ne_bytes());
        bytes[len + 4..end].copy_from_slice(data);
        len = end;
    };
    for (kind, address) in [(RTA_DST, destination), (RTA_SRC, source)] {
        match address {
            IpAddr::V4(address) => append(kind, &address.octets()),
            IpAddr::V6(address) => append(kind, &address.octets()),
        }
    }
    append(RTA_IIF, &arrives_by.to_ne_bytes());
    bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    &bytes[..len]
}

fn interface_in(answer: &[u8]) -> io::Result<Option<u32>> {
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "expected a route, saw another message");
    if word(answer.get(4..6)) == Some(libc::NLMSG_ERROR as u16) {
        let code = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok());
        let error = io::Error::from_raw_os_error(-i32::from_ne_bytes(code.ok_or_else(unexpected)?));
        return match error.raw_os_error() {
            // no route, forbidden by a route, refused by the source check, not forwarded at all
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EXDEV | libc::EINVAL) => {
                Ok(None)
            }
            _ => Err(error),
        };
    }
    if word(answer.get(4..6)) != Some(libc::RTM_NEWROUTE) {
        return Err(unexpected());
    }
    let found = attributes(answer.get(HEADER + ROUTE..).ok_or_else(unexpected)?)
        .find(|(kind, _)| *kind == RTA_OIF)
        .and_then(|(_, data)| data.try_into().ok());
    Ok(found.map(u32::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_for_this_machine_leaves_by_the_loopback_interface() {
        let loopback = crate::interface::Interface::open("lo").unwrap();
        let routes = Routes::open().unwrap();
        let home = IpAddr::from([127, 0, 0, 1]);
        let found = routes.leaves_by(home, home, loopback.index()).unwrap();
        // a fresh namespace has the interface switched off
        assert!(found.is_none_or(|index| index == loopback.index()));
    }

    #[test]
    fn answers_are_read_with_care() {
        assert!(interface_in(&[]).is_err());
        assert!(interface_in(&[0; 15]).is_err());
        let mut refused = [0; 20];
        refused[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        refused[16..].copy_from_slice(&(-libc::EHOSTUNREACH).to_ne_bytes());
        assert_eq!(interface_in(&refused).unwrap(), None);
        refused[16..].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert!(interface_in(&refused).is_err());
        let mut route = vec![0; HEADER + ROUTE];
        route[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        assert_eq!(interface_in(&route).unwrap(), None);
        route.extend([8, 0, 4, 0]);
        route.extend(7_u32.to_ne_bytes());
        assert_eq!(interface_in(&route).unwrap(), Some(7));
    }
}
