//! Routes that keep packets for peers in tunnel mode from every other way while no gateway carries them
//! (docs/adr/0048).
//!
//! The device of the tunnel disappears with the process, and its routes with it. These routes are worse than
//! any other, so that they count from then on, and they stay when the process is killed. An orderly stop
//! removes them, and the next start those to networks that its file does not name. A gateway without a peer
//! in tunnel mode leaves all of them alone: those of the name in its file may be another gateway's.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netio::interface::Interface;
use netio::own_routes::{OwnRoutes, Way};
use tracing::{info, warn};

use crate::config::{FailChoice, GatewayConfig, Mode};
use crate::error::StartError;
use crate::routes::{self, PROTOCOL};
use crate::tunnel;

/// Lowest metric of these routes. Routes of operators and of routing daemons have lower ones.
const METRIC: u32 = 4_000_000_000;

/// The routes of a gateway that has a device of the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closing {
    /// Name of the device, by which they are known.
    pub(crate) device: String,
    networks: Vec<IpNet>,
}

impl Closing {
    /// The routes that a configuration asks for; `None` without a peer in tunnel mode.
    pub(crate) fn of(config: &GatewayConfig) -> Option<Self> {
        tunnel::device(config).map(|device| Self { device, networks: wanted(config) })
    }

    /// Sets them, and removes others that a gateway with this device has set. Returns the number of routes
    /// that were set, and the errors.
    pub(crate) fn follow(&self) -> (usize, Vec<StartError>) {
        let metric = metric(&self.device);
        routes::follow(barrier(&self.device), &self.networks, |network, kind| {
            let remedy = if kind == io::ErrorKind::AlreadyExists {
                format!("; delete the present route of metric {metric}")
            } else {
                String::new()
            };
            format!("keep packets to {network} from other routes{remedy}, or set `fail = \"open\"`")
        })
    }
}

/// Sets the routes that a configuration asks for. Returns the errors.
pub(crate) fn set(config: &GatewayConfig) -> Vec<StartError> {
    Closing::of(config).map(|closing| closing.follow().1).unwrap_or_default()
}

/// Tells which of these routes an earlier process has left, before [`set`].
pub(crate) fn tell_leftovers(config: &GatewayConfig) {
    let device = &config.gateway.tunnel;
    let left = barrier(device).networks().unwrap_or_default().len();
    if left == 0 {
        return;
    }
    if tunnel::is_wanted(config) {
        info!("the process before was not stopped in order: {left} routes closed its tunnels since then");
    } else if matches!(Interface::index_of(device), Ok(None)) {
        // Those of a gateway that runs are no leftovers.
        let flush = format!("route flush proto {PROTOCOL} metric {}", metric(device));
        warn!(
            "{left} routes close the tunnel of a device {device}, which this gateway does not have; if no gateway of this \
             machine has it, remove them: ip {flush}; ip -6 {flush}"
        );
    }
}

/// Removes all of these routes of a gateway with this device.
pub(crate) fn remove(device: &str) {
    let barrier = barrier(device);
    match barrier.networks() {
        Ok(present) => present.into_iter().for_each(|network| delete(barrier, network)),
        Err(error) => warn!("cannot read the routes of this machine: {error}"),
    }
}

fn delete(barrier: OwnRoutes, (address, prefix): (IpAddr, u8)) {
    if let Err(error) = barrier.remove((address, prefix)) {
        warn!("cannot delete the unreachable route to {address}/{prefix}: {error}");
    }
}

/// The networks of these routes.
pub(crate) fn wanted(config: &GatewayConfig) -> Vec<IpNet> {
    let closed = config
        .peers
        .iter()
        .filter(|peer| peer.mode == Mode::Tunnel && peer.route && peer.fail == FailChoice::Closed);
    routes::distinct(closed.flat_map(|peer| peer.networks.iter().copied()))
}

/// The routes of a gateway with this device.
fn barrier(device: &str) -> OwnRoutes {
    OwnRoutes { protocol: PROTOCOL, way: Way::Unreachable { metric: metric(device) } }
}

/// Several gateways of one machine differ in the name of the device, and their routes in the metric.
fn metric(device: &str) -> u32 {
    let hash = device.bytes().fold(0_u16, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    METRIC + u32::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::configuration;

    #[test]
    fn a_gateway_without_tunnels_has_no_routes_that_close_them() {
        let of = |lines: &str| {
            Closing::of(&configuration(&format!(
                "[gateway]\nwan = \"wan0\"\nlisten = \"10.81.9.1:4700\"\n\
                 [[peer]]\naddress = \"10.81.9.2:4700\"\nnetworks = [\"10.81.2.0/24\"]\n\
                 key_file = \"peer.key\"\n{lines}"
            )))
        };
        assert_eq!(of("mode = \"passive\"\n"), None);
        let closing = |networks: &[&str]| {
            let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
            Some(Closing { device: "undrop1".to_owned(), networks })
        };
        assert_eq!(of("mode = \"tunnel\"\n"), closing(&["10.81.2.0/24"]));
        // Those of an earlier file are its own.
        assert_eq!(of("mode = \"tunnel\"\nfail = \"open\"\n"), closing(&[]));
    }

    #[test]
    fn gateways_of_one_machine_know_their_own_routes() {
        let metrics: Vec<u32> = (0..50).map(|number| metric(&format!("undrop{number}"))).collect();
        let mut distinct = metrics.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), metrics.len());
        assert!(metrics.iter().all(|metric| (METRIC..=METRIC + 0xffff).contains(metric)));
    }
}
