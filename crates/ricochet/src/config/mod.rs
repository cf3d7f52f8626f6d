//! Everything that can be set, with its default, its range and its place in a TOML file.
//!
//! ```
//! let config = ricochet::Config::parse(r#"
//!     [node]
//!     interface = "eth0"
//!     [membership]
//!     seeds = ["10.0.0.7:7900"]
//!     [repair]
//!     mode = "digest"
//!     max_delay_ms = 2.5
//! "#)?;
//! assert_eq!(config.repair.r, 8);
//! assert!(ricochet::Config::parse("[repair]\nr = 0").unwrap_err().to_string().contains("expected 1 to 64, saw 0"));
//! # Ok::<(), ricochet::ConfigError>(())
//! ```

mod check;
mod millis;

pub(crate) use check::HOUR;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::book::Spread;
use crate::queue::Policy;

/// Most IP groups that the groups of a cluster are spread over.
pub const GROUP_ADDRESSES_MAX: u8 = 64;
/// The port that a node takes for itself if it is free and none is given.
pub const PORT: u16 = 7_900;
/// The port of the groups if none is given.
pub const GROUP_PORT: u16 = 7_911;

/// Settings of a node; what is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The node and its addresses.
    pub node: NodeSection,
    /// How it finds the others.
    pub membership: MembershipSection,
    /// Repairs.
    pub repair: RepairSection,
    /// Requests for what repairs do not bring back.
    pub nak: NakSection,
    /// What a sender says that has fallen silent.
    pub announce: AnnounceSection,
    /// What is held back by subscriptions that keep order.
    pub fifo: FifoSection,
    /// How much is kept.
    pub buffers: BuffersSection,
    /// The cluster key.
    pub key: KeySection,
}

/// The node and its addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSection {
    /// Interface that the groups are joined on and sent by.
    pub interface: String,
    /// Address to send from and to be reached at; the interface's first one if left out.
    pub address: Option<IpAddr>,
    /// This node's own UDP port. If left out, 7900 where that is free, else any.
    pub port: Option<u16>,
    /// UDP port of all groups; the same for the whole cluster, and outside of the range of ephemeral ports.
    pub group_port: u16,
    /// IPv6 instead of IPv4, where `address` does not tell.
    pub ipv6: bool,
    /// First of the multicast addresses over which groups are spread; 239.255.79.0 or ff15::4f00 if left out. The same for
    /// the whole cluster.
    pub groups_base: Option<IpAddr>,
    /// How many of these addresses, 1 to 64; the same for the whole cluster.
    pub group_addresses: u8,
    /// How many routers a multicast datagram may pass, and one more; 1 to 255.
    pub hops: u8,
    /// No IP multicast: each packet is sent to each member of its group.
    pub unicast: bool,
    /// Most groups that this node joins, 1 to 65,536.
    pub max_groups: usize,
    /// A thread of its own drains the sockets.
    pub drain_thread: bool,
    /// Decides all that is left to chance, also this node's id: for tests alone. Drawn at random if left out.
    pub randomness: Option<u64>,
    /// Unix socket on which this node tells its status.
    pub control: Option<PathBuf>,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self {
            interface: String::new(),
            address: None,
            port: None,
            group_port: GROUP_PORT,
            ipv6: false,
            groups_base: None,
            group_addresses: GROUP_ADDRESSES_MAX,
            hops: 1,
            unicast: false,
            max_groups: 4_096,
            drain_thread: false,
            randomness: None,
            control: None,
        }
    }
}

/// How a node finds the others: by gossip, or by a file that names all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MembershipSection {
    /// `address:port` of nodes to ask for the others; one that lives is enough. The first node of a cluster has none.
    pub seeds: Vec<String>,
    /// A file that names all members, instead of gossip.
    pub file: Option<PathBuf>,
}

/// What repairs carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RepairMode {
    /// The XOR of its packets: mends without a round trip (Ricochet §4).
    #[default]
    Xor,
    /// Names alone: who misses one asks the repair's sender.
    Digest,
    /// Whichever of the two suits the network as it was measured, and the length of the packets.
    Auto,
}

/// Repairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepairSection {
    /// What repairs carry.
    pub mode: RepairMode,
    /// Packets in a repair, 1 to 64.
    pub r: u8,
    /// Repairs that each packet enters at each receiver, 0 to 64, unless a group says otherwise; 0 sends none. If left
    /// out 5, and 3 where repairs are digests.
    pub c: Option<u8>,
    /// How many instances of each bin are fed in turn, 1 to 256: a burst of that many losses costs a repair one packet.
    pub stagger: u16,
    /// How long a repair may stay part-filled, up to 10,000 ms; 0 waits for packets for ever. If left out 3 ms, and 5 ms
    /// where repairs are digests.
    #[serde(with = "millis::option")]
    pub max_delay_ms: Option<Duration>,
}

impl Default for RepairSection {
    fn default() -> Self {
        Self { mode: RepairMode::Xor, r: 8, c: None, stagger: 1, max_delay_ms: None }
    }
}

impl RepairSection {
    /// Repairs that each packet enters.
    ///
    /// Fewer digests do: whoever gets one asks for all that it misses, so that one is enough where a sum may be of no use
    /// for a second packet that is missing in it. And what none names is soon announced.
    pub fn repairs_per_packet(&self) -> u8 {
        self.c.unwrap_or(if self.mode == RepairMode::Digest { 3 } else { 5 })
    }

    /// How long a repair may stay part-filled; `None` for ever.
    pub fn patience(&self) -> Option<Duration> {
        let by_mode = Duration::from_millis(if self.mode == RepairMode::Digest { 5 } else { 3 });
        Some(self.max_delay_ms.unwrap_or(by_mode)).filter(|delay| !delay.is_zero())
    }
}

/// Requests for what repairs do not bring back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NakSection {
    /// Whether anything is asked for. If not, what repairs do not bring back is given up in the end.
    pub enabled: bool,
    /// How long after it was found missing a packet is asked for.
    #[serde(with = "millis")]
    pub first_ms: Duration,
    /// The same for a packet whose successor in the stream has come; as `first_ms` if left out.
    #[serde(with = "millis::option")]
    pub gap_ms: Option<Duration>,
    /// The pause between rounds of up to four requests; twice as long each time from the fifth on.
    #[serde(with = "millis")]
    pub retry_ms: Duration,
    /// So many requests go to the sender, then other members are asked; 0 to 255.
    pub sender_tries: u8,
    /// So many requests in all; 1 to 255.
    pub tries: u8,
    /// How long after it was found missing a packet is given up in any case.
    #[serde(with = "millis")]
    pub give_up_ms: Duration,
    /// How long after it was found missing a packet is given up that is not worth asking for.
    #[serde(with = "millis")]
    pub expires_after_ms: Duration,
    /// Most packets asked of one peer, and sent again to one peer, in a second.
    pub packets_per_second: u32,
}

impl Default for NakSection {
    /// The recovery ladder for applications (`ricochet_core::NodeConfig::prompt`).
    fn default() -> Self {
        Self {
            enabled: true,
            first_ms: Duration::from_micros(2_500),
            gap_ms: Some(Duration::from_micros(500)),
            retry_ms: Duration::from_millis(3),
            sender_tries: 2,
            tries: 64,
            give_up_ms: Duration::from_secs(10),
            expires_after_ms: Duration::from_millis(100),
            packets_per_second: 10_000,
        }
    }
}

/// What a sender says that has fallen silent: the number of its newest packet, so that the last one of a burst is missed too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnnounceSection {
    /// After so much silence.
    #[serde(with = "millis")]
    pub first_ms: Duration,
    /// Each time it waits so many times as long as before, 2 to 16.
    pub growth: u8,
    /// How often, 0 to 16; 0 for never.
    pub times: u8,
    /// Where less than 3 % of the packets are lost, only the first of these and every so many-th after it; 1 to 16.
    pub seldom: u8,
    /// There, too: so long after the packet nothing is said of it if three repairs came that name it, for then others hear of
    /// it by repairs as well. 0 says it in any case.
    #[serde(with = "millis")]
    pub unless_named_ms: Duration,
}

impl Default for AnnounceSection {
    fn default() -> Self {
        Self {
            first_ms: Duration::from_millis(5),
            growth: 2,
            times: 12,
            seldom: 4,
            unless_named_ms: Duration::ZERO,
        }
    }
}

