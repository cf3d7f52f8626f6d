//! The needs of a member of a rack.

use diagnostics::{Diagnostic, Findings};

use super::super::draft::Draft;
use super::facts::Facts;

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(address) = draft.rack.own_member().and_then(|member| member.address.as_ref()) else { return };
    let (ip, Some(interfaces)) = (address.value.ip(), &facts.interfaces) else { return };
    if interfaces.iter().all(|interface| !interface.addresses.contains(&ip)) {
        findings.add(
            Diagnostic::error("member-not-local", format!("{ip} is not an address of this machine"))
                .at(address.span.clone())
                .expected("the address of this gateway on the LAN, where the other members send heartbeats")
                .help("correct `member` in `[rack]` or `address` in `[[member]]`, or add the address"),
        );
    }
}
