//! Reads and changes a network interface by name, in the network namespace of the calling thread.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// linux/if_arp.h: plain IP, as spoken by mobile modems
const ARPHRD_RAWIP: u16 = 519;
const ARPHRD_IP6GRE: u16 = 823;

/// Kind of link header of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkKind {
    /// 14 bytes of Ethernet header (also the loopback interface).
    Ethernet,
    /// Packets begin with their IP header (TUN, WireGuard, PPP).
    None,
    /// Another kind, by its number in `linux/if_arp.h`.
    Other(u16),
}

impl LinkKind {
    /// Whether the kernel handles received packets of this interface without a link header. Tunnels have
    /// outer headers, which are removed before.
    pub fn is_without_header(self) -> bool {
        // the list of `dev_is_mac_header_xmit` in linux/if_arp.h
        const TUNNELS: [u16; 5] =
            [libc::ARPHRD_TUNNEL, libc::ARPHRD_TUNNEL6, libc::ARPHRD_SIT, libc::ARPHRD_IPGRE, ARPHRD_IP6GRE];
        match self {
            Self::None => true,
            Self::Ethernet => false,
            Self::Other(kind) => TUNNELS.contains(&kind),
        }
    }
}

/// An interface of the calling thread's network namespace.
///
/// It stays bound to that namespace: calls from a thread elsewhere still mean the same interface.
#[derive(Debug)]
pub struct Interface {
    name: [libc::c_char; libc::IFNAMSIZ],
    index: u32,
    socket: OwnedFd,
}

impl Interface {
    /// Finds an interface by its name.
    ///
    /// # Errors
    /// `InvalidInput` for an impossible name, otherwise the kernel's error (`ENODEV`: no such interface).
    pub fn open(name: &str) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        let fd = if fd >= 0 {
            fd
        } else {
            // a kernel without IPv4
            // SAFETY: no pointers are passed.
            check(unsafe { libc::socket(libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?
        };
        // SAFETY: the descriptor was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut interface = Self { name: name_field(name)?, index: 0, socket };
        interface.index = interface.query_index()?;
        Ok(interface)
    }

    /// Returns the index of the interface of that name in the calling thread's network namespace, or `None`
    /// if there is none.
    ///
    /// # Errors
    /// `InvalidInput` for an impossible name, otherwise the kernel's error.
    pub fn index_of(name: &str) -> io::Result<Option<u32>> {
        match Self::open(name) {
            Ok(interface) => Ok(Some(interface.index)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the interface still exists: the same index, under the same name, in the same network
    /// namespace. It does not if it was deleted, renamed or moved, or if its name belongs to another one.
    /// Costs one system call.
    ///
    /// The creator of an interface may choose its index. A successor with the same name and index is taken
    /// for the original; the kernel itself assigns increasing indexes.
    pub fn is_alive(&self) -> bool {
        match self.query_index() {
            Ok(index) => index == self.index,
            // any other failure proves nothing
            Err(error) => error.raw_os_error() != Some(libc::ENODEV),
        }
    }

    /// Returns the current index of this name, or `None` while no interface has it.
    ///
    /// # Errors
    /// The kernel's error, except that there is no such interface.
    pub fn index_now(&self) -> io::Result<Option<u32>> {
        match self.query_index() {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            index => index.map(Some),
        }
    }

    /// Returns whether the interface is up, as its operator has set it.
    ///
    /// # Errors
    /// The kernel's error, `ENODEV` among them.
    pub fn is_up(&self) -> io::Result<bool> {
        let answer = self.request(libc::SIOCGIFFLAGS, |_| {})?;
        // SAFETY: the kernel has filled in the flags.
        let flags = unsafe { answer.ifr_ifru.ifru_flags };
        Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
    }

    /// Returns the interface's name.
    pub fn name(&self) -> String {
        self.name.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
    }

    /// Returns the interface's index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the size of the largest IP packet in bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn mtu(&self) -> io::Result<u32> {
        let answer = self.request(libc::SIOCGIFMTU, |_| {})?;
        // SAFETY: SIOCGIFMTU has filled this member.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu }.cast_unsigned())
    }

    /// Gives it another name. Before Linux 6.2, only an interface that is down can have another one.
    ///
    /// # Errors
    /// The kernel's error: `EEXIST` if there is such an interface, `EBUSY` if it is up.
    pub fn rename(&mut self, name: &str) -> io::Result<()> {
        let wanted = name_field(name)?;
        self.request(libc::SIOCSIFNAME, |request| request.ifr_ifru.ifru_newname = wanted)?;
        self.name = wanted;
        Ok(())
    }

    /// Sets the size of the largest IP packet in bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_mtu(&self, bytes: u32) -> io::Result<()> {
        self.request(libc::SIOCSIFMTU, |request| request.ifr_ifru.ifru_mtu = bytes.cast_signed()).map(drop)
    }

    /// Sets how many packets may wait to be sent; for a TUN device, to be read by its process.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_transmit_queue(&self, packets: u32) -> io::Result<()> {
        // the kernel takes the queue length from the field of the metric
        self.request(libc::SIOCSIFTXQLEN, |request| request.ifr_ifru.ifru_metric = packets.cast_signed())
            .map(drop)
    }

    /// Switches the interface on or off.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up(&self, up: bool) -> io::Result<()> {
        let answer = self.request(libc::SIOCGIFFLAGS, |_| {})?;
        // SAFETY: SIOCGIFFLAGS has filled this member.
        let flags = unsafe { answer.ifr_ifru.ifru_flags };
        let bit = libc::IFF_UP as libc::c_short;
        let flags = if up { flags | bit } else { flags & !bit };
        self.request(libc::SIOCSIFFLAGS, |request| request.ifr_ifru.ifru_flags = flags).map(drop)
    }

    /// Replaces the interface's first IPv4 address. On a point-to-point interface the address has a /32
    /// prefix.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_ipv4_address(&self, address: Ipv4Addr) -> io::Result<()> {
        let fill = |request: &mut libc::ifreq| {
            let mut bytes = [0; 14];
            bytes[2..6].copy_from_slice(&address.octets());
            request.ifr_ifru.ifru_addr = libc::sockaddr {
                sa_family: libc::AF_INET as libc::sa_family_t,
                sa_data: bytes.map(|byte| byte as libc::c_char),
            };
        };
        self.request(libc::SIOCSIFADDR, fill).map(drop)
    }

