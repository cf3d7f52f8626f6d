//! Settings of a node to be started.

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ricochet_core::{Follow, NodeConfig};

use crate::config::{AnnounceSection, Config, FifoSection, RepairMode};
use crate::error::StartError;
use crate::key::ClusterKey;
use crate::node::Node;
use crate::policy::Policy;
use crate::start::{self, Settings};
use crate::view::{Me, View};

/// Settings of a node to be started. Every setting has a default; [`Builder::start`] reports mistakes.
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
/// let text = wrong.unwrap_err().to_string();
/// assert!(text.contains("out of range: expected an integer from 1 to 64, seen 65"), "{text}");
/// # Ok(()) }
/// ```
#[must_use]
pub struct Builder {
    settings: Settings,
}

impl Node {
    /// Returns the settings of a node that sends and receives through an interface.
    pub fn builder(interface: impl Into<String>) -> Builder {
        let mut config = Config::default();
        config.node.interface = interface.into();
        Builder::from(config)
    }
}

impl From<Config> for Builder {
    fn from(config: Config) -> Self {
        Self { settings: Settings { config, keys: Vec::new(), injection: None, core: None, view: None } }
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $($place:ident).+),+ $(,)?) => {
        $($(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.settings.config.$($place).+ = $name;
            self
        })+
    };
}

