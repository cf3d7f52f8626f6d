//! UDP socket of the repair channel. Equal-sized datagrams leave as one buffer that the kernel or the card
//! cuts (GSO), and consecutive datagrams arrive as one (GRO). Batching system calls without them would gain
//! nothing.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

pub use crate::batch::UdpCounts;
use crate::batch::receive::{self, Slots};
use crate::batch::{Outbox, Sending, options, senders};

/// Requested size of the kernel's receive buffer in bytes.
const RECEIVE_BUFFER: usize = 16 << 20;
/// Requested size of the kernel's send buffer in bytes. It bounds the datagrams in the queue of the
/// interface, so that a full queue holds mostly other traffic: 1 MiB takes 8 ms at 1 Gbit/s.
const SEND_BUFFER: usize = 1 << 20;
/// Maximum number of datagrams from one [`RepairSocket::recv`]: the kernel merges no more into a train.
pub const RECEIVED_MAX: usize = receive::RECEIVED_MAX;
/// Maximum number of bytes from one [`RepairSocket::recv`].
pub const RECEIVED_BYTES_MAX: usize = receive::RECEIVED_BYTES_MAX;

/// A non-blocking UDP socket for trains of datagrams.
///
/// The kernel never fragments datagrams: "don't fragment" is set, and datagrams longer than the interface's
/// MTU are refused. Datagrams that the kernel does not accept at once are dropped and counted, never queued
/// here.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use netio::udp::RepairSocket;
/// let mut socket = RepairSocket::bind("127.0.0.1:0".parse().unwrap())?;
/// let to = socket.local_address()?;
/// let refused = socket.send([(to, &b"one"[..]), (to, b"two")]);
/// socket.recv(|from, datagram| assert!(from == to && datagram.len() == 3))?;
/// # Ok(()) }
/// ```
pub struct RepairSocket {
    slots: Slots,
    outbox: Outbox,
}

/// Returns the kernel's MTU of the path from an address of this machine to `to`, which routers may have
/// lowered by ICMP messages. A repair socket ignores these messages.
///
/// # Errors
/// The kernel's error, such as a missing route.
pub fn path_mtu(from: IpAddr, to: SocketAddr) -> io::Result<u32> {
    // A socket keeps the route with which it was connected, so that each call needs another one.
    let socket = UdpSocket::bind((from, 0))?;
    socket.connect(to)?;
    options::path_mtu(&socket, to.is_ipv4())
}

impl RepairSocket {
    /// Listens on `address` in the network namespace of the calling thread. An IPv6 address serves IPv6
    /// alone.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = options::udp_socket(address)?;
        options::forbid_fragments(&socket, address.is_ipv4())?;
        options::merge_arrivals(&socket);
        // any granted size will do
        let _ = options::grow_receive_buffer(&socket, RECEIVE_BUFFER);
        let _ = options::grow_send_buffer(&socket, SEND_BUFFER);
        socket.bind(&address.into())?;
        let outbox = Outbox::new(Sending::new(socket.into()));
        Ok(Self { slots: Slots::new(), outbox })
    }

    /// Lets the kernel drop datagrams from other addresses than these, so that they take no room in the
    /// receive buffer. One in sixteen of them passes, to be counted.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn accept_from(&self, addresses: &[IpAddr]) -> io::Result<()> {
        let is_v4 = self.local_address()?.is_ipv4();
        senders::accept_from(&self.outbox.sending().fd(), is_v4, addresses)
    }

    /// Lets datagrams from all addresses pass again.
    pub fn accept_from_all(&self) {
        senders::accept_all(&self.outbox.sending().fd());
    }

    /// Returns the address to which it is bound.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.outbox.sending().local_address()
    }

    /// Sends datagrams, consecutive ones of one size and address as one train, and returns how many the
    /// kernel refused.
    pub fn send<'d>(&mut self, datagrams: impl IntoIterator<Item = (SocketAddr, &'d [u8])>) -> u64 {
        for (to, datagram) in datagrams {
            self.outbox.push(to, &[datagram]);
        }
        self.outbox.flush()
    }

    /// Returns the counters of sending.
    pub fn counts(&self) -> UdpCounts {
        self.outbox.sending().counts()
    }

    /// Passes waiting datagrams to `handle`, at most [`RECEIVED_MAX`], and returns whether more may wait.
    ///
    /// # Errors
    /// The kernel's error, except that nothing waits.
    pub fn recv(&mut self, mut handle: impl FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        self.slots.receive(self.outbox.sending().fd(), |mut arrival| {
            let Some(from) = arrival.from else { return };
            arrival.datagrams().for_each(|datagram| handle(from, datagram));
        })
    }
}

