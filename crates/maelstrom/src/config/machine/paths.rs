//! The local ends of further paths.

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
        interface_is_there(path, interfaces, findings);
        address_is_ours(path, interfaces, findings);
        answers_pass(path, facts, findings);
    }
}

/// A modem that is not connected has no interface.
fn interface_is_there(path: &Setting<PeerPath>, interfaces: &[Interface], findings: &mut Findings) {
    let Some(name) = &path.value.interface else { return };
    if !interfaces.iter().any(|interface| interface.name == *name) {
        findings.add(
            Diagnostic::warning(
                "path-interface-absent",
                format!("there is no interface `{name}` on this machine"),
            )
            .at(path.span.clone())
            .note("the gateway starts without this path, and tries it each second")
            .help("correct `interface` if the name is wrong; `ip -br link` lists the interfaces"),
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
fn answers_pass(path: &Setting<PeerPath>, facts: &Facts, findings: &mut Findings) {
    let Some(name) = path.value.interface.as_ref() else { return };
    let settings = [facts.rp_filter_all, facts.rp_filter_of.get(name).copied()];
    if settings.into_iter().flatten().max() != Some(RP_FILTER_STRICT) {
        return;
    }
    findings.add(
        Diagnostic::warning(
            "path-rp-filter",
            format!("rp_filter is strict, and may drop what arrives by `{name}`"),
        )
        .at(path.span.clone())
        .help(format!(
            "sysctl -w net.ipv4.conf.{name}.rp_filter=2, unless the route to the peer leads by this interface"
        )),
    );
}
