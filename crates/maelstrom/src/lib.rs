//! Maelstrom gateway drivers: the core on real packets.
//!
//! [`config`] reads and checks what the operator wrote, [`Passive`] runs it, [`status`] is what a running gateway tells.
#![forbid(unsafe_code)]

pub mod config;
mod engine;
mod error;
pub mod findings;
mod interfaces;
mod lag;
mod passive;
mod ports;
mod reload;
pub mod status;

pub use error::StartError;
pub use passive::Passive;
