//! The repair channel's UDP socket: equal-sized datagrams leave as one buffer that the kernel or card cuts
//! (GSO), and neighbours arrive as one (GRO). Batching system calls alone would buy nothing; this does.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

pub use crate::batch::UdpCounts;
use crate::batch::receive::{self, Slots};
use crate::batch::{Outbox, Sending, options};

/// What the kernel may queue for us and from us, in bytes.
const KERNEL_BUFFER: usize = 16 << 20;
/// Most datagrams that one call of [`RepairSocket::recv`] hands over: the kernel merges no more into a train.
pub const RECEIVED_MAX: usize = receive::RECEIVED_MAX;
/// Most bytes that these hold together.
pub const RECEIVED_BYTES_MAX: usize = receive::RECEIVED_BYTES_MAX;

/// A non-blocking UDP socket for trains of datagrams.
///
/// Datagrams are never fragmented by the kernel: the "don't fragment" bit is set and what is longer than the
/// interface's MTU is refused. What the kernel does not take at once is dropped and counted, never queued here.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use netio::udp::RepairSocket;
/// let mut socket = RepairSocket::bind("127.0.0.1:0".parse().unwrap())?;
/// let to = socket.local_address()?;
/// let not_taken = socket.send([(to, &b"one"[..]), (to, b"two")]);
/// socket.recv(|from, datagram| assert!(from == to && datagram.len() == 3))?;
/// # Ok(()) }
/// ```
pub struct RepairSocket {
    slots: Slots,
    outbox: Outbox,
}

impl RepairSocket {
    /// Listens on `address` in the network namespace of the calling thread. An IPv6 address serves IPv6 alone.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = options::udp_socket(address)?;
        options::forbid_fragments(&socket, address.is_ipv4())?;
        options::merge_arrivals(&socket);
        // we keep what we get
        let _ = options::grow_receive_buffer(&socket, KERNEL_BUFFER);
        let _ = options::grow_send_buffer(&socket, KERNEL_BUFFER);
        socket.bind(&address.into())?;
        let outbox = Sending::new(socket.into()).outbox();
        Ok(Self { slots: Slots::new(), outbox })
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.outbox.sending().local_address()
    }

    /// Sends datagrams, neighbours of one size and address as one train; returns how many the kernel did not
    /// take.
    pub fn send<'d>(&mut self, datagrams: impl IntoIterator<Item = (SocketAddr, &'d [u8])>) -> u64 {
        for (to, datagram) in datagrams {
            self.outbox.push(to, &[datagram]);
        }
        self.outbox.flush()
    }

    /// What was sent and what was not.
    #[must_use]
    pub fn counts(&self) -> UdpCounts {
        self.outbox.sending().counts()
    }

    /// Hands datagrams that wait to `handle`, at most [`RECEIVED_MAX`]; returns whether more may wait.
    ///
    /// # Errors
    /// What the kernel says, save that nothing waits.
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

    /// A socket on the loopback interface, which a namespace made for tests may not have switched on.
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
    fn what_cannot_leave_whole_is_counted() {
        let mut a = bind("127.0.0.1:0");
        assert_eq!(a.send([("127.0.0.1:9".parse().unwrap(), &vec![0; 65_530][..])]), 1);
        assert_eq!(a.counts(), UdpCounts { too_long: 1, ..UdpCounts::default() });
        // no such version on this socket
        assert_eq!(a.send([("[::1]:9".parse().unwrap(), &b"x"[..])]), 1);
        assert_eq!(a.counts().refused, 1);
    }

    #[test]
    fn empty_datagrams_are_sent_one_by_one() {
        let mut a = bind("127.0.0.1:0");
        let mut b = bind("127.0.0.1:0");
        let to = b.local_address().unwrap();
        let datagrams: [&[u8]; 5] = [b"", b"", b"xy", b"", b"z"];
        assert_eq!(a.send(datagrams.map(|datagram| (to, datagram))), 0);
        assert_eq!(a.counts().sent, 5);
        assert_eq!(receive(&mut b, 2), [&b"xy"[..], b"z"], "empty ones are nothing to hand over");
    }
}
