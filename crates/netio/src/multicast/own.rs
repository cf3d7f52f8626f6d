//! Socket of one node: receives datagrams addressed to it alone and sends everything.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::counts::ReceiveCounts;
use super::error::{OpenError, interface_of};
use crate::batch::Sending;
use crate::batch::options;
use crate::batch::receive::{Overflow, Slots};

/// Configuration of an [`OwnSocket`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnConfig {
    /// Address of this host; port 0 takes a free one.
    pub address: SocketAddr,
    /// Interface by which multicast leaves.
    pub interface: String,
    /// TTL of multicast: 1 stays in the network, 0 on this host.
    pub ttl: u8,
    /// Type of service, or traffic class, of all datagrams that are not given another one.
    pub tos: u8,
    /// Whether nodes on this host, including this one, receive its multicast.
    pub heard_here: bool,
    /// Requested receive buffer. An unprivileged process gets at most `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
    /// Requested send buffer; the limit is `net.core.wmem_max`.
    pub send_buffer_bytes: usize,
}

impl OwnConfig {
    /// Returns a configuration with TTL 1, multicast loopback and 8 MiB for each direction.
    pub fn new(address: SocketAddr, interface: &str) -> Self {
        Self {
            address,
            interface: interface.to_owned(),
            ttl: 1,
            tos: 0,
            heard_here: true,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 8 << 20,
        }
    }
}

/// Receives datagrams addressed to this node alone, without blocking. Its [`Sending`] half, which other
/// threads may hold, sends through the same descriptor: datagrams come from the address at which this socket
/// listens.
///
/// The kernel never fragments datagrams; those longer than the interface's MTU are refused.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use netio::multicast::{Outbox, OwnConfig, OwnSocket};
/// let mut socket = OwnSocket::bind(&OwnConfig::new("127.0.0.1:0".parse()?, "lo"))?;
/// let to = socket.local_address();
/// let (sending, mut outbox) = (socket.sending(), Outbox::new(socket.sending()));
/// sending.send_now(to, &[b"at", b"once"])?;
/// outbox.push(to, &[b"with ", b"others"]);
/// outbox.push(to, &[b"of the same"]);
/// assert_eq!(outbox.flush(), 0);
/// socket.recv(|from, datagram| assert!(from == to && datagram.len() >= 6))?;
/// # Ok(()) }
/// ```
pub struct OwnSocket {
    sending: Sending,
    slots: Slots,
    overflow: Overflow,
    counts: ReceiveCounts,
    address: SocketAddr,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
}

impl OwnSocket {
    /// Listens in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn bind(config: &OwnConfig) -> Result<Self, OpenError> {
        let interface = interface_of(&config.interface)?.index();
        let socket = options::udp_socket(config.address).map_err(OpenError::system("make a UDP socket"))?;
        let system = OpenError::system("set up a socket for sending multicast");
        let [receive_buffer_bytes, send_buffer_bytes] = set_up(&socket, config, interface).map_err(system)?;
        socket.bind(&config.address.into()).map_err(OpenError::bind(config.address))?;
        let sending = Sending::new(socket.into());
        let address = sending.local_address().map_err(OpenError::system("read the address of a socket"))?;
        Ok(Self {
            address,
            sending,
            slots: Slots::new(),
            overflow: Overflow::default(),
            counts: ReceiveCounts::default(),
            receive_buffer_bytes,
            send_buffer_bytes,
        })
    }

    /// Returns the address at which it listens and from which its datagrams come.
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the granted receive buffer in bytes.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes
    }

    /// Returns the granted send buffer in bytes.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// Returns the sending half, which may move to another thread and be cloned.
    pub fn sending(&self) -> Sending {
        self.sending.clone()
    }

    /// Passes waiting datagrams to `handle` (sender, bytes), at most
    /// [`RECEIVED_MAX`](crate::multicast::RECEIVED_MAX), and returns whether more may wait.
    ///
    /// # Errors
    /// The kernel's error, unless it passes by itself; those are counted.
    pub fn recv(&mut self, mut handle: impl FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        let Self { sending, slots, overflow, counts, .. } = self;
        let received = slots.receive(sending.fd(), |mut arrival| {
            overflow.note(arrival.facts.dropped);
            let (Some(from), false) = (arrival.from, arrival.truncated) else {
                counts.truncated += 1;
                return;
            };
            for datagram in arrival.datagrams() {
                counts.received += 1;
                handle(from, datagram);
            }
        });
        counts.survive(received)
    }

    /// Returns the counters of receiving; [`Sending::counts`] has those of sending.
    pub fn counts(&self) -> ReceiveCounts {
        ReceiveCounts { overflowed: self.overflow.total(), ..self.counts }
    }
}

/// Returns the granted buffers, for receiving and for sending.
fn set_up(socket: &Socket, config: &OwnConfig, interface: u32) -> io::Result<[usize; 2]> {
    if config.address.is_ipv4() {
        socket.set_multicast_ttl_v4(config.ttl.into())?;
        socket.set_multicast_loop_v4(config.heard_here)?;
    } else {
        socket.set_multicast_hops_v6(config.ttl.into())?;
        socket.set_multicast_loop_v6(config.heard_here)?;
    }
    options::set_tos(socket, config.address.is_ipv4(), config.tos)?;
    options::multicast_by(socket, config.address.is_ipv4(), interface)?;
    options::forbid_fragments(socket, config.address.is_ipv4())?;
    options::merge_arrivals(socket);
    options::report_overflow(socket)?;
    Ok([
        options::grow_receive_buffer(socket, config.receive_buffer_bytes)?,
        options::grow_send_buffer(socket, config.send_buffer_bytes)?,
    ])
}

impl AsFd for OwnSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sending.fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use socket2::SockRef;

    use super::*;

    #[test]
    fn an_icmp_error_is_counted_and_survived() {
        let _ = crate::interface::Interface::open("lo").and_then(|loopback| loopback.set_up(true));
        let mut own = OwnSocket::bind(&OwnConfig::new("127.0.0.1:0".parse().unwrap(), "lo")).unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let there = peer.local_addr().unwrap();
        drop(peer);
        // The kernel reports ICMP errors only to connected sockets, so this one is connected.
        SockRef::from(&own.as_fd()).connect(&there.into()).unwrap();
        let sending = own.sending();
        sending.send_now(there, &[b"no listener"]).unwrap();
        assert!(own.recv(|_, _| panic!("nothing was sent")).unwrap());
        assert_eq!((own.counts().failed, own.counts().received), (1, 0));
        let peer = UdpSocket::bind(there).unwrap();
        peer.send_to(b"a listener", own.local_address()).unwrap();
        let mut got = Vec::new();
        while got.is_empty() {
            own.recv(|_, datagram| got = datagram.to_vec()).unwrap();
        }
        assert_eq!(got, b"a listener");
    }

    #[test]
    fn an_error_that_does_not_pass_is_returned() {
        let mut counts = ReceiveCounts::default();
        let bad = || io::Error::from_raw_os_error(libc::EBADF);
        assert_eq!(counts.survive(Err(bad())).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(counts.survive(Err(io::Error::from_raw_os_error(libc::ENETDOWN))).unwrap());
        assert_eq!(counts.failed, 1);
    }
}
