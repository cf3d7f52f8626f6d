//! The needs of split mode. Where the machine lacks one, the gateway runs, and connections go unsplit.

use std::io;
use std::net::TcpListener;
use std::path::Path;

use diagnostics::settings::{Draft as _, Setting};
use diagnostics::{Diagnostic, Findings};
use netio::{divert, queue, transparent};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::super::draft::Draft;
use super::super::types::AcceptChoice;
use super::facts::Facts;
use crate::split::spool::{SEGMENTS, open_unnamed};

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
    /// Why first packets cannot wait until their servers have answered; `None` if they can, if they need not,
    /// or if connections cannot be handed over at all.
    pub(super) queue: Option<String>,
    /// Why carriers cannot have the congestion control.
    pub(super) congestion: Option<String>,
    /// Maximum number of open files; `None` if it cannot be read.
    pub(super) files_max: Option<u64>,
    /// Whether another socket holds the port of carriers.
    pub(super) port_in_use: bool,
    /// Bytes that are free where bytes of connections shall wait, or why none can.
    pub(super) spool: Option<Result<u64, String>>,
}

impl SplitFacts {
    /// Reads them if the draft asks for split mode.
    pub(super) fn gather(draft: &Draft) -> Option<Self> {
        let split = &draft.split;
        let listen = split.listen.as_ref()?.value?;
        let takes = split.ports.as_ref().is_some_and(|ports| ports.value.is_some());
        let is_late = split.accept.as_ref().is_some_and(|accept| accept.value == AcceptChoice::Late);
        // A missing capability is told elsewhere.
        let told =
            |error: io::Error| (error.kind() != io::ErrorKind::PermissionDenied).then(|| error.to_string());
        let congestion = split.congestion.as_ref().map(|name| transparent::check_congestion(&name.value));
        let diversion = takes.then(|| divert::probe(None)).and_then(Result::err);
        let waits = takes && is_late && diversion.is_none();
        let queue = waits.then(|| divert::probe(Some(0)).and_then(|()| queue::probe()));
        Some(Self {
            diversion: diversion.and_then(told),
            queue: queue.and_then(Result::err).and_then(told),
            congestion: congestion.and_then(Result::err).map(|error| error.to_string()),
            files_max: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard),
            port_in_use: TcpListener::bind(listen)
                .is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse),
            spool: split.spool_dir.as_ref().and_then(|setting| setting.value.as_deref()).map(free_bytes),
        })
    }
}

/// Returns the bytes that are free in a directory which takes files without a name.
fn free_bytes(directory: &Path) -> Result<u64, String> {
    open_unnamed(directory).map_err(|error| error.to_string())?;
    let disk = statvfs(directory).map_err(|error| error.to_string())?;
    Ok(disk.blocks_available() * disk.fragment_size())
}

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let Some(split) = &facts.split else { return };
    diversion(draft, split, findings);
    spool(draft, split, findings);
    queue(draft, split, findings);
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
            .expected("nf_tables with TPROXY and socket matches")
            .note("the gateway runs, and connections go unsplit")
            .help("modprobe -a nft_tproxy nft_socket"),
    );
}

/// With `accept = "late"` first packets wait in a queue of the kernel (docs/adr/0030).
fn queue(draft: &Draft, split: &SplitFacts, findings: &mut Findings) {
    let Some(reason) = &split.queue else { return };
    let message = format!("the kernel cannot hold first packets until servers have answered: {reason}");
    findings.add(
        Diagnostic::warning("no-late-accept", message)
            .at(draft.split.span_of("accept").or(draft.split.span_of("ports")))
            .expected(
                "NFQUEUE, and nf_tables that rejects before routing (Linux 5.9), for `accept = \"late\"`",
            )
            .note("the gateway runs, and connections go unsplit")
            .help(
                "modprobe -a nfnetlink_queue nft_queue nft_reject_inet; where the kernel lacks them, answer \
                 clients at once with `accept = \"early\"` in `[split]`",
            ),
    );
}

/// The room on disk for bytes that wait for the link.
fn spool(draft: &Draft, split: &SplitFacts, findings: &mut Findings) {
    let (Some(state), Some(limit)) = (&split.spool, &draft.split.spool) else { return };
    let finding = match state {
        Ok(free) if *free >= limit.value => return,
        Ok(free) => Diagnostic::warning(
            "spool-room",
            format!("{} MiB are free in `spool_dir`", free >> 20),
        )
        .at(draft.split.span_of("spool").or(draft.split.span_of("spool_dir")))
        .expected(format!("{} MiB, as `spool` states", limit.value >> 20))
        .note("while the disk is full, hosts wait for the link")
        .help("free space on this disk, or lower `spool`"),
        Err(reason) => Diagnostic::warning("spool-directory", format!("`spool_dir` cannot be used: {reason}"))
            .at(draft.split.span_of("spool_dir"))
            .expected("a directory that this user may write, on a file system that has files without names, as ext4, XFS, Btrfs or tmpfs")
            .note("the gateway runs, and hosts wait for the link")
            .help("make the directory, for example with StateDirectory= in a systemd unit, or give it to the gateway's user"),
    };
    findings.add(finding);
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
    // Of each connection bytes may wait in a file that is not full yet.
    let is_spooling = draft.split.spool_dir.as_ref().is_some_and(|directory| directory.value.is_some());
    let spooling = if is_spooling { connections + SEGMENTS } else { 0 };
    let wanted = connections + spooling + FILES_BESIDE;
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
