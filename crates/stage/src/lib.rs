//! Real gateways and real nodes in network namespaces of one machine, for the demo, figures, benchmarks and
//! tests.
//!
//! | file or directory | content |
//! |---|---|
//! | `gateways/` | two sites, a link that loses packets, and gateways as child processes at its ends |
//! | `nodes/` | Ricochet nodes with the library's own driver and sockets, one namespace each |
//! | `fresh.rs` | names of temporary files that nothing has yet |
#![forbid(unsafe_code)]

pub mod fresh;
pub mod gateways;
pub mod nodes;
