//! The configuration of a gateway, and its checks.

use std::iter;
use std::net::SocketAddr;

use fec::{Code, Encoder, RepairRate};
use ipnet::IpNet;

use crate::auto;
use crate::class::{CLASSES_MAX, Class};
use crate::congestion::OnCongestion;
use crate::controller::Targets;
use crate::dscp::{DSCP_MAX, RepairDscp};
use crate::ecn::Ecn;
use crate::ingress::Road;
use crate::key::PeerKey;
use crate::multicast::{MulticastConfig, SECTIONS_MAX};
use crate::paths::{PATHS_MAX, PathConfig, PathUse};
use crate::schedule::Schedule;
use crate::symbol::SYMBOL_HEADER;
use crate::wire::{Entry, NETWORKS_MAX, TERMS_MAX, WINDOW_MAX, is_multicast};

/// Minimum number of packets that an ingress keeps, each beside the most peers. Repairs are used after the
/// packets that came before them have been read, and a gateway that is given no processor for a while reads
/// many at once: those of 340 ms at 1 Gbit/s with one or two peers, of 170 ms with few, of 40 ms with many.
const HISTORY_MIN: [(usize, usize); 4] = [(2, 32_768), (8, 16_384), (16, 8_192), (usize::MAX, HISTORY_SHORT)];
/// The same of a gateway with many peers, or with long packets.
const HISTORY_SHORT: usize = 4_096;
/// Maximum memory for the packets of such a history, in bytes, unless it is the shortest.
const HISTORY_BYTES: usize = 64 << 20;
/// Maximum number of repairs that an ingress stores for decoding.
const EQUATIONS: usize = 384;
/// Minimum number of places that an ingress tells apart, each beside the most peers. Three quarters of them
/// stay open while answers to requests are on the way. At 1 Gbit/s of packets of 1,300 bytes these are the
/// places of 1 s with one or two peers, of 256 ms with up to eight, and of 128 ms with more.
const PLACES_MIN: [(usize, usize); 3] = [(2, 131_072), (8, 32_768), (usize::MAX, 16_384)];
/// Maximum memory of all caches from which requests are answered, in bytes: what leaves in 1 s at 1 Gbit/s.
const CACHES_MAX: usize = 128 << 20;
/// Smallest WAN MTU in bytes.
const WAN_MTU_MIN: usize = 576;
/// Largest WAN MTU in bytes.
const WAN_MTU_MAX: usize = 65_535;

/// Packets that an ingress requests from the far egress if repairs do not bring them back in time, and for
/// which an egress answers such requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// All packets.
    #[default]
    All,
    /// All but TCP's, which the end that answers leaves out.
    Udp,
    /// None.
    Off,
}

/// Source of a datagram, and the socket to which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Number of the socket: 0 is that of `listen`, others are those of further paths ([`PathConfig`]).
    pub door: usize,
    /// The sender's address.
    pub address: SocketAddr,
}

/// Source of a datagram, the mark with which it came, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// The source.
    pub source: Source,
    /// ECN field of its IP header.
    pub ecn: Ecn,
    /// Time at which this machine received it, which may be earlier than the gateway reads it.
    pub arrived_us: u64,
}

/// Source of the address of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whereabouts {
    /// The configuration states it, and the peer is nowhere else.
    #[default]
    Stated,
    /// A name is looked up for it, and the peer's own datagrams show a newer one.
    Named,
    /// The peer's own datagrams show it.
    Unstated,
}

