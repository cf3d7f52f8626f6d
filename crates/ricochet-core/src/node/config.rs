//! How a node is set up.

use fec::DecoderConfig;
use thiserror::Error;

use crate::bins::{BinsConfig, BinsConfigError, Content};
use crate::delivery::{FragmentsConfig, FragmentsConfigError};
use crate::ids::NodeId;
use crate::tracker::{TrackerConfig, TrackerConfigError};
use crate::wire::{NAK_HEADER, NAK_RANGE, NAK_RANGES_MAX, NAMES_MAX, SYMBOL_HEAD, payload_max};

/// Most packets in the data buffer.
const PACKETS_MAX: usize = 1 << 20;
/// Longest of the times, an hour.
const TIME_US_MAX: u64 = 3_600_000_000;
/// A node must be able to write its smaller datagrams.
const DATAGRAM_MIN: usize = 1_200;

/// When and how packets are asked for that repairs have not brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskConfig {
    /// Whether they are at all. If not, they are only given up.
    pub enabled: bool,
    /// How long after it was found missing a packet is asked for, in microseconds (Ricochet §4.2.7).
    pub first_us: u64,
    /// The same for packets whose successor in the stream has come; `None` waits for repairs as with all others.
    pub gap_us: Option<u64>,
    /// The pause between rounds of requests, in microseconds; twice as long each time from the fifth on. In a round up to
    /// four nodes are asked one after the other, each as soon as the one before should have answered.
    pub retry_us: u64,
    /// How long an answer is waited for, in microseconds, at the least: then the next of the round is asked, or the next
    /// digest that names the packet is followed. Twice the measured round trip if that is longer, at most half a second.
    pub holder_us: u64,
    /// So many requests go to the packet's sender, then others of its group are asked.
    pub sender_tries: u8,
    /// So many requests in all: a bound on what one packet costs, not on how long it is waited for.
    pub tries_max: u8,
    /// How long after it was found missing a packet is given up in any case, in microseconds.
    pub give_up_us: u64,
    /// How long after it was found missing a packet is given up that is not worth asking for, in microseconds. Less for a
    /// group where [`Node::set_lifetime`](super::Node::set_lifetime) says so.
    pub expires_after_us: u64,
    /// Most packets that were asked for in turns and are waited for, 1 to 65,536: who has missed many asks for more as
    /// these come.
    pub under_way_max: u32,
    /// Most packets asked of one peer in a second.
    pub packets_per_second: u32,
}

impl Default for AskConfig {
    /// After 100 ms, then every 50 ms and more (Ricochet §5.1), each time up to four requests 4 ms apart; the first two of
    /// the sender; given up after 64 or 10 s, what expires after 100 ms; 512 packets under way, 10,000 packets a second.
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
            under_way_max: 512,
            packets_per_second: 10_000,
        }
    }
}

/// How a sender that falls silent says what it sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceConfig {
    /// After so much silence, in microseconds.
    pub first_us: u64,
    /// Each time it waits so many times as long as before, 2 to 16.
    pub growth: u8,
    /// How often; 0 for never, at most 16.
    pub times: u8,
    /// Where less than 3 % of the packets are lost, only the first and every so many-th after it are said; 1 to 16.
    pub seldom: u8,
    /// There, too: so long after the packet, in microseconds, nothing is said of it if three repairs came that name it: then others
    /// hear of it by repairs as well. 0 says it in any case.
    pub unless_named_us: u64,
}

impl Default for AnnounceConfig {
    /// From 5 ms to 20 s, twelve times in all: who was cut off for some seconds hears it too. Where little is lost after
    /// 5 ms, 155 ms and 2.6 s, the first only if repairs have not spread the news.
    fn default() -> Self {
        Self { first_us: 5_000, growth: 2, times: 12, seldom: 4, unless_named_us: 100_000 }
    }
}

/// Settings of a [`Node`](super::Node).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// This life of this node.
    pub id: NodeId,
    /// Packets in a repair.
    pub r: u8,
    /// How many instances of each bin are fed in turn (Ricochet §4.2.2).
    pub stagger: u16,
    /// How long a repair may stay part-filled, in microseconds; `None` waits for packets for ever, as the papers do.
    pub max_delay_us: Option<u64>,
    /// What repairs carry besides names.
    pub content: Content,
    /// Packets kept, to mend others and to answer requests.
    pub packets: usize,
    /// Repairs kept that miss two packets or more.
    pub equations: usize,
    /// Longest datagram in bytes of UDP payload.
    pub datagram_max: usize,
    /// Bytes of it that the driver needs for itself.
    pub trailer: usize,
    /// What is kept of streams and of what they miss.
    pub tracker: TrackerConfig,
    /// Requests.
    pub ask: AskConfig,
    /// Announcements.
    pub announce: AnnounceConfig,
    /// Most packets sent again to one peer in a second.
    pub answers_per_second: u32,
    /// Messages longer than a packet.
    pub fragments: FragmentsConfig,
    /// Most peers that [`Node::feedback`](super::Node::feedback) tells of, at most 65,536.
    pub feedback_peers: usize,
}

