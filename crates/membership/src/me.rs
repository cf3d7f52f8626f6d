//! This node, and what can be wrong with what its owner says of it.

use std::net::SocketAddr;

use ricochet_core::NodeId;
use thiserror::Error;

use crate::wire::swim::{LIFE_MAX, canonical, is_sendable};

/// This node as it tells the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Me {
    /// Drawn at random at the start.
    pub id: NodeId,
    /// The socket that it sends from, as others see it.
    pub address: SocketAddr,
    /// When it started, in microseconds since 1970: of two lives at one address the later counts.
    pub life: u64,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nobody could send there.
    #[error("address: expected one that others can send to, saw {0}; name the address of an interface")]
    Address(SocketAddr),
    /// Nobody could be asked there.
    #[error("seed: expected the address of a node, saw {0}")]
    Seed(SocketAddr),
    /// A setting is out of its range.
    #[error("{name}: expected {expected}, saw {saw}")]
    Range {
        /// Which setting.
        name: &'static str,
        /// What would be right.
        expected: &'static str,
        /// What was there.
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

/// Complains about a setting that is not in its range.
pub(crate) fn in_range(
    name: &'static str,
    saw: u64,
    range: std::ops::RangeInclusive<u64>,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if range.contains(&saw) { Ok(()) } else { Err(ConfigError::Range { name, expected, saw }) }
}
