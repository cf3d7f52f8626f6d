//! Checks of values against each other: each is correct by itself, but together they are not.

use std::net::{IpAddr, SocketAddr};

use diagnostics::settings::{Draft as _, Section as _, Setting};
use diagnostics::{Diagnostic, Findings};
use ipnet::IpNet;
use maelstrom_core::{Protect, Schedule, Scheme};

use super::caps;
use super::draft::{Draft, PeerDraft};
use super::keys::CodeKeys;
use super::types::{PeerAddress, SchemeChoice};
use super::{memory, multicast, paths, rack, split, tunnel, wans};

/// Runs all cross checks. Values that could not be read take no part in them.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    interfaces_differ(draft, findings);
    settings_fit_the_scheme(draft, findings);
    interleaves_mix(draft, findings);
    windows_reach(draft, findings);
    classes_have_a_window(draft, findings);
    caps::check(draft, findings);
    peers_differ(&draft.peers, findings);
    families_agree(draft, findings);
    networks_are_disjoint(&draft.peers, findings);
    sites_are_apart(draft, findings);
    gateways_stand_outside(draft, findings);
    memory::check(draft, findings);
    split::check(draft, findings);
    paths::check(draft, findings);
    tunnel::check(draft, findings);
    multicast::check(draft, findings);
    wans::check(draft, findings);
    rack::check(draft, findings);
}

fn interfaces_differ(draft: &Draft, findings: &mut Findings) {
    let gateway = &draft.gateway;
    let names = [("wan", &gateway.wan), ("tun", &gateway.tun), ("tunnel", &gateway.tunnel)];
    for (at, (own, name)) in names.iter().enumerate() {
        for (other, former) in &names[..at] {
            let (Some(name), Some(former)) = (name, former) else { continue };
            if name.value == former.value {
                findings.add(
                    Diagnostic::error(
                        "same-interface",
                        format!("`{other}` and `{own}` name the same interface"),
                    )
                    .at(name.span.clone().or(former.span.clone()))
                    .related(former.span.clone(), format!("`{other}` is here"))
                    .expected(format!("another name for `{own}`: the gateway creates that device"))
                    .seen(format!("\"{}\"", name.value))
                    .help(format!("leave `{own}` out")),
                );
            }
        }
    }
}

/// A setting of another scheme is a mistake: the code would not be the one that the author of the file
/// expects.
fn settings_fit_the_scheme(draft: &Draft, findings: &mut Findings) {
    let code = &draft.code;
    let Some(scheme) = &code.scheme else { return };
    let chosen = scheme.value.word();
    let keys = CodeKeys::keys();
    for key in keys.iter().filter(|key| !key.fits(chosen)) {
        let (Some(place), Some(only)) = (code.span_of(key.name), key.only) else { continue };
        let owners = only.words.join("\"` or `\"");
        let own = keys.iter().filter(|key| key.name != "scheme" && key.fits(chosen));
        let own: Vec<String> = own.map(|key| format!("`{}`", key.name)).collect();
        let message =
            format!("`{}` belongs to `scheme = \"{owners}\"`, but the scheme is \"{chosen}\"", key.name);
        findings.add(
            Diagnostic::error("foreign-setting", message)
                .at(place)
                .related(scheme.span.clone(), "`scheme` is here")
                .expected(format!("keys of this scheme: {}", own.join(", ")))
                .help(format!("leave it out, or set `scheme = \"{owners}\"`")),
        );
    }
}

/// Two layers share more than one packet of a bin if the least common multiple of their interleaves is at
/// most r times the smaller one (Maelstrom §4.4). A burst that defeats one of them then tends to defeat the
/// other.
fn interleaves_mix(draft: &Draft, findings: &mut Findings) {
    let code = &draft.code;
    let (Some(r), Some(interleaves)) = (&code.r, &code.interleaves) else { return };
    if code.scheme.as_ref().is_none_or(|scheme| scheme.value != SchemeChoice::Fixed(Scheme::Layered)) {
        return;
    }
    let values = &interleaves.value;
    for (index, &second) in values.iter().enumerate() {
        for &first in &values[..index] {
            let (small, large) = (first.min(second), first.max(second));
            let multiple = u32::from(small) / gcd(small, large) * u32::from(large);
            if multiple <= u32::from(r.value) * u32::from(small) {
                findings.add(
                    Diagnostic::warning(
                        "interleaves-overlap",
                        format!("the layers with interleaves {small} and {large} repeat each other"),
                    )
                    .at(interleaves.span.clone().or(r.span.clone()))
                    .expected(format!("a least common multiple above r x {small} = {}", u32::from(r.value) * u32::from(small)))
                    .seen(multiple.to_string())
                    .note("their repairs share several packets, so that together they recover less than they cost")
                    .help("choose interleaves without a common divisor, the larger ones above r, such as \
                         `[1, 11, 19]` for r = 8"),
                );
            }
        }
    }
}

