//! Installs the Debian package in two fresh systems, protects traffic between them, upgrades and removes it:
//! `install PACKAGE.deb`. `cargo xtask dist --test` runs it, as root.
//!
//! The systems are containers whose first process is systemd, so that the units of the package run as they do
//! on a router. Between them is an emulated link with 1 % loss.

mod container;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use netlab::topology::TwoSites;
use netlab::traffic::{Pace, UdpReport, UdpStream, udp_stream, unwatched};
use serde_json::Value;
use stage::gateways::{between, sites};

use self::container::{Container, base};

const SERVICE: &str = "undrop-gateway@gateway";
/// Effective capabilities of the service: `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`.
const CAPABILITIES: u64 = 1 << 12 | 1 << 13 | 1 << 39;
/// Share of packets that may stay lost while both gateways run. The link loses 1 %: with half of the packets
/// protected, 0.5 % stay lost.
const RESIDUAL_MAX: f64 = 0.003;
const RATE_BPS: f64 = 10e6;

/// Both systems, and the link between them.
struct Stage {
    systems: [Container; 2],
    sites: TwoSites,
}

fn main() -> anyhow::Result<()> {
    let package = std::env::args_os().nth(1).context("expected a package: install PACKAGE.deb")?;
    let package = PathBuf::from(package);
    let packages = package.parent().context("expected a path with a directory")?.join("../dist-install");
    fs::create_dir_all(&packages)?;
    let packages = packages.canonicalize()?;
    fs::copy(&package, packages.join("undrop.deb"))?;
    let next = repack(&packages)?;
    let base = base(&packages)?;
    let sites = sites(Some(1_000_000_000), 10_000, &"uniform:1%".parse()?, 1)?;
    let boot = |name, namespace| Container::boot(&base, name, &packages, namespace);
    let systems = [boot("site1", &sites.a.gateway)?, boot("site2", &sites.b.gateway)?];
    let stage = Stage { systems, sites };
    let untouched = stage.systems[0].files()?;

    stage.install()?;
    stage.check_service()?;
    let report = stage.stream(Duration::from_secs(20))?;
    stage.check_protection(&report)?;
    stage.operate()?;
    stage.upgrade(&next)?;
    stage.relay()?;
    stage.remove(&untouched)?;
    println!("all of it works");
    Ok(())
}

/// Makes the package of the next version, with the same files.
fn repack(packages: &Path) -> anyhow::Result<String> {
    let (package, files) = (packages.join("undrop.deb"), packages.join("next"));
    let _ = fs::remove_dir_all(&files);
    let dpkg = |args: &[&str], first: &Path, second: &Path| -> anyhow::Result<()> {
        let done = Command::new("dpkg-deb").args(args).arg(first).arg(second).status()?;
        ensure!(done.success(), "dpkg-deb {args:?} has failed");
        Ok(())
    };
    dpkg(&["--raw-extract"], &package, &files)?;
    let control = files.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let version = text.lines().find_map(|line| line.strip_prefix("Version: ")).context("no version")?;
    let next = format!("{version}+next");
    fs::write(&control, text.replace(&format!("Version: {version}\n"), &format!("Version: {next}\n")))?;
    dpkg(&["--root-owner-group", "-Znone", "--build"], &files, &packages.join("next.deb"))?;
    fs::remove_dir_all(&files)?;
    Ok(next)
}

impl Stage {
    /// Does what README says, at both sites.
    fn install(&self) -> anyhow::Result<()> {
        let [one, two] = &self.systems;
        let file = |near: u8, far: u8| {
            format!(
                "[gateway]\nwan = \"wan0\"\nlisten = \"10.81.9.{near}:4700\"\n[[peer]]\nname = \"site{far}\"\n\
                 address = \"10.81.9.{far}:4700\"\nnetworks = [\"10.81.{far}.0/24\"]\n\
                 key_file = \"/etc/undrop/peer.key\"\n"
            )
        };
        let install = "apt-get install --yes /packages/undrop.deb";
        let start = now();
        let mut typed = [0, 0];
        let mut type_at = |site: usize, line: &str, input: &str| -> anyhow::Result<()> {
            let (code, text) = self.systems[site].run_with(line, input.as_bytes())?;
            ensure!(code == 0, "`{line}` ended with exit code {code}:\n{text}");
            typed[site] += 1;
            Ok(())
        };
        type_at(0, install, "")?;
        type_at(0, "undrop gateway genkey --out /etc/undrop/peer.key", "")?;
        type_at(0, "cat > /etc/undrop/gateway.toml", &file(1, 2))?;
        type_at(0, &format!("systemctl enable --now {SERVICE}"), "")?;
        type_at(1, install, "")?;
        // As scp does it: the key belongs to root, and to nobody else.
        let key = one.must("cat /etc/undrop/peer.key")?;
        type_at(1, "umask 077; cat > /etc/undrop/peer.key", &key)?;
        type_at(1, "cat > /etc/undrop/gateway.toml", &file(2, 1))?;
        type_at(1, &format!("systemctl enable --now {SERVICE}"), "")?;
        for (site, system) in [one, two].into_iter().enumerate() {
            let said = system.wait("undrop gateway health", "a protected peer")?;
            typed[site] += 1;
            println!("site {}: {}", site + 1, said.trim());
        }
        println!("commands typed: {} and {}; {:.1} s", typed[0], typed[1], start.elapsed().as_secs_f64());
        ensure!(typed.iter().all(|&count| count <= 6), "expected at most 6 commands a site, saw {typed:?}");
        Ok(())
    }

