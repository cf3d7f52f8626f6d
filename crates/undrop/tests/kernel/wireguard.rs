//! Gateways inside and outside of a WireGuard tunnel, with the files of docs/book/wireguard.md.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use netlab::Namespace;
use netlab::emulator::Direction;
use netlab::namespace::Child;
use netlab::privilege;
use netlab::topology::TwoSites;
use netlab::traffic::{Pace, TcpTransfer, UdpStream, tcp_transfer, udp_stream, unwatched};
use stage::gateways::{End, GatewayPair, Setting, between, sites};
use testkit::wait_until;

use crate::disturbance::undisturbed;
use crate::firewall::lab::skipped;
use crate::pair::{PROGRAM, peer};

/// Words in the files that differ at site 2.
const SWAPPED: [[&str; 2]; 5] = [
    ["10.81.8.1", "10.81.8.2"],
    ["10.81.9.1", "10.81.9.2"],
    ["10.81.9.31", "10.81.9.32"],
    ["10.81.1.", "10.81.2."],
    ["SITE_1", "SITE_2"],
];

/// Returns whether the test can run here: as root, with a WireGuard that needs no module of the kernel.
fn possible(name: &str) -> bool {
    if !privilege::available_or_skip(name) {
        return false;
    }
    for (program, package) in [("wireguard-go", "wireguard-go"), ("wg", "wireguard-tools")] {
        let found =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            skipped(&format!("{name}: no program `{program}` (apt-get install {package})"));
            return false;
        }
    }
    true
}

/// Returns the file of a site in a block of the page, if there is one: that below `heading`, of this kind.
fn file_of_the_page(heading: &str, kind: &str, side: usize) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/wireguard.md");
    let page = fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (_, file) = section.split_once(&format!("```{kind}\n"))?;
    let (file, _) = file.split_once("```")?;
    let swap =
        |file: String, [one, two]: &[&str; 2]| file.replace(one, "\0").replace(two, one).replace('\0', two);
    Some(if side == 0 { file.to_owned() } else { SWAPPED.iter().fold(file.to_owned(), swap) })
}

/// Returns the value of a key of WireGuard's file.
fn value<'a>(file: &'a str, key: &str) -> Option<&'a str> {
    file.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
}

/// Runs a program that must succeed, with this input; returns what it prints.
fn run(namespace: &Namespace, program: &str, args: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = namespace.run(|| command.spawn()).unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&said));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A running tunnel between two sites.
struct Tunnel {
    ends: Vec<TunnelEnd>,
}

struct TunnelEnd {
    process: Child,
    device: String,
    socket: PathBuf,
}

impl Tunnel {
    /// Starts a tunnel whose devices have names of their own: the sockets of all share a directory.
    fn start(sites: &TwoSites, letter: char, mtu: Option<&str>) -> Self {
        let gateways = [&sites.a.gateway, &sites.b.gateway];
        let private = gateways.map(|gateway| run(gateway, "wg", &["genkey"], ""));
        let public = private.clone().map(|key| run(gateways[0], "wg", &["pubkey"], &key));
        let ends = gateways.iter().enumerate().map(|(side, gateway)| {
            let mut file = file_of_the_page("The tunnel", "ini", side).unwrap();
            for site in 0..2 {
                file = file.replace(&format!("PRIVATE_KEY_OF_SITE_{}", site + 1), &private[site]);
                file = file.replace(&format!("PUBLIC_KEY_OF_SITE_{}", site + 1), &public[site]);
            }
            let device = format!("wg{}{letter}{side}", std::process::id() % 100_000);
            let end = TunnelEnd::start(gateway, device, &file);
            if let Some(mtu) = mtu {
                run(gateway, "ip", &["link", "set", &end.device, "mtu", mtu], "");
            }
            end
        });
        Self { ends: ends.collect() }
    }
}

