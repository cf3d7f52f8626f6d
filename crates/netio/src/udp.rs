//! UDP socket of the repair channel. Equal-sized datagrams leave as one buffer that the kernel or the card
//! cuts (GSO), and consecutive datagrams arrive as one (GRO). Batching system calls without them would gain
//! nothing.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::SockRef;

pub use crate::batch::UdpCounts;
use crate::batch::receive::{self, Overflow, Slots};
use crate::batch::waited::{Now, Waited};
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
    waited: Waited,
    /// Datagrams that the kernel had dropped at the latest look.
    overflow: Overflow,
    /// Whether the socket has a filter. The kernel counts the datagrams of strangers with the others.
    is_filtered: bool,
}

/// Facts about a received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The sender's address.
    pub from: SocketAddr,
    /// Its type of service or traffic class. The kernel merges no datagrams that differ in it (Linux 6.9;
    /// before, those of one train may get that of the first).
    pub tos: u8,
    /// Time at which this machine received it, by `CLOCK_MONOTONIC`; when it was read if that is not known.
    /// For a train, that of its first datagram.
    pub arrived: Duration,
}

/// Returns the kernel's MTU of the path from an address of this machine to `to`, by `interface` if one is
/// named. Routers may have lowered it by ICMP messages, which a repair socket ignores.
///
/// # Errors
/// The kernel's error, such as a missing route or interface.
pub fn path_mtu(from: IpAddr, to: SocketAddr, interface: Option<&str>) -> io::Result<u32> {
    // A socket keeps the route with which it was connected, so that each call needs another one.
    let socket = options::udp_socket(to)?;
    if let Some(name) = interface {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect(&to.into())?;
    options::path_mtu(&socket, to.is_ipv4())
}

impl RepairSocket {
    /// Listens on `address` in the network namespace of the calling thread. An IPv6 address serves IPv6
    /// alone.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_to(address, None)
    }

    /// The same, for datagrams that come and leave by one interface alone, if it is named.
    ///
    /// # Errors
    /// The kernel's error, such as a missing interface or address.
    pub fn bind_to(address: SocketAddr, interface: Option<&str>) -> io::Result<Self> {
        Self::open(address, interface, false)
    }

    /// The same while this socket, which is about to be replaced, has the address too: one of the two is all
    /// addresses of the machine, at the same port. No other process gets the address, then or later.
    ///
    /// # Errors
    /// The kernel's error. `AddrInUse` if another process has the address.
    pub fn bind_beside(&self, address: SocketAddr, interface: Option<&str>) -> io::Result<Self> {
        let own = SockRef::from(self);
        own.set_reuse_address(true)?;
        let beside = Self::open(address, interface, true);
        own.set_reuse_address(false)?;
        beside
    }

    /// `shares`: whether another socket that permits it at this moment may have the address too.
    fn open(address: SocketAddr, interface: Option<&str>, shares: bool) -> io::Result<Self> {
        let socket = options::udp_socket(address)?;
        if let Some(name) = interface {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        options::forbid_fragments(&socket, address.is_ipv4())?;
        options::merge_arrivals(&socket);
        options::report_tos(&socket, address.is_ipv4())?;
        options::report_arrival(&socket);
        // any granted size will do
        let _ = options::grow_receive_buffer(&socket, RECEIVE_BUFFER);
        let _ = options::grow_send_buffer(&socket, SEND_BUFFER);
        // The kernel looks at it while a socket is bound, and UDP has no other use of it (socket(7)).
        socket.set_reuse_address(shares)?;
        socket.bind(&address.into())?;
        socket.set_reuse_address(false)?;
        Ok(Self::of(socket.into()))
    }

    fn of(socket: UdpSocket) -> Self {
        Self {
            slots: Slots::new(),
            outbox: Outbox::new(Sending::new(socket)),
            waited: Waited::new(),
            overflow: Overflow::default(),
            is_filtered: false,
        }
    }

    /// Lets datagrams come and leave by one interface alone, or, without a name, by all again. A socket whose
    /// interface is gone stays bound to that one, and another interface of the same name is another one.
    ///
    /// # Errors
    /// The kernel's error, such as a missing interface, or a missing capability (`CAP_NET_RAW`) if the socket
    /// has an interface already.
    pub fn bind_interface(&self, interface: Option<&str>) -> io::Result<()> {
        SockRef::from(&self.as_fd()).bind_device(interface.map(str::as_bytes))
    }

    /// Continues with a repair socket that another process has bound and reads no more.
    ///
    /// # Errors
    /// The kernel's error, if it is no UDP socket.
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        let socket = UdpSocket::from(socket);
        let address = socket.local_addr()?;
        // The other process may be an older program.
        options::report_tos(&socket, address.is_ipv4())?;
        options::report_arrival(&socket);
        // Drops of the kernel so far belong to the other process.
        let mut adopted = Self { is_filtered: true, ..Self::of(socket) };
        adopted.accept_from_all();
        Ok(adopted)
    }

    /// Lets the kernel drop datagrams from other addresses than these, so that they take no room in the
    /// receive buffer. One in sixteen of them passes, to be counted.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn accept_from(&mut self, addresses: &[IpAddr]) -> io::Result<()> {
        let is_v4 = self.local_address()?.is_ipv4();
        self.note_overflow();
        senders::accept_from(&self.outbox.sending().fd(), is_v4, addresses)?;
        self.is_filtered = true;
        Ok(())
    }

    /// Lets datagrams from all addresses pass again.
    pub fn accept_from_all(&mut self) {
        senders::accept_all(&self.outbox.sending().fd());
        self.note_overflow();
        self.is_filtered = false;
    }

    /// Returns how many datagrams found the receive buffer full, since this process has the socket. A train
    /// that the kernel merged counts as one. Those that are dropped while [`RepairSocket::accept_from`] holds
    /// do not count, because the kernel does not tell them from those of strangers.
    pub fn overflowed(&self) -> u64 {
        self.look().total()
    }

    /// Takes the kernel's count over, which wraps: call this more often than once in four billion drops.
    pub fn note_overflow(&mut self) {
        self.overflow = self.look();
    }

    /// The count with what the kernel has dropped since the latest look.
    fn look(&self) -> Overflow {
        let mut overflow = self.overflow;
        let dropped = options::dropped(&self.outbox.sending().fd()).ok();
        if self.is_filtered {
            overflow.skip(dropped);
        } else {
            overflow.note(dropped);
        }
        overflow
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
        self.send_marked(datagrams.into_iter().map(|(to, datagram)| (to, 0, datagram)))
    }

    /// Sends datagrams, as [`RepairSocket::send`], each with its type of service or traffic class.
    pub fn send_marked<'d>(
        &mut self,
        datagrams: impl IntoIterator<Item = (SocketAddr, u8, &'d [u8])>,
    ) -> u64 {
        for (to, tos, datagram) in datagrams {
            self.outbox.push_marked(to, tos, &[datagram]);
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
        self.recv_noted(|received, datagram| handle(received.from, datagram))
    }

    /// The same with what is known of each datagram.
    ///
    /// # Errors
    /// The kernel's error, except that nothing waits.
    pub fn recv_noted(&mut self, mut handle: impl FnMut(Received, &mut [u8])) -> io::Result<bool> {
        let (waited, began, mut read) = (self.waited, Now::read(), None);
        let more = self.slots.receive(self.outbox.sending().fd(), |mut arrival| {
            let Some(from) = arrival.from else { return };
            let now = *read.get_or_insert_with(Now::read);
            let arrived = waited.arrived(arrival.facts.stamp, now);
            let received = Received { from, tos: arrival.facts.tos.unwrap_or(0), arrived };
            arrival.datagrams().for_each(|datagram| handle(received, datagram));
        })?;
        if !more {
            self.waited.on_empty(began);
        }
        Ok(more)
    }
}

