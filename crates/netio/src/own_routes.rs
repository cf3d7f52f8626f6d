//! Routes of the main table that a program sets and knows by its number: by an interface, or to nowhere.

use std::io;
use std::net::IpAddr;

use crate::main_routes::{ROUTE, RTA_DST, RTA_OIF, RTA_PRIORITY, dump, network_of};
use crate::netlink::{Requests, attributes};

/// Metric of routes by an interface. Without one, the kernel gives routes of IPv6 the metric 1024, at which
/// those that routing daemons and router advertisements set count first.
const BEST: u32 = 1;

/// Where routes lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the interface of this index, before all other routes to the same network. They disappear with the
    /// interface, and when it is set down.
    Interface(u32),
    /// Nowhere: while there is no better route to the same network, the kernel answers packets to it as
    /// unreachable, and no wider route takes them. They stay until somebody removes them.
    Unreachable {
        /// Metric, at which the lowest one counts first.
        metric: u32,
    },
}

/// Routes of the main table that are known by these numbers, in the network namespace of the calling thread.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use netio::own_routes::{OwnRoutes, Way};
/// let closing = OwnRoutes { protocol: 147, way: Way::Unreachable { metric: 4_000_000_000 } };
/// let network = ("10.81.2.0".parse().unwrap(), 24);
/// closing.set(network)?;
/// assert_eq!(closing.networks()?, [network]);
/// closing.remove(network)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRoutes {
    /// Number of the program that sets them (`linux/rtnetlink.h`, `RTPROT_*`).
    pub protocol: u8,
    /// Where they lead.
    pub way: Way,
}

impl OwnRoutes {
    /// Sets the route to a network, given by its address and the length of its prefix. May wait for a lock of
    /// the kernel.
    ///
    /// # Errors
    /// The kernel's error: `EEXIST` if there is a route of this metric to the network, `ENETDOWN` if the
    /// interface is down.
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

    /// The networks that have such a route. May wait for a lock of the kernel.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn networks(self) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut body = vec![0; ROUTE];
            body[0] = family as u8; // a small number
            body[4..8].copy_from_slice(&[libc::RT_TABLE_MAIN, self.protocol, 0, self.kind()]);
            if let Way::Interface(index) = self.way {
                attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
            }
            dump(&body, &mut |route| found.extend(self.read(route)))?;
        }
        Ok(found)
    }

    fn kind(self) -> u8 {
        match self.way {
            Way::Interface(_) => libc::RTN_UNICAST,
            Way::Unreachable { .. } => libc::RTN_UNREACHABLE,
        }
    }

    /// Metric of the routes of this IP version. IPv4 has none that would be better than no metric.
    pub const fn metric(self, is_v4: bool) -> u32 {
        match self.way {
            Way::Interface(_) if is_v4 => 0,
            Way::Interface(_) => BEST,
            Way::Unreachable { metric } => metric,
        }
    }

    /// `rtmsg` and attributes.
    fn body(self, (address, prefix): (IpAddr, u8)) -> Vec<u8> {
        let (family, octets) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let is_link = address.is_ipv4() && matches!(self.way, Way::Interface(_));
        let scope = if is_link { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
        let mut body = vec![0; ROUTE];
        body[..2].copy_from_slice(&[family as u8, prefix]);
        body[4..8].copy_from_slice(&[libc::RT_TABLE_MAIN, self.protocol, scope, self.kind()]);
        attribute(&mut body, RTA_DST, &octets);
        attribute(&mut body, RTA_PRIORITY, &self.metric(address.is_ipv4()).to_ne_bytes());
        if let Way::Interface(index) = self.way {
            attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
        }
        body
    }

    /// Returns the network of a route if it is one of these.
    fn read(self, route: &[u8]) -> Option<(IpAddr, u8)> {
        let (header, rest) = route.split_at_checked(ROUTE)?;
        if [header[4], header[5], header[7]] != [libc::RT_TABLE_MAIN, self.protocol, self.kind()] {
            return None;
        }
        let find = |wanted| attributes(rest).find(|(kind, _)| *kind == wanted).map(|(_, data)| data);
        let number = |wanted| Some(u32::from_ne_bytes(find(wanted)?.try_into().ok()?));
        let is_v4 = i32::from(header[0]) == libc::AF_INET;
        if number(RTA_PRIORITY).unwrap_or(0) != self.metric(is_v4) {
            return None;
        }
        if matches!(self.way, Way::Interface(index) if number(RTA_OIF) != Some(index)) {
            return None;
        }
        network_of(header, rest)
    }
}

fn attribute(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    body.extend_from_slice(&(4 + data.len() as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSING: OwnRoutes = OwnRoutes { protocol: 147, way: Way::Unreachable { metric: 4_000_000_001 } };
    const LEADING: OwnRoutes = OwnRoutes { protocol: 147, way: Way::Interface(7) };

    #[test]
    fn a_route_is_read_as_it_was_written_and_no_other_is_one() {
        let others = [
            OwnRoutes { way: Way::Unreachable { metric: 4_000_000_002 }, ..CLOSING },
            OwnRoutes { protocol: 4, ..CLOSING },
            OwnRoutes { way: Way::Interface(8), ..CLOSING },
            OwnRoutes { protocol: 4, ..LEADING },
        ];
        for (routes, text) in [CLOSING, LEADING]
            .into_iter()
            .flat_map(|way| ["10.81.2.0", "2001:db8:2::"].map(|text| (way, text)))
        {
            let network = (text.parse().unwrap(), 24);
            let body = routes.body(network);
            assert_eq!(routes.read(&body), Some(network));
            for other in others.into_iter().chain([CLOSING, LEADING]).filter(|other| *other != routes) {
                assert_eq!(other.read(&body), None, "{other:?} {text}");
            }
            for len in 0..body.len() {
                assert_eq!(routes.read(&body[..len]), None, "{routes:?} {text}, {len}");
            }
        }
    }

    #[test]
    fn a_namespace_without_such_routes_has_none() {
        for way in [Way::Unreachable { metric: 4_000_000_003 }, Way::Interface(0x7fff_fff0)] {
            assert_eq!(OwnRoutes { protocol: 148, way }.networks().unwrap(), []);
        }
    }
}
