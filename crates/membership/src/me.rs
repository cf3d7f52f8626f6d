//! This node's identity, and the mistakes that its configuration can have.

use std::net::SocketAddr;

use ricochet_core::NodeId;
use thiserror::Error;

use crate::wire::swim::{LIFE_MAX, canonical, is_sendable};

/// This node as the others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Me {
    /// Identifier, drawn at random at the start.
    pub id: NodeId,
    /// Address of the socket that the node sends from.
    pub address: SocketAddr,
    /// Start time in microseconds since 1970: of two lives at one address the later counts.
    pub life: u64,
}

/// Mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Other nodes cannot send to the address.
    #[error("address: expected one to which other nodes can send, saw {0}; give the address of an interface")]
    Address(SocketAddr),
    /// No node can have the seed address.
    #[error("seed: expected the address of a node, saw {0}")]
    Seed(SocketAddr),
    /// A setting is out of its range.
    #[error("{name}: expected {expected}, saw {saw}")]
    Range {
        /// Name of the setting.
        name: &'static str,
        /// Range of the setting.
        expected: &'static str,
        /// Value of the setting.
        saw: u64,
    },
}

impl Me {
    pub(crate) fn check(self) -> Result<Self, ConfigError> {
        let address = canonical(self.address);
        if !is_sendable(address) {
            return Err(ConfigError::Address(self.address));
        }
        in_range("life", self.life, 0..=LIFE_MAX, "microseconds since 1970")?;
        Ok(Self { address, ..self })
    }
}

/// Checks that a setting is in its range.
pub(crate) fn in_range(
    name: &'static str,
    saw: u64,
    range: std::ops::RangeInclusive<u64>,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if range.contains(&saw) { Ok(()) } else { Err(ConfigError::Range { name, expected, saw }) }
}
