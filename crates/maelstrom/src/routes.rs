//! The routes to peers in tunnel mode: those by the device of the tunnel, and those that close it.
//!
//! Somebody else may remove them while the gateway runs: whoever flushes a table, a manager of networks that
//! keeps only its own, or `ip link set … down`, with which all routes by a device disappear. Or a route of
//! somebody else is in the way. Therefore the kernel is asked regularly, and is the one place where it
//! stands which routes there are.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use daemon::watchdog::Watchdog;
use ipnet::IpNet;
use netio::interface::Interface;
use netio::own_routes::{OwnRoutes, Way};
use tracing::{info, warn};

use crate::config::{self, GatewayConfig, Mode};
use crate::errands::Errand;
use crate::error::StartError;
use crate::guard::{self, Closing};
use crate::passive::Passive;
use crate::tunnel::{self, Tunnel};

/// Number by which the kernel's tables name this program. No other one in `/etc/iproute2/rt_protos` has it.
pub(crate) const PROTOCOL: u8 = 147;
/// Interval between looks at the routes.
const CHECK_US: u64 = 1_000_000;
/// Longest wait for the end of routes when the gateway stops. Each of some hundred waits for a lock while
/// others change the network configuration of the machine.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// The routes that a configuration asks for.
#[derive(Clone, Debug)]
struct Plan {
    /// Name and index of the device of the tunnel, if there is one.
    device: Option<(String, u32)>,
    /// Why there is none, if there are peers in tunnel mode.
    lack: Option<String>,
    leading: Vec<IpNet>,
    /// The routes that close tunnels (`guard.rs`).
    closing: Option<Closing>,
    /// Names of devices whose closing routes are to go, once those of the present one are there.
    retired: Vec<String>,
}

/// Result of a look at the routes.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Why routes are missing, in words.
    faults: Vec<String>,
    /// Number of routes that were missing and are set now.
    set: usize,
    /// Names of devices whose closing routes are still there.
    retired: Vec<String>,
}

/// The regular look.
#[derive(Debug, Default)]
pub(crate) struct RouteWatch {
    found: Errand<Found>,
    /// Whether the look follows a change of the configuration, after which routes are missing.
    is_change: bool,
    next_us: u64,
    faults: Vec<String>,
    retired: Vec<String>,
    /// Why the device of the tunnel could not be created when it was missing.
    device_error: String,
}

impl RouteWatch {
    /// Notes why the device of the tunnel is missing, if it is.
    pub(crate) fn note_device(&mut self, error: Option<&StartError>) {
        self.device_error = error.map(ToString::to_string).unwrap_or_default();
    }

