//! Errors, one enum for each operation.

use std::io;
use std::path::PathBuf;

use ricochet_core::GroupsError;
use ricochet_core::groups::SENT_GROUPS_MAX;
use ricochet_core::wire::{CONTENT_TYPE_MAX, HEADERS_MAX, KEY_MAX};
use thiserror::Error;

use crate::config::ConfigError;
use crate::group_name::GROUP_NAME_MAX;
use crate::key::KeyError;
use crate::patterns::wire::PATTERN_LENGTH_MAX;

/// Reason why a node did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key file has no valid key, or others than its owner have access to it.
    #[error("key file {file}: {error}", file = file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// The mistake.
        error: KeyError,
    },
    /// The interface has no suitable address.
    #[error("interface {interface}: expected an IPv{version} address, saw {seen}; set `address`")]
    NoAddress {
        /// The interface.
        interface: String,
        /// 4 or 6.
        version: u8,
        /// The addresses that the interface has.
        seen: String,
    },
    /// The node's longest datagrams exceed the MTU.
    #[error(
        "interface {interface}: expected an MTU for datagrams of {datagram_max} bytes, saw {mtu}; set \
         `buffers.datagram_max` to {fitting} or less on all nodes, or raise the MTU"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// The setting in bytes.
        datagram_max: usize,
        /// Maximum length in bytes that fits.
        fitting: usize,
    },
    /// A seed address cannot be resolved.
    #[error("seed {seed:?}: expected ADDRESS:PORT, or NAME:PORT with a known name, saw: {error}")]
    Seed {
        /// The seed address as given.
        seed: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The seed addresses have another IP version than this node.
    #[error(
        "seed {seed:?}: expected an IPv{version} address, as that of this node, saw none; name the address of a \
         node with IPv{version}, or change `ipv6` or `address`"
    )]
    SeedVersion {
        /// The seed address as given.
        seed: String,
        /// 4 or 6.
        version: u8,
    },
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] netio::multicast::OpenError),
    /// The control socket cannot be opened.
    #[error(transparent)]
    Control(#[from] daemon::control::ControlError),
    /// The membership refuses its configuration or its file.
    #[error("membership: {0}")]
    Membership(String),
    /// The operating system refuses an operation.
    #[error("cannot {what}: {error}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        error: io::Error,
    },
}

impl StartError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}

