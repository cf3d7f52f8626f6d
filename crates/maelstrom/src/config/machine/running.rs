//! Differences from the peers' configurations. The running gateway learns them, and no file of this machine
//! shows them.

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};

use super::super::draft::Draft;
use super::super::types::PeerAddress;
use crate::status;

/// Adds the differences that the gateway at the draft's control socket reports, if one answers.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    let Some(status) = draft.gateway.control.as_ref().and_then(|control| status::read(&control.value).ok())
    else {
        return;
    };
    for peer in &status.peers {
        let networks = draft.peers.iter().find_map(|draft| {
            let stated = |address: &&Setting<PeerAddress>| address.value.to_string() == peer.stated();
            let address = draft.address.as_ref().filter(stated)?;
            Some(draft.networks.first().map_or(address.span.clone(), |network| network.span.clone()))
        });
        for difference in &peer.differences {
            findings.add(
                Diagnostic::warning("networks-differ", difference.clone())
                    .at(networks.clone().flatten())
                    .note(format!("the running gateway compares its file with that of peer {}", peer.label()))
                    .note("only what both files name is protected, and crosses a tunnel")
                    .help("set `networks` in the peer's file to the networks of this site, or correct the route here"),
            );
        }
    }
}
