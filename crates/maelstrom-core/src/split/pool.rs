//! The buffer that all streams share, and the credit that each gets of it.
//!
//! A byte that a gateway has received from the far one waits until its host takes it. A slow host must
//! neither stop the other streams of its carrier nor take more memory than there is. So the receiver grants
//! each stream credit, and its sender sends no more than that:
//!
//! - Half of the buffer is divided into equal parts of [`INITIAL`] bytes. Each stream has one of them from
//!   its beginning, so that it never stands still, and there are no more streams than parts.
//! - The other half goes to the streams that use it. A new stream gets an eighth of what is free, so that a
//!   short transfer needs no further credit. A stream that has used up its credit, and whose host keeps up,
//!   gets more, up to its share: three quarters of this half, divided by the number of streams that want more
//!   than their part.
//! - A stream that holds more than its share, because others have come, is not granted again what its host
//!   takes. A sender that has been idle gives back what it holds above [`INITIAL`].
//!
//! The sum of what streams may send and of what waits never exceeds the buffer.

use super::frame::Fault;

/// Credit of each stream at its beginning, in both directions, in bytes.
pub const INITIAL: u32 = 16 << 10;
/// Smallest buffer in bytes: 64 streams.
pub const BUFFER_MIN: u64 = 64 * 2 * INITIAL as u64;

/// The buffer of a gateway.
#[derive(Clone, Debug)]
pub struct Pool {
    streams: u64,
    streams_max: u64,
    /// Bytes above [`INITIAL`] that streams hold.
    extra: u64,
    extra_max: u64,
    /// Number of streams that want more than [`INITIAL`].
    sharers: u64,
}

impl Pool {
    /// Creates the pool of a buffer of `bytes`.
    ///
    /// # Panics
    /// If there are fewer than [`BUFFER_MIN`].
    pub fn new(bytes: u64) -> Self {
        assert!(bytes >= BUFFER_MIN, "expected a buffer of {BUFFER_MIN} bytes or more, saw {bytes}");
        Self {
            streams: 0,
            streams_max: bytes / 2 / u64::from(INITIAL),
            extra: 0,
            extra_max: bytes / 2,
            sharers: 0,
        }
    }

    /// Number of streams.
    pub fn streams(&self) -> u64 {
        self.streams
    }

    /// Maximum number of streams.
    pub fn streams_max(&self) -> u64 {
        self.streams_max
    }

    /// Bytes that the streams may hold at present.
    pub fn promised(&self) -> u64 {
        self.streams * u64::from(INITIAL) + self.extra
    }

    fn free(&self) -> u64 {
        self.extra_max - self.extra
    }

    /// Bytes above [`INITIAL`] to which a stream has a right.
    fn share(&self) -> u64 {
        self.extra_max / 4 * 3 / self.sharers.max(1)
    }
}

/// The credit of one direction of a stream, as its receiver keeps it. It must be closed.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes that the sender may send, from the beginning of the stream on.
    limit: u64,
    received: u64,
    /// Bytes that the host has taken.
    taken: u64,
    /// Bytes above [`INITIAL`] that the stream holds.
    extra: u64,
    /// Bytes that the host has taken, and that have not been granted again.
    owed: u64,
    /// Whether the sender has used up its credit, and has got no more since.
    is_limited: bool,
    is_sharer: bool,
    /// Whether nothing more will arrive.
    is_ended: bool,
}

impl Window {
    /// Opens a window, unless there are as many streams as can be.
    pub(super) fn open(pool: &mut Pool) -> Option<Self> {
        if pool.streams == pool.streams_max {
            return None;
        }
        pool.streams += 1;
        Some(Self { limit: u64::from(INITIAL), ..Self::default() })
    }

    /// Returns the credit that a new stream gets above [`INITIAL`].
    pub(super) fn begin(&mut self, pool: &mut Pool) -> u32 {
        let bytes = u32::try_from(pool.free() / 8).unwrap_or(u32::MAX);
        self.take(pool, u64::from(bytes));
        bytes
    }

    /// Takes `bytes` that have arrived, of which none is in the host's hands.
    pub(super) fn on_received(&mut self, bytes: usize) -> Result<(), Fault> {
        self.received += bytes as u64;
        if self.received <= self.limit { Ok(()) } else { Err(Fault::Credit) }
    }

    /// The sender has used up its credit. Returns the credit that it gets.
    pub(super) fn on_limited(&mut self, pool: &mut Pool) -> u32 {
        self.is_limited = true;
        if !self.is_sharer {
            self.is_sharer = true;
            pool.sharers += 1;
        }
        self.grow(pool)
    }

    /// The host has taken `bytes`. Returns the credit that the sender gets; 0 until it is worth a frame.
    pub(super) fn on_taken(&mut self, bytes: usize, pool: &mut Pool) -> u32 {
        let bytes = bytes as u64;
        self.taken += bytes;
        assert!(self.taken <= self.received, "a host takes what has arrived");
        if self.is_ended {
            let freed = bytes.min(self.extra);
            self.extra -= freed;
            pool.extra -= freed;
            return 0;
        }
        let kept = bytes.min(self.extra.saturating_sub(pool.share()));
        self.extra -= kept;
        pool.extra -= kept;
        self.owed += bytes - kept;
        let grown = self.grow(pool);
        if self.owed < self.size() / 4 {
            return grown;
        }
        let granted = self.owed.min(u64::from(u32::MAX - grown));
        self.owed -= granted;
        self.limit += granted;
        grown + granted as u32 // at most u32::MAX together
    }