impl NodeConfig {
    /// The papers' setting for a node: r = 8, no stagger, XOR; 4,096 packets, datagrams for an MTU of 1,500 bytes.
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
            ask: AskConfig::default(),
            announce: AnnounceConfig::default(),
            answers_per_second: 10_000,
            fragments: FragmentsConfig::default(),
            feedback_peers: 1_024,
        }
    }

    /// Slingshot (Slingshot §3): in a single group the node is the same, with one region and one bin. Phase 1 are its
    /// repairs at the rate of fire (r, c), c being the group's. Phase 2 asks for what is still missing 100 ms after it
    /// was found out: `sender_tries` times the sender, then any receiver in the view, which may be partial.
    pub fn slingshot(id: NodeId, r: u8, sender_tries: u8) -> Self {
        let papers = Self::new(id);
        Self { r, ask: AskConfig { sender_tries, ..papers.ask }, ..papers }
    }

    /// For applications: what is lost comes back within some milliseconds, also where groups are nearly silent. The
    /// papers' setting waits for repairs as long as they take; here the recovery ladder has a time for each rung:
    ///
    /// | after the loss | rung |
    /// |---|---|
    /// | 0.5 ms after its successor came | in a hot stream the gap itself is asked for, of the sender |
    /// | up to 3 ms | each neighbour's repair leaves, full or not |
    /// | 2.5 ms after a repair named it | it is asked for, if repairs did not mend it; of another every 2 to 3 ms while no answer comes |
    /// | 5 ms | the sender, silent by now, says what it sent last; again after 155 ms and 2.6 s, and more often where much is lost |
    ///
    /// A gap is waited upon for 0.5 ms since packets overtake each other by that much in hosts with several queues, and
    /// not longer since a stream with a gap so soon is hot: its successor came while the loss was young. Announcements
    /// are seldom where little is lost: in a group with a message a second every doubling would cost as much again as the
    /// digests.
    /// Figures are in `docs/bench.md`.
    pub fn prompt(id: NodeId) -> Self {
        let papers = Self::new(id);
        Self {
            max_delay_us: Some(3_000),
            ask: AskConfig { first_us: 2_500, gap_us: Some(500), retry_us: 3_000, ..papers.ask },
            // With few targets among many members, what one hears of is no sign of what others do.
            announce: AnnounceConfig { unless_named_us: 0, ..papers.announce },
            ..papers
        }
    }

    /// Checks the ranges that the parts do not check themselves; returns the longest payload.
    pub(super) fn check(&self) -> Result<usize, NodeConfigError> {
        if !(1..=PACKETS_MAX).contains(&self.packets) {
            return Err(NodeConfigError::Packets(self.packets));
        }
        if !(DATAGRAM_MIN..=usize::from(u16::MAX)).contains(&self.datagram_max) {
            return Err(NodeConfigError::Datagram(self.datagram_max));
        }
        if self.announce.times > 16 {
            return Err(NodeConfigError::Announcements(self.announce.times));
        }
        if !(1..=16).contains(&self.announce.seldom) {
            return Err(NodeConfigError::Seldom(self.announce.seldom));
        }
        if !(2..=16).contains(&self.announce.growth) {
            return Err(NodeConfigError::Growth(self.announce.growth));
        }
        if self.feedback_peers > 1 << 16 {
            return Err(NodeConfigError::FeedbackPeers(self.feedback_peers));
        }
        if !(1..=1 << 16).contains(&self.ask.under_way_max) {
            return Err(NodeConfigError::UnderWay(self.ask.under_way_max));
        }
        if NAK_HEADER + NAK_RANGES_MAX * NAK_RANGE + self.trailer > self.datagram_max {
            return Err(NodeConfigError::Datagram(self.datagram_max));
        }
        let AskConfig { first_us, gap_us, retry_us, holder_us, give_up_us, .. } = self.ask;
        let times = [
            ("ask.first_us", first_us),
            ("ask.gap_us", gap_us.unwrap_or(0)),
            ("ask.retry_us", retry_us),
            ("ask.holder_us", holder_us),
            ("ask.give_up_us", give_up_us),
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

/// What is wrong with a [`NodeConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NodeConfigError {
    /// `packets` out of range.
    #[error("packets: expected 1 to {PACKETS_MAX}, saw {0}")]
    Packets(usize),
    /// `datagram_max` out of range, or too little for a repair.
    #[error("datagram_max: expected {DATAGRAM_MIN} to 65535 and room for a repair and a request, saw {0}")]
    Datagram(usize),
    /// `ask.under_way_max` out of range.
    #[error("ask.under_way_max: expected 1 to 65536, saw {0}")]
    UnderWay(u32),
    /// A time is too long.
    #[error("{name}: expected at most {TIME_US_MAX} microseconds, saw {seen_us}")]
    Time {
        /// Which.
        name: &'static str,
        /// What it was.
        seen_us: u64,
    },
    /// `announce.growth` out of range.
    #[error("announce.growth: expected 2 to 16, saw {0}")]
    Growth(u8),
    /// `announce.seldom` out of range.
    #[error("announce.seldom: expected 1 to 16, saw {0}")]
    Seldom(u8),
    /// `announce.times` out of range.
    #[error("announce.times: expected at most 16, saw {0}")]
    Announcements(u8),
    /// `feedback_peers` out of range.
    #[error("feedback_peers: expected at most 65536, saw {0}")]
    FeedbackPeers(usize),
    /// Of the repair bins.
    #[error(transparent)]
    Bins(#[from] BinsConfigError),
    /// Of the tracker.
    #[error(transparent)]
    Tracker(#[from] TrackerConfigError),
    /// Of the messages longer than a packet.
    #[error(transparent)]
    Fragments(#[from] FragmentsConfigError),
    /// Of the decoder.
    #[error(transparent)]
    Decoder(#[from] fec::DecoderConfigError),
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// Longer than one packet holds.
    #[error("expected a payload of at most {payload_max} bytes, saw {length}")]
    TooLong {
        /// Its length.
        length: usize,
        /// What fits.
        payload_max: usize,
    },
    /// This node has sent to as many groups as it can keep count of.
    #[error("this node sends to as many groups as it can count")]
    TooManyGroups,
}
