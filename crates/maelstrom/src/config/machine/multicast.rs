//! The interfaces of IP groups that cross tunnels.

use diagnostics::{Diagnostic, Findings};

use super::super::draft::Draft;
use super::facts::{Capability, Facts};

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(interfaces) = &facts.interfaces else { return };
    for section in &draft.multicast {
        let Some(name) = &section.interface else { continue };
        match interfaces.iter().find(|interface| interface.name == name.value) {
            None => findings.add(
                Diagnostic::warning(
                    "group-interface-absent",
                    format!("there is no interface `{}` on this machine", name.value),
                )
                .at(name.span.clone())
                .note("the gateway starts without these groups, and tries the interface each second")
                .help("correct `interface` if the name is wrong; `ip -br link` lists the interfaces"),
            ),
            Some(interface) if !interface.up => findings.add(
                Diagnostic::warning("group-interface-down", format!("interface `{}` is down", name.value))
                    .at(name.span.clone())
                    .help(format!("ip link set {} up", name.value)),
            ),
            Some(_) => {}
        }
    }
    if let Some(section) = draft.multicast.first().filter(|_| !facts.can(Capability::NetRaw)) {
        findings.add(
            Diagnostic::warning(
                "group-capability",
                "groups need packet sockets, which this process may not open",
            )
            .at(section.groups.as_ref().and_then(|groups| groups.span.clone()))
            .expected("the capability CAP_NET_RAW")
            .help("run the gateway as root, or by the service of the package"),
        );
    }
}
