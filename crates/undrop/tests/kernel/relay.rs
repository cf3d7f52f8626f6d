//! `undrop multicast relay`: plain UDP multicast of programs that know nothing of us, between hosts whose
//! network loses packets and carries none of their groups.
#![allow(missing_docs)]

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use loss::LossModel;
use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use netlab::{DropFilter, Dropper, Namespace};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, IpMembershipRequest, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
};
use serde_json::Value;
use testkit::wait_until;

use crate::node::{NodeProcess, Sink};
use crate::pair::PROGRAM;
use crate::schema::faults_by_file;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 1), 5000);

/// A relay on a host.
struct Relay(NodeProcess);

impl Relay {
    fn start(host: &Namespace, seed: Option<&str>, args: &[&str]) -> Self {
        let group = GROUP.to_string();
        let own = ["relay", &group, "--interface", HOST, "--json"];
        Self(NodeProcess::start(host, &[&own, args].concat(), seed))
    }

    /// Ends the relay. Returns its report.
    fn stop(self) -> Value {
        let (code, text, said) = self.0.stop();
        assert_eq!(code, Some(0), "{said}\n{text}");
        let report = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(faults_by_file(&report, "undrop.multicast.relay.1.json"), [""; 0]);
        report
    }
}

/// A receiver such as any program has it: bound to the port, which others share, and joined at an interface.
fn listen(host: &Namespace, interface: Ipv4Addr) -> UdpSocket {
    host.run(|| {
        let made = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
        let made: OwnedFd = made.unwrap();
        setsockopt(&made, sockopt::ReuseAddr, &true).unwrap();
        bind(std::os::fd::AsRawFd::as_raw_fd(&made), &SockaddrIn::new(0, 0, 0, 0, GROUP.port())).unwrap();
        let joined = IpMembershipRequest::new(*GROUP.ip(), Some(interface));
        setsockopt(&made, sockopt::IpAddMembership, &joined).unwrap();
        let program = UdpSocket::from(made);
        program.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        program
    })
}

fn speak(host: &Namespace, interface: Ipv4Addr) -> UdpSocket {
    // The address decides by which interface its multicast leaves.
    host.run(|| UdpSocket::bind((interface, 0))).unwrap()
}

fn received(program: &UdpSocket) -> (Vec<u8>, std::net::SocketAddr) {
    let mut buffer = vec![0; 1 << 16];
    let (length, from) = program.recv_from(&mut buffer).expect("a datagram within a minute");
    buffer.truncate(length);
    (buffer, from)
}

/// Asserts that nothing more comes, as far as the kernel has it by now.
fn nothing_more(program: &UdpSocket) {
    program.set_nonblocking(true).unwrap();
    let more = program.recv(&mut [0; 2_000]);
    assert!(more.is_err(), "a datagram came twice");
    program.set_nonblocking(false).unwrap();
}

/// Waits until a relay of each host knows those of all other hosts.
fn meet(relays: &[(&Namespace, &str)]) {
    for (host, control) in relays {
        wait_until("the relays know one another", || {
            let mut status = Command::new(PROGRAM);
            status.args(["multicast", "status", "--json", "--control", control]);
            let output = host.run(|| status.output()).unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            status["groups"][0]["members"].as_u64() == Some(relays.len() as u64 - 1)
        });
    }
}

/// Hosts at a bridge that loses a share of all packets, with a relay on each.
struct Site {
    relays: Vec<Relay>,
    controls: Vec<String>,
    _droppers: Vec<Dropper>,
    lan: BridgeLan,
}

