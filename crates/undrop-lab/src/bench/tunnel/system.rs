//! The tunnels in the comparison: how each of them is started between two sites, and what it costs.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, process};

use anyhow::{Context as _, bail};
use netlab::Namespace;
use netlab::namespace::Child;
use netlab::topology::{TwoSites, WAN};
use stage::gateways::{GatewayPair, Setting, part};

use crate::bench::rig::{self, run, wait_for};

/// Port of the outer datagrams of other tunnels.
const PORT: u16 = 4_096;
/// Port of WireGuard, and that at which a tunnel below it takes its datagrams.
const WIREGUARD: u16 = 51_820;
const BELOW: u16 = 3_333;
const WIREGUARD_GO: &str = "wireguard-go";
/// Repairs of other tunnels for each of their groups of 20 packets, their authors' example for lossy links.
const FEC: &str = "20:10";
/// Port of the host that takes connections, where a tunnel forwards single connections.
const TCP_PORT: u16 = 5_201;
/// Port of VXLAN.
const VXLAN_PORT: &str = "4789";

/// A tunnel, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// The gateways forward packets.
    None,
    /// Gateways in tunnel mode.
    Undrop,
    /// WireGuard as a program, without a code.
    WireguardGo,
    /// WireGuard as a program, whose datagrams travel in UDPspeeder's.
    UdpSpeeder,
    /// The same with the fork that has vector code.
    UdpSpeederSimd,
    /// A tunnel with the code of UDPspeeder.
    TinyFecVpn,
    /// WireGuard as another program, without a code.
    Boringtun,
    /// The kernel's own tunnel over UDP: neither a code nor encryption.
    Vxlan,
    /// TCP connections over KCP, as kcptun carries them: a stand-in for it with its libraries.
    KcpStandIn,
}

impl System {
    pub(super) const ALL: [Self; 9] = [
        Self::None,
        Self::Undrop,
        Self::WireguardGo,
        Self::UdpSpeeder,
        Self::UdpSpeederSimd,
        Self::TinyFecVpn,
        Self::Boringtun,
        Self::Vxlan,
        Self::KcpStandIn,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Undrop => "undrop",
            Self::WireguardGo => "wireguard-go",
            Self::UdpSpeeder => "udpspeeder",
            Self::UdpSpeederSimd => "udpspeeder-simd",
            Self::TinyFecVpn => "tinyfecvpn",
            Self::Boringtun => "boringtun",
            Self::Vxlan => "vxlan",
            Self::KcpStandIn => "kcp-stand-in",
        }
    }

    /// Whether it is a tunnel of others.
    pub(super) fn is_other(self) -> bool {
        !matches!(self, Self::None | Self::Undrop)
    }

    /// The port at which the receiving host of TCP must listen, where single connections are forwarded.
    pub(super) fn tcp_port(self) -> Option<u16> {
        (self == Self::KcpStandIn).then_some(TCP_PORT)
    }

    /// The program below `peers` that it needs.
    fn program(self, peers: &Path) -> Option<PathBuf> {
        let name = match self {
            Self::UdpSpeeder => "speederv2",
            Self::UdpSpeederSimd => "speederv2-simd",
            Self::TinyFecVpn => "tinyvpn",
            Self::Boringtun => "boringtun-cli",
            Self::KcpStandIn => "kcp-stand-in",
            Self::None | Self::Undrop | Self::WireguardGo | Self::Vxlan => return None,
        };
        Some(peers.join(name))
    }

    /// Says which program it lacks on this machine.
    pub(super) fn missing(self, peers: &Path) -> Option<String> {
        if let Some(program) = self.program(peers).filter(|program| !program.is_file()) {
            return Some(format!("no {}; bench/peers/tunnels/build.sh makes it", program.display()));
        }
        let needs: &[_] = match self {
            Self::WireguardGo | Self::UdpSpeeder | Self::UdpSpeederSimd => &["wireguard-go", "wg"],
            Self::Boringtun => &["wg"],
            _ => &[],
        };
        let absent = needs.iter().find(|name| !is_installed(name))?;
        Some(format!("no program `{absent}` (Debian: wireguard-go, wireguard-tools)"))
    }

    /// Starts it between the sites. `setting` is that of our gateways.
    ///
    /// # Errors
    /// If a program does not start, or does not find its peer.
    pub(super) fn start(
        self,
        program: &Path,
        peers: &Path,
        sites: &TwoSites,
        setting: &Setting,
    ) -> anyhow::Result<Running> {
        let mut running = Running::default();
        if self == Self::None {
            return Ok(running);
        }
        part(sites)?;
        match (self, self.program(peers)) {
            (Self::Undrop, _) => running.pair = Some(rig::gateways(program, sites, setting)?),
            (Self::WireguardGo, _) => running.start_wireguard(sites, Path::new(WIREGUARD_GO), None)?,
            (Self::Vxlan, _) => start_vxlan(sites)?,
            (Self::TinyFecVpn, Some(tinyvpn)) => running.start_tinyfecvpn(sites, &tinyvpn)?,
            (Self::Boringtun, Some(boringtun)) => running.start_wireguard(sites, &boringtun, None)?,
            (Self::KcpStandIn, Some(stand_in)) => running.start_kcp(sites, &stand_in)?,
            (_, Some(speeder)) => {
                running.start_udpspeeder(sites, &speeder)?;
                running.start_wireguard(sites, Path::new(WIREGUARD_GO), Some(BELOW))?;
            }
            _ => bail!("expected a program of {}", self.name()),
        }
        Ok(running)
    }
}

fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// The processes of a tunnel. Dropping this ends them.
#[derive(Default)]
pub(super) struct Running {
    pub(super) pair: Option<GatewayPair>,
    children: Vec<Child>,
    sockets: Vec<PathBuf>,
}

impl Running {
    /// Processor time of all its processes in seconds.
    ///
    /// # Errors
    /// If one has ended.
    pub(super) fn cpu_s(&self) -> anyhow::Result<f64> {
        let gateways = self.pair.as_ref().map(rig::statuses).transpose()?;
        let gateways = gateways.iter().flatten().map(|status| status.gateway.pid);
        let others = self.children.iter().map(|child| child.id());
        gateways.chain(others).map(rig::cpu_s).sum()
    }

    fn spawn(&mut self, namespace: &Namespace, command: &mut Command) -> anyhow::Result<()> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = command.get_program().to_string_lossy().into_owned();
        let command = std::mem::replace(command, Command::new(""));
        self.children.push(namespace.spawn(command).with_context(|| format!("starting {name}"))?);
        Ok(())
    }

    /// Starts a program of WireGuard at both ends. With `below`, datagrams of the first end go to this port
    /// of its own machine, where another tunnel takes them.
    fn start_wireguard(
        &mut self,
        sites: &TwoSites,
        program: &Path,
        below: Option<u16>,
    ) -> anyhow::Result<()> {
        let ends = [&sites.a, &sites.b];
        let mut private = Vec::new();
        for _ in ends {
            private.push(run(&sites.a.gateway, "wg", &["genkey"], "")?);
        }
        let mut public = Vec::new();
        for key in &private {
            public.push(run(&sites.a.gateway, "wg", &["pubkey"], key)?);
        }
        for (side, near) in ends.into_iter().enumerate() {
            let far = ends[1 - side];
            // The sockets of all such processes share a directory.
            let device = format!("wg{}t{side}", process::id() % 100_000);
            let socket = PathBuf::from(format!("/var/run/wireguard/{device}.sock"));
            let mut command = Command::new(program);
            command.args(["--foreground", &device]).env("LOG_LEVEL", "error");
            if program != Path::new(WIREGUARD_GO) {
                command.arg("--disable-drop-privileges");
            }
            self.spawn(&near.gateway, &mut command)?;
            self.sockets.push(socket.clone());
            // `wg` removes a socket at which nobody listens yet, and asks the kernel in its place.
            wait_for("the socket of WireGuard", || UnixStream::connect(&socket).is_ok())?;
            let endpoint = match below {
                None => format!("Endpoint = {}:{WIREGUARD}\n", far.wan_v4()),
                Some(port) if side == 0 => format!("Endpoint = 127.0.0.1:{port}\n"),
                // It answers where the datagrams come from.
                Some(_) => String::new(),
            };
            let networks = far.networks().map(|network| network.to_string());
            let file = format!(
                "[Interface]\nPrivateKey = {}\nListenPort = {WIREGUARD}\n[Peer]\nPublicKey = {}\n\
                 AllowedIPs = {}\n{endpoint}PersistentKeepalive = 1\n",
                private[side],
                public[1 - side],
                networks.join(", ")
            );
            run(&near.gateway, "wg", &["setconf", &device, "/dev/stdin"], &file)?;
            // The hosts' packets of up to 1,300 bytes pass whole, as they do through other tunnels.
            run(&near.gateway, "ip", &["link", "set", &device, "mtu", "1420", "up"], "")?;
            lead(&near.gateway, &networks, &device)?;
        }
        let handshakes = || {
            let device = format!("wg{}t0", process::id() % 100_000);
            let text = run(&sites.a.gateway, "wg", &["show", &device, "latest-handshakes"], "");
            text.is_ok_and(|text| text.split_whitespace().nth(1).is_some_and(|at| at != "0"))
        };
        wait_for("a handshake of WireGuard", handshakes)
    }

    /// Starts UDPspeeder below the ports of WireGuard.
    fn start_udpspeeder(&mut self, sites: &TwoSites, speeder: &Path) -> anyhow::Result<()> {
        let (listen, to) = (format!("0.0.0.0:{PORT}"), format!("127.0.0.1:{WIREGUARD}"));
        let server = ["-s", "-l", &listen, "-r", &to, "-f", FEC, "-k", "bench"];
        self.spawn(&sites.b.gateway, Command::new(speeder).args(server))?;
        let (listen, to) = (format!("127.0.0.1:{BELOW}"), format!("{}:{PORT}", sites.b.wan_v4()));
        let client = ["-c", "-l", &listen, "-r", &to, "-f", FEC, "-k", "bench"];
        self.spawn(&sites.a.gateway, Command::new(speeder).args(client))
    }

    fn start_tinyfecvpn(&mut self, sites: &TwoSites, tinyvpn: &Path) -> anyhow::Result<()> {
        const DEVICE: &str = "tinyfec0";
        let (listen, to) = (format!("0.0.0.0:{PORT}"), format!("{}:{PORT}", sites.b.wan_v4()));
        let common = ["-f", FEC, "-k", "bench", "--sub-net", "10.22.22.0", "--tun-dev", DEVICE];
        self.spawn(&sites.b.gateway, Command::new(tinyvpn).args(["-s", "-l", &listen]).args(common))?;
        let client = ["-c", "-r", &to, "--keep-reconnect"];
        self.spawn(&sites.a.gateway, Command::new(tinyvpn).args(client).args(common))?;
        for (near, far) in [(&sites.b, &sites.a), (&sites.a, &sites.b)] {
            wait_for("the device of tinyfecVPN", || {
                run(&near.gateway, "ip", &["link", "show", DEVICE], "").is_ok()
            })?;
            // It carries IPv4 alone.
            lead(&near.gateway, &[far.networks()[0].to_string()], DEVICE)?;
        }
        wait_for_answer(sites, SocketAddr::from(([10, 22, 22, 1], 9)))
    }

    /// Starts KCP at both ends. The first gateway hands it all connections to the other site.
    fn start_kcp(&mut self, sites: &TwoSites, stand_in: &Path) -> anyhow::Result<()> {
        let (listen, to) = (format!("0.0.0.0:{PORT}"), format!("{}:{TCP_PORT}", sites.b.host_v4(0)));
        self.spawn(
            &sites.b.gateway,
            Command::new(stand_in).args(["-server", "-listen", &listen, "-to", &to]),
        )?;
        let (listen, to) = (format!("0.0.0.0:{BELOW}"), format!("{}:{PORT}", sites.b.wan_v4()));
        self.spawn(&sites.a.gateway, Command::new(stand_in).args(["-listen", &listen, "-to", &to]))?;
        let rule = format!(
            "add table ip kcp; add chain ip kcp arriving {{ type nat hook prerouting priority dstnat; }}; \
             add rule ip kcp arriving ip daddr {} meta l4proto tcp redirect to :{BELOW}",
            sites.b.networks()[0]
        );
        run(&sites.a.gateway, "nft", &[&rule], "")?;
        wait_for("the port of KCP", || {
            let sockets = run(&sites.a.gateway, "ss", &["-Hltn", &format!("sport = :{BELOW}")], "");
            sockets.is_ok_and(|text| !text.is_empty())
        })
    }
}

