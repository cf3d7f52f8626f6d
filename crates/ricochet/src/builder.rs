//! Setting up a node.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ricochet_core::NodeConfig;

use crate::config::{AnnounceSection, Config, FifoSection, RepairMode};
use crate::error::StartError;
use crate::filter::Injection;
use crate::key::ClusterKey;
use crate::node::Node;
use crate::queue::Policy;
use crate::start;

/// Settings of a node to be started. Everything has a default; what is wrong is told by [`Builder::start`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// let node = ricochet::Node::builder("lo")
///     .address([127, 0, 0, 1])
///     .port(0)
///     .unicast(true)
///     .repair(ricochet::RepairMode::Digest)
///     .max_delay(Some(Duration::from_millis(2)))
///     .start()?;
/// assert!(node.payload_max() > 1_200);
/// let wrong = ricochet::Node::builder("lo").r(65).start();
/// assert!(wrong.unwrap_err().to_string().contains("out of range: expected an integer from 1 to 64, seen 65"));
/// # Ok(()) }
/// ```
#[must_use]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) key: Option<ClusterKey>,
    pub(crate) injection: Option<Injection>,
    /// Instead of what the settings make of it.
    pub(crate) core: Option<NodeConfig>,
}

impl From<Config> for Builder {
    fn from(config: Config) -> Self {
        Self { config, key: None, injection: None, core: None }
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $($place:ident).+),+ $(,)?) => {
        $($(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.config.$($place).+ = $name;
            self
        })+
    };
}

impl Builder {
    pub(crate) fn new(interface: String) -> Self {
        let mut config = Config::default();
        config.node.interface = interface;
        Self::from(config)
    }

    /// Starts the node.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Node, StartError> {
        start::start(self)
    }

    /// The settings so far.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The address to send from and to be reached at; the interface's first one by default.
    pub fn address(mut self, address: impl Into<IpAddr>) -> Self {
        self.config.node.address = Some(address.into());
        self
    }

    /// This node's own UDP port, 0 for any; 7900 where that is free, else any, by default.
    pub fn port(mut self, port: u16) -> Self {
        self.config.node.port = Some(port);
        self
    }

    /// `address:port` of a node to ask for the others. May be said several times.
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.config.membership.seeds.push(seed.into());
        self
    }

    /// A file that names all members, instead of gossip.
    pub fn member_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.config.membership.file = Some(file.into());
        self
    }

    /// The key of the cluster: who does not know it is not heard.
    pub fn key(mut self, key: ClusterKey) -> Self {
        self.key = Some(key);
        self
    }

    /// A file with the key of the cluster.
    pub fn key_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.config.key.file = Some(file.into());
        self
    }

    /// First of the multicast addresses over which groups are spread, the same for the whole cluster.
    pub fn groups_base(mut self, base: impl Into<IpAddr>) -> Self {
        self.config.node.groups_base = Some(base.into());
        self
    }

    /// Repairs that each packet enters at each receiver: 5 if this is left out, 3 where repairs are digests.
    pub fn c(mut self, c: u8) -> Self {
        self.config.repair.c = Some(c);
        self
    }

    /// How long a repair may stay part-filled; `None` waits for packets for ever. 3 ms if this is left out, 5 ms where
    /// repairs are digests.
    pub fn max_delay(mut self, max_delay: Option<Duration>) -> Self {
        self.config.repair.max_delay_ms = Some(max_delay.unwrap_or(Duration::ZERO));
        self
    }

    /// Decides all that is left to chance, also this node's id: for tests alone.
    pub fn randomness(mut self, seed: u64) -> Self {
        self.config.node.randomness = Some(seed);
        self
    }

    /// A Unix socket on which the node tells its [`Status`](crate::Status).
    pub fn control(mut self, path: impl Into<PathBuf>) -> Self {
        self.config.node.control = Some(path.into());
        self
    }

    /// For measurements: the core's whole configuration but for its id and the trailer, so that it is the same as in virtual
    /// time. Settings of repairs (but for `c`), requests and announcements count for nothing then, nor do those of packets
    /// kept and of the longest datagram.
    #[doc(hidden)]
    pub fn core(mut self, core: NodeConfig) -> Self {
        self.config.buffers.datagram_max = core.datagram_max;
        self.core = Some(core);
        self
    }

    /// For tests: datagrams for which `lose` is true are dropped when they come, and counted. It is given the datagram
    /// without its trailer.
    pub fn lose(mut self, lose: impl FnMut(&[u8]) -> bool + Send + 'static) -> Self {
        self.injection = Some(Box::new(lose));
        self
    }

    settings! {
        /// UDP port of all groups, the same for the whole cluster.
        group_port: u16 => node.group_port,
        /// IPv6 instead of IPv4.
        ipv6: bool => node.ipv6,
        /// Over how many multicast addresses groups are spread, the same for the whole cluster.
        group_addresses: u8 => node.group_addresses,
        /// How many routers a multicast datagram may pass, and one more.
        hops: u8 => node.hops,
        /// No IP multicast: each packet is sent to each member of its group.
        unicast: bool => node.unicast,
        /// Most groups that the node joins.
        max_groups: usize => node.max_groups,
        /// A thread of its own drains the sockets.
        drain_thread: bool => node.drain_thread,
        /// What repairs carry.
        repair: RepairMode => repair.mode,
        /// Packets in a repair.
        r: u8 => repair.r,
        /// How many instances of each repair bin are fed in turn.
        stagger: u16 => repair.stagger,
        /// Whether packets that repairs do not bring back are asked for.
        nak: bool => nak.enabled,
        /// How long after it was found missing a packet is asked for.
        nak_after: Duration => nak.first_ms,
        /// The same for a packet whose successor in the stream has come.
        nak_gap_after: Option<Duration> => nak.gap_ms,
        /// How long after it was found missing a packet is given up.
        give_up_after: Duration => nak.give_up_ms,
        /// How long after it was found missing a packet is given up whose sender marked it as expiring.
        expires_after: Duration => nak.expires_after_ms,
        /// What this node says of what it sent once it has fallen silent.
        announce: AnnounceSection => announce,
        /// What subscriptions that keep order hold back.
        fifo: FifoSection => fifo,
        /// Packets kept to mend others and to answer requests.
        packets: usize => buffers.packets,
        /// Streams that are known: one for each sender and group.
        streams: usize => buffers.streams,
        /// Datagrams between the sockets and the core.
        ring: usize => buffers.ring,
        /// What the kernel may hold of each socket in bytes.
        socket_bytes: usize => buffers.socket_bytes,
        /// Messages in a subscription's queue.
        queue: usize => buffers.queue,
        /// What happens when that is full.
        policy: Policy => buffers.policy,
        /// Longest datagram in bytes of UDP payload, the same for the whole cluster.
        datagram_max: usize => buffers.datagram_max,
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}
