//! The start of a gateway: alone, or beside a process that it takes over from.

use std::path::Path;

use daemon::control::Control;
use daemon::signals::Signals;
use daemon::supervisor::Supervisor;
use maelstrom_core::Gateway;
use netio::inject::Signs;
use tracing::{info, warn};

use crate::agreement::Agreement;
use crate::cached::CacheSocket;
use crate::config::GatewayConfig;
use crate::device_mtu::DeviceMtu;
use crate::engine::Engine;
use crate::errands::Errands;
use crate::error::StartError;
use crate::exporter::Exporter;
use crate::guard;
use crate::inbox::Inbox;
use crate::lag::Lag;
use crate::losses::LossSocket;
use crate::mtus::Mtus;
use crate::names::Names;
use crate::overload::Overload;
use crate::passive::{Channel, Passive, clock_us, watch};
use crate::ports::{Outlets, Ports, core_config, open_inlet_beside, open_wans};
use crate::rack::{Racked, open_socket};
use crate::random::{entropy, random};
use crate::routes::RouteWatch;
use crate::segments::Segments;
use crate::split::Split;
use crate::store::Store;
use crate::strangers::Strangers;
use crate::tick::Tick;
use crate::tunnel::Tunnel;
use crate::turns::Turns;
use crate::upgrade::{Inheritance, Link, Upgrade};
use crate::watch::Watch;

/// The parts that the two ways to start make differently.
struct Parts {
    signals: Signals,
    ports: Ports,
    engine: Engine,
    mtus: Mtus,
    /// Membership of a rack that goes on.
    rack: Option<Racked>,
    losses: LossSocket,
    cache: CacheSocket,
    control: Control,
    exporter: Exporter,
    upgrade: Upgrade,
}

impl Passive {
    /// Opens everything that `config` names. The only changes to the machine are TUN devices and, once it
    /// runs, tables of the firewall, which disappear with the process, for split connections a route that
    /// leads nowhere without these, and routes that close tunnels (`guard.rs`). A reload reads the file at
    /// `path`.
    ///
    /// # Errors
    /// The step that failed, with its remedy.
    pub fn start(path: &Path, config: GatewayConfig) -> Result<Self, StartError> {
        let signals = Signals::with_restart().map_err(|error| StartError::new("watch for signals", error))?;
        // First, so that packets stay off other ways also while a later step fails.
        guard::tell_leftovers(&config);
        guard::set(&config).into_iter().next().map_or(Ok(()), Err)?;
        let ports = Ports::open(&config, Signs::new(random()?))?;
        let (mut gateway, mtus) = new_gateway(&config)?;
        let mut losses = LossSocket::of(Store::open(&config, &mut gateway, clock_us()));
        losses.listen(&config.gateway.control);
        let mut cache = CacheSocket::default();
        cache.listen(&config.gateway.control);
        let control = Control::bind(&config.gateway.control)?;
        let mut engine = Engine::new(gateway, clock_us());
        engine.capturing.listen(&config.gateway.control);
        let exporter = Exporter::start(&config);
        let upgrade = Upgrade::new(&config.gateway.control, None)?;
        let rack = None;
        let parts = Parts { signals, ports, engine, mtus, rack, losses, cache, control, exporter, upgrade };
        Self::assemble(path, config, parts)
    }

