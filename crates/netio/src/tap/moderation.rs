//! Limits how often a tap wakes its reader.
//!
//! Waking a sleeping reader costs 2 to 5 µs, ten times the cost of copying a packet, and the packet's sender
//! pays half of it. At a low rate every packet wakes the reader at once. At a high rate ([`HOT`]) the source
//! is silenced, and a timer makes the tap readable once per period. When the rate falls, every packet wakes
//! the reader again.
//!
//! One descriptor, an epoll set of the source and the timer, hides all of this from the reader's loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::interface::check;

/// Interval over which the rate is measured.
const MEASURE_NS: u64 = 1_000_000;
/// Captures per period from which the timer is cheaper than waking by packets.
const HOT: u64 = 2;
const AT_ONCE_NS: u64 = 1;

pub(super) struct Moderation {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Period of the timer; 0 makes every packet wake the reader.
    period_ns: u64,
    polling: bool,
    /// Whether the reader looks by itself, so that nothing wakes it.
    is_unwatched: bool,
    /// Time to which the timer was last set.
    armed_ns: u64,
    measure_start_ns: u64,
    measured_captures: u64,
}

/// Action that the owner must apply to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// The source must stop waking the reader.
    Silence,
    /// The source must wake the reader again. [`Moderation::listen`] then reports anything that has arrived
    /// meanwhile.
    Waken,
}

impl Moderation {
    pub(super) fn new(source: BorrowedFd<'_>, period_us: u32) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        control(&epoll, libc::EPOLL_CTL_ADD, timer.as_fd(), true)?;
        control(&epoll, libc::EPOLL_CTL_ADD, source, true)?;
        Ok(Self {
            epoll,
            timer,
            period_ns: u64::from(period_us) * 1000,
            polling: false,
            is_unwatched: false,
            armed_ns: 0,
            measure_start_ns: 0,
            measured_captures: 0,
        })
    }

    /// Whether the reader may be woken by a timer.
    pub(super) fn is_on(&self) -> bool {
        self.period_ns > 0
    }

    /// Changes the period of the timer.
    pub(super) fn set_period_us(&mut self, period_us: u32) {
        self.period_ns = u64::from(period_us) * 1000;
    }

    /// Records the number of captures that were drained, and whether more wait.
    pub(super) fn on_drained(&mut self, captures: usize, more: bool, now_ns: u64) -> io::Result<Change> {
        if self.period_ns == 0 || self.is_unwatched {
            return Ok(Change::None);
        }
        let change = self.measure(captures as u64, now_ns);
        if self.polling {
            self.polling = change != Change::Waken;
            // armed once more after a change to waking, so that nothing is missed
            self.arm(if more { AT_ONCE_NS } else { self.period_ns })?;
        } else if self.armed_ns > 0 {
            self.arm(0)?;
        }
        if change == Change::Silence {
            self.polling = true;
            self.arm(if more { AT_ONCE_NS } else { self.period_ns })?;
        }
        Ok(change)
    }

    /// Changes whether the reader looks by itself. The owner then applies the change to its source.
    pub(super) fn set_unwatched(&mut self, is_unwatched: bool) -> io::Result<Change> {
        if is_unwatched == self.is_unwatched {
            return Ok(Change::None);
        }
        (self.is_unwatched, self.polling, self.measured_captures) = (is_unwatched, false, 0);
        if is_unwatched {
            self.arm(0)?;
            return Ok(Change::Silence);
        }
        // Captures that arrived meanwhile make the descriptor readable.
        self.arm(AT_ONCE_NS)?;
        Ok(Change::Waken)
    }

    /// Adds captures to the measurement and returns the change that their rate calls for.
    fn measure(&mut self, captures: u64, now_ns: u64) -> Change {
        self.measured_captures += captures;
        let elapsed_ns = now_ns.saturating_sub(self.measure_start_ns);
        if elapsed_ns < MEASURE_NS {
            return Change::None;
        }
        let captures = self.measured_captures;
        (self.measure_start_ns, self.measured_captures) = (now_ns, 0);
        if !self.polling && captures * self.period_ns >= HOT * elapsed_ns {
            return Change::Silence;
        }
        if self.polling && captures * self.period_ns * 2 < HOT * elapsed_ns {
            return Change::Waken;
        }
        Change::None
    }

    /// Ignores the source: it does not make the descriptor readable.
    pub(super) fn ignore(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        control(&self.epoll, libc::EPOLL_CTL_MOD, source, false)
    }

    /// Listens to the source again: it makes the descriptor readable, at once if it has data.
    pub(super) fn listen(&self, source: BorrowedFd<'_>) -> io::Result<()> {
        control(&self.epoll, libc::EPOLL_CTL_MOD, source, true)
    }