    /// Takes more of the pool if the sender lacks credit and the host keeps up. While the host is the slower
    /// one, more credit would only fill the buffer.
    fn grow(&mut self, pool: &mut Pool) -> u32 {
        if !self.is_limited || self.received - self.taken > self.size() / 2 {
            return 0;
        }
        let reserve = pool.extra_max / 4;
        let wanted = pool.share().saturating_sub(self.extra);
        let bytes = wanted.min(pool.free().saturating_sub(reserve)).min(u64::from(u32::MAX));
        self.is_limited = bytes == 0;
        self.take(pool, bytes);
        bytes as u32 // at most u32::MAX
    }

    /// The sender gives credit back.
    pub(super) fn on_returned(&mut self, bytes: u32, pool: &mut Pool) -> Result<(), Fault> {
        let bytes = u64::from(bytes);
        if bytes > self.extra || bytes > self.limit - self.received {
            return Err(Fault::Credit);
        }
        self.limit -= bytes;
        self.extra -= bytes;
        pool.extra -= bytes;
        self.leave_share(pool);
        Ok(())
    }

    /// The sender has ended its direction: credit that it has not used is free.
    pub(super) fn on_end(&mut self, pool: &mut Pool) {
        let freed = self.extra.min(self.limit - self.received + self.owed);
        self.extra -= freed;
        pool.extra -= freed;
        self.is_ended = true;
        self.leave_share(pool);
    }

    /// Gives everything back to the pool.
    pub(super) fn close(mut self, pool: &mut Pool) {
        pool.streams -= 1;
        pool.extra -= self.extra;
        self.leave_share(pool);
    }

    fn leave_share(&mut self, pool: &mut Pool) {
        if self.is_sharer {
            self.is_sharer = false;
            pool.sharers -= 1;
        }
    }

    fn take(&mut self, pool: &mut Pool, bytes: u64) {
        self.extra += bytes;
        self.limit += bytes;
        pool.extra += bytes;
        assert!(pool.extra <= pool.extra_max, "a pool promises no more than it has");
    }

    fn size(&self) -> u64 {
        u64::from(INITIAL) + self.extra
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A sender that has always more to send, and whose host takes everything at once. Returns its window's
    /// size after `rounds` windows.
    fn run(window: &mut Window, pool: &mut Pool, rounds: usize) -> u64 {
        for _ in 0..rounds {
            let bytes = (window.limit - window.received) as usize;
            window.on_received(bytes).unwrap();
            window.on_limited(pool);
            window.on_taken(bytes, pool);
        }
        window.size()
    }

    #[test]
    fn a_lone_stream_gets_three_quarters_of_the_half_and_leaves_the_rest_to_new_ones() {
        let mut pool = Pool::new(64 * MIB);
        let mut window = Window::open(&mut pool).unwrap();
        assert_eq!(u64::from(window.begin(&mut pool)), 4 * MIB);
        assert_eq!(run(&mut window, &mut pool, 3), 24 * MIB + u64::from(INITIAL));
        let mut next = Window::open(&mut pool).unwrap();
        assert_eq!(u64::from(next.begin(&mut pool)), MIB);
        next.close(&mut pool);
        window.close(&mut pool);
        assert_eq!((pool.promised(), pool.sharers), (0, 0));
    }

    #[test]
    fn streams_that_want_more_come_to_equal_shares() {
        let mut pool = Pool::new(64 * MIB);
        let mut windows: Vec<Window> = Vec::new();
        for _ in 0..8 {
            let mut window = Window::open(&mut pool).unwrap();
            window.begin(&mut pool);
            run(&mut window, &mut pool, 3);
            windows.push(window);
        }
        for _ in 0..10 {
            for window in &mut windows {
                run(window, &mut pool, 1);
            }
        }
        let sizes: Vec<u64> = windows.iter().map(Window::size).collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(least * 10 >= most * 9, "{sizes:?}");
    }

    #[test]
    fn a_slow_host_gets_no_more_and_a_liar_is_found_out() {
        let mut pool = Pool::new(64 * MIB);
        let mut window = Window::open(&mut pool).unwrap();
        window.on_received(INITIAL as usize).unwrap();
        assert_eq!(window.on_limited(&mut pool), 0, "nothing was taken");
        assert_eq!(window.on_received(1), Err(Fault::Credit));
        let mut other = Window::open(&mut pool).unwrap();
        let credit = other.begin(&mut pool);
        assert_eq!(other.on_returned(credit + 1, &mut pool), Err(Fault::Credit));
        assert_eq!(other.on_returned(credit, &mut pool), Ok(()));
        assert_eq!(other.on_returned(1, &mut pool), Err(Fault::Credit), "the first part is the stream's own");
        assert_eq!(pool.promised(), 2 * u64::from(INITIAL));
    }

    #[test]
    fn there_are_no_more_streams_than_parts() {
        let mut pool = Pool::new(BUFFER_MIN);
        let windows: Vec<Window> = (0..64).map(|_| Window::open(&mut pool).unwrap()).collect();
        assert!(Window::open(&mut pool).is_none());
        for window in windows {
            window.close(&mut pool);
        }
        assert_eq!(pool.streams(), 0);
    }
}
