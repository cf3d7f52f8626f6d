//! The local ends of paths: of further ones, and of the first if it is bound to an interface.

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};

use super::super::draft::Draft;
use super::super::paths::stated;
use super::super::types::PeerPath;
use super::facts::Facts;
use super::route::Interface;

/// Strict `rp_filter`.
const RP_FILTER_STRICT: u32 = 1;

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(interfaces) = &facts.interfaces else { return };
    for path in draft.peers.iter().flat_map(stated) {
        address_is_ours(path, interfaces, findings);
    }
    listen_is_of_its_interface(draft, interfaces, findings);
    for name in bound(draft) {
        interface_is_there(&name, interfaces, findings);
        answers_pass(&name, facts, findings);
    }
}

/// The interfaces to which paths are bound, with the places that name them.
pub(super) fn bound(draft: &Draft) -> Vec<Setting<String>> {
    let of_path = |path: &Setting<PeerPath>| {
        let name = path.value.interface.clone()?;
        Some(Setting { value: name, span: path.span.clone() })
    };
    let further = draft.peers.iter().flat_map(stated).filter_map(of_path);
    of_listen(draft).into_iter().chain(further).collect()
}

/// The interface to which the first paths are bound.
pub(super) fn of_listen(draft: &Draft) -> Option<Setting<String>> {
    let setting = draft.gateway.listen_interface.as_ref()?;
    Some(Setting { value: setting.value.clone()?, span: setting.span.clone() })
}

/// A modem that is not connected has no interface.
fn interface_is_there(name: &Setting<String>, interfaces: &[Interface], findings: &mut Findings) {
    if !interfaces.iter().any(|interface| interface.name == name.value) {
        findings.add(
            Diagnostic::warning(
                "path-interface-absent",
                format!("there is no interface `{}` on this machine", name.value),
            )
            .at(name.span.clone())
            .note("the gateway starts without this path, and tries it each second")
            .help("correct the name if it is wrong; `ip -br link` lists the interfaces"),
        );
    }
}

/// The kernel sends by the interface all the same.
fn listen_is_of_its_interface(draft: &Draft, interfaces: &[Interface], findings: &mut Findings) {
    let (Some(listen), Some(name)) = (&draft.gateway.listen, of_listen(draft)) else { return };
    let ip = listen.value.ip();
    let has = |one: &&Interface| one.addresses.contains(&ip);
    // An interface that is missing, and an address that none has, are told as such.
    let is_there = interfaces.iter().any(|one| one.name == name.value);
    let owner = interfaces.iter().find(has).filter(|one| is_there && one.name != name.value);
    if let Some(owner) = owner {
        findings.add(
            Diagnostic::warning("path-from-elsewhere", format!("{ip} is an address of `{}`, not of `{}`", owner.name, name.value))
                .at(listen.span.clone())
                .note(format!("datagrams leave by `{}` with this address, which a provider may drop, and answers to it may come by `{}`", name.value, owner.name))
                .help(format!("set `listen` to an address of `{}`, or, where that changes, to `0.0.0.0` or `[::]` with a port", name.value)),
        );
    }
}

fn address_is_ours(path: &Setting<PeerPath>, interfaces: &[Interface], findings: &mut Findings) {
    let Some(local) = path.value.local.filter(|local| !local.ip().is_unspecified()) else { return };
    let is_there = |name: &String| interfaces.iter().any(|interface| interface.name == *name);
    let is_by = |one: &Interface| path.value.interface.as_ref().is_none_or(|name| one.name == *name);
    let mut own = interfaces.iter().filter(|one| is_by(one)).flat_map(|one| &one.addresses);
    // An interface that is missing is told as such.
    if path.value.interface.as_ref().is_none_or(is_there) && !own.any(|address| *address == local.ip()) {
        let of = path.value.interface.as_ref().map_or("this machine".to_owned(), |name| format!("`{name}`"));
        findings.add(
            Diagnostic::warning("path-not-local", format!("{} is not an address of {of}", local.ip()))
                .at(path.span.clone())
                .note("the gateway starts without this path, and tries it each second")
                .help("set `local` to an address of this machine, or, where it changes, to `0.0.0.0` or `[::]` with a port"),
        );
    }
}

/// The kernel drops what arrives by another interface than the one by which the answer would leave, and only
/// one of two uplinks to the same address is that. The larger of two settings holds, where loose is larger
/// than strict.
fn answers_pass(name: &Setting<String>, facts: &Facts, findings: &mut Findings) {
    let Setting { value: name, span } = name;
    let settings = [facts.rp_filter_all, facts.rp_filter_of.get(name).copied()];
    if settings.into_iter().flatten().max() != Some(RP_FILTER_STRICT) {
        return;
    }
    findings.add(
        Diagnostic::warning(
            "path-rp-filter",
            format!("rp_filter is strict, and may drop what arrives by `{name}`"),
        )
        .at(span.clone())
        .help(format!(
            "sysctl -w net.ipv4.conf.{name}.rp_filter=2, unless the route to the peer leads by this interface"
        )),
    );
}
