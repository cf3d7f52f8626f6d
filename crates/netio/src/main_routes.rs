//! The routes of the main table, whoever has set them.

use std::io;
use std::net::IpAddr;

use crate::netlink::{Requests, attributes, word};

/// `rtmsg`: family, lengths of destination and source, type of service, table, protocol, scope, kind, flags.
pub(crate) const ROUTE: usize = 12;
// linux/rtnetlink.h
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
/// A copy of a route for one destination, which is in no table.
const RTM_F_CLONED: u32 = 0x200;
/// `rtnexthop`: length, flags, hops, interface.
const NEXT_HOP: usize = 8;

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MainRoute {
    /// Its network: an address and the length of the prefix.
    pub network: (IpAddr, u8),
    /// Metric, of which the lowest counts first.
    pub metric: u32,
    /// Number of the program that has set it.
    pub protocol: u8,
    /// Indices of the interfaces by which packets leave. There are none if the kernel answers them as
    /// unreachable or drops them, and if it tells nothing of the next hops.
    pub interfaces: Vec<u32>,
}

/// Passes each route of the main table to `each`, in the network namespace of the calling thread, apart from
/// those for one type of service. May wait for a lock of the kernel.
///
/// # Errors
/// The kernel's error.
pub fn main_routes(mut each: impl FnMut(MainRoute)) -> io::Result<()> {
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = [0; ROUTE];
        (body[0], body[4]) = (family as u8, libc::RT_TABLE_MAIN); // a small number
        dump(&body, &mut |route| read(route).into_iter().for_each(&mut each))?;
    }
    Ok(())
}

/// Passes each route that fits to a request to `each`, from its `rtmsg` on.
pub(crate) fn dump(body: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<()> {
    let listed = Requests::open()?.dump(libc::RTM_GETROUTE, body, &mut |kind, route| {
        if kind == libc::RTM_NEWROUTE {
            each(route);
        }
    });
    match listed.as_ref().map_err(io::Error::raw_os_error) {
        // No route of this family, no such family in the kernel, or no such interface.
        Err(Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENODEV)) => Ok(()),
        _ => listed,
    }
}

/// The network of a route by its `rtmsg` and attributes.
pub(crate) fn network_of(header: &[u8], rest: &[u8]) -> Option<(IpAddr, u8)> {
    let is_v4 = i32::from(header[0]) == libc::AF_INET;
    let address = match attributes(rest).find(|(kind, _)| *kind == RTA_DST).map(|(_, data)| data) {
        Some(data) if is_v4 => IpAddr::from(<[u8; 4]>::try_from(data).ok()?),
        Some(data) => IpAddr::from(<[u8; 16]>::try_from(data).ok()?),
        // the route to everywhere
        None if is_v4 => IpAddr::from([0; 4]),
        None => IpAddr::from([0; 16]),
    };
    Some((address, header[1]))
}

/// Reads a number of four bytes.
fn number(data: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(data.try_into().ok()?))
}

fn read(route: &[u8]) -> Option<MainRoute> {
    let (header, rest) = route.split_at_checked(ROUTE)?;
    let is_clone = number(&header[8..])? & RTM_F_CLONED != 0;
    if header[4] != libc::RT_TABLE_MAIN || header[3] != 0 || is_clone {
        return None;
    }
    let (mut metric, mut interfaces) = (0, Vec::new());
    for (kind, data) in attributes(rest) {
        match kind {
            RTA_PRIORITY => metric = number(data)?,
            RTA_OIF => interfaces.extend(number(data)),
            RTA_MULTIPATH => interfaces.extend(next_hops(data)),
            _ => {}
        }
    }
    if header[7] != libc::RTN_UNICAST {
        interfaces.clear();
    }
    Some(MainRoute { network: network_of(header, rest)?, metric, protocol: header[5], interfaces })
}

/// The interfaces of several next hops.
fn next_hops(mut bytes: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let len = usize::from(word(bytes.get(..2))?).max(NEXT_HOP);
        let interface = number(bytes.get(4..NEXT_HOP)?)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
        let len = 4 + data.len() as u16;
        [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), data].concat()
    }

    fn unicast() -> Vec<u8> {
        vec![libc::AF_INET as u8, 25, 0, 0, libc::RT_TABLE_MAIN, 16, 0, libc::RTN_UNICAST, 0, 0, 0, 0]
    }

    #[test]
    fn a_route_has_its_network_metric_and_interfaces() {
        let to = attribute(RTA_DST, &[10, 81, 2, 128]);
        let by = attribute(RTA_OIF, &7_u32.to_ne_bytes());
        let route = [unicast(), to.clone(), by].concat();
        let expected = MainRoute {
            network: ("10.81.2.128".parse().unwrap(), 25),
            metric: 0,
            protocol: 16,
            interfaces: vec![7],
        };
        assert_eq!(read(&route), Some(expected.clone()));
        // Each next hop has attributes of its own.
        let hop = |interface: u32| {
            let gateway = attribute(5, &[10, 81, 9, 2]);
            let len = (NEXT_HOP + gateway.len()) as u16;
            [&len.to_ne_bytes()[..], &[0, 0], &interface.to_ne_bytes(), &gateway].concat()
        };
        let several = attribute(RTA_MULTIPATH, &[hop(3), hop(9)].concat());
        let metric = attribute(RTA_PRIORITY, &20_u32.to_ne_bytes());
        let several = [unicast(), to.clone(), metric, several].concat();
        assert_eq!(
            read(&several),
            Some(MainRoute { metric: 20, interfaces: vec![3, 9], ..expected.clone() })
        );
        for len in 0..several.len() {
            let _ = read(&several[..len]);
        }
        // Nowhere.
        let mut closed = route.clone();
        closed[7] = libc::RTN_UNREACHABLE;
        assert_eq!(read(&closed), Some(MainRoute { interfaces: Vec::new(), ..expected }));
        // Of another table, of one type of service, and for one destination alone.
        for (at, value) in [(4, libc::RT_TABLE_LOCAL), (3, 0x10), (9, 2)] {
            let mut other = route.clone();
            other[at] = value;
            assert_eq!(read(&other), None, "{at}");
        }
    }

    #[test]
    fn the_table_can_be_read() {
        main_routes(|route| assert!(route.network.1 <= 128)).unwrap();
    }
}
