//! Names of peers: the addresses that this machine finds for them at present.

use std::time::Duration;

use diagnostics::{Diagnostic, Findings};

use super::super::draft::Draft;
use super::super::types::{Host, PeerAddress};
use crate::names::{look_up_within, of_family};

/// Time that a lookup may take. A gateway does not wait longer for it at its start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the draft with the first address of each name in its place, for further checks, and adds a note
/// about each name.
pub(super) fn looked_up(mut draft: Draft, findings: &mut Findings) -> Draft {
    let v6 = draft.gateway.listen.as_ref().is_some_and(|listen| listen.value.is_ipv6());
    for address in draft.peers.iter_mut().filter_map(|peer| peer.address.as_mut()) {
        let PeerAddress::Name(host) = &address.value else { continue };
        let (finding, found) = look(host, v6);
        findings.add(finding.at(address.span.clone()));
        if let Some(found) = found {
            address.value = PeerAddress::Ip(found);
        }
    }
    draft
}

fn look(host: &Host, v6: bool) -> (Diagnostic, Option<std::net::SocketAddr>) {
    let version = if v6 { 6 } else { 4 };
    let unknown = |reason: String| {
        let finding = Diagnostic::warning("unknown-name", format!("`{}` is not found: {reason}", host.name));
        finding
            .note("the gateway starts all the same, and looks again; the peer is not protected until then")
            .help(format!(
                "correct the name, or check the name servers of this machine: getent hosts {}",
                host.name
            ))
    };
    let found = match look_up_within(host, PATIENCE) {
        Ok(found) => of_family(found, v6),
        Err(error) => return (unknown(error.to_string()), None),
    };
    let Some(&first) = found.first() else {
        return (unknown(format!("it has no IPv{version} address, the version of `listen`")), None);
    };
    let all: Vec<String> = found.iter().map(|address| address.ip().to_string()).collect();
    (Diagnostic::remark("name-found", format!("`{}` is {}", host.name, all.join(" or "))), Some(first))
}
