//! The way of recovered packets into the kernel, and the rules that treat them otherwise than the packets
//! that were lost.

use diagnostics::{Diagnostic, Findings};

use super::super::draft::Draft;
use super::super::types::InjectionChoice;
use super::facts::{Capability, Facts};

/// Strict `rp_filter`: a packet must arrive by the interface by which its answer would leave (RFC 3704 §2.2).
const RP_FILTER_STRICT: u32 = 1;

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(injection) = &draft.gateway.injection else { return };
    let obstacle = obstacle(facts);
    match (injection.value, obstacle) {
        (InjectionChoice::Wan, Some(obstacle)) => findings.add(
            Diagnostic::error(
                "injection-impossible",
                format!("packets cannot be injected at `wan`: {obstacle}"),
            )
            .at(injection.span.clone())
            .note("the gateway would not start")
            .help("run the gateway as root outside of user namespaces, or set `injection = \"auto\"`"),
        ),
        (InjectionChoice::Auto | InjectionChoice::Wan, None) => below_wan(draft, facts, findings),
        (InjectionChoice::Auto, Some(obstacle)) => by_tun(draft, facts, obstacle, findings),
        (InjectionChoice::Tun, _) => by_tun(draft, facts, "`injection` demands it", findings),
    }
}

/// The reason why packets cannot be injected at the WAN interface, as far as it can be foreseen.
fn obstacle(facts: &Facts) -> Option<&'static str> {
    if !facts.can(Capability::Bpf) && !facts.can(Capability::SysAdmin) {
        Some("CAP_BPF is missing")
    } else if !facts.initial_user_namespace {
        Some("the kernel loads no eBPF program for a process in a user namespace")
    } else {
        None
    }
}

/// Rules below the WAN interface see lost packets, and no recovered ones.
fn below_wan(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    for device in &facts.rules.below_wan {
        let Some(wan) = facts.wan_above(draft, device) else { continue };
        findings.add(
            Diagnostic::warning(
                "ingress-below-wan",
                format!("an ingress chain acts on `{device}`, below the WAN interface `{}`", wan.value),
            )
            .at(wan.span.clone())
            .note("recovered packets arrive by the WAN interface itself and do not pass this chain")
            .help(format!("repeat the rules of the chain in one on `{}`: nft list ruleset", wan.value)),
        );
    }
}

/// Judges the rules for packets that enter by the TUN device.
fn by_tun(draft: &Draft, facts: &Facts, why: &str, findings: &mut Findings) {
    let (Some(tun), Some(injection)) = (&draft.gateway.tun, &draft.gateway.injection) else { return };
    let rules = &facts.rules;
    let chains = rules.by_interface.iter().chain(&rules.unread).cloned().collect::<Vec<_>>();
    let enters = format!("recovered packets will enter by `{}`, not by `wan`: {why}", tun.value);
    if !chains.is_empty() {
        findings.add(
            Diagnostic::warning("rules-by-interface", enters)
                .at(injection.span.clone())
                .seen(format!("rules that may look at the interface: {}", chains.join(", ")))
                .note("rules that name the WAN interface do not apply to recovered packets")
                .help("run the gateway with CAP_BPF and `injection = \"auto\"`")
                .help(format!("or let each rule that names the WAN interface name `{}` as well", tun.value)),
        );
    } else if rules.refused {
        findings.add(
            Diagnostic::warning("rules-unknown", enters)
                .at(injection.span.clone())
                .note("the rules of the firewall cannot be read; those that name the WAN interface would not apply")
                .help("run the check as root"),
        );
    } else {
        findings.add(Diagnostic::remark("injection-tun", enters).at(injection.span.clone()));
    }
    reverse_path_filter(&tun.value, facts, findings);
}

/// The kernel applies the larger of the setting for all interfaces and the setting of one; the gateway sets
/// its own device to 2, loose.
fn reverse_path_filter(tun: &str, facts: &Facts, findings: &mut Findings) {
    if facts.rp_filter_all != Some(RP_FILTER_STRICT) {
        return;
    }
    let why = "recovered packets enter through this device, but the route back to their senders leads \
               through `wan`";
    if facts.settings_writable {
        let message = format!("rp_filter is strict; the gateway sets it to loose for its own device `{tun}`");
        findings.add(Diagnostic::remark("rp-filter", message).note(why));
        return;
    }
    findings.add(
        Diagnostic::warning(
            "rp-filter",
            format!("rp_filter is strict, and cannot be set to loose for `{tun}`"),
        )
        .note(why)
        .note("the kernel would drop every recovered IPv4 packet")
        .help("sysctl -w net.ipv4.conf.all.rp_filter=2, where /proc/sys can be written"),
    );
}
