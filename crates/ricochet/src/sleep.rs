//! Sleep of the node's thread, and how other threads end it.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::wake::Waker;

/// The node's thread announces its sleep, looks once more for work, and then waits for the waker. A thread
/// that brings work makes it visible first and then wakes a thread that has announced its sleep: one of the
/// two sees the other.
#[derive(Debug)]
pub(crate) struct Sleep {
    /// Time at which the node's thread wakes by itself; 0 while it is awake.
    until_us: AtomicU64,
    waker: Waker,
}

impl Sleep {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { until_us: AtomicU64::new(0), waker }
    }

    /// Announces that the node's thread sleeps until a time. It must look for work after this call.
    pub(crate) fn announce(&self, until_us: u64) {
        self.until_us.store(until_us.max(1), Ordering::SeqCst);
    }

    /// Notes that the node's thread is awake; `woken` tells whether the waker's descriptor was readable.
    pub(crate) fn on_awake(&self, woken: bool) {
        if woken {
            self.waker.clear();
        }
        self.until_us.store(0, Ordering::SeqCst);
    }

    /// Wakes the node's thread if it would otherwise sleep beyond a time.
    pub(crate) fn wake_before(&self, due_us: u64) {
        if due_us < self.until_us.load(Ordering::SeqCst) {
            self.until_us.store(0, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    /// Returns the waker that ends the sleep in any case.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}
