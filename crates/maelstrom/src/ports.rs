//! The ports of a passive gateway to the machine: tap, repair socket, TUN device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use maelstrom_core::{PathConfig, PeerConfig, TunnelConfig, Whereabouts};
use netio::inject::Signs;
use netio::interface::Interface;
use netio::tap::{Tap, TapConfig, TapKind};
use netio::udp::RepairSocket;
use tracing::info;

use crate::config::memory::Memory;
use crate::config::{GatewayConfig, Mode, MulticastSection, PathChoice, PeerPath, TapChoice};
use crate::doors::{self, Door};
use crate::error::StartError;
use crate::groups::{self, GroupPort};
use crate::inlet::{Inlet, START_PATIENCE};
use crate::routes;
use crate::tunnel::{self, Tunnel};

/// Name of a TUN device while another process has the usual one. The kernel numbers it.
const BESIDE: &str = "undropnext%d";

/// Least MTU of a link with IPv6 (RFC 8200 §5).
const LEAST_V6: usize = 1_280;

/// The open ports of one gateway.
pub(crate) struct Ports {
    /// `None` while its interface is missing.
    pub(crate) tap: Option<Tap>,
    pub(crate) outlets: Outlets,
    /// Whether recovered packets have arrived by the WAN interface in this process.
    pub(crate) is_proven: bool,
    /// Signs of the packets that this process injects.
    pub(crate) signs: Signs,
}

/// The ports for output.
pub(crate) struct Outlets {
    pub(crate) socket: RepairSocket,
    /// The sockets of further paths.
    pub(crate) doors: Vec<Door>,
    /// `None` while its TUN device is missing.
    pub(crate) inlet: Option<Inlet>,
    /// `None` without peers in tunnel mode, and while its TUN device is missing.
    pub(crate) tunnel: Option<Tunnel>,
    /// The LANs of the sections `[[multicast]]`, in their order.
    pub(crate) groups: Vec<GroupPort>,
    /// Whether another process sends and receives datagrams.
    pub(crate) is_silent: bool,
}

/// The ports that a reload opens; `None` keeps the present port.
pub(crate) struct Replacement {
    pub(crate) tap: Option<Tap>,
    pub(crate) socket: Option<RepairSocket>,
    /// Sockets of further paths that there are not yet.
    pub(crate) doors: Vec<Door>,
    pub(crate) inlet: Option<Inlet>,
    /// The device of the tunnel, if its name differs or there is none yet; and whether it closes.
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) ends_tunnel: bool,
}

impl Ports {
    pub(crate) fn open(config: &GatewayConfig, signs: Signs) -> Result<Self, StartError> {
        let socket = open_socket(config)?;
        let mut inlet = open_inlet(config, signs)?;
        let tap = Some(open_tap(config, signs)?);
        inlet.connect(config, tap.as_ref(), START_PATIENCE)?;
        let is_proven = inlet.is_proven();
        let tunnel = open_tunnel(config)?;
        let unset = tunnel.as_ref().and_then(|tunnel| routes::set(tunnel, config).into_iter().next());
        unset.map_or(Ok(()), Err)?;
        let doors = doors::ends(config).into_iter().map(Door::open).collect();
        let groups = groups::ports(Vec::new(), config);
        let outlets = Outlets { socket, doors, inlet: Some(inlet), tunnel, groups, is_silent: false };
        Ok(Self { tap, outlets, is_proven, signs })
    }

    /// Replaces the TUN device by another, or by none, and connects nothing.
    pub(crate) fn install_inlet(&mut self, inlet: Option<Inlet>) {
        self.is_proven |= self.outlets.inlet.as_ref().is_some_and(Inlet::is_proven);
        self.outlets.inlet = inlet.map(|inlet| inlet.with_proof(self.is_proven));
    }

    /// Whether recovery has all ports that it needs.
    pub(crate) fn is_complete(&self) -> bool {
        self.tap.is_some() && self.outlets.inlet.as_ref().is_some_and(Inlet::is_open)
    }
}

