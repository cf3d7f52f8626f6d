//! Settings of a node.

use fec::DecoderConfig;
use thiserror::Error;

use crate::announce::AnnounceConfig;
use crate::bins::{BinsConfig, BinsConfigError, Content};
use crate::delivery::{FragmentsConfig, FragmentsConfigError};
use crate::history::{HistoryConfig, HistoryConfigError, KeyedConfig};
use crate::ids::NodeId;
use crate::tracker::{TrackerConfig, TrackerConfigError};
use crate::wire::{NAK_HEADER, NAK_RANGE, NAK_RANGES_MAX, NAMES_MAX, SYMBOL_HEAD, payload_max};

/// Maximum number of packets in the data buffer.
const PACKETS_MAX: usize = 1 << 20;
/// Longest of the configured times, an hour.
const TIME_US_MAX: u64 = 3_600_000_000;
/// Smallest `datagram_max`: a node must be able to write its fixed-size datagrams.
const DATAGRAM_MIN: usize = 1_200;

/// When and how packets are requested that repairs have not recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakConfig {
    /// Whether packets are requested at all. If not, they are only given up.
    pub enabled: bool,
    /// Time from finding a packet missing to its first request, in microseconds (Ricochet §4.2.7).
    pub first_us: u64,
    /// The same for packets whose successor in the stream has come; `None` uses `first_us` for these too.
    pub gap_us: Option<u64>,
    /// Pause between rounds of requests, in microseconds; twice as long each time from the fifth on. In a
    /// round up to four nodes are asked one after the other, each as soon as the one before should have
    /// answered.
    pub retry_us: u64,
    /// Shortest time to wait for an answer, in microseconds. After it the next node of the round is asked, or
    /// the next digest that names the packet leads to a request. The wait is twice the measured round trip if
    /// that is longer, at most half a second.
    pub holder_us: u64,
    /// Number of requests that go to the packet's sender before other members of its group are asked.
    pub sender_tries: u8,
    /// Maximum number of requests for a packet, not counting those that nodes deny. It bounds the cost of a
    /// packet, not the time for which the packet is awaited.
    pub tries_max: u8,
    /// Time from finding a packet missing to giving it up in any case, in microseconds.
    pub give_up_us: u64,
    /// The same for a packet that is taken to expire, and so is not requested. A group can have a time of its
    /// own ([`Node::set_lifetime`](super::Node::set_lifetime)).
    pub expires_after_us: u64,
    /// Maximum number of requested packets in flight, 1 to 65,536, not counting requests that digests lead
    /// to. A node that misses more packets requests the rest as these come.
    pub in_flight_max: u32,
    /// Maximum number of packets requested of one node in a second.
    pub packets_per_second: u32,
}

impl Default for NakConfig {
    /// First request after 100 ms, then every 50 ms and more (Ricochet §5.1), each time up to four requests 4
    /// ms apart; the first two requests go to the sender. Gives up after 10 s, with 64 requests at most, and
    /// gives up packets that expire after 100 ms. 512 packets in flight, 10,000 packets a second.
    fn default() -> Self {
        Self {
            enabled: true,
            first_us: 100_000,
            gap_us: None,
            retry_us: 50_000,
            holder_us: 2_000,
            sender_tries: 2,
            tries_max: 64,
            give_up_us: 10_000_000,
            expires_after_us: 100_000,
            in_flight_max: 512,
            packets_per_second: 10_000,
        }
    }
}

/// Settings of a [`Node`](super::Node).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Identifier of this life of the node.
    pub id: NodeId,
    /// Packets in a repair.
    pub r: u8,
    /// Number of instances of each bin that are fed in turn (Ricochet §4.2.2).
    pub stagger: u16,
    /// Longest time that a repair stays part-filled, in microseconds; `None` waits for packets without limit,
    /// as the papers do.
    pub max_delay_us: Option<u64>,
    /// Content of repairs besides names.
    pub content: Content,
    /// Number of packets of others that are kept, to recover further ones with and to answer requests, and
    /// maximum number of own packets kept.
    pub packets: usize,
    /// Number of repairs kept that miss two packets or more.
    pub equations: usize,
    /// Longest datagram in bytes of UDP payload.
    pub datagram_max: usize,
    /// Bytes at the end of each datagram that the driver needs for its trailer.
    pub trailer: usize,
    /// Bounds of what is kept of streams and of their missing packets.
    pub tracker: TrackerConfig,
    /// Requests.
    pub nak: NakConfig,
    /// Heartbeats.
    pub announce: AnnounceConfig,
    /// Maximum number of packets retransmitted to one node in a second.
    pub answers_per_second: u32,
    /// Messages longer than a packet.
    pub fragments: FragmentsConfig,
    /// Bounds of the history that this node keeps for nodes that join later.
    pub history: HistoryConfig,
    /// Bounds of the last messages of keys that this node keeps.
    pub keyed: KeyedConfig,
    /// Maximum number of members of a group that this node makes repairs for, at least 1. In a larger group
    /// they are drawn at random (Slingshot §3.3).
    pub partners_max: usize,
    /// Maximum number of peers in [`Node::feedback`](super::Node::feedback), at most 65,536.
    pub feedback_peers: usize,
}

