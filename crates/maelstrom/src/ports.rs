//! The ports of a passive gateway to the machine: tap, repair socket, TUN device.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use maelstrom_core::{PathConfig, PeerConfig, TunnelConfig, Whereabouts};
use netio::inject::Signs;
use netio::interface::Interface;
use netio::tap::{Tap, TapConfig, TapKind};
use netio::udp::RepairSocket;
use tracing::{info, warn};

use crate::config::memory::Memory;
use crate::config::{GatewayConfig, Mode, MulticastSection, PathChoice, Peer, PeerPath, TapChoice};
use crate::doors::{self, Door, ListenBy};
use crate::error::StartError;
use crate::groups::{self, GroupPort};
use crate::inlet::{Inlet, START_PATIENCE};
use crate::mtus::Mtus;
use crate::pause::Pauses;
use crate::routes;
use crate::taps::{Unshown, Wan};
use crate::tunnel::{self, Tunnel};

/// Name of a TUN device while another process has the usual one. The kernel numbers it.
const BESIDE: &str = "undropnext%d";

/// Least MTU of a link with IPv6 (RFC 8200 §5).
pub(crate) const LEAST_V6: usize = 1_280;

/// The open ports of one gateway.
pub(crate) struct Ports {
    /// The WAN interfaces, in the order of [`GatewayConfig::wans`].
    pub(crate) wans: Vec<Wan>,
    pub(crate) outlets: Outlets,
    /// Time until which the core knows what has arrived; `None` while it knows all.
    pub(crate) shown_us: Option<u64>,
    /// The WAN interfaces by which recovered packets have arrived in this process.
    pub(crate) proven: BTreeSet<String>,
    /// Pauses at WAN interfaces that are in use no more.
    pub(crate) past: Pauses,
    /// Counts of TUN devices that are gone.
    pub(crate) gone: Gone,
    /// Signs of the packets that this process injects.
    pub(crate) signs: Signs,
}

/// Counts of TUN devices that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gone {
    untaken: u64,
    returning: u64,
    not_at_wan: u64,
}

impl Gone {
    fn absorb(&mut self, inlet: &Inlet) {
        self.returning += inlet.refused();
        self.not_at_wan += inlet.not_at_wan_at_end();
    }
}

/// The ports for output.
pub(crate) struct Outlets {
    pub(crate) socket: RepairSocket,
    /// The interfaces to which this process has bound it; `None` if it has not done so yet.
    pub(crate) listen_by: Option<ListenBy>,
    /// The sockets of further paths.
    pub(crate) doors: Vec<Door>,
    /// Datagrams that found the buffers of sockets full that are closed.
    pub(crate) overflowed_before: u64,
    /// The ways of recovered packets, one for each WAN interface; `None` while its TUN device is missing.
    pub(crate) inlets: Vec<Option<Inlet>>,
    /// For each peer the number of its WAN interface.
    pub(crate) wan_of: Vec<usize>,
    /// `None` without peers in tunnel mode, and while its TUN device is missing.
    pub(crate) tunnel: Option<Tunnel>,
    /// The LANs of the sections `[[multicast]]`, in their order.
    pub(crate) groups: Vec<GroupPort>,
    /// Whether another process sends and receives datagrams.
    pub(crate) is_silent: bool,
}

/// The ports that a reload opens; `None` keeps the present port, if there is one.
pub(crate) struct Replacement {
    /// The taps, one for each WAN interface.
    pub(crate) taps: Vec<Option<Tap>>,
    pub(crate) socket: Option<RepairSocket>,
    /// Sockets of further paths that there are not yet.
    pub(crate) doors: Vec<Door>,
    /// The ways of recovered packets, one for each WAN interface.
    pub(crate) inlets: Vec<Option<Inlet>>,
    /// The device of the tunnel, if its name differs or there is none yet; and whether it closes.
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) ends_tunnel: bool,
}

impl Outlets {
    /// Adds the sockets of further paths and of groups. The repair socket is bound to no interface yet.
    pub(crate) fn open(
        socket: RepairSocket,
        inlets: Vec<Option<Inlet>>,
        tunnel: Option<Tunnel>,
        config: &GatewayConfig,
    ) -> Self {
        Self {
            socket,
            listen_by: None,
            doors: doors::ends(config).into_iter().map(Door::open).collect(),
            overflowed_before: 0,
            inlets,
            wan_of: config.wan_numbers(),
            tunnel,
            groups: groups::ports(Vec::new(), config),
            is_silent: false,
        }
    }
}