    /// Takes over from a running process, at the other end of `link`. Everything that can fail comes first,
    /// while that one works on.
    ///
    /// # Errors
    /// The step that failed, with its remedy. The other process then keeps its work.
    pub fn take_over(path: &Path, config: GatewayConfig, link: Link) -> Result<Self, StartError> {
        let signals = Signals::with_restart().map_err(|error| StartError::new("watch for signals", error))?;
        // Other signs than those of the other process: what that one injects has arrived here.
        let signs = Signs::new(random()?);
        let (mut wans, inlets) = open_wans(&config, signs, open_inlet_beside)?;
        let (gateway, mtus) = new_gateway(&config)?;
        let control = Control::bind_beside(&config.gateway.control)?;
        let mut engine = Engine::new(gateway, clock_us());
        let Inheritance { socket, rack, tunnel, losses, former } =
            Inheritance::take(link, &config, &mut wans, &mut engine)?;
        let tunnel = tunnel.map(Tunnel::adopt).transpose()?;
        let racked = config.rack.as_ref().zip(rack);
        let rack = racked.map(|(rack, left)| Racked::resume(clock_us(), rack, left)).transpose()?;
        let mut outlets = Outlets::open(socket, inlets, tunnel, &config);
        // The file of the other process may have named another interface.
        let by = config.gateway.listen_interface.as_deref();
        if let Err(error) = outlets.bind_listen(by) {
            warn!("the socket of `listen` keeps its interface: {error}");
        }
        let ports = Ports::of(wans, outlets, signs);
        let upgrade = Upgrade::new(&config.gateway.control, Some(former))?;
        let exporter = Exporter::default();
        let cache = CacheSocket::default();
        let parts = Parts { signals, ports, engine, mtus, rack, losses, cache, control, exporter, upgrade };
        let mut passive = Self::assemble(path, config, parts)?;
        passive.supervisor.be_silent();
        // Last, because the other process goes on with those of its file if this one fails.
        passive.follow_file_in_tunnel();
        Ok(passive)
    }

    fn assemble(path: &Path, config: GatewayConfig, parts: Parts) -> Result<Self, StartError> {
        let Parts { signals, ports, engine, mtus, rack, losses, cache, control, exporter, upgrade } = parts;
        let Outlets { socket, doors, tunnel, .. } = &ports.outlets;
        let joins = config.rack.clone().filter(|_| rack.is_none());
        let heartbeats = joins.as_ref().map(open_socket).transpose()?;
        let beats = rack.as_ref().map(|racked| &racked.socket).or(heartbeats.as_ref());
        let poller = watch(ports.taps(), socket, doors.iter(), tunnel.as_ref(), beats, &signals, &control)?;
        let supervisor = Supervisor::from_environment().unwrap_or_else(|error| {
            warn!("the service manager is told nothing: {error}");
            Supervisor::default()
        });
        let errands = Errands::start().map_err(|error| StartError::new("start a thread", error))?;
        for wan in &ports.wans {
            let kind = wan.tap.as_ref().map_or("none", |tap| tap.kind().as_str());
            info!(wan = wan.name, tap = kind, "protecting");
        }
        let mut names = Names::default();
        names.configure(&config);
        let mut split = Split::default();
        split.configure(&config);
        let mut passive = Self {
            path: path.to_owned(),
            engine,
            mtus,
            device_mtu: DeviceMtu::default(),
            inbox: Inbox::new(ports.outlets.doors.len()),
            started_us: clock_us(),
            channel: Channel::Unknown,
            turns: Turns::default(),
            tick: Tick::default(),
            overload: Overload::new(),
            next_gap_check_us: 0,
            fills_tunnel: false,
            lag: Lag::new(clock_us()),
            agreement: Agreement::default(),
            names,
            moves: 0,
            supervisor,
            next_interface_check_us: 0,
            next_reopening_us: 0,
            routes: RouteWatch::default(),
            errands,
            next_path_mtu_us: 0,
            next_door_check_us: 0,
            next_group_check_us: 0,
            segments: Segments::default(),
            strangers: Strangers::default(),
            split,
            rack,
            watch: Watch::default(),
            upgrade,
            stopping: false,
            restarts: false,
            losses,
            cache,
            exporter,
            config,
            ports,
            control,
            signals,
            poller,
        };
        if joins.is_some() {
            passive.join_rack(joins.as_ref(), heartbeats);
        }
        Ok(passive)
    }
}

fn new_gateway(config: &GatewayConfig) -> Result<(Gateway, Mtus), StartError> {
    let mtus = Mtus::read(config)?;
    let core = core_config(config, mtus.wan_mtu())?;
    Ok((Gateway::new(core, entropy()?).map_err(StartError::Core)?, mtus))
}
