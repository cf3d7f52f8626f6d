//! A child process inside a namespace.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Namespace;

/// A child process; dropping it kills it by its pid and waits for its end.
///
/// It is a [`std::process::Child`] in all else (`stdout`, `try_wait`, `id` …).
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    /// Its parent thread is the namespace's keeper, which must not end before it.
    _namespace: Namespace,
}

impl Child {
    pub(super) fn new(child: std::process::Child, namespace: Namespace) -> Self {
        Self { child, _namespace: namespace }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the child has ended and its end was already waited for.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("the child has already ended: {status}")));
        }
        let pid = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    /// Asks the child to end (SIGTERM), kills it when it has not after `patience`, and returns how it ended.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn terminate(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        const STEP: Duration = Duration::from_millis(5);
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::SIGTERM)?;
        }
        for _ in 0..patience.as_millis() / STEP.as_millis() + 1 {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(STEP);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Deref for Child {
    type Target = std::process::Child;

    fn deref(&self) -> &Self::Target {
        &self.child
    }
}

impl DerefMut for Child {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.child
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error means that it has ended: std keeps the status, so no other process can be hit.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
