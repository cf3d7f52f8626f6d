//! Interfaces, addresses and routes.

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};

use super::super::cross::fixed;
use super::super::draft::Draft;
use super::super::tunnel;
use super::super::types::Mode;
use super::super::wans;
use super::facts::{Facts, first_host};
use super::paths;
use super::route::Interface;
use super::tunnel_routes;

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(interfaces) = &facts.interfaces else {
        let message = "the interfaces of this machine cannot be listed";
        findings.add(
            Diagnostic::warning("unknown-machine", message)
                .note("interface, address, route and MTU are not checked")
                .help("run the check on the gateway itself, where netlink sockets are allowed"),
        );
        return;
    };
    let of_gateway = draft.gateway.wan.as_ref().map(|wan| wan.value.as_str());
    for wan in &wans::of_draft(draft) {
        wan_is_ready(wan, of_gateway == Some(wan.value.as_str()), interfaces, findings);
    }
    tun_is_free(draft, facts, findings);
    listen_is_ours(draft, facts, interfaces, findings);
    routes_lead_to_wan(draft, facts, findings);
    tunnel_routes::check(draft, facts, findings);
    peers_are_elsewhere(draft, interfaces, findings);
}

fn wan_is_ready(
    wan: &Setting<String>,
    is_of_gateway: bool,
    interfaces: &[Interface],
    findings: &mut Findings,
) {
    let name = &wan.value;
    let Some(interface) = interfaces.iter().find(|interface| interface.name == *name) else {
        findings.add(wan_is_absent(wan, is_of_gateway, interfaces));
        return;
    };
    if !interface.up {
        findings.add(
            Diagnostic::warning("interface-down", format!("the interface `{name}` is down"))
                .at(wan.span.clone())
                .note("no packet leaves or arrives until it is up; the gateway can start before that")
                .help(format!("ip link set dev {name} up")),
        );
    } else if !interface.carrier {
        findings.add(
            Diagnostic::warning("no-carrier", format!("the interface `{name}` has no carrier"))
                .at(wan.span.clone())
                .note("no packet leaves or arrives until the link is up; the gateway can start before that")
                .help("check the cable, or the far end of the virtual link"),
        );
    }
    if interface.loopback {
        findings.add(
            Diagnostic::error(
                "loopback-wan",
                format!("`{name}` is the loopback interface: it leads to no other site"),
            )
            .at(wan.span.clone())
            .help("set `wan` to the interface toward the long-haul link"),
        );
    }
}

/// One uplink of several that is missing must not keep the gateway from protecting the others.
fn wan_is_absent(wan: &Setting<String>, is_of_gateway: bool, interfaces: &[Interface]) -> Diagnostic {
    let message = format!("there is no interface `{}` on this machine", wan.value);
    let diagnostic = if is_of_gateway {
        Diagnostic::error("interface-absent", message)
    } else {
        Diagnostic::warning("interface-absent", message)
            .note("the gateway starts without it; its peers are not protected until it is there")
    };
    let names = listed(interfaces.iter().filter(|one| !one.loopback).map(|one| one.name.as_str()));
    diagnostic
        .at(wan.span.clone())
        .expected(format!("one of the interfaces present: {names}"))
        .help("set `wan` to the interface toward the long-haul link; `ip route` shows which one that is")
}

/// The gateway's own device exists while it runs; otherwise the name is another program's.
fn tun_is_free(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let has_tunnel = draft.peers.iter().any(|peer| tunnel::mode(draft, peer) == Some(Mode::Tunnel));
    let of_tunnel = draft.gateway.tunnel.as_ref().filter(|_| has_tunnel);
    let tuns = wans::tuns_of_draft(draft).into_iter().map(|tun| ("tun", tun));
    for (key, tun) in tuns.chain(of_tunnel.map(|tunnel| ("tunnel", tunnel.clone()))) {
        let is_wan = wans::of_draft(draft).iter().any(|wan| wan.value == tun.value);
        if facts.interface(&tun.value).is_none() || facts.gateway_answers() || is_wan {
            continue;
        }
        findings.add(
            Diagnostic::error("tun-exists", format!("the interface `{}` exists already", tun.value))
                .at(tun.span.clone())
                .expected("a free name: the gateway creates this device, and removes it when it ends")
                .help(format!(
                    "choose another `{key}`, or remove the device: ip link delete dev {}",
                    tun.value
                )),
        );
    }
}

