//! Gateways of one site that share its traffic, on the kernel's network: one is killed and returns, and the
//! routes follow, as VRRP moves them.

mod ecmp;
mod load;
mod upgrade;
mod vrrp;

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use keyfile::KeyText;
use loss::LossModel;
use maelstrom::status::{self, RackStatus, Status};
use netlab::emulator::EmulatorConfig;
use netlab::namespace::Child;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpReport, UdpStream, udp_stream, unwatched};
use netlab::{Direction, Namespace};
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;
use testkit::wait_for;

use crate::pair::PROGRAM;

/// Share of packets that the link loses.
const LOSS: f64 = 0.03;
/// Number of streams of which one must be protected all the time.
const TRIES: usize = 6;
/// The far gateway among the processes; members count from 1.
const FAR: usize = 0;
/// The parts of the members, and an address in each.
type Parts = &'static [(&'static str, &'static str)];
const TWO: Parts = &[("10.81.2.0/25", "10.81.2.2"), ("10.81.2.128/25", "10.81.2.130")];

/// ```text
///             ┌─ east-1 ─┐
/// inside ─────┤          ├─ router A ══ link ══ router B with the far gateway ─ host
///             └─ east-2 ─┘
///  10.81.5.0/24        10.81.1.0/24   10.81.9.0/24                        10.81.2.0/24
/// ```
struct Lab {
    processes: RefCell<Vec<Option<Child>>>,
    /// One for each member.
    parts: Parts,
    sites: TwoSites,
    /// The host of the site with the rack, with a bridge that is its LAN.
    inside: Namespace,
    directory: PathBuf,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.processes.get_mut().clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Lab {
    /// Starts the far gateway and a member for each part, which holds it.
    fn start(name: &str, parts: Parts) -> Self {
        let link =
            LinkConfig { rate_bps: Some(100_000_000), delay_us: 10_000, seed: 3, ..LinkConfig::default() };
        let config = TwoSitesConfig { hosts: parts.len() as u8, ..TwoSitesConfig::default() };
        let sites = TwoSites::build(&config, &EmulatorConfig::symmetric(link)).unwrap();
        let inside = Namespace::create("inside").unwrap();
        let directory = std::env::temp_dir().join(format!("undrop-rack-{name}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let processes = RefCell::new((0..=parts.len()).map(|_| None).collect());
        let lab = Self { processes, parts, sites, inside, directory };
        lab.connect();
        lab.write_files();
        (0..=parts.len()).for_each(|process| lab.launch(process));
        lab.wait_for_owners();
        lab
    }

    fn members(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.parts.len()
    }

    /// Waits until each member holds its own part, and all know it.
    fn wait_for_owners(&self) {
        let members: Vec<usize> = self.members().collect();
        self.wait_for_parts(&members, &members);
    }

    /// The hosts of site A are the routers of the members.
    fn connect(&self) {
        self.inside.add_bridge("lan0", 1100).unwrap();
        self.inside.add_address("lan0", "10.81.5.10/24".parse().unwrap()).unwrap();
        for (at, member) in self.sites.a.hosts.iter().enumerate() {
            let port = format!("port{at}");
            member.sysctl("net.ipv4.ip_forward", "1").unwrap();
            member.add_veth("lan0", &self.inside, &port, 1100).unwrap();
            self.inside.set_bridge(&port, "lan0").unwrap();
            member.add_address("lan0", format!("10.81.5.{}/24", at + 1).parse().unwrap()).unwrap();
        }
        let (router_a, router_b) = (&self.sites.a.gateway, &self.sites.b.gateway);
        ip(router_a, "route add 10.81.5.0/24 via 10.81.1.2");
        ip(router_b, "route add 10.81.5.0/24 via 10.81.9.1");
        for (part, (network, address)) in self.parts.iter().enumerate() {
            ip(router_a, &format!("rule add from {network} to 10.81.5.0/24 lookup {}", 101 + part));
            self.lead(part, part + 1);
            if part > 0 {
                ip(&self.sites.b.hosts[0], &format!("addr add {address}/24 dev eth0"));
            }
        }
    }

    /// Leads the packets of a part past a member, in both directions.
    fn lead(&self, part: usize, member: usize) {
        ip(&self.inside, &format!("route replace {} via 10.81.5.{member}", self.parts[part].0));
        let route = format!("route replace 10.81.5.0/24 via 10.81.1.{} table {}", member + 1, 101 + part);
        ip(&self.sites.a.gateway, &route);
    }

    fn write_files(&self) {
        let peer_keys = self.members().map(|member| format!("peer-{member}"));
        for key in peer_keys.chain(["rack".to_owned()]) {
            KeyText::generate().unwrap().write_new(&self.directory.join(format!("{key}.key"))).unwrap();
        }
        let code = "[code]\nscheme = \"layered\"\n";
        let gateway = |process: usize, wan: &str, listen: &str| {
            let control = self.control(process);
            format!(
                "[gateway]\nwan = \"{wan}\"\nlisten = \"{listen}:4700\"\ncontrol = \"{}\"\n{code}",
                control.display()
            )
        };
        let peer = |member: usize| {
            format!(
                "[[peer]]\nname = \"east-{member}\"\nrack = \"east\"\naddress = \"10.81.1.{}:4700\"\n\
                 networks = [\"10.81.5.0/24\"]\nkey_file = \"peer-{member}.key\"\n",
                member + 1
            )
        };
        let far = self.members().map(peer).fold(gateway(FAR, "wan0", "10.81.9.2"), |far, peer| far + &peer);
        fs::write(self.file(FAR), far).unwrap();
        for member in self.members() {
            let mut text = gateway(member, "eth0", &format!("10.81.1.{}", member + 1));
            text += &format!("[rack]\nmember = \"east-{member}\"\nkey_file = \"rack.key\"\n");
            for (at, (network, _)) in self.parts.iter().enumerate() {
                let number = at + 1;
                text += &format!(
                    "[[member]]\nname = \"east-{number}\"\naddress = \"10.81.5.{number}:4702\"\n\
                     networks = [\"{network}\"]\n"
                );
            }
            text += &format!(
                "[[peer]]\naddress = \"10.81.9.2:4700\"\nnetworks = [\"10.81.2.0/24\"]\n\
                 key_file = \"peer-{member}.key\"\n"
            );
            fs::write(self.file(member), text).unwrap();
        }
    }

    fn file(&self, process: usize) -> PathBuf {
        self.directory.join(format!("gateway-{process}.toml"))
    }

    fn control(&self, process: usize) -> PathBuf {
        self.directory.join(format!("gateway-{process}.sock"))
    }

    fn namespace(&self, process: usize) -> &Namespace {
        if process == FAR { &self.sites.b.gateway } else { &self.sites.a.hosts[process - 1] }
    }

    fn launch(&self, process: usize) {
        let log = self.directory.join(format!("gateway-{process}.log"));
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["gateway", "run", "--config"]).arg(self.file(process));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = self.namespace(process).spawn(command).unwrap();
        self.processes.borrow_mut()[process] = Some(child);
    }

    /// Kills a process without a word to anybody.
    fn kill(&self, process: usize) {
        let mut child = self.processes.borrow_mut()[process].take().unwrap();
        child.signal(Signal::SIGKILL).unwrap();
    }

    fn status(&self, process: usize) -> Option<Status> {
        status::read(&self.control(process)).ok()
    }

    fn rack(&self, member: usize) -> Option<RackStatus> {
        self.status(member)?.rack
    }

    fn logs(&self) -> String {
        let log = |process: usize| {
            let log = fs::read_to_string(self.directory.join(format!("gateway-{process}.log")));
            format!("-- process {process}\n{}\n", log.unwrap_or_default())
        };
        (0..=self.parts.len()).map(log).collect()
    }

    /// Waits until these members agree who protects each part, alone.
    fn wait_for_parts(&self, members: &[usize], parts: &[usize]) {
        let parts: Vec<_> = parts.iter().map(|member| vec![format!("east-{member}")]).collect();
        let agree = |member: usize| {
            let rack = self.rack(member);
            rack.is_some_and(|rack| rack.parts.iter().map(|part| &part.protected_by).eq(&parts))
        };
        let found = wait_for(|| members.iter().all(|member| agree(*member)).then_some(()));
        let seen = || members.iter().map(|member| self.rack(*member)).collect::<Vec<_>>();
        assert!(found.is_some(), "{:?}\n{}", seen(), self.logs());
    }

    /// Packets that the far gateway, and those of the rack, have recovered for each member's session.
    fn recovered(&self) -> Vec<u64> {
        let status = self.status(FAR).unwrap();
        status.peers.iter().map(|peer| peer.ingress.injected_packets).collect()
    }

    /// Packets that arrived after they had been recovered, as the gateways have counted them.
    ///
    /// On a busy machine a packet may arrive later than its repair waits, and comes twice (see
    /// [`assert_duplicates_arrived_late`](crate::disturbance::assert_duplicates_arrived_late)). A packet that
    /// two members recover comes twice as well, but is no arrival, and counts nowhere.
    fn late(&self) -> u64 {
        let of = |status: Status| status.peers.iter().map(|peer| peer.ingress.after_recovery).sum::<u64>();
        (0..=self.parts.len()).filter_map(|process| self.status(process)).map(of).sum()
    }

    /// Asserts that no packet came twice but for those that arrived late.
    fn assert_once(&self, duplicates: u64, altered: u64, late_before: u64) {
        let late = self.late().saturating_sub(late_before);
        assert_eq!(altered, 0, "{}", self.logs());
        assert!(duplicates <= late, "{duplicates} came twice, {late} late\n{}", self.logs());
    }

    /// Sends packets of a part each way over a link that loses some. Asserts that most of these are recovered
    /// by means of this member, and that none comes twice.
    fn assert_recovered(&self, part: usize, member: usize) {
        let host = &self.sites.b.hosts[0];
        let back = Between { from: host, to: &self.inside, address: "10.81.5.10".parse().unwrap() };
        let others = || self.recovered().iter().sum::<u64>() - self.recovered()[member - 1];
        let before = others();
        self.assert_recovered_by(part, member, self.there(part), || self.recovered()[member - 1]);
        // A packet of an earlier stream may come back late.
        let stragglers = others() - before;
        assert!(stragglers < 5, "{stragglers} of part {part} not by member {member}\n{}", self.logs());
        // The host sends from its first address.
        if part == 0 {
            self.assert_recovered_by(part, member, back, || {
                self.status(member).unwrap().peers[0].ingress.injected_packets
            });
        }
    }

    /// Tries again where a process had no processor for a while, which costs protection.
    fn assert_recovered_by(&self, part: usize, member: usize, between: Between<'_>, count: impl Fn() -> u64) {
        let mut fates = Vec::new();
        for _ in 0..TRIES {
            let is_alone = || {
                let parts = self.rack(member)?.parts;
                (parts[part].protected_by == [format!("east-{member}")]).then_some(())
            };
            assert!(wait_for(is_alone).is_some(), "{}", self.logs());
            let (before, late_before) = (count(), self.late());
            let report = self.stream(between);
            self.assert_once(report.duplicates, report.altered, late_before);
            let (missing, sent, recovered) = (report.missing(), report.sent_us.len(), count() - before);
            assert!(sent > 1_000);
            // Without gateways some 45 of 1,500 packets would be missing.
            if missing < sent / 100 && recovered > 10 {
                return;
            }
            fates.push((missing, sent, recovered));
        }
        panic!("missing, sent and recovered: {fates:?}\n{}", self.logs());
    }

    /// From inside to an address of a part.
    fn there(&self, part: usize) -> Between<'_> {
        let address = self.parts[part].1.parse().unwrap();
        Between { from: &self.inside, to: &self.sites.b.hosts[0], address }
    }

    fn stream(&self, between: Between<'_>) -> UdpReport {
        let plan = UdpStream {
            pace: Pace::Packets(500.0),
            payload_bytes: 600,
            duration: Duration::from_secs(3),
            patience: Duration::from_secs(1),
            ..UdpStream::default()
        };
        // The first packets show the path.
        let first = UdpStream { duration: Duration::from_millis(200), ..plan.clone() };
        udp_stream(between, &first, &mut unwatched).unwrap();
        self.lose(LOSS);
        let report = udp_stream(between, &plan, &mut unwatched).unwrap();
        self.lose(0.0);
        report
    }

    fn lose(&self, share: f64) {
        for direction in Direction::BOTH {
            self.sites.link.set_loss(direction, &LossModel::Uniform(share));
        }
    }
}

fn ip(namespace: &Namespace, arguments: &str) {
    run(namespace, "ip", &arguments.split(' ').collect::<Vec<_>>());
}

fn run(namespace: &Namespace, program: &str, arguments: &[&str]) {
    let output = namespace.run(|| Command::new(program).args(arguments).output()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_part_is_protected_again_after_its_gateway_is_killed_and_when_it_returns() {
    if !privilege::available_or_skip(
        "a_part_is_protected_again_after_its_gateway_is_killed_and_when_it_returns",
    ) {
        return;
    }
    let lab = Lab::start("killed", TWO);
    lab.assert_recovered(0, 1);
    lab.assert_recovered(1, 2);
    lab.kill(1);
    lab.wait_for_parts(&[2], &[2, 2]);
    lab.lead(0, 2);
    lab.assert_recovered(0, 2);
    lab.assert_recovered(1, 2);
    let rack = lab.rack(2).unwrap();
    assert!(!rack.members[0].present && rack.parts.iter().all(|part| part.held), "{rack:?}");
    let health = lab.status(2).unwrap().health;
    assert!(health.reasons.iter().all(|reason| reason.id != "part_unprotected"), "{health:?}");
    lab.launch(1);
    lab.wait_for_owners();
    lab.lead(0, 1);
    lab.assert_recovered(0, 1);
    lab.assert_recovered(1, 2);
    let (logs, far) = (lab.logs(), lab.status(FAR).unwrap());
    for line in [
        "rack: east-1 is a member of the rack that is not heard any more",
        "rack: east-1 is a part that this",
    ] {
        assert!(logs.contains(line), "{logs}");
    }
    assert_eq!(far.peers[1].sessions, 1, "the deputy's session goes on: {logs}");
    assert!(far.peers.iter().all(|peer| peer.differences.is_empty()), "{far:?}");
}

#[test]
fn where_all_packets_pass_both_gateways_a_part_needs_no_route_and_comes_once() {
    if !privilege::available_or_skip(
        "where_all_packets_pass_both_gateways_a_part_needs_no_route_and_comes_once",
    ) {
        return;
    }
    let lab = Lab::start("chain", TWO);
    // From inside by the first and the second to the link.
    let [first, second] = [0, 1].map(|at| &lab.sites.a.hosts[at]);
    for member in [first, second] {
        member.sysctl("net.ipv4.conf.all.send_redirects", "0").unwrap();
        member.sysctl("net.ipv4.conf.eth0.send_redirects", "0").unwrap();
    }
    ip(first, "route replace 10.81.2.0/24 via 10.81.1.3");
    ip(&lab.inside, "route replace 10.81.2.128/25 via 10.81.5.1");
    for (part, member) in [(0, 1), (1, 2)] {
        lab.assert_recovered_by(part, member, lab.there(part), || lab.recovered()[member - 1]);
    }
    // The second hears nothing of the first, and takes its part. Both protect it.
    let deaf = "table inet deaf { chain input { type filter hook input priority 0; udp dport 4702 drop; }; }";
    run(second, "nft", &[deaf]);
    lab.wait_for_parts(&[2], &[2, 2]);
    assert!(lab.rack(1).unwrap().parts[0].held, "{}", lab.logs());
    let protected = || [1, 2].map(|member| lab.status(member).unwrap().peers[0].egress.source_packets);
    let before = protected();
    lab.assert_recovered_by(0, 2, lab.there(0), || lab.recovered().iter().sum());
    let after = protected();
    assert!((0..2).all(|at| after[at] > before[at] + 1_000), "{before:?} {after:?}\n{}", lab.logs());
    run(second, "nft", &["delete table inet deaf"]);
    lab.wait_for_owners();
    lab.kill(1);
    lab.wait_for_parts(&[2], &[2, 2]);
    lab.assert_recovered_by(0, 2, lab.there(0), || lab.recovered()[1]);
}
