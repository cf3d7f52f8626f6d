//! Multicast that recovers lost packets within milliseconds.
//!
//! Processes on several hosts join any number of groups by name, and send to any group. Receivers
//! of the same groups send each other small repairs, from which lost packets are recovered
//! (Ricochet, NSDI 2007). Receivers request packets that repairs do not recover. Networks without
//! IP multicast are supported by unicast.
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
//! A node does not receive its own messages, unless it [asks for them](JoinOptions::loopback). The first node
//! of a cluster needs no seed address; each other node needs the address of one that lives.
//!
//! # The path of a packet
//!
//! Outgoing, on the calling thread: [`Sender::send`] → `outgoing.rs`, which numbers the packet → the core,
//! which keeps it, once the readers have room → `outward.rs` → `transmitter.rs`, which seals it → the socket.
//! Incoming, on the node's thread: `drain.rs` → `filter.rs` (drops packets for others) → `ring.rs` →
//! `driver/` → the core (drops duplicates) → `outward.rs` → `queue/` → [`Subscription::recv`].
#![forbid(unsafe_code)]

mod addresses;
mod backpressure;
mod builder;
mod clock;
mod config;
mod control;
mod course;
mod drain;
mod driver;
mod error;
mod filler;
mod filter;
mod forked;
#[cfg(feature = "futures")]
mod futures;
mod greetings;
mod group_name;
mod held;
#[cfg(all(test, shuttle))]
mod interleavings;
mod ip_groups;
mod joining;
mod key;
mod marks;
mod member_file;
mod member_tests;
mod members;
mod message;
mod news_log;
mod node;
mod outgoing;
mod outward;
mod past;
mod patterns;
mod planning;
mod policy;
mod pool;
mod published;
mod queue;
mod registry;
mod rekey;
mod replay;
mod requests;
mod ring;
mod sender;
mod shared;
mod sightings;
mod sleep;
mod slow_readers;
mod sources;
mod start;
pub mod status;
mod subscription;
mod sync;
mod tasks;
mod total;
mod transmitter;
pub mod view;
mod wake;
mod watch;
#[cfg(test)]
mod wireshark;

pub use builder::Builder;
pub use config::{
    AnnounceSection, BuffersSection, Config, ConfigError, FifoSection, FlowSection, GROUP_ADDRESSES_MAX,
    GROUP_PORT, HistorySection, KeySection, MembershipSection, NakSection, NodeSection, PORT, RepairMode,
    RepairSection, key_remedy, parse_follow,
};
pub use error::{
    JoinError, RecvError, RecvIntoError, RecvTimeoutError, RekeyError, RequestError, SendError, StartError,
    TryRecvError,
};
#[cfg(feature = "futures")]
pub use futures::SenderSink;
pub use group_name::GROUP_NAME_MAX;
pub use joining::{JoinOptions, Order};
pub use key::{ClusterKey, KeyError, KeyName, TRAILER};
pub use member_tests::MemberTest;
pub use message::{
    Event, GroupChange, GroupNews, History, How, Lost, Member, MemberChange, MemberNews, Message,
    OrderChange, RegistryNews,
};
pub use node::Node;
pub use past::Start;
pub use policy::Policy;
pub use queue::QueueCounts;
pub use ricochet_core::counters::GivenUp;
pub use ricochet_core::order::OrderNews;
pub use ricochet_core::wire::KEY_MAX;
pub use ricochet_core::{Follow, HistoryNews, NodeId};
pub use sender::{SendOptions, Sender};
pub use status::Status;
pub use subscription::Subscription;

/// Runs the example of the manual with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ricochet.md")]
struct Manual;
