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
//!   than their part, and twice what is free. Hosts that have taken bytes fast and then take none thus leave
//!   room in which others grow.
//! - A sixth of it can be given to carriers in equal parts, in advance, for streams that are not open yet
//!   (`advance.rs`).
//! - A stream that holds more than its share, because others have come, is not granted again what its host
//!   takes. A sender that has been idle gives back what it holds above [`INITIAL`].
//!
//! The sum of what streams may send and of what waits never exceeds the buffer.

use super::frame::Fault;

/// Credit of each stream at its beginning, in both directions, in bytes.
pub const INITIAL: u32 = 16 << 10;
/// Streams that are left to this end for connections which the kernel has accepted when no more are taken.
const HEADROOM: u64 = 32;
/// Bytes that a host takes before they are granted again, of large windows.
const GRANTED: u64 = 1 << 20;
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
    /// Bytes that were given in advance, and that no stream has yet.
    advanced: u64,
    /// Number of carriers that may want an advance.
    carriers: u64,
    /// Number of streams that want more than [`INITIAL`].
    sharers: u64,
}

impl Pool {
    /// Creates the pool of a buffer of `bytes`, for this number of carriers that far gateways dial. More may
    /// come, but get an advance only while others have less than their part.
    ///
    /// # Panics
    /// If there are fewer than [`BUFFER_MIN`].
    pub fn new(bytes: u64, carriers: u64) -> Self {
        assert!(bytes >= BUFFER_MIN, "expected a buffer of {BUFFER_MIN} bytes or more, saw {bytes}");
        Self {
            streams: 0,
            streams_max: bytes / 2 / u64::from(INITIAL),
            extra: 0,
            extra_max: bytes / 2,
            advanced: 0,
            carriers: carriers.max(1),
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

    /// Whether no more streams should be opened.
    pub fn is_full(&self) -> bool {
        self.streams + HEADROOM >= self.streams_max
    }

    /// Bytes that the streams may hold at present, without those that others get in advance.
    pub fn promised(&self) -> u64 {
        self.streams * u64::from(INITIAL) + self.extra
    }

    /// Bytes that new streams may send before this end has heard of them.
    pub fn advanced(&self) -> u64 {
        self.advanced
    }

    fn free(&self) -> u64 {
        self.extra_max - self.extra - self.advanced
    }

    fn advanced_max(&self) -> u64 {
        self.extra_max / 6
    }

    /// Bytes that a carrier has in advance if it wants as many.
    pub(super) fn advance_share(&self) -> u64 {
        self.advanced_max() / self.carriers
    }

    /// Gives up to `wanted` bytes in advance: at most an eighth of what is free, as to a new stream.
    pub(super) fn advance(&mut self, wanted: u64) -> u64 {
        let bytes = wanted.min(self.advanced_max() - self.advanced).min(self.free() / 8);
        self.advanced += bytes;
        bytes
    }

    /// Takes back what was given in advance.
    pub(super) fn take_back(&mut self, bytes: u64) {
        self.advanced -= bytes;
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

    /// Returns the credit that a new stream gets in addition to what it has above [`INITIAL`].
    pub(super) fn begin(&mut self, pool: &mut Pool) -> u32 {
        let bytes = u32::try_from((pool.free() / 8).saturating_sub(self.extra)).unwrap_or(u32::MAX);
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
        if self.owed < (self.size() / 4).min(GRANTED) {
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
        // Twice what is free then, which counts what was given in advance.
        let most = (pool.extra_max - (pool.extra - self.extra)) / 3 * 2;
        let wanted = pool.share().min(most).saturating_sub(self.extra);
        let bytes = wanted.min(pool.free()).min(u64::from(u32::MAX));
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

    /// Takes `bytes` of the pool that are free.
    pub(super) fn take(&mut self, pool: &mut Pool, bytes: u64) {
        self.extra += bytes;
        self.limit += bytes;
        pool.extra += bytes;
        assert!(pool.extra + pool.advanced <= pool.extra_max, "a pool promises no more than it has");
    }

    fn size(&self) -> u64 {
        u64::from(INITIAL) + self.extra
    }
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::super::advance::Given;
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Bytes above the first part that a lone stream gets of 64 MiB.
    const LONE: u64 = 32 * MIB / 3 * 2;

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
    fn a_lone_stream_gets_two_thirds_of_the_half_and_leaves_the_rest_to_others() {
        let mut pool = Pool::new(64 * MIB, 1);
        let mut window = Window::open(&mut pool).unwrap();
        assert_eq!(u64::from(window.begin(&mut pool)), 4 * MIB);
        assert_eq!(run(&mut window, &mut pool, 3), LONE + u64::from(INITIAL));
        let mut next = Window::open(&mut pool).unwrap();
        assert_eq!(u64::from(next.begin(&mut pool)), (32 * MIB - LONE) / 8);
        next.close(&mut pool);
        window.close(&mut pool);
        assert_eq!((pool.promised(), pool.sharers), (0, 0));
    }

    #[test]
    fn hosts_that_have_been_fast_and_stop_leave_room_in_which_others_grow() {
        let mut pool = Pool::new(64 * MIB, 1);
        let mut windows: Vec<Window> = Vec::new();
        for expected in [21, 7, 2] {
            let mut window = Window::open(&mut pool).unwrap();
            window.begin(&mut pool);
            let size = run(&mut window, &mut pool, 3);
            assert!(size > expected * MIB, "{size} with {} that have stopped", windows.len());
            // Its host takes nothing of what comes now.
            let bytes = (window.limit - window.received) as usize;
            window.on_received(bytes).unwrap();
            assert_eq!(window.on_limited(&mut pool), 0);
            windows.push(window);
        }
        windows.into_iter().for_each(|window| window.close(&mut pool));
        assert_eq!((pool.promised(), pool.sharers), (0, 0));
    }

    #[test]
    fn streams_that_want_more_come_to_equal_shares() {
        let mut pool = Pool::new(64 * MIB, 1);
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
        let mut pool = Pool::new(64 * MIB, 1);
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
    fn an_advance_leaves_a_lone_stream_its_share_and_new_ones_their_part() {
        let mut pool = Pool::new(64 * MIB, 4);
        let mut carriers: Vec<Given> = (0..5).map(|_| Given::default()).collect();
        for carrier in &mut carriers {
            carrier.on_wanted(u32::MAX);
        }
        let given: Vec<u32> = carriers.iter_mut().map(|carrier| carrier.give(&mut pool)).collect();
        // A sixth of half of the buffer, for the four that were expected.
        assert_eq!(given, [1_398_101, 1_398_101, 1_398_101, 1_398_101, 1]);
        let mut window = Window::open(&mut pool).unwrap();
        window.begin(&mut pool);
        assert_eq!(run(&mut window, &mut pool, 3), LONE + u64::from(INITIAL));
        let mut next = Window::open(&mut pool).unwrap();
        assert!(next.begin(&mut pool) > 300 << 10);
        // The part of the advance that a stream has counts when it is opened.
        carriers[0].spend(given[0] - 5, &mut pool).unwrap();
        assert_eq!(carriers[0].spend(6, &mut pool), Err(Fault::Credit));
        let mut early = Window::open(&mut pool).unwrap();
        early.take(&mut pool, u64::from(given[0]) - 5);
        assert_eq!(early.begin(&mut pool), 0);
        for window in [window, next, early] {
            window.close(&mut pool);
        }
        carriers.into_iter().for_each(|carrier| carrier.close(&mut pool));
        assert_eq!((pool.promised(), pool.advanced()), (0, 0));
    }

    /// A carrier of the far gateway, and the windows of its streams.
    #[derive(Default)]
    struct Far {
        given: Given,
        /// Bytes that the far end has in advance.
        held: u64,
        windows: Vec<Window>,
    }

    impl Far {
        /// Does one of the things that may happen on a carrier.
        fn turn(&mut self, random: &mut Random, pool: &mut Pool) {
            self.held += u64::from(self.given.give(pool));
            let Some(at) = Some(self.windows.len()).filter(|&count| count > 0).map(|n| random.index(n))
            else {
                return self.open(random, pool);
            };
            let window = &mut self.windows[at];
            let (room, waiting) = (window.limit - window.received, window.received - window.taken);
            match random.index(16) {
                0..=4 => self.open(random, pool),
                // Most send all that they may, and many hosts take nothing.
                5..=9 if !window.is_ended => {
                    window.on_received(room as usize).unwrap();
                    window.on_limited(pool);
                }
                10 | 11 => {
                    window.on_taken(random.index(waiting as usize + 1), pool);
                }
                12 => {
                    window.on_taken(waiting as usize, pool);
                }
                13 if !window.is_ended => {
                    let spare = random.index(room.min(window.extra) as usize + 1);
                    window.on_returned(spare as u32, pool).unwrap();
                }
                14 if !window.is_ended => window.on_end(pool),
                15 => self.windows.swap_remove(at).close(pool),
                _ => {}
            }
        }

        fn open(&mut self, random: &mut Random, pool: &mut Pool) {
            let advance = random.index(self.held as usize + 1) as u32;
            self.held -= u64::from(advance);
            self.given.spend(advance, pool).unwrap();
            if let Some(mut window) = Window::open(pool) {
                window.take(pool, advance.into());
                if random.index(2) == 0 {
                    window.begin(pool);
                }
                self.windows.push(window);
            }
        }
    }

    #[test]
    fn whatever_streams_do_the_buffer_has_room_for_all_that_they_may_send() {
        for seed in 0..50 {
            let mut random = Random(seed);
            let buffer = BUFFER_MIN << random.index(6);
            let mut pool = Pool::new(buffer, 4);
            let mut carriers: Vec<Far> = (0..6).map(|_| Far::default()).collect();
            for carrier in &mut carriers {
                carrier.given.on_wanted(random.index(2 << 20) as u32);
            }
            for _ in 0..4_000 {
                let at = random.index(carriers.len());
                carriers[at].turn(&mut random, &mut pool);
                assert!(pool.promised() + pool.advanced() <= buffer, "seed {seed}: {pool:?}");
                let windows = carriers.iter().flat_map(|carrier| &carrier.windows);
                let end = |window: &Window| if window.is_ended { window.received } else { window.limit };
                let may_wait: u64 = windows.map(|window| end(window) - window.taken).sum();
                assert!(may_wait <= pool.promised(), "seed {seed}: {may_wait} of {pool:?}");
                let held: u64 = carriers.iter().map(|carrier| carrier.held).sum();
                assert_eq!(held, pool.advanced(), "seed {seed}");
            }
            for Far { given, windows, .. } in carriers {
                given.close(&mut pool);
                windows.into_iter().for_each(|window| window.close(&mut pool));
            }
            let left = (pool.promised(), pool.advanced(), pool.sharers);
            assert_eq!(left, (0, 0, 0), "seed {seed}");
        }
    }

    #[test]
    fn there_are_no_more_streams_than_parts() {
        let mut pool = Pool::new(BUFFER_MIN, 1);
        let windows: Vec<Window> = (0..64).map(|_| Window::open(&mut pool).unwrap()).collect();
        assert!(Window::open(&mut pool).is_none());
        for window in windows {
            window.close(&mut pool);
        }
        assert_eq!(pool.streams(), 0);
    }
}
