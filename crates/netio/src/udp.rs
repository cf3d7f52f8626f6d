//! The repair channel's UDP socket: equal-sized datagrams leave as one buffer that the kernel or card cuts
//! (GSO), and neighbours arrive as one (GRO). Batching system calls alone would buy nothing; this does.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

/// What the kernel may queue for us and from us, in bytes.
const KERNEL_BUFFER: usize = 16 << 20;
/// Buffers filled by one receive; each takes a whole merged train.
const SLOTS: usize = 8;
const SLOT: usize = 1 << 16;
/// Most datagrams that one call of [`RepairSocket::recv`] hands over: the kernel merges no more into a train.
pub const RECEIVED_MAX: usize = SLOTS * 64;
/// Most bytes that these hold together.
pub const RECEIVED_BYTES_MAX: usize = SLOTS * SLOT;
/// Most bytes of UDP payload in one train.
const TRAIN_MAX: usize = 65_535 - 48;

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
    socket: UdpSocket,
    state: UdpSocketState,
    slots: Box<[u8]>,
    train: Train,
    counts: UdpCounts,
}

/// What a socket sent and what it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpCounts {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams dropped because the socket's send buffer was full.
    pub full: u64,
    /// Datagrams dropped because they are longer than the interface's MTU.
    pub too_long: u64,
    /// Datagrams dropped for another reason: no route, interface down.
    pub refused: u64,
    /// Trains that were sent datagram by datagram because the kernel or the card does not cut them.
    pub cut_here: u64,
}

impl UdpCounts {
    pub(crate) fn not_taken(&self) -> u64 {
        self.full + self.too_long + self.refused
    }

    pub(crate) fn add(&mut self, result: &io::Result<()>, datagrams: u64) {
        match result {
            Ok(()) => self.sent += datagrams,
            Err(error) => self.failed(error, datagrams),
        }
    }

    pub(crate) fn failed(&mut self, error: &io::Error, datagrams: u64) {
        let counter = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => &mut self.full,
            Some(libc::EMSGSIZE) => &mut self.too_long,
            _ => &mut self.refused,
        };
        *counter += datagrams;
    }
}

/// Datagrams of one size to one address, the last possibly shorter, back to back.
struct Train {
    bytes: Vec<u8>,
    to: Option<SocketAddr>,
    segment: usize,
    count: usize,
    closed: bool,
}

impl RepairSocket {
    /// Listens on `address` in the network namespace of the calling thread. An IPv6 address serves IPv6 alone.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        grow_buffers(&socket);
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let train = Train { bytes: Vec::with_capacity(SLOT), to: None, segment: 0, count: 0, closed: false };
        let slots = vec![0; SLOTS * SLOT].into_boxed_slice();
        Ok(Self { socket, state, slots, train, counts: UdpCounts::default() })
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends datagrams, neighbours of one size and address as one train; returns how many the kernel did not
    /// take.
    pub fn send<'d>(&mut self, datagrams: impl IntoIterator<Item = (SocketAddr, &'d [u8])>) -> u64 {
        let before = self.counts.not_taken();
        let longest = self.state.max_gso_segments();
        for (to, datagram) in datagrams {
            if !self.train.takes(to, datagram.len(), longest) {
                self.send_train();
            }
            self.train.push(to, datagram);
        }
        self.send_train();
        self.counts.not_taken() - before
    }

    /// What was sent and what was not.
    #[must_use]
    pub fn counts(&self) -> UdpCounts {
        self.counts
    }

    fn send_train(&mut self) {
        let train = &mut self.train;
        let Some(destination) = train.to.take() else { return };
        let segment_size = (train.count > 1).then_some(train.segment);
        let transmit =
            Transmit { destination, ecn: None, contents: &train.bytes, segment_size, src_ip: None };
        match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
            Ok(()) => self.counts.sent += train.count as u64,
            Err(error) if segment_size.is_some() && not_as_a_train(&error) => {
                let too_long = self.counts.too_long;
                self.counts.cut_here += 1;
                send_singly(&self.socket, destination, train, &mut self.counts);
                // Where the datagrams are too long, quinn-udp takes it for "no trains at all" and never tries
                // again.
                if self.counts.too_long > too_long
                    && let Ok(state) = UdpSocketState::new(UdpSockRef::from(&self.socket))
                {
                    self.state = state;
                }
            }
            Err(error) => self.counts.failed(&error, train.count as u64),
        }
        train.clear();
    }

    /// Hands datagrams that wait to `handle`, at most [`RECEIVED_MAX`]; returns whether more may wait.
    ///
    /// # Errors
    /// What the kernel says, save that nothing waits.
    pub fn recv(&mut self, mut handle: impl FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        let mut metas = [RecvMeta::default(); SLOTS];
        let mut slots = self.slots.chunks_exact_mut(SLOT).map(IoSliceMut::new);
        let mut buffers: [IoSliceMut<'_>; SLOTS] =
            std::array::from_fn(|_| slots.next().expect("one chunk for each slot"));
        let received = match self.state.recv(UdpSockRef::from(&self.socket), &mut buffers, &mut metas) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        for (buffer, meta) in buffers.iter_mut().zip(&metas[..received]) {
            for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                handle(meta.addr, datagram);
            }
        }
        Ok(received == SLOTS)
    }
}

impl AsFd for RepairSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Train {
    fn takes(&self, to: SocketAddr, len: usize, longest: usize) -> bool {
        let Some(current) = self.to else { return true };
        current == to
            && !self.closed
            && len <= self.segment
            && self.count < longest
            && self.bytes.len() + len <= TRAIN_MAX
    }

    fn push(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.to.is_none() {
            (self.to, self.segment) = (Some(to), datagram.len());
        }
        // A shorter one ends the train; an empty one is none.
        self.closed = datagram.len() < self.segment || datagram.is_empty();
        self.bytes.extend_from_slice(datagram);
        self.count += 1;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.to, self.segment, self.count, self.closed) = (None, 0, 0, false);
    }
}

/// Whether a train may fail like this although its datagrams would go: a card that makes no checksums (EIO),
/// datagrams longer than the MTU (EMSGSIZE, on older kernels EINVAL).
fn not_as_a_train(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

fn send_singly(socket: &UdpSocket, to: SocketAddr, train: &Train, counts: &mut UdpCounts) {
    for datagram in train.bytes.chunks(train.segment.max(1)) {
        match socket.send_to(datagram, to) {
            Ok(_) => counts.sent += 1,
            Err(error) => counts.failed(&error, 1),
        }
    }
}

/// Asks for large buffers, beyond the machine's limit where we may; keeps what we get.
fn grow_buffers(socket: &Socket) {
    let force = |option| force_buffer(socket, option);
    if !force(libc::SO_RCVBUFFORCE) {
        let _ = socket.set_recv_buffer_size(KERNEL_BUFFER);
    }
    if !force(libc::SO_SNDBUFFORCE) {
        let _ = socket.set_send_buffer_size(KERNEL_BUFFER);
    }
}

fn force_buffer(socket: &Socket, option: libc::c_int) -> bool {
    use std::os::fd::AsRawFd;
    let bytes = KERNEL_BUFFER as libc::c_int;
    // SAFETY: the pointer is to a c_int that outlives the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
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
