//! Waits for many descriptors, with a timeout in microseconds.
//!
//! `epoll_pwait2` (Linux 5.11) takes the timeout as it is. On older kernels a timer descriptor in the same
//! set ends the wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use crate::interface::check;

/// Maximum number of events of one wait; further ones come with the next.
const EVENTS_MAX: usize = 16;
/// Token of the timer on old kernels; reserved.
const TIMER_TOKEN: u64 = u64::MAX;

/// Events for which a descriptor is watched. Errors and hang-ups are always reported, as both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data is available to read.
    Readable,
    /// There is space to write.
    Writable,
    /// Either.
    Both,
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Token given to [`Poller::add`].
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
    /// Makes an empty set.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut poller = Self { epoll, timer: None, events: vec![nothing(); EVENTS_MAX] };
        let supported = match poller.wait_precise(Some(Duration::ZERO)) {
            Ok(_) => true,
            // EPERM: a sandbox that does not allow the call
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => false,
            Err(error) => return Err(error),
        };
        if !supported {
            poller.use_timer()?;
        }
        Ok(poller)
    }

    /// Watches a descriptor; [`Poller::wait`] returns `token` with its events.
    ///
    /// # Errors
    /// The kernel's error (`EEXIST`: it is watched already).
    ///
    /// # Panics
    /// If `token` is `u64::MAX`.
    pub fn add(&self, descriptor: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        assert!(token != TIMER_TOKEN, "expected a token below u64::MAX, which is reserved");
        self.control(libc::EPOLL_CTL_ADD, descriptor, token, interest)
    }

    /// Changes the events for which a descriptor is watched.
    ///
    /// # Errors
    /// The kernel's error (`ENOENT`: it is not watched).
    pub fn change(&self, descriptor: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, token, interest)
    }

    /// Removes a descriptor from the set.
    ///
    /// # Errors
    /// The kernel's error (`ENOENT`: it is not watched).
    pub fn remove(&self, descriptor: &impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0, Interest::Readable)
    }

    /// Waits until a descriptor is ready or `timeout` has passed (`None`: forever), and returns the ready
    /// ones.
    ///
    /// It may return early and empty, because of a signal or of a timer of an earlier call.
    ///
    /// # Errors
    /// The kernel's error.
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
        // SAFETY: the events are writable memory for `EVENTS_MAX` events, the time is null or lives through
        // the call, and there is no signal mask.
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
        // SAFETY: the events are writable memory for `EVENTS_MAX` events.
        let count = check(unsafe {
            libc::epoll_wait(fd, self.events.as_mut_ptr(), EVENTS_MAX as libc::c_int, wait)
        })?;
        Ok(count.cast_unsigned() as usize)
    }

    fn use_timer(&mut self) -> io::Result<()> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        self.control(libc::EPOLL_CTL_ADD, &timer, TIMER_TOKEN, Interest::Readable)?;
        self.timer = Some(timer);
        Ok(())
    }
}

/// Makes this thread's timeouts precise; by default the kernel adds up to 50 µs to save wake-ups.
///
/// # Errors
/// The kernel's error.
pub fn precise_timeouts() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds; 0 would mean the default.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) }).map(drop)
}

/// Lowers the calling thread to five steps below the priority with which the process was started, so that it
/// gets about a quarter of a processor for which it competes with a thread of normal priority, such as the
/// kernel's that forward packets.
///
/// # Errors
/// The kernel's error.
pub fn lower_priority() -> io::Result<()> {
    /// Priority of the first thread that calls this. Threads that such a thread starts inherit the lower one.
    static STARTED_WITH: OnceLock<libc::c_int> = OnceLock::new();
    let started_with = STARTED_WITH.get_or_init(priority);
    // SAFETY: the call takes and returns numbers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, (started_with + 5).min(19)) }).map(drop)
}

/// Reads the priority of the calling thread. An error looks like the priority -1.
fn priority() -> libc::c_int {
    // SAFETY: the call takes and returns numbers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Sets the timer to expire after `timeout`, or never. Setting it also clears an earlier expiry.
fn arm(timer: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // A timeout of zero would disarm the timer, but such a wait ends anyway.
    let time = libc::itimerspec { it_interval: zero, it_value: timeout.map_or(zero, timespec) };
    let old = std::ptr::null_mut();
    // SAFETY: the time lives through the call, and the old value is not requested.
    check(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const time, old) }).map(drop)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        // 68 years suffice where the field is 32 bits wide
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

    /// Returns one poller of each kind.
    fn pollers() -> [Poller; 2] {
        let mut old = Poller::new().unwrap();
        if old.timer.is_none() {
            old.use_timer().unwrap();
        }
        [Poller::new().unwrap(), old]
    }

    #[test]
    fn a_ready_descriptor_is_reported_by_its_token() {
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
    fn a_timeout_of_microseconds_is_never_cut_short() {
        precise_timeouts().unwrap();
        for mut poller in pollers() {
            for micros in [1, 700, 3000] {
                let timeout = Duration::from_micros(micros);
                let start = std::time::Instant::now();
                assert_eq!(poller.wait(Some(timeout)).unwrap().count(), 0);
                assert!(start.elapsed() >= timeout);
            }
        }
    }

    #[test]
    fn a_thread_is_as_low_as_the_thread_that_started_it() {
        let lowered = || {
            lower_priority().unwrap();
            priority()
        };
        let both = move || {
            let own = lowered();
            [own, std::thread::spawn(lowered).join().unwrap()]
        };
        let expected = (priority() + 5).min(19);
        assert_eq!(std::thread::spawn(both).join().unwrap(), [expected; 2]);
    }

    #[test]
    fn a_hang_up_is_reported() {
        for mut poller in pollers() {
            let (one, two) = UnixStream::pair().unwrap();
            poller.add(&two, 1, Interest::Readable).unwrap();
            drop(one);
            assert!(poller.wait(None).unwrap().all(|ready| ready.readable && ready.writable));
        }
    }
}
