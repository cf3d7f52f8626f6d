//! Sends a batch: consecutive datagrams of one size to one address become a train, which the kernel or the
//! card cuts. All trains leave with one system call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use super::address::Address;
use super::control::SendControl;
use super::sending::{Sending, UdpCounts};
use crate::interface::check;

/// Maximum number of trains and single datagrams in one system call.
const MESSAGES: usize = 64;
const FEW: usize = 4;
/// Total bytes of one batch.
const BYTES: usize = 1 << 19;
/// Maximum number of datagrams in a train; older kernels cut no more.
const TRAIN_DATAGRAMS: usize = 64;
/// Maximum bytes of UDP payload in a train.
const TRAIN_BYTES: usize = 65_535 - 48;
/// Number of datagrams sent without trains after a card turned out not to cut any. The route may lead to
/// another card by then.
const WITHOUT_TRAINS: u32 = 10_000;

/// Outgoing datagrams to many addresses, sent together.
///
/// An outbox holds a few hundred datagrams; [`Outbox::push`] sends them when it is full. It belongs to one
/// thread, and each thread makes its own. Dropping an outbox discards what it holds.
pub struct Outbox {
    sending: Sending,
    bytes: Vec<u8>,
    messages: Vec<Message>,
    counts: UdpCounts,
    without_trains: u32,
}

/// A datagram or a train: consecutive datagrams of one size to one address, back to back. The last may be
/// shorter.
#[derive(Clone, Copy)]
struct Message {
    to: Address,
    start: usize,
    len: usize,
    segment: usize,
    count: usize,
    closed: bool,
    tos: u8,
    control: SendControl,
}

impl Outbox {
    /// Makes an empty outbox that sends through `sending`.
    pub fn new(sending: Sending) -> Self {
        Self {
            sending,
            bytes: Vec::with_capacity(BYTES),
            messages: Vec::with_capacity(MESSAGES),
            counts: UdpCounts::default(),
            without_trains: 0,
        }
    }

    /// Adds a datagram, given as consecutive pieces, which are copied. If the outbox is full, its content is
    /// sent first. A datagram longer than UDP can carry is dropped and counted.
    pub fn push(&mut self, to: SocketAddr, pieces: &[&[u8]]) {
        self.push_marked(to, 0, pieces);
    }

    /// Adds a datagram, as [`Outbox::push`], that leaves with the type of service or traffic class `tos`.
    pub fn push_marked(&mut self, to: SocketAddr, tos: u8, pieces: &[&[u8]]) {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        if len > TRAIN_BYTES {
            self.counts.too_long += 1;
            return;
        }
        if self.bytes.len() + len > BYTES {
            self.send();
        }
        let to = Address::from(to);
        if !self.extend_last(to, tos, len) {
            if self.messages.len() == MESSAGES {
                self.send();
            }
            self.messages.push(Message::new(to, tos, self.bytes.len(), len));
        }
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Sends everything and returns the number of datagrams that the kernel refused since the last call.
    /// Those are dropped.
    pub fn flush(&mut self) -> u64 {
        self.send();
        let counts = std::mem::take(&mut self.counts);
        self.sending.add(&counts);
        counts.not_taken()
    }

    /// Returns whether [`Outbox::flush`] would do nothing: no datagram waits and no result is unreported.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.counts == UdpCounts::default()
    }

    /// Returns the socket's sending half.
    pub fn sending(&self) -> &Sending {
        &self.sending
    }

    fn extend_last(&mut self, to: Address, tos: u8, len: usize) -> bool {
        if !self.sending.cuts_trains() {
            return false;
        }
        if self.without_trains > 0 {
            self.without_trains -= 1;
            return false;
        }
        self.messages.last_mut().is_some_and(|last| last.takes(to, tos, len))
    }

    fn send(&mut self) {
        let mut done = 0;
        while done < self.messages.len() {
            done += match self.send_from(done) {
                Ok(sent) => {
                    let datagrams: usize =
                        self.messages[done..done + sent].iter().map(|message| message.count).sum();
                    self.counts.sent += datagrams as u64;
                    sent
                }
                Err(error) => {
                    self.not_sent(self.messages[done], &error);
                    1
                }
            };
        }
        self.messages.clear();
        self.bytes.clear();
    }

