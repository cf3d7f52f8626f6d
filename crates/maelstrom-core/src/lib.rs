//! The Maelstrom gateway as a pure state machine: no socket, no clock, no thread.
//!
//! [`Gateway`] is the only entrance. A driver hands it the packets that a tap saw leave and arrive, the datagrams of
//! the repair channel, and the time; it gives back repairs to send and recovered packets to inject (Maelstrom §4).
//!
//! | direction | path |
//! |---|---|
//! | egress, LAN to WAN | [`packet`] → [`identity`] → `egress` (schedule of [`fec`]) → [`wire`] → [`session`] → [`outbox`] |
//! | ingress, WAN to LAN | [`packet`] → [`identity`] → `shelf`; [`session`] → [`wire`] → `ingress` (decoder of [`fec`]) → [`symbol`] (verified) → [`outbox`] |
#![forbid(unsafe_code)]

pub mod counters;
mod egress;
mod gateway;
mod held;
pub mod identity;
mod ingress;
mod ledger;
pub mod outbox;
pub mod packet;
mod peer;
mod prefixes;
pub mod replay;
mod schedule;
pub mod session;
mod shelf;
pub mod symbol;
mod window;
pub mod wire;

pub use egress::EgressCounts;
pub use fec::MEMORY_MAX as SUMS_BYTES_MAX;
pub use fec::{RATE_MAX, RateError, RepairRate, Scheme};
pub use foundation::Seq;
pub use gateway::{Config, ConfigError, Gateway, PeerConfig, PeerStatus};
pub use ingress::{IngressConfig, IngressCounts};
pub use outbox::Outbox;
pub use schedule::Schedule;
pub use session::PeerKey;
