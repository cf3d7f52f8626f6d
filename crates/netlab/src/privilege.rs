//! Whether this process may build namespaces, and how it gets there without root.

use std::fs;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::{LabError, Namespace};

/// Checks once whether namespaces, and TUN devices in them, can be made here; the error says what is missing.
///
/// # Errors
/// [`LabError::Unprivileged`] with the reason, fit to be printed after `SKIPPED:`.
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

/// For tests: true when namespaces and TUN devices can be made; else prints `SKIPPED: name: reason`, past the test
/// harness' capture so that it is seen and can be counted, and returns false.
///
/// Without privilege the tests of a single-threaded harness may call [`enter_user_namespace`] first; a threaded one
/// (libtest) is to be started inside a user namespace.
#[must_use]
pub fn available_or_skip(name: &str) -> bool {
    proceed_or_skip(name, check().map_err(|e| e.to_string()))
}

/// As [`available_or_skip`], for a test that needs namespaces but no TUN device.
#[must_use]
pub fn namespaces_or_skip(name: &str) -> bool {
    proceed_or_skip(name, check_namespaces())
}

/// As [`namespaces_or_skip`], for a test that loads a [`crate::Dropper`]; that is not possible in a user namespace.
#[must_use]
pub fn dropper_or_skip(name: &str) -> bool {
    let attach = || {
        let namespace = Namespace::create("probe").map_err(|e| e.to_string())?;
        let nothing = crate::DropFilter::default();
        crate::Dropper::attach(&namespace, "lo", &loss::LossModel::None, &nothing)
            .map(drop)
            .map_err(|e| format!("{e} (needs root or CAP_BPF and CAP_NET_ADMIN)"))
    };
    proceed_or_skip(name, check_namespaces().and_then(|()| attach()))
}

fn proceed_or_skip(name: &str, possible: Result<(), String>) -> bool {
    let Err(reason) = possible else { return true };
    // A harness captures print!, not the stream itself. Where even stderr is closed nobody can be told.
    let _ = writeln!(io::stderr(), "SKIPPED: {name}: {reason}");
    false
}

/// How a process came to its privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It had it: nothing was changed.
    AlreadyPrivileged,
    /// It is now root inside user, network and mount namespaces of its own.
    UserNamespace,
}

/// Makes a process without privilege root of a user, a network and a mount namespace of its own; a process that can
/// make namespaces already is left as it is. Call it at the start of `main`, before any thread.
///
/// # Errors
/// [`LabError::Unprivileged`] naming the kernel setting that forbids it, [`LabError::Invalid`] when threads run.
pub fn enter_user_namespace() -> Result<Entered, LabError> {
    let threads =
        fs::read_dir("/proc/self/task").map_err(|e| LabError::system("cannot count threads", e))?.count();
    if threads != 1 {
        // The kernel allows a change of user namespace to single-threaded processes only.
        return Err(LabError::Invalid(format!(
            "a user namespace must be entered by 1 thread, {threads} are running"
        )));
    }
    // Not by trying it: that takes a thread, and the kernel may count it for a moment after it was joined.
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
    // What is mounted from here on stays ours. Some kernels allow the namespace but not this; we can do without.
    let _ = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>);
    check_namespaces().map_err(|reason| {
        LabError::Unprivileged(format!(
            "a user namespace was entered but gives no privilege: {reason}{}",
            forbidden_by()
        ))
    })?;
    Ok(Entered::UserNamespace)
}

/// Whether this process has CAP_NET_ADMIN and CAP_SYS_ADMIN.
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

/// The kernel settings known to forbid user namespaces that do so here.
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
