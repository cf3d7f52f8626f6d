//! Bounds of recovery where the configuration states no `local_networks`: a recovered packet must not be one
//! that the kernel would send back to the WAN.

use std::collections::HashMap;
use std::net::IpAddr;

use netio::interface::Interface;
use netio::route::Routes;
use tracing::{debug, warn};

use crate::config::GatewayConfig;

/// Maximum number of pairs of addresses whose routes are remembered. Routes of further ones are asked for
/// with each packet.
const KNOWN_MAX: usize = 4096;
/// Interval between warnings.
const WARN_US: u64 = 60_000_000;

/// The routes to destinations of recovered packets.
#[derive(Default)]
pub(crate) struct Bounds {
    /// `None` if the configuration states the bounds, or routes cannot be asked for.
    routes: Option<Routes>,
    /// Name and index of the WAN interface.
    wan: (String, u32),
    known: Known,
    refused: u64,
    /// Destination of a packet that was refused since the last warning.
    last_refused: Option<IpAddr>,
    next_warning_us: u64,
}

/// Whether a packet from the first address to the second may be injected: routes may depend on the source.
/// Forgotten about once a second, because routes change.
#[derive(Default)]
struct Known(HashMap<(IpAddr, IpAddr), bool>);

impl Known {
    /// Returns what is known, or else what `ask` says.
    fn or_ask(&mut self, source: IpAddr, destination: IpAddr, ask: impl FnOnce() -> bool) -> bool {
        if let Some(admitted) = self.0.get(&(source, destination)) {
            return *admitted;
        }
        let admitted = ask();
        if self.0.len() < KNOWN_MAX {
            self.0.insert((source, destination), admitted);
        }
        admitted
    }
}

impl Bounds {
    /// Begins to ask for routes back to the interface `wan`, unless `config` states the bounds.
    pub(crate) fn open(&mut self, config: &GatewayConfig, wan: &str) {
        self.known.0.clear();
        self.known.0.reserve(KNOWN_MAX);
        self.routes = None;
        if config.gateway.local_networks.is_some() {
            return;
        }
        let index = Interface::index_of(wan).ok().flatten();
        self.wan = (wan.to_owned(), index.unwrap_or(0));
        match Routes::open() {
            Ok(routes) => self.routes = Some(routes),
            Err(error) => warn!("cannot ask for routes, so that recovery is not bounded by them: {error}"),
        }
    }

    /// Whether a recovered packet may be injected.
    pub(crate) fn admits(&mut self, packet: &[u8]) -> bool {
        let Some(routes) = &self.routes else { return true };
        let Some((source, destination)) = addresses(packet) else { return false };
        let wan = self.wan.1;
        let admitted = self.known.or_ask(source, destination, || {
            match routes.leaves_by(source, destination, wan) {
                // Whatever the kernel drops, it drops without our help.
                Ok(out) => out.is_none_or(|out| out != wan),
                Err(error) => {
                    debug!(%error, "cannot ask for a route");
                    true
                }
            }
        });
        if !admitted {
            self.refused += 1;
            self.last_refused = Some(destination);
        }
        admitted
    }

    /// Must be called about once a second.
    pub(crate) fn on_tick(&mut self, now_us: u64) {
        self.known.0.clear();
        if now_us < self.next_warning_us {
            return;
        }
        let Some(destination) = self.last_refused.take() else { return };
        self.next_warning_us = now_us + WARN_US;
        warn!(
            "recovered packets to {destination} are not injected, because their route leads back to {}; if they belong to \
             this site, set `local_networks`",
            self.wan.0
        );
    }

    /// Number of packets that were not admitted.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let part = |at: usize| packet.get(at..)?.first_chunk::<4>().copied();
            Some((IpAddr::from(part(12)?), IpAddr::from(part(16)?)))
        }
        6 => {
            let part = |at: usize| packet.get(at..)?.first_chunk::<16>().copied();
            Some((IpAddr::from(part(8)?), IpAddr::from(part(24)?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_both_versions_of_ip() {
        let mut packet = [0; 40];
        packet[0] = 0x45;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(addresses(&packet), Some(([10, 0, 0, 1].into(), [10, 0, 0, 2].into())));
        assert_eq!(addresses(&packet[..19]), None);
        packet[0] = 0x60;
        packet[39] = 9;
        assert_eq!(addresses(&packet).unwrap().1, "::9".parse::<IpAddr>().unwrap());
        assert_eq!(addresses(&packet[..39]), None);
        assert_eq!(addresses(&[]), None);
    }

    #[test]
    fn what_is_known_of_one_source_holds_for_no_other() {
        let mut known = Known::default();
        let address = |last| IpAddr::from([10, 0, 0, last]);
        for (source, destination, answer) in [(1, 9, true), (2, 9, false), (9, 1, false), (1, 8, false)] {
            let mut asked = 0;
            for _ in 0..3 {
                let found = known.or_ask(address(source), address(destination), || {
                    asked += 1;
                    answer
                });
                assert_eq!(found, answer, "{source} to {destination}");
            }
            assert_eq!(asked, 1);
        }
    }

    #[test]
    fn stated_networks_need_no_routes() {
        assert!(Bounds::default().admits(&[]));
    }
}
