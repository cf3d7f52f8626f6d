//! Routes of others to the networks of peers in tunnel mode: those in the way of the gateway's own, and those
//! that lead past the tunnel.

use std::net::IpAddr;

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};
use ipnet::IpNet;
use netio::own_routes::{OwnRoutes, Way};

use super::super::draft::{Draft, PeerDraft};
use super::super::tunnel;
use super::super::types::Mode;
use super::facts::{Facts, first_host};
use super::route::TableRoute;
use crate::routes::PROTOCOL;

/// Maximum number of narrower routes to a network that are told one by one.
const SHOWN_MAX: usize = 8;

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(device) = draft.gateway.tunnel.as_ref().map(|device| device.value.as_str()) else { return };
    for peer in draft.peers.iter().filter(|peer| tunnel::mode(draft, peer) == Some(Mode::Tunnel)) {
        let sets_routes = is_routed(peer);
        for network in &peer.networks {
            let way = TunnelWay { facts, device, network, sets_routes };
            let narrower = way.narrower();
            way.tell_narrower(&narrower, findings);
            if way.is_taken(findings) {
                continue;
            }
            let host = first_host(&network.value);
            if !narrower.iter().any(|route| route.network.contains(&host)) {
                way.ask_for(host, findings);
            }
        }
    }
}

/// Whether the gateway sets the routes to a peer. A wrong value has been reported.
fn is_routed(peer: &PeerDraft) -> bool {
    peer.route.as_ref().is_none_or(|route| route.value)
}

/// The way to a network of a peer in tunnel mode.
struct TunnelWay<'a> {
    facts: &'a Facts,
    device: &'a str,
    network: &'a Setting<IpNet>,
    /// Whether the gateway sets the route, in place of the operator.
    sets_routes: bool,
}

impl TunnelWay<'_> {
    /// Whether the gateway runs, and has the device. One that has not read this file yet has no such device.
    fn runs(&self) -> bool {
        self.facts.gateway_answers() && self.facts.interface(self.device).is_some()
    }

    /// Whether an interface is the device, or where the operator shares flows among tunnels, any tunnel's.
    fn is_tunnel(&self, name: &str) -> bool {
        let is_tun = || self.facts.interface(name).is_some_and(|interface| interface.tun);
        name == self.device || !self.sets_routes && is_tun()
    }

    /// Whether packets leave by another way than the tunnel.
    fn leads_past(&self, route: &TableRoute) -> bool {
        let mut interfaces = route.interfaces.iter();
        // Of several next hops, one is enough for an operator who decides himself.
        let is_inside = if self.sets_routes {
            interfaces.all(|name| self.is_tunnel(name))
        } else {
            route.interfaces.is_empty() || interfaces.any(|name| self.is_tunnel(name))
        };
        !is_inside && route.protocol != PROTOCOL
    }

    /// The routes to parts of the network that lead past the tunnel. Where the operator sets the routes, they
    /// count from the start of the gateway on.
    fn narrower(&self) -> Vec<&TableRoute> {
        if !self.sets_routes && !self.runs() {
            return Vec::new();
        }
        let whole = &self.network.value;
        let is_part = |route: &&TableRoute| whole.contains(&route.network) && route.network != *whole;
        self.facts.table.iter().filter(is_part).filter(|route| self.leads_past(route)).collect()
    }

    fn tell_narrower(&self, routes: &[&TableRoute], findings: &mut Findings) {
        for (at, route) in routes.iter().enumerate().take(SHOWN_MAX) {
            let past = route.interfaces.iter().find(|name| !self.is_tunnel(name));
            let Some(past) = past else { continue };
            let family = if route.network.addr().is_ipv6() { "-6 " } else { "" };
            let remedy = format!("ip {family}route delete {} dev {past}", route.network);
            let mut finding = self.past(&route.network.to_string(), past, &remedy);
            let more = routes.len() - SHOWN_MAX.min(routes.len());
            if at + 1 == SHOWN_MAX && more > 0 {
                finding = finding.note(format!("and so do those of {more} further routes"));
            }
            findings.add(finding);
        }
    }

    /// Reports a route of the best metric to the network itself, which the gateway cannot set beside it;
    /// returns whether there is one.
    fn is_taken(&self, findings: &mut Findings) -> bool {
        let network = self.network.value;
        let best = OwnRoutes { protocol: PROTOCOL, way: Way::Interface(0) }.metric(network.addr().is_ipv4());
        let is_ours = |route: &TableRoute| {
            route.protocol == PROTOCOL
                && (self.facts.gateway_answers() || route.interfaces.iter().any(|name| name == self.device))
        };
        let is_it = |route: &&TableRoute| route.network == network && route.metric == best && !is_ours(route);
        let Some(route) = self.facts.table.iter().find(is_it).filter(|_| self.sets_routes) else {
            return false;
        };
        let by = route.interfaces.first().map(|name| format!(" by `{name}`")).unwrap_or_default();
        let message = format!("there is a route to {network}{by} already, of the best metric, {best}");
        let family = if network.addr().is_ipv6() { "-6 " } else { "" };
        let finding = if self.facts.gateway_answers() {
            Diagnostic::warning("route-taken", message)
                .note("the gateway cannot set its own, and tries it again every second")
        } else {
            Diagnostic::error("route-taken", message)
                .note("the gateway cannot set its own, and does not start")
        };
        findings.add(
            finding
                .at(self.network.span.clone())
                .help(format!("delete it: ip {family}route delete {network} metric {best}"))
                .help("or set `route = false` for the peer, and direct packets to the tunnel yourself"),
        );
        true
    }

    /// Reports if the kernel sends packets to a host of the network past the tunnel, for whatever reason.
    fn ask_for(&self, host: IpAddr, findings: &mut Findings) {
        let Some(Some(route)) = self.facts.routes.get(&host).filter(|_| self.runs()) else { return };
        let by_tunnel = |route: &TableRoute| {
            route.network.contains(&host) && route.interfaces.iter().any(|name| self.is_tunnel(name))
        };
        let is_shared = || !self.sets_routes && self.facts.table.iter().any(by_tunnel);
        if self.is_tunnel(&route.interface) || is_shared() {
            return;
        }
        let remedy = format!("`ip route get {host}` shows the route; delete it");
        findings.add(self.past(&host.to_string(), &route.interface, &remedy));
    }

    fn past(&self, to: &str, interface: &str, remedy: &str) -> Diagnostic {
        let message =
            format!("packets to {to} leave through `{interface}`, past the tunnel `{}`", self.device);
        let finding = Diagnostic::warning("past-tunnel", message).at(self.network.span.clone());
        if self.sets_routes {
            finding.note("they are neither encrypted nor protected").help(remedy)
        } else {
            finding
                .note("with `route = false` you decide about the routes; this one gives them no tunnel")
                .help(format!("if they should take the tunnel, let the route lead by `{}`", self.device))
        }
    }
}
