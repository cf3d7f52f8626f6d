//! The settings of the core: what the node's settings mean for it.

use std::time::Duration;

use ricochet_core::bins::Content;
use ricochet_core::delivery::{FifoConfig, FragmentsConfig};
use ricochet_core::node::{AnnounceConfig, NakConfig};
use ricochet_core::tracker::TrackerConfig;
use ricochet_core::{NodeConfig, NodeId};

use super::draft::Config;
use super::sections::{BuffersSection, FifoSection, NodeSection, RepairSection};
use super::types::RepairMode;
use crate::key::TRAILER;

/// Maximum number of gaps in one stream whose packets are expected. After a long outage all packets are sent
/// again at once, and those that do not fit into the ring leave as many gaps.
const GAPS_MAX: u32 = 512;
/// Maximum number of gaps in all streams together whose packets are expected.
const GAPS_IN_ALL: usize = 1 << 14;

impl Config {
    /// The configuration of the core for the node `id`.
    pub(crate) fn core(&self, id: NodeId, has_key: bool) -> NodeConfig {
        let (repair, nak, buffers) = (&self.repair, &self.nak, &self.buffers);
        NodeConfig {
            r: repair.r,
            stagger: repair.stagger,
            max_delay_us: repair.patience().map(micros),
            content: match repair.mode {
                RepairMode::Xor => Content::Xor,
                RepairMode::Digest => Content::Names,
                RepairMode::Auto => Content::Auto,
            },
            packets: buffers.packets,
            equations: buffers.equations,
            datagram_max: buffers.datagram_max,
            fragments: FragmentsConfig { bytes_max: buffers.fragment_bytes, ..FragmentsConfig::default() },
            trailer: if has_key { TRAILER } else { 0 },
            nak: NakConfig {
                enabled: nak.enabled,
                first_us: micros(nak.first_ms),
                gap_us: nak.gap_ms.map(micros),
                retry_us: micros(nak.retry_ms),
                sender_tries: nak.sender_tries,
                tries_max: nak.tries,
                give_up_us: micros(nak.give_up_ms),
                packets_per_second: nak.packets_per_second,
                expires_after_us: micros(nak.expires_after_ms),
                ..NodeConfig::prompt(id).nak
            },
            announce: AnnounceConfig {
                first_us: micros(self.announce.first_ms),
                growth: self.announce.growth,
                times: self.announce.times,
                stride: self.announce.stride,
                unless_named_us: micros(self.announce.unless_named_ms),
            },
            tracker: TrackerConfig {
                streams_max: buffers.streams,
                // A stream that is first seen in its middle takes one interval; gaps need
                // room beside these to be split.
                intervals_max: buffers.streams + GAPS_IN_ALL,
                stream_intervals_max: GAPS_MAX,
                ..TrackerConfig::default()
            },
            partners_max: NodeConfig::prompt(id).partners_max,
            answers_per_second: nak.packets_per_second,
            history: self.history.core(),
            keyed: self.history.keyed(),
            ..NodeConfig::new(id)
        }
    }
}

impl NodeSection {
    /// Whether the node uses IPv6: its addresses decide, or else `ipv6`.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.address.or(self.groups_base).map_or(self.ipv6, |address| address.is_ipv6())
    }
}

impl RepairSection {
    /// Number of repairs that each packet enters.
    ///
    /// Fewer digests suffice: a node that receives one requests all packets that it lacks, but an XOR of
    /// which it lacks two packets is of no use to it. A packet that no digest names is announced soon.
    pub fn repairs_per_packet(&self) -> u8 {
        self.c.unwrap_or(if self.mode == RepairMode::Digest { 3 } else { 5 })
    }

    /// Longest wait of a part-filled repair; `None` for no limit.
    pub fn patience(&self) -> Option<Duration> {
        let by_mode = Duration::from_millis(if self.mode == RepairMode::Digest { 5 } else { 3 });
        Some(self.max_delay_ms.unwrap_or(by_mode)).filter(|delay| !delay.is_zero())
    }
}

impl FifoSection {
    /// The configuration of an ordered subscription.
    pub(crate) fn core(&self, buffers: &BuffersSection) -> FifoConfig {
        FifoConfig {
            messages_max: self.messages,
            bytes_max: self.bytes,
            streams_max: self.streams.unwrap_or(buffers.streams),
            settle_us: micros(self.settle_ms),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
