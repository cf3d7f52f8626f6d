//! Socket addresses in the kernel's layout, written and read byte by byte.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Length of `sockaddr_in6`, the longer of the two.
pub(crate) const LEN: usize = 28;
/// Length of `sockaddr_in`.
const LEN_V4: usize = 16;

/// A `sockaddr_in` or a `sockaddr_in6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub(crate) struct Address {
    bytes: [u8; LEN],
}

impl Address {
    /// Space for an address that the kernel fills in.
    pub(crate) const EMPTY: Self = Self { bytes: [0; LEN] };

    /// Returns the number of bytes in use.
    pub(crate) fn len(&self) -> libc::socklen_t {
        (if self.is_v4() { LEN_V4 } else { LEN }) as libc::socklen_t
    }

    /// Returns the stored address, or `None` if its family is neither IPv4 nor IPv6.
    pub(crate) fn read(&self) -> Option<SocketAddr> {
        let bytes = &self.bytes;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match self.family() {
            libc::AF_INET => {
                let address = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
                Some(SocketAddr::new(address.into(), port))
            }
            libc::AF_INET6 => {
                let address: [u8; 16] = bytes[8..24].try_into().ok()?;
                let flow = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                let scope = u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
                Some(SocketAddrV6::new(Ipv6Addr::from(address), port, flow, scope).into())
            }
            _ => None,
        }
    }

    /// Whether it is an address of IPv4.
    pub(crate) fn is_v4(&self) -> bool {
        self.family() == libc::AF_INET
    }

    fn family(&self) -> libc::c_int {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]]).into()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; LEN];
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        bytes[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => bytes[4..8].copy_from_slice(&address.ip().octets()),
            SocketAddr::V6(address) => {
                bytes[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
        }
        Self { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_the_c_library() {
        for text in ["10.1.2.3:4567", "[fd00::9:1]:77", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let other = socket2::SockAddr::from(address);
            // SAFETY: the pointer is valid for `other.len()` bytes, all of them initialized.
            let bytes =
                unsafe { std::slice::from_raw_parts(other.as_ptr().cast::<u8>(), other.len() as usize) };
            let ours = Address::from(address);
            assert_eq!(&ours.bytes[..ours.len() as usize], bytes);
            assert_eq!(ours.read(), Some(address));
        }
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 5, 12).into();
        assert_eq!(Address::from(scoped).read(), Some(scoped));
        assert_eq!(Address::EMPTY.read(), None);
    }
}