/// Configuration of one far gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerConfig {
    /// Address that its repairs come from and ours go to. With the unspecified IP address, the peer's is not
    /// known yet: nothing is sent until [`Gateway::set_address`](crate::Gateway::set_address) states it, or
    /// the peer's own datagrams show it.
    pub address: SocketAddr,
    /// Source of this address.
    pub whereabouts: Whereabouts,
    /// The far site's networks, at most [`NETWORKS_MAX`], disjoint from every other peer's, unless both peers
    /// share them.
    pub networks: Vec<IpNet>,
    /// Whether it is a gateway of a rack: other peers with a stated address have the same networks, and each
    /// says in its Hellos which networks of this site it protects and watches.
    pub is_of_rack: bool,
    /// The shared key.
    pub key: PeerKey,
    /// A further key that is accepted, while the key is being changed. It is used as soon as the peer accepts
    /// it too.
    pub next_key: Option<PeerKey>,
    /// Whether the operator vouches that all packets from there take the path of the repairs, so that every
    /// missing packet is recovered without further proof.
    pub trusts_path: bool,
    /// Whether packets travel to the peer inside datagrams of ours (a tunnel), and not beside them.
    pub is_tunnel: bool,
    /// Further paths to the peer, at most [`PATHS_MAX`] with the first.
    pub paths: Vec<PathConfig>,
    /// How the paths share the datagrams.
    pub path_use: PathUse,
    /// How packets are carried in a tunnel.
    pub tunnel: TunnelConfig,
}

/// How packets are carried in a tunnel. Each end has its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelConfig {
    /// Longest time for which a packet that came early is held for those in front of it, in microseconds; 0
    /// to hand all on as they come.
    pub resequence_us: u64,
    /// Longest time for which a packet waits for others to share its datagram with, in microseconds; 0 if
    /// only packets that wait anyway share one.
    pub aggregate_us: u64,
}

/// Configuration of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Our end of the repair channel.
    pub listen: SocketAddr,
    /// MTU toward the WAN in bytes. Neither our datagrams nor packets on the link are longer.
    pub wan_mtu: usize,
    /// Which packets share a repair.
    pub schedule: Schedule,
    /// Targets of a schedule that the gateway chooses.
    pub targets: Targets,
    /// Whether repairs of interleaved packets wait for later packets, so that one burst cannot take both. The
    /// repair of a full bin waits for the bin's next packet (Maelstrom §4.3.1), those of full blocks for the
    /// next blocks.
    pub delayed: bool,
    /// Longest wait of a part-filled bin of the smallest interleave, or of part-filled blocks, in
    /// microseconds.
    pub max_delay_us: u64,
    /// Packets that are requested, and for which requests are answered.
    pub requests: Requests,
    /// DSCP of the repairs.
    pub repair_dscp: RepairDscp,
    /// Treatment of packets that a full queue drops.
    pub on_congestion: OnCongestion,
    /// Bits of a packet's name. 32 in production; tests take fewer to make names collide.
    pub name_bits: u32,
    /// Classes of packets with a protection of their own, at most [`CLASSES_MAX`]. The first that matches
    /// counts.
    pub classes: Vec<Class>,
    /// Networks of this site, if they are stated. Only packets from them are protected, and only packets to
    /// them, from elsewhere, are injected. Between the sites of two tunnels, packets pass all the same.
    pub local_networks: Vec<IpNet>,
    /// IP groups that cross tunnels, at most [`SECTIONS_MAX`] sections.
    pub multicast: Vec<MulticastConfig>,
    /// The far gateways.
    pub peers: Vec<PeerConfig>,
}

/// Sizes of one peer's ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressConfig {
    /// Number of packets kept to recover others with; a power of two.
    pub history: usize,
    /// Number of places of the stream that are told apart; a power of two.
    pub places: usize,
    /// Longest packet in bytes.
    pub packet_max: usize,
    /// Number of repairs stored that miss two packets or more.
    pub equations: usize,
    /// Time after which a missing packet is given up, in microseconds.
    pub give_up_us: u64,
}