impl Replacement {
    /// Opens what differs between `old` and `new`, before anything is closed.
    pub(crate) fn open(old: &GatewayConfig, new: &GatewayConfig, signs: Signs) -> Result<Self, StartError> {
        let (was, is) = (&old.gateway, &new.gateway);
        let present = doors::ends(old);
        let new_ends = doors::ends(new).into_iter().filter(|end| !present.contains(end));
        let stays = tunnel::is_wanted(old) && was.tunnel == is.tunnel;
        Ok(Self {
            tunnel: if stays { None } else { open_tunnel(new)? },
            ends_tunnel: !tunnel::is_wanted(new),
            socket: (was.listen != is.listen).then(|| open_socket(new)).transpose()?,
            doors: new_ends.map(Door::open).collect(),
            inlet: (was.tun != is.tun).then(|| open_inlet(new, signs)).transpose()?,
            // The tap comes last, because its captures are not read until the reload is complete.
            tap: (tap_config(old, signs) != tap_config(new, signs))
                .then(|| open_tap(new, signs))
                .transpose()?,
        })
    }
}

/// Creates the device of the tunnel, if a peer is reached by it.
pub(crate) fn open_tunnel(config: &GatewayConfig) -> Result<Option<Tunnel>, StartError> {
    tunnel::is_wanted(config).then(|| Tunnel::open(config, inner_mtu(config)?)).transpose()
}

/// Longest packet by the device of the tunnel, in bytes. The kernel has no IPv6 on a device below the least
/// MTU of IPv6; packets that are too long for a datagram take two (RFC 8200 §5).
pub(crate) fn inner_mtu(config: &GatewayConfig) -> Result<usize, StartError> {
    let mtu = tunnel::inner_mtu(wan_mtu(config)?, config.gateway.listen.is_ipv6());
    let mut tunnelled = config.peers.iter().filter(|peer| peer.mode == Mode::Tunnel);
    let has_v6 = tunnelled.any(|peer| peer.networks.iter().any(|network| network.addr().is_ipv6()));
    Ok(if has_v6 { mtu.max(LEAST_V6) } else { mtu })
}

/// The addresses that stay as long as the tap does. The core knows its own datagrams to others.
pub(crate) fn fixed_addresses(config: &GatewayConfig) -> Vec<SocketAddr> {
    let fixed = config.peers.iter().filter(|peer| peer.whereabouts == Whereabouts::Stated);
    let further = config.peers.iter().flat_map(|peer| peer.paths.iter().filter_map(|path| path.address));
    fixed.map(|peer| peer.address).chain(further).collect()
}

/// Networks of the peers whose packets the tap shows.
fn networks(config: &GatewayConfig) -> Vec<IpNet> {
    let passive = config.sites().filter(|peer| peer.mode == Mode::Passive);
    passive.flat_map(|peer| peer.networks.iter().copied()).collect()
}

fn open_socket(config: &GatewayConfig) -> Result<RepairSocket, StartError> {
    let listen: SocketAddr = config.gateway.listen;
    RepairSocket::bind(listen)
        .map_err(|error| StartError::new(format!("listen for repairs on {listen}"), error))
}

fn tap_config(config: &GatewayConfig, signs: Signs) -> TapConfig {
    TapConfig {
        interface: config.gateway.wan.clone(),
        outgoing_to: networks(config),
        incoming_from: networks(config),
        exclude: fixed_addresses(config),
        kind: match config.gateway.tap {
            TapChoice::Auto => TapKind::Auto,
            TapChoice::Ebpf => TapKind::Ebpf,
            TapChoice::Packet => TapKind::Packet,
        },
        pass_over: Some(signs.mark()),
        ..TapConfig::default()
    }
}

