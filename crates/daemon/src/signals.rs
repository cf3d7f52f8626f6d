//! Signals as readable events, so that a driver's loop handles them in its own order.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that a long-running process handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: shut down.
    Terminate,
    /// SIGINT: shut down, from the keyboard.
    Interrupt,
    /// SIGHUP: reload the configuration.
    HangUp,
    /// SIGUSR1: shut down, because another process starts at once in place of this one.
    Restart,
}

/// SIGTERM, SIGINT, SIGHUP and, if asked for, SIGUSR1, blocked from their usual effect and read here instead.
#[derive(Debug)]
pub struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks the three signals in this thread and in all threads that it starts later.
    ///
    /// Call it before any other thread starts.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        Self::of(&[Number::SIGTERM, Number::SIGINT, Number::SIGHUP])
    }

    /// The same for a process that can tell a stop from a restart: with SIGUSR1.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn with_restart() -> io::Result<Self> {
        Self::of(&[Number::SIGTERM, Number::SIGINT, Number::SIGHUP, Number::SIGUSR1])
    }

    fn of(numbers: &[Number]) -> io::Result<Self> {
        let mut set = SigSet::empty();
        numbers.iter().for_each(|number| set.add(*number));
        set.thread_block()?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { descriptor })
    }

    /// Returns the next signal received, or `None`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let Some(info) = self.descriptor.read_signal()? else { return Ok(None) };
        let number = i32::try_from(info.ssi_signo).ok().and_then(|number| Number::try_from(number).ok());
        Ok(match number {
            Some(Number::SIGTERM) => Some(Signal::Terminate),
            Some(Number::SIGINT) => Some(Signal::Interrupt),
            Some(Number::SIGHUP) => Some(Signal::HangUp),
            Some(Number::SIGUSR1) => Some(Signal::Restart),
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
    use nix::sys::pthread::{pthread_kill, pthread_self};

    use super::*;

    #[test]
    fn signals_are_read_in_a_thread_that_blocks_them() {
        let seen = std::thread::spawn(|| {
            let signals = Signals::new().unwrap();
            assert_eq!(signals.next().unwrap(), None);
            // To this thread alone: other threads of the test run do not block it.
            pthread_kill(pthread_self(), Number::SIGHUP).unwrap();
            signals.next().unwrap()
        });
        assert_eq!(seen.join().unwrap(), Some(Signal::HangUp));
        let seen = std::thread::spawn(|| {
            let signals = Signals::with_restart().unwrap();
            pthread_kill(pthread_self(), Number::SIGUSR1).unwrap();
            signals.next().unwrap()
        });
        assert_eq!(seen.join().unwrap(), Some(Signal::Restart));
    }
}
