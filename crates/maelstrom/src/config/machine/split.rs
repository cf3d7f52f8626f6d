//! The needs of split mode. Where the machine lacks one, the gateway runs, and connections go unsplit.

use std::io;
use std::net::TcpListener;

use diagnostics::settings::{Draft as _, Setting};
use diagnostics::{Diagnostic, Findings};
use netio::{divert, transparent};
use nix::sys::resource::{Resource, getrlimit};

use super::super::draft::Draft;
use super::super::types::AcceptChoice;
use super::facts::Facts;

/// Bytes of `buffer` for each connection.
const BYTES_EACH: u64 = 32 << 10;
/// Open files besides one for each connection: connections that have ended and still have bytes for a host,
/// carriers, and those of the rest of the gateway.
const FILES_BESIDE: u64 = 1_200;

/// The facts about the machine that concern split mode.
#[derive(Clone, Debug, Default)]
pub(super) struct SplitFacts {
    /// Why the kernel cannot hand connections over; `None` if it can, or if that is unknown.
    pub(super) diversion: Option<String>,
    /// Why carriers cannot have the congestion control.
    pub(super) congestion: Option<String>,
    /// Maximum number of open files; `None` if it cannot be read.
    pub(super) files_max: Option<u64>,
    /// Whether another socket holds the port of carriers.
    pub(super) port_in_use: bool,
}

impl SplitFacts {
    /// Reads them if the draft asks for split mode.
    pub(super) fn gather(draft: &Draft) -> Option<Self> {
        let split = &draft.split;
        let listen = split.listen.as_ref()?.value?;
        let takes = split.ports.as_ref().is_some_and(|ports| ports.value.is_some());
        let is_late = split.accept.as_ref().is_some_and(|accept| accept.value == Some(AcceptChoice::Late));
        let queue = is_late.then_some(0);
        // A missing capability is told elsewhere.
        let told =
            |error: io::Error| (error.kind() != io::ErrorKind::PermissionDenied).then(|| error.to_string());
        let congestion = split.congestion.as_ref().map(|name| transparent::check_congestion(&name.value));
        Some(Self {
            diversion: takes.then(|| divert::probe(queue)).and_then(Result::err).and_then(told),
            congestion: congestion.and_then(Result::err).map(|error| error.to_string()),
            files_max: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard),
            port_in_use: TcpListener::bind(listen)
                .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse),
        })
    }
}

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(split) = &facts.split else { return };
    diversion(draft, split, findings);
    door(draft, facts, split, findings);
    files(draft, split, findings);
    let (Some(reason), Some(name)) = (&split.congestion, &draft.split.congestion) else { return };
    findings.add(
        Diagnostic::warning(
            "split-congestion",
            format!("the kernel has no congestion control `{}`: {reason}", name.value),
        )
        .at(name.span.clone())
        .note("carriers will have `cubic`, which is slow on a link with losses that repairs leave")
        .help(format!("modprobe tcp_{}", name.value)),
    );
}

fn diversion(draft: &Draft, split: &SplitFacts, findings: &mut Findings) {
    let Some(reason) = &split.diversion else { return };
    findings.add(
        Diagnostic::warning("no-tproxy", format!("the kernel cannot hand connections over: {reason}"))
            .at(draft.split.span_of("ports"))
            .expected("nf_tables with TPROXY and socket matches, for `accept = \"late\"` also with queues")
            .note("the gateway runs, and connections go unsplit")
            .help("modprobe -a nft_tproxy nft_socket nft_queue nft_reject_inet"),
    );
}

/// The port where far gateways dial carriers.
fn door(draft: &Draft, facts: &Facts, split: &SplitFacts, findings: &mut Findings) {
    let Some(Setting { value: Some(listen), span }) = &draft.split.listen else { return };
    let (ip, port) = (listen.ip(), listen.port());
    let Some(interfaces) = &facts.interfaces else { return };
    if interfaces.iter().all(|interface| !interface.addresses.contains(&ip)) {
        findings.add(
            Diagnostic::warning("split-listen-not-local", format!("{ip} is not an address of this machine"))
                .at(span.clone())
                .expected("the address of this gateway inside its site")
                .note("the gateway runs, and connections go unsplit")
                .help("set `listen` of `[split]` to an address of this machine, or add the address"),
        );
    } else if split.port_in_use && !facts.gateway_answers() {
        findings.add(
            Diagnostic::warning(
                "split-port-in-use",
                format!("another process holds TCP port {port} of {ip}"),
            )
            .at(span.clone())
            .note("the gateway runs, and connections go unsplit")
            .help(format!(
                "`ss -tlnp 'sport = :{port}'` shows the process; stop it, or choose another port here and as \
                     `carrier` in the peers' files"
            )),
        );
    }
}

/// Each connection is an open file.
fn files(draft: &Draft, split: &SplitFacts, findings: &mut Findings) {
    let (Some(buffer), Some(files_max)) = (&draft.split.buffer, split.files_max) else { return };
    let connections = buffer.value / BYTES_EACH;
    let wanted = connections + FILES_BESIDE;
    if files_max >= wanted {
        return;
    }
    findings.add(
        Diagnostic::warning("few-open-files", format!("this process may open {files_max} files"))
            .at(draft.split.span_of("buffer").or(draft.split.span_of("listen")))
            .expected(format!("{wanted}: `buffer` has room for {connections} connections"))
            .note("further connections go unsplit")
            .help(format!("ulimit -n {wanted}, or in a systemd unit: LimitNOFILE={wanted}")),
    );
}
