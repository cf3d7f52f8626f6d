//! Packets for peers in tunnel mode while their gateway does not run: they take no other way in the clear,
//! unless the file or an orderly stop allows it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use maelstrom::status;
use netlab::Namespace;
use netlab::config_lock::ConfigLock;
use netlab::namespace::Child;
use netlab::topology::{TwoSites, WAN};
use nix::sys::signal::Signal;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::{wait_for, wait_until};

use crate::by_tunnel::{apart, in_tunnel_mode, ip};
use crate::firewall::lab::possible;
use crate::health::{health_of, reason};
use crate::pair::{PROGRAM, peer, reload, wait_for_log, wait_for_peer, wait_until_up};
use crate::supervision::{Manager, launch};
use crate::upgrade::{Successors, upgrade_by};

/// The device of the tunnel.
const DEVICE: &str = "undrop1";

/// Sites whose gateways have a default route to each other, as over the Internet. The first one counts what
/// its site sends by it in the clear.
pub(crate) fn sites() -> TwoSites {
    let sites = apart(0.0);
    for (near, far) in [(&sites.a, &sites.b), (&sites.b, &sites.a)] {
        for (family, next_hop) in [("-4", far.wan_v4()), ("-6", far.wan_v6())] {
            ip(&near.gateway, &[family, "route", "add", "default", "via", &next_hop.to_string(), "dev", WAN]);
        }
    }
    let [v4, v6] = sites.a.networks();
    let rules = format!(
        "add table inet leak; \
         add chain inet leak out {{ type filter hook postrouting priority 0; policy accept; }}; \
         add rule inet leak out oifname {WAN} ip saddr {v4} ip protocol udp counter; \
         add rule inet leak out oifname {WAN} ip6 saddr {v6} meta l4proto udp counter"
    );
    let counts = sites.a.gateway.run(|| Command::new("nft").arg(rules).status()).unwrap();
    assert!(counts.success());
    sites
}

/// Packets of either IP version that the first site has sent in the clear.
pub(crate) fn leaked(sites: &TwoSites) -> [u64; 2] {
    let list = || Command::new("nft").args(["list", "chain", "inet", "leak", "out"]).output();
    let output = sites.a.gateway.run(list).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counts: Vec<u64> = text
        .lines()
        .filter_map(|line| line.split_once("counter packets ")?.1.split(' ').next()?.parse().ok())
        .collect();
    counts.try_into().unwrap_or_else(|_| panic!("expected two counters in {text}"))
}

/// Starts gateways in tunnel mode, with these lines for their peers.
pub(crate) fn start(sites: &TwoSites, lines: &str) -> GatewayPair {
    start_program(PROGRAM.as_ref(), sites, lines)
}

/// The same with the program at this path.
pub(crate) fn start_program(program: &Path, sites: &TwoSites, lines: &str) -> GatewayPair {
    let ends = End::of(sites);
    let mut pair = GatewayPair::prepare(program, &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        in_tunnel_mode(&pair, side);
        let text = fs::read_to_string(pair.config(side)).unwrap();
        fs::write(pair.config(side), text.replace("key_file =", &format!("{lines}key_file ="))).unwrap();
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    pair
}

/// Returns the fate of its packets that the first gateway states, in case it fails.
fn fate(pair: &GatewayPair) -> Option<String> {
    peer(pair, 0).egress.tunnel.unwrap().fail
}

/// The routes that close tunnels, in the gateway of the first site.
pub(crate) fn closing(sites: &TwoSites) -> Vec<String> {
    closing_in(&sites.a.gateway)
}

fn closing_in(gateway: &Namespace) -> Vec<String> {
    let routes = |family| ip(gateway, &[family, "route", "show", "proto", "147"]);
    let text = routes("-4") + &routes("-6");
    let closing = text.lines().filter(|line| line.starts_with("unreachable"));
    closing.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

fn wait_for_closing(sites: &TwoSites, expected: &[String]) {
    wait_until("the routes follow the file", || closing(sites) == expected);
}

/// The routes of both networks of the other site.
pub(crate) fn both(sites: &TwoSites) -> Vec<String> {
    sites.b.networks().iter().map(|network| format!("unreachable {network}")).collect()
}

/// Packets that a host sends all the time to hosts of the other site.
pub(crate) struct Traffic {
    ends: AtomicBool,
    sent: AtomicU64,
}

impl Traffic {
    const fn new() -> Self {
        Self { ends: AtomicBool::new(false), sent: AtomicU64::new(0) }
    }

    fn run(&self, from: &Namespace, to: [IpAddr; 2]) {
        from.run(|| {
            let sockets = ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).unwrap());
            while !self.ends.load(Ordering::Relaxed) {
                for (socket, to) in sockets.iter().zip(to) {
                    // A gateway that has no way says so; the next packet may have one.
                    let _ = socket.send_to(&[7; 200], SocketAddr::new(to, 4_999));
                }
                self.sent.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
    }

    /// Waits until this many packets more have left.
    pub(crate) fn wait_for(&self, more: u64) {
        let before = self.sent.load(Ordering::Relaxed);
        wait_until("packets are sent", || self.sent.load(Ordering::Relaxed) >= before + more);
    }
}

/// Runs `during` while each site sends to the other one.
pub(crate) fn under_traffic<T>(sites: &TwoSites, during: impl FnOnce(&Traffic) -> T) -> T {
    /// Ends the traffic also if a check fails.
    struct End<'a>(&'a Traffic);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.ends.store(true, Ordering::Relaxed);
        }
    }
    let traffic = Traffic::new();
    thread::scope(|scope| {
        for (near, far) in [(&sites.a, &sites.b), (&sites.b, &sites.a)] {
            let (traffic, to) = (&traffic, [far.host_v4(0), far.host_v6(0)]);
            scope.spawn(move || traffic.run(&near.hosts[0], to));
        }
        let _end = End(&traffic);
        traffic.wait_for(50);
        during(&traffic)
    })
}