impl AsFd for RepairSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.sending().fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::interface::Interface;
    use crate::poll::{Interest, Poller};

    /// Binds a socket on the loopback interface, which may be down in a namespace made for tests.
    fn bind(address: &str) -> RepairSocket {
        let _ = Interface::open("lo").and_then(|loopback| loopback.set_up(true));
        RepairSocket::bind(address.parse().unwrap()).unwrap()
    }

    #[allow(clippy::disallowed_methods, reason = "a test over real sockets needs an end")]
    fn receive(socket: &mut RepairSocket, count: usize) -> Vec<Vec<u8>> {
        let mut poller = Poller::new().unwrap();
        poller.add(socket, 1, Interest::Readable).unwrap();
        let (mut got, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while got.len() < count && Instant::now() < deadline {
            poller.wait(Some(Duration::from_millis(100))).unwrap().for_each(drop);
            while socket.recv(|_, datagram| got.push(datagram.to_vec())).unwrap() {}
        }
        got
    }

    #[test]
    fn datagrams_of_many_sizes_arrive_whole_and_in_order() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut a = bind(address);
            let mut b = bind(address);
            let (from, to) = (a.local_address().unwrap(), b.local_address().unwrap());
            let sizes = (0..700).map(|n| if n % 97 == 0 { 60 } else { 1400 - n % 3 / 2 * 7 });
            let sent: Vec<Vec<u8>> = sizes.enumerate().map(|(n, size)| vec![n as u8; size]).collect();
            assert_eq!(a.send(sent.iter().map(|datagram| (to, &datagram[..]))), 0);
            assert_eq!(receive(&mut b, sent.len()), sent);
            assert_eq!(b.send([(from, &b"back"[..])]), 0);
            assert_eq!(receive(&mut a, 1), [b"back"]);
        }
    }

    #[test]
    fn a_datagram_that_cannot_leave_whole_is_counted() {
        let mut a = bind("127.0.0.1:0");
        assert_eq!(a.send([("127.0.0.1:9".parse().unwrap(), &vec![0; 65_530][..])]), 1);
        assert_eq!(a.counts(), UdpCounts { too_long: 1, ..UdpCounts::default() });
        // the socket has no IPv6
        assert_eq!(a.send([("[::1]:9".parse().unwrap(), &b"x"[..])]), 1);
        assert_eq!(a.counts().refused, 1);
    }

    #[test]
    fn the_mtu_of_the_path_is_that_of_the_loopback_device() {
        let to = bind("127.0.0.1:0").local_address().unwrap();
        assert!(path_mtu(to.ip(), to).unwrap() >= 1_500);
        let to = bind("[::1]:0").local_address().unwrap();
        assert!(path_mtu(to.ip(), to).unwrap() >= 1_500);
    }

    #[test]
    fn empty_datagrams_are_sent_one_by_one() {
        let mut a = bind("127.0.0.1:0");
        let mut b = bind("127.0.0.1:0");
        let to = b.local_address().unwrap();
        let datagrams: [&[u8]; 5] = [b"", b"", b"xy", b"", b"z"];
        assert_eq!(a.send(datagrams.map(|datagram| (to, datagram))), 0);
        assert_eq!(a.counts().sent, 5);
        assert_eq!(receive(&mut b, 2), [&b"xy"[..], b"z"], "empty datagrams are not passed on");
    }
}