impl TunnelEnd {
    /// Does what `wg-quick up` does with a file.
    fn start(gateway: &Namespace, device: String, file: &str) -> Self {
        let mut program = Command::new("wireguard-go");
        program.args(["--foreground", &device]).env("LOG_LEVEL", "error");
        program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let socket = PathBuf::from(format!("/var/run/wireguard/{device}.sock"));
        let process = gateway.spawn(program).unwrap();
        let end = Self { process, device, socket };
        // `wg` removes a socket at which nobody listens yet, and asks the kernel in its place.
        wait_until("wireguard-go listens", || UnixStream::connect(&end.socket).is_ok());
        let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with("Address = ")).collect();
        let device = end.device.as_str();
        run(gateway, "wg", &["setconf", device, "/dev/stdin"], &(lines.join("\n") + "\n"));
        run(gateway, "ip", &["address", "add", value(file, "Address").unwrap(), "dev", device], "");
        run(gateway, "ip", &["link", "set", device, "up"], "");
        for network in value(file, "AllowedIPs").unwrap().split(", ") {
            run(gateway, "ip", &["route", "replace", network, "dev", device], "");
        }
        end
    }
}

impl Drop for TunnelEnd {
    fn drop(&mut self) {
        let _ = self.process.terminate(Duration::from_secs(2));
        let _ = fs::remove_file(&self.socket);
    }
}

fn losses_are_recovered(test: &str, heading: &str, letter: char) {
    if !possible(test) {
        return;
    }
    let sites = sites(Some(100_000_000), 10_000, &"uniform:2%".parse().unwrap(), 17).unwrap();
    let of_interface = file_of_the_page(heading, "ini", 0);
    let tunnel = Tunnel::start(&sites, letter, of_interface.as_deref().and_then(|file| value(file, "MTU")));
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        let file = file_of_the_page(heading, "toml", side).unwrap();
        // The command in the file's comment, if it has one.
        if let Some((_, command)) = file.split_once(": ip ") {
            let words: Vec<&str> = command.lines().next().unwrap().split(' ').collect();
            run(end.namespace, "ip", &words, "");
        }
        let file = file.replace("/etc/undrop/peer.key", "peer.key").replace("wg0", &tunnel.ends[side].device);
        let file = file.replace("[gateway]", &format!("[gateway]\ncontrol = \"gateway-{side}.sock\""));
        fs::write(pair.config(side), file).unwrap();
        let config = pair.config(side);
        let found =
            run(end.namespace, PROGRAM, &["gateway", "check", "--config", config.to_str().unwrap()], "");
        assert!(!found.contains("warning["), "{found}");
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(60)).unwrap();

    let plan = UdpStream {
        pace: Pace::Packets(1_000.0),
        payload_bytes: 1_000,
        duration: Duration::from_secs(3),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let lost = || sites.link.counters(Direction::AToB).link.lost;
    let report = undisturbed(&pair, || {
        let before = lost();
        let report = udp_stream(between(&sites), &plan, &mut unwatched).unwrap();
        assert!(lost() > before + 30, "the link must lose packets");
        report
    });
    assert_eq!(report.altered, 0);
    assert!(report.missing() <= 6, "{} are missing\n{:?}\n{}", report.missing(), peer(&pair, 1), pair.logs());
    assert!(peer(&pair, 1).ingress.injected_packets > 20, "{:?}", peer(&pair, 1).ingress);
    let status = pair.status(1).unwrap();
    assert_eq!(status.gateway.injection, "wan", "{:?}", status.gateway.injection_reason);
    assert_eq!(status.counters["not_at_wan"], 0);

    let transfer =
        TcpTransfer { duration: Duration::from_secs(2), least_bytes: 100_001, ..TcpTransfer::default() };
    let report = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
    assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    let egress = peer(&pair, 0).egress;
    assert_eq!((egress.long_packets, egress.repairs_cut_in_two), (0, 0), "{egress:?}");
    pair.stop().unwrap();
}

testkit::cases! { losses_are_recovered:
    losses_are_recovered_inside_a_wireguard_tunnel("A gateway inside", 'i');
    losses_are_recovered_outside_of_a_wireguard_tunnel("A gateway outside", 'o');
}