impl NodeConfig {
    /// Returns the papers' settings for a node: r = 8, no stagger, XOR; 4,096 packets, datagrams for an MTU
    /// of 1,500 bytes.
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            r: 8,
            stagger: 1,
            max_delay_us: None,
            content: Content::Xor,
            packets: 4_096,
            equations: 256,
            datagram_max: 1_472,
            trailer: 0,
            tracker: TrackerConfig::default(),
            nak: NakConfig::default(),
            announce: AnnounceConfig::default(),
            answers_per_second: 10_000,
            fragments: FragmentsConfig::default(),
            history: HistoryConfig::default(),
            keyed: KeyedConfig::default(),
            partners_max: usize::MAX,
            feedback_peers: 1_024,
        }
    }

    /// Returns the settings of Slingshot (Slingshot §3): the same node in a single group, with one region and
    /// one bin.
    ///
    /// Phase 1 consists of repairs at the rate of fire (r, c), where c is the group's. Phase 2 requests the
    /// packets still missing 100 ms after they were found missing: `sender_tries` times from the sender, then
    /// from any receiver in the view, which may be partial.
    pub fn slingshot(id: NodeId, r: u8, sender_tries: u8) -> Self {
        let papers = Self::new(id);
        Self { r, nak: NakConfig { sender_tries, ..papers.nak }, ..papers }
    }

    /// Returns the settings for applications: lost packets come back within some milliseconds, even where
    /// groups are nearly silent. The papers' settings wait for repairs without limit; with these, each rung
    /// of the recovery ladder has a time:
    ///
    /// - 0.5 ms after the successor came, a receiver requests the gap from the sender.
    /// - Up to 3 ms after the loss, each neighbour sends its repair, full or not.
    /// - 2.5 ms after a repair named the packet, a receiver requests it if repairs have not recovered it.
    ///   While no answer comes, it requests it from another node every 2 to 3 ms.
    /// - 5 ms after the loss, a sender that has fallen silent sends a heartbeat; again after 155 ms and
    ///   2.6 s, and more often where much is lost.
    ///
    /// The wait for a gap is 0.5 ms because packets overtake each other by that much in hosts with several
    /// queues. A longer wait is unnecessary: a gap shows early only in a hot stream, whose next packet came
    /// soon after the loss. Heartbeats are sparse where little is lost: in a group with a message a second,
    /// each further heartbeat would cost as much as the digests do. Measurements are in `docs/bench.md`.
    pub fn prompt(id: NodeId) -> Self {
        let papers = Self::new(id);
        Self {
            max_delay_us: Some(3_000),
            nak: NakConfig { first_us: 2_500, gap_us: Some(500), retry_us: 3_000, ..papers.nak },
            // With few targets among many members, repairs that reach the sender do not show that others got
            // any.
            announce: AnnounceConfig { unless_named_us: 0, ..papers.announce },
            // Repairs go to c of them, five or fewer, and each of them gets as many of others.
            partners_max: 64,
            ..papers
        }
    }

    /// Checks the ranges that the parts do not check themselves; returns the length of the longest payload.
    pub(super) fn check(&self) -> Result<usize, NodeConfigError> {
        if !(1..=PACKETS_MAX).contains(&self.packets) {
            return Err(NodeConfigError::Packets(self.packets));
        }
        if !(DATAGRAM_MIN..=usize::from(u16::MAX)).contains(&self.datagram_max) {
            return Err(NodeConfigError::Datagram(self.datagram_max));
        }
        if self.partners_max == 0 {
            return Err(NodeConfigError::Partners(self.partners_max));
        }
        if self.announce.times > 16 {
            return Err(NodeConfigError::Announcements(self.announce.times));
        }
        if !(1..=16).contains(&self.announce.stride) {
            return Err(NodeConfigError::Stride(self.announce.stride));
        }
        if !(2..=16).contains(&self.announce.growth) {
            return Err(NodeConfigError::Growth(self.announce.growth));
        }
        if self.feedback_peers > 1 << 16 {
            return Err(NodeConfigError::FeedbackPeers(self.feedback_peers));
        }
        if !(1..=1 << 16).contains(&self.nak.in_flight_max) {
            return Err(NodeConfigError::InFlight(self.nak.in_flight_max));
        }
        if NAK_HEADER + NAK_RANGES_MAX * NAK_RANGE + self.trailer > self.datagram_max {
            return Err(NodeConfigError::Datagram(self.datagram_max));
        }
        let NakConfig { first_us, gap_us, retry_us, holder_us, give_up_us, .. } = self.nak;
        let times = [
            ("nak.first_us", first_us),
            ("nak.gap_us", gap_us.unwrap_or(0)),
            ("nak.retry_us", retry_us),
            ("nak.holder_us", holder_us),
            ("nak.give_up_us", give_up_us),
            ("announce.first_us", self.announce.first_us),
            ("announce.unless_named_us", self.announce.unless_named_us),
        ];
        if let Some(&(name, seen_us)) = times.iter().find(|(_, us)| *us > TIME_US_MAX) {
            return Err(NodeConfigError::Time { name, seen_us });
        }
        let longest = payload_max(self.datagram_max, usize::from(self.r), self.trailer)
            .ok_or(NodeConfigError::Datagram(self.datagram_max))?;
        self.decoder(SYMBOL_HEAD + longest).check()?;
        Ok(longest)
    }

    pub(super) fn bins(&self, symbol_max: usize) -> BinsConfig {
        BinsConfig {
            r: self.r,
            stagger: self.stagger,
            max_delay_us: self.max_delay_us,
            symbol_max,
            content: self.content,
            ..BinsConfig::default()
        }
    }

    pub(super) fn decoder(&self, symbol_max: usize) -> DecoderConfig {
        DecoderConfig { equations: self.equations, payload_max: symbol_max, terms_max: NAMES_MAX }
    }
}

