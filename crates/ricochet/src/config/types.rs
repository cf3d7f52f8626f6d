//! Types and constants of the settings.

use std::time::Duration;

/// Maximum number of IP groups over which the groups of a cluster are spread.
pub const GROUP_ADDRESSES_MAX: u8 = 64;
/// Port that a node takes if it is free and no other is given.
pub const PORT: u16 = 7_900;
/// Port of the groups if no other is given.
pub const GROUP_PORT: u16 = 7_911;

/// Longest of all times.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// Maximum of times between two datagrams.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Contents of repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairMode {
    /// The XOR of their packets, which recovers without a round trip (Ricochet §4).
    Xor,
    /// Names alone. A node that lacks a packet requests it from the sender of the repair.
    #[default]
    Digest,
    /// Either of the two, by the measured network and the length of the packets.
    Auto,
}