/// Reason why a configuration is refused. A driver checks more, and earlier; these are the core's own limits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A parameter of the code.
    #[error(transparent)]
    Code(#[from] fec::ConfigError),
    /// More packets in a repair than a recipe can name.
    #[error("r: expected at most {TERMS_MAX}, saw {0}")]
    Terms(usize),
    /// A window of more packets than a far ingress accepts.
    #[error("window: expected 1 to {WINDOW_MAX}, saw {0}")]
    Window(u16),
    /// A window that does not reach from one repair to the next.
    #[error(
        "window: expected at least {window_min}, the number of packets between two repairs at the rate {rate}, saw {window}: \
         raise `window` or `rate`, or packets get no repair"
    )]
    WindowShort {
        /// The window.
        window: u16,
        /// Smallest window for this rate.
        window_min: usize,
        /// The rate.
        rate: RepairRate,
    },
    /// More packets between two repairs than a recipe can name.
    #[error("rate: expected at least 1/{TERMS_MAX}, saw {0}")]
    Rate(RepairRate),
    /// A WAN MTU out of range.
    #[error("wan_mtu: expected {WAN_MTU_MIN} to {WAN_MTU_MAX}, saw {0}")]
    WanMtu(usize),
    /// Too many classes.
    #[error("class: expected at most {CLASSES_MAX}, saw {0}")]
    Classes(usize),
    /// A DSCP out of range.
    #[error("repair_dscp: expected at most {DSCP_MAX}, saw {0}")]
    Dscp(u8),
    /// Too many sections of groups.
    #[error("multicast: expected at most {SECTIONS_MAX} sections, saw {0}")]
    Sections(usize),
    /// A network of groups with addresses that are none of groups.
    #[error("groups: expected networks of multicast addresses, saw {0}")]
    Groups(IpNet),
    /// Too many networks of one peer.
    #[error("networks: expected at most {NETWORKS_MAX} for one peer, saw {0}")]
    Networks(usize),
    /// Too many paths to one peer.
    #[error("paths: expected at most {PATHS_MAX} for one peer, saw {0}")]
    Paths(usize),
    /// Two equal keys of one peer.
    #[error("next_key_file: expected another key than that of `key_file`, saw the same (peer {0})")]
    SameKey(SocketAddr),
    /// A change of the key before the peer accepts the new one, which would end protection.
    #[error(
        "key_file: expected a key that the peer {0} accepts, saw none, and protection would end: keep the present \
         `key_file`, set `next_key_file` to the new key here and there, and name it as `key_file` when the status says \
         that the next key is in use; if the present key must not be used any more, restart the gateway"
    )]
    Unaccepted(SocketAddr),
}

