//! Real gateways and real nodes in network namespaces of one machine, for the demo, figures, benchmarks and
//! tests.
//!
//! | directory | content |
//! |---|---|
//! | `gateways/` | two sites, a link that loses packets, and gateways as child processes at its ends |
//! | `nodes/` | Ricochet nodes with the library's own driver and sockets, one namespace each |
#![forbid(unsafe_code)]

pub mod gateways;
pub mod nodes;
