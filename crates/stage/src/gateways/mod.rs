//! Two sites on a lossy link, and gateways at its ends.
//!
//! | file | content |
//! |---|---|
//! | `pair.rs` | the gateways, as child processes that end with their owner |
//! | `sites.rs` | the sites, and the ends of their traffic |

#[allow(clippy::disallowed_methods, reason = "waits for real processes")]
mod pair;
mod sites;

pub use pair::{End, GatewayPair, Setting};
pub use sites::{between, sites};
