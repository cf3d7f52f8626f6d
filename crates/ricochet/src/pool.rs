//! Reused buffers for payloads.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A bounded number of buffers that no message holds.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Vec<u8>>>,
    idle_max: usize,
    /// Length of a new buffer; longer buffers are not kept.
    length: usize,
    made: AtomicU64,
}

impl Pool {
    /// Creates a pool that keeps up to `idle_max` buffers of `length` bytes. A buffer is
    /// allocated when it is first needed.
    pub(crate) fn new(idle_max: usize, length: usize) -> Arc<Self> {
        let idle = Mutex::new(Vec::with_capacity(idle_max));
        Arc::new(Self { idle, idle_max, length, made: AtomicU64::new(0) })
    }

    /// Copies `bytes` into one of the pool's buffers.
    pub(crate) fn copy(self: &Arc<Self>, bytes: &[u8]) -> Payload {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = idle.unwrap_or_else(|| {
            self.made.fetch_add(1, Ordering::Relaxed);
            Vec::with_capacity(self.length.max(bytes.len()))
        });
        buffer.extend_from_slice(bytes);
        Payload { bytes: buffer, pool: Arc::clone(self) }
    }

    /// Returns the number of buffers allocated.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    fn take_back(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() > self.length {
            return;
        }
        buffer.clear();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.idle_max {
            idle.push(buffer);
        }
    }
}

/// Bytes in a buffer that returns to its pool when dropped.
pub(crate) struct Payload {
    bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.pool.take_back(std::mem::take(&mut self.bytes));
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
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
        assert!(pool.idle.lock().unwrap().iter().all(|buffer| buffer.capacity() < 100));
    }
}