    /// Reasons for which packets to peers in tunnel mode may not take the tunnel.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// Networks of the routes by the device of the tunnel.
fn wanted(config: &GatewayConfig) -> Vec<IpNet> {
    let routed = config.peers.iter().filter(|peer| peer.mode == Mode::Tunnel && peer.route);
    distinct(routed.flat_map(|peer| peer.networks.iter().copied()))
}

/// Networks without doubles: the gateways of a rack have the same ones.
pub(crate) fn distinct(networks: impl Iterator<Item = IpNet>) -> Vec<IpNet> {
    let mut networks: Vec<IpNet> = networks.collect();
    networks.sort();
    networks.dedup();
    networks
}

/// A network as the kernel names it.
fn parts(network: &IpNet) -> (IpAddr, u8) {
    (network.network(), network.prefix_len())
}

/// Sets the routes of one kind that are missing, and then deletes others of this kind, unless one could not
/// be set: a network may be in one that is deleted. `failure`: what a network of a route that cannot be set
/// suffers, with the remedy. Returns the number of routes that were set, and the errors.
pub(crate) fn follow(
    own: OwnRoutes,
    wanted: &[IpNet],
    failure: impl Fn(&IpNet, io::ErrorKind) -> String,
) -> (usize, Vec<StartError>) {
    let present = match own.networks() {
        Ok(present) => present,
        Err(_) if wanted.is_empty() => return (0, Vec::new()),
        Err(error) => return (0, vec![StartError::new("read the routes of this machine", error)]),
    };
    let (mut set, mut errors) = (0, Vec::new());
    for network in wanted.iter().filter(|network| !present.contains(&parts(network))) {
        match own.set(parts(network)) {
            Ok(()) => set += 1,
            Err(error) => errors.push(StartError::new(failure(network, error.kind()), error)),
        }
    }
    let is_wanted = |network: &&(IpAddr, u8)| wanted.iter().any(|one| parts(one) == **network);
    if errors.is_empty() {
        for (address, prefix) in present.iter().filter(|network| !is_wanted(network)) {
            if let Err(error) = own.remove((*address, *prefix)) {
                warn!("cannot delete the route to {address}/{prefix}: {error}");
            }
        }
    }
    (set, errors)
}

/// Sets the routes by the device of the tunnel that a configuration asks for, and deletes others of this
/// program. Returns the errors.
pub(crate) fn set(tunnel: &Tunnel, config: &GatewayConfig) -> Vec<StartError> {
    let device = (tunnel.tun().name(), tunnel.tun().interface().index());
    lead(device, &wanted(config)).1
}

fn lead((name, index): (&str, u32), wanted: &[IpNet]) -> (usize, Vec<StartError>) {
    let own = OwnRoutes { protocol: PROTOCOL, way: Way::Interface(index) };
    follow(own, wanted, |network, kind| {
        let remedy = match kind {
            io::ErrorKind::AlreadyExists => "; delete the present route, or set `route = false` for the peer",
            io::ErrorKind::NetworkDown => "; set the device up",
            _ => "",
        };
        format!("set the route to {network} by {name}{remedy}")
    })
}

impl Plan {
    /// Sets all routes. Those that close tunnels come first, whatever the device is like: without it, they
    /// alone keep packets from other ways.
    fn carry_out(&self) -> Found {
        let (mut set, mut errors) = self.closing.as_ref().map(Closing::follow).unwrap_or_default();
        // Two reloads may have led back to the same name.
        let is_present = |name: &String| self.closing.as_ref().is_some_and(|now| now.device == *name);
        let mut retired: Vec<String> =
            self.retired.iter().filter(|name| !is_present(name)).cloned().collect();
        if errors.is_empty() {
            retired.drain(..).for_each(|former| guard::remove(&former));
        }
        let mut down = None;
        if let Some((name, index)) = &self.device {
            if Interface::open(name).and_then(|device| device.is_up()).unwrap_or(true) {
                let (led, unled) = lead((name, *index), &self.leading);
                set += led;
                errors.extend(unled);
            } else if !self.leading.is_empty() {
                down = Some(format!(
                    "{name} is down, and routes by it are gone; set it up: ip link set {name} up"
                ));
            }
        }
        let faults = errors.iter().map(ToString::to_string).chain(down).chain(self.lack.clone());
        Found { faults: faults.collect(), set, retired }
    }
}

impl Passive {
    /// Begins to set all routes to peers in tunnel mode as the file asks for them. Nobody waits for it: the
    /// kernel may take seconds while others change interfaces.
    pub(crate) fn set_routes(&mut self) {
        self.begin_routes();
        self.routes.is_change = true;
    }

    /// Begins to remove the routes that close tunnels of a former configuration, if it had another device,
    /// when those of the present one are set.
    pub(crate) fn retire_device(&mut self, former: &GatewayConfig) {
        let device = tunnel::device(former);
        if device.is_some() && device != tunnel::device(&self.config) {
            self.routes.retired.extend(device);
            self.set_routes();
        }
    }

    /// Waits for what closes or opens tunnels as the gateway stops.
    fn wait_at_stop<T>(&mut self, mut errand: Errand<T>, watchdog: &Watchdog) -> Option<T> {
        self.supervisor.stopping(STOP_PATIENCE);
        errand.wait_with(STOP_PATIENCE, || self.show_life(watchdog))
    }