/// Waits until something at this address of the far end takes a connection or refuses it.
fn wait_for_answer(sites: &TwoSites, far: SocketAddr) -> anyhow::Result<()> {
    let knock = || TcpStream::connect_timeout(&far, Duration::from_secs(1));
    let is_answer = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    wait_for("an answer through the tunnel", || {
        sites.a.gateway.run(|| knock().map_or_else(is_answer, |_| true))
    })
}

/// Sets up the kernel's tunnel at both ends, for IPv4 alone.
fn start_vxlan(sites: &TwoSites) -> anyhow::Result<()> {
    const DEVICE: &str = "vxlan0";
    for (own, other, near, far) in [(1, 2, &sites.a, &sites.b), (2, 1, &sites.b, &sites.a)] {
        let (local, remote) = (near.wan_v4().to_string(), far.wan_v4().to_string());
        let tunnel = ["id", "81", "local", &local, "remote", &remote, "dstport", VXLAN_PORT, "dev", WAN];
        let ip = |arguments: &[&str]| run(&near.gateway, "ip", arguments, "");
        ip(&[&["link", "add", DEVICE, "type", "vxlan"][..], &tunnel].concat())?;
        ip(&["address", "add", &format!("10.23.23.{own}/24"), "dev", DEVICE])?;
        ip(&["link", "set", DEVICE, "mtu", "1420", "up"])?;
        let network = far.networks()[0].to_string();
        ip(&["route", "replace", &network, "via", &format!("10.23.23.{other}"), "dev", DEVICE])?;
    }
    wait_for_answer(sites, SocketAddr::from(([10, 23, 23, 2], 9)))
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.terminate(Duration::from_secs(2));
        }
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

/// Sets routes to networks by a device.
fn lead(gateway: &Namespace, networks: &[String], device: &str) -> anyhow::Result<()> {
    for network in networks {
        run(gateway, "ip", &["route", "replace", network, "dev", device], "")?;
    }
    Ok(())
}

/// Returns the system of this name.
///
/// # Errors
/// All names, if there is none.
pub(super) fn parse(text: &str) -> Result<System, String> {
    let names = System::ALL.map(System::name).join(", ");
    let found = System::ALL.into_iter().find(|system| system.name() == text);
    found.ok_or_else(|| format!("expected one of {names}, saw {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_have_names_of_their_own_and_say_what_they_need() {
        for system in System::ALL {
            assert_eq!(parse(system.name()), Ok(system));
        }
        assert!(parse("gre").unwrap_err().contains("undrop, wireguard-go"));
        let nowhere = Path::new("/nonexistent");
        assert_eq!(System::Undrop.missing(nowhere), None);
        let built = [
            System::UdpSpeeder,
            System::UdpSpeederSimd,
            System::TinyFecVpn,
            System::Boringtun,
            System::KcpStandIn,
        ];
        for system in built {
            assert!(system.missing(nowhere).unwrap().contains("build.sh"), "{system:?}");
        }
    }
}