    /// Sends with one system call. An error concerns the first message; nothing was sent then.
    fn send_from(&self, first: usize) -> io::Result<usize> {
        let messages = &self.messages[first..];
        // Most batches are small, and preparing the maximum number of headers takes longer than sending one
        // message.
        if messages.len() <= FEW { self.call::<FEW>(messages) } else { self.call::<MESSAGES>(messages) }
    }

    fn call<const N: usize>(&self, messages: &[Message]) -> io::Result<usize> {
        debug_assert!((1..=N).contains(&messages.len()));
        let mut vectors: [libc::iovec; N] = std::array::from_fn(|at| {
            let bytes = messages.get(at).map_or(&[][..], |message| message.bytes(&self.bytes));
            // the kernel only reads, though the type does not say so
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
        });
        let mut vectors = vectors.iter_mut();
        let mut headers: [libc::mmsghdr; N] =
            std::array::from_fn(|at| header(messages.get(at), vectors.next().expect("one for each message")));
        // SAFETY: there are at least as many headers as messages. They point to vectors, bytes, addresses and
        // control messages that live and stay unchanged through the call, and give their sizes.
        let sent = check(unsafe {
            libc::sendmmsg(
                self.sending.fd().as_raw_fd(),
                headers.as_mut_ptr(),
                messages.len() as libc::c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        })?;
        // The kernel never returns zero for a call with messages; if it did, this loop would never end.
        Ok(sent.cast_unsigned().max(1) as usize)
    }

    fn not_sent(&mut self, message: Message, error: &io::Error) {
        if message.count == 1 || !fails_only_as_train(error) {
            self.counts.failed(error, message.count as u64);
            return;
        }
        self.counts.cut_here += 1;
        if error.raw_os_error() == Some(libc::EIO) {
            self.without_trains = WITHOUT_TRAINS;
        }
        for at in (0..message.len).step_by(message.segment) {
            let len = message.segment.min(message.len - at);
            let single = Message::new(message.to, message.tos, message.start + at, len);
            let result = self.call::<FEW>(&[single]).map(drop);
            self.counts.add(&result, 1);
        }
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbox({} messages, {} bytes)", self.messages.len(), self.bytes.len())
    }
}

impl Message {
    fn new(to: Address, tos: u8, start: usize, len: usize) -> Self {
        let control = SendControl::new(len as u16, tos, to.is_v4());
        // an empty datagram cannot begin a train
        Self { to, start, len, segment: len, count: 1, closed: len == 0, tos, control }
    }

    /// Adds a datagram to the train if it fits.
    fn takes(&mut self, to: Address, tos: u8, len: usize) -> bool {
        let fits = !self.closed
            && (self.to, self.tos) == (to, tos)
            && (1..=self.segment).contains(&len)
            && self.count < TRAIN_DATAGRAMS
            && self.len + len <= TRAIN_BYTES;
        if fits {
            self.len += len;
            self.count += 1;
            // a shorter datagram ends the train
            self.closed = len < self.segment;
        }
        fits
    }

    fn bytes<'b>(&self, all: &'b [u8]) -> &'b [u8] {
        &all[self.start..self.start + self.len]
    }
}

fn header(message: Option<&Message>, vector: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all fields are numbers and pointers, for which zero is valid.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    let Some(message) = message else { return header };
    // the kernel only reads, though the types do not say so
    header.msg_hdr.msg_name = (&raw const message.to).cast_mut().cast();
    header.msg_hdr.msg_namelen = message.to.len();
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    let control = message.control.messages(message.count > 1);
    if !control.is_empty() {
        header.msg_hdr.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_controllen = control.len() as _;
    }
    header
}

