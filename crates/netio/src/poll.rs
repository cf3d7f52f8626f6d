//! Waiting for many descriptors with a timeout in microseconds.
//!
//! `epoll_pwait2` (Linux 5.11) takes the timeout as it is; on older kernels a timer descriptor in the same set wakes us.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::interface::check;

/// At most this many events are returned by one wait; more come with the next.
const EVENTS_MAX: usize = 16;
/// The token of the timer of old kernels; not to be used by others.
const TIMER_TOKEN: u64 = u64::MAX;

/// What a descriptor is watched for. Errors and hang-ups are always told, as both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read.
    Readable,
    /// There is room to write.
    Writable,
    /// Either.
    Both,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What was given to [`Poller::add`].
    pub token: u64,
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
}

/// A set of watched descriptors. A descriptor leaves the set when it is closed.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use netio::poll::{Interest, Poller};
/// use std::time::Duration;
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let mut poller = Poller::new()?;
/// poller.add(&socket, 7, Interest::Readable)?;
/// for ready in poller.wait(Some(Duration::from_micros(150)))? {
///     assert_eq!(ready.token, 7);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    timer: Option<OwnedFd>,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut poller = Self { epoll, timer: None, events: vec![nothing(); EVENTS_MAX] };
        let supported = match poller.wait_precise(Some(Duration::ZERO)) {
            Ok(_) => true,
            // EPERM: a sandbox that does not know the call
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => false,
            Err(error) => return Err(error),
        };
        if !supported {
            poller.use_timer()?;
        }
        Ok(poller)
    }

    /// Watches a descriptor; `token` names it in what [`Poller::wait`] returns.
    ///
    /// # Errors
    /// What the kernel says (`EEXIST`: it is watched already).
    ///
    /// # Panics
    /// If `token` is `u64::MAX`.
    pub fn add(&self, descriptor: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        assert!(token != TIMER_TOKEN, "token u64::MAX is taken");
        self.control(libc::EPOLL_CTL_ADD, descriptor, token, interest)
    }

    /// Changes what a descriptor is watched for.
    ///
    /// # Errors
    /// What the kernel says (`ENOENT`: it is not watched).
    pub fn change(&self, descriptor: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, token, interest)
    }

    /// Watches a descriptor no longer.
    ///
    /// # Errors
    /// What the kernel says (`ENOENT`: it is not watched).
    pub fn remove(&self, descriptor: &impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0, Interest::Readable)
    }

    /// Waits until a descriptor is ready or `timeout` is over (`None`: without end), and returns those that
    /// are ready.
    ///
    /// It may return early with none: because of a signal, or of a timer of an earlier call.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = Ready> + '_> {
        let result = match &self.timer {
            None => self.wait_precise(timeout),
            Some(timer) => {
                arm(timer, timeout)?;
                self.wait_with_timer(timeout)
            }
        };
        let count = match result {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let ready = self.events[..count].iter().map(|event| {
            let bits = event.events;
            let trouble = bits & (libc::EPOLLERR | libc::EPOLLHUP).cast_unsigned() != 0;
            Ready {
                token: event.u64,
                readable: trouble || bits & libc::EPOLLIN.cast_unsigned() != 0,
                writable: trouble || bits & libc::EPOLLOUT.cast_unsigned() != 0,
            }
        });
        Ok(ready.filter(|ready| ready.token != TIMER_TOKEN))
    }

    fn control(&self, call: libc::c_int, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let bits = match interest {
            Interest::Readable => libc::EPOLLIN,
            Interest::Writable => libc::EPOLLOUT,
            Interest::Both => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: bits.cast_unsigned(), u64: token };
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: the event lives through the call, which copies it.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), call, fd, &raw mut event) }).map(drop)
    }

    fn wait_precise(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let signals = std::ptr::null::<libc::sigset_t>();
        // SAFETY: the events are writable memory for that many, the time is null or lives through the call,
        // and there is no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                time,
                signals,
                0_usize,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn wait_with_timer(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let wait = if timeout == Some(Duration::ZERO) { 0 } else { -1 };
        let fd = self.epoll.as_raw_fd();
        // SAFETY: the events are writable memory for that many.
        let count = check(unsafe {
            libc::epoll_wait(fd, self.events.as_mut_ptr(), EVENTS_MAX as libc::c_int, wait)
        })?;
        Ok(count.cast_unsigned() as usize)
    }

    fn use_timer(&mut self) -> io::Result<()> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        self.control(libc::EPOLL_CTL_ADD, &timer, TIMER_TOKEN, Interest::Readable)?;
        self.timer = Some(timer);
        Ok(())
    }
}

/// Lets this thread's timeouts end on time: the kernel otherwise adds up to 50 µs to save wake-ups.
///
/// # Errors
/// What the kernel says.
pub fn precise_timeouts() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds; 0 would mean the default.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) }).map(drop)
}

/// Sets the timer to go off after `timeout`, or never. Setting it also forgets that it went off before.
fn arm(timer: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // zero would switch it off, but then there is no wait to end
    let time = libc::itimerspec { it_interval: zero, it_value: timeout.map_or(zero, timespec) };
    let old = std::ptr::null_mut();
    // SAFETY: the time lives through the call and nothing is asked back.
    check(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const time, old) }).map(drop)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        // 68 years will do where the field is short
        tv_sec: time.as_secs().min(i32::MAX as u64) as _,
        tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()),
    }
}

fn nothing() -> libc::epoll_event {
    libc::epoll_event { events: 0, u64: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Both ways of waiting.
    fn pollers() -> [Poller; 2] {
        let mut old = Poller::new().unwrap();
        if old.timer.is_none() {
            old.use_timer().unwrap();
        }
        [Poller::new().unwrap(), old]
    }

    #[test]
    fn what_is_ready_is_told_by_its_token() {
        for mut poller in pollers() {
            let (mut one, mut two) = UnixStream::pair().unwrap();
            poller.add(&two, 7, Interest::Readable).unwrap();
            assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
            one.write_all(b"x").unwrap();
            let ready: Vec<_> = poller.wait(None).unwrap().collect();
            assert_eq!(ready, [Ready { token: 7, readable: true, writable: false }]);
            two.read_exact(&mut [0]).unwrap();
            poller.change(&two, 8, Interest::Both).unwrap();
            let ready: Vec<_> = poller.wait(None).unwrap().collect();
            assert_eq!(ready, [Ready { token: 8, readable: false, writable: true }]);
            poller.remove(&two).unwrap();
            assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap().count(), 0);
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test is about real time")]
    fn a_timeout_of_microseconds_is_no_shorter_than_asked() {
        precise_timeouts().unwrap();
        for mut poller in pollers() {
            for micros in [1, 700, 3000] {
                let asked = Duration::from_micros(micros);
                let start = std::time::Instant::now();
                assert_eq!(poller.wait(Some(asked)).unwrap().count(), 0);
                assert!(start.elapsed() >= asked);
            }
        }
    }

    #[test]
    fn a_hang_up_is_told() {
        for mut poller in pollers() {
            let (one, two) = UnixStream::pair().unwrap();
            poller.add(&two, 1, Interest::Readable).unwrap();
            drop(one);
            assert!(poller.wait(None).unwrap().all(|ready| ready.readable && ready.writable));
        }
    }
}