    /// Returns the hardware address of an Ethernet interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn hardware_address(&self) -> io::Result<[u8; 6]> {
        let answer = self.request(libc::SIOCGIFHWADDR, |_| {})?;
        // SAFETY: SIOCGIFHWADDR has filled this member.
        let bytes = unsafe { answer.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(std::array::from_fn(|at| bytes[at] as u8))
    }

    /// Returns the interface's first IPv4 address, if it has any.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn ipv4_address(&self) -> io::Result<Option<Ipv4Addr>> {
        let answer = match self.request(libc::SIOCGIFADDR, |_| {}) {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => return Ok(None),
            answer => answer?,
        };
        // SAFETY: SIOCGIFADDR has filled this member.
        let bytes = unsafe { answer.ifr_ifru.ifru_addr.sa_data };
        let [a, b, c, d] = [2, 3, 4, 5].map(|at| bytes[at] as u8);
        Ok(Some(Ipv4Addr::new(a, b, c, d)))
    }

    /// Returns the link-local IPv6 address of the interface in the calling thread's network namespace, if it
    /// has one that can be used.
    pub fn ipv6_link_local(&self) -> Option<Ipv6Addr> {
        let text = fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
        text.lines().find_map(|line| link_local(line, self.index))
    }

    /// Returns what precedes the IP header on this interface.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn link_kind(&self) -> io::Result<LinkKind> {
        let answer = self.request(libc::SIOCGIFHWADDR, |_| {})?;
        // SAFETY: SIOCGIFHWADDR has filled this member.
        let family = unsafe { answer.ifr_ifru.ifru_hwaddr.sa_family };
        Ok(match family {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => LinkKind::Ethernet,
            libc::ARPHRD_NONE | ARPHRD_RAWIP | libc::ARPHRD_PPP => LinkKind::None,
            other => LinkKind::Other(other),
        })
    }

    /// Queries the index that the name stands for.
    fn query_index(&self) -> io::Result<u32> {
        let answer = self.request(libc::SIOCGIFINDEX, |_| {})?;
        // SAFETY: SIOCGIFINDEX has filled this member.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex }.cast_unsigned())
    }

    fn request(&self, code: libc::c_ulong, fill: impl FnOnce(&mut libc::ifreq)) -> io::Result<libc::ifreq> {
        let mut request = request_for(self.name);
        fill(&mut request);
        // SAFETY: every code used here takes an ifreq, which lives through the call.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut request) })?;
        Ok(request)
    }
}

