//! A child process inside a namespace.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::handle::Namespace;
use crate::error::LabError;
use crate::process::die_with_parent;

/// A child process. Dropping it kills it by its pid and waits for its end.
///
/// In all else it is a [`std::process::Child`] (`stdout`, `try_wait`, `id` …).
#[derive(Debug)]
pub struct Child {
    child: std::process::Child,
    /// Keeps its parent thread, the namespace's keeper, alive.
    _namespace: Namespace,
}

impl Namespace {
    /// Starts a child process inside the namespace. It is killed when the guard is dropped and when this
    /// process dies.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, mut command: Command) -> Result<Child, LabError> {
        die_with_parent(&mut command);
        let what =
            format!("cannot start {:?} in the network namespace {:?}", command.get_program(), self.label());
        let started = self.run_on_keeper(move || command.spawn()).and_then(|child| child);
        let child = started.map_err(|e| LabError::system(what, e))?;
        Ok(Child { child, _namespace: self.clone() })
    }
}

impl Child {
    /// Sends a signal.
    ///
    /// # Errors
    /// If the child has ended and was already waited for.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("the child has already ended: {status}")));
        }
        let pid = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    /// Asks the child to end (SIGTERM), kills it if it has not after `patience`, and returns its exit status.
    ///
    /// # Errors
    /// If waiting fails.
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