    /// Makes the timer expire after that time; 0 stops it. Both clear an earlier expiry.
    fn arm(&mut self, after_ns: u64) -> io::Result<()> {
        if (after_ns, self.armed_ns) == (AT_ONCE_NS, AT_ONCE_NS) {
            return Ok(()); // it has expired and stays so
        }
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // in range: a period is far below a second
        let value = libc::timespec { tv_sec: 0, tv_nsec: after_ns.cast_signed() as libc::c_long };
        let time = libc::itimerspec { it_interval: zero, it_value: value };
        let (fd, old) = (self.timer.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: the time lives through the call, and the old value is not requested.
        check(unsafe { libc::timerfd_settime(fd, 0, &raw const time, old) })?;
        self.armed_ns = after_ns;
        Ok(())
    }
}

impl AsFd for Moderation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn control(epoll: &OwnedFd, call: libc::c_int, fd: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
    let bits = if wanted { libc::EPOLLIN.cast_unsigned() } else { 0 };
    let mut event = libc::epoll_event { events: bits, u64: 0 };
    // SAFETY: the event lives through the call, which copies it.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), call, fd.as_raw_fd(), &raw mut event) }).map(drop)
}

/// Returns the time of the monotonic clock.
pub(super) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is writable; this clock always exists on Linux, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use crate::poll::{Interest, Poller};

    const PERIOD_US: u32 = 50;
    const MS: u64 = 1_000_000;

    fn readable(moderation: &Moderation, wait: Duration) -> bool {
        let mut poller = Poller::new().unwrap();
        poller.add(moderation, 1, Interest::Readable).unwrap();
        poller.wait(Some(wait)).unwrap().count() > 0
    }

    #[test]
    fn a_hot_source_is_silenced_until_it_cools_down() {
        let (mut one, mut two) = UnixStream::pair().unwrap();
        let mut moderation = Moderation::new(two.as_fd(), PERIOD_US).unwrap();
        let mut now = 5 * MS;
        assert_eq!(moderation.on_drained(1, false, now).unwrap(), Change::None, "the measurement begins");
        for (captures, after, expected) in [
            (39, MS, Change::None),
            (20, MS / 2, Change::None),
            (20, MS / 2, Change::Silence),
            (30, MS, Change::None),
            (19, MS, Change::Waken),
            (39, MS, Change::None),
        ] {
            now += after;
            assert_eq!(moderation.on_drained(captures, false, now).unwrap(), expected);
            match expected {
                Change::Silence => moderation.ignore(two.as_fd()).unwrap(),
                Change::Waken => moderation.listen(two.as_fd()).unwrap(),
                Change::None => {}
            }
            if moderation.polling {
                // the packet does not wake the reader; the timer does
                one.write_all(b"x").unwrap();
                assert!(readable(&moderation, Duration::from_secs(10)));
                two.read_exact(&mut [0]).unwrap();
            }
        }
        assert!(!readable(&moderation, Duration::from_millis(2)), "the timer has been stopped");
        one.write_all(b"x").unwrap();
        assert!(readable(&moderation, Duration::from_secs(10)));
    }

    #[test]
    fn a_silenced_source_is_drained_further_if_more_waits() {
        let (_one, two) = UnixStream::pair().unwrap();
        let mut moderation = Moderation::new(two.as_fd(), 900_000).unwrap();
        assert_eq!(moderation.on_drained(1000, true, 10 * MS).unwrap(), Change::Silence);
        moderation.ignore(two.as_fd()).unwrap();
        assert!(readable(&moderation, Duration::from_millis(500)));
    }

    #[test]
    fn a_reader_that_looks_by_itself_is_not_woken() {
        let (mut one, two) = UnixStream::pair().unwrap();
        let mut moderation = Moderation::new(two.as_fd(), PERIOD_US).unwrap();
        assert_eq!(moderation.set_unwatched(true).unwrap(), Change::Silence);
        moderation.ignore(two.as_fd()).unwrap();
        one.write_all(b"x").unwrap();
        assert_eq!(moderation.on_drained(1_000_000, false, 10 * MS).unwrap(), Change::None);
        assert!(!readable(&moderation, Duration::from_millis(2)), "neither by packets nor by a timer");
        assert_eq!(moderation.set_unwatched(false).unwrap(), Change::Waken);
        moderation.listen(two.as_fd()).unwrap();
        assert!(readable(&moderation, Duration::from_secs(10)));
    }

    #[test]
    fn period_zero_lets_every_packet_wake() {
        let (_one, two) = UnixStream::pair().unwrap();
        let mut moderation = Moderation::new(two.as_fd(), 0).unwrap();
        assert_eq!(moderation.on_drained(1_000_000, true, 10 * MS).unwrap(), Change::None);
        assert!(!readable(&moderation, Duration::ZERO));
    }
}
