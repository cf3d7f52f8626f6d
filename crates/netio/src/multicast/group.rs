//! Socket that receives all groups and has joined none.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::counts::ReceiveCounts;
use super::error::{OpenError, interface_of};
use super::version::IpVersion;
use crate::batch::options;
use crate::batch::receive::{Arrival, Overflow, Slots};

/// Receives every multicast datagram to one port at one interface, for all IP groups that any process on this
/// host has joined. It never blocks. Several nodes on one host may have one each; every node gets a copy.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use netio::multicast::{GroupSocket, IpVersion, Joiner};
/// let mut joiner = Joiner::new("eth0", IpVersion::V4, 64)?;
/// joiner.join("239.192.7.1".parse()?)?;
/// let mut socket = GroupSocket::bind(4711, IpVersion::V4, "eth0", 8 << 20)?;
/// socket.recv(|from, group, datagram| println!("{from} to {group}: {} bytes", datagram.len()))?;
/// # Ok(()) }
/// ```
pub struct GroupSocket {
    socket: Socket,
    interface: u32,
    slots: Slots,
    overflow: Overflow,
    counts: ReceiveCounts,
    receive_buffer_bytes: usize,
}

impl GroupSocket {
    /// Listens in the network namespace of the calling thread, with a receive buffer of
    /// `receive_buffer_bytes`. An unprivileged process gets at most `net.core.rmem_max`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bind(
        port: u16,
        version: IpVersion,
        interface: &str,
        receive_buffer_bytes: usize,
    ) -> Result<Self, OpenError> {
        if port == 0 {
            return Err(OpenError::NoPort);
        }
        let interface = interface_of(interface)?.index();
        let address = version.wildcard(port);
        let socket = options::udp_socket(address).map_err(OpenError::system("make a UDP socket"))?;
        let granted = set_up(&socket, version, receive_buffer_bytes)
            .map_err(OpenError::system("set up a socket for multicast"))?;
        socket.bind(&address.into()).map_err(OpenError::bind(address))?;
        Ok(Self {
            socket,
            interface,
            slots: Slots::new(),
            overflow: Overflow::default(),
            counts: ReceiveCounts::default(),
            receive_buffer_bytes: granted,
        })
    }

    /// Returns the granted receive buffer in bytes.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Passes waiting datagrams to `handle` (sender, IP group, bytes), at most
    /// [`RECEIVED_MAX`](crate::multicast::RECEIVED_MAX), and returns whether more may wait.
    ///
    /// # Errors
    /// The kernel's error, unless it passes by itself; those are counted.
    pub fn recv(&mut self, mut handle: impl FnMut(SocketAddr, IpAddr, &mut [u8])) -> io::Result<bool> {
        let Self { socket, interface, slots, overflow, counts, .. } = self;
        let received = slots.receive(socket.as_fd(), |mut arrival| {
            overflow.note(arrival.facts.dropped);
            let Some((from, group)) = wanted(&mut arrival, *interface, counts) else { return };
            for datagram in arrival.datagrams() {
                counts.received += 1;
                handle(from, group, datagram);
            }
        });
        counts.survive(received)
    }

    /// Continues with another interface, by index: the one that replaced the former one of that name.
    pub fn set_interface(&mut self, index: u32) {
        self.interface = index;
    }

    /// Returns the counters.
    pub fn counts(&self) -> ReceiveCounts {
        ReceiveCounts { overflowed: self.overflow.total(), ..self.counts }
    }
}

/// Returns sender and IP group of a datagram for this node, or counts why it is dropped.
fn wanted(
    arrival: &mut Arrival<'_>,
    interface: u32,
    counts: &mut ReceiveCounts,
) -> Option<(SocketAddr, IpAddr)> {
    let (Some(from), Some((to, at)), false) = (arrival.from, arrival.facts.to, arrival.truncated) else {
        counts.truncated += 1;
        return None;
    };
    let counter = if !to.is_multicast() {
        &mut counts.not_multicast
    } else if at != interface {
        &mut counts.other_interface
    } else {
        return Some((from, to));
    };
    *counter += arrival.datagrams().count() as u64;
    None
}

fn set_up(socket: &Socket, version: IpVersion, receive_buffer_bytes: usize) -> io::Result<usize> {
    socket.set_reuse_address(true)?;
    options::hear_all_groups(socket, version == IpVersion::V4)?;
    let (level, destination) = match version {
        IpVersion::V4 => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        IpVersion::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    options::set(socket, level, destination, &1)?;
    options::merge_arrivals(socket);
    options::report_overflow(socket)?;
    options::grow_receive_buffer(socket, receive_buffer_bytes)
}

impl AsFd for GroupSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
