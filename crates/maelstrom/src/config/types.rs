//! A configuration without mistakes: typed, complete, in range.

use std::net::SocketAddr;

use ipnet::IpNet;
use maelstrom_core::{PeerKey, Schedule};

/// How source packets travel between the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The kernel forwards them untouched; the gateway reads copies (Maelstrom §4.1).
    Passive,
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

/// Evidence that a gateway demands before it takes a missing packet for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChoice {
    /// That the path is as the file says, by all that can be seen of it.
    Checked,
    /// Nothing: the operator knows that no packet takes another path or is rewritten.
    Trusted,
}

/// The FEC scheme with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The scheme and its own parameters: which packets share a repair.
    pub schedule: Schedule,
    /// Whether repairs wait for later packets, so that one burst does not take both a packet and its repair
    /// (Maelstrom §4.3.1).
    pub delayed: bool,
    /// Longest wait of a part-filled bin of the first layer, or of part-filled blocks, in milliseconds.
    pub max_delay_ms: u16,
}

impl Code {
    /// [`max_delay_ms`](Self::max_delay_ms) in microseconds, the unit of the core.
    pub fn max_delay_us(&self) -> u64 {
        u64::from(self.max_delay_ms) * 1000
    }
}

/// A far gateway and the site behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The operator's name for it.
    pub name: Option<String>,
    /// Address that repairs come from and go to.
    pub address: SocketAddr,
    /// Networks of the far site, at least one, with no host bits set.
    pub networks: Vec<IpNet>,
    /// The key that this pair of gateways shares.
    pub key: PeerKey,
    /// Whether missing packets may have taken another path.
    pub path: PathChoice,
}

impl Peer {
    /// The peer in logs and tables: its name, or else its address.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }
}