/// A window must reach from one repair to the next, or some packets are in no repair. It should also reach
/// over all repairs that name a packet, or the later copies of its name are lost.
fn windows_reach(draft: &Draft, findings: &mut Findings) {
    let code = &draft.code;
    let Some(schedule @ Schedule::Sliding { rate, window, .. }) = code.schedule() else { return };
    let (least, window) = (schedule.window_min(), usize::from(window));
    let named = schedule.names().max(least);
    let finding = if window < least {
        Diagnostic::error("window-too-short", "some packets would be in no repair")
            .expected(format!(
                "`window` of at least {least}, the number of packets between two repairs at the rate {rate}"
            ))
            .help(format!("raise `window` to {named} or more, or raise `rate`"))
    } else if window < named {
        Diagnostic::warning(
            "window-short",
            "packets leave the window before all copies of their names are sent",
        )
        .expected(format!("`window` of at least {named} at the rate {rate}"))
        .note("a packet whose names are all lost counts as lost until others have been recovered")
        .help(format!("raise `window` to {named} or more, or raise `rate`"))
    } else {
        return;
    };
    let [window_at, rate_at] = ["window", "rate"].map(|key| code.span_of(key));
    let finding = finding.at(window_at.clone().or(rate_at.clone())).seen(window.to_string());
    findings.add(match (window_at, rate_at) {
        (Some(_), Some(rate_at)) => finding.related(Some(rate_at), "`rate` is here"),
        _ => finding,
    });
}

/// Only a window can send more repairs for some packets. Two classes of one name could not be told apart.
fn classes_have_a_window(draft: &Draft, findings: &mut Findings) {
    let fixed = [Scheme::Layered, Scheme::ReedSolomon].map(SchemeChoice::Fixed);
    let scheme = draft.code.scheme.as_ref().filter(|scheme| fixed.contains(&scheme.value));
    for (index, class) in draft.classes.iter().enumerate() {
        let rate = class.protect.as_ref().filter(|protect| matches!(protect.value, Protect::AtLeast(_)));
        if let (Some(rate), Some(scheme)) = (rate, scheme) {
            let message = format!("a class has a rate, but the scheme is \"{}\"", scheme.value);
            findings.add(
                Diagnostic::error("foreign-setting", message)
                    .at(rate.span.clone())
                    .related(scheme.span.clone(), "`scheme` is here")
                    .help("set `scheme = \"auto\"` or `scheme = \"sliding\"`, or `protect = \"auto\"`"),
            );
        }
        let is_off = class.protect.as_ref().is_some_and(|protect| protect.value == Protect::Off);
        if let Some(late) = class.late_ms.as_ref().filter(|late| is_off && late.value.is_some()) {
            findings.add(
                Diagnostic::error("foreign-setting", "a class without repairs has a `late_ms`")
                    .at(late.span.clone())
                    .related(
                        class.protect.as_ref().and_then(|protect| protect.span.clone()),
                        "`protect` is here",
                    )
                    .help("leave it out, or set `protect = \"auto\"`"),
            );
        }
        let Some(name) = &class.name else { continue };
        let twin = draft.classes[..index].iter().filter_map(|class| class.name.as_ref());
        if let Some(twin) = twin.into_iter().find(|twin| twin.value == name.value) {
            findings.add(
                Diagnostic::error("duplicate-class", format!("two classes have the name `{}`", name.value))
                    .at(name.span.clone())
                    .related(twin.span.clone(), "the other one is here")
                    .help("give each class a name of its own"),
            );
        }
    }
}

