//! Sockets for the multicast of other programs: one receives an IP group at an interface, one sends to it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{InterfaceIndexOrAddress, Socket};

use super::counts::ReceiveCounts;
use super::error::{OpenError, interface_of};
use crate::batch::options;
use crate::batch::receive::{Overflow, Slots};

/// Receives the datagrams to one IP group and port at one interface, as any program of this host may beside
/// it. It never blocks, and takes no datagrams that are addressed to this host alone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use netio::multicast::{PlainListener, PlainTalker};
/// let group = "239.192.7.2:4713".parse()?;
/// let mut listener = PlainListener::bind(group, "lo", 1 << 20)?;
/// let mut talker = PlainTalker::bind(group, "lo", 0)?;
/// talker.send(3, b"hello")?;
/// let mut heard = Vec::new();
/// while heard.is_empty() {
///     listener.recv(|datagram| heard.push((datagram.ttl, datagram.payload.to_vec())))?;
/// }
/// assert_eq!(heard, [(Some(3), b"hello".to_vec())]);
/// # Ok(()) }
/// ```
pub struct PlainListener {
    socket: Socket,
    interface: u32,
    slots: Slots,
    overflow: Overflow,
    counts: ReceiveCounts,
}

/// A datagram of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard<'a> {
    /// Sender's address.
    pub from: SocketAddr,
    /// Time to live, or hop limit, with which it arrived.
    pub ttl: Option<u8>,
    /// Bytes, which may be none.
    pub payload: &'a [u8],
}

impl PlainListener {
    /// Joins the group in the network namespace of the calling thread, with a receive buffer of
    /// `receive_buffer_bytes`. An unprivileged process gets at most `net.core.rmem_max`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bind(group: SocketAddr, interface: &str, receive_buffer_bytes: usize) -> Result<Self, OpenError> {
        if group.port() == 0 {
            return Err(OpenError::NoPort);
        }
        let index = interface_of(interface)?.index();
        let socket = options::udp_socket(group).map_err(OpenError::system("make a UDP socket"))?;
        set_up(&socket, group.ip(), index, receive_buffer_bytes)
            .map_err(OpenError::system("join an IP group"))?;
        // Bound to the group, it gets no unicast datagrams of another program that has the port.
        let address = scoped(group, index);
        socket.bind(&address.into()).map_err(OpenError::bind(address))?;
        Ok(Self {
            socket,
            interface: index,
            slots: Slots::new(),
            overflow: Overflow::default(),
            counts: ReceiveCounts::default(),
        })
    }

    /// Returns the index of the interface.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Passes waiting datagrams to `handle` and returns whether more may wait.
    ///
    /// # Errors
    /// The kernel's error, unless it passes by itself; those are counted.
    pub fn recv(&mut self, mut handle: impl FnMut(Heard<'_>)) -> io::Result<bool> {
        let Self { socket, slots, overflow, counts, .. } = self;
        let received = slots.receive(socket.as_fd(), |mut arrival| {
            overflow.note(arrival.facts.dropped);
            let (Some(from), false) = (arrival.from, arrival.truncated) else {
                counts.truncated += 1;
                return;
            };
            counts.received += 1;
            let ttl = arrival.facts.ttl;
            // Trains are not asked for, so there is one datagram, or none for an empty one.
            let payload = arrival.datagrams().next().map_or(&[][..], |datagram| &*datagram);
            handle(Heard { from, ttl, payload });
        });
        counts.survive(received)
    }

    /// Returns the counters.
    pub fn counts(&self) -> ReceiveCounts {
        ReceiveCounts { overflowed: self.overflow.total(), ..self.counts }
    }
}

impl AsFd for PlainListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends datagrams to one IP group by one interface. Programs of this host hear them too.
pub struct PlainTalker {
    socket: Socket,
    group: SocketAddr,
    ttl: Option<u8>,
}

impl PlainTalker {
    /// Opens a socket whose datagrams come from `source_port`, which several sockets may share; 0 takes a
    /// free port.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bind(group: SocketAddr, interface: &str, source_port: u16) -> Result<Self, OpenError> {
        let index = interface_of(interface)?.index();
        let socket = options::udp_socket(group).map_err(OpenError::system("make a UDP socket"))?;
        let system = OpenError::system("set up a socket for sending multicast");
        let set_up = || {
            socket.set_reuse_address(true)?;
            options::multicast_by(&socket, group.is_ipv4(), index)?;
            if group.is_ipv4() {
                socket.set_multicast_loop_v4(true)
            } else {
                socket.set_multicast_loop_v6(true)
            }
        };
        set_up().map_err(system)?;
        // By a loopback interface, the kernel would choose an address of another interface as source.
        let is_loopback = interface == "lo";
        let ip: IpAddr = match (group.is_ipv4(), is_loopback) {
            (true, true) => Ipv4Addr::LOCALHOST.into(),
            (true, false) => Ipv4Addr::UNSPECIFIED.into(),
            (false, true) => Ipv6Addr::LOCALHOST.into(),
            (false, false) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let address = SocketAddr::new(ip, source_port);
        socket.bind(&address.into()).map_err(OpenError::bind(address))?;
        Ok(Self { socket, group: scoped(group, index), ttl: None })
    }

    /// Sends one datagram with this time to live, without blocking.
    ///
    /// # Errors
    /// The kernel's error; the datagram is dropped.
    pub fn send(&mut self, ttl: u8, payload: &[u8]) -> io::Result<()> {
        if self.ttl != Some(ttl) {
            if self.group.is_ipv4() {
                self.socket.set_multicast_ttl_v4(ttl.into())?;
            } else {
                self.socket.set_multicast_hops_v6(ttl.into())?;
            }
            self.ttl = Some(ttl);
        }
        self.socket.send_to(payload, &self.group.into()).map(drop)
    }
}

/// Returns the group with the interface as the scope of an IPv6 address, which is needed for link-local ones.
fn scoped(group: SocketAddr, interface: u32) -> SocketAddr {
    match group {
        SocketAddr::V4(_) => group,
        SocketAddr::V6(group) => SocketAddrV6::new(*group.ip(), group.port(), 0, interface).into(),
    }
}

fn set_up(socket: &Socket, group: IpAddr, interface: u32, receive_buffer_bytes: usize) -> io::Result<()> {
    socket.set_reuse_address(true)?;
    match group {
        IpAddr::V4(group) => {
            // Groups that others have joined at other interfaces must not arrive here.
            socket.set_multicast_all_v4(false)?;
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))?;
            options::set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL, &1)?;
        }
        IpAddr::V6(group) => {
            // Kernels before 4.20 lack the option.
            let _ = socket.set_multicast_all_v6(false);
            socket.join_multicast_v6(&group, interface)?;
            options::set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &1)?;
        }
    }
    options::report_overflow(socket)?;
    options::grow_receive_buffer(socket, receive_buffer_bytes).map(drop)
}
