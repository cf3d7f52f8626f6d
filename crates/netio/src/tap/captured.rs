//! Captured packets, and counters of captured and missed ones.

use crate::offload::Offload;

/// Direction of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The packet left by the interface.
    Outgoing,
    /// The packet arrived by the interface.
    Incoming,
}

/// A captured packet or super-packet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Captured<'p> {
    /// Direction of the packet.
    pub direction: Direction,
    /// Work that the kernel left undone on it.
    pub offload: Offload,
    /// The packet, from the IP header on.
    pub packet: &'p [u8],
    /// VLAN tag, if the packet belongs to a VLAN on top of the interface.
    pub vlan: Option<u16>,
    /// Time of capture on the monotonic clock; only an eBPF tap reports it.
    pub time_ns: Option<u64>,
}

impl Captured<'_> {
    /// Whether the packet belongs to a VLAN on top of the interface, and not to the interface itself. A tag
    /// with the number 0 states a priority alone (IEEE 802.1Q §6.9).
    pub fn is_of_vlan(&self) -> bool {
        /// Bits of the number of the VLAN in a tag.
        const NUMBER: u16 = 0x0fff;
        self.vlan.is_some_and(|tag| tag & NUMBER != 0)
    }
}

/// Result of [`Tap::drain`](crate::tap::Tap::drain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Number of captured packets.
    pub packets: usize,
    /// The budget was used up, so more may wait.
    pub more: bool,
}

/// Counters of a tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TapCounts {
    /// Packets of the networks that were captured.
    pub captured: u64,
    /// Packets of the networks that were lost because the buffer was full.
    pub full: u64,
    /// Packets of the networks that the kernel could not copy.
    pub unreadable: u64,
    /// Super-packets of the networks longer than 64 KiB ("BIG TCP" on the interface).
    pub oversize: u64,
    /// Malformed packets, which need no capture: their headers are unreadable, or they claim more bytes than
    /// they have, so no IP stack accepts them. Only an eBPF tap counts them; a packet socket does not see the
    /// former and captures the latter.
    pub foreign: u64,
}

/// Packets that should have been captured and were not, since the tap was opened.
///
/// These are packets of the configured networks, not excluded, that met a full buffer, were unreadable for
/// the kernel, or were super-packets of more than 64 KiB. They never include packets of other networks or
/// malformed ones ([`TapCounts::foreign`]). A super-packet counts once, whatever its number of segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Packets that left.
    pub outgoing: u64,
    /// Packets that arrived; they must not be taken for lost on the path.
    pub incoming: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_no_vlan() {
        let of = |vlan| {
            let (direction, offload) = (Direction::Incoming, Offload::default());
            Captured { direction, offload, packet: &[], vlan, time_ns: None }.is_of_vlan()
        };
        assert!(of(Some(5)) && of(Some(0x6005)) && of(Some(0xffff)));
        assert!(!of(None) && !of(Some(0)) && !of(Some(0xe000)));
    }
}
