//! Networks on the real kernel for tests, demos and figures: namespaces, an emulated link, a bridge, traffic
//! and losses.
//!
//! | file | content |
//! |---|---|
//! | `topology.rs` | two sites, their gateways and the link between them |
//! | `bridge.rs` | hosts on one bridge, for multicast; traffic on its wires |
//! | `emulator/`, `direction.rs` | the link between two namespaces, over TUN devices |
//! | `dropper/`, `../bpf/drop.c` | fault injection at an interface: a program that loses arriving packets by a loss model |
//! | `middlebox.rs` | boxes on the way of a link that rewrite, fragment, refuse or divert packets |
//! | `conntrack.rs` | a NAT that forgets its mappings |
//! | `drop_log.rs` | losses of a link, in a file |
//! | `namespace/` | network namespaces held by a file descriptor, their devices, routes and sysctls |
//! | `traffic/` | TCP and UDP of the real kernel between two namespaces, measured |
//! | `process.rs` | child processes that end with the thread that started them, urgent threads |
//! | `privilege.rs` | whether this process can build namespaces, and entering a user namespace |
//! | `config_lock.rs` | the kernel's lock of network configuration, held for a while |
//! | `xdp.rs` | an XDP program that passes all packets on |

#![deny(unsafe_code)]

pub mod bridge;
mod clock;
#[allow(unsafe_code, reason = "system calls that nix lacks, and memory that the kernel fills")]
pub mod config_lock;
pub mod conntrack;
mod direction;
pub mod drop_log;
pub mod dropper;
pub mod emulator;
mod error;
pub mod middlebox;
pub mod namespace;
pub mod privilege;
#[allow(
    unsafe_code,
    reason = "a child's death with its parent and a thread's priority are set by system calls that nix lacks"
)]
pub mod process;
pub mod topology;
pub mod traffic;
pub mod xdp;

pub use bridge::{BridgeLan, BridgeLanConfig};
pub use direction::Direction;
pub use dropper::{DropFilter, Dropper};
pub use emulator::{Emulator, EmulatorConfig};
pub use error::LabError;
pub use namespace::Namespace;
pub use topology::{TwoSites, TwoSitesConfig};
