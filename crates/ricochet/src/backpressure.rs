//! Signals from the queues of subscriptions to the node: backpressure, and readers that are too slow.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::wake::Waker;

/// Active while any queue with [`Policy::Block`](crate::Policy::Block) is full. The node then processes no
/// packets; it continues to drain its sockets into the ring and to serve the membership.
#[derive(Debug)]
pub(crate) struct Backpressure {
    full_queues: AtomicUsize,
    /// Whether the node must be woken when the backpressure ends.
    armed: AtomicBool,
    /// Whether a queue has dropped messages since the node last looked.
    overrun: AtomicBool,
    waker: Waker,
}

impl Backpressure {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            full_queues: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            overrun: AtomicBool::new(false),
            waker,
        }
    }

    #[cfg(test)]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(crate) fn is_active(&self) -> bool {
        self.full_queues.load(Ordering::SeqCst) > 0
    }

    /// Requests a wake-up of the node at the end of the backpressure, if it is active.
    /// Returns whether it is active.
    pub(crate) fn arm_if_active(&self) -> bool {
        if !self.is_active() {
            return false;
        }
        self.armed.store(true, Ordering::SeqCst);
        self.is_active()
    }

    /// Notes that a queue has dropped a message.
    pub(crate) fn on_overrun(&self) {
        self.overrun.store(true, Ordering::Relaxed);
    }

    /// Returns whether a queue has dropped messages.
    pub(crate) fn has_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Returns whether queues have dropped messages since the last call.
    pub(crate) fn take_overrun(&self) -> bool {
        self.overrun.swap(false, Ordering::Relaxed)
    }

    /// Wakes the node, whose own messages have waited for a queue.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Notes that a queue has become full.
    pub(crate) fn on_queue_full(&self) {
        self.full_queues.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a queue that was full has room again.
    pub(crate) fn on_queue_drained(&self) {
        if self.full_queues.fetch_sub(1, Ordering::SeqCst) == 1 && self.armed.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}
