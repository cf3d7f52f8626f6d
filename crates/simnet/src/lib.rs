//! Links and networks in virtual time, for the emulator and for simulations.
//!
//! Pure: no socket, no clock; the same seed gives the same run on every machine.
//!
//! | file | content |
//! |---|---|
//! | `link.rs`, `link/` | one direction of a link: queue, rate, loss, delay, disorder |
//! | `virtual_net.rs` | many nodes: loss at each receiver, delay, disorder, partitions |
//! | `units.rs` | quantities as people write them |
#![forbid(unsafe_code)]

pub mod link;
pub mod units;
pub mod virtual_net;

pub use link::LinkConfig;
pub use virtual_net::VirtualNet;
