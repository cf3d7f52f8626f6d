//! Maelstrom gateway drivers: the core on real packets.

pub mod config;
pub mod status;
