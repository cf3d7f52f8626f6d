//! Networks on the real kernel for tests, demos and figures: namespaces, an emulated link, a bridge, traffic, losses.
//!
//! | file | what |
//! |---|---|
//! | `topology.rs` | two sites, their gateways and the link between them |
//! | `bridge.rs` | hosts on one bridge, for multicast; what its wires carry |
//! | `emulator.rs`, `emulator/` | such a link between two namespaces, over TUN devices |
//! | `dropper/`, `../bpf/drop.c` | a program at an interface that loses arriving packets by a model of loss |
//! | `drop_log.rs` | what a link did not deliver, in a file |
//! | `namespace.rs`, `namespace/` | network namespaces held by a file descriptor, their devices, routes and sysctls |
//! | `traffic.rs`, `traffic/` | TCP and UDP of the real kernel between two namespaces, measured |
//! | `process.rs` | children that end with the thread that started them |
//! | `privilege.rs` | may this process build namespaces? enter a user namespace when it may not |

#![deny(unsafe_code)]

pub mod bridge;
mod clock;
pub mod drop_log;
pub mod dropper;
pub mod emulator;
mod error;
pub mod namespace;
pub mod privilege;
#[allow(unsafe_code, reason = "a child's signal on its parent's death is set between fork and exec")]
pub mod process;
pub mod topology;
pub mod traffic;

pub use bridge::{BridgeLan, BridgeLanConfig};
pub use dropper::{DropFilter, Dropper};
pub use emulator::{Direction, Emulator, EmulatorConfig};
pub use error::LabError;
pub use namespace::Namespace;
pub use topology::{TwoSites, TwoSitesConfig};
