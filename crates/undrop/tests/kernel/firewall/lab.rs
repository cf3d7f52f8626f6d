//! Two sites whose second gateway has a firewall, on one of several kinds of WAN interface.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ipnet::IpNet;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::namespace::Route;
use netlab::privilege;
use netlab::topology::{HOST, LAN, TwoSites, TwoSitesConfig, WAN};
use netlab::traffic::{Between, Pace, UdpReport, UdpStream, udp_stream, unwatched};
use netlab::{LabError, Namespace};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::disturbance::{assert_duplicates_arrived_late, undisturbed};
use crate::pair::PROGRAM;

/// The WAN interface of the second gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wan {
    /// The device of the link itself, without a link header.
    Plain,
    /// A card, to a router between it and the link.
    Ethernet,
    /// A VLAN on that card.
    Vlan,
    /// A bridge with that card as a port.
    Bridge,
}

/// Two sites. The second one has 10.82.0.0/24 and fd82::/64 behind its gateway if the gateway is not at the
/// link itself.
pub(crate) struct Lab {
    pub(crate) sites: TwoSites,
    kind: Wan,
    inner: Option<Namespace>,
}

/// Returns whether the test can run here: as root, with `nft`.
pub(crate) fn possible(name: &str) -> bool {
    if !privilege::available_or_skip(name) {
        return false;
    }
    let found = Command::new("nft").arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    skipped(&format!("{name}: no program `nft` (apt-get install nftables)"));
    false
}

/// Prints past the harness' capture, so that the line is visible and can be counted.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

impl Lab {
    /// Builds the sites on a link of 5 ms that loses `loss_percent` of the packets. `None` if the kernel
    /// lacks the kind of WAN interface.
    pub(crate) fn build(kind: Wan, loss_percent: f64) -> Option<Self> {
        let link = LinkConfig {
            rate_bps: Some(200_000_000),
            delay_us: 5_000,
            loss: format!("uniform:{loss_percent}%").parse().unwrap(),
            seed: 31,
            ..LinkConfig::default()
        };
        let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
        let mut lab = Self { sites, kind, inner: None };
        if kind != Wan::Plain {
            if let Err(error) = lab.add_wan() {
                skipped(&format!("{kind:?} as the WAN: {error}"));
                return None;
            }
            lab.add_router();
        }
        Some(lab)
    }

    fn add_wan(&self) -> Result<(), LabError> {
        let (router, gateway) = (&self.sites.b.gateway, &self.sites.b.hosts[0]);
        match self.kind {
            Wan::Vlan => {
                router.add_vlan("vlan7", LAN, 7)?;
                gateway.add_vlan("vlan7", HOST, 7)
            }
            Wan::Bridge => {
                gateway.add_bridge("br0", 1_300)?;
                gateway.set_bridge(HOST, "br0")
            }
            Wan::Plain | Wan::Ethernet => Ok(()),
        }
    }

