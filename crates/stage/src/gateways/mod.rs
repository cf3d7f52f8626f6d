//! Two sites on a lossy link, and gateways at its ends.
//!
//! | file | content |
//! |---|---|
//! | `pair.rs` | the gateways, as child processes that end with their owner |
//! | `sites.rs` | the sites, and the ends of their traffic |
//! | `two_paths.rs` | sites with two links between them, and tunnels |
//! | `ways.rs` | TCP without gateways, past them, through their tunnel, and ended by them |

#[allow(clippy::disallowed_methods, reason = "waits for real processes")]
mod pair;
mod sites;
mod two_paths;
mod ways;

pub use pair::{End, GatewayPair, Setting, SplitSetting, TunnelSetting};
pub use sites::{between, part, sites};
pub use two_paths::TwoPaths;
pub use ways::{Way, WayPlan, WayStage};