pub(crate) fn open_tap(config: &GatewayConfig, signs: Signs) -> Result<Tap, StartError> {
    let wan = &config.gateway.wan;
    let failed = |error| StartError::new(format!("tap interface {wan}"), error);
    let tap = Tap::open(&tap_config(config, signs)).map_err(failed)?;
    if let Some(reason) = tap.fallback_reason() {
        info!("the tap on {wan} is a packet socket, not eBPF: {reason}");
    }
    Ok(tap)
}

/// Creates the TUN device, for packets up to the MTU of the WAN.
pub(crate) fn open_inlet(config: &GatewayConfig, signs: Signs) -> Result<Inlet, StartError> {
    Inlet::open(config, &config.gateway.tun, wan_mtu(config)?, signs)
}

/// Creates the TUN device beside that of a running process, and under another name if that one has it.
pub(crate) fn open_inlet_beside(config: &GatewayConfig, signs: Signs) -> Result<Inlet, StartError> {
    open_inlet(config, signs).or_else(|_| Inlet::open(config, BESIDE, wan_mtu(config)?, signs))
}

fn wan_mtu(config: &GatewayConfig) -> Result<usize, StartError> {
    let wan = &config.gateway.wan;
    let open = Interface::open(wan).and_then(|interface| interface.mtu());
    let of_interface = open.map_err(|error| StartError::new(format!("read the MTU of {wan}"), error))?;
    // Of several paths the narrowest counts, because a datagram may take any of them.
    let further = config.peers.iter().flat_map(|peer| &peer.paths).filter_map(|path| path.interface.as_ref());
    let of_further = further.filter_map(|name| Interface::open(name).and_then(|one| one.mtu()).ok());
    let narrowest = of_further.fold(of_interface, u32::min);
    let stated = config.gateway.wan_mtu.map_or(narrowest, u32::from);
    Ok(stated.min(narrowest) as usize)
}

/// The core's configuration for this machine.
pub(crate) fn core_config(config: &GatewayConfig) -> Result<maelstrom_core::Config, StartError> {
    let unknown = if config.gateway.listen.is_ipv6() {
        IpAddr::from(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let further = |path: &PeerPath| PathConfig {
        door: doors::number(config, path),
        address: path.address.unwrap_or(SocketAddr::new(unknown, 0)),
        may_move: path.address.is_none(),
    };
    let peer = |peer: &crate::config::Peer| PeerConfig {
        address: peer.address,
        whereabouts: peer.whereabouts,
        networks: peer.networks.clone(),
        key: peer.key.clone(),
        next_key: peer.next_key.clone(),
        is_of_rack: peer.rack.is_some(),
        trusts_path: peer.path == PathChoice::Trusted,
        is_tunnel: peer.mode == Mode::Tunnel,
        paths: peer.paths.iter().map(further).collect(),
        path_use: peer.path_use,
        tunnel: TunnelConfig {
            resequence_us: u64::from(peer.resequence_ms) * 1_000,
            aggregate_us: peer.aggregate_us.into(),
        },
    };
    let core = maelstrom_core::Config {
        listen: config.gateway.listen,
        wan_mtu: wan_mtu(config)?,
        schedule: config.code.schedule.clone(),
        targets: config.code.targets,
        delayed: config.code.delayed,
        max_delay_us: config.code.max_delay_us(),
        requests: config.code.requests,
        repair_dscp: config.code.repair_dscp,
        on_congestion: config.code.congestion,
        name_bits: 32,
        classes: config.classes.clone(),
        local_networks: config.gateway.local_networks(),
        multicast: config.multicast.iter().map(MulticastSection::core).collect(),
        peers: config.peers.iter().map(peer).collect(),
    };
    // Checked again here, where the MTU of the WAN is known.
    let ordered = core.peers.iter().filter(|peer| peer.is_tunnel && peer.tunnel.resequence_us > 0);
    let memory = Memory::of(&core, core.peers.len()).with_order(ordered.count());
    match memory.excess() {
        Some(excess) => Err(StartError::too_much(&memory, &excess)),
        None => Ok(core),
    }
}