/// What each subscription holds back that keeps order ([`Order::Fifo`](crate::Order::Fifo)) until earlier messages are
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FifoSection {
    /// Most messages and reports, 1 to 1,048,576, unless it says otherwise. When full, the stream whose first message has
    /// waited longest waits no more for what is missing before that.
    pub messages: usize,
    /// Most bytes of payload, 65,536 to 1 GiB.
    pub bytes: usize,
    /// Most streams that are kept in order, up to 1,048,576: one for each sender and group, some 190 bytes each. If left out as
    /// many as the node knows (`buffers.streams`), and no fewer: beyond that the one heard longest ago makes room, and what of it
    /// comes later is taken for its beginning.
    pub streams: Option<usize>,
    /// How long the first messages of a stream are held that is first heard in its middle, up to 10,000 ms: they may have
    /// overtaken others. 0 gives them out at once.
    #[serde(with = "millis")]
    pub settle_ms: Duration,
}

impl Default for FifoSection {
    fn default() -> Self {
        Self { messages: 4_096, bytes: 8 << 20, streams: None, settle_ms: Duration::from_millis(2) }
    }
}

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BuffersSection {
    /// Packets kept to mend others and to answer requests, 16 to 1,048,576.
    pub packets: usize,
    /// Repairs kept that miss two packets or more, 1 to 65,536.
    pub equations: usize,
    /// Streams that are known, 1 to 1,048,576: one for each sender and group. Beyond that one makes room of which nothing came
    /// for half a minute; where there is none, packets of a new stream are dropped, and counted (`no_room`).
    pub streams: usize,
    /// Datagrams between the sockets and the node, 64 to 1,048,576. When full a random one makes room.
    pub ring: usize,
    /// What the kernel may hold of each socket in bytes, 4,096 to 1 GiB; it may grant less.
    pub socket_bytes: usize,
    /// Payload buffers kept for the next messages, up to 1,048,576.
    pub payloads: usize,
    /// Messages in a subscription's queue, 1 to 1,048,576, unless it says otherwise. Each that waits holds a buffer of about
    /// `datagram_max` bytes, however short it is.
    pub queue: usize,
    /// What happens when that is full, unless a subscription says otherwise.
    pub policy: Policy,
    /// Longest datagram in bytes of UDP payload, 1,200 to 65,507. What is longer than the path carries is refused by the kernel.
    pub datagram_max: usize,
}

impl Default for BuffersSection {
    fn default() -> Self {
        Self {
            packets: 4_096,
            equations: 256,
            streams: 16_384,
            ring: 4_096,
            socket_bytes: 8 << 20,
            payloads: 4_096,
            queue: 1_024,
            policy: Policy::DropOldest,
            datagram_max: 1_452,
        }
    }
}

/// The cluster key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeySection {
    /// A file that only its owner may read, of one line as [`ClusterKey::to_text`](crate::ClusterKey::to_text) writes it.
    /// Without it nothing is authenticated.
    pub file: Option<PathBuf>,
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is no TOML, or has a key that there is not, or a value of the wrong type.
    #[error("{0}")]
    Syntax(#[from] Box<toml::de::Error>),
    /// A value is out of its range.
    #[error("{key}: expected {expected}, saw {seen}")]
    Range {
        /// Section and key.
        key: &'static str,
        /// The range.
        expected: String,
        /// The value.
        seen: String,
    },
    /// Two values do not go together.
    #[error("{key}: {why}")]
    Contradiction {
        /// Section and key.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Of the node itself.
    #[error(transparent)]
    Node(#[from] ricochet_core::node::NodeConfigError),
}

impl Config {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`], the first mistake found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&text)
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// [`ConfigError`], the first mistake found. That there is no interface is none: it may be given later.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(Box::new)?;
        config.check()?;
        Ok(config)
    }

    /// The multicast addresses, with the port, over which the cluster's groups are spread.
    ///
    /// ```
    /// let addresses: Vec<_> = ricochet::Config::default().group_addresses().collect();
    /// assert_eq!((addresses.len(), addresses[0].to_string()), (64, "239.255.79.0:7911".to_owned()));
    /// ```
    pub fn group_addresses(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let node = &self.node;
        Spread::new(node.groups_base, node.is_ipv6(), node.group_addresses, node.group_port).addresses()
    }
}

#[cfg(test)]
mod tests;
