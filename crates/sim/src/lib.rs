//! Whole nodes by the hundred in virtual time, and other multicast protocols to compare with.
//!
//! | file | what |
//! |---|---|
//! | `grouping.rs` | who is in which group: n nodes, d groups a node, s nodes a group (Ricochet §5) |
//! | `cluster.rs`, `outbox.rs` | nodes on the virtual network of `simnet`: they join, crash, are cut off, send |
//! | `gossip.rs` | membership by gossip beside each node, where it is wanted |
//! | `ledger.rs` | what was sent and what became of it at each member; names what must not be |
//! | `traffic.rs` | packets to random groups from random members at a given rate; the schedule serves real nodes too |
//! | `bench.rs`, `figures.rs` | one run of the papers' setting, and its figures |
//! | `neighbours.rs` | all that comes to one node from its neighbours, made beforehand, to measure the node's cost |
//! | `ordered.rs` | a subscription in order, and its check |
//! | `baseline/` | SRM, Bimodal Multicast and FEC by the sender |
//! | `story.rs` | a run that nothing but its seed decides, with losses, crashes and partitions |
//!
//! Same seed, same run, on every machine: no clock is read and no socket opened.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod bench;
pub mod cluster;
pub mod figures;
mod gossip;
pub mod grouping;
pub mod ledger;
pub mod neighbours;
mod ordered;
mod outbox;
pub mod story;
pub mod traffic;

pub use bench::{Setting, SettingError};
pub use cluster::{Cluster, ClusterConfig};
pub use figures::Figures;
pub use grouping::grouping;
pub use ledger::{Fate, Fault, Ledger};
pub use story::Story;
pub use traffic::{Schedule, Traffic};
