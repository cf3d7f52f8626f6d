//! Signals as something to be read, so that a driver's loop handles them in its order like any other event.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::interface::{check, check_len};

/// The signals that a long-running process answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end in order.
    Terminate,
    /// SIGINT: end in order, from the keyboard.
    Interrupt,
    /// SIGHUP: read the configuration again.
    HangUp,
}

/// SIGTERM, SIGINT and SIGHUP, held back from their usual effect and read here instead.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Holds the three signals back in this thread, and in those that it starts from now on: to be called
    /// before any other thread is started.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a signal set is plain data, for which zero is a value; sigemptyset then makes it the empty
        // set.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is valid for writing.
        check(unsafe { libc::sigemptyset(&raw mut set) })?;
        for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            // SAFETY: the set is valid for writing.
            check(unsafe { libc::sigaddset(&raw mut set, number) })?;
        }
        // SAFETY: the set is valid for reading, the old one is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
            0 => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set is valid for reading.
        let fd = check(unsafe { libc::signalfd(-1, &raw const set, flags) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next signal that has come; `None` where there is none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        // SAFETY: the structure is all numbers, for which zero is a value.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of_val(&info);
        // SAFETY: the structure is writable memory of that size.
        let read =
            check_len(unsafe { libc::read(self.descriptor.as_raw_fd(), (&raw mut info).cast(), size) });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        };
        Ok(match info.ssi_signo.cast_signed() {
            libc::SIGTERM => Some(Signal::Terminate),
            libc::SIGINT => Some(Signal::Interrupt),
            libc::SIGHUP => Some(Signal::HangUp),
            _ => None,
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_in_a_thread_that_holds_them_back() {
        let seen = std::thread::spawn(|| {
            let signals = Signals::new().unwrap();
            assert_eq!(signals.next().unwrap(), None);
            // to this thread alone: the others of the test run do not hold it back
            // SAFETY: pthread_self names a living thread.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) }, 0);
            signals.next().unwrap()
        });
        assert_eq!(seen.join().unwrap(), Some(Signal::HangUp));
    }
}
