//! A configuration without mistakes: typed, complete, in range.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ipnet::IpNet;
use maelstrom_core::congestion::OnCongestion;
use maelstrom_core::controller::Targets;
use maelstrom_core::{PathUse, PeerKey, RepairDscp, Requests, Schedule, Scheme, Whereabouts};

/// How source packets travel between the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The kernel forwards them untouched; the gateway reads copies (Maelstrom §4.1).
    Passive,
    /// They travel inside datagrams of the gateways, by a TUN device (thesis §3.3.2).
    Tunnel,
}

/// Fate of packets to a peer in tunnel mode while the gateway does not run, although nobody stopped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailChoice {
    /// No other route takes them: they are answered as unreachable.
    Closed,
    /// They take the route that is left, in the clear.
    Open,
}

impl FailChoice {
    /// Returns its word in the file.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
        }
    }
}

/// The tap that copies the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapChoice {
    /// eBPF where the machine allows it, else packet sockets.
    Auto,
    /// A tc program with a ring buffer, or failure.
    Ebpf,
    /// `AF_PACKET` sockets.
    Packet,
}

/// The interface by which recovered packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectionChoice {
    /// The WAN interface, or else the TUN device.
    Auto,
    /// The WAN interface, or failure.
    Wan,
    /// The TUN device.
    Tun,
}

/// Time at which a client is answered whose connection is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcceptChoice {
    /// At once, before the server has answered.
    Early,
    /// When the server has answered.
    Late,
}

/// Treatment of packets whose repairs do not fit into the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuChoice {
    /// The gateway limits the segments of TCP connections with hosts of the peers' networks.
    Manage,
    /// Nothing: a check of the configuration proposes commands.
    Check,
}

/// Evidence that a gateway demands before it takes a missing packet for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChoice {
    /// That the path is as the file says, by all that can be seen of it.
    Checked,
    /// Nothing: the operator knows that no packet takes another path or is rewritten.
    Trusted,
}

/// The choice of a FEC scheme in files and on command lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemeChoice {
    /// A sliding window whose rate the gateway chooses by itself.
    #[default]
    Auto,
    /// A scheme whose parameters the operator chooses.
    Fixed(Scheme),
}

impl SchemeChoice {
    /// All choices.
    pub const ALL: [Self; 4] = [
        Self::Auto,
        Self::Fixed(Scheme::Layered),
        Self::Fixed(Scheme::ReedSolomon),
        Self::Fixed(Scheme::Sliding),
    ];

    /// The word in files and on command lines.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed(scheme) => scheme.word(),
        }
    }

    /// A phrase that explains the choice on a command line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Auto => "A sliding window whose rate the gateway chooses; it starts at 1/8",
            Self::Fixed(scheme) => scheme.summary(),
        }
    }
}