/// Returns whether a train can fail with this error although its datagrams alone would pass: EIO from a card
/// without checksum offload, EMSGSIZE (EINVAL on older kernels) for datagrams longer than the MTU.
fn fails_only_as_train(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::{OwnConfig, OwnSocket};

    fn pair() -> (Outbox, OwnSocket) {
        if let Ok(loopback) = crate::interface::Interface::open("lo") {
            let _ = loopback.set_up(true);
        }
        let config = OwnConfig::new("127.0.0.1:0".parse().unwrap(), "lo");
        let socket = OwnSocket::bind(&config).unwrap();
        (Outbox::new(socket.sending()), socket)
    }

    /// Another address of this host, without a listener.
    fn nobody(socket: &OwnSocket, number: u8) -> SocketAddr {
        ([127, 0, 9, number], socket.local_address().port()).into()
    }

    /// Number of datagrams in each message.
    fn trains(outbox: &Outbox) -> Vec<usize> {
        outbox.messages.iter().map(|message| message.count).collect()
    }

    #[test]
    fn neighbours_of_one_size_and_address_are_one_train() {
        let (mut outbox, socket) = pair();
        let (one, two) = (socket.local_address(), nobody(&socket, 0));
        for (to, len) in [
            (one, 100),
            (one, 100),
            (two, 100),
            (one, 100),
            (one, 101),
            (one, 101),
            (one, 7),
            (one, 7),
            (one, 0),
        ] {
            outbox.push(to, &[&vec![0; len]]);
        }
        assert_eq!(trains(&outbox), [2, 1, 1, 3, 1, 1]);
        outbox.flush();
        (0..200).for_each(|_| outbox.push(one, &[&[0; 10]]));
        assert_eq!(trains(&outbox), [64, 64, 64, 8]);
        outbox.flush();
        (0..10).for_each(|_| outbox.push(one, &[&[0; 9000]]));
        assert_eq!(trains(&outbox), [7, 3]);
    }

    #[test]
    fn a_full_outbox_is_sent_before_more_is_added() {
        let (mut outbox, socket) = pair();
        let to = |n: usize| nobody(&socket, n as u8);
        for n in 0..MESSAGES + 1 {
            outbox.push(to(n), &[b"x"]);
        }
        assert_eq!(trains(&outbox), [1]);
        (0..BYTES / 60_000 + 1).for_each(|n| outbox.push(to(n), &[&[0; 60_000]]));
        assert_eq!(trains(&outbox), [1]);
        assert!(
            outbox.bytes.capacity() == BYTES && outbox.messages.capacity() == MESSAGES,
            "the buffers grew"
        );
        outbox.flush();
        assert_eq!(outbox.sending.counts().sent, (MESSAGES + 1 + BYTES / 60_000 + 1) as u64);
    }

    #[test]
    fn a_train_that_fails_is_sent_datagram_by_datagram() {
        for (code, again) in [(libc::EIO, false), (libc::EMSGSIZE, true), (libc::EINVAL, true)] {
            let (mut outbox, mut socket) = pair();
            let to = socket.local_address();
            let push = |outbox: &mut Outbox| [5, 5, 3].map(|len| outbox.push(to, &[&vec![0; len]]));
            push(&mut outbox);
            outbox.not_sent(outbox.messages[0], &io::Error::from_raw_os_error(code));
            assert_eq!((outbox.counts.cut_here, outbox.counts.sent), (1, 3));
            outbox.messages.clear();
            outbox.bytes.clear();
            push(&mut outbox);
            assert_eq!(trains(&outbox).len(), if again { 1 } else { 3 });
            assert_eq!(outbox.flush(), 0);
            let mut got = Vec::new();
            while socket.recv(|_, datagram| got.push(datagram.len())).unwrap() {}
            assert_eq!(got, [5, 5, 3, 5, 5, 3]);
        }
    }

    #[test]
    fn another_error_drops_the_whole_train() {
        let (mut outbox, socket) = pair();
        (0..3).for_each(|_| outbox.push(socket.local_address(), &[b"x"]));
        outbox.not_sent(outbox.messages[0], &io::Error::from_raw_os_error(libc::ENETUNREACH));
        outbox.not_sent(outbox.messages[0], &io::Error::from_raw_os_error(libc::EAGAIN));
        assert_eq!((outbox.counts.refused, outbox.counts.full, outbox.counts.sent), (3, 3, 0));
    }
}
