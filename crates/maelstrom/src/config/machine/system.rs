//! Capabilities, devices, kernel settings, the control socket.

use diagnostics::{Diagnostic, Findings, Severity};

use super::super::draft::Draft;
use super::super::types::TapChoice;
use super::facts::{Capability, ControlPlace, Facts, Reach};

/// Oldest supported kernel.
const KERNEL_MIN: (u32, u32) = (5, 10);

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    capabilities(draft, facts, findings);
    tun_device(facts, findings);
    forwarding(draft, facts, findings);
    control_socket(draft, facts, findings);
    kernel(facts, findings);
}

fn capabilities(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let tap = draft.gateway.tap.as_ref();
    if !facts.can(Capability::NetAdmin) {
        findings.add(missing(facts, "CAP_NET_ADMIN", "create the TUN device and attach the tap"));
    }
    // CAP_BPF exists since Linux 5.8, and CAP_SYS_ADMIN includes it.
    let bpf = facts.can(Capability::Bpf) || facts.can(Capability::SysAdmin);
    if !facts.can(Capability::NetRaw) && tap.is_some_and(|tap| tap.value != TapChoice::Ebpf) {
        let lacks = missing(facts, "CAP_NET_RAW", "open packet sockets");
        // The eBPF tap needs none of them.
        let has_ebpf = bpf && facts.initial_user_namespace;
        let may_run = has_ebpf && tap.is_some_and(|tap| tap.value == TapChoice::Auto);
        let severity = if may_run { Severity::Warning } else { Severity::Error };
        findings.add(Diagnostic { severity, ..lacks });
    }
    let Some(tap) = tap.filter(|tap| tap.value != TapChoice::Packet) else { return };
    let forced = tap.value == TapChoice::Ebpf;
    if !bpf && forced {
        findings.add(missing(facts, "CAP_BPF", "load the eBPF tap").at(tap.span.clone()));
    } else if !facts.initial_user_namespace && forced {
        findings.add(
            Diagnostic::error(
                "ebpf-forbidden",
                "the kernel loads no eBPF program for a process in a user namespace",
            )
            .at(tap.span.clone())
            .help("set `tap = \"packet\"`, or run the gateway outside the user namespace"),
        );
    } else if !bpf || !facts.initial_user_namespace {
        let why = if bpf { "inside a user namespace" } else { "without CAP_BPF" };
        findings.add(
            Diagnostic::remark("tap-packet", format!("{why} the tap will be packet sockets, not eBPF"))
                .at(tap.span.clone())
                .note("packet sockets cost more processor time for each packet"),
        );
    }
}

fn missing(facts: &Facts, name: &str, purpose: &str) -> Diagnostic {
    Diagnostic::error("missing-capability", format!("{name} is missing: the gateway needs it to {purpose}"))
        .help(format!(
            "run the gateway as root, or give the program the capability: \
             setcap 'cap_net_admin,cap_net_raw,cap_bpf+ep' {}",
            facts.program
        ))
        .help("in a systemd unit: AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF")
}

fn tun_device(facts: &Facts, findings: &mut Findings) {
    match facts.tun_device {
        Reach::Usable => {}
        Reach::Absent => findings.add(
            Diagnostic::error(
                "no-tun",
                "/dev/net/tun is absent: recovered packets could not enter the kernel",
            )
            .help("modprobe tun")
            .help("in a container, pass the device in: --device /dev/net/tun"),
        ),
        Reach::Denied => {
            let diagnostic = Diagnostic::error("no-tun", "/dev/net/tun cannot be opened by this user");
            findings.add(
                diagnostic.help("run as root, or set the usual mode of the device: chmod 666 /dev/net/tun"),
            );
        }
    }
}

fn forwarding(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let mut networks = draft.peers.iter().flat_map(|peer| &peer.networks);
    let v4 = networks.clone().any(|network| network.value.addr().is_ipv4());
    let v6 = networks.any(|network| network.value.addr().is_ipv6());
    let states = [
        (v4, facts.forwarding_v4, "IPv4", "net.ipv4.ip_forward"),
        (v6, facts.forwarding_v6, "IPv6", "net.ipv6.conf.all.forwarding"),
    ];
    for (wanted, state, family, key) in states {
        if wanted && state == Some(0) {
            findings.add(
                Diagnostic::warning("not-forwarding", format!("this machine does not forward {family}"))
                    .note("only its own traffic would be protected, not the traffic of the hosts behind it")
                    .help(format!("sysctl -w {key}=1")),
            );
        }
    }
}

fn control_socket(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let (Some(control), Some(place)) = (&draft.gateway.control, &facts.control) else { return };
    let path = control.value.display();
    let parent = control.value.parent().unwrap_or(&control.value).display();
    let diagnostic = match place {
        ControlPlace::Free => return,
        ControlPlace::Answered => {
            Diagnostic::warning("already-running", format!("a gateway already runs with `{path}`"))
                .note("a second gateway would not start")
                .help("to load this file into the running gateway: kill -HUP PID, with the `pid` of `undrop gateway status --json`")
                .help("to run two gateways, give each its own `control`, `listen`, `tun` and `tunnel`")
        }
        ControlPlace::Denied(directory) => Diagnostic::error(
            "control-directory",
            format!("the control socket cannot be created in `{directory}`"),
        )
        .expected("a directory that this user may write")
        .help(format!("install -d -o USER -m 0755 {parent}, or RuntimeDirectory=undrop in a systemd unit"))
        .help("or set `control` to a path in a directory of your own"),
        ControlPlace::Blocked(file) => {
            Diagnostic::error("control-directory", format!("`{file}` is in the way of the control socket"))
                .expected("a directory")
                .help("move it away, or set another `control`")
        }
        ControlPlace::Occupied => {
            Diagnostic::error("control-occupied", format!("`{path}` exists and is not a socket"))
                .expected("a free path, or the socket of a gateway that has ended")
                .note("the gateway would not start, because it never replaces a file that is not a socket")
                .help("move it away, or set another `control`")
        }
    };
    findings.add(diagnostic.at(control.span.clone()));
}

fn kernel(facts: &Facts, findings: &mut Findings) {
    let (Some(release), Some(version)) = (&facts.kernel, facts.kernel_version()) else { return };
    if version < KERNEL_MIN {
        let (major, minor) = KERNEL_MIN;
        findings.add(
            Diagnostic::warning("old-kernel", format!("the kernel is {release}"))
                .expected(format!("{major}.{minor} or newer: the gateway is not tested on older kernels"))
                .help("upgrade the kernel"),
        );
    }
}
