//! Nodes in the child of a fork.
//!
//! The child has the memory of its parent, and shares its sockets and event descriptors, but has none of its
//! other threads. A message that it sent would have a number that the parent uses too, and a lock that
//! another thread held at the fork stays locked. So each call of the child fails before it locks or wakes
//! anything.

use std::io;

use thiserror::Error;

use crate::error::{JoinError, RecvError, RekeyError, SendError};
use crate::shared::{Gone, Shared};

/// This process is a child of the one that started the node.
#[derive(Clone, Copy, Debug, Error)]
#[error("the process was forked after the node had started; start another node in the child")]
pub(crate) struct Forked;

impl Shared {
    /// Returns whether this process is a child of the one that started the node.
    pub(crate) fn is_forked(&self) -> bool {
        self.forks != netio::fork::count()
    }

    /// Checks that this process is the one that started the node.
    pub(crate) fn check_process(&self) -> Result<(), Forked> {
        if self.is_forked() { Err(Forked) } else { Ok(()) }
    }
}

impl From<Forked> for Gone {
    fn from(forked: Forked) -> Self {
        Self::Failed(forked.to_string())
    }
}

impl From<Forked> for SendError {
    fn from(forked: Forked) -> Self {
        Self::Failed(forked.to_string())
    }
}

impl From<Forked> for JoinError {
    fn from(forked: Forked) -> Self {
        Self::Failed(forked.to_string())
    }
}

impl From<Forked> for RecvError {
    fn from(forked: Forked) -> Self {
        Self::Failed(forked.to_string())
    }
}

impl From<Forked> for RekeyError {
    fn from(forked: Forked) -> Self {
        Self::Failed(forked.to_string())
    }
}

impl From<Forked> for io::Error {
    fn from(forked: Forked) -> Self {
        Self::other(forked)
    }
}
