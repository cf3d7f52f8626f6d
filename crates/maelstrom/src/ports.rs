//! The ports of a passive gateway to the machine: tap, repair socket, TUN device.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use ipnet::IpNet;
use maelstrom_core::PeerConfig;
use netio::interface::Interface;
use netio::tap::{Tap, TapConfig, TapKind};
use netio::tun::{Tun, TunOptions};
use netio::udp::RepairSocket;
use tracing::{info, warn};

use crate::config::memory::Memory;
use crate::config::{GatewayConfig, TapChoice};
use crate::error::StartError;

/// The open ports of one gateway.
pub(crate) struct Ports {
    /// `None` while its interface is missing.
    pub(crate) tap: Option<Tap>,
    pub(crate) outlets: Outlets,
}

/// The ports for output.
pub(crate) struct Outlets {
    pub(crate) socket: RepairSocket,
    /// `None` while it is missing.
    pub(crate) tun: Option<Tun>,
}

/// The ports that a reload opens; `None` keeps the present port.
pub(crate) struct Replacement {
    pub(crate) tap: Option<Tap>,
    pub(crate) socket: Option<RepairSocket>,
    pub(crate) tun: Option<Tun>,
}

impl Ports {
    pub(crate) fn open(config: &GatewayConfig) -> Result<Self, StartError> {
        let socket = open_socket(config)?;
        let tun = Some(open_tun(config, wan_mtu(config)?)?);
        let tap = Some(open_tap(config)?);
        Ok(Self { tap, outlets: Outlets { socket, tun } })
    }

    /// Whether recovery has all ports that it needs.
    pub(crate) fn is_complete(&self) -> bool {
        self.tap.is_some() && self.outlets.tun.is_some()
    }
}

impl Replacement {
    /// Opens what differs between `old` and `new`, before anything is closed.
    pub(crate) fn open(old: &GatewayConfig, new: &GatewayConfig) -> Result<Self, StartError> {
        let (was, is) = (&old.gateway, &new.gateway);
        Ok(Self {
            socket: (was.listen != is.listen).then(|| open_socket(new)).transpose()?,
            tun: (was.tun != is.tun).then(|| open_tun(new, wan_mtu(new)?)).transpose()?,
            // The tap comes last, because its captures are not read until the reload is complete.
            tap: (tap_config(old) != tap_config(new)).then(|| open_tap(new)).transpose()?,
        })
    }
}

fn networks(config: &GatewayConfig) -> Vec<IpNet> {
    config.peers.iter().flat_map(|peer| peer.networks.iter().copied()).collect()
}

fn open_socket(config: &GatewayConfig) -> Result<RepairSocket, StartError> {
    let listen: SocketAddr = config.gateway.listen;
    RepairSocket::bind(listen)
        .map_err(|error| StartError::new(format!("listen for repairs on {listen}"), error))
}

fn tap_config(config: &GatewayConfig) -> TapConfig {
    TapConfig {
        interface: config.gateway.wan.clone(),
        outgoing_to: networks(config),
        incoming_from: networks(config),
        exclude: config.peers.iter().map(|peer| peer.address).collect(),
        kind: match config.gateway.tap {
            TapChoice::Auto => TapKind::Auto,
            TapChoice::Ebpf => TapKind::Ebpf,
            TapChoice::Packet => TapKind::Packet,
        },
        ..TapConfig::default()
    }
}

pub(crate) fn open_tap(config: &GatewayConfig) -> Result<Tap, StartError> {
    let wan = &config.gateway.wan;
    let failed = |error| StartError::new(format!("tap interface {wan}"), error);
    let tap = Tap::open(&tap_config(config)).map_err(failed)?;
    if let Some(reason) = tap.fallback_reason() {
        info!("the tap on {wan} is a packet socket, not eBPF: {reason}");
    }
    Ok(tap)
}

/// Creates the TUN device, for packets up to the MTU of the WAN.
pub(crate) fn open_tun(config: &GatewayConfig, wan_mtu: usize) -> Result<Tun, StartError> {
    let name = &config.gateway.tun;
    let options =
        TunOptions { mtu: Some(wan_mtu as u32), transmit_queue: Some(16), up: false, offload: false };
    let step = |what: &str| format!("{what} TUN device {name}");
    let tun = Tun::open(name, &options).map_err(|error| StartError::new(step("create"), error))?;
    for (file, value) in SYSCTLS {
        let path = file.replace("{}", tun.name());
        if Path::new(&path).exists()
            && let Err(error) = fs::write(&path, value)
        {
            warn!("cannot write {value} to {path}: {error}");
        }
    }
    tun.interface()
        .set_ipv4_address(DUMMY)
        .map_err(|error| StartError::new(step("set the address of"), error))?;
    tun.interface().set_up(true).map_err(|error| StartError::new(step("bring up"), error))?;
    Ok(tun)
}

/// Address of the TUN device. The kernel's source check drops packets that enter by an interface without an
/// IPv4 address. RFC 7600 §4.8 reserves this one for machines that need an address and have none; no other
/// host uses it.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Settings with which the TUN device forwards packets as a WAN interface does. They disappear with the
/// device.
const SYSCTLS: [(&str, &str); 5] = [
    ("/proc/sys/net/ipv4/conf/{}/forwarding", "1"),
    // The route back to a recovered packet's source is by the WAN, not by this device, so that only a loose
    // check passes.
    ("/proc/sys/net/ipv4/conf/{}/rp_filter", "2"),
    ("/proc/sys/net/ipv6/conf/{}/forwarding", "1"),
    ("/proc/sys/net/ipv6/conf/{}/accept_ra", "0"),
    // The device needs no link-local address, because it has no neighbours.
    ("/proc/sys/net/ipv6/conf/{}/addr_gen_mode", "1"),
];

fn wan_mtu(config: &GatewayConfig) -> Result<usize, StartError> {
    let wan = &config.gateway.wan;
    let open = Interface::open(wan).and_then(|interface| interface.mtu());
    let of_interface = open.map_err(|error| StartError::new(format!("read the MTU of {wan}"), error))?;
    let stated = config.gateway.wan_mtu.map_or(of_interface, u32::from);
    Ok(stated.min(of_interface) as usize)
}

/// The core's configuration for this machine.
pub(crate) fn core_config(config: &GatewayConfig) -> Result<maelstrom_core::Config, StartError> {
    let peer = |peer: &crate::config::Peer| PeerConfig {
        address: peer.address,
        networks: peer.networks.clone(),
        key: peer.key.clone(),
    };
    let core = maelstrom_core::Config {
        listen: config.gateway.listen,
        wan_mtu: wan_mtu(config)?,
        schedule: config.code.schedule.clone(),
        delayed: config.code.delayed,
        max_delay_us: config.code.max_delay_us(),
        name_bits: 32,
        peers: config.peers.iter().map(peer).collect(),
    };
    // Checked again here, where the MTU of the WAN is known.
    let memory = Memory::of(&core, core.peers.len());
    match memory.excess() {
        Some(excess) => Err(StartError::too_much(&memory, &excess)),
        None => Ok(core),
    }
}