/// Errors in a [`NodeConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeConfigError {
    /// `packets` is out of range.
    #[error("packets: expected 1 to {PACKETS_MAX}, saw {0}")]
    Packets(usize),
    /// `datagram_max` is out of range, or too small for a repair.
    #[error("datagram_max: expected {DATAGRAM_MIN} to 65535 and room for a repair and a request, saw {0}")]
    Datagram(usize),
    /// `partners_max` is out of range.
    #[error("partners_max: expected at least 1, saw {0}")]
    Partners(usize),
    /// `nak.in_flight_max` is out of range.
    #[error("nak.in_flight_max: expected 1 to 65536, saw {0}")]
    InFlight(u32),
    /// A time is too long.
    #[error("{name}: expected at most {TIME_US_MAX} microseconds, saw {seen_us}")]
    Time {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        seen_us: u64,
    },
    /// `announce.growth` is out of range.
    #[error("announce.growth: expected 2 to 16, saw {0}")]
    Growth(u8),
    /// `announce.stride` is out of range.
    #[error("announce.stride: expected 1 to 16, saw {0}")]
    Stride(u8),
    /// `announce.times` is out of range.
    #[error("announce.times: expected at most 16, saw {0}")]
    Announcements(u8),
    /// `feedback_peers` is out of range.
    #[error("feedback_peers: expected at most 65536, saw {0}")]
    FeedbackPeers(usize),
    /// A setting of the repair bins is wrong.
    #[error(transparent)]
    Bins(#[from] BinsConfigError),
    /// A setting of the tracker is wrong.
    #[error(transparent)]
    Tracker(#[from] TrackerConfigError),
    /// A setting of the messages longer than a packet is wrong.
    #[error(transparent)]
    Fragments(#[from] FragmentsConfigError),
    /// A setting of the history is wrong.
    #[error(transparent)]
    History(#[from] HistoryConfigError),
    /// A setting of the decoder is wrong.
    #[error(transparent)]
    Decoder(#[from] fec::ConfigError),
}