    /// Checks what the service may do, and that it has all that it needs.
    fn check_service(&self) -> anyhow::Result<()> {
        for system in &self.systems {
            let pid = main_pid(system)?;
            let facts = system.must(&format!("cat /proc/{pid}/status"))?;
            let fact = |key: &str| {
                let line = facts.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"));
                line.map(str::to_owned).with_context(|| format!("no {key} in\n{facts}"))
            };
            ensure!(!fact("Uid")?.starts_with("0\t"), "the service must not be root: {}", fact("Uid")?);
            let effective = u64::from_str_radix(&fact("CapEff")?, 16)?;
            ensure!(effective == CAPABILITIES, "expected capabilities {CAPABILITIES:x}, saw {effective:x}");
            let bounded = u64::from_str_radix(&fact("CapBnd")?, 16)?;
            ensure!(bounded == CAPABILITIES, "expected a bound {CAPABILITIES:x}, saw {bounded:x}");
            ensure!(fact("Seccomp")? == "2", "expected a filter of system calls, saw none");
            ensure!(fact("NoNewPrivs")? == "1", "expected that no program can gain privileges");
            let status = status(system)?;
            let ways = [&status["gateway"]["tap"], &status["gateway"]["injection"]];
            ensure!(ways == ["ebpf", "wan"], "expected the tap ebpf and injection at the WAN, saw {ways:?}");
            let shown = system.must(&format!("systemctl show --property=StatusText {SERVICE}"))?;
            let score = system.must(&format!("systemd-analyze security --no-pager {SERVICE} | tail -1"))?;
            println!("{}\n{}", shown.trim(), score.trim());
            let log = system
                .must(&format!("journalctl --no-pager --output=cat --priority=warning --unit={SERVICE}"))?;
            ensure!(log.lines().all(|line| !line.contains("ermi")), "a step was not permitted:\n{log}");
        }
        Ok(())
    }

    fn stream(&self, duration: Duration) -> anyhow::Result<UdpReport> {
        let plan = UdpStream { pace: Pace::Bits(RATE_BPS), duration, ..UdpStream::default() };
        Ok(udp_stream(between(&self.sites), &plan, &mut unwatched)?)
    }

    fn check_protection(&self, report: &UdpReport) -> anyhow::Result<()> {
        let status = status(&self.systems[1])?;
        let injected = status["peers"][0]["ingress"]["injected_packets"].as_u64().unwrap_or(0);
        let (sent, missing) = (report.sent_us.len(), report.missing());
        println!("{sent} packets sent over a link with 1 % loss: {injected} recovered, {missing} missing");
        ensure!(injected > 0, "nothing was recovered: {status:#}");
        check_losses(report)
    }

    /// Reloads, kills and stops the gateway of one site: it goes on, or comes back by itself.
    fn operate(&self) -> anyhow::Result<()> {
        let [system, _] = &self.systems;
        let pid = main_pid(system)?;
        system.must(&format!("systemctl reload {SERVICE}"))?;
        ensure!(main_pid(system)? == pid, "a reload must not start another process");
        system.wait("undrop gateway health", "a protected peer after a reload")?;
        self.fail_and_return(0, "ABRT", "a crash")?;
        self.fail_and_return(0, "STOP", "a hang")
    }

