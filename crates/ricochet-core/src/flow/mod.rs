//! Flow control: a sender sends no more than its readers have room for.
//!
//! A receiver reports to the sender of a stream how far it has got and for how many packets it has room
//! ([`rooms`]). The sender's limit follows the slowest reader, a quorum of them, or the fastest
//! ([`readers`]). Messages that have to wait share packets ([`outgoing`](crate::outgoing)).

mod reader;
pub(crate) mod readers;
pub(crate) mod rooms;

use thiserror::Error;

use crate::ids::NodeId;

/// Maximum window in packets.
const WINDOW_MAX: u32 = 1 << 20;
/// Longest time, an hour, in microseconds.
const TIME_US_MAX: u64 = 3_600_000_000;

/// The readers that a sender follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// The slowest.
    All,
    /// As many as given: the sender waits until that many readers have room, and not for the others.
    Quorum(u16),
    /// The fastest.
    Max,
    /// None: the sender never waits.
    #[default]
    Off,
}

/// Settings of flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// The readers that this node follows when it sends.
    pub follow: Follow,
    /// Number of packets for which this node has room when it receives, all streams together, at most
    /// 1,048,576. 0 sends no reports.
    pub window: u32,
    /// Time after which a reader without progress is left behind, in microseconds, at most an hour; `None`
    /// waits without limit.
    pub patience_us: Option<u64>,
    /// The same for a reader that reports nothing.
    pub silence_us: u64,
}

impl Default for FlowConfig {
    /// Follows no reader, and reports nothing.
    fn default() -> Self {
        Self { follow: Follow::Off, window: 0, patience_us: Some(10_000_000), silence_us: 1_000_000 }
    }
}

/// Errors in a [`FlowConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FlowConfigError {
    /// A quorum of no reader.
    #[error("quorum: expected 1 or more readers, saw 0")]
    Quorum,
    /// `window` is out of range.
    #[error("window: expected at most {WINDOW_MAX} packets, saw {0}")]
    Window(u32),
    /// A time is too long.
    #[error("{name}: expected at most {TIME_US_MAX} microseconds, saw {seen_us}")]
    Time {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        seen_us: u64,
    },
}

impl FlowConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// [`FlowConfigError`], the first error found.
    pub fn check(&self) -> Result<(), FlowConfigError> {
        if self.follow == Follow::Quorum(0) {
            return Err(FlowConfigError::Quorum);
        }
        if self.window > WINDOW_MAX {
            return Err(FlowConfigError::Window(self.window));
        }
        let times = [("patience_us", self.patience_us.unwrap_or(0)), ("silence_us", self.silence_us)];
        match times.into_iter().find(|&(_, us)| us > TIME_US_MAX) {
            Some((name, seen_us)) => Err(FlowConfigError::Time { name, seen_us }),
            None => Ok(()),
        }
    }
}

/// News about a reader of this node's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderNews {
    /// It has held up the sender for a second.
    Slow,
    /// The sender has stopped to follow it: it made no progress for too long.
    LeftBehind,
    /// The sender has stopped to follow it: it reported nothing for too long.
    Silent,
    /// It has caught up, and the sender follows it again.
    CaughtUp,
}

/// A reader of this node's packets to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderStatus {
    /// The reader.
    pub id: NodeId,
    /// Number of packets sent that it has not settled, as of its last report.
    pub behind: u64,
    /// Window that it reported.
    pub window: u32,
    /// Whether the sender follows it.
    pub is_followed: bool,
}