fn wait_until_gone(sites: &TwoSites) {
    wait_until("the device is gone", || !ip(&sites.a.gateway, &["-oneline", "link"]).contains(DEVICE));
}

#[test]
fn a_tunnel_end_that_is_killed_lets_nothing_pass_in_the_clear_and_the_next_start_goes_on() {
    let name = "a_tunnel_end_that_is_killed_lets_nothing_pass_in_the_clear_and_the_next_start_goes_on";
    if !possible(name) {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    assert_eq!(closing(&sites), both(&sites));
    assert_eq!(fate(&pair).as_deref(), Some("closed"));
    under_traffic(&sites, |traffic| {
        let dropped = |pair: &GatewayPair| pair.status(1).unwrap().not_tunnelled.values().sum::<u64>();
        let before = dropped(&pair);
        pair.kill(0).unwrap();
        wait_until_gone(&sites);
        traffic.wait_for(200);
        assert_eq!((leaked(&sites), closing(&sites)), ([0, 0], both(&sites)));
        // The other end says so, and counts what it drops.
        wait_for_peer(&pair, 1, "the far end is down", |peer| !peer.up);
        let news = "packets to its networks are dropped, and none leaves in the clear; no datagram of the peer arrives";
        wait_for_log(&pair, news);
        let (code, document) = health_of(&pair, 1);
        let text = "the repair channel does not work: packets to its networks are dropped, and none leaves in the clear";
        assert_eq!((code, reason(&document, "peer_down")), (Some(2), text));
        wait_until("dropped packets are counted", || dropped(&pair) > before + 100);
        pair.launch(0, &sites.a.gateway).unwrap();
        pair.wait_until_up(Duration::from_secs(30)).unwrap();
        wait_for_log(&pair, "the process before was not stopped in order: 2 routes");
        let travelled = peer(&pair, 0).egress.source_packets;
        wait_for_peer(&pair, 0, "packets travel again", |peer| peer.egress.source_packets > travelled + 100);
        assert_eq!((leaked(&sites), closing(&sites)), ([0, 0], both(&sites)));
        // The restart of a service is no stop.
        pair.child(0).unwrap().signal(Signal::SIGUSR1).unwrap();
        wait_until_gone(&sites);
        traffic.wait_for(200);
        assert_eq!((leaked(&sites), closing(&sites)), ([0, 0], both(&sites)));
        pair.launch(0, &sites.a.gateway).unwrap();
        pair.wait_until_up(Duration::from_secs(30)).unwrap();
        // Nor is it one if the file has another name of the device by then.
        let text = fs::read_to_string(pair.config(0)).unwrap();
        let other = text.replace("[gateway]\n", "[gateway]\ntunnel = \"other7\"\n");
        assert_ne!(other, text);
        fs::write(pair.config(0), other).unwrap();
        pair.child(0).unwrap().signal(Signal::SIGUSR1).unwrap();
        wait_until_gone(&sites);
        wait_until("the routes of the next process alone are left", || closing(&sites) == both(&sites));
        traffic.wait_for(200);
        assert_eq!((leaked(&sites), closing(&sites)), ([0, 0], both(&sites)));
        pair.launch(0, &sites.a.gateway).unwrap();
        pair.wait_until_up(Duration::from_secs(30)).unwrap();
        // An orderly stop is one.
        assert!(pair.child(0).unwrap().terminate(Duration::from_secs(10)).unwrap().success());
        assert!(closing(&sites).is_empty());
        wait_until("packets take the other way", || leaked(&sites).iter().all(|count| *count > 0));
    });
}

#[test]
fn a_tunnel_end_that_fails_open_leaves_its_packets_to_other_routes() {
    if !possible("a_tunnel_end_that_fails_open_leaves_its_packets_to_other_routes") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "fail = \"open\"\n");
    assert!(closing(&sites).is_empty());
    assert_eq!(fate(&pair).as_deref(), Some("open"));
    under_traffic(&sites, |_| {
        assert_eq!(leaked(&sites), [0, 0]);
        pair.kill(0).unwrap();
        wait_until_gone(&sites);
        wait_until("packets take the other way", || leaked(&sites).iter().all(|count| *count > 0));
    });
}

