//! Checks whether this process can build namespaces, and gets it there without root.

use std::fs;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::dropper::{DropFilter, Dropper};
use crate::error::LabError;
use crate::namespace::Namespace;

/// Checks once whether namespaces, and TUN devices in them, can be made here. The error names what is
/// missing.
///
/// # Errors
/// [`LabError::Unprivileged`] with a reason fit to follow `SKIPPED:`.
pub fn check() -> Result<(), LabError> {
    static RESULT: OnceLock<Result<(), String>> = OnceLock::new();
    RESULT
        .get_or_init(|| check_namespaces().and_then(|()| check_tun()))
        .clone()
        .map_err(LabError::Unprivileged)
}

fn check_namespaces() -> Result<(), String> {
    let explain = |e: LabError| {
        if e.is_permission() { format!("{e} (needs root or a user namespace)") } else { e.to_string() }
    };
    Namespace::create("probe").map(drop).map_err(explain)
}

fn check_tun() -> Result<(), String> {
    const DEVICE: &str = "/dev/net/tun";
    let opened = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.map(drop).map_err(|e| format!("cannot open {DEVICE}: {e}"))
}

/// Returns true if namespaces and TUN devices can be made, for tests. Otherwise it prints
/// `SKIPPED: name: reason`, past the test harness' capture so that the line is visible and can be counted,
/// and returns false.
///
/// Without privilege, a test with a single-threaded harness may call [`enter_user_namespace`] first. A
/// threaded harness (libtest) must be started inside a user namespace.
#[must_use]
pub fn available_or_skip(name: &str) -> bool {
    proceed_or_skip(name, check().map_err(|e| e.to_string()))
}

/// Like [`available_or_skip`], for a test that needs namespaces but no TUN device.
#[must_use]
pub fn namespaces_or_skip(name: &str) -> bool {
    proceed_or_skip(name, check_namespaces())
}

/// Like [`namespaces_or_skip`], for a test that loads a [`Dropper`], which is impossible in a user
/// namespace.
#[must_use]
pub fn dropper_or_skip(name: &str) -> bool {
    let attach = || {
        let namespace = Namespace::create("probe").map_err(|e| e.to_string())?;
        let nothing = DropFilter::default();
        Dropper::attach(&namespace, "lo", &loss::LossModel::None, &nothing)
            .map(drop)
            .map_err(|e| format!("{e} (needs root or CAP_BPF and CAP_NET_ADMIN)"))
    };
    proceed_or_skip(name, check_namespaces().and_then(|()| attach()))
}

pub(crate) fn proceed_or_skip(name: &str, possible: Result<(), String>) -> bool {
    let Err(reason) = possible else { return true };
    // A harness captures print!, not the stream itself. If stderr is closed, the line is lost.
    let _ = writeln!(io::stderr(), "SKIPPED: {name}: {reason}");
    false
}

/// How a process got its privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It had it; nothing was changed.
    AlreadyPrivileged,
    /// It became root inside its own user, network and mount namespaces.
    UserNamespace,
}

/// Makes an unprivileged process root of its own user, network and mount namespaces; leaves a process that
/// can make namespaces unchanged. Call it at the start of `main`, before any thread starts.
///
/// # Errors
/// [`LabError::Unprivileged`] names the kernel setting that forbids it; [`LabError::Invalid`] if other
/// threads run.
pub fn enter_user_namespace() -> Result<Entered, LabError> {
    let threads =
        fs::read_dir("/proc/self/task").map_err(|e| LabError::system("cannot count threads", e))?.count();
    if threads != 1 {
        // The kernel lets only single-threaded processes change their user namespace.
        return Err(LabError::Invalid(format!("expected 1 thread to enter a user namespace, saw {threads}")));
    }
    // An attempt would need a thread, which the kernel may count for a moment after its end.
    if has_capabilities() {
        return Ok(Entered::AlreadyPrivileged);
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).map_err(|e| {
        LabError::Unprivileged(format!("cannot enter a user namespace: {e}{}", forbidden_by()))
    })?;
    write_map("setgroups", "deny")?;
    write_map("uid_map", &format!("0 {uid} 1"))?;
    write_map("gid_map", &format!("0 {gid} 1"))?;
    // Makes later mounts private. Some kernels permit the namespace but not this; it is not essential.
    let _ = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>);
    check_namespaces().map_err(|reason| {
        LabError::Unprivileged(format!(
            "expected privilege in the entered user namespace, saw none: {reason}{}",
            forbidden_by()
        ))
    })?;
    Ok(Entered::UserNamespace)
}

/// Returns whether this process has CAP_NET_ADMIN and CAP_SYS_ADMIN.
fn has_capabilities() -> bool {
    const NEEDED: u64 = 1 << 12 | 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & NEEDED == NEEDED)
}

fn write_map(file: &str, line: &str) -> Result<(), LabError> {
    fs::write(format!("/proc/self/{file}"), line).map_err(|e| {
        LabError::Unprivileged(format!("cannot write {line:?} to /proc/self/{file}: {e}{}", forbidden_by()))
    })
}

/// Returns the kernel settings on this machine that are known to forbid user namespaces.
fn forbidden_by() -> String {
    const SWITCHES: [(&str, &str); 3] = [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    let found: Vec<String> = SWITCHES
        .iter()
        .filter(|(path, off)| fs::read_to_string(path).is_ok_and(|value| value.trim() == *off))
        .map(|(path, off)| format!("{path} is {off}"))
        .collect();
    if found.is_empty() { String::new() } else { format!(" ({})", found.join(", ")) }
}
