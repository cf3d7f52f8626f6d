//! Two sites on a lossy link, and gateways at its ends.
//!
//! | file | content |
//! |---|---|
//! | `pair.rs` | the gateways, as child processes that end with their owner |
//! | `sites.rs` | the sites, and the ends of their traffic |
//! | `three_sites.rs` | three sites behind a backbone, by tunnels or in mixed modes |
//! | `two_paths.rs` | sites with two links between them, and tunnels |
//! | `ways.rs` | TCP without gateways, past them, through their tunnel, and ended by them |

#[allow(clippy::disallowed_methods, reason = "waits for real processes")]
mod pair;
mod sites;
#[allow(clippy::disallowed_methods, reason = "waits for real processes")]
mod three_sites;
mod two_paths;
mod ways;

pub use pair::{End, GatewayPair, Setting, SplitSetting, TunnelSetting};
pub use sites::{between, part, sites};
pub use three_sites::{Modes, ThreeSites};
pub use two_paths::TwoPaths;
pub use ways::{Way, WayPlan, WayStage};
