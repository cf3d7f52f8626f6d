//! Routes that lead nowhere. While there is no better route to the same network, the kernel answers packets
//! to it as unreachable, and no wider route takes them.

use std::io;
use std::net::IpAddr;

use crate::netlink::{Requests, attributes};

/// `rtmsg`: family, lengths of destination and source, type of service, table, protocol, scope, kind, flags.
const ROUTE: usize = 12;
// linux/rtnetlink.h
const RTA_DST: u16 = 1;
const RTA_PRIORITY: u16 = 6;

/// Unreachable routes of the main table that are known by these two numbers. They belong to the network
/// namespace of the calling thread, and stay until somebody removes them.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// let barrier = netio::barrier::Barrier { protocol: 147, metric: 4_000_000_000 };
/// let network = ("10.81.2.0".parse().unwrap(), 24);
/// barrier.set(network)?;
/// assert_eq!(barrier.networks()?, [network]);
/// barrier.remove(network)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Number of the program that set them (`linux/rtnetlink.h`, `RTPROT_*`).
    pub protocol: u8,
    /// Metric, at which the lowest one counts first.
    pub metric: u32,
}

impl Barrier {
    /// Sets the route to a network, given by its address and the length of its prefix. May wait for a lock of
    /// the kernel.
    ///
    /// # Errors
    /// The kernel's error: `EEXIST` if there is a route of this metric to the network.
    pub fn set(self, network: (IpAddr, u8)) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        Requests::open()?.command(libc::RTM_NEWROUTE, flags, &self.body(network))
    }

    /// Removes the route to a network. May wait for a lock of the kernel.
    ///
    /// # Errors
    /// The kernel's error: `ESRCH` if there is none.
    pub fn remove(self, network: (IpAddr, u8)) -> io::Result<()> {
        Requests::open()?.command(libc::RTM_DELROUTE, 0, &self.body(network))
    }

    /// The networks that have such a route, whoever set it. May wait for a lock of the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn networks(self) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut body = vec![0; ROUTE];
            body[0] = family as u8; // a small number
            body[4..8].copy_from_slice(&[libc::RT_TABLE_MAIN, self.protocol, 0, libc::RTN_UNREACHABLE]);
            let listed = Requests::open()?.dump(libc::RTM_GETROUTE, &body, &mut |kind, route| {
                found.extend(
                    Some(route).filter(|_| kind == libc::RTM_NEWROUTE).and_then(|one| self.read(one)),
                );
            });
            match listed.as_ref().map_err(io::Error::raw_os_error) {
                // There is no route of this family yet, or the kernel does not have the family.
                Err(Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT)) => {}
                _ => listed?,
            }
        }
        Ok(found)
    }

    /// `rtmsg` and attributes.
    fn body(self, (address, prefix): (IpAddr, u8)) -> Vec<u8> {
        let (family, octets) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let mut body = vec![0; ROUTE];
        body[..2].copy_from_slice(&[family as u8, prefix]);
        let scope = libc::RT_SCOPE_UNIVERSE;
        body[4..8].copy_from_slice(&[libc::RT_TABLE_MAIN, self.protocol, scope, libc::RTN_UNREACHABLE]);
        for (kind, data) in [(RTA_DST, &octets[..]), (RTA_PRIORITY, &self.metric.to_ne_bytes())] {
            body.extend_from_slice(&(4 + data.len() as u16).to_ne_bytes());
            body.extend_from_slice(&kind.to_ne_bytes());
            body.extend_from_slice(data);
        }
        body
    }

    /// Returns the network of a route if it is one of these.
    fn read(self, route: &[u8]) -> Option<(IpAddr, u8)> {
        let (header, rest) = route.split_at_checked(ROUTE)?;
        let known = [libc::RT_TABLE_MAIN, self.protocol, libc::RTN_UNREACHABLE];
        if [header[4], header[5], header[7]] != known {
            return None;
        }
        let find = |wanted| attributes(rest).find(|(kind, _)| *kind == wanted).map(|(_, data)| data);
        let metric = find(RTA_PRIORITY).and_then(|data| data.try_into().ok()).map(u32::from_ne_bytes);
        if metric != Some(self.metric) {
            return None;
        }
        let is_v4 = i32::from(header[0]) == libc::AF_INET;
        let address = match find(RTA_DST) {
            Some(data) if is_v4 => IpAddr::from(<[u8; 4]>::try_from(data).ok()?),
            Some(data) => IpAddr::from(<[u8; 16]>::try_from(data).ok()?),
            // the route to everywhere
            None if is_v4 => IpAddr::from([0; 4]),
            None => IpAddr::from([0; 16]),
        };
        Some((address, header[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARRIER: Barrier = Barrier { protocol: 147, metric: 4_000_000_001 };

    #[test]
    fn a_route_is_read_as_it_was_written_and_no_other_is_one() {
        for text in ["10.81.2.0", "2001:db8:2::"] {
            let network = (text.parse().unwrap(), 24);
            let body = BARRIER.body(network);
            assert_eq!(BARRIER.read(&body), Some(network));
            assert_eq!(Barrier { metric: 4_000_000_002, ..BARRIER }.read(&body), None);
            assert_eq!(Barrier { protocol: 4, ..BARRIER }.read(&body), None);
            let mut leads_on = body.clone();
            leads_on[7] = libc::RTN_UNICAST;
            assert_eq!(BARRIER.read(&leads_on), None);
            for len in 0..body.len() {
                assert_eq!(BARRIER.read(&body[..len]), None, "{len}");
            }
        }
    }

    #[test]
    fn a_namespace_without_such_routes_has_none() {
        assert_eq!(Barrier { protocol: 148, metric: 4_000_000_003 }.networks().unwrap(), []);
    }
}
