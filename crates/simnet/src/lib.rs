//! Links and networks in virtual time, for the emulator and for simulations.
//!
//! Pure: no sockets, no clocks. The same random seed gives the same run on every machine.
//!
//! | file | content |
//! |---|---|
//! | `link/` | one direction of a link: queue, rate, loss, delay, reordering |
//! | `virtual_net.rs` | many nodes: loss at each receiver, delay, reordering, partitions |
//! | `units.rs` | quantities in text form |
#![forbid(unsafe_code)]

pub mod link;
pub mod units;
pub mod virtual_net;

pub use link::LinkConfig;
pub use virtual_net::VirtualNet;