impl Ports {
    pub(crate) fn open(config: &GatewayConfig, signs: Signs) -> Result<Self, StartError> {
        let socket = open_socket(config, None)?;
        let (wans, inlets) = open_wans(config, signs, open_inlet)?;
        let tunnel = open_tunnel(config)?;
        let unset = tunnel.as_ref().and_then(|tunnel| routes::set(tunnel, config).into_iter().next());
        unset.map_or(Ok(()), Err)?;
        let mut outlets = Outlets::open(socket, inlets, tunnel, config);
        let bound = outlets.bind_listen(config.gateway.listen_interface.as_deref());
        bound.map_err(|error| StartError::new("bind the socket of `listen` to its interface", error))?;
        Ok(Self::of(wans, outlets, signs))
    }

    pub(crate) fn of(wans: Vec<Wan>, outlets: Outlets, signs: Signs) -> Self {
        let (proven, past, gone) = (BTreeSet::new(), Pauses::default(), Gone::default());
        Self { wans, outlets, shown_us: None, proven, past, gone, signs }
    }

    /// Replaces the TUN device of a WAN interface by another, or by none, and connects nothing.
    pub(crate) fn install_inlet(&mut self, wan: usize, inlet: Option<Inlet>) {
        self.note_proof(wan);
        let is_proven = self.proven.contains(&self.wans[wan].name);
        let inlet = inlet.map(|inlet| inlet.with_proof(is_proven));
        if let Some(former) = std::mem::replace(&mut self.outlets.inlets[wan], inlet) {
            self.gone.absorb(&former);
        }
    }

    /// Replaces the device of the tunnel by another, or by none.
    pub(crate) fn install_tunnel(&mut self, tunnel: Option<Tunnel>) {
        self.gone.untaken = self.untaken();
        self.outlets.tunnel = tunnel;
    }

    /// Number of packets and super-packets of the tunnel that the kernel refused.
    pub(crate) fn untaken(&self) -> u64 {
        self.gone.untaken + self.outlets.tunnel.as_ref().map_or(0, Tunnel::refused)
    }

    /// Number of recovered packets whose route leads back to the WAN.
    pub(crate) fn returning(&self) -> u64 {
        self.gone.returning + self.inlets().map(Inlet::refused).sum::<u64>()
    }

    /// Number of recovered packets that did not arrive at their WAN interface.
    pub(crate) fn not_at_wan(&self) -> u64 {
        self.gone.not_at_wan + self.inlets().map(Inlet::not_at_wan).sum::<u64>()
    }

    /// Notes whether recovered packets have arrived by a WAN interface.
    fn note_proof(&mut self, wan: usize) {
        let inlet = self.outlets.inlets[wan].as_ref().filter(|inlet| inlet.is_proven());
        self.proven.extend(inlet.map(|inlet| inlet.wan().to_owned()));
    }

    /// Begins or ends the use of WAN interfaces, as the configuration says; those that are new have no ports
    /// yet. Returns the packets that the taps of those that end have not shown.
    pub(crate) fn follow_wans(&mut self, config: &GatewayConfig) -> Unshown {
        (0..self.wans.len()).for_each(|wan| self.note_proof(wan));
        let count = config.wans().len();
        let mut unshown = Unshown::default();
        for wan in self.wans.drain(count.min(self.wans.len())..) {
            self.past.absorb(&wan.pauses);
            unshown = wan.tap.as_ref().map_or(unshown, |tap| unshown.plus(Unshown::of(tap)));
        }
        let ending = count.min(self.outlets.inlets.len());
        self.outlets.inlets.drain(ending..).flatten().for_each(|inlet| self.gone.absorb(&inlet));
        self.outlets.inlets.resize_with(count, || None);
        self.outlets.wan_of = config.wan_numbers();
        for number in 0..count {
            let next = Wan::of(config, number);
            match self.wans.get_mut(number) {
                Some(wan) => (wan.name, wan.is_watched) = (next.name, next.is_watched),
                None => self.wans.push(next),
            }
        }
        unshown
    }

    /// Whether recovery has all ports that it needs at a WAN interface.
    pub(crate) fn is_complete(&self, wan: usize) -> bool {
        self.wans[wan].tap.is_some() && self.outlets.inlets[wan].as_ref().is_some_and(Inlet::is_open)
    }

    /// The same at all WAN interfaces.
    pub(crate) fn are_complete(&self) -> bool {
        (0..self.wans.len()).all(|wan| self.is_complete(wan))
    }

    /// The same at those of peers in passive mode.
    pub(crate) fn are_watched_complete(&self) -> bool {
        (0..self.wans.len()).all(|wan| !self.wans[wan].is_watched || self.is_complete(wan))
    }

    /// The taps that are open.
    pub(crate) fn taps(&self) -> impl Iterator<Item = &Tap> {
        self.wans.iter().filter_map(|wan| wan.tap.as_ref())
    }