impl Site {
    fn build(test: &str, hosts: u8, loss: &str, args: &[&str]) -> Option<Self> {
        if !netlab::privilege::dropper_or_skip(test) {
            return None;
        }
        let lan = BridgeLan::build(&BridgeLanConfig { hosts, ..BridgeLanConfig::default() }).unwrap();
        let controls: Vec<String> = (0..hosts)
            .map(|at| {
                let file = format!("undrop-relay-{}-{test}-{at}.sock", std::process::id());
                std::env::temp_dir().join(file).display().to_string()
            })
            .collect();
        let mut relays: Vec<Relay> = Vec::new();
        for (at, control) in controls.iter().enumerate() {
            let seed = relays.first().map(|first| first.0.address.clone());
            let args = [args, &["--control", control]].concat();
            relays.push(Relay::start(lan.host(at), seed.as_deref(), &args));
        }
        let places: Vec<_> = controls.iter().enumerate().map(|(at, path)| (lan.host(at), &**path)).collect();
        meet(&places);
        let model: LossModel = loss.parse().unwrap();
        let all = DropFilter::default();
        let droppers =
            (0..usize::from(hosts)).map(|at| Dropper::attach(lan.host(at), HOST, &model, &all).unwrap());
        let droppers = droppers.collect();
        Some(Self { relays, controls, _droppers: droppers, lan })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.relays.clear();
        self.controls.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Programs on three hosts use the loopback interface for a group. All that one says is heard on the others,
/// in order, once each, also what it repeats.
#[test]
fn what_a_program_says_is_heard_on_all_hosts() {
    let test = "what_a_program_says_is_heard_on_all_hosts";
    let Some(mut site) = Site::build(test, 3, "uniform:5%", &["--ttl", "keep"]) else { return };
    let here = Ipv4Addr::LOCALHOST;
    let programs: Vec<UdpSocket> = (0..3).map(|at| listen(site.lan.host(at), here)).collect();
    let speaker = speak(site.lan.host(0), here);
    speaker.set_multicast_ttl_v4(9).unwrap();
    let long = vec![b'l'; 9_000];
    let mut said: Vec<Vec<u8>> = Vec::new();
    // In rounds, so that no socket buffer of a slow machine overflows.
    for round in 0..20 {
        let mut says = vec![b"alive".to_vec(), b"alive".to_vec(), Vec::new()];
        says.extend((0..8).map(|at| format!("round {round}, datagram {at}").into_bytes()));
        if round == 10 {
            says.push(long.clone());
        }
        for datagram in &says {
            speaker.send_to(datagram, GROUP).unwrap();
        }
        for (at, program) in programs.iter().enumerate() {
            for datagram in &says {
                let (bytes, from) = received(program);
                assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(datagram), "host {at}");
                let is_handed_out = from.port() == 7912;
                assert_eq!(is_handed_out, at != 0, "host {at} hears it from {from}");
            }
        }
        said.extend(says);
    }
    programs.iter().for_each(nothing_more);
    let count = said.len() as u64;
    for (at, relay) in std::mem::take(&mut site.relays).into_iter().enumerate() {
        let report = relay.stop();
        let group = &report["groups"][0];
        let expected = if at == 0 { (count, count, 0) } else { (0, 0, count) };
        let seen = ["heard", "carried", "handed_out"].map(|field| group[field].as_u64().unwrap());
        assert_eq!((seen[0], seen[1], seen[2]), expected, "host {at}: {report}");
        // The program's address, with that of its host, and the time to live.
        let source = &group["sources"][0];
        assert_eq!(source["ttl"], 9, "{report}");
        let port = speaker.local_addr().unwrap().port();
        assert_eq!(source["address"], format!("{}:{port}", site.lan.address_v4(0)), "{report}");
        assert_eq!(source["here"], at == 0, "{report}");
    }
}

/// Relays that hear and hand out at the network by which they also talk to each other, and that carry what
/// other hosts say: each datagram comes by the network, and by two relays. Nothing goes round.
#[test]
fn relays_at_one_network_disturb_neither_each_other_nor_programs() {
    let test = "relays_at_one_network_disturb_neither_each_other_nor_programs";
    let args = ["--local", HOST, "--any-source"];
    let Some(mut site) = Site::build(test, 3, "uniform:5%", &args) else { return };
    let address = |at: usize| match site.lan.address_v4(at) {
        std::net::IpAddr::V4(ip) => ip,
        std::net::IpAddr::V6(_) => unreachable!("the address is of IPv4"),
    };
    let program = listen(site.lan.host(1), address(1));
    let speaker = speak(site.lan.host(0), address(0));
    let mut said = std::collections::HashMap::new();
    for round in 0..20 {
        for at in 0..10_u32 {
            let datagram = format!("{round} {at}").into_bytes();
            speaker.send_to(&datagram, GROUP).unwrap();
            said.insert(datagram, 0_u32);
        }
        let missing = |said: &std::collections::HashMap<Vec<u8>, u32>| said.values().any(|&count| count == 0);
        while missing(&said) {
            let (bytes, _) = received(&program);
            *said.get_mut(&bytes).expect("what was said") += 1;
        }
    }
    // A copy by the network may be later than the wait for it, if this machine is busy; a loop would not end.
    let copies: u32 = said.values().sum();
    let mut carried = 0;
    for relay in std::mem::take(&mut site.relays) {
        let report = relay.stop();
        let group = &report["groups"][0];
        carried += group["carried"].as_u64().unwrap();
        assert_eq!(group["from_relays"], 0, "what is handed out stays on its host: {report}");
    }
    assert!((200..=600).contains(&carried), "each relay carries a datagram once at most: {carried}");
    assert!((200..=400).contains(&copies), "{copies}");
}

/// Programs of two hosts send from an address that both hosts have, as each bridge for containers has one.
#[test]
fn a_program_at_an_address_that_all_hosts_have_is_heard_on_the_others() {
    let test = "a_program_at_an_address_that_all_hosts_have_is_heard_on_the_others";
    let Some(mut site) = Site::build(test, 2, "uniform:5%", &[]) else { return };
    for at in 0..2 {
        site.lan.host(at).add_address("lo", "172.17.0.1/32".parse().unwrap()).unwrap();
    }
    // A relay reads the addresses of its host once a second.
    std::thread::sleep(Duration::from_millis(1_100));
    let programs = [0, 1].map(|at| listen(site.lan.host(at), Ipv4Addr::LOCALHOST));
    let speakers = [0, 1].map(|at| speak(site.lan.host(at), Ipv4Addr::new(172, 17, 0, 1)));
    for round in 0..20 {
        let said = [0, 1].map(|at| format!("round {round}, host {at}").into_bytes());
        for (speaker, datagram) in speakers.iter().zip(&said) {
            speaker.send_to(datagram, GROUP).unwrap();
        }
        for program in &programs {
            let mut heard = [received(program).0, received(program).0];
            heard.sort();
            assert_eq!(heard, said);
        }
    }
    programs.iter().for_each(nothing_more);
    for relay in std::mem::take(&mut site.relays) {
        let report = relay.stop();
        let group = &report["groups"][0];
        let seen = ["carried", "handed_out", "duplicates"].map(|field| group[field].as_u64().unwrap());
        assert_eq!(seen, [20, 20, 0], "{report}");
    }
}

/// Reports that stdout does not take are lost, and nothing else is.
#[test]
fn a_relay_goes_on_when_nobody_takes_its_reports() {
    let test = "a_relay_goes_on_when_nobody_takes_its_reports";
    if !netlab::privilege::namespaces_or_skip(test) {
        return;
    }
    let lan = BridgeLan::build(&BridgeLanConfig { hosts: 2, ..BridgeLanConfig::default() }).unwrap();
    let group = GROUP.to_string();
    for sink in Sink::all() {
        let name = sink.name;
        let args = ["relay", &group, "--interface", HOST, "--json", "--every", "0.02"];
        let first = NodeProcess::start_with(lan.host(0), &args, None, sink.out);
        let second = Relay::start(lan.host(1), Some(&first.address), &[]);
        let programs = [0, 1].map(|at| listen(lan.host(at), Ipv4Addr::LOCALHOST));
        let speakers = [0, 1].map(|at| speak(lan.host(at), Ipv4Addr::LOCALHOST));
        let mut buffer = [0; 100];
        wait_until("the relays know one another", || {
            programs[0].set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            speakers[1].send_to(b"first", GROUP).unwrap();
            programs[0].recv(&mut buffer).is_ok()
        });
        // Several times as long as the interval of the reports.
        for round in 0..20_u8 {
            std::thread::sleep(Duration::from_millis(20));
            for (from, to) in [(0, 1), (1, 0)] {
                let datagram = [round, from];
                speakers[usize::from(from)].send_to(&datagram, GROUP).unwrap();
                let program: &UdpSocket = &programs[to];
                program.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                while received(program).0 != datagram {}
            }
        }
        let (code, _, said) = first.stop();
        assert_eq!(code, Some(1), "{name}: {said}");
        assert_eq!(said.matches("stdout does not take a report").count(), 1, "{name}: {said}");
        assert!(said.contains("cannot write the last report to stdout"), "{name}: {said}");
        second.stop();
    }
}

#[test]
fn a_second_relay_for_a_group_at_an_interface_is_refused() {
    let test = "a_second_relay_for_a_group_at_an_interface_is_refused";
    if !netlab::privilege::namespaces_or_skip(test) {
        return;
    }
    let lan = BridgeLan::build(&BridgeLanConfig { hosts: 1, ..BridgeLanConfig::default() }).unwrap();
    let first = Relay::start(lan.host(0), None, &[]);
    let again = |group: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["multicast", "relay", group, "--interface", HOST]);
        let output = lan.host(0).run(|| command.output()).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = again(&GROUP.to_string());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("expected no other relay for 239.1.1.1:5000 at lo, saw one"), "{said}");
    let (code, said) = again("10.0.0.1:5000");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("expected a multicast address and a port"), "{said}");
    let (code, said) = again("239.255.79.1:7911");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("which Ricochet uses itself"), "{said}");
    first.stop();
}

