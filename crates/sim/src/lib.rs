//! Simulates hundreds of whole nodes in virtual time, and other multicast protocols for comparison.
//!
//! | file | content |
//! |---|---|
//! | `grouping.rs` | random group memberships: n nodes, d groups per node, s nodes per group (Ricochet §5) |
//! | `cluster.rs`, `outbox.rs` | nodes on the virtual network of `simnet`: they join, crash, are partitioned, send |
//! | `record.rs` | datagrams that nodes send, for captures |
//! | `gossip.rs` | optional membership by gossip beside each node |
//! | `ledger.rs` | record of all packets and their fates at each member; detects violations |
//! | `traffic.rs` | packets to random groups from random members at a given rate; real nodes use the same schedule |
//! | `bench.rs`, `figures.rs` | one run of the papers' setting, and its figures |
//! | `machine.rs` | nodes that share the processors of one machine: latency of messages that were not lost |
//! | `neighbours.rs` | prerecorded traffic for one node, to measure its cost |
//! | `ordered.rs` | an ordered subscription, and its check |
//! | `baseline/` | SRM, Bimodal Multicast and FEC by the sender |
//! | `scenario.rs` | a random run with losses, crashes and partitions, given by its seed |
//! | `total/` | a random run of members that keep total order, and its check |
//!
//! The same random seed gives the same run on every machine: no clock is read and no socket opened.
#![forbid(unsafe_code)]

pub mod baseline;
pub mod bench;
pub mod cluster;
pub mod figures;
mod gossip;
pub mod grouping;
pub mod ledger;
pub mod machine;
pub mod neighbours;
mod ordered;
mod outbox;
mod record;
pub mod scenario;
pub mod total;
pub mod traffic;

pub use bench::{Setting, SettingError};
pub use cluster::{Cluster, ClusterConfig};
pub use figures::Figures;
pub use grouping::grouping;
pub use ledger::{Fate, Ledger, Violation};
pub use machine::Machine;
pub use record::Recorded;
pub use scenario::Scenario;
pub use traffic::{Schedule, Traffic};
