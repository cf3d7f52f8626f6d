//! Routes that keep packets for peers in tunnel mode from every other way while no gateway carries them
//! (docs/adr/0048).
//!
//! The device of the tunnel disappears with the process, and its routes with it. These routes are worse than
//! any other, so that they count from then on, and they stay when the process is killed. An orderly stop
//! removes them, and so does the next start if the file asks for them no longer.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netio::own_routes::{OwnRoutes, Way};
use tracing::{info, warn};

use crate::config::{FailChoice, GatewayConfig, Mode};
use crate::error::StartError;
use crate::routes::{self, PROTOCOL};

/// Lowest metric of these routes. Routes of operators and of routing daemons have lower ones.
const METRIC: u32 = 4_000_000_000;

/// Sets the routes that a configuration asks for, and removes others that a gateway with this device has set.
/// Returns the errors.
pub(crate) fn set(config: &GatewayConfig) -> Vec<StartError> {
    follow(&config.gateway.tunnel, &wanted(config)).1
}

/// Sets the routes to these networks for a gateway with this device, and removes others of it. Returns the
/// number of routes that were set, and the errors.
pub(crate) fn follow(device: &str, wanted: &[IpNet]) -> (usize, Vec<StartError>) {
    routes::follow(barrier(device), wanted, |network, kind| {
        let remedy = if kind == io::ErrorKind::AlreadyExists {
            format!("; delete the present route of metric {}", metric(device))
        } else {
            String::new()
        };
        format!("keep packets to {network} from other routes{remedy}, or set `fail = \"open\"`")
    })
}

/// Tells which of these routes an earlier process has left, before [`set`].
pub(crate) fn tell_leftovers(config: &GatewayConfig) {
    let left = barrier(&config.gateway.tunnel).networks().unwrap_or_default().len();
    if left > 0 {
        info!("the process before was not stopped in order: {left} routes closed its tunnels since then");
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