#[test]
fn routes_that_close_a_tunnel_follow_the_file_and_pass_to_the_next_process() {
    if !possible("routes_that_close_a_tunnel_follow_the_file_and_pass_to_the_next_process") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    let (none, all_closed) = (Vec::new(), both(&sites));
    for (line, open) in
        [("fail = \"open\"\n", true), ("route = false\n", true), ("fail = \"closed\"\n", false)]
    {
        reload(&mut pair, 0, |text| text.replace("key_file =", &format!("{line}key_file =")));
        wait_for_closing(&sites, if open { &none } else { &all_closed });
        reload(&mut pair, 0, |text| text.replace(line, ""));
        wait_for_closing(&sites, &all_closed);
    }
    // One network fewer.
    let networks = sites.b.networks().map(|network| format!("\"{network}\""));
    let (all, one) = (networks.join(", "), networks[0].clone());
    reload(&mut pair, 0, |text| text.replace(&all, &one));
    wait_for_closing(&sites, &all_closed[..1]);
    reload(&mut pair, 0, |text| text.replace(&one, &all));
    wait_for_closing(&sites, &all_closed);
    let mut successors = Successors::default();
    wait_until_up(&pair);
    successors.add(upgrade_by(&pair.config(0)).unwrap_or_else(|said| panic!("{said}\n{}", pair.logs())));
    assert_eq!(closing(&sites), both(&sites));
    successors.stop();
    wait_until_gone(&sites);
    assert_eq!(closing(&sites), none);
    drop(pair);
    // Routes that a killed process left go also if the next one needs none of it.
    let mut pair = start(&sites, "");
    pair.kill(0).unwrap();
    let text = fs::read_to_string(pair.config(0)).unwrap();
    fs::write(pair.config(0), text.replace("key_file =", "fail = \"open\"\nkey_file =")).unwrap();
    wait_until_gone(&sites);
    assert_eq!(closing(&sites), both(&sites));
    pair.launch(0, &sites.a.gateway).unwrap();
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    assert_eq!(closing(&sites), none);
}

