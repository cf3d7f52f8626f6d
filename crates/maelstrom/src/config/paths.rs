//! Further paths to a peer, `[[peer.paths]]`: their form, and checks against the rest of the file.

use diagnostics::settings::{Fault, Faults, Form, Setting, Text, Value, interface_name};
use diagnostics::{Diagnostic, Findings};
use maelstrom_core::PathUse;

use super::draft::{Draft, PeerDraft};
use super::types::{Mode, PeerAddress, PeerPath};
use super::{tunnel, values};

/// Maximum number of further paths to a peer.
pub(super) const FURTHER_MAX: usize = maelstrom_core::PATHS_MAX - 1;

/// Words of `use`.
pub(super) const USES: [(&str, PathUse); 3] = {
    let [failover, duplicate, spread] = PathUse::ALL;
    [(failover.word(), failover), (duplicate.word(), duplicate), (spread.word(), spread)]
};

/// Keys of a path.
const KEYS: [&str; 3] = ["address", "local", "interface"];

/// The table of a path.
pub(super) struct PathTable;

impl Form<PeerPath> for PathTable {
    fn expected(&self) -> String {
        "a table with the `address` of the peer on this path, and with `local`, or `local` and `interface`"
            .to_owned()
    }

    fn parse(&self, value: &Value<'_>, faults: &mut Faults) -> Option<PeerPath> {
        let Some(table) = value.get_ref().as_table() else {
            let fault = Fault::new("wrong-type", "has the wrong type");
            faults.add(value.span(), fault.seen(value.get_ref().type_str()));
            return None;
        };
        let (mut address, mut local, mut interface, mut is_good) = (None, None, None, true);
        for (key, value) in table.iter() {
            let is_read = match key.get_ref().as_ref() {
                "address" => read(&mut address, Text::new("", values::peer_address).parse(value, faults)),
                "local" => read(&mut local, Text::new("", values::own_address).parse(value, faults)),
                "interface" => read(&mut interface, interface_name().parse(value, faults)),
                unknown => {
                    faults.add(key.span(), Fault::unknown("key", unknown, KEYS));
                    false
                }
            };
            is_good &= is_read;
        }
        if !is_good {
            return None;
        }
        let Some(address) = address else {
            let fault = Fault::bad("has a path without `address`");
            faults.add(value.span(), fault.help("state the address of the peer on this path"));
            return None;
        };
        Some(PeerPath { address, local, interface })
    }
}

/// Stores a value, if there is one.
fn read<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    let is_good = value.is_some();
    *place = value;
    is_good
}

/// Compares the paths of each peer with its mode, and with each other.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    for peer in &draft.peers {
        let paths = stated(peer);
        belong_to_a_tunnel(draft, peer, paths, findings);
        for (index, path) in paths.iter().enumerate() {
            has_an_own_end(draft, path, findings);
            is_of_one_family(draft, path, findings);
            differs(draft, peer, path, &paths[..index], findings);
        }
    }
}

/// The further paths in the file.
pub(super) fn stated(peer: &PeerDraft) -> &[Setting<PeerPath>] {
    peer.paths.as_ref().and_then(|paths| paths.value.as_deref()).unwrap_or_default()
}

fn belong_to_a_tunnel(draft: &Draft, peer: &PeerDraft, paths: &[Setting<PeerPath>], findings: &mut Findings) {
    let stated_use = peer.path_use.as_ref().filter(|path_use| path_use.span.is_some());
    if let Some(path_use) = stated_use.filter(|_| paths.is_empty() && peer.paths.is_some()) {
        findings.add(
            Diagnostic::error("foreign-setting", "a peer with one path has a `use`")
                .at(path_use.span.clone())
                .help("leave it out, or state further `paths`"),
        );
    }
    if let Some(path) = paths.first().filter(|_| tunnel::mode(draft, peer) == Some(Mode::Passive)) {
        findings.add(
            Diagnostic::error("foreign-setting", "a peer in passive mode has several paths")
                .at(path.span.clone())
                .note("the kernel forwards its packets, and a gateway does not choose their path")
                .help("set `mode = \"tunnel\"` at both ends, or leave `paths` out"),
        );
    }
}

