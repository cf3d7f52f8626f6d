//! Reused buffers for payloads.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A bounded number of buffers that no message holds.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Arc<Buffer>>>,
    idle_max: usize,
    /// Length of a new buffer; longer buffers are not kept.
    length: usize,
    made: AtomicU64,
    /// Count of forks in the process that made the pool.
    forks: u64,
}

/// Bytes of a packet or of a long message.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    pool: Weak<Pool>,
}

impl Pool {
    /// Creates a pool that keeps up to `idle_max` buffers of `length` bytes. A buffer is
    /// allocated when it is first needed.
    pub(crate) fn new(idle_max: usize, length: usize) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(idle_max));
        let forks = netio::fork::count();
        Arc::new(Self { idle, idle_max, length, made: AtomicU64::new(0), forks })
    }

    /// Copies `bytes` into one of the pool's buffers.
    pub(crate) fn copy(self: &Arc<Self>, bytes: &[u8]) -> Payload {
        let mut buffer = self.lock().pop().unwrap_or_else(|| {
            self.made.fetch_add(1, Ordering::Relaxed);
            let room = Vec::with_capacity(self.length.max(bytes.len()));
            Arc::new(Buffer { bytes: room, pool: Arc::downgrade(self) })
        });
        let own = Arc::get_mut(&mut buffer).expect("nobody shares an idle buffer");
        own.bytes.extend_from_slice(bytes);
        Payload { buffer: Some(buffer), start: 0, length: bytes.len() }
    }

    /// Returns the number of buffers allocated.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Keeps a buffer for reuse.
    fn take_back(&self, mut buffer: Arc<Buffer>) {
        let Some(own) = Arc::get_mut(&mut buffer) else { return };
        // In the child of a fork, another thread may hold the lock for good.
        if own.bytes.capacity() > self.length || self.forks != netio::fork::count() {
            return;
        }
        own.bytes.clear();
        let mut idle = self.lock();
        if idle.len() < self.idle_max {
            idle.push(buffer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Buffer>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer, or a part of one. The buffer returns to its pool when its last part is dropped.
pub(crate) struct Payload {
    /// `None` while it is dropped.
    buffer: Option<Arc<Buffer>>,
    start: usize,
    length: usize,
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer.bytes[self.start..self.start + self.length])
    }

    /// Returns a part of it, which shares the buffer.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.length, "a part lies within its payload");
        Self { buffer: self.buffer.clone(), start: self.start + range.start, length: range.len() }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // Of several threads that drop the last parts at once, none may find the buffer its own. The buffer
        // is freed then.
        if let Some(mut buffer) = self.buffer.take()
            && Arc::get_mut(&mut buffer).is_some()
            && let Some(pool) = buffer.pool.upgrade()
        {
            pool.take_back(buffer);
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_a_bounded_number_is_kept() {
        let pool = Pool::new(2, 8);
        for _ in 0..10 {
            assert_eq!(pool.copy(b"abc").bytes(), b"abc");
        }
        assert_eq!(pool.made(), 1);
        let held: Vec<_> = (0..5).map(|_| pool.copy(b"x")).collect();
        assert_eq!(pool.made(), 5);
        drop(held);
        let held: Vec<_> = (0..5).map(|_| pool.copy(b"x")).collect();
        assert_eq!(pool.made(), 8, "two were kept");
        drop(held);
        drop(pool.copy(&[7; 100]));
        assert!(pool.idle.lock().unwrap().iter().all(|buffer| buffer.bytes.capacity() < 100));
    }

    #[test]
    fn parts_share_a_buffer_that_returns_with_the_last_of_them() {
        let pool = Pool::new(2, 8);
        for _ in 0..10 {
            let whole = pool.copy(b"abcdef");
            let (first, second) = (whole.part(0..2), whole.part(2..6));
            drop(whole);
            assert_eq!((first.bytes(), second.part(1..3).bytes()), (&b"ab"[..], &b"de"[..]));
            drop(first);
            assert_eq!(pool.idle.lock().unwrap().len(), 0);
            drop(second);
            assert_eq!(pool.idle.lock().unwrap().len(), 1);
        }
        assert_eq!(pool.made(), 1);
    }
}
