//! A fresh Debian system with systemd as its first process, in a network namespace of the laboratory.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use netlab::Namespace;
use netlab::namespace::Child;

/// Packages of the fresh system beside those that each Debian system has.
const INCLUDED: &str = "systemd-sysv";

/// Longest time for a system to start, and for one command.
const PATIENCE: Duration = Duration::from_secs(60);

/// Directories whose files come and go without the package: caches, logs, the package database.
const OF_THE_SYSTEM: [&str; 9] =
    ["/proc", "/sys", "/dev", "/run", "/tmp", "/packages", "/var/cache", "/var/log", "/var/lib"];

/// A running system. It ends, and its files vanish, when this is dropped.
pub(crate) struct Container {
    machine: Child,
    /// The first process of the system.
    leader: u32,
    root: PathBuf,
}

/// Makes a system that has never run, unless there is one; returns its directory.
pub(crate) fn base(directory: &Path) -> anyhow::Result<PathBuf> {
    let base = directory.join("debian");
    let mark = base.join("etc/debian_version");
    if !mark.exists() {
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=apt", "--include", INCLUDED, "bookworm"]).arg(&base);
        let made = make.status().context("cannot start mmdebstrap (apt-get install mmdebstrap)")?;
        ensure!(made.success(), "mmdebstrap cannot make a system in {}", base.display());
    }
    Ok(base)
}

impl Container {
    /// Starts a copy of the system `base`, which sees `packages` as `/packages`.
    pub(crate) fn boot(
        base: &Path,
        name: &str,
        packages: &Path,
        namespace: &Namespace,
    ) -> anyhow::Result<Self> {
        let root = base.with_file_name(format!("debian-{name}-{}", std::process::id()));
        let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(base).arg(&root).status()?;
        ensure!(copied.success(), "cannot copy {}", base.display());
        let mut machine = Command::new("systemd-nspawn");
        machine.args([
            "--quiet",
            "--boot",
            "--register=no",
            "--keep-unit",
            "--settings=no",
            "--console=pipe",
        ]);
        machine.args(["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--capability=all"]);
        machine.args(["--machine", name]);
        machine.arg(format!("--bind-ro={}:/packages", packages.display()));
        machine.arg("--directory").arg(&root);
        // systemd-nspawn forbids this call, whatever the capabilities.
        machine.arg("--system-call-filter=bpf");
        // The network belongs to the namespace in which the system runs.
        machine.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "yes").env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        machine.stdin(Stdio::null()).stdout(Stdio::null());
        let machine = namespace.spawn(machine).context("apt-get install systemd-container")?;
        let mut container = Self { machine, leader: 0, root };
        container.leader = container.find_leader()?;
        container.wait("true", "the first command")?;
        // `degraded` means that a unit failed which a container has no use for.
        container
            .wait("systemctl is-system-running | grep -E 'running|degraded'", "the start of the system")?;
        // A machine has this device, for all users, from its device manager.
        container.must(
            "rm -f /dev/net/tun && mkdir --parents /dev/net && mknod --mode=666 /dev/net/tun c 10 200",
        )?;
        Ok(container)
    }

    fn find_leader(&mut self) -> anyhow::Result<u32> {
        for _ in 0..PATIENCE.as_millis() / 100 {
            if let Some(status) = self.machine.try_wait()? {
                bail!("systemd-nspawn ended with {status}");
            }
            let is_first = |pid: &u32| {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                ["systemd", "init"].contains(&name.trim())
            };
            if let Some(pid) = descendants(self.machine.id()).into_iter().find(is_first) {
                return Ok(pid);
            }
            sleep(Duration::from_millis(100));
        }
        bail!("expected a first process of the system, saw none within {PATIENCE:?}")
    }

    /// Runs a command line; returns its exit code and what it printed.
    pub(crate) fn run(&self, line: &str) -> anyhow::Result<(i32, String)> {
        self.run_with(line, b"")
    }

    /// Runs a command line with these bytes as its input.
    pub(crate) fn run_with(&self, line: &str, input: &[u8]) -> anyhow::Result<(i32, String)> {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.leader.to_string(), "--mount", "--uts", "--ipc", "--net", "--pid"]);
        enter.args(["--root", "--wd", "timeout", "120", "/bin/sh", "-c", &format!("({line}) 2>&1")]);
        enter
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("TERM", "dumb");
        enter.env("DEBIAN_FRONTEND", "noninteractive");
        let mut child = enter.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().context("expected a pipe")?.write_all(input)?;
        let output = child.wait_with_output()?;
        Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Runs a command line that must succeed; returns what it printed.
    pub(crate) fn must(&self, line: &str) -> anyhow::Result<String> {
        let (code, text) = self.run(line)?;
        ensure!(code == 0, "`{line}` ended with exit code {code}:\n{text}");
        Ok(text)
    }

    /// Runs a command line until it succeeds; returns what it printed.
    pub(crate) fn wait(&self, line: &str, what: &str) -> anyhow::Result<String> {
        let mut last = String::new();
        for _ in 0..PATIENCE.as_millis() / 100 {
            let (code, text) = self.run(line)?;
            if code == 0 {
                return Ok(text);
            }
            last = text;
            sleep(Duration::from_millis(100));
        }
        bail!("expected {what} within {PATIENCE:?}; `{line}` printed last:\n{last}")
    }

    /// Returns the paths of all files that belong neither to the kernel nor to the package manager.
    pub(crate) fn files(&self) -> anyhow::Result<BTreeSet<String>> {
        let pruned = OF_THE_SYSTEM.map(|path| format!("-path {path}")).join(" -o ");
        let list = self.must(&format!("find / -xdev \\( {pruned} \\) -prune -o -print"))?;
        Ok(list.lines().map(str::to_owned).collect())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.machine.terminate(Duration::from_secs(20));
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Returns all processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children: Vec<u32> = text.split_whitespace().filter_map(|child| child.parse().ok()).collect();
        found.extend(&children);
        open.extend(children);
    }
    found
}
