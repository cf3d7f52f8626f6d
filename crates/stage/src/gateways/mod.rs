//! Two sites on a link that loses packets, and gateways at its ends: for the demo, the figures, benchmarks and tests.
//!
//! | file | what |
//! |---|---|
//! | `pair.rs` | the gateways, as child processes that end with their owner |
//! | `sites.rs` | the sites, and who talks to whom |

#[allow(clippy::disallowed_methods, reason = "waits for processes of the real world")]
mod pair;
mod sites;

pub use pair::{End, GatewayPair, Setting};
pub use sites::{between, sites};