    /// The same for changes.
    pub(crate) fn taps_mut(&mut self) -> impl Iterator<Item = &mut Tap> {
        self.wans.iter_mut().filter_map(|wan| wan.tap.as_mut())
    }

    /// The ways of recovered packets whose TUN devices there are.
    pub(crate) fn inlets(&self) -> impl Iterator<Item = &Inlet> {
        self.outlets.inlets.iter().flatten()
    }
}

/// The ports of the WAN interfaces. `open` creates their TUN devices. Only the interface of `[gateway]` must
/// be there.
pub(crate) fn open_wans(
    config: &GatewayConfig,
    signs: Signs,
    open: impl Fn(&GatewayConfig, usize, Signs) -> Result<Inlet, StartError>,
) -> Result<(Vec<Wan>, Vec<Option<Inlet>>), StartError> {
    let (mut wans, mut inlets) = (Vec::new(), Vec::new());
    for number in 0..config.wans().len() {
        let mut inlet = open(config, number, signs)?;
        let mut wan = Wan::of(config, number);
        wan.tap = open_tap_or_wait(config, number, signs)?;
        if wan.tap.is_some() {
            inlet.connect(config, wan.tap.as_ref(), START_PATIENCE)?;
        }
        wans.push(wan);
        inlets.push(Some(inlet));
    }
    Ok((wans, inlets))
}

impl Replacement {
    /// Opens what differs between `old`, with the ports `present`, and `new`, before anything is closed.
    pub(crate) fn open(
        old: &GatewayConfig,
        new: &GatewayConfig,
        present: &Ports,
    ) -> Result<Self, StartError> {
        let (socket, signs) = (&present.outlets.socket, present.signs);
        let (was, is) = (&old.gateway, &new.gateway);
        let present = doors::ends(old);
        let new_ends = doors::ends(new).into_iter().filter(|end| !present.contains(end));
        let stays = tunnel::is_wanted(old) && was.tunnel == is.tunnel;
        let (before, wans) = (old.wans().len(), new.wans().len());
        let has_inlet = |wan: usize| wan < before && was.tun == is.tun;
        let has_tap = |wan: usize| wan < before && tap_config(old, wan, signs) == tap_config(new, wan, signs);
        let inlets = (0..wans).map(|wan| (!has_inlet(wan)).then(|| open_inlet(new, wan, signs)).transpose());
        let is_same = |wan: usize| old.wans().get(wan) == new.wans().get(wan);
        let open = |wan: usize| {
            if is_same(wan) {
                return open_tap_or_wait(new, wan, signs);
            }
            open_tap(new, wan, signs).map(Some)
        };
        let taps = (0..wans).map(|wan| if has_tap(wan) { Ok(None) } else { open(wan) });
        Ok(Self {
            tunnel: if stays { None } else { open_tunnel(new)? },
            ends_tunnel: !tunnel::is_wanted(new),
            socket: (was.listen != is.listen).then(|| open_socket(new, Some(socket))).transpose()?,
            doors: new_ends.map(Door::open).collect(),
            inlets: inlets.collect::<Result<_, _>>()?,
            // The taps come last, because their captures are not read until the reload is complete.
            taps: taps.collect::<Result<_, _>>()?,
        })
    }
}

/// Creates the device of the tunnel, if a peer is reached by it.
pub(crate) fn open_tunnel(config: &GatewayConfig) -> Result<Option<Tunnel>, StartError> {
    let open = || Tunnel::open(config, inner_mtu(config, Mtus::read(config)?.wan_mtu()));
    tunnel::is_wanted(config).then(open).transpose()
}

/// Longest packet by the device of the tunnel, in bytes. The kernel has no IPv6 on a device below the least
/// MTU of IPv6; packets that are too long for a datagram take two (RFC 8200 §5).
pub(crate) fn inner_mtu(config: &GatewayConfig, wan_mtu: usize) -> usize {
    let mtu = tunnel::inner_mtu(&config.code.schedule, wan_mtu, config.gateway.listen.is_ipv6());
    let mut tunnelled = config.peers.iter().filter(|peer| peer.mode == Mode::Tunnel);
    let has_v6 = tunnelled.any(|peer| peer.networks.iter().any(|network| network.addr().is_ipv6()));
    if has_v6 { mtu.max(LEAST_V6) } else { mtu }
}

/// The addresses that stay as long as the tap does. The core knows its own datagrams to others.
pub(crate) fn fixed_addresses(config: &GatewayConfig) -> Vec<SocketAddr> {
    let fixed = config.peers.iter().filter(|peer| peer.whereabouts == Whereabouts::Stated);
    let further =
        config.peers.iter().flat_map(|peer| peer.paths.iter().filter_map(|path| path.address.fixed()));
    fixed.map(|peer| peer.address).chain(further).collect()
}

