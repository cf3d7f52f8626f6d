//! Checks of how packets are carried in a tunnel.

use diagnostics::{Diagnostic, Findings};

use super::draft::{Draft, PeerDraft};
use super::types::Mode;

/// Longest time for which packets that came early are held, in milliseconds.
pub(super) const RESEQUENCE_MS_MAX: u64 = 500;

/// Finds settings of tunnels at peers that have none.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    for peer in draft.peers.iter().filter(|peer| mode(draft, peer) == Some(Mode::Passive)) {
        let held = peer.resequence_ms.as_ref().filter(|held| held.value > 0);
        if let Some(held) = held {
            findings.add(
                Diagnostic::warning("foreign-setting", "a peer in passive mode has a `resequence_ms`")
                    .at(held.span.clone())
                    .note("the kernel forwards its packets as they come")
                    .help("set `mode = \"tunnel\"` at both ends, or leave it out"),
            );
        }
    }
}

/// How packets travel to a peer.
pub(super) fn mode(draft: &Draft, peer: &PeerDraft) -> Option<Mode> {
    let of_gateway = draft.gateway.mode.as_ref().map(|mode| mode.value);
    peer.mode.as_ref().and_then(|mode| mode.value).or(of_gateway)
}
