//! Datagrams on their way from the core to the socket.
//!
//! A thread that holds the core writes its datagrams into a buffer of the core. Before it releases the core
//! it hands them over, in the order of the core, and then sends. One thread at a time seals and sends; a
//! thread that finds another one sending leaves its datagrams to that one. So nobody waits for the core while
//! a datagram is sealed or sent, and nobody waits for a thread that sends, as long as few bytes wait.

use std::mem;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use netio::multicast::{Outbox, Sending, UdpCounts};

use crate::key::Seal;

/// Bytes that may wait for a thread that sends. Beyond that, other threads wait for it too.
const WAITING_MAX: usize = 1 << 20;
/// Maximum number of times that a thread sends what others have handed over meanwhile.
const ROUNDS_MAX: usize = 4;

/// Bytes and datagrams for which a buffer has room from the beginning.
const ROOM: usize = 1 << 17;
const ROOM_HEADS: usize = 1 << 10;

/// Datagrams and their destinations.
#[derive(Debug)]
pub(crate) struct Datagrams {
    bytes: Vec<u8>,
    heads: Vec<Head>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    to: SocketAddr,
    is_multicast: bool,
    /// Type of service; 0 for that of the socket.
    tos: u8,
    start: usize,
    length: usize,
}

impl Default for Datagrams {
    /// Returns an empty buffer with room for a batch: buffers take turns, and none should grow later.
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(ROOM), heads: Vec::with_capacity(ROOM_HEADS) }
    }
}

impl Datagrams {
    /// Adds a datagram to one address.
    pub(crate) fn push(&mut self, to: SocketAddr, is_multicast: bool, tos: u8, datagram: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        self.heads.push(Head { to, is_multicast, tos, start, length: datagram.len() });
    }

    /// Adds a datagram to several addresses.
    pub(crate) fn push_copies(&mut self, to: &[SocketAddr], tos: u8, datagram: &[u8]) {
        let (start, length) = (self.bytes.len(), datagram.len());
        self.bytes.extend_from_slice(datagram);
        self.heads.extend(to.iter().map(|&to| Head { to, is_multicast: false, tos, start, length }));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            self.clear();
            return mem::swap(self, other);
        }
        let offset = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.heads.extend(other.heads.iter().map(|head| Head { start: head.start + offset, ..*head }));
        other.clear();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.heads.clear();
    }
}

/// The socket that datagrams leave through, and the datagrams that wait for it.
pub(crate) struct Transmitter {
    waiting: Mutex<Datagrams>,
    /// `None` once the node is closed.
    socket: Mutex<Option<Socket>>,
    /// Counters at the end.
    closed: Mutex<UdpCounts>,
}

struct Socket {
    outbox: Outbox,
    seal: Option<Seal>,
    batch: Datagrams,
}

impl Transmitter {
    pub(crate) fn new(sending: Sending, seal: Option<Seal>) -> Self {
        let socket = Socket { outbox: Outbox::new(sending), seal, batch: Datagrams::default() };
        Self { waiting: Mutex::default(), socket: Mutex::new(Some(socket)), closed: Mutex::default() }
    }

    /// Takes datagrams, in order, while the caller has the core.
    pub(crate) fn hand_over(&self, datagrams: &mut Datagrams) {
        if !datagrams.is_empty() {
            lock(&self.waiting).append(datagrams);
        }
    }

    /// Seals and sends what waits, unless another thread does. The caller does not have the core. Returns
    /// whether more waits.
    pub(crate) fn send(&self) -> bool {
        for _ in 0..ROUNDS_MAX {
            let waiting = {
                let waiting = lock(&self.waiting);
                if waiting.is_empty() {
                    return false;
                }
                waiting.bytes.len()
            };
            let mut socket = match self.socket.try_lock() {
                Ok(socket) => socket,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if waiting > WAITING_MAX => lock(&self.socket),
                // That thread looks again after it has unlocked the socket.
                Err(TryLockError::WouldBlock) => return false,
            };
            match &mut *socket {
                Some(socket) => {
                    mem::swap(&mut *lock(&self.waiting), &mut socket.batch);
                    socket.send();
                }
                None => lock(&self.waiting).clear(),
            }
        }
        !self.is_empty()
    }