impl Builder {
    /// Starts the node.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(self) -> Result<Node, StartError> {
        start::start(self.settings)
    }

    /// Prepares the node without starting its threads.
    #[cfg(test)]
    pub(crate) fn prepare(self) -> Result<(crate::driver::Driver, crate::node::Limits), StartError> {
        start::prepare(self.settings)
    }

    /// Returns the settings made so far.
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// Sets the address to send from and to receive at. Default: the interface's first address.
    pub fn address(mut self, address: impl Into<IpAddr>) -> Self {
        self.settings.config.node.address = Some(address.into());
        self
    }

    /// Sets the node's own UDP port; 0 takes any free port. Default: 7900 if it is free, otherwise any.
    pub fn port(mut self, port: u16) -> Self {
        self.settings.config.node.port = Some(port);
        self
    }

    /// Adds a seed address: `address:port` of a node that knows others. May be called several times.
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.settings.config.membership.seeds.push(seed.into());
        self
    }

    /// Sets a file that names all members, instead of gossip.
    pub fn member_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.config.membership.file = Some(file.into());
        self
    }

    /// Adds a server of etcd, `http://HOST:PORT`, in which all nodes register, instead of gossip. May be
    /// called several times.
    pub fn etcd(mut self, server: impl Into<String>) -> Self {
        self.settings.config.membership.etcd.push(server.into());
        self
    }

    /// Sets the prefix of the keys in etcd; the same for the whole cluster. Default: `/undrop`.
    pub fn etcd_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.config.membership.etcd_prefix = prefix.into();
        self
    }

    /// Sets a service of Kubernetes, `NAMESPACE/SERVICE`, whose pods are the nodes, instead of gossip.
    pub fn kubernetes(mut self, service: impl Into<String>) -> Self {
        self.settings.config.membership.kubernetes = Some(service.into());
        self
    }

    /// Sets a provider of membership of the application, instead of gossip. `make` gets the identity of the
    /// node when it starts. [`conformance::check`](crate::view::conformance::check) tests such a provider.
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use std::sync::{Arc, Mutex};
    /// use ricochet::view::{GroupId, Me, Member, Output, View};
    ///
    /// /// Nodes of one process, which know each other from a list that they share.
    /// #[derive(Default)]
    /// struct Shared {
    ///     list: Vec<Member>,
    ///     changes: u64,
    /// }
    ///
    /// struct OfProcess {
    ///     me: Me,
    ///     shared: Arc<Mutex<Shared>>,
    ///     /// This node's copy of the list, and the number of changes that it contains.
    ///     members: Vec<Member>,
    ///     seen: u64,
    ///     version: u64,
    ///     next_look_us: Option<u64>,
    /// }
    ///
    /// impl OfProcess {
    ///     fn register(&self, groups: Option<&[GroupId]>) {
    ///         let mut shared = self.shared.lock().expect("no thread panics");
    ///         shared.list.retain(|member| member.id != self.me.id);
    ///         if let Some(groups) = groups {
    ///             let mut groups = groups.to_vec();
    ///             groups.sort_unstable();
    ///             let (id, address) = (self.me.id, self.me.address);
    ///             shared.list.push(Member { id, address, groups: groups.into() });
    ///             shared.list.sort_unstable_by_key(|member| member.id);
    ///         }
    ///         shared.changes += 1;
    ///     }
    /// }
    ///
    /// impl View for OfProcess {
    ///     fn handle_datagram(&mut self, _: u64, _: SocketAddr, _: &[u8], _: &mut dyn Output) {}
    ///
    ///     fn handle_timeout(&mut self, now_us: u64, _: &mut dyn Output) {
    ///         self.next_look_us = self.next_look_us.map(|_| now_us + 20_000);
    ///         let shared = self.shared.lock().expect("no thread panics");
    ///         if shared.changes != self.seen {
    ///             self.seen = shared.changes;
    ///             let others = shared.list.iter().filter(|member| member.id != self.me.id).cloned();
    ///             let others: Vec<Member> = others.collect();
    ///             if others != self.members {
    ///                 self.members = others;
    ///                 self.version += 1;
    ///             }
    ///         }
    ///     }
    ///
    ///     fn poll_timeout(&self) -> Option<u64> {
    ///         self.next_look_us
    ///     }
    ///
    ///     fn set_groups(&mut self, _: u64, groups: &[GroupId], _: &mut dyn Output) {
    ///         self.register(Some(groups));
    ///     }
    ///
    ///     fn leave(&mut self, _: u64, _: &mut dyn Output) {
    ///         self.next_look_us = None;
    ///         self.register(None);
    ///     }
    ///
    ///     fn version(&self) -> u64 {
    ///         self.version
    ///     }
    ///
    ///     fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
    ///         Box::new(self.members.iter())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let shared = Arc::new(Mutex::new(Shared::default()));
    /// let start = || {
    ///     let shared = Arc::clone(&shared);
    ///     let builder = ricochet::Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
    ///     let next_look_us = Some(0);
    ///     builder
    ///         .view(move |me| {
    ///             let view =
    ///                 OfProcess { me, shared, members: Vec::new(), seen: 0, version: 0, next_look_us };
    ///             view.register(Some(&[]));
    ///             Ok(Box::new(view))
    ///         })
    ///         .start()
    /// };
    /// let (sender, receiver) = (start()?, start()?);
    /// let prices = receiver.join("prices/AAPL")?;
    /// assert!(sender.wait_for_members("prices/AAPL", 1, std::time::Duration::from_secs(20)));
    /// sender.send("prices/AAPL", b"187.21")?;
    /// assert_eq!(prices.recv()?.payload(), b"187.21");
    /// # Ok(()) }
    /// ```
    pub fn view(
        mut self,
        make: impl FnOnce(Me) -> Result<Box<dyn View + Send>, Box<dyn Error + Send + Sync>> + Send + 'static,
    ) -> Self {
        self.settings.view = Some(Box::new(make));
        self
    }

    /// Adds a cluster key. The node signs with the first key and accepts datagrams that were signed with any
    /// of them. May be called several times.
    pub fn key(mut self, key: ClusterKey) -> Self {
        self.settings.keys.push(key);
        self
    }

    /// Sets a file with one or more cluster keys, one in a line. The node reads it again when it changes.
    pub fn key_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.config.key.file = Some(file.into());
        self
    }

    /// Sets the first of the multicast addresses over which groups are spread; the same for the whole
    /// cluster.
    pub fn groups_base(mut self, base: impl Into<IpAddr>) -> Self {
        self.settings.config.node.groups_base = Some(base.into());
        self
    }

    /// Sets the DSCP of the datagrams of a group, 1 to 63: its packets, their repairs, requests for them and
    /// the answers. May be called several times.
    pub fn group_dscp(mut self, group: &str, dscp: u8) -> Self {
        self.settings.config.node.group_dscp.push(format!("{group}={dscp}"));
        self
    }

    /// Sets the number of repairs that each packet enters at each receiver. Default: 3,
    /// or 5 if repairs are not digests.
    pub fn c(mut self, c: u8) -> Self {
        self.settings.config.repair.c = Some(c);
        self
    }

    /// Sets the time after which a part-filled repair is sent; `None` waits for packets without limit.
    /// Default: 5 ms, or 3 ms if repairs are not digests.
    pub fn max_delay(mut self, max_delay: Option<Duration>) -> Self {
        self.settings.config.repair.max_delay_ms = Some(max_delay.unwrap_or(Duration::ZERO));
        self
    }

    /// Sets the random seed from which all random decisions follow, including the node's id. For tests only.
    pub fn randomness(mut self, seed: u64) -> Self {
        self.settings.config.node.randomness = Some(seed);
        self
    }

    /// Sets the path of a Unix socket at which the node serves its [`Status`](crate::Status).
    pub fn control(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.config.node.control = Some(path.into());
        self
    }

    /// Sets the core's whole configuration except for id and trailer, so that measurements run with the same
    /// one as virtual time. It replaces the settings of repairs (except `c`), requests, announcements, kept
    /// packets and the longest datagram.
    #[doc(hidden)]
    pub fn core(mut self, core: NodeConfig) -> Self {
        self.settings.config.buffers.datagram_max = core.datagram_max;
        self.settings.core = Some(core);
        self
    }

    /// Sets a fault injection for tests: incoming datagrams for which `lose` returns true are dropped and
    /// counted. The function gets the datagram without its trailer.
    pub fn lose(mut self, lose: impl FnMut(&[u8]) -> bool + Send + 'static) -> Self {
        self.settings.injection = Some(Box::new(lose));
        self
    }

    /// Sets the time after which a reader that makes no progress is left behind; `None` waits for it without
    /// limit. Default: 10 s.
    pub fn patience(mut self, patience: Option<Duration>) -> Self {
        self.settings.config.flow.patience_ms = patience.unwrap_or(Duration::ZERO);
        self
    }

    settings! {
        /// Sets the readers that the node follows when it sends. Default: all.
        follow: Follow => flow.follow,
        /// Sets the time in microseconds for which a short message waits for others that share its packet.
        linger_us: u64 => flow.linger_us,
        /// Sets the rate in Mbit/s at which packets leave, beyond a burst of 64 packets; 0 for no limit.
        rate_mbit: u32 => flow.rate_mbit,
        /// Sets the time after which a reader that reports nothing is left behind.
        silence: Duration => flow.silence_ms,
        /// Sets the UDP port of all groups; the same for the whole cluster.
        group_port: u16 => node.group_port,
        /// Sets whether to use IPv6 instead of IPv4.
        ipv6: bool => node.ipv6,
        /// Sets the number of multicast addresses over which groups are spread;
        /// the same for the whole cluster.
        group_addresses: u8 => node.group_addresses,
        /// Sets the TTL of multicast datagrams: the number of routers that they may pass, plus one.
        hops: u8 => node.hops,
        /// Sets the DSCP of all datagrams of the node that belong to no group with another one, 0 to 63.
        dscp: u8 => node.dscp,
        /// Sets whether to send each packet to each member of its group by unicast instead of IP multicast.
        unicast: bool => node.unicast,
        /// Sets the maximum number of groups that the node joins.
        max_groups: usize => node.max_groups,
        /// Sets whether a thread of its own drains the sockets.
        drain_thread: bool => node.drain_thread,
        /// Sets the content of repairs.
        repair: RepairMode => repair.mode,
        /// Sets the number of packets in a repair.
        r: u8 => repair.r,
        /// Sets the number of instances of each repair bin that are fed in turn.
        stagger: u16 => repair.stagger,
        /// Sets whether the node requests packets that repairs do not recover.
        nak: bool => nak.enabled,
        /// Sets the delay between the discovery of a missing packet and the first request.
        nak_after: Duration => nak.first_ms,
        /// Sets that delay for a packet whose successor in the stream has arrived.
        nak_gap_after: Option<Duration> => nak.gap_ms,
        /// Sets the time after its discovery at which a missing packet is given up.
        give_up_after: Duration => nak.give_up_ms,
        /// Sets the time after its discovery at which a missing packet is given up that
        /// its sender marked as expiring.
        expires_after: Duration => nak.expires_after_ms,
        /// Sets when this node announces its newest packets after it has stopped sending.
        announce: AnnounceSection => announce,
        /// Sets the limits of subscriptions that keep order.
        fifo: FifoSection => fifo,
        /// Sets the number of packets kept for recovery and to answer requests.
        packets: usize => buffers.packets,
        /// Sets the maximum number of known streams: one for each sender and group.
        streams: usize => buffers.streams,
        /// Sets the maximum number of datagrams between the sockets and the core.
        ring: usize => buffers.ring,
        /// Sets the size of the kernel's buffer of each socket in bytes.
        socket_bytes: usize => buffers.socket_bytes,
        /// Sets the maximum number of messages in a subscription's queue.
        queue: usize => buffers.queue,
        /// Sets the maximum number of bytes of messages in a subscription's queue.
        queue_bytes: usize => buffers.queue_bytes,
        /// Sets the maximum number of bytes of messages that wait to be sent.
        send_bytes: usize => buffers.send_bytes,
        /// Sets the maximum number of bytes of long messages that have come in part.
        fragment_bytes: usize => buffers.fragment_bytes,
        /// Sets the treatment of messages for which a queue has no room.
        policy: Policy => buffers.policy,
        /// Sets the maximum length of a datagram in bytes of UDP payload; the same for the whole cluster.
        datagram_max: usize => buffers.datagram_max,
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("config", &self.settings.config).finish_non_exhaustive()
    }
}