/// Where the datagrams of a path leave: its own address, or an interface.
fn has_an_own_end(draft: &Draft, path: &Setting<PeerPath>, findings: &mut Findings) {
    let PeerPath { local, interface, .. } = &path.value;
    let at = |finding: Diagnostic| finding.at(path.span.clone());
    let listen = draft.gateway.listen.as_ref().map(|listen| listen.value);
    match (local, interface) {
        (None, None) => {}
        (None, Some(name)) => findings.add(
            at(Diagnostic::error("path-without-local", format!("the path by `{name}` has no `local`")))
                .expected("an address and port of this gateway, to which the peer sends on this path")
                .help(
                    "add one; with an address that changes, `local = \"0.0.0.0:4701\"`, or `\"[::]:4701\"`",
                ),
        ),
        (Some(local), None) if local.ip().is_unspecified() => findings.add(
            at(Diagnostic::error(
                "path-without-interface",
                format!("the path from {local} has no `interface`"),
            ))
            .note("its datagrams would leave as those of the first path do")
            .help("add `interface`, or state an address of this machine as `local`"),
        ),
        (Some(local), Some(_)) if listen.is_some_and(|listen| listen.port() == local.port()) => findings.add(
            at(Diagnostic::error("same-port", format!("the path from {local} has the port of `listen`")))
                .expected("a port of its own for a path with an `interface`")
                .help(format!(
                    "choose another port, such as {}",
                    local.port().checked_add(1).unwrap_or(4701)
                )),
        ),
        _ => {}
    }
}

fn is_of_one_family(draft: &Draft, path: &Setting<PeerPath>, findings: &mut Findings) {
    let PeerPath { local, address, .. } = &path.value;
    // The overhead of all datagrams to a peer is the same.
    let listen = draft.gateway.listen.as_ref().map(|listen| listen.value);
    let ends = [*local, address.fixed()].into_iter().flatten();
    let other = listen.and_then(|listen| ends.into_iter().find(|end| end.is_ipv4() != listen.is_ipv4()));
    if let (Some(other), Some(listen)) = (other, listen) {
        findings.add(
            Diagnostic::error("family-mismatch", "a path cannot lead from IPv4 to IPv6")
                .at(path.span.clone())
                .seen(format!("{other}, and {listen} as `listen`"))
                .help("use one family for `listen`, and for every `address` and `local`"),
        );
    }
}

fn differs(
    draft: &Draft,
    peer: &PeerDraft,
    path: &Setting<PeerPath>,
    earlier: &[Setting<PeerPath>],
    findings: &mut Findings,
) {
    let ends = |path: &PeerPath| (path.local, path.interface.clone(), path.address.clone());
    let listen = draft.gateway.listen.as_ref().map(|listen| listen.value);
    let first = peer.address.as_ref().and_then(|address| address.value.fixed());
    let is_first = path.value.interface.is_none()
        && path.value.local.is_none_or(|local| Some(local) == listen)
        && path.value.address.fixed().is_some_and(|address| Some(address) == first);
    // On several paths to one socket a peer may be anywhere.
    let twin = earlier.iter().filter(|_| path.value.address != PeerAddress::Any);
    let twin = twin.into_iter().find(|earlier| ends(&earlier.value) == ends(&path.value));
    if is_first || twin.is_some() {
        let finding = Diagnostic::error("duplicate-path", "two paths to a peer have the same ends")
            .at(path.span.clone())
            .help("give it another `local`, `interface` or `address`, or leave it out");
        findings.add(match twin {
            Some(twin) => finding.related(twin.span.clone(), "the other one is here"),
            None => finding.note("the first path leads from `listen` to the peer's `address`"),
        });
    }
    let others = draft.peers.iter().filter(|other| !std::ptr::eq(*other, peer));
    let mut far = others.flat_map(|other| {
        let first = other.address.as_ref().and_then(|address| address.value.fixed());
        first.into_iter().chain(stated(other).iter().filter_map(|path| path.value.address.fixed()))
    });
    if let Some(address) = path.value.address.fixed()
        && far.any(|other| other == address)
    {
        findings.add(
            Diagnostic::error("duplicate-peer", format!("two peers have the address {address}"))
                .at(path.span.clone())
                .help("each address belongs to one peer"),
        );
    }
}
