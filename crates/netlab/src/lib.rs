//! Loss models, link emulation and namespace topologies for tests, demos and figures.
//!
//! | file | what |
//! |---|---|
//! | `namespace.rs`, `namespace/` | network namespaces held by a file descriptor, their devices, routes and sysctls |
//! | `privilege.rs` | may this process build namespaces? enter a user namespace when it may not |

#![forbid(unsafe_code)]

mod error;
pub mod namespace;
pub mod privilege;

pub use error::LabError;
pub use namespace::Namespace;
