//! Checks of how packets are carried in a tunnel.

use diagnostics::{Diagnostic, Findings};

use super::draft::{Draft, PeerDraft};
use super::types::Mode;

/// Longest time for which packets that came early are held, in milliseconds.
pub(super) const RESEQUENCE_MS_MAX: u64 = 500;

/// Longest time for which packets wait for others, in microseconds.
pub(super) const AGGREGATE_US_MAX: u64 = 10_000;

/// Finds settings of tunnels at peers that have none.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    for peer in draft.peers.iter().filter(|peer| mode(draft, peer) == Some(Mode::Passive)) {
        let stated = [("resequence_ms", &peer.resequence_ms), ("aggregate_us", &peer.aggregate_us)];
        for (key, setting) in stated {
            let Some(setting) = setting.as_ref().filter(|setting| setting.value > 0) else { continue };
            let message = format!("a peer in passive mode has `{key}`");
            findings.add(
                Diagnostic::warning("foreign-setting", message)
                    .at(setting.span.clone())
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