    /// Returns whether no datagram waits.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    /// Returns the socket's counters of datagrams sent and refused.
    pub(crate) fn counts(&self) -> UdpCounts {
        let socket = lock(&self.socket);
        socket.as_ref().map_or_else(|| *lock(&self.closed), |socket| socket.outbox.sending().counts())
    }

    /// Sends what waits, and closes the socket. Later datagrams are discarded.
    pub(crate) fn close(&self) {
        self.send();
        if let Some(socket) = lock(&self.socket).take() {
            *lock(&self.closed) = socket.outbox.sending().counts();
        }
    }
}

impl Socket {
    fn send(&mut self) {
        let Self { outbox, seal, batch } = self;
        for &Head { to, is_multicast, tos, start, length } in &batch.heads {
            let datagram = &batch.bytes[start..start + length];
            match seal {
                Some(seal) => {
                    let trailer = seal.trailer((!is_multicast).then_some(to), datagram);
                    outbox.push_marked(to, tos, &[datagram, &trailer]);
                }
                None => outbox.push_marked(to, tos, &[datagram]),
            }
        }
        batch.clear();
        // The socket counts datagrams that the kernel refuses. Receivers treat them as any other loss.
        outbox.flush();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use ricochet_core::GroupId;

    use super::*;
    use crate::node::Node;
    use crate::sender::Outbound;

    /// Returns the lengths of the datagrams that come.
    fn lengths(socket: &UdpSocket, count: usize) -> Vec<usize> {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        (0..count).map(|_| socket.recv(&mut [0; 100]).unwrap()).collect()
    }

    #[test]
    fn a_thread_that_finds_another_one_sending_leaves_its_datagrams_to_it_in_order() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let transmitter = &driver.shared.transmitter;
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let hand_over = |length: usize| {
            let mut datagrams = Datagrams::default();
            datagrams.push(to, false, 0, &vec![7; length]);
            transmitter.hand_over(&mut datagrams);
            assert!(datagrams.is_empty());
        };
        let sending = transmitter.socket.lock().unwrap();
        std::thread::scope(|scope| {
            // This thread would wait for ever if it waited for the one that sends.
            scope.spawn(|| {
                (1..=3).for_each(|length| {
                    hand_over(length);
                    assert!(!transmitter.send());
                });
            });
        });
        assert!(!transmitter.is_empty());
        drop(sending);
        hand_over(4);
        assert!(!transmitter.send() && transmitter.is_empty());
        assert_eq!(lengths(&receiver, 4), [1, 2, 3, 4]);
        transmitter.close();
        hand_over(5);
        assert!(!transmitter.send() && transmitter.is_empty());
        assert_eq!(transmitter.counts().sent, 4);
    }

    #[test]
    fn copies_share_their_bytes_and_all_arrive() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let receivers = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = receivers.each_ref().map(|socket| socket.local_addr().unwrap());
        let (mut first, mut second) = (Datagrams::default(), Datagrams::default());
        first.push(to[0], false, 0, b"one");
        second.push_copies(&to, 0, b"copies");
        let transmitter = &driver.shared.transmitter;
        transmitter.hand_over(&mut first);
        transmitter.hand_over(&mut second);
        transmitter.send();
        assert_eq!(lengths(&receivers[0], 2), [3, 6]);
        assert_eq!([lengths(&receivers[1], 1), lengths(&receivers[2], 1)], [[6], [6]]);
    }

    #[test]
    fn the_core_is_free_while_its_datagrams_are_sent() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = &driver.shared;
        let sending = shared.transmitter.socket.lock().unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| shared.send(&Outbound::plain(GroupId(1), b"x"), None));
            assert_eq!(sender.join().unwrap(), Ok(0));
        });
        assert!(shared.core_if_free().is_some());
        drop(sending);
    }
}