    /// Makes the second site's host a gateway behind the router at the link, with a host of its own.
    fn add_router(&mut self) {
        let (router, gateway) = (&self.sites.b.gateway, &self.sites.b.hosts[0]);
        let inner = Namespace::create("host-inner").unwrap();
        gateway.add_veth(LAN, &inner, HOST, 1_300).unwrap();
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.send_redirects", "0"),
        ] {
            gateway.sysctl(key, value).unwrap();
        }
        let router_side = if self.kind == Wan::Vlan { "vlan7" } else { LAN };
        let everywhere = ["0.0.0.0/0", "::/0"].map(net);
        for (version, everywhere) in everywhere.into_iter().enumerate() {
            let [up, down] =
                [["10.83.0.1/24", "fd83::1/64"], ["10.83.0.2/24", "fd83::2/64"]].map(|all| net(all[version]));
            let [near, far] =
                [["10.82.0.1/24", "fd82::1/64"], ["10.82.0.2/24", "fd82::2/64"]].map(|all| net(all[version]));
            router.add_address(router_side, up).unwrap();
            gateway.add_address(self.wan(), down).unwrap();
            gateway.add_address(LAN, near).unwrap();
            inner.add_address(HOST, far).unwrap();
            inner.add_route(&Route::to(everywhere).via(near.addr())).unwrap();
            for network in self.sites.a.networks().into_iter().chain([net("10.81.9.0/24")]) {
                if network.addr().is_ipv4() == up.addr().is_ipv4() {
                    gateway.add_route(&Route::to(network).via(up.addr()).interface(self.wan())).unwrap();
                }
            }
            let to_gateway = |to: IpNet| Route::to(to).via(down.addr()).interface(router_side);
            router.add_route(&to_gateway(near.trunc())).unwrap();
            let next_hop = if version == 0 { self.sites.b.wan_v4() } else { self.sites.b.wan_v6() };
            for network in [near.trunc(), down.trunc()] {
                self.sites.a.gateway.add_route(&Route::to(network).via(next_hop).interface(WAN)).unwrap();
            }
        }
        self.inner = Some(inner);
    }

    /// Returns the second gateway.
    pub(crate) fn gateway(&self) -> &Namespace {
        match self.kind {
            Wan::Plain => &self.sites.b.gateway,
            _ => &self.sites.b.hosts[0],
        }
    }

    /// Returns the host behind the second gateway.
    pub(crate) fn host(&self) -> &Namespace {
        self.inner.as_ref().unwrap_or(&self.sites.b.hosts[0])
    }

    /// Returns the WAN interface of the second gateway.
    pub(crate) fn wan(&self) -> &'static str {
        match self.kind {
            Wan::Plain => WAN,
            Wan::Ethernet => HOST,
            Wan::Vlan => "vlan7",
            Wan::Bridge => "br0",
        }
    }

    pub(crate) fn address(&self, v6: bool) -> IpAddr {
        match (self.kind, v6) {
            (Wan::Plain, false) => self.sites.b.host_v4(0),
            (Wan::Plain, true) => self.sites.b.host_v6(0),
            (_, false) => net("10.82.0.2/32").addr(),
            (_, true) => net("fd82::2/128").addr(),
        }
    }

    /// Starts both gateways.
    pub(crate) fn start(&self, setting: &Setting) -> GatewayPair {
        self.start_program(Path::new(PROGRAM), setting)
    }

    /// Starts both gateways without the right to load eBPF programs, by a script in `directory`.
    pub(crate) fn start_without_bpf(&self, directory: &Path, setting: &Setting) -> GatewayPair {
        let script = directory.join("without-bpf");
        let text = format!("#!/bin/sh\nexec setpriv --bounding-set=-bpf,-sys_admin {PROGRAM} \"$@\"\n");
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        self.start_program(&script, setting)
    }

    fn start_program(&self, program: &Path, setting: &Setting) -> GatewayPair {
        GatewayPair::start(program, &self.ends(), setting).unwrap()
    }

    /// Returns both gateways.
    pub(crate) fn ends(&self) -> [End<'_>; 2] {
        let [a, mut b] = End::of(&self.sites);
        if self.kind != Wan::Plain {
            b = End {
                namespace: self.gateway(),
                wan: self.wan(),
                listen: SocketAddr::new(net("10.83.0.2/32").addr(), 4700),
                networks: vec![net("10.82.0.0/24"), net("fd82::/64")],
            };
        }
        [a, b]
    }

    /// Loads a ruleset into the second gateway. `WAN` and `LAN` stand for its interfaces.
    pub(crate) fn rules(&self, text: &str) {
        self.rules_at(self.gateway(), text);
    }

    /// Loads a ruleset into a namespace.
    pub(crate) fn rules_at(&self, namespace: &Namespace, text: &str) {
        let text = text.replace("WAN", self.wan()).replace("LAN", LAN);
        let file = std::env::temp_dir().join(format!("undrop-rules-{}-{:p}", std::process::id(), self));
        fs::write(&file, &text).unwrap();
        command_at(namespace, "nft", &["-f", &file.display().to_string()]);
        fs::remove_file(&file).unwrap();
    }

    /// Runs a program at the second gateway.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) {
        command_at(self.gateway(), program, arguments);
    }

    pub(crate) fn between(&self, v6: bool) -> Between<'_> {
        Between { from: &self.sites.a.hosts[0], to: self.host(), address: self.address(v6) }
    }

    /// Sends 500 packets a second to the host behind the second gateway, for 3 s.
    pub(crate) fn stream(&self, v6: bool) -> UdpReport {
        self.stream_at(500.0, v6)
    }

    /// Sends packets at this rate, for 3 s. Each of a slow stream has repairs of its own.
    pub(crate) fn stream_at(&self, packets_per_second: f64, v6: bool) -> UdpReport {
        let plan = UdpStream {
            pace: Pace::Packets(packets_per_second),
            payload_bytes: 300,
            duration: Duration::from_secs(3),
            patience: Duration::from_secs(1),
            ..UdpStream::default()
        };
        udp_stream(self.between(v6), &plan, &mut unwatched).unwrap()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.sites.link.counters(Direction::AToB).link.lost
    }

    /// Asserts that of 1,500 packets, of which the link loses some 60, nearly all arrive, each of them once.
    pub(crate) fn assert_recovered(&self, pair: &GatewayPair, v6: bool) {
        let mut duplicates = 0;
        let report = undisturbed(pair, || {
            let before = self.lost();
            let report = self.stream(v6);
            assert!(self.lost() > before + 20, "the link must lose packets");
            duplicates += report.duplicates;
            report
        });
        assert_eq!(report.altered, 0);
        assert_duplicates_arrived_late(pair, 1, duplicates);
        let (missing, sent) = (report.missing(), report.sent_us.len());
        assert!(missing <= 8, "{missing} of {sent} are missing at {:?}\n{}", self.kind, pair.logs());
    }
}

/// Runs a program in a namespace, and returns what it prints.
pub(crate) fn command_at(namespace: &Namespace, program: &str, arguments: &[&str]) -> String {
    let output = namespace.run(|| Command::new(program).args(arguments).output().unwrap());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}