impl fmt::Display for SchemeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that names no [`SchemeChoice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("scheme: expected auto, layered, reed-solomon or sliding, saw {0:?}")]
pub struct UnknownChoice(pub String);

impl FromStr for SchemeChoice {
    type Err = UnknownChoice;

    fn from_str(word: &str) -> Result<Self, UnknownChoice> {
        let choice = Self::ALL.into_iter().find(|choice| choice.word() == word);
        choice.ok_or_else(|| UnknownChoice(word.to_owned()))
    }
}

/// The FEC scheme with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// The scheme and its own parameters: which packets share a repair.
    pub schedule: Schedule,
    /// Targets and limits of the rate that the gateway chooses.
    pub targets: Targets,
    /// Whether repairs wait for later packets, so that one burst does not take both a packet and its repair
    /// (Maelstrom §4.3.1).
    pub delayed: bool,
    /// Longest wait of a part-filled bin of the first layer, or of part-filled blocks, in milliseconds.
    pub max_delay_ms: u16,
    /// Packets that are requested from the far gateway if repairs do not bring them back in time.
    pub requests: Requests,
    /// DSCP of the repairs.
    pub repair_dscp: RepairDscp,
    /// Treatment of packets that a full queue drops.
    pub congestion: OnCongestion,
}

impl Code {
    /// [`max_delay_ms`](Self::max_delay_ms) in microseconds, the unit of the core.
    pub fn max_delay_us(&self) -> u64 {
        u64::from(self.max_delay_ms) * 1000
    }
}

/// The name of a host, with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name.
    pub name: String,
    /// The UDP port.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// The word for the address of a peer that calls from wherever it is.
pub(super) const ANY: &str = "any";

/// Place of a far gateway as a file states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// An address that does not change.
    Ip(SocketAddr),
    /// A name, which is looked up while the gateway runs.
    Name(Host),
    /// Any: the peer's own datagrams show it.
    Any,
}

impl PeerAddress {
    /// The address, unless it must be looked up.
    pub fn fixed(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Name(_) | Self::Any => None,
        }
    }

    /// Source of the address of a running gateway's peer.
    pub fn whereabouts(&self) -> Whereabouts {
        match self {
            Self::Ip(_) => Whereabouts::Stated,
            Self::Name(_) => Whereabouts::Named,
            Self::Any => Whereabouts::Unstated,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(host) => host.fmt(f),
            Self::Any => f.write_str(ANY),
        }
    }
}

/// A further path to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPath {
    /// Address of the peer on this path.
    pub address: PeerAddress,
    /// Address and port of this gateway on this path; `None` for `listen`.
    pub local: Option<SocketAddr>,
    /// Interface by which its datagrams leave; `None` if routes decide.
    pub interface: Option<String>,
}

/// A far gateway and the site behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The operator's name for it. A peer whose address is not stated has one.
    pub name: Option<String>,
    /// Address that repairs come from and go to: the latest one that is known, or the unspecified IP address
    /// while none is.
    pub address: SocketAddr,
    /// Source of the address.
    pub whereabouts: Whereabouts,
    /// Name that is looked up for the address.
    pub host: Option<Host>,
    /// Networks of the far site, at least one, with no host bits set.
    pub networks: Vec<IpNet>,
    /// The key that this pair of gateways shares.
    pub key: PeerKey,
    /// A further key that is accepted, while the key is being changed.
    pub next_key: Option<PeerKey>,
    /// Where it takes carriers of split connections.
    pub carrier: Option<SocketAddr>,
    /// The rack that it belongs to: peers of one rack have the same networks.
    pub rack: Option<String>,
    /// Interface by which packets to and from its site pass, in passive mode; `None` for that of `[gateway]`.
    pub wan: Option<String>,
    /// Whether missing packets may have taken another path.
    pub path: PathChoice,
    /// How packets travel to its site.
    pub mode: Mode,
    /// Whether the gateway sets the routes to its networks, in tunnel mode.
    pub route: bool,
    /// Fate of packets to its networks while the gateway does not run, in tunnel mode with `route`.
    pub fail: FailChoice,
    /// Further paths to it.
    pub paths: Vec<PeerPath>,
    /// How the paths share the datagrams.
    pub path_use: PathUse,
    /// Longest time for which a packet that came early is held for those in front of it, in milliseconds.
    pub resequence_ms: u16,
    /// Longest time for which a packet waits for others to share its datagram with, in microseconds.
    pub aggregate_us: u16,
}

impl Peer {
    /// The peer in logs and tables: its name, or else its address as the file states it.
    pub fn label(&self) -> String {
        let stated = || self.moving().unwrap_or_else(|| self.address.to_string());
        self.name.clone().unwrap_or_else(stated)
    }

    /// Its address as the file states it; `None` if that is an address which does not change.
    pub(crate) fn moving(&self) -> Option<String> {
        match self.whereabouts {
            Whereabouts::Unstated => Some(ANY.to_owned()),
            Whereabouts::Stated | Whereabouts::Named => self.host.as_ref().map(Host::to_string),
        }
    }
}
