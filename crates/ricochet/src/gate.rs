//! Where a subscription that blocks makes the node wait.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::wake::Waker;

/// Shut while any queue with [`Policy::Block`](crate::Policy::Block) is full. The node then processes no packets; it
/// goes on draining its sockets into the ring, and to answer the membership.
#[derive(Debug)]
pub(crate) struct Gate {
    full: AtomicUsize,
    /// The node waits for the gate to open.
    waited_for: AtomicBool,
    waker: Waker,
}

impl Gate {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { full: AtomicUsize::new(0), waited_for: AtomicBool::new(false), waker }
    }

    #[cfg(test)]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn is_open(&self) -> bool {
        self.full.load(Ordering::SeqCst) == 0
    }

    /// As [`is_open`](Self::is_open); if it is not, the node will be woken when it opens.
    pub(crate) fn is_open_or_wake(&self) -> bool {
        if self.is_open() {
            return true;
        }
        self.waited_for.store(true, Ordering::SeqCst);
        self.is_open()
    }

    /// A queue is full.
    pub(crate) fn shut(&self) {
        self.full.fetch_add(1, Ordering::SeqCst);
    }

    /// A queue that was full is so no more.
    pub(crate) fn open(&self) {
        if self.full.fetch_sub(1, Ordering::SeqCst) == 1 && self.waited_for.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}
