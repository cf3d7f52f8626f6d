//! Errors of cutting a super-packet.

use super::tunnel::Sign;
use crate::offload::Gso;

/// Reason why a packet was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The headers of a super-packet do not parse.
    #[error("expected a whole IP packet, saw {seen} bytes that do not parse")]
    Malformed {
        /// Number of bytes.
        seen: usize,
    },
    /// A super-packet of a kind that is not cut.
    #[error("expected TCP or UDP segments, saw a super-packet of another kind")]
    Kind,
    /// The headers contradict the offload.
    #[error("expected segments of {expected:?}, saw IP version {version} with protocol {protocol}")]
    Mismatch {
        /// Kind according to the offload.
        expected: Gso,
        /// IP version of the header.
        version: u8,
        /// Protocol of the header.
        protocol: u8,
    },
    /// A fragment, or a packet with an unfinished IPv6 routing header.
    #[error("expected a plain super-packet, saw a fragment or a routing header")]
    Indirect,
    /// A super-packet with no segment size.
    #[error("expected a segment size, saw zero")]
    SegmentSize,
    /// The payload gives another number of segments than the kernel counted, so the kernel cuts elsewhere:
    /// inside a tunnel.
    #[error("expected {expected} segments by the payload, saw a super-packet of {seen}")]
    SegmentCount {
        /// Number of segments of the payload.
        expected: usize,
        /// Number of segments according to the offload.
        seen: u16,
    },
    /// A super-packet of a tunnel over UDP, whose inner packet the kernel cuts, without an IP packet inside.
    #[error("expected plain UDP segments or an IP packet in a tunnel, saw a tunnel without one: {0}")]
    Tunnel(Sign),
    /// A super-packet in GRE that no kernel makes or merges.
    #[error(
        "expected GRE of version 0 without a sequence number, with IP or Ethernet inside, saw flags {flags:#06x}, protocol {protocol:#06x}"
    )]
    Gre {
        /// First two bytes of the GRE header.
        flags: u16,
        /// Protocol type in the GRE header.
        protocol: u16,
    },
    /// The scratch space cannot hold a segment.
    #[error("expected {needed} bytes of scratch space, saw {seen}")]
    Scratch {
        /// Length of the largest segment.
        needed: usize,
        /// Length of the scratch space.
        seen: usize,
    },
}
