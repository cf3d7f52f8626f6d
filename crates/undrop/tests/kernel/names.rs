//! A peer that the file names by a host name, with a table of names that this test owns.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use maelstrom::status::PeerStatus;
use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig, WAN};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting, TwoPaths};

use crate::pair::{PROGRAM, peer, reload, wait_for_log, wait_for_peer, wait_until_up};

/// A program that runs undrop with a table of names of its own, which a test may change meanwhile.
struct OwnNames {
    directory: PathBuf,
}

impl OwnNames {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("undrop-names-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let names = Self { directory };
        names.set("");
        let script = format!(
            "#!/bin/sh\nexec unshare -m sh -c 'mount --bind {} /etc/hosts && exec {PROGRAM} \"$@\"' sh \"$@\"\n",
            names.table().display()
        );
        fs::write(names.program(), script).unwrap();
        fs::set_permissions(names.program(), Permissions::from_mode(0o755)).unwrap();
        names
    }

    fn table(&self) -> PathBuf {
        self.directory.join("hosts")
    }

    fn program(&self) -> PathBuf {
        self.directory.join("undrop")
    }

    fn set(&self, table: &str) {
        fs::write(self.table(), format!("127.0.0.1 localhost\n{table}")).unwrap();
    }
}

impl Drop for OwnNames {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Streams until the gateway has protected 200 packets; one that stood still discards some.
fn stream(sites: &TwoSites, pair: &GatewayPair) {
    for _ in 0..10 {
        stream_once(sites);
        if peer(pair, 0).egress.source_packets >= 200 {
            return;
        }
    }
    panic!("{:?}\n{}", peer(pair, 0), pair.logs());
}

fn stream_once(sites: &TwoSites) {
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(200.0),
        duration: Duration::from_secs(1),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    udp_stream(between, &plan, &mut unwatched).unwrap();
}

fn is_at(peer: &PeerStatus, address: SocketAddr) -> bool {
    peer.up && peer.address == address && peer.host.as_deref() == Some("far.test:4700")
}

#[test]
fn a_peer_is_found_by_its_name_and_again_after_it_has_moved() {
    if !privilege::available_or_skip("a_peer_is_found_by_its_name_and_again_after_it_has_moved") {
        return;
    }
    let link = LinkConfig { delay_us: 5_000, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let names = OwnNames::new("peer");
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(&names.program(), &ends, &Setting::layered()).unwrap();
    let text = fs::read_to_string(pair.config(0)).unwrap();
    fs::write(pair.config(0), text.replace("10.81.9.2:4700", "far.test:4700")).unwrap();
    // The far gateway does not call, so that only its name shows where it is.
    let text = fs::read_to_string(pair.config(1)).unwrap();
    let any = text.replace("address = \"10.81.9.1:4700\"", "name = \"near\"\naddress = \"any\"");
    assert_ne!(any, text);
    fs::write(pair.config(1), any).unwrap();
    for (side, end) in ends.iter().enumerate() {
        pair.launch(side, end.namespace).unwrap();
    }
    wait_for_log(&pair, "cannot find far.test:4700");
    wait_for_peer(&pair, 0, "the status says so", |peer| {
        peer.trouble
            .as_ref()
            .is_some_and(|trouble| trouble.cause.contains("address of the peer is not known"))
    });
    names.set("10.81.9.2 far.test\n");
    let first: SocketAddr = "10.81.9.2:4700".parse().unwrap();
    wait_for_peer(&pair, 0, "the peer is found", |peer| is_at(peer, first));
    wait_until_up(&pair);
    stream(&sites, &pair);
    // Another reload keeps the address, also while no name is found.
    names.set("");
    reload(&mut pair, 0, |text| text.replace("max_delay_ms = 20", "max_delay_ms = 21"));
    assert_eq!(peer(&pair, 0).address, first);
    // The far gateway moves.
    sites.b.gateway.add_address(WAN, "10.81.9.22/24".parse().unwrap()).unwrap();
    pair.kill(1).unwrap();
    let text = fs::read_to_string(pair.config(1)).unwrap();
    fs::write(pair.config(1), text.replace("listen = \"10.81.9.2:4700\"", "listen = \"10.81.9.22:4700\""))
        .unwrap();
    pair.launch(1, ends[1].namespace).unwrap();
    names.set("10.81.9.22 far.test\n");
    let second: SocketAddr = "10.81.9.22:4700".parse().unwrap();
    wait_for_peer(&pair, 0, "the peer is found again", |peer| is_at(peer, second));
    wait_until_up(&pair);
    wait_for_log(&pair, "the peer is at 10.81.9.22:4700");
    stream(&sites, &pair);
    pair.stop().unwrap();
}

#[test]
fn a_further_path_is_found_by_a_name_and_again_after_its_end_has_moved() {
    if !privilege::available_or_skip("a_further_path_is_found_by_a_name_and_again_after_its_end_has_moved") {
        return;
    }
    let link = LinkConfig { rate_bps: Some(100_000_000), delay_us: 5_000, ..LinkConfig::default() };
    let paths = TwoPaths::build(link.clone(), link).unwrap();
    let names = OwnNames::new("path");
    let mut pair = paths.prepare(&names.program(), Some("failover")).unwrap();
    // The far gateway does not call on the second path, so that only its name shows where it is.
    for (side, [known, other]) in
        [["10.82.9.2:4701", "second.test:4701"], ["10.82.9.1:4701", "any"]].iter().enumerate()
    {
        let text = fs::read_to_string(pair.config(side)).unwrap();
        let named = text.replace(&format!("address = \"{known}\""), &format!("address = \"{other}\""));
        assert_ne!(named, text);
        fs::write(pair.config(side), named).unwrap();
    }
    paths.launch(&mut pair).unwrap();
    wait_for_log(&pair, "cannot find second.test:4701");
    let second_is_at = |peer: &PeerStatus, address: &str| {
        let paths = &peer.egress.tunnel.as_ref().unwrap().paths;
        paths[0].alive && paths[1].alive && paths[1].address.to_string() == address
    };
    names.set("10.82.9.2 second.test\n");
    wait_for_peer(&pair, 0, "the path is found", |peer| second_is_at(peer, "10.82.9.2:4701"));
    paths.sites.b.gateway.add_address("wan1", "10.82.9.22/24".parse().unwrap()).unwrap();
    reload(&mut pair, 1, |text| text.replace("local = \"10.82.9.2:4701\"", "local = \"10.82.9.22:4701\""));
    names.set("10.82.9.22 second.test\n");
    wait_for_peer(&pair, 0, "the path is found again", |peer| second_is_at(peer, "10.82.9.22:4701"));
    assert!(peer(&pair, 0).up, "{}", pair.logs());
    pair.stop().unwrap();
}

#[test]
fn check_says_what_a_name_resolves_to() {
    let directory = std::env::temp_dir().join(format!("undrop-check-names-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    keyfile::KeyText::generate().unwrap().write_new(&directory.join("peer.key")).unwrap();
    let check = |name: &str| {
        let file = directory.join("gateway.toml");
        let text = format!(
            "[gateway]\nwan = \"lo\"\nlisten = \"127.0.0.1:4700\"\n[[peer]]\naddress = \"{name}:4701\"\n\
             networks = [\"10.81.2.0/24\"]\nkey_file = \"peer.key\"\n"
        );
        fs::write(&file, text).unwrap();
        let output =
            Command::new(Path::new(PROGRAM)).args(["gateway", "check", "--config"]).arg(&file).output();
        let output = output.unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let found = check("localhost");
    assert!(found.contains("`localhost` is 127.0.0.1"), "{found}");
    let unknown = check("no-such-host.invalid");
    assert!(unknown.contains("warning[unknown-name]") && unknown.contains("getent hosts"), "{unknown}");
    fs::remove_dir_all(&directory).unwrap();
}
