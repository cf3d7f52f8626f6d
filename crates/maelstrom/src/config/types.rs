//! What a configuration is once it has been found right: typed, complete, in range.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use maelstrom_core::{PeerKey, Schedule};

use super::Report;

/// A configuration with what there is to say of it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: GatewayConfig,
    /// Warnings and notes; no errors.
    pub report: Report,
}

/// A gateway's whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// The `[gateway]` section: this machine.
    pub gateway: Gateway,
    /// The `[code]` section: what the repairs are.
    pub code: Code,
    /// The `[[peer]]` sections: the far gateways; at least one.
    pub peers: Vec<Peer>,
}

/// This machine's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// How source packets travel.
    pub mode: Mode,
    /// Interface toward the long-haul link.
    pub wan: String,
    /// Address and port where repairs arrive.
    pub listen: SocketAddr,
    /// Unix socket that answers `undrop gateway status`.
    pub control: PathBuf,
    /// Largest source packet in bytes, if the operator states it.
    pub lan_mtu: Option<u16>,
    /// Largest packet the long-haul path carries in bytes, if smaller than the interface's.
    pub wan_mtu: Option<u16>,
    /// How packets are copied.
    pub tap: TapChoice,
    /// Name of the TUN device through which recovered packets enter the kernel.
    pub tun: String,
}

/// How source packets travel between the sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Untouched, by the kernel alone; the gateway reads copies (Maelstrom §4.1).
    Passive,
}

/// Which tap copies the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapChoice {
    /// eBPF where the machine allows it, else packet sockets.
    Auto,
    /// A tc program with a ring buffer, or failure.
    Ebpf,
    /// `AF_PACKET` sockets.
    Packet,
}

/// What the repairs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The FEC scheme and the settings that are its own: which packets share a repair.
    pub schedule: Schedule,
    /// Whether repairs wait for later packets, so that one burst cannot swallow them with theirs (Maelstrom §4.3.1).
    pub delayed: bool,
    /// Longest time that a part-filled bin of the first layer, or part-filled blocks, wait, in milliseconds.
    pub max_delay_ms: u16,
}

impl Code {
    /// [`max_delay_ms`](Self::max_delay_ms) in the cores' unit, microseconds.
    #[must_use]
    pub fn max_delay_us(&self) -> u64 {
        u64::from(self.max_delay_ms) * 1000
    }
}

/// A far gateway and the site behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The operator's name for it.
    pub name: Option<String>,
    /// Where its repairs come from and ours go.
    pub address: SocketAddr,
    /// The far site: traffic to and from these networks is protected. At least one, with no host bits set.
    pub networks: Vec<IpNet>,
    /// The key that this pair of gateways shares.
    pub key: PeerKey,
}

impl Peer {
    /// What to call the peer in logs and tables: its name, or its address.
    #[must_use]
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }
}
