//! Maelstrom gateway drivers: the core with real packets.
//!
//! [`config`] reads and checks the configuration, [`Passive`] runs it, and [`status`] is the report of a
//! running gateway.
#![forbid(unsafe_code)]

mod afresh;
mod agreement;
mod arrivals;
mod bounds;
pub mod cached;
pub mod capture;
pub mod config;
mod device_mtu;
mod doors;
mod engine;
mod errands;
mod error;
mod exporter;
pub mod findings;
mod groups;
mod guard;
mod inbox;
mod inlet;
mod interfaces;
mod lag;
pub mod losses;
pub mod metrics;
mod mtus;
mod names;
mod overload;
mod passive;
mod path_mtu;
mod pause;
mod ports;
mod pulse;
mod rack;
mod random;
mod reload;
mod routes;
mod segments;
mod snapshot;
mod split;
mod start;
pub mod status;
mod store;
mod strangers;
mod taps;
mod tick;
mod tunnel;
mod turns;
mod uncut;
pub mod upgrade;
mod watch;

pub use error::StartError;
pub use passive::Passive;