/// Returns the address in a line of `if_inet6` (address, index, prefix, scope, flags, name; in hexadecimal),
/// if it is a link-local one of this interface that is no duplicate and not being checked for duplicates.
fn link_local(line: &str, index: u32) -> Option<Ipv6Addr> {
    /// `IFA_F_DADFAILED` and `IFA_F_TENTATIVE` (linux/if_addr.h).
    const UNUSABLE: u32 = 0x08 | 0x40;
    let mut fields = line.split_whitespace();
    let address = Ipv6Addr::from(u128::from_str_radix(fields.next()?, 16).ok()?);
    let mut number = || u32::from_str_radix(fields.next()?, 16).ok();
    let (of, _prefix, _scope, flags) = (number()?, number()?, number()?, number()?);
    (of == index && flags & UNUSABLE == 0 && address.is_unicast_link_local()).then_some(address)
}

/// Returns an empty request for the interface of that name.
pub(crate) fn request_for(name: [libc::c_char; libc::IFNAMSIZ]) -> libc::ifreq {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = name;
    request
}

/// Returns a name in the kernel's layout.
pub(crate) fn name_field(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut field = [0; libc::IFNAMSIZ];
    // the last byte stays zero
    if name.is_empty() || name.len() >= field.len() || name.bytes().any(|byte| byte == 0 || byte == b'/') {
        let text = format!("expected an interface name of 1 to 15 bytes, saw {name:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (slot, byte) in field.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    Ok(field)
}

/// Turns the -1 of a system call into the error behind it.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Like [`check`], for calls that return a length.
pub(crate) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_names_are_refused() {
        for name in ["", "sixteen_bytes_xx", "a/b", "a\0b"] {
            assert_eq!(Interface::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
        assert_eq!(Interface::open("no-such-thing").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn link_local_addresses_are_found_by_their_interface() {
        let line =
            |address: &str, index: &str, flags: &str| format!("{address} {index} 40 20 {flags}     lan0");
        let (local, global) = ("fe80000000000000000000000000000a", "20010db8000000000000000000000001");
        assert_eq!(link_local(&line(local, "1f", "80"), 31), Some("fe80::a".parse().unwrap()));
        for line in
            [line(local, "1e", "80"), line(local, "1f", "c0"), line(global, "1f", "80"), "fe80".into()]
        {
            assert_eq!(link_local(&line, 31), None, "{line}");
        }
    }

    #[test]
    fn the_loopback_interface_is_described() {
        assert_eq!(Interface::open("lo").unwrap().ipv4_address().unwrap(), Some(Ipv4Addr::LOCALHOST));
        let loopback = Interface::open("lo").unwrap();
        assert_ne!(loopback.index(), 0);
        assert!(loopback.is_alive());
        assert_eq!(Interface::index_of("lo").unwrap(), Some(loopback.index()));
        assert_eq!(Interface::index_of("no-such-thing").unwrap(), None);
        assert_eq!(Interface::index_of("").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(loopback.link_kind().unwrap(), LinkKind::Ethernet);
        assert!(loopback.mtu().unwrap() >= 1280);
    }
}
