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
    draft.peers.iter().for_each(|peer| fail_has_a_route(draft, peer, findings));
}

/// A gateway that sets no routes cannot close them either.
fn fail_has_a_route(draft: &Draft, peer: &PeerDraft, findings: &mut Findings) {
    // Without a place, the value is the default.
    let Some(fail) = peer.fail.as_ref().filter(|fail| fail.span.is_some()) else { return };
    let finding = if mode(draft, peer) == Some(Mode::Passive) {
        Diagnostic::warning("foreign-setting", "a peer in passive mode has `fail`")
            .note("the kernel forwards its packets whether the gateway runs or not")
            .help("set `mode = \"tunnel\"` at both ends, or leave it out")
    } else if let Some(route) = peer.route.as_ref().filter(|route| !route.value) {
        Diagnostic::warning("foreign-setting", "a peer without routes of the gateway has `fail`")
            .related(route.span.clone(), "`route` is here")
            .note("whoever sets the routes decides which ones are left while the gateway does not run")
            .help("leave out `fail`, or `route = false`")
    } else {
        return;
    };
    findings.add(finding.at(fail.span.clone()));
}

/// How packets travel to a peer.
pub(super) fn mode(draft: &Draft, peer: &PeerDraft) -> Option<Mode> {
    let of_gateway = draft.gateway.mode.as_ref().map(|mode| mode.value);
    peer.mode.as_ref().and_then(|mode| mode.value).or(of_gateway)
}
