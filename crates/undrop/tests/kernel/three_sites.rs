//! Three gateways, each with two peers: a passive one on a path that the routers know, and tunnels to a site
//! that no router knows.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use keyfile::KeyText;
use loss::LossModel;
use maelstrom::status::{self, PeerStatus, Status};
use netlab::Namespace;
use netlab::emulator::{Emulator, EmulatorConfig};
use netlab::namespace::{Child, Route};
use netlab::privilege;
use netlab::traffic::{
    Between, Pace, TcpTransfer, UdpReport, UdpStream, tcp_transfer, udp_stream, unwatched,
};
use simnet::link::LinkConfig;
use testkit::wait_for;

use crate::groups::{self, Got};
use crate::pair::PROGRAM;

/// Number of sites. The first two are passive toward each other, and reach the third by tunnels.
const SITES: usize = 3;
/// Loss of each of the two links that lie between two sites.
const LOSS: f64 = 0.01;
/// Number of streams of which one must arrive whole. A busy machine protects a part of the flows for a while.
const TRIES: usize = 5;

/// ```text
/// host ── gateway 1 ══ link ══ backbone ══ link ══ gateway 2 ── host
///   10.81.1.0/24   10.83.1.0/24   ║   10.83.2.0/24   10.81.2.0/24
///                                link
///                              gateway 3 ── host 10.81.3.0/24
/// ```
struct Lab {
    processes: Vec<Option<Child>>,
    links: Vec<Emulator>,
    gateways: Vec<Namespace>,
    hosts: Vec<Namespace>,
    directory: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.processes.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Lab {
    /// Starts the sites. Each file of a gateway ends with `sections`.
    fn start(name: &str, sections: &str) -> Self {
        let backbone = Namespace::create("backbone").unwrap();
        backbone.sysctl("net.ipv4.ip_forward", "1").unwrap();
        let directory = std::env::temp_dir().join(format!("undrop-three-{name}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let processes = (0..SITES).map(|_| None).collect();
        let mut lab =
            Self { processes, links: Vec::new(), gateways: Vec::new(), hosts: Vec::new(), directory };
        (1..=SITES).for_each(|site| lab.add_site(site, &backbone));
        // The path of the passive pair. Nobody but its peers knows the third site.
        for site in [1, 2] {
            let via = format!("10.83.{site}.2").parse().unwrap();
            backbone.add_route(&Route::to(network(site)).via(via).interface(&wan(site))).unwrap();
        }
        lab.write_files(sections);
        for site in 1..=SITES {
            lab.launch(site);
        }
        lab.wait_until_up();
        lab
    }

    fn add_site(&mut self, site: usize, backbone: &Namespace) {
        let gateway = Namespace::create(&format!("gateway-{site}")).unwrap();
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv4.conf.all.rp_filter", "2"),
            ("net.ipv4.conf.default.rp_filter", "2"),
        ] {
            gateway.sysctl(key, value).unwrap();
        }
        let host = Namespace::create(&format!("host-{site}")).unwrap();
        host.add_veth("eth0", &gateway, "lan0", 1300).unwrap();
        gateway.add_address("lan0", format!("10.81.{site}.1/24").parse().unwrap()).unwrap();
        host.add_address("eth0", format!("10.81.{site}.2/24").parse().unwrap()).unwrap();
        let everywhere = || "0.0.0.0/0".parse().unwrap();
        host.add_route(&Route::to(everywhere()).via(format!("10.81.{site}.1").parse().unwrap())).unwrap();
        let link = LinkConfig {
            rate_bps: Some(100_000_000),
            delay_us: 5_000,
            loss: LossModel::Uniform(LOSS),
            seed: 40 + site as u64,
            ..LinkConfig::default()
        };
        let config = EmulatorConfig { interface: wan(site), ..EmulatorConfig::symmetric(link) };
        self.links.push(Emulator::start(&gateway, backbone, &config).unwrap());
        backbone.add_address(&wan(site), format!("10.83.{site}.1/24").parse().unwrap()).unwrap();
        gateway.add_address(&wan(site), format!("10.83.{site}.2/24").parse().unwrap()).unwrap();
        let via = format!("10.83.{site}.1").parse().unwrap();
        gateway.add_route(&Route::to(everywhere()).via(via).interface(&wan(site))).unwrap();
        self.gateways.push(gateway);
        self.hosts.push(host);
    }

    fn write_files(&self, sections: &str) {
        for (one, other) in [(1, 2), (1, 3), (2, 3)] {
            let file = self.directory.join(format!("{one}-{other}.key"));
            KeyText::generate().unwrap().write_new(&file).unwrap();
        }
        for site in 1..=SITES {
            let mut text = format!(
                "[gateway]\nwan = \"{}\"\nlisten = \"10.83.{site}.2:4700\"\ncontrol = \"{}\"\n",
                wan(site),
                self.control(site).display()
            );
            for peer in (1..=SITES).filter(|&peer| peer != site) {
                let (one, other) = (site.min(peer), site.max(peer));
                let mode = if other == 3 { "tunnel" } else { "passive" };
                text += &format!(
                    "[[peer]]\nname = \"site-{peer}\"\naddress = \"10.83.{peer}.2:4700\"\n\
                     networks = [\"{}\"]\nmode = \"{mode}\"\nkey_file = \"{one}-{other}.key\"\n",
                    network(peer)
                );
            }
            text += sections;
            fs::write(self.directory.join(format!("gateway-{site}.toml")), text).unwrap();
        }
    }

    fn launch(&mut self, site: usize) {
        let log = fs::File::create(self.directory.join(format!("gateway-{site}.log"))).unwrap();
        let mut command = Command::new(PROGRAM);
        let file = self.directory.join(format!("gateway-{site}.toml"));
        command.args(["gateway", "run", "--config"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.processes[site - 1] = Some(self.gateways[site - 1].spawn(command).unwrap());
    }

    fn control(&self, site: usize) -> PathBuf {
        self.directory.join(format!("gateway-{site}.sock"))
    }

    fn status(&self, site: usize) -> Option<Status> {
        status::read(&self.control(site)).ok()
    }

    /// The status of `peer` at the gateway of `site`.
    fn peer(&self, site: usize, peer: usize) -> PeerStatus {
        let name = Some(format!("site-{peer}"));
        self.status(site).unwrap().peers.into_iter().find(|status| status.name == name).unwrap()
    }

    fn wait_until_up(&self) {
        let is_up = |site| self.status(site).is_some_and(|status| status.peers.iter().all(|peer| peer.up));
        let all_up = wait_for(|| (1..=SITES).all(is_up).then_some(()));
        assert!(all_up.is_some(), "the gateways do not find each other\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let log = |site| fs::read_to_string(self.directory.join(format!("gateway-{site}.log")));
        (1..=SITES).map(|site| format!("-- site {site}\n{}", log(site).unwrap_or_default())).collect()
    }

    fn between(&self, from: usize, to: usize) -> Between<'_> {
        let address: IpAddr = format!("10.81.{to}.2").parse().unwrap();
        Between { from: &self.hosts[from - 1], to: &self.hosts[to - 1], address }
    }

    fn stream(&self, from: usize, to: usize) -> UdpReport {
        let plan = UdpStream {
            pace: Pace::Packets(300.0),
            payload_bytes: 700,
            duration: Duration::from_secs(3),
            patience: Duration::from_secs(1),
            ..UdpStream::default()
        };
        udp_stream(self.between(from, to), &plan, &mut unwatched).unwrap()
    }

    fn stop(mut self) {
        for process in self.processes.iter_mut() {
            let mut process = process.take().unwrap();
            assert!(process.terminate(Duration::from_secs(10)).unwrap().success());
        }
    }
}

fn network(site: usize) -> ipnet::IpNet {
    format!("10.81.{site}.0/24").parse().unwrap()
}

fn wan(site: usize) -> String {
    format!("wan{site}")
}

/// Each ordered pair of sites.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (1..=SITES).flat_map(|from| (1..=SITES).filter(move |&to| to != from).map(move |to| (from, to)))
}

#[test]
fn three_sites_in_mixed_modes_recover_what_is_lost_between_any_two() {
    let name = "three_sites_in_mixed_modes_recover_what_is_lost_between_any_two";
    if !privilege::available_or_skip(name) {
        return;
    }
    let lab = Lab::start("mixed", "");
    let mut open: Vec<_> = pairs().collect();
    for _ in 0..TRIES {
        let reports: Vec<_> = thread::scope(|scope| {
            let lab = &lab;
            let streams = open.iter().map(|&(from, to)| scope.spawn(move || lab.stream(from, to)));
            let streams: Vec<_> = streams.collect();
            streams.into_iter().map(|stream| stream.join().unwrap()).collect()
        });
        let mut rest = Vec::new();
        for (&(from, to), report) in open.iter().zip(&reports) {
            let seen = (report.duplicates, report.altered);
            assert_eq!(seen, (0, 0), "from {from} to {to}: {report:?}\n{}", lab.logs());
            if report.missing() > 0 {
                rest.push((from, to));
            }
        }
        open = rest;
    }
    assert!(open.is_empty(), "packets of these pairs stay lost: {open:?}\n{}", lab.logs());
    for (from, to) in pairs() {
        let ingress = lab.peer(to, from).ingress;
        assert!(ingress.injected_packets > 5, "from {from} to {to}: {ingress:?}");
        let has_tunnel = lab.peer(from, to).egress.tunnel.is_some();
        assert_eq!(has_tunnel, from == 3 || to == 3, "from {from} to {to}");
    }
    let transfer =
        TcpTransfer { duration: Duration::from_secs(2), least_bytes: 100_001, ..TcpTransfer::default() };
    let reports = thread::scope(|scope| {
        let (lab, transfer) = (&lab, &transfer);
        let flows = [(1, 2), (2, 3), (3, 1)].map(|(from, to)| {
            scope.spawn(move || tcp_transfer(lab.between(from, to), transfer, &mut unwatched).unwrap())
        });
        flows.map(|flow| flow.join().unwrap())
    });
    for report in reports {
        assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    }
    lab.stop();
}

#[test]
fn a_group_crosses_to_two_sites_once_each_and_reaches_every_host_once() {
    let name = "a_group_crosses_to_two_sites_once_each_and_reaches_every_host_once";
    if !privilege::available_or_skip(name) {
        return;
    }
    let lab = Lab::start("groups", groups::FILE);
    // The first two sites have no tunnel between them, so that groups cross to and from the third one alone.
    let is_known = |site, count| {
        let wanted = lab.status(site).unwrap().wanted_groups;
        wanted.len() == count && wanted.iter().all(|wanted| wanted.count == 3)
    };
    let all_known = wait_for(|| (is_known(3, 2) && is_known(1, 1) && is_known(2, 1)).then_some(()));
    assert!(all_known.is_some(), "the sites do not know what others want\n{}", lab.logs());
    let group: SocketAddr = "239.1.7.7:5007".parse().unwrap();
    let source: IpAddr = "10.81.3.2".parse().unwrap();
    let mut listeners: Vec<_> = lab.hosts[..2].iter().map(|host| groups::listener(host, group)).collect();
    let mut came = false;
    for round in 0..TRIES as u32 {
        let numbers = round * 1_000..round * 1_000 + 1_000;
        groups::send(&lab.hosts[2], group, groups::TTL, numbers.clone());
        let mut got = [Got::new(), Got::new()];
        came = wait_for(|| {
            listeners.iter_mut().zip(&mut got).for_each(|(listener, got)| groups::take(listener, got));
            got.iter().all(|got| numbers.clone().all(|number| got.contains_key(&number))).then_some(())
        })
        .is_some();
        for (at, got) in got.iter().enumerate() {
            let wrong: Vec<_> =
                got.iter().filter(|(_, came)| came[..] != [(source, groups::TTL - 1)]).collect();
            assert!(wrong.is_empty(), "site {}: {wrong:?}\n{}", at + 1, lab.logs());
        }
        if came {
            break;
        }
    }
    assert!(came, "packets of {group} stay lost\n{}", lab.logs());
    let sent = lab.status(3).unwrap().multicast.remove(0);
    assert!(sent.forwarded >= 1_000 && sent.sent == 2 * sent.forwarded, "one copy a site: {sent:?}");
    lab.stop();
}