impl AsFd for RepairSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.sending().fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
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
    fn a_socket_that_was_handed_over_has_its_address_and_what_waits_in_it() {
        let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let to = b.local_address().unwrap();
        b.accept_from(&["10.1.2.3".parse().unwrap()]).unwrap();
        let copy = b.as_fd().try_clone_to_owned().unwrap();
        drop(b);
        let mut b = RepairSocket::adopt(copy).unwrap();
        assert_eq!(b.local_address().unwrap(), to);
        // The filter of the other process does not apply to this one.
        let sent = vec![vec![7; 900]; 64];
        assert_eq!(a.send(sent.iter().map(|datagram| (to, &datagram[..]))), 0);
        assert_eq!(receive(&mut b, sent.len()), sent);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(RepairSocket::adopt(file.into()).is_err());
    }

    #[test]
    fn a_socket_of_all_addresses_replaces_one_of_them_and_nobody_else_gets_the_port() {
        for (one, all) in [("127.0.0.1:0", "0.0.0.0"), ("[::1]:0", "::")] {
            let (mut other, own) = (bind(one), bind(one));
            let address = own.local_address().unwrap();
            let all = SocketAddr::new(all.parse().unwrap(), address.port());
            let is_refused = |address: SocketAddr| {
                // Programs that share addresses do not share this one.
                let socket = options::udp_socket(address).unwrap();
                socket.set_reuse_address(true).unwrap();
                let results = [socket.bind(&address.into()), RepairSocket::bind(address).map(drop)];
                results.iter().all(|result| {
                    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
                })
            };
            assert!(is_refused(all));
            assert!(other.bind_beside(all, None).is_err(), "the socket of another program");
            let mut next = own.bind_beside(all, None).unwrap();
            assert!(is_refused(all) && is_refused(address));
            drop(own);
            assert!(is_refused(all) && is_refused(address));
            assert_eq!(other.send([(address, &b"next"[..])]), 0);
            assert_eq!(receive(&mut next, 1), [b"next"]);
            let back = next.bind_beside(address, None).unwrap();
            drop(next);
            assert!(is_refused(address) && back.local_address().unwrap() == address);
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
        assert!(path_mtu(to.ip(), to, None).unwrap() >= 1_500);
        assert!(path_mtu(to.ip(), to, Some("lo")).unwrap() >= 1_500);
        assert!(path_mtu(to.ip(), to, Some("undrop-none")).is_err());
        let to = bind("[::1]:0").local_address().unwrap();
        assert!(path_mtu(to.ip(), to, None).unwrap() >= 1_500);
    }

    #[test]
    fn a_socket_is_bound_to_an_interface_and_released_again() {
        let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let to = b.local_address().unwrap();
        for interface in [Some("lo"), None] {
            a.bind_interface(interface).unwrap();
            assert_eq!(SockRef::from(&a).device().unwrap().as_deref(), interface.map(str::as_bytes));
            assert_eq!(a.send([(to, &b"by"[..])]), 0);
            assert_eq!(receive(&mut b, 1), [b"by"]);
        }
        assert!(a.bind_interface(Some("undrop-none")).is_err());
    }

    /// Receives one datagram and returns its type of service or traffic class.
    fn receive_tos(socket: &UdpSocket) -> i32 {
        let (mut data, mut control) = ([0_u8; 2_000], [0_usize; 8]);
        let mut vector = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        // SAFETY: all fields are numbers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the buffers outlive the call, and their sizes are given.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
        assert!(len > 0, "{}", io::Error::last_os_error());
        // A header of two words, then the value, in one byte for IPv4.
        (control[2] & 0xff) as i32
    }

    #[test]
    fn datagrams_leave_with_their_type_of_service_alone_and_in_trains() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut sender = bind(address);
            let receiver = UdpSocket::bind(address).unwrap();
            receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let to = receiver.local_addr().unwrap();
            let (level, kind) = if to.is_ipv4() {
                (libc::IPPROTO_IP, libc::IP_RECVTOS)
            } else {
                (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
            };
            let on: libc::c_int = 1;
            // SAFETY: the option's value outlives the call, and its size is given.
            let set = unsafe {
                let len = size_of_val(&on) as libc::socklen_t;
                libc::setsockopt(receiver.as_raw_fd(), level, kind, (&raw const on).cast(), len)
            };
            assert_eq!(set, 0);
            let marks = [0, 184, 184, 184, 4, 0, 0];
            assert_eq!(sender.send_marked(marks.map(|tos| (to, tos, &[7; 300][..]))), 0);
            assert_eq!(marks.map(|_| receive_tos(&receiver)), marks.map(i32::from), "{address}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test over real sockets needs an end")]
    fn datagrams_arrive_with_their_type_of_service_alone_and_in_trains() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut sender, receiver) = (bind(address), bind(address));
            let to = receiver.local_address().unwrap();
            // A socket that another process has bound reports it too.
            let mut receiver = RepairSocket::adopt(receiver.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let marks = [0, 2, 3, 3, 3, 1, 187, 187, 0, 0];
            assert_eq!(sender.send_marked(marks.map(|tos| (to, tos, &[7; 300][..]))), 0);
            let (mut got, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(20));
            while got.len() < marks.len() && Instant::now() < deadline {
                receiver.recv_noted(|received, _| got.push(received.tos)).unwrap();
            }
            assert_eq!(got, marks, "{address}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about real time, and needs an end")]
    fn a_datagram_has_the_time_of_its_arrival_and_not_that_of_its_reading() {
        let now = || Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap());
        let (mut sender, mut receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let (to, deadline) = (receiver.local_address().unwrap(), Instant::now() + Duration::from_secs(20));
        // The kernel may begin to note times a moment after the first socket asks for them.
        loop {
            let sent = now();
            assert_eq!(sender.send([(to, &b"early"[..])]), 0);
            let sent_by = now();
            std::thread::sleep(Duration::from_millis(20));
            let read = now();
            let mut arrived = None;
            while arrived.is_none() && Instant::now() < deadline {
                receiver.recv_noted(|received, _| arrived = Some(received.arrived)).unwrap();
            }
            let arrived = arrived.expect("loopback loses nothing");
            assert!(arrived >= sent, "{arrived:?} is before {sent:?}");
            if arrived <= sent_by + Duration::from_millis(10) && arrived < read {
                return;
            }
            assert!(Instant::now() < deadline, "{arrived:?}, sent {sent:?} to {sent_by:?}, read {read:?}");
        }
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
