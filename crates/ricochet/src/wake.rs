//! Waking the node's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Wakes the thread that waits for its descriptor to become readable.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<EventFd>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Makes the descriptor readable. A full counter is not an error: the descriptor is readable already.
    pub(crate) fn wake(&self) {
        let _ = self.0.write(1);
    }

    /// Makes the descriptor unreadable until the next [`wake`](Self::wake).
    pub(crate) fn clear(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
