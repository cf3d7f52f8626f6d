//! PEPsal at both gateways, in the comparison with split mode: a program that ends TCP connections and
//! begins them again, without a code.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use netlab::namespace::Child;
use netlab::topology::TwoSites;

use super::rig;

/// Port at which it takes connections.
const PORT: u16 = 5_000;
/// Mark of their packets, and the table of routes that leads these to this machine.
const MARK: &str = "1";
const TABLE: &str = "100";
/// The kernel settings of its connections: the congestion control of our carriers, and buffers as large as
/// theirs.
const KERNEL: [(&str, &str); 3] = [
    ("net.ipv4.tcp_congestion_control", "bbr"),
    ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
    ("net.ipv4.tcp_wmem", "4096 131072 67108864"),
];

/// The processes at both gateways. Dropping this ends them.
pub(super) struct Pepsal {
    children: Vec<Child>,
}

impl Pepsal {
    /// Starts the program at both gateways, for all TCP connections that they forward.
    ///
    /// # Errors
    /// If a rule is refused, or the program does not start.
    pub(super) fn start(program: &Path, sites: &TwoSites) -> anyhow::Result<Self> {
        let rules = format!(
            "table ip pepsal {{ chain arriving {{ type filter hook prerouting priority mangle; \
             meta l4proto tcp socket transparent 1 meta mark set {MARK} accept; \
             ip daddr != {{ {}, {} }} meta l4proto tcp tproxy to :{PORT} meta mark set {MARK} accept; }}; }}",
            sites.a.wan_v4(),
            sites.b.wan_v4(),
        );
        let mut pepsal = Self { children: Vec::new() };
        for site in [&sites.a, &sites.b] {
            let gateway = &site.gateway;
            for (name, value) in KERNEL {
                rig::run(gateway, "sysctl", &["-w", &format!("{name}={value}")], "")?;
            }
            rig::run(gateway, "ip", &["rule", "add", "fwmark", MARK, "lookup", TABLE], "")?;
            rig::run(gateway, "ip", &["route", "add", "local", "default", "dev", "lo", "table", TABLE], "")?;
            let mut command = Command::new(program);
            command.args(["-p", &PORT.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = gateway.spawn(command).with_context(|| format!("starting {}", program.display()))?;
            pepsal.children.push(child);
            let listens = || {
                let sockets = rig::run(gateway, "ss", &["-Hltn", &format!("sport = :{PORT}")], "");
                sockets.is_ok_and(|text| !text.is_empty())
            };
            rig::wait_for("PEPsal at its port", listens)?;
            rig::run(gateway, "nft", &["-f", "-"], &rules)?;
        }
        Ok(pepsal)
    }

    /// Processor time of both processes in seconds.
    ///
    /// # Errors
    /// If one has ended.
    pub(super) fn cpu_s(&self) -> anyhow::Result<f64> {
        self.children.iter().map(|child| rig::cpu_s(child.id())).sum()
    }
}

impl Drop for Pepsal {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.terminate(Duration::from_secs(2));
        }
    }
}
