//! The interfaces toward long-haul links: that of `[gateway]`, and those of peers in passive mode that have
//! one of their own.

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};

use super::draft::{Draft, GatewayConfig, PeerDraft};
use super::rack;
use super::tunnel;
use super::types::{Mode, Peer};

/// Maximum number of interfaces.
pub(crate) const WANS_MAX: usize = 8;

/// Length of the longest name of an interface (linux/if.h).
const NAME_MAX: usize = 15;

impl GatewayConfig {
    /// The interfaces, each once. The first one is that of `[gateway]`.
    pub(crate) fn wans(&self) -> Vec<&str> {
        let mut wans = vec![self.gateway.wan.as_str()];
        for wan in self.peers.iter().map(|peer| self.wan_of(peer)) {
            if !wans.contains(&wan) {
                wans.push(wan);
            }
        }
        wans
    }

    /// The interface by which packets of a peer pass.
    pub(crate) fn wan_of<'c>(&'c self, peer: &'c Peer) -> &'c str {
        peer.wan.as_ref().unwrap_or(&self.gateway.wan)
    }

    /// For each peer the number of its interface.
    pub(crate) fn wan_numbers(&self) -> Vec<usize> {
        let wans = self.wans();
        let number = |peer| wans.iter().position(|wan| *wan == self.wan_of(peer)).unwrap_or_default();
        self.peers.iter().map(number).collect()
    }

    /// Whether packets of a peer in passive mode pass an interface, given by its number.
    pub(crate) fn is_watched(&self, wan: usize) -> bool {
        let is_there = |(peer, number): (&Peer, usize)| number == wan && peer.mode == Mode::Passive;
        self.peers.iter().zip(self.wan_numbers()).any(is_there)
    }

    /// The TUN device by which recovered packets of an interface enter, given by its number.
    pub(crate) fn tun_of(&self, wan: usize) -> String {
        tun_of(&self.gateway.tun, wan)
    }
}

fn tun_of(tun: &str, wan: usize) -> String {
    if wan == 0 { tun.to_owned() } else { format!("{tun}.{wan}") }
}

/// Finds interfaces of peers that cannot have one of their own, and devices without a name.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    let own = draft.peers.iter().filter_map(|peer| Some((peer, stated(peer)?)));
    own.clone().for_each(|(peer, wan)| one(draft, peer, wan, findings));
    let mut names: Vec<&str> = Vec::new();
    let mut last = None;
    for (_, wan) in own {
        let of_gateway = draft.gateway.wan.as_ref().is_some_and(|first| first.value == *wan.0);
        if !of_gateway && !names.contains(&wan.0) {
            names.push(wan.0);
            last = Some(wan.1);
        }
    }
    let Some(last) = last else { return };
    if names.len() >= WANS_MAX {
        findings.add(
            Diagnostic::error("out-of-range", "peers have too many interfaces")
                .at(last.span.clone())
                .expected(format!("at most {WANS_MAX} interfaces, with that of `[gateway]`"))
                .seen((names.len() + 1).to_string()),
        );
    }
    let Some(tun) = &draft.gateway.tun else { return };
    let longest = tun_of(&tun.value, names.len());
    if longest.len() > NAME_MAX {
        findings.add(
            Diagnostic::error("out-of-range", "the names of further TUN devices are too long")
                .at(tun.span.clone().or(last.span.clone()))
                .expected(format!(
                    "a `tun` of at most {} characters",
                    NAME_MAX - (longest.len() - tun.value.len())
                ))
                .seen(format!(
                    "`{longest}`, for recovered packets of another interface than that of `[gateway]`"
                ))
                .help("choose a shorter `tun`"),
        );
    }
}

/// The interfaces of a draft, each once, with their places.
pub(super) fn of_draft(draft: &Draft) -> Vec<Setting<String>> {
    let of_peers = draft.peers.iter().filter_map(stated);
    let of_peers = of_peers.map(|(name, wan)| Setting { value: name.to_owned(), span: wan.span.clone() });
    let mut wans: Vec<Setting<String>> = Vec::new();
    for wan in draft.gateway.wan.iter().cloned().chain(of_peers) {
        if wans.iter().all(|other| other.value != wan.value) {
            wans.push(wan);
        }
    }
    wans
}

/// The TUN devices by which recovered packets enter, one for each interface.
pub(super) fn tuns_of_draft(draft: &Draft) -> Vec<Setting<String>> {
    let Some(tun) = &draft.gateway.tun else { return Vec::new() };
    let named = |wan| Setting { value: tun_of(&tun.value, wan), span: tun.span.clone() };
    (0..of_draft(draft).len().max(1)).map(named).collect()
}

/// The interface by which packets of a peer pass.
pub(super) fn of_peer<'d>(draft: &'d Draft, peer: &'d PeerDraft) -> Option<&'d str> {
    let of_gateway = draft.gateway.wan.as_ref().map(|wan| wan.value.as_str());
    stated(peer).map(|(name, _)| name).or(of_gateway)
}

type Stated<'d> = (&'d str, &'d Setting<Option<String>>);

fn stated(peer: &PeerDraft) -> Option<Stated<'_>> {
    let wan = peer.wan.as_ref()?;
    Some((wan.value.as_deref()?, wan))
}

fn one(draft: &Draft, peer: &PeerDraft, (name, wan): Stated<'_>, findings: &mut Findings) {
    if tunnel::mode(draft, peer) == Some(Mode::Tunnel) {
        findings.add(
            Diagnostic::error("foreign-setting", "a peer in tunnel mode has a `wan`")
                .at(wan.span.clone())
                .note("routes decide by which interface its datagrams leave")
                .help("leave it out; an `interface` of one of its `paths` fixes that of a path"),
        );
    }
    let gateway = &draft.gateway;
    let of_gateway = gateway.wan.as_ref().map(|wan| wan.value.as_str());
    let carrier = peer.carrier.as_ref().filter(|carrier| carrier.value.is_some());
    if let Some(carrier) = carrier.filter(|_| of_gateway != Some(name)) {
        findings.add(
            Diagnostic::error("foreign-setting", "a peer with a `wan` of its own has a `carrier`")
                .at(wan.span.clone())
                .related(carrier.span.clone(), "`carrier` is here")
                .expected("connections that are split pass the `wan` of `[gateway]`")
                .help("leave `carrier` out, or let the `wan` of `[gateway]` be that of this peer"),
        );
    }
    let tuns = tuns_of_draft(draft).into_iter().map(|tun| ("tun", tun));
    for (key, other) in tuns.chain(gateway.tunnel.clone().map(|tunnel| ("tunnel", tunnel))) {
        if other.value != name {
            continue;
        }
        findings.add(
            Diagnostic::error(
                "same-interface",
                format!("`wan` of a peer and `{key}` name the same interface"),
            )
            .at(wan.span.clone())
            .related(other.span.clone(), format!("`{key}` is here"))
            .expected("the interface toward a long-haul link")
            .seen(format!("\"{name}\"")),
        );
    }
    let differs = |other: &&PeerDraft| {
        rack::is_same(peer, other) && stated(other).map(|(name, _)| name).or(of_gateway) != Some(name)
    };
    if let Some(other) = draft.peers.iter().find(differs) {
        findings.add(
            Diagnostic::error("rack-wan", "the gateways of a far rack have different interfaces here")
                .at(wan.span.clone())
                .related(other.rack.as_ref().and_then(|rack| rack.span.clone()), "another gateway is here")
                .expected("the same `wan` for all of them: packets of their site pass one interface"),
        );
    }
}