fn gcd(a: u16, b: u16) -> u32 {
    let (mut a, mut b) = (u32::from(a), u32::from(b));
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn peers_differ(peers: &[PeerDraft], findings: &mut Findings) {
    for (index, peer) in peers.iter().enumerate() {
        let earlier = || peers[..index].iter();
        if let Some(address) = peer.address.as_ref().filter(|address| address.value != PeerAddress::Any)
            && let Some(twin) =
                earlier().filter_map(|p| p.address.as_ref()).find(|a| a.value == address.value)
        {
            findings.add(
                Diagnostic::error("duplicate-peer", format!("two peers have the address {}", address.value))
                    .at(address.span.clone())
                    .related(twin.span.clone(), "the other one is here")
                    .help("put the networks of one far site into one `[[peer]]` section"),
            );
        }
        if let Some(name @ Setting { value: Some(text), .. }) = &peer.name
            && let Some(twin) = earlier().filter_map(|p| p.name.as_ref()).find(|n| n.value == name.value)
        {
            findings.add(
                Diagnostic::error("duplicate-peer", format!("two peers have the name `{text}`"))
                    .at(name.span.clone())
                    .related(twin.span.clone(), "the other one is here")
                    .help("give each peer a name of its own, or none"),
            );
        }
        if let (Some(address), Some(Setting { value: None, .. })) = (&peer.address, &peer.name)
            && address.value == PeerAddress::Any
        {
            findings.add(
                Diagnostic::error("nameless-peer", "a peer whose address is `any` has no name")
                    .at(address.span.clone())
                    .expected("a `name`, by which logs, tables and metrics tell this peer from others")
                    .help("add a line such as `name = \"osaka\"` to this `[[peer]]`"),
            );
        }
        keys_differ(peer, &peers[..index], findings);
    }
}

fn keys_differ(peer: &PeerDraft, earlier: &[PeerDraft], findings: &mut Findings) {
    let keys = |peer: &'_ PeerDraft| [peer.key.clone(), peer.next_key.clone()].into_iter().flatten();
    if let (Some(key), Some(next)) = (&peer.key, &peer.next_key)
        && key.value == next.value
    {
        findings.add(
            Diagnostic::error("same-key", "`key_file` and `next_key_file` have the same key")
                .at(next.span.clone())
                .related(key.span.clone(), "`key_file` is here")
                .expected("a new key in `next_key_file`")
                .help("leave `next_key_file` out if the change of the key is over at both ends"),
        );
    }
    for key in keys(peer) {
        let Some(twin) = earlier.iter().flat_map(keys).find(|twin| twin.value == key.value) else { continue };
        findings.add(
            Diagnostic::error("shared-key", "two peers share a key")
                .at(key.span)
                .related(twin.span, "the other one is here")
                .note("with a shared key, one peer could send repairs in the name of the other")
                .help("make a key for each pair of gateways: undrop gateway genkey --out FILE"),
        );
    }
}

fn families_agree(draft: &Draft, findings: &mut Findings) {
    let Some(listen) = &draft.gateway.listen else { return };
    for peer in &draft.peers {
        let Some(address) = peer.address.as_ref().and_then(fixed) else { continue };
        if address.value == listen.value {
            findings.add(
                Diagnostic::error(
                    "peer-is-self",
                    format!("the peer's address {} is this gateway's own", listen.value),
                )
                .at(address.span.clone())
                .related(listen.span.clone(), "`listen` is here")
                .help("set it to the far gateway's `listen`"),
            );
        }
        if address.value.is_ipv4() != listen.value.is_ipv4() {
            findings.add(
                Diagnostic::error("family-mismatch", "repairs cannot travel between IPv4 and IPv6")
                    .at(address.span.clone())
                    .related(listen.span.clone(), format!("`listen` is {}", family(&listen.value)))
                    .expected(format!("an {} address", family(&listen.value)))
                    .seen(format!("{}, {}", address.value, family(&address.value)))
                    .help("use one family for `listen` and every peer's `address`; `networks` may have both"),
            );
        }
    }
}

/// An address that need not be looked up, with its place.
pub(super) fn fixed(address: &Setting<PeerAddress>) -> Option<Setting<SocketAddr>> {
    Some(Setting { value: address.value.fixed()?, span: address.span.clone() })
}

fn family(address: &SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// A network and the peer that it belongs to.
struct Claim<'a> {
    peer: usize,
    setting: &'a Setting<IpNet>,
}

/// Two networks are either nested or disjoint. They are sorted by first address, larger networks first, so
/// that a stack holds the networks around the one under test.
fn networks_are_disjoint(peers: &[PeerDraft], findings: &mut Findings) {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    // The gateways of a rack have the same networks, which their own check compares.
    let is_first = |peer: &usize| !peers[..*peer].iter().any(|other| rack::is_same(other, &peers[*peer]));
    for (peer, draft) in peers.iter().enumerate().filter(|(peer, _)| is_first(peer)) {
        claims.extend(draft.networks.iter().map(|setting| Claim { peer, setting }));
    }
    claims.sort_by_key(|claim| (claim.setting.value.network(), claim.setting.value.prefix_len()));
    let mut stack: Vec<&Claim<'_>> = Vec::new();
    for claim in &claims {
        while stack.last().is_some_and(|outer| !outer.setting.value.contains(&claim.setting.value)) {
            stack.pop();
        }
        let foreign = stack.iter().rev().find(|outer| outer.peer != claim.peer);
        if let Some(outer) = foreign {
            findings.add(overlap(peers, claim, outer));
        } else if let Some(outer) = stack.last() {
            findings.add(redundant(claim.setting, outer.setting));
        }
        stack.push(claim);
    }
}

/// A peer's network inside one of this site would never be protected, because its packets count as ours. One
/// around a network of this site would let the peer inject packets in the name of hosts here.
fn sites_are_apart(draft: &Draft, findings: &mut Findings) {
    let Some(Setting { value: Some(local), .. }) = &draft.gateway.local_networks else { return };
    for (index, peer) in draft.peers.iter().enumerate() {
        for theirs in &peer.networks {
            let meets = |ours: &&Setting<IpNet>| {
                ours.value.contains(&theirs.value) || theirs.value.contains(&ours.value)
            };
            let Some(ours) = local.iter().find(meets) else { continue };
            let is_inside = ours.value.contains(&theirs.value);
            let message = format!(
                "{} of {} {} {}, a network of this site",
                theirs.value,
                peer.label(index),
                if is_inside { "lies inside" } else { "contains" },
                ours.value
            );
            findings.add(
                Diagnostic::error("overlapping-networks", message)
                    .at(theirs.span.clone())
                    .related(ours.span.clone(), format!("{} is here", ours.value))
                    .expected("networks of one site each")
                    .help(if is_inside {
                        "set `local_networks` to the networks behind this gateway, without those of the peer"
                    } else {
                        "set `networks` to the networks behind the peer, without those of this site"
                    }),
            );
        }
    }
}

fn overlap(peers: &[PeerDraft], claim: &Claim<'_>, outer: &Claim<'_>) -> Diagnostic {
    let (inner, whole) = (&claim.setting.value, &outer.setting.value);
    let (mine, theirs) = (peers[claim.peer].label(claim.peer), peers[outer.peer].label(outer.peer));
    Diagnostic::error("overlapping-networks", format!("{inner} of {mine} overlaps {whole} of {theirs}"))
        .at(claim.setting.span.clone())
        .related(outer.setting.span.clone(), format!("{whole} is here"))
        .expected("networks that belong to one peer only: a packet is protected toward one far site")
        .help(format!("take {inner} out of one of the two, or split {whole}"))
}

fn redundant(inner: &Setting<IpNet>, whole: &Setting<IpNet>) -> Diagnostic {
    Diagnostic::warning("redundant-network", format!("{} is already part of {}", inner.value, whole.value))
        .at(inner.span.clone())
        .related(whole.span.clone(), format!("{} is here", whole.value))
        .help("leave one of them out")
}

/// A gateway must not be inside a protected network, or its repairs would be protected by further repairs.
fn gateways_stand_outside(draft: &Draft, findings: &mut Findings) {
    let first = draft.peers.iter().filter_map(|peer| peer.address.as_ref().and_then(fixed));
    let further = draft.peers.iter().flat_map(paths::stated);
    let further = further
        .filter_map(|path| Some(Setting { value: path.value.address.fixed()?, span: path.span.clone() }));
    for address in first.chain(further) {
        if let Some((owner, network)) = network_around(&draft.peers, address.value.ip()) {
            let message = format!(
                "the address {} lies inside {}, a network of {owner}",
                address.value.ip(),
                network.value
            );
            findings.add(
                Diagnostic::error("peer-inside-network", message)
                    .at(address.span.clone())
                    .related(network.span.clone(), format!("{} is here", network.value))
                    .note("repairs to that address would themselves be protected by repairs")
                    .help(format!(
                        "list smaller networks that do not contain {}, or give the peer an address outside \
                         them",
                        address.value.ip()
                    )),
            );
        }
    }
    let Some(listen) = &draft.gateway.listen else { return };
    if let Some((owner, network)) = network_around(&draft.peers, listen.value.ip()) {
        let message = format!("`listen` lies inside {}, a network of {owner}", network.value);
        findings.add(
            Diagnostic::error("listen-inside-network", message)
                .at(listen.span.clone())
                .related(network.span.clone(), format!("{} is here", network.value))
                .expected("`networks` of the far site")
                .seen(format!("a network with this gateway's own address {}", listen.value.ip()))
                .help("set `networks` to the networks behind the peer, not to those of this site"),
        );
    }
}

/// The network that contains the address, and its peer.
fn network_around(peers: &[PeerDraft], ip: IpAddr) -> Option<(String, &Setting<IpNet>)> {
    if ip.is_unspecified() {
        return None;
    }
    peers.iter().enumerate().find_map(|(index, peer)| {
        let network = peer.networks.iter().find(|network| network.value.contains(&ip))?;
        Some((peer.label(index), network))
    })
}