impl PeerConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if self.networks.len() > NETWORKS_MAX {
            return Err(ConfigError::Networks(self.networks.len()));
        }
        if self.paths.len() >= PATHS_MAX {
            return Err(ConfigError::Paths(self.paths.len() + 1));
        }
        if self.next_key.as_ref() == Some(&self.key) {
            return Err(ConfigError::SameKey(self.address));
        }
        Ok(())
    }

    /// Whether nothing differs but the keys and the address, which may change in a session. No two peers have
    /// the same networks, unless they are of a rack, and then their addresses tell them apart.
    pub(crate) fn is_same_site(&self, other: &Self) -> bool {
        let Self { address, whereabouts: _, networks, is_of_rack, key: _, next_key: _, .. } = self;
        if is_of_rack != &other.is_of_rack || *is_of_rack && address != &other.address {
            return false;
        }
        let Self { trusts_path, is_tunnel, paths, path_use, .. } = self;
        (networks, trusts_path, is_tunnel) == (&other.networks, &other.trusts_path, &other.is_tunnel)
            && path_use == &other.path_use
            && paths.len() == other.paths.len()
            && paths.iter().zip(&other.paths).all(|(path, other)| path.is_same(other))
    }

    /// Whether the losses toward this peer are those toward the other, whose settings may differ.
    pub(crate) fn is_same_link(&self, other: &Self) -> bool {
        let is_stated = |peer: &Self| peer.whereabouts == Whereabouts::Stated;
        let has_address = is_stated(self) && is_stated(other) && self.address == other.address;
        has_address || self.networks == other.networks && !(self.is_of_rack && other.is_of_rack)
    }

    /// Whether two peers are gateways of one rack.
    pub(crate) fn shares_site(&self, other: &Self) -> bool {
        self.is_of_rack && other.is_of_rack && self.networks == other.networks
    }

    /// Its addresses on all paths.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        iter::once(self.address).chain(self.paths.iter().map(|path| path.address))
    }

    /// Socket and address of a path.
    pub fn path(&self, number: usize) -> Option<(usize, SocketAddr)> {
        match number.checked_sub(1) {
            None => Some((0, self.address)),
            Some(at) => self.paths.get(at).map(|path| (path.door, path.address)),
        }
    }

    /// Number of the path by which datagrams come from an address to a socket.
    pub(crate) fn path_of(&self, source: Source) -> Option<usize> {
        let is_further =
            |path: &PathConfig| path.door == source.door && is_same(path.address, source.address);
        let further = self.paths.iter().position(is_further).map(|at| at + 1);
        further.or((source.door == 0 && self.is_at(source.address)).then_some(0))
    }

    /// Number of a path to this socket on which the peer may be anywhere: one without an address, if there is
    /// such a path.
    pub(crate) fn movable_at(&self, door: usize) -> Option<usize> {
        let numbers = || (1..).zip(&self.paths).filter(|(_, path)| path.may_move() && path.door == door);
        let unknown = numbers().find(|(_, path)| path.address.ip().is_unspecified());
        unknown.or_else(|| numbers().next()).map(|(number, _)| number)
    }

    /// Number of the path that a Hello from an unknown address to this socket moves, if there is such a path.
    pub(crate) fn callable_at(&self, door: usize) -> Option<usize> {
        if self.may_move_on(0, door) { Some(0) } else { self.movable_at(door) }
    }

    /// Whether the peer's own datagrams to this socket show its address on a path.
    pub(crate) fn may_move_on(&self, path: usize, door: usize) -> bool {
        match path.checked_sub(1) {
            None => door == 0 && self.may_move(),
            Some(at) => self.paths.get(at).is_some_and(|path| path.may_move() && path.door == door),
        }
    }

    /// How packets of its site arrive here.
    pub(crate) fn road(&self) -> Road {
        match (self.is_tunnel, self.trusts_path) {
            (true, _) => Road::Tunnel,
            (false, true) => Road::Trusted,
            (false, false) => Road::Checked,
        }
    }

    /// Whether its address on any path is known.
    pub(crate) fn is_reachable(&self) -> bool {
        self.addresses().any(|address| !address.ip().is_unspecified())
    }

    /// Whether its address on the first path is known.
    pub(crate) fn has_address(&self) -> bool {
        !self.address.ip().is_unspecified()
    }

    /// Whether this is its address. A dual-stack socket reports IPv4 senders in their mapped form.
    pub(crate) fn is_at(&self, seen: SocketAddr) -> bool {
        is_same(self.address, seen)
    }

    /// Whether the peer's own datagrams may show another address.
    pub(crate) fn may_move(&self) -> bool {
        self.whereabouts != Whereabouts::Stated
    }
}

/// Whether an address is the same as one that was seen, which may be in its mapped form.
fn is_same(address: SocketAddr, seen: SocketAddr) -> bool {
    address.port() == seen.port() && address.ip() == seen.ip().to_canonical()
}

