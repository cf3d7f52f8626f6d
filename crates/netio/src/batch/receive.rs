//! Receives many datagrams with one system call, each slot filled by a datagram or by a train that the kernel
//! merged.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::address::{self, Address};
use super::control::{Facts, ReceivedControl};
use crate::interface::check;

/// Number of slots filled by one receive.
pub(crate) const SLOTS: usize = 16;
/// Bytes of one slot: the longest train.
const SLOT: usize = 1 << 16;
/// Maximum number of datagrams that the kernel merges into a train.
const TRAIN_MAX: usize = 64;
/// Maximum number of datagrams from one receive.
pub(crate) const RECEIVED_MAX: usize = SLOTS * TRAIN_MAX;
/// Maximum number of bytes from one receive.
pub(crate) const RECEIVED_BYTES_MAX: usize = SLOTS * SLOT;

/// Memory for one receive, allocated once.
pub(crate) struct Slots {
    buffers: Box<[u8]>,
    sides: Box<[Side]>,
}

/// Address and control messages of one slot.
#[derive(Clone, Copy)]
struct Side {
    from: Address,
    control: ReceivedControl,
}

/// A received datagram or train, still in its slot.
pub(crate) struct Arrival<'s> {
    /// Sender's address, unless the kernel did not report it.
    pub(crate) from: Option<SocketAddr>,
    pub(crate) facts: Facts,
    /// Part of the bytes or of the control messages is missing.
    pub(crate) truncated: bool,
    bytes: &'s mut [u8],
}

impl<'s> Arrival<'s> {
    /// Returns the datagrams in order. An empty datagram yields nothing.
    pub(crate) fn datagrams(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let stride = self.facts.stride.unwrap_or(self.bytes.len()).max(1);
        self.bytes.chunks_mut(stride)
    }
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self {
            buffers: vec![0; SLOTS * SLOT].into_boxed_slice(),
            sides: vec![Side { from: Address::EMPTY, control: ReceivedControl::EMPTY }; SLOTS]
                .into_boxed_slice(),
        }
    }

    /// Passes waiting arrivals to `handle`, at most [`SLOTS`], and returns whether more may wait.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        mut handle: impl FnMut(Arrival<'_>),
    ) -> io::Result<bool> {
        let mut buffers = self.buffers.chunks_exact_mut(SLOT);
        let mut vectors: [libc::iovec; SLOTS] = std::array::from_fn(|_| {
            let buffer = buffers.next().expect("one chunk for each slot");
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }
        });
        let mut parts = self.sides.iter_mut().zip(&mut vectors);
        let mut headers: [libc::mmsghdr; SLOTS] = std::array::from_fn(|_| {
            let (side, vector) = parts.next().expect("one of each for each slot");
            header(side, vector)
        });
        let fd = socket.as_raw_fd();
        // SAFETY: the headers point to the vectors, buffers and sides of this call, which nothing else
        // touches before it returns, and give their sizes; there is no timeout.
        let received = check(unsafe {
            libc::recvmmsg(
                fd,
                headers.as_mut_ptr(),
                SLOTS as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        });
        let received = match received {
            Ok(received) => received.cast_unsigned() as usize,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let buffers = self.buffers.chunks_exact_mut(SLOT);
        for ((header, buffer), side) in headers[..received].iter().zip(buffers).zip(self.sides.iter()) {
            handle(arrival(header, buffer, side));
        }
        Ok(received == SLOTS)
    }
}

fn header(side: &mut Side, vector: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all fields are numbers and pointers, for which zero is valid.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = (&raw mut side.from).cast();
    header.msg_hdr.msg_namelen = address::LEN as libc::socklen_t;
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = (&raw mut side.control).cast();
    header.msg_hdr.msg_controllen = size_of::<ReceivedControl>() as _;
    header
}

fn arrival<'s>(header: &libc::mmsghdr, buffer: &'s mut [u8], side: &Side) -> Arrival<'s> {
    let message = &header.msg_hdr;
    #[allow(clippy::unnecessary_cast, reason = "not a usize in every C library")]
    let control_len = message.msg_controllen as usize;
    let control = side.control.bytes.get(..control_len).unwrap_or(&[]);
    let from = if message.msg_namelen == 0 { None } else { side.from.read() };
    let truncated = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let len = (header.msg_len as usize).min(buffer.len());
    Arrival { from, facts: Facts::read(control), truncated, bytes: &mut buffer[..len] }
}

/// The kernel's 32-bit counter of datagrams dropped by a queue, extended to 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overflow {
    last: u32,
    total: u64,
}

impl Overflow {
    pub(crate) fn note(&mut self, dropped: Option<u32>) {
        if let Some(dropped) = dropped {
            self.total += u64::from(dropped.wrapping_sub(self.last));
            self.last = dropped;
        }
    }

    /// Leaves out those that were dropped since the latest note.
    pub(crate) fn skip(&mut self, dropped: Option<u32>) {
        self.last = dropped.unwrap_or(self.last);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overflow_counter_continues_when_the_kernels_wraps() {
        let mut overflow = Overflow::default();
        for message in [None, Some(u32::MAX - 1), None, Some(3), Some(3)] {
            overflow.note(message);
        }
        assert_eq!(overflow.total(), u64::from(u32::MAX) + 4);
        overflow.skip(Some(9));
        overflow.skip(None);
        overflow.note(Some(11));
        assert_eq!(overflow.total(), u64::from(u32::MAX) + 6);
    }

    #[test]
    fn a_train_is_cut_at_its_stride_and_an_empty_datagram_yields_nothing() {
        let cut = |len: usize, stride| -> Vec<usize> {
            let (mut bytes, facts) = (vec![0; len], Facts { stride, ..Facts::default() });
            let mut arrival = Arrival { from: None, facts, truncated: false, bytes: &mut bytes };
            arrival.datagrams().map(|datagram| datagram.len()).collect()
        };
        assert_eq!(cut(2500, Some(1000)), [1000, 1000, 500]);
        assert_eq!(cut(2500, None), [2500]);
        assert!(cut(0, None).is_empty());
    }
}
