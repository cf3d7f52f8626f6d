//! Drains the kernel's sockets into the rings.

use std::io;
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use netio::multicast::{GroupSocket, OwnSocket};
use netio::poll::{Interest, Poller};
use ricochet_core::wire::Kind;

use crate::clock;
use crate::filter::{Dropped, DroppedCounts, Filter, For, Passed, Via};
use crate::ring::Ring;
use crate::shared::Shared;
use crate::sightings::Sample;
use crate::status::KernelCounts;

/// Maximum number of reads of the group socket in one turn.
const GROUP_READS: usize = 16;
/// Maximum number of turns for which the own socket's datagrams wait until the group socket is empty: a flood
/// of the groups must not delay repairs and requests for longer.
const TURNS_DEFERRED_MAX: u8 = 4;

/// The receiving sockets. They belong to the node's thread, or to a thread that does nothing else.
pub(crate) struct Drain {
    /// `None` without multicast.
    pub(crate) group: Option<GroupSocket>,
    pub(crate) own: OwnSocket,
    pub(crate) filter: Filter,
    /// Datagrams of one read, filtered before the shared ring is locked.
    pub(crate) fresh: Ring,
    /// Packets of the own socket, until the group socket has been read too.
    pub(crate) deferred: Ring,
    /// Repairs, deferred likewise.
    pub(crate) repairs: Ring,
    /// Requests, questions and reports.
    pub(crate) requests: Ring,
    /// The membership's datagrams.
    pub(crate) membership: Ring,
    pub(crate) state: DrainState,
    pub(crate) dropped: DroppedCounts,
    pub(crate) sample: Sample,
}

/// State between two turns.
#[derive(Debug, Default)]
pub(crate) struct DrainState {
    /// Number of turns for which datagrams have been deferred.
    turns_deferred: u8,
    /// Whether packets wait in the group socket because the ring has no room for them.
    is_held: bool,
    /// Whether the node's thread has stopped to watch the group socket.
    is_unwatched: bool,
}

impl Drain {
    /// Moves datagrams from the sockets to the rings. Returns whether more may wait.
    ///
    /// A repair follows the packets in it, but through another socket. So this reads the own socket first,
    /// then the group socket until it is empty, and only then queues the own socket's datagrams. A packet
    /// that a repair names and that is not queued ahead of it had thus not arrived before the repair. While
    /// the groups are flooded, datagrams are deferred for a few turns only.
    ///
    /// While the ring has no room, packets wait in the kernel's buffer of the group socket, which is much
    /// larger. The own socket is always read, because the membership's datagrams come through it.
    pub(crate) fn drain(&mut self, shared: &Shared) -> io::Result<bool> {
        let mut more = false;
        if self.state.turns_deferred == 0 {
            more = self.read_own(shared)?;
        }
        let mut group_waits = self.group.is_some();
        let was_held = mem::take(&mut self.state.is_held);
        for _ in 0..GROUP_READS {
            if !group_waits {
                break;
            }
            self.state.is_held = !shared.ring.lock().unwrap_or_else(PoisonError::into_inner).has_room();
            if self.state.is_held {
                break;
            }
            group_waits = self.read_group(shared)?;
        }
        if self.state.is_held != was_held {
            let mut sightings = shared.sightings.lock().unwrap_or_else(PoisonError::into_inner);
            sightings.set_held(clock::now_us(), self.state.is_held);
        }
        more |= group_waits && !self.state.is_held;
        if group_waits && self.state.turns_deferred < TURNS_DEFERRED_MAX {
            self.state.turns_deferred += 1;
        } else {
            self.state.turns_deferred = 0;
            append_to(&shared.ring, &mut self.deferred);
            append_to(&shared.repairs, &mut self.repairs);
        }
        append_to(&shared.requests, &mut self.requests);
        append_to(&shared.membership_ring, &mut self.membership);
        self.publish(shared);
        Ok(more)
    }

    fn read_own(&mut self, shared: &Shared) -> io::Result<bool> {
        let Self { own, filter, deferred, repairs, requests, membership, dropped, .. } = self;
        let mut rings = Rings { packets: deferred, repairs, requests, membership, dropped };
        let groups = shared.joined.read().unwrap_or_else(PoisonError::into_inner);
        let mut windows = shared.windows.lock().unwrap_or_else(PoisonError::into_inner);
        own.recv(|from, datagram| {
            let sorted = filter.sort(&groups, &mut windows, Via::Own, from, datagram);
            rings.push(from, sorted);
        })
    }

