//! Sending one datagram at once, and the counters of all that a socket sends.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Outbox;
use super::address::Address;
use crate::interface::check_len;
use crate::udp::UdpCounts;

/// Most pieces that a datagram may be given in.
pub const PIECES_MAX: usize = 8;

/// The sending half of a socket: shared by as many threads as like, beside the one that receives.
///
/// Its clones send by the same descriptor, which lives as long as any of them. What the kernel does not take at once
/// is dropped and counted, never queued.
#[derive(Clone, Debug)]
pub struct Sending {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: OwnedFd,
    sent: AtomicU64,
    full: AtomicU64,
    too_long: AtomicU64,
    refused: AtomicU64,
    cut_here: AtomicU64,
}

impl Sending {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let [sent, full, too_long, refused, cut_here] = [const { AtomicU64::new(0) }; 5];
        Self { shared: Arc::new(Shared { socket, sent, full, too_long, refused, cut_here }) }
    }

    /// Sends one datagram, given as pieces that follow each other, with one system call.
    ///
    /// # Errors
    /// What the kernel says; the datagram is counted, and gone.
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

    /// A batch of its own for the calling thread, sent by this socket.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.clone())
    }

    /// What was sent and what was not, by all who share it.
    #[must_use]
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

    pub(super) fn send_one(&self, to: Address, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        // SAFETY: all fields are numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // The kernel only reads, though the types do not say so.
        message.msg_name = (&raw const to).cast_mut().cast();
        message.msg_namelen = to.len();
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = pieces.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: address and pieces outlive the call, and their sizes are given; an IoSlice is laid out as an iovec.
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

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd as _;
        self.shared.socket.as_fd()
    }
}