/// A program of someone else's: socat on both sides.
#[test]
fn socat_talks_to_socat() {
    let test = "socat_talks_to_socat";
    if !Command::new("socat").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: {test}: no socat (apt-get install socat)");
        return;
    }
    let Some(mut site) = Site::build(test, 2, "uniform:5%", &[]) else { return };
    let file = std::env::temp_dir().join(format!("undrop-socat-{}.txt", std::process::id()));
    let mut hears = Command::new("socat");
    hears.args(["-u", "UDP4-RECV:5000,ip-add-membership=239.1.1.1:127.0.0.1,reuseaddr", "-"]);
    hears.stdout(File::create(&file).unwrap());
    let mut hears = site.lan.host(1).spawn(hears).unwrap();
    wait_until("socat has joined", || {
        let joined = site.lan.host(1).run(|| std::fs::read_to_string("/proc/thread-self/net/udp")).unwrap();
        joined.lines().filter(|line| line.contains(":1388 ")).count() >= 2
    });
    let mut says = Command::new("socat");
    says.args(["-u", "-", "UDP4-DATAGRAM:239.1.1.1:5000,bind=127.0.0.1"]).stdin(Stdio::piped());
    let mut says = site.lan.host(0).run(|| says.spawn()).unwrap();
    let text: String = (0..500).map(|at| format!("line {at}\n")).collect();
    let mut input = says.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    assert!(says.wait().unwrap().success());
    wait_until("all of it is heard", || std::fs::read_to_string(&file).unwrap() == text);
    let _ = hears.signal(Signal::SIGKILL);
    std::fs::remove_file(&file).unwrap();
    std::mem::take(&mut site.relays).into_iter().for_each(|relay| drop(relay.stop()));
}