/// Reason why a group was not joined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name of a group is empty or too long.
    #[error("group: expected a name of 1 to {GROUP_NAME_MAX} bytes, saw {length}")]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// A pattern is too long.
    #[error("group: expected a pattern of at most {PATTERN_LENGTH_MAX} bytes, saw {length}")]
    Pattern {
        /// Its length in bytes.
        length: usize,
    },
    /// The node would have too many patterns.
    #[error("expected at most {max} patterns of a node, saw one more; use patterns that match more groups")]
    TooManyPatterns {
        /// Maximum number.
        max: usize,
    },
    /// No name was given.
    #[error("expected at least one group, saw none")]
    Nothing,
    /// The node would be in too many groups.
    #[error("expected at most {max} groups, saw {groups}; raise `max_groups`")]
    TooMany {
        /// Number of groups that it would be in.
        groups: usize,
        /// The setting.
        max: usize,
    },
    /// Another subscription of this node joined the group with other options.
    #[error(
        "group {group:?}: expected the options that it was first joined with, saw another {what}; use the \
         same options"
    )]
    Differs {
        /// The group.
        group: String,
        /// The option that differs.
        what: &'static str,
    },
    /// A subscription in total order begins with messages of the past. Members keep them without the numbers
    /// that they had in total order.
    #[error(
        "from: expected `Start::Live` with total order, saw messages of the past, which members keep without \
         their numbers; read them with another subscription with `Order::Fifo`"
    )]
    Past,
    /// A subscription in total order joins a group while another one of this node reads messages of the past
    /// from members, or after it has begun with the last values of keys.
    #[error(
        "order: expected no subscription to {group} that began with messages of the past, saw one; join the \
         group in total order first, or with another node"
    )]
    PastOfOther {
        /// The group.
        group: String,
    },
    /// An option has no effect beside the others.
    #[error("{what}: expected it with {needs} alone, where it has an effect; leave it out")]
    Unused {
        /// The option.
        what: &'static str,
        /// Setting that it belongs to.
        needs: &'static str,
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
    /// The wire format cannot tell two of the names apart.
    #[error(transparent)]
    Groups(#[from] GroupsError),
    /// The IP group cannot be joined.
    #[error(transparent)]
    Address(#[from] netio::multicast::JoinError),
    /// The node was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed, or the process was forked after the node had started.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Reason why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The payload does not fit one packet.
    #[error(
        "expected a payload of at most {payload_max} bytes, saw {length}; to send longer messages, set \
         `fragments` on the sender or join the group with it"
    )]
    TooLong {
        /// Length of the payload in bytes.
        length: usize,
        /// Maximum length in bytes.
        payload_max: usize,
    },
    /// The name of a group is empty or too long.
    #[error("group: expected a name of 1 to {GROUP_NAME_MAX} bytes, saw {length}")]
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// The name of a group has a `*`. Only subscriptions have patterns.
    #[error("group: expected a name without `*` to send to, saw {name:?}; name each group by itself")]
    Pattern {
        /// The name.
        name: String,
    },
    /// The content type or the headers are too long.
    #[error(
        "expected a content type of at most {CONTENT_TYPE_MAX} bytes, and headers that make {HEADERS_MAX} with \
         it, saw {content_type} and {headers}; move the rest into the payload"
    )]
    Headers {
        /// Length of the content type in bytes.
        content_type: usize,
        /// Length of the headers in bytes.
        headers: usize,
    },
    /// The key is empty or too long.
    #[error("key: expected 1 to {KEY_MAX} bytes, saw {length}")]
    Key {
        /// Its length in bytes.
        length: usize,
    },
    /// The deadline is too long.
    #[error("deadline: expected up to 3600 seconds, saw {seconds}")]
    Deadline {
        /// Its length in seconds.
        seconds: u64,
    },
    /// The readers of the group have no room, and as many packets wait as may wait.
    #[error("expected room for another message, saw as many packets waiting as a group may have")]
    WouldBlock,
    /// Fewer members than awaited have reported that they hold the message. The message was sent.
    #[error(
        "expected {expected} members that hold message {seq}, saw {seen} in the time given; the message was \
         sent; wait longer, or check that the group has members and `flow.follow` is not \"off\""
    )]
    NotHeld {
        /// Sequence number of the message.
        seq: u32,
        /// Number of members awaited.
        expected: usize,
        /// Number of members that hold it.
        seen: usize,
    },
    /// As many threads and tasks wait for holders of messages as may wait.
    #[error("expected at most 4096 waits for the holders of messages, saw one more; the message was sent")]
    TooManyWaits,
    /// The message to reply to is no request.
    #[error("expected a request to reply to, saw a message whose sender waits for no reply")]
    NotARequest,
    /// The node has sent to the maximum number of groups already.
    #[error(
        "expected at most {SENT_GROUPS_MAX} groups that this node has sent to, saw one more; start the node again"
    )]
    TooManyGroups,
    /// The node was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed, or the process was forked after the node had started.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Reason why a request has no reply.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No member has replied in time.
    #[error(
        "expected a reply within {seconds} s, saw none of {members} known members; wait longer, or check that a \
         member of the group replies to requests"
    )]
    NoReply {
        /// Length of the wait in seconds.
        seconds: f64,
        /// Number of other nodes known to be in the group.
        members: usize,
    },
    /// The request was not sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The group of replies was not joined.
    #[error("cannot join the group of replies: {0}")]
    Inbox(#[from] JoinError),
    /// As many requests wait for replies as may wait.
    #[error("expected at most 4096 requests that wait for replies, saw one more")]
    TooMany,
}

/// Reason why a node continues with the cluster keys that it has.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RekeyError {
    /// No key file is configured.
    #[error("expected a configured key file, saw none; set `key.file`, or give the keys to the node")]
    NoFile,
    /// The node started without a key. The room for messages depends on whether there is a key.
    #[error("expected a node that started with a cluster key, saw one without; start it again with the key")]
    NoKey,
    /// No key was given.
    #[error("expected at least one cluster key, saw none")]
    Empty,
    /// The key file has no usable keys.
    #[error("{}: {error}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Its mistake.
        error: KeyError,
    },
    /// The process was forked after the node had started.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Reason why no further message will be received.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The node or the subscription was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed, or the process was forked after the node had started.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Reason why no message was received without waiting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// No message waits.
    #[error("no message is waiting")]
    Empty,
    /// The node or the subscription was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed, or the process was forked after the node had started.
    #[error("the node has failed: {0}")]
    Failed(String),
}

/// Reason why no message was received in time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvTimeoutError {
    /// The timeout is over.
    #[error("no message came in time")]
    Timeout,
    /// The node or the subscription was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed, or the process was forked after the node had started.
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

/// Reason why no message was received into a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvIntoError {
    /// The message does not fit. It waits for the next call.
    #[error("expected a buffer of {length} bytes, saw {room}")]
    TooSmall {
        /// Length of the message in bytes.
        length: usize,
        /// Length of the buffer in bytes.
        room: usize,
    },
    /// The timeout is over.
    #[error("no message came in time")]
    Timeout,
    /// The node or the subscription was closed.
    #[error("the node was closed")]
    Closed,
    /// The node's thread has failed, or the process was forked after the node had started.
    #[error("the node has failed: {0}")]
    Failed(String),
}

impl From<RecvError> for RecvIntoError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::Closed,
            RecvError::Failed(why) => Self::Failed(why),
        }
    }
}
