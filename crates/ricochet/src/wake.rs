//! Waking a thread through a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Wakes the thread that waits for its descriptor to become readable.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    event: Arc<EventFd>,
    #[cfg(shuttle)]
    model: Arc<crate::interleavings::Readable>,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self {
            event: Arc::new(EventFd::from_value_and_flags(0, flags)?),
            #[cfg(shuttle)]
            model: Arc::default(),
        })
    }

    /// Makes the descriptor readable. A full counter is not an error: the descriptor is readable already.
    pub(crate) fn wake(&self) {
        let _ = self.event.write(1);
        #[cfg(shuttle)]
        self.model.set(true);
    }

    /// Makes the descriptor unreadable until the next [`wake`](Self::wake).
    pub(crate) fn clear(&self) {
        let _ = self.event.read();
        #[cfg(shuttle)]
        self.model.set(false);
    }

    /// Waits until the descriptor is readable, as `epoll` does, on a thread that Shuttle schedules.
    #[cfg(shuttle)]
    pub(crate) fn wait(&self) {
        self.model.wait();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