    fn read_group(&mut self, shared: &Shared) -> io::Result<bool> {
        let Self { group, filter, fresh, repairs, requests, membership, dropped, sample, .. } = self;
        let Some(group) = group else { return Ok(false) };
        group.set_interface(shared.interface.load(Ordering::Relaxed));
        let mut rings = Rings { packets: fresh, repairs, requests, membership, dropped };
        let more = {
            let groups = shared.joined.read().unwrap_or_else(PoisonError::into_inner);
            let mut windows = shared.windows.lock().unwrap_or_else(PoisonError::into_inner);
            group.recv(|from, to, datagram| {
                let sorted = filter.sort(&groups, &mut windows, Via::Group, from, datagram);
                if sorted.is_ok() {
                    sample.take(from, to);
                }
                rings.push(from, sorted);
            })?
        };
        if !sample.is_empty() {
            let mut sightings = shared.sightings.lock().unwrap_or_else(PoisonError::into_inner);
            sightings.note(clock::now_us(), sample);
        }
        append_to(&shared.ring, fresh);
        Ok(more)
    }

    /// Returns the descriptors that become readable when datagrams arrive.
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

    /// Drains until the node ends, on a thread of its own.
    pub(crate) fn run(mut self, shared: &Arc<Shared>, stop: &crate::wake::Waker) -> io::Result<()> {
        let mut poller = Poller::new()?;
        for (token, descriptor) in self.descriptors().enumerate() {
            poller.add(&descriptor, token as u64, Interest::Readable)?;
        }
        poller.add(stop, 9, Interest::Readable)?;
        while !shared.closing.load(Ordering::SeqCst) {
            if self.state.is_held {
                self.wait_for_room(shared);
            } else {
                poller.wait(None)?.for_each(drop);
            }
            while self.drain(shared)? && !shared.closing.load(Ordering::SeqCst) {
                shared.sleep.wake_before(1);
            }
            shared.sleep.wake_before(1);
        }
        Ok(())
    }
}

impl Drain {
    /// Watches the group socket, unless packets wait there for room in the ring: it would stay readable.
    pub(crate) fn watch_group(&mut self, poller: &Poller) -> io::Result<()> {
        let DrainState { is_held, is_unwatched, .. } = &mut self.state;
        let Some(group) = self.group.as_ref().filter(|_| is_held != is_unwatched) else { return Ok(()) };
        *is_unwatched = *is_held;
        // It is the first of the descriptors.
        if *is_held { poller.remove(group) } else { poller.add(group, 0, Interest::Readable) }
    }

    /// Waits until the ring has room again. Looks at the own socket from time to time.
    fn wait_for_room(&self, shared: &Shared) {
        const LOOK: Duration = Duration::from_millis(5);
        let ring = shared.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = shared.ring_has_room.wait_timeout_while(ring, LOOK, |ring| !ring.has_room());
        drop(waited);
    }
}

/// Moves all datagrams of a private ring to a shared one.
fn append_to(shared: &Mutex<Ring>, ring: &mut Ring) {
    if !ring.is_empty() {
        shared.lock().unwrap_or_else(PoisonError::into_inner).append(ring);
    }
}

struct Rings<'a> {
    packets: &'a mut Ring,
    repairs: &'a mut Ring,
    requests: &'a mut Ring,
    membership: &'a mut Ring,
    dropped: &'a mut DroppedCounts,
}

impl Rings<'_> {
    /// Puts a datagram into the ring of its consumer, or counts it as dropped.
    fn push(&mut self, from: std::net::SocketAddr, sorted: Result<Passed<'_>, Dropped>) {
        let pushed = sorted.and_then(|passed| {
            let ring = match (passed.consumer, passed.peek.map(|peek| peek.kind)) {
                (For::Membership | For::Greetings, _) => &mut *self.membership,
                (For::Node, Some(Kind::Repair)) => &mut *self.repairs,
                (
                    For::Node,
                    Some(
                        Kind::Nak
                        | Kind::Question
                        | Kind::Room
                        | Kind::Probe
                        | Kind::Denial
                        | Kind::HistoryRequest,
                    ),
                ) => &mut *self.requests,
                (For::Node, _) => &mut *self.packets,
            };
            if ring.push(from, passed.peek, passed.stamp, passed.datagram) {
                Ok(())
            } else {
                Err(Dropped::TooLong)
            }
        });
        if let Err(reason) = pushed {
            self.dropped.add(reason);
        }
    }
}
