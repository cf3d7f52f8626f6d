//! Multicast that recovers lost packets within milliseconds.
//!
//! Processes on several hosts join groups by name, as many as they like, and send to any. Packets that a receiver drops
//! are brought back by small repairs that receivers of the same groups send each other (Ricochet, NSDI 2007), and what
//! these do not mend is asked for. Where there is no IP multicast the same is done by unicast.
//!
//! ```no_run
//! let node = ricochet::Node::builder("eth0").seed("10.0.0.7:7900").start()?;
//! let prices = node.join("prices/AAPL")?;
//! node.send("prices/AAPL", b"187.21")?;
//! let message = prices.recv()?;
//! println!("{} from {}: {:?}", message.group(), message.sender(), message.payload());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A node does not receive what it sends itself. The first node of a cluster needs no seed; each other needs the address
//! of one that lives.
//!
//! # The path of a packet
//!
//! One that is sent: [`Sender::send`] → the core stamps it and keeps it → `outward.rs` → the socket, all on the calling
//! thread. One that comes, on the node's thread: `drain.rs` → `filter.rs` (is it for us?) → `ring.rs` → `driver.rs` → the
//! core (is it new?) → `outward.rs` → `queue.rs` → [`Subscription::recv`].
#![forbid(unsafe_code)]

mod book;
mod builder;
mod clock;
mod config;
mod control;
mod drain;
mod driver;
mod error;
mod filter;
mod gate;
mod ip_groups;
mod joining;
mod key;
mod message;
mod node;
mod outward;
mod pool;
mod queue;
mod ring;
mod sender;
mod shared;
mod start;
pub mod status;
mod subscription;
mod wake;
mod watch;

pub use builder::Builder;
pub use config::{
    AnnounceSection, BuffersSection, Config, ConfigError, FifoSection, GROUP_ADDRESSES_MAX, GROUP_PORT,
    KeySection, MembershipSection, NakSection, NodeSection, PORT, RepairMode, RepairSection,
};
pub use error::{JoinError, RecvError, RecvTimeoutError, SendError, StartError, TryRecvError};
pub use joining::{GROUP_NAME_MAX, JoinOptions, Order};
pub use key::{ClusterKey, KeyError, TRAILER};
pub use message::{Event, How, Lost, Message};
pub use node::Node;
pub use queue::{Policy, QueueCounts};
pub use ricochet_core::NodeId;
pub use ricochet_core::counters::GivenUp;
pub use sender::Sender;
pub use status::Status;
pub use subscription::Subscription;

/// The doctests run the example of the manual.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ricochet.md")]
struct Manual;
