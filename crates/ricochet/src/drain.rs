//! From the kernel's sockets into the rings.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use netio::multicast::{GroupSocket, OwnSocket};

use crate::filter::{Dropped, DroppedCounts, Filter, For, Via};
use crate::ring::Ring;
use crate::shared::Shared;
use crate::status::KernelCounts;

/// So many times in a row the group socket is read before others have their turn.
const GROUP_READS: usize = 16;
/// So many turns in a row the own socket's datagrams may wait for the group socket to be empty: a flood of the groups must
/// not hold up repairs and requests.
const TURNS_LATE: u8 = 4;

/// The receiving sockets. They belong to the node's thread, or to a thread that does nothing else.
pub(crate) struct Drain {
    /// None where there is no multicast.
    pub(crate) group: Option<GroupSocket>,
    pub(crate) own: OwnSocket,
    pub(crate) filter: Filter,
    /// What one read brought: looked at before a ring is locked that others need.
    pub(crate) fresh: Ring,
    /// What came to the own socket, until the group socket has been read too.
    pub(crate) late: Ring,
    /// Datagrams of the membership among it.
    pub(crate) letters: Ring,
    /// For how many turns they have waited.
    pub(crate) turns_late: u8,
    pub(crate) dropped: DroppedCounts,
}

impl Drain {
    /// Takes what waits; returns whether more may wait.
    ///
    /// A repair follows the packets in it, but by another socket. So the own socket is read first, then the group socket
    /// until it is empty, and only then is queued what the former gave: whatever a repair names that is not queued ahead of
    /// it had not come when it came. While the groups are flooded that holds for some turns only.
    pub(crate) fn drain(&mut self, shared: &Shared) -> io::Result<bool> {
        let mut more = false;
        if self.turns_late == 0 {
            more = self.read_own(shared)?;
        }
        let mut waits = self.group.is_some();
        for _ in 0..GROUP_READS {
            if !waits {
                break;
            }
            waits = self.read_group(shared)?;
        }
        more |= waits;
        if waits && self.turns_late < TURNS_LATE {
            self.turns_late += 1;
        } else {
            self.turns_late = 0;
            hand_on(&mut self.late, &shared.ring);
        }
        hand_on(&mut self.letters, &shared.letters);
        self.publish(shared);
        Ok(more)
    }

    fn read_own(&mut self, shared: &Shared) -> io::Result<bool> {
        let Self { own, filter, late, letters, dropped, .. } = self;
        let mut rings = Rings { ring: late, letters, dropped };
        let groups = shared.joined.read().unwrap_or_else(PoisonError::into_inner);
        own.recv(|from, datagram| {
            let looked = filter.look(&groups, Via::Own, from, datagram);
            rings.keep(from, looked);
        })
    }

    fn read_group(&mut self, shared: &Shared) -> io::Result<bool> {
        let Self { group, filter, fresh, letters, dropped, .. } = self;
        let Some(group) = group else { return Ok(false) };
        group.set_interface(shared.interface.load(Ordering::Relaxed));
        let mut rings = Rings { ring: fresh, letters, dropped };
        let waits = {
            let groups = shared.joined.read().unwrap_or_else(PoisonError::into_inner);
            group.recv(|from, _, datagram| {
                let looked = filter.look(&groups, Via::Group, from, datagram);
                rings.keep(from, looked);
            })?
        };
        hand_on(fresh, &shared.ring);
        Ok(waits)
    }

    /// What is waited for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.group.iter().map(|group| group.as_fd()).chain([self.own.as_fd()])
    }

    fn publish(&self, shared: &Shared) {
        let mut kernel = KernelCounts::default();
        let sockets = self.group.iter().map(GroupSocket::counts).chain([self.own.counts()]);
        for counts in sockets {
            kernel.received += counts.received;
            kernel.overflowed += counts.overflowed;
            kernel.not_for_us += counts.not_multicast + counts.other_interface;
            kernel.truncated += counts.truncated;
            kernel.failed += counts.failed;
        }
        let mut published = shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.kernel = kernel;
        published.dropped = self.dropped;
    }

    /// Drains until the node ends: the life of a thread of its own.
    pub(crate) fn run(mut self, shared: &Arc<Shared>, stop: &crate::wake::Waker) -> io::Result<()> {
        let mut poller = netio::poll::Poller::new()?;
        for (token, descriptor) in self.descriptors().enumerate() {
            poller.add(&descriptor, token as u64, netio::poll::Interest::Readable)?;
        }
        poller.add(stop, 9, netio::poll::Interest::Readable)?;
        while !shared.closing.load(Ordering::SeqCst) {
            poller.wait(None)?.for_each(drop);
            while self.drain(shared)? && !shared.closing.load(Ordering::SeqCst) {
                shared.wake_before(1);
            }
            shared.wake_before(1);
        }
        Ok(())
    }
}

/// Moves what waits into a ring that others share.
fn hand_on(fresh: &mut Ring, to: &Mutex<Ring>) {
    if !fresh.is_empty() {
        to.lock().unwrap_or_else(PoisonError::into_inner).append(fresh);
    }
}

struct Rings<'a> {
    ring: &'a mut Ring,
    letters: &'a mut Ring,
    dropped: &'a mut DroppedCounts,
}

impl Rings<'_> {
    fn keep(&mut self, from: std::net::SocketAddr, looked: Result<(For, &[u8]), Dropped>) {
        let taken = looked.and_then(|(whose, datagram)| {
            let ring = match whose {
                For::Node => &mut *self.ring,
                For::Membership => &mut *self.letters,
            };
            if ring.push(from, datagram) { Ok(()) } else { Err(Dropped::TooLong) }
        });
        if let Err(reason) = taken {
            self.dropped.add(reason);
        }
    }
}
