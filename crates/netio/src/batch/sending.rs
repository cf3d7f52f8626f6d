//! Sends single datagrams at once, and counts everything that a socket sends.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::address::Address;
use super::options;
use crate::interface::check_len;

/// Maximum number of pieces of a datagram.
pub const PIECES_MAX: usize = 8;

/// Datagrams that a socket sent, and those that it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpCounts {
    /// Datagrams that the kernel accepted.
    pub sent: u64,
    /// Datagrams dropped because the socket's send buffer was full.
    pub full: u64,
    /// Datagrams dropped because they exceed the interface's MTU.
    pub too_long: u64,
    /// Datagrams dropped for another reason: no route, interface down.
    pub refused: u64,
    /// Trains sent datagram by datagram because the kernel or the card does not cut them.
    pub cut_here: u64,
}

impl UdpCounts {
    pub(super) fn not_taken(&self) -> u64 {
        self.full + self.too_long + self.refused
    }

    pub(super) fn add(&mut self, result: &io::Result<()>, datagrams: u64) {
        match result {
            Ok(()) => self.sent += datagrams,
            Err(error) => self.failed(error, datagrams),
        }
    }

    pub(super) fn failed(&mut self, error: &io::Error, datagrams: u64) {
        let counter = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => &mut self.full,
            Some(libc::EMSGSIZE) => &mut self.too_long,
            _ => &mut self.refused,
        };
        *counter += datagrams;
    }
}

/// Sending half of a socket. Any number of threads may share it, beside the one that receives.
///
/// Clones send through the same descriptor, which lives as long as any of them. Datagrams that the kernel
/// does not accept at once are dropped and counted, never queued.
#[derive(Clone, Debug)]
pub struct Sending {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    cuts_trains: bool,
    sent: AtomicU64,
    full: AtomicU64,
    too_long: AtomicU64,
    refused: AtomicU64,
    cut_here: AtomicU64,
}

impl Sending {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        let [sent, full, too_long, refused, cut_here] = [const { AtomicU64::new(0) }; 5];
        let cuts_trains = options::cuts_trains(&socket);
        Self { shared: Arc::new(Shared { socket, cuts_trains, sent, full, too_long, refused, cut_here }) }
    }

    /// Sends one datagram, given as consecutive pieces, with one system call.
    ///
    /// # Errors
    /// The kernel's error; the datagram is counted and dropped.
    ///
    /// # Panics
    /// If there are more than [`PIECES_MAX`] pieces.
    pub fn send_now(&self, to: SocketAddr, pieces: &[&[u8]]) -> io::Result<()> {
        assert!(pieces.len() <= PIECES_MAX, "expected at most {PIECES_MAX} pieces, saw {}", pieces.len());
        let mut vectors = [IoSlice::new(&[]); PIECES_MAX];
        for (vector, piece) in vectors.iter_mut().zip(pieces) {
            *vector = IoSlice::new(piece);
        }
        let mut counts = UdpCounts::default();
        let result = self.send_one(Address::from(to), &vectors[..pieces.len()]);
        counts.add(&result, 1);
        self.add(&counts);
        result
    }

    /// Sets the interface, by index, by which multicast leaves.
    ///
    /// # Errors
    /// The kernel's error (`EADDRNOTAVAIL` or `ENODEV` if there is no such interface).
    pub fn set_interface(&self, index: u32) -> io::Result<()> {
        let is_v4 = self.local_address()?.is_ipv4();
        options::multicast_by(&self.shared.socket, is_v4, index)
    }

    /// Returns the counters of all clones together.
    pub fn counts(&self) -> UdpCounts {
        let shared = &*self.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UdpCounts {
            sent: read(&shared.sent),
            full: read(&shared.full),
            too_long: read(&shared.too_long),
            refused: read(&shared.refused),
            cut_here: read(&shared.cut_here),
        }
    }

    pub(super) fn cuts_trains(&self) -> bool {
        self.shared.cuts_trains
    }

    pub(super) fn send_one(&self, to: Address, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        // SAFETY: all fields are numbers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // The kernel only reads, though the types do not say so.
        message.msg_name = (&raw const to).cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = pieces.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: address and pieces outlive the call, and their sizes are given; `IoSlice` has the layout of
        // `iovec`.
        check_len(unsafe { libc::sendmsg(self.fd().as_raw_fd(), &raw const message, flags) }).map(drop)
    }

    pub(super) fn add(&self, counts: &UdpCounts) {
        let shared = &*self.shared;
        for (counter, more) in [
            (&shared.sent, counts.sent),
            (&shared.full, counts.full),
            (&shared.too_long, counts.too_long),
            (&shared.refused, counts.refused),
            (&shared.cut_here, counts.cut_here),
        ] {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }
}