    /// Sends a signal to the gateway of a site, which ends or hangs, and waits until the service is back.
    fn fail_and_return(&self, site: usize, signal: &str, fault: &str) -> anyhow::Result<()> {
        let system = &self.systems[site];
        let pid = main_pid(system)?;
        let start = now();
        system.must(&format!("systemctl kill --kill-whom=main --signal={signal} {SERVICE}"))?;
        let other = format!(
            "pid=$(systemctl show --property=MainPID --value {SERVICE}); test $pid -gt 0 -a $pid != {pid}"
        );
        system.wait(&other, "another process")?;
        system.wait("undrop gateway health", "a protected peer")?;
        println!("protected again {:.1} s after {fault}", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Installs the next version at one site while traffic passes.
    fn upgrade(&self, next: &str) -> anyhow::Result<()> {
        let [_, system] = &self.systems;
        let pid = main_pid(system)?;
        // The manager gives each start of a service another one.
        let start = format!("systemctl show --property=InvocationID --value {SERVICE}");
        let started = system.must(&start)?;
        let key = system.must("sha256sum /etc/undrop/peer.key /etc/undrop/gateway.toml")?;
        let report = std::thread::scope(|scope| {
            let stream = scope.spawn(|| self.stream(Duration::from_secs(15)));
            let upgraded = system.must("sleep 3; apt-get install --yes /packages/next.deb");
            let report = stream.join().expect("a stream does not panic");
            upgraded.and(report)
        })?;
        let version = system.must("dpkg-query --show --showformat='${Version}' undrop")?;
        ensure!(version == next, "expected version {next}, saw {version}");
        ensure!(main_pid(system)? != pid, "expected another process after the upgrade");
        ensure!(system.must(&start)? == started, "expected a hand-over, saw a restart");
        system.wait("undrop gateway health", "a protected peer after the upgrade")?;
        let kept = system.must("sha256sum /etc/undrop/peer.key /etc/undrop/gateway.toml")?;
        ensure!(kept == key, "an upgrade must not change what the operator has written");
        println!("upgrade: {} of {} packets stay lost in 15 s", report.missing(), report.sent_us.len());
        check_losses(&report)?;
        // The manager watches the process that has taken over, too.
        self.fail_and_return(1, "ABRT", "a crash after the upgrade")
    }

    /// Starts a multicast relay by its unit.
    fn relay(&self) -> anyhow::Result<()> {
        let [system, _] = &self.systems;
        let pairs = [
            (
                "/etc/undrop/node.toml",
                "[node]\ninterface = \"wan0\"\ncontrol = \"/run/undrop/node.sock\"\n[key]\nfile = \"/etc/undrop/cluster.key\"\n",
            ),
            (
                "/etc/undrop/node.env",
                "UNDROP_GROUPS=239.1.1.1:5000 239.1.1.2:5000\nUNDROP_OPTIONS=--local lo\n",
            ),
        ];
        for (path, text) in pairs {
            let (code, said) = system.run_with(&format!("cat > {path}"), text.as_bytes())?;
            ensure!(code == 0, "{said}");
        }
        system.must("undrop multicast genkey --out /etc/undrop/cluster.key")?;
        if let Err(error) = system.must("systemctl enable --now undrop-node@node") {
            let (_, log) = system.run("journalctl --no-pager --output=cat --unit=undrop-node@node")?;
            return Err(error.context(log));
        }
        let shown = system.must("systemctl show --property=StatusText --value undrop-node@node")?;
        ensure!(shown.trim() == "relays 2 groups at lo", "expected the state of the relay, saw {shown:?}");
        let status: Value = serde_json::from_str(&system.must("undrop multicast status --json")?)?;
        ensure!(status["groups"].as_array().is_some_and(|groups| groups.len() == 2), "{status:#}");
        let pid = system.must("systemctl show --property=MainPID --value undrop-node@node")?;
        let facts = system.must(&format!("grep CapEff /proc/{}/status", pid.trim()))?;
        ensure!(facts.contains("0000000000000000"), "expected no capabilities, saw {facts}");
        Ok(())
    }

    /// Removes the package; nothing of it is left.
    fn remove(&self, untouched: &std::collections::BTreeSet<String>) -> anyhow::Result<()> {
        let [system, _] = &self.systems;
        system.must("apt-get purge --yes undrop")?;
        let left: Vec<String> = system.files()?.difference(untouched).cloned().collect();
        // The backups that the tools for users and groups write.
        let is_backup = |path: &String| path.starts_with("/etc/") && path.ends_with('-');
        let left: Vec<String> = left.into_iter().filter(|path| !is_backup(path)).collect();
        ensure!(left.is_empty(), "expected no file of the package, saw {left:?}");
        for (line, what) in [
            ("! ls -d /run/undrop /var/lib/undrop /etc/undrop 2>/dev/null", "directories"),
            ("! getent passwd undrop && ! getent group undrop", "the user"),
            ("! systemctl list-unit-files --no-legend 'undrop*' | grep .", "units"),
            ("! systemctl list-units --state=active,failed --no-legend 'undrop*@*' | grep .", "services"),
            ("! grep undrop /proc/net/dev", "the TUN device"),
            ("! ls -l /proc/[0-9]*/exe 2>/dev/null | grep bin/undrop", "processes"),
        ] {
            system.wait(line, &format!("that {what} are gone"))?;
        }
        println!("purged: nothing is left");
        Ok(())
    }
}

/// Checks that no more packets of a stream stay lost than the gateways may leave.
fn check_losses(report: &UdpReport) -> anyhow::Result<()> {
    let (sent, missing) = (report.sent_us.len(), report.missing());
    ensure!(missing as f64 <= sent as f64 * RESIDUAL_MAX, "{missing} of {sent} packets stay lost");
    Ok(())
}

fn main_pid(system: &Container) -> anyhow::Result<u32> {
    let pid = system.must(&format!("systemctl show --property=MainPID --value {SERVICE}"))?;
    let pid = pid.trim().parse().with_context(|| format!("expected a process, saw {pid:?}"))?;
    ensure!(pid > 0, "expected a running {SERVICE}, saw none");
    Ok(pid)
}

fn status(system: &Container) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&system.must("undrop gateway status --json")?)?)
}

#[expect(clippy::disallowed_methods, reason = "not a core: measures the steps of an operator")]
fn now() -> Instant {
    Instant::now()
}