    /// Removes the routes that close tunnels, after what is under way.
    pub(crate) fn open_tunnels(&mut self, watchdog: &Watchdog) {
        let devices: Vec<String> =
            self.routes.retired.drain(..).chain(tunnel::device(&self.config)).collect();
        let remove = move || devices.iter().for_each(|device| guard::remove(device));
        let removed = self.errands.begin(remove);
        if self.wait_at_stop(removed, watchdog).is_none() {
            warn!("the kernel has not removed the routes that close tunnels yet");
        }
    }

    /// Hands the routes that close tunnels on to the next process, which knows only those of the device in
    /// its file. If it cannot read that, or somebody else has that device, it does not start, and what the
    /// tunnels carried takes no other way.
    pub(crate) fn hand_on_closing(&mut self, watchdog: &Watchdog) {
        if guard::wanted(&self.config).is_empty() && self.routes.retired.is_empty() {
            return;
        }
        let Ok(next) = config::read(&self.path).config() else { return };
        let (own, closing) = (tunnel::device(&self.config), Closing::of(&next));
        let is_there = |device: &str| matches!(Interface::index_of(device), Ok(Some(_)));
        if closing.as_ref().is_some_and(|next| own.as_ref() != Some(&next.device) && is_there(&next.device)) {
            return;
        }
        let retired = self.routes.retired.drain(..).chain(own).collect();
        let plan = Plan { device: None, lack: None, leading: Vec::new(), closing, retired };
        let handed_on = self.errands.begin(move || plan.carry_out());
        match self.wait_at_stop(handed_on, watchdog) {
            Some(found) => found.faults.iter().for_each(|fault| warn!("{fault}")),
            None => warn!("the kernel has not set the routes that close tunnels of the next process yet"),
        }
    }

    /// Looks at the routes from time to time, and sets those that are missing.
    pub(crate) fn watch_routes(&mut self) {
        if self.ports.outlets.is_silent {
            // They are those of another process.
            self.routes.found = Errand::default();
            return;
        }
        if let Some(found) = self.routes.found.take() {
            self.note_routes(found);
        }
        if self.engine.now_us >= self.routes.next_us && !self.routes.found.is_under_way() {
            self.begin_routes();
        }
    }

    /// Sends for a look at the routes. One that is under way with another configuration ends before it.
    fn begin_routes(&mut self) {
        self.routes.next_us = self.engine.now_us + CHECK_US;
        let tunnel = self.ports.outlets.tunnel.as_ref();
        let lacks = tunnel.is_none() && tunnel::is_wanted(&self.config);
        let lack = lacks.then(|| match &self.routes.device_error[..] {
            "" => format!("there is no device {} yet", self.config.gateway.tunnel),
            error => error.to_owned(),
        });
        let device = tunnel.map(|tunnel| (tunnel.tun().name().to_owned(), tunnel.tun().interface().index()));
        let closing = Closing::of(&self.config);
        let retired = self.routes.retired.clone();
        let plan = Plan { device, lack, leading: wanted(&self.config), closing, retired };
        self.routes.found = self.errands.begin(move || plan.carry_out());
        self.routes.is_change = false;
    }

    /// Tells what is wrong, once.
    fn note_routes(&mut self, Found { faults, set, retired }: Found) {
        self.routes.retired = retired;
        for news in faults.iter().filter(|fault| !self.routes.faults.contains(fault)) {
            warn!("packets to a peer may not take the tunnel: {news}");
        }
        if faults.is_empty() && !self.routes.faults.is_empty() {
            info!("packets to all peers in tunnel mode take the tunnel again");
        } else if set > 0 && !self.routes.is_change && faults.is_empty() {
            warn!("somebody had removed routes to peers in tunnel mode; {set} are set again");
        }
        self.routes.faults = faults;
    }
}
