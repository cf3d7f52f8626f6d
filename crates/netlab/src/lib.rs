//! Loss models, link emulation and namespace topologies for tests, demos and figures.
//!
//! | file | what |
//! |---|---|
//! | `topology.rs` | two sites, their gateways and the link between them |
//! | `bridge.rs` | hosts on one bridge, for multicast; what its wires carry |
//! | `emulator.rs`, `emulator/` | such a link between two namespaces, over TUN devices |
//! | `dropper.rs` | a program at an interface that loses arriving packets by a model of loss |
//! | `drop_log.rs` | what a link did not deliver, in a file |
//! | `link.rs`, `link/` | one direction of a link, without clock or socket: queue, rate, loss, delay, disorder |
//! | `loss.rs`, `loss/` | which packets a link loses: uniform, bursty, Markov, a recorded trace |
//! | `namespace.rs`, `namespace/` | network namespaces held by a file descriptor, their devices, routes and sysctls |
//! | `traffic.rs`, `traffic/` | TCP and UDP of the real kernel between two namespaces, measured |
//! | `baseline.rs` | other reliable multicast protocols, to compare with |
//! | `virtual_net.rs` | many nodes in virtual time: loss at each receiver, delay, disorder, partitions |
//! | `units.rs` | quantities as people write them |
//! | `privilege.rs` | may this process build namespaces? enter a user namespace when it may not |

#![forbid(unsafe_code)]

pub mod baseline;
pub mod bridge;
mod chance;
mod clock;
pub mod drop_log;
pub mod dropper;
pub mod emulator;
mod error;
pub mod link;
pub mod loss;
pub mod namespace;
pub mod privilege;
pub mod topology;
pub mod traffic;
pub mod units;
pub mod virtual_net;

pub use bridge::{BridgeLan, BridgeLanConfig};
pub use dropper::{DropFilter, Dropper};
pub use emulator::{Direction, Emulator, EmulatorConfig};
pub use error::LabError;
pub use link::LinkConfig;
pub use loss::LossModel;
pub use namespace::Namespace;
pub use topology::{TwoSites, TwoSitesConfig};
pub use virtual_net::VirtualNet;
