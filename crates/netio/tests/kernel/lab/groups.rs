//! Multicast sockets on hosts joined by a cable, and the datagrams that they receive.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netio::multicast::{GroupSocket, IpVersion, Joiner, OwnConfig, OwnSocket};
use netio::poll::{Interest, Poller};
use netlab::Namespace;

pub(crate) const PORT: u16 = 4711;
pub(crate) const BUFFER: usize = 4 << 20;
pub(crate) const BOTH: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

pub(crate) type Got = Vec<(SocketAddr, IpAddr, Vec<u8>)>;

pub(crate) fn group(version: IpVersion, number: u8) -> IpAddr {
    let text = match version {
        IpVersion::V4 => format!("239.192.0.{number}"),
        IpVersion::V6 => format!("ff15::{number:x}"),
    };
    text.parse().unwrap()
}

pub(crate) fn to(group: IpAddr) -> SocketAddr {
    (group, PORT).into()
}

pub(crate) fn address(version: IpVersion, host: u8) -> SocketAddr {
    let text = match version {
        IpVersion::V4 => format!("10.9.0.{host}:0"),
        IpVersion::V6 => format!("[fd09::{host}]:0"),
    };
    text.parse().unwrap()
}

pub(crate) fn listen(host: &Namespace, version: IpVersion) -> GroupSocket {
    host.run(|| GroupSocket::bind(PORT, version, "eth0", BUFFER)).unwrap()
}

pub(crate) fn own(host: &Namespace, address: SocketAddr) -> OwnSocket {
    host.run(|| OwnSocket::bind(&OwnConfig::new(address, "eth0"))).unwrap()
}

pub(crate) fn join(host: &Namespace, groups: &[IpAddr]) -> Joiner {
    let mut joiner = host.run(|| Joiner::new("eth0", IpVersion::of(groups[0]), 64)).unwrap();
    for &group in groups {
        assert!(joiner.join(group).unwrap());
    }
    joiner
}

/// Waits until `count` datagrams have arrived.
pub(crate) fn receive(socket: &mut GroupSocket, count: usize) -> Got {
    let mut poller = Poller::new().unwrap();
    poller.add(socket, 1, Interest::Readable).unwrap();
    let mut got = Vec::new();
    while got.len() < count {
        let ready = poller.wait(Some(Duration::from_secs(10))).unwrap().count();
        assert!(ready > 0, "{} of {count} datagrams arrived, {:?}", got.len(), socket.counts());
        got.extend(waiting(socket));
    }
    got
}

pub(crate) fn waiting(socket: &mut GroupSocket) -> Got {
    let mut got = Vec::new();
    while socket.recv(|from, group, datagram| got.push((from, group, datagram.to_vec()))).unwrap() {}
    got
}

pub(crate) fn receive_own(socket: &mut OwnSocket, count: usize) -> Vec<Vec<u8>> {
    let mut poller = Poller::new().unwrap();
    poller.add(socket, 1, Interest::Readable).unwrap();
    let mut got = Vec::new();
    while got.len() < count {
        let ready = poller.wait(Some(Duration::from_secs(10))).unwrap().count();
        assert!(ready > 0, "{} of {count} datagrams arrived", got.len());
        while socket.recv(|_, datagram| got.push(datagram.to_vec())).unwrap() {}
    }
    got
}
