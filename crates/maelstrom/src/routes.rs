//! The routes to peers in tunnel mode: those by the device of the tunnel, and those that close it.
//!
//! Somebody else may remove them while the gateway runs: whoever flushes a table, a manager of networks that
//! keeps only its own, or `ip link set … down`, with which all routes by a device disappear. Or a route of
//! somebody else is in the way. Therefore the kernel is asked regularly, and is the one place where it
//! stands which routes there are.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netio::interface::Interface;
use netio::own_routes::{OwnRoutes, Way};
use tracing::{info, warn};

use crate::config::{GatewayConfig, Mode};
use crate::errands::Errand;
use crate::error::StartError;
use crate::guard;
use crate::passive::Passive;
use crate::tunnel::Tunnel;

/// Number by which the kernel's tables name this program. No other one in `/etc/iproute2/rt_protos` has it.
pub(crate) const PROTOCOL: u8 = 147;
/// Interval between questions to the kernel.
const CHECK_US: u64 = 1_000_000;
/// The same while a route cannot be set. The attempt may wait for a lock of the kernel.
const RETRY_US: u64 = 10_000_000;

/// State of the routes, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// All are there.
    Whole,
    /// Some are not.
    Missing,
    /// The device is down, so that there can be none by it.
    Down,
}

/// The regular check.
#[derive(Debug, Default)]
pub(crate) struct RouteWatch {
    standing: Errand<Standing>,
    next_us: u64,
    /// Why routes are missing, in words.
    faults: Vec<String>,
}

impl RouteWatch {
    /// Reasons for which packets to peers in tunnel mode may not take the tunnel.
    pub(crate) fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// Networks of the routes by the device of the tunnel.
pub(crate) fn wanted(config: &GatewayConfig) -> Vec<IpNet> {
    let routed = config.peers.iter().filter(|peer| peer.mode == Mode::Tunnel && peer.route);
    let mut networks: Vec<IpNet> = routed.flat_map(|peer| peer.networks.iter().copied()).collect();
    // The gateways of a rack have the same ones.
    networks.sort();
    networks.dedup();
    networks
}

/// A network as the kernel names it.
pub(crate) fn parts(network: &IpNet) -> (IpAddr, u8) {
    (network.network(), network.prefix_len())
}

/// Sets the routes by the device of the tunnel that a configuration asks for, and deletes others of this
/// program. Goes on after one that cannot be set, and returns those errors.
pub(crate) fn set(tunnel: &Tunnel, config: &GatewayConfig) -> Vec<StartError> {
    let name = tunnel.tun().name();
    let own = OwnRoutes { protocol: PROTOCOL, way: Way::Interface(tunnel.tun().interface().index()) };
    let present = match own.networks() {
        Ok(present) => present,
        Err(error) => return vec![StartError::new("read the routes of this machine", error)],
    };
    let wanted = wanted(config);
    for network in present.iter().filter(|network| !wanted.iter().any(|one| parts(one) == **network)) {
        if let Err(error) = own.remove(*network) {
            warn!("cannot delete the route to {}/{} by {name}: {error}", network.0, network.1);
        }
    }
    let missing = wanted.iter().filter(|network| !present.contains(&parts(network)));
    let failed = missing.filter_map(|network| own.set(parts(network)).err().map(|error| (network, error)));
    let told = failed.map(|(network, error)| {
        let remedy = match error.kind() {
            io::ErrorKind::AlreadyExists => "; delete the present route, or set `route = false` for the peer",
            io::ErrorKind::NetworkDown => "; set the device up",
            _ => "",
        };
        StartError::new(format!("set the route to {network} by {name}{remedy}"), error)
    });
    told.collect()
}

impl Passive {
    /// Sets all routes to peers in tunnel mode as the file asks for them, and tells what fails, once.
    pub(crate) fn set_routes(&mut self) {
        let tunnel = self.ports.outlets.tunnel.as_ref();
        let mut errors = tunnel.map_or(Vec::new(), |tunnel| set(tunnel, &self.config));
        errors.extend(guard::set(&self.config));
        self.note_routes(errors.iter().map(ToString::to_string).collect());
    }

    fn note_routes(&mut self, faults: Vec<String>) {
        for news in faults.iter().filter(|fault| !self.routes.faults.contains(fault)) {
            warn!("packets to a peer may not take the tunnel: {news}");
        }
        let is_whole = faults.is_empty();
        if is_whole && !self.routes.faults.is_empty() {
            info!("packets to all peers in tunnel mode take the tunnel again");
        }
        self.routes.faults = faults;
        self.routes.next_us = self.engine.now_us + if is_whole { CHECK_US } else { RETRY_US };
    }

    /// Asks the kernel from time to time which routes there are, and sets those that are missing.
    pub(crate) fn watch_routes(&mut self) {
        let Some(tunnel) = self.ports.outlets.tunnel.as_ref().filter(|_| !self.ports.outlets.is_silent)
        else {
            // Without the device there are no routes, or they are those of another process.
            self.routes.standing = Errand::default();
            return;
        };
        let name = tunnel.tun().name();
        match self.routes.standing.take() {
            Some(Standing::Missing) => {
                let before = self.routes.faults.len();
                self.set_routes();
                if before == 0 && self.routes.faults.is_empty() {
                    warn!("somebody had removed routes to peers in tunnel mode; they are set again");
                }
                return;
            }
            Some(Standing::Whole) => self.note_routes(Vec::new()),
            Some(Standing::Down) => {
                let fault =
                    format!("{name} is down, and routes by it are gone; set it up: ip link set {name} up");
                self.note_routes(vec![fault]);
                // It may come up at any time, and a look at it costs little.
                self.routes.next_us = self.engine.now_us + CHECK_US;
            }
            None => {}
        }
        if self.engine.now_us < self.routes.next_us || self.routes.standing.is_under_way() {
            return;
        }
        let Some(tunnel) = &self.ports.outlets.tunnel else { return };
        let (name, index) = (tunnel.tun().name().to_owned(), tunnel.tun().interface().index());
        let (leading, closing) = (wanted(&self.config), guard::wanted(&self.config));
        let barrier = guard::barrier(&self.config.gateway.tunnel);
        self.routes.standing = self.errands.begin(move || {
            let own = OwnRoutes { protocol: PROTOCOL, way: Way::Interface(index) };
            if !Interface::open(&name).and_then(|device| device.is_up()).unwrap_or(true) {
                return Standing::Down;
            }
            let has_all = |routes: OwnRoutes, wanted: &[IpNet]| {
                // Nothing is known without an answer.
                let Ok(present) = routes.networks() else { return true };
                wanted.iter().all(|network| present.contains(&parts(network)))
            };
            let is_whole = has_all(own, &leading) && has_all(barrier, &closing);
            if is_whole { Standing::Whole } else { Standing::Missing }
        });
    }
}