impl Config {
    /// Checks every value.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(WAN_MTU_MIN..=WAN_MTU_MAX).contains(&self.wan_mtu) {
            return Err(ConfigError::WanMtu(self.wan_mtu));
        }
        if self.classes.len() > CLASSES_MAX {
            return Err(ConfigError::Classes(self.classes.len()));
        }
        if let RepairDscp::Fixed(dscp) = self.repair_dscp
            && dscp > DSCP_MAX
        {
            return Err(ConfigError::Dscp(dscp));
        }
        if self.multicast.len() > SECTIONS_MAX {
            return Err(ConfigError::Sections(self.multicast.len()));
        }
        let groups = self.multicast.iter().flat_map(|section| &section.groups);
        if let Some(&other) = groups.into_iter().find(|groups| !is_multicast(groups)) {
            return Err(ConfigError::Groups(other));
        }
        self.schedule.check()?;
        Encoder::<Entry>::check(&self.code())?;
        self.peers.iter().try_for_each(PeerConfig::check)
    }

    /// The code of the egress.
    pub fn code(&self) -> Code {
        self.schedule.code(self.delayed, self.max_delay_us, self.symbol_max())
    }

    /// Maximum number of packets in a sliding window of the egress.
    pub(crate) fn window_max(&self) -> u16 {
        match self.schedule {
            Schedule::Auto => auto::WINDOW_LONG,
            Schedule::Sliding { window, .. } => window,
            Schedule::Layered { .. } | Schedule::ReedSolomon { .. } => 0,
        }
    }

    /// Longest packet that can be protected, in bytes: any that the WAN carries.
    pub fn packet_max(&self) -> usize {
        self.wan_mtu
    }

    /// Longest symbol in bytes.
    pub(crate) fn symbol_max(&self) -> usize {
        self.packet_max() + SYMBOL_HEADER
    }

    /// Memory for each of `peers` caches from which requests are answered, in bytes.
    pub fn cache_bytes(&self, peers: usize) -> usize {
        match self.requests {
            Requests::Off => 0,
            Requests::All | Requests::Udp => CACHES_MAX / peers.max(1),
        }
    }

    /// Sizes of each ingress.
    pub fn ingress(&self) -> IngressConfig {
        self.ingress_of(self.peers.len())
    }

    /// Sizes of each ingress beside this number of peers. The history is four times the span of one
    /// repair, if the far end uses the same code, or longer.
    pub fn ingress_of(&self, peers: usize) -> IngressConfig {
        let least = beside(HISTORY_MIN, peers);
        let least = least.min((HISTORY_BYTES / self.packet_max()).max(HISTORY_SHORT));
        let history = (4 * self.code().span()).max(1 << least.ilog2()).next_power_of_two();
        IngressConfig {
            history,
            places: (2 * history).max(beside(PLACES_MIN, peers)),
            packet_max: self.packet_max(),
            equations: EQUATIONS,
            give_up_us: 1_000_000 + 2 * self.schedule.slowest_us(self.max_delay_us),
        }
    }
}

/// Returns the size that belongs to a number of peers.
fn beside<const N: usize>(sizes: [(usize, usize); N], peers: usize) -> usize {
    sizes.into_iter().find(|&(most, _)| peers <= most).expect("the last has no end").1
}

impl Schedule {
    /// Checks what the repair channel asks of a schedule, beyond the limits of its code.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let &Self::Sliding { window, .. } = self
            && window > WINDOW_MAX
        {
            return Err(ConfigError::Window(window));
        }
        self.check_reach()?;
        match self.names() {
            names if names > TERMS_MAX => Err(ConfigError::Terms(names)),
            _ => Ok(()),
        }
    }

    /// Checks that a sliding window reaches from one repair to the next, so that each packet gets repairs.
    ///
    /// # Errors
    /// If the window is too short, or the rate too low for any window.
    pub fn check_reach(&self) -> Result<(), ConfigError> {
        let Self::Sliding { rate, window, .. } = *self else { return Ok(()) };
        if rate.repairs() as usize * TERMS_MAX < rate.sources() as usize {
            return Err(ConfigError::Rate(rate));
        }
        let window_min = self.window_min();
        // The check of the code reports an empty window.
        if window > 0 && usize::from(window) < window_min {
            return Err(ConfigError::WindowShort { window, window_min, rate });
        }
        Ok(())
    }
}
