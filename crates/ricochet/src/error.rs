//! What can go wrong, one enum for each operation.

use std::io;
use std::path::PathBuf;

use ricochet_core::GroupsError;
use thiserror::Error;

use crate::config::ConfigError;
use crate::key::KeyError;

/// Why a node did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file of the cluster key holds none, or not for us alone.
    #[error("key file {file}: {error}", file = file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: KeyError,
    },
    /// The interface has no address to use.
    #[error(
        "interface {interface}: expected an address of IPv{version}, saw {seen}; give one with `address`"
    )]
    NoAddress {
        /// The interface.
        interface: String,
        /// 4 or 6.
        version: u8,
        /// What it has.
        seen: String,
    },
    /// The node's longest datagrams would never leave.
    #[error(
        "interface {interface}: expected an MTU for datagrams of {datagram_max} bytes, saw {mtu}; set \
         `buffers.datagram_max` to {fitting} or less on all nodes, or raise the MTU"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// The setting, in bytes.
        datagram_max: usize,
        /// What would fit, in bytes.
        fitting: usize,
    },
    /// A seed cannot be resolved.
    #[error("seed {seed:?}: expected address:port or name:port, saw {error}")]
    Seed {
        /// As given.
        seed: String,
        /// What the resolver says.
        error: io::Error,
    },
    /// A socket cannot be made.
    #[error(transparent)]
    Socket(#[from] netio::multicast::OpenError),
    /// The control socket cannot.
    #[error(transparent)]
    Control(#[from] daemon::control::ControlError),
    /// What the membership says.
    #[error("membership: {0}")]
    Membership(String),
    /// The system refuses something.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        error: io::Error,
    },
}

impl StartError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}

/// Why a group was not joined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name of a group is empty or too long.
    #[error("group: expected a name of 1 to {max} bytes, saw {length}", max = crate::GROUP_NAME_MAX)]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// No name was given.
    #[error("expected at least one group, saw none")]
    Nothing,
    /// Too many groups.
    #[error("expected at most {max} groups, saw {groups}; raise `max_groups`")]
    TooMany {
        /// How many there would be.
        groups: usize,
        /// The setting.
        max: usize,
    },
    /// Another subscription of this node has the group open otherwise.
    #[error("group {group:?}: expected the options that it was first joined with, saw another {what}")]
    Differs {
        /// The group.
        group: String,
        /// The option.
        what: &'static str,
    },
    /// An option is out of range.
    #[error("{what}: expected {expected}, saw {seen}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// The value.
        seen: u64,
    },
    /// Two names that the wire format cannot tell apart.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The IP group cannot be joined.
    #[error(transparent)]
    Address(#[from] netio::multicast::JoinError),
    /// The node was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Longer than one packet holds.
    #[error(
        "expected a payload of at most {payload_max} bytes, saw {length}; longer ones need a group that is opened for fragments"
    )]
    TooLong {
        /// Its length.
        length: usize,
        /// What fits.
        payload_max: usize,
    },
    /// The name of a group is empty or too long.
    #[error("group: expected a name of 1 to {max} bytes, saw {length}", max = crate::GROUP_NAME_MAX)]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// This node has sent to as many groups as it can keep count of.
    #[error("expected at most 65536 groups that this node sends to, saw another")]
    TooManyGroups,
    /// The node is gone.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Why nothing will be received.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The node is gone.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Why nothing is received now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// Nothing waits.
    #[error("no message waits")]
    Empty,
    /// The node is gone.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Why nothing was received in time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvTimeoutError {
    /// Nothing came.
    #[error("no message came in time")]
    Timeout,
    /// The node is gone.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed.
    #[error("the node has failed: {0}")]
    Failed(String),
}

impl From<RecvError> for TryRecvError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Closed,
            RecvError::Failed(why) => Self::Failed(why),
        }
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Closed,
            RecvError::Failed(why) => Self::Failed(why),
        }
    }
}