#[test]
fn an_orderly_stop_removes_its_routes_although_the_kernel_makes_it_wait() {
    let name = "an_orderly_stop_removes_its_routes_although_the_kernel_makes_it_wait";
    if !possible(name) {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    pair.kill(1).unwrap();
    let text = fs::read_to_string(pair.config(1)).unwrap();
    let further: String = (0..30).map(|n| format!("\"10.90.{n}.0/24\", ")).collect();
    fs::write(pair.config(1), text.replace("networks = [", &format!("networks = [{further}"))).unwrap();
    let [socket, log] = ["stop.sock", "stop.log"].map(|file| pair.config(1).with_file_name(file));
    let manager = Manager::new(&socket);
    // With its limit, a process ends that has not turned for 2.25 s.
    let mut child = launch(&pair, &sites, &socket, &log);
    manager.wait_for("READY=1");
    wait_until("the routes are set", || closing_in(&sites.b.gateway).len() == 32);
    let Some(held) = ConfigLock::hold_or_skip(name) else { return };
    child.signal(Signal::SIGTERM).unwrap();
    thread::sleep(Duration::from_millis(3_200));
    drop(held);
    let ended = wait_for(|| child.try_wait().unwrap()).and_then(|status| status.code());
    assert_eq!(ended, Some(0), "{}", fs::read_to_string(&log).unwrap());
    assert_eq!(closing_in(&sites.b.gateway), [""; 0]);
}

/// A gateway beside the first one, on the same machine, with a peer in passive mode and none of tunnels.
struct Beside {
    child: Child,
    control: PathBuf,
    log: PathBuf,
}

impl Beside {
    fn start(pair: &GatewayPair, sites: &TwoSites) -> Self {
        let directory = pair.config(0).parent().unwrap().to_owned();
        let [file, control, log] =
            ["toml", "sock", "log"].map(|kind| directory.join(format!("beside.{kind}")));
        let text = format!(
            "[gateway]\nmode = \"passive\"\nwan = \"{WAN}\"\nlisten = \"{}:4701\"\ntun = \"undrop7\"\n\
             control = \"{}\"\n[[peer]]\naddress = \"{}:4701\"\nnetworks = [\"10.99.0.0/24\"]\n\
             key_file = \"peer.key\"\n",
            sites.a.wan_v4(),
            control.display(),
            sites.b.wan_v4()
        );
        fs::write(&file, text).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["gateway", "run", "--config"]).arg(file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(&log).unwrap());
        let beside = Self { child: sites.a.gateway.spawn(command).unwrap(), control, log };
        wait_until("the gateway beside runs", || status::read(&beside.control).is_ok());
        beside
    }

    /// Waits until it has looked at routes, which it does each second.
    fn wait_for_looks(&self) {
        let uptime_s = || status::read(&self.control).unwrap().gateway.uptime_s;
        let until_s = uptime_s() + 3;
        wait_until("it has looked", || uptime_s() >= until_s);
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn stop(mut self) {
        assert!(self.child.terminate(Duration::from_secs(10)).unwrap().success(), "{}", self.log());
    }
}

#[test]
fn a_gateway_without_tunnels_leaves_the_routes_that_close_those_of_another_one_alone() {
    if !possible("a_gateway_without_tunnels_leaves_the_routes_that_close_those_of_another_one_alone") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    under_traffic(&sites, |traffic| {
        let beside = Beside::start(&pair, &sites);
        beside.wait_for_looks();
        assert_eq!(closing(&sites), both(&sites));
        assert!(!beside.log().contains("close the tunnel"), "{}", beside.log());
        pair.kill(0).unwrap();
        wait_until_gone(&sites);
        beside.wait_for_looks();
        traffic.wait_for(200);
        assert_eq!((leaked(&sites), closing(&sites)), ([0, 0], both(&sites)));
        beside.stop();
        assert_eq!(closing(&sites), both(&sites));
        // Nor does its start touch them. It tells how to remove those that nobody needs.
        let beside = Beside::start(&pair, &sites);
        beside.wait_for_looks();
        assert_eq!((leaked(&sites), closing(&sites)), ([0, 0], both(&sites)));
        let log = beside.log();
        let remedy = log.split_once("remove them: ").unwrap_or_else(|| panic!("{log}")).1;
        for command in remedy.lines().next().unwrap().split("; ") {
            let words: Vec<&str> = command.split_whitespace().skip(1).collect();
            ip(&sites.a.gateway, &words);
        }
        assert!(closing(&sites).is_empty(), "{remedy}");
        beside.stop();
    });
}

#[test]
fn a_gateway_that_gives_up_its_last_tunnel_removes_the_routes_that_closed_it() {
    if !possible("a_gateway_that_gives_up_its_last_tunnel_removes_the_routes_that_closed_it") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    let (none, all_closed) = (Vec::new(), both(&sites));
    let passive = |text: String| text.replace("mode = \"tunnel\"", "mode = \"passive\"");
    let tunnel = |text: String| text.replace("mode = \"passive\"", "mode = \"tunnel\"");
    reload(&mut pair, 0, passive);
    wait_for_closing(&sites, &none);
    reload(&mut pair, 0, tunnel);
    wait_for_closing(&sites, &all_closed);
    // With a file that has none any more by the time of a restart.
    let text = fs::read_to_string(pair.config(0)).unwrap();
    fs::write(pair.config(0), passive(text)).unwrap();
    pair.child(0).unwrap().signal(Signal::SIGUSR1).unwrap();
    wait_until_gone(&sites);
    wait_for_closing(&sites, &none);
}