fn listen_is_ours(draft: &Draft, facts: &Facts, interfaces: &[Interface], findings: &mut Findings) {
    let Some(listen) = &draft.gateway.listen else { return };
    let ip = listen.value.ip();
    let ours = |interface: &Interface| interface.addresses.contains(&ip);
    if !ip.is_unspecified() && !interfaces.iter().any(ours) {
        let wan = draft.gateway.wan.as_ref().map_or("", |wan| wan.value.as_str());
        let same_family = |address: &&std::net::IpAddr| address.is_ipv4() == ip.is_ipv4();
        let of_wan = facts.interface(wan).into_iter().flat_map(|interface| interface.addresses.iter());
        let present = listed(of_wan.filter(same_family).map(ToString::to_string).collect::<Vec<_>>().iter());
        let prefix = if ip.is_ipv4() { 24 } else { 64 };
        let expected = match wan {
            "" => "an address of this machine".to_owned(),
            _ => format!("an address of this machine; `{wan}` has {present}"),
        };
        let device = if wan.is_empty() { "IFACE" } else { wan };
        // A standby router gets the address when it takes over.
        let judge: fn(&'static str, String) -> Diagnostic =
            if facts.foreign_listen { Diagnostic::warning } else { Diagnostic::error };
        findings.add(
            judge("listen-not-local", format!("{ip} is not an address of this machine"))
                .at(listen.span.clone())
                .expected(expected)
                .help(format!("set `listen` to an address of this machine, or add the address: ip address add {ip}/{prefix} dev {device}")),
        );
    } else if facts.port_in_use && !facts.gateway_answers() {
        let port = listen.value.port();
        findings.add(
            Diagnostic::error("port-in-use", format!("another process holds UDP port {port} of {ip}"))
                .at(listen.span.clone())
                .help(format!(
                    "`ss -ulnp 'sport = :{port}'` shows the process; stop it, or choose another port on both \
                     sides"
                )),
        );
    }
}

/// The tap does not see packets that leave by another interface, so that they get no repairs. Packets for
/// peers in tunnel mode have a route when the gateway runs; that to the peer itself is needed all the same.
fn routes_lead_to_wan(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    for peer in &draft.peers {
        let Some(wan) = wans::of_peer(draft, peer) else { continue };
        // An absent interface, or one that is down, has no routes and was reported already.
        if facts.interface(wan).is_none_or(|interface| !interface.up) {
            continue;
        }
        // The routes do not decide by which interface the datagrams of a bound socket leave.
        let is_by_route = paths::of_listen(draft).is_none();
        let address = peer.address.iter().filter(|_| is_by_route).filter_map(fixed);
        let address = address.map(|a| (a.value.ip(), a.value.ip().to_string(), a.span));
        let networks = peer.networks.iter().filter(|_| tunnel::mode(draft, peer) != Some(Mode::Tunnel));
        let networks = networks.map(|n| (first_host(&n.value), n.value.to_string(), n.span.clone()));
        for (destination, shown, span) in address.chain(networks) {
            match facts.routes.get(&destination) {
                None => {}
                Some(None) => findings.add(
                    Diagnostic::warning("no-route", format!("there is no route to {shown}"))
                        .at(span)
                        .help(format!("ip route add {shown} via NEXTHOP dev {wan}")),
                ),
                Some(Some(route)) if route.interface == wan => {}
                Some(Some(route)) => findings.add(
                    Diagnostic::warning(
                        "other-interface",
                        format!(
                            "traffic to {shown} leaves through `{}`, not through `{wan}`",
                            route.interface
                        ),
                    )
                    .at(span)
                    .note("the gateway watches only `wan`: traffic on another interface is not protected")
                    .help(format!(
                        "set `wan` to `{}`, of this peer or of all, or correct the route to {shown}",
                        route.interface
                    )),
                ),
            }
        }
    }
}

/// A network of the far site that contains this site would let the peer inject packets in the name of hosts
/// here.
fn peers_are_elsewhere(draft: &Draft, interfaces: &[Interface], findings: &mut Findings) {
    // Its own address in a network has been reported.
    let listen = draft.gateway.listen.as_ref().map(|listen| listen.value.ip());
    let is_tun = |name: &str| draft.gateway.tun.as_ref().is_some_and(|tun| tun.value == name);
    let own: Vec<_> = interfaces
        .iter()
        .filter(|interface| !interface.loopback && !is_tun(&interface.name))
        .flat_map(|interface| interface.addresses.iter().map(move |address| (interface, address)))
        .filter(|(_, address)| Some(**address) != listen)
        .collect();
    for (index, peer) in draft.peers.iter().enumerate() {
        for network in &peer.networks {
            let inside = own.iter().find(|(_, address)| network.value.contains(*address));
            let Some((interface, address)) = inside else { continue };
            let message = format!(
                "{} of {} contains {address}, the address of `{}` on this machine",
                network.value,
                peer.label(index),
                interface.name
            );
            findings.add(
                Diagnostic::error("own-network", message)
                    .at(network.span.clone())
                    .expected("networks of the far site alone")
                    .note("the peer could inject packets that seem to come from hosts of this site")
                    .help(format!(
                        "set `networks` to the networks behind the peer; if {} has parts at both sites, list those of the far one",
                        network.value
                    )),
            );
        }
    }
}

fn listed<S: AsRef<str>>(names: impl Iterator<Item = S>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{}`", name.as_ref())).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