/// Networks of the peers whose packets a tap shows.
fn networks(config: &GatewayConfig, is_shown: impl Fn(&Peer) -> bool) -> Vec<IpNet> {
    let passive = config.sites().filter(|peer| peer.mode == Mode::Passive && is_shown(peer));
    passive.flat_map(|peer| peer.networks.iter().copied()).collect()
}

/// Opens the socket of `listen`. The `present` one of this gateway may be that of all addresses of the same
/// port, or of one of them.
fn open_socket(config: &GatewayConfig, present: Option<&RepairSocket>) -> Result<RepairSocket, StartError> {
    let listen = config.gateway.listen;
    let is_there = |name: &&str| matches!(Interface::index_of(name), Ok(Some(_)));
    // Where the interface is missing, `bind_listen` keeps datagrams off the others.
    let by = config.gateway.listen_interface.as_deref().filter(is_there);
    let opened = RepairSocket::bind_to(listen, by).or_else(|error| match present {
        Some(present) if error.kind() == io::ErrorKind::AddrInUse => present.bind_beside(listen, by),
        _ => Err(error),
    });
    opened.map_err(|error| {
        let by = by.map(|name| format!(" by {name}")).unwrap_or_default();
        StartError::new(format!("listen for repairs on {listen}{by}"), error)
    })
}

fn tap_config(config: &GatewayConfig, wan: usize, signs: Signs) -> TapConfig {
    let interface = config.wans()[wan];
    TapConfig {
        interface: interface.to_owned(),
        outgoing_to: networks(config, |peer| config.wan_of(peer) == interface),
        // A packet that comes by another interface than its peer's is not lost.
        incoming_from: networks(config, |_| true),
        exclude: fixed_addresses(config),
        kind: match config.gateway.tap {
            TapChoice::Auto => TapKind::Auto,
            TapChoice::Ebpf => TapKind::Ebpf,
            TapChoice::Packet => TapKind::Packet,
        },
        pass_over: Some(signs.mark()),
        // At most 1 GiB.
        buffer_bytes: config.gateway.tap_buffer as usize,
        ..TapConfig::default()
    }
}

pub(crate) fn open_tap(config: &GatewayConfig, wan: usize, signs: Signs) -> Result<Tap, StartError> {
    let name = config.wans()[wan];
    let failed = |error| StartError::new(format!("tap interface {name}"), error);
    let tap = Tap::open(&tap_config(config, wan, signs)).map_err(failed)?;
    if let Some(reason) = tap.fallback_reason() {
        info!("the tap on {name} is a packet socket, not eBPF: {reason}");
    }
    Ok(tap)
}

/// Opens the tap of a WAN interface; `None` if that is not the one of `[gateway]`, and is not there at
/// present.
fn open_tap_or_wait(config: &GatewayConfig, wan: usize, signs: Signs) -> Result<Option<Tap>, StartError> {
    match open_tap(config, wan, signs) {
        Err(error) if wan > 0 && matches!(Interface::index_of(config.wans()[wan]), Ok(None)) => {
            warn!("{error}; no packet of a peer in passive mode is protected or recovered there until then");
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Creates the TUN device of a WAN interface, for packets up to the MTU of the WAN.
pub(crate) fn open_inlet(config: &GatewayConfig, wan: usize, signs: Signs) -> Result<Inlet, StartError> {
    Inlet::open(config, wan, &config.tun_of(wan), Mtus::read(config)?.wan_mtu(), signs)
}

/// Creates the TUN device beside that of a running process, and under another name if that one has it.
pub(crate) fn open_inlet_beside(
    config: &GatewayConfig,
    wan: usize,
    signs: Signs,
) -> Result<Inlet, StartError> {
    let beside = || Inlet::open(config, wan, BESIDE, Mtus::read(config)?.wan_mtu(), signs);
    open_inlet(config, wan, signs).or_else(|_| beside())
}

/// The core's configuration for this machine.
pub(crate) fn core_config(
    config: &GatewayConfig,
    wan_mtu: usize,
) -> Result<maelstrom_core::Config, StartError> {
    let unknown = if config.gateway.listen.is_ipv6() {
        IpAddr::from(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let further = |path: &PeerPath| PathConfig {
        door: doors::number(config, path),
        address: path.address.fixed().unwrap_or(SocketAddr::new(unknown, 0)),
        whereabouts: path.address.whereabouts(),
    };
    let peer = |peer: &Peer| PeerConfig {
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
        wan_mtu,
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
