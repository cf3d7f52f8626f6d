//! A gateway under a service manager: what it tells, and how it ends when its loop hangs.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use netlab::emulator::EmulatorConfig;
use netlab::namespace::Child;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig, WAN};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_for;

use crate::by_tunnel::ip;
use crate::pair::PROGRAM;

/// A service manager's socket.
pub(crate) struct Manager(UnixDatagram);

impl Manager {
    pub(crate) fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(socket)
    }

    /// Reads messages up to one that begins with `start`; returns it.
    pub(crate) fn wait_for(&self, start: &str) -> String {
        let mut message = [0; 500];
        for _ in 0..1_000 {
            let length = self.0.recv(&mut message).unwrap_or_else(|error| panic!("no {start:?}: {error}"));
            let text = std::str::from_utf8(&message[..length]).unwrap();
            if text.starts_with(start) {
                return text.to_owned();
            }
        }
        panic!("no {start:?} among 1,000 messages");
    }
}

pub(crate) fn launch(pair: &GatewayPair, sites: &TwoSites, manager: &Path, log: &Path) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(["gateway", "run", "--config"]).arg(pair.config(1));
    command.env("NOTIFY_SOCKET", manager).env("WATCHDOG_USEC", "3000000");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log).unwrap());
    sites.b.gateway.spawn(command).unwrap()
}

#[test]
fn a_gateway_tells_its_service_manager_each_step_and_ends_when_its_loop_hangs() {
    if !privilege::available_or_skip(
        "a_gateway_tells_its_service_manager_each_step_and_ends_when_its_loop_hangs",
    ) {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    // In a user namespace the other way is impossible, and told first.
    let setting = Setting { injection: "tun", ..Setting::layered() };
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &setting).unwrap();
    pair.kill(1).unwrap();
    let directory = pair.config(1).parent().unwrap().to_owned();
    let (path, log) = (directory.join("notify.sock"), directory.join("supervised.log"));
    let manager = Manager::new(&path);

    let mut child = launch(&pair, &sites, &path, &log);
    assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=protecting wan0");
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    (0..3).for_each(|_| drop(manager.wait_for("WATCHDOG=1")));
    manager.wait_for("STATUS=10.81.9.1:4700: protected");
    // Faults of the gateway itself come first.
    let rename = |from: &str, to: &str| {
        ip(&sites.b.gateway, &["link", "set", from, "down"]);
        ip(&sites.b.gateway, &["link", "set", from, "name", to]);
        ip(&sites.b.gateway, &["link", "set", to, "up"]);
    };
    rename(WAN, "gone0");
    let text = manager.wait_for("STATUS=gateway down: the WAN interface wan0 is gone");
    assert!(text.contains("; 10.81.9.1:4700: "), "{text}");
    rename("gone0", WAN);
    manager.wait_for("STATUS=10.81.9.1:4700: ");
    child.signal(Signal::SIGHUP).unwrap();
    manager.wait_for("RELOADING=1\nMONOTONIC_USEC=");
    manager.wait_for("READY=1");
    // A process that was stopped for longer than the limit has not hung.
    child.signal(Signal::SIGSTOP).unwrap();
    thread::sleep(Duration::from_secs(5));
    child.signal(Signal::SIGCONT).unwrap();
    (0..3).for_each(|_| drop(manager.wait_for("WATCHDOG=1")));
    assert!(child.terminate(Duration::from_secs(10)).unwrap().success());
    manager.wait_for("STOPPING=1");

    // A configuration that can be opened only when somebody writes to it: the reload hangs.
    let mut child = launch(&pair, &sites, &path, &log);
    manager.wait_for("READY=1");
    let config = pair.config(1);
    let good = fs::read_to_string(&config).unwrap();
    fs::remove_file(&config).unwrap();
    mkfifo(&config, Mode::S_IRUSR).unwrap();
    child.signal(Signal::SIGHUP).unwrap();
    let ended = wait_for(|| child.try_wait().unwrap());
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(ended.and_then(|status| status.code()), Some(70), "{text}");
    assert!(text.contains("the main loop has not turned for 2.25 s"), "{text}");

    // The supervisor starts it again.
    fs::remove_file(&config).unwrap();
    fs::write(&config, good).unwrap();
    let mut child = launch(&pair, &sites, &path, &log);
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    assert!(child.terminate(Duration::from_secs(10)).unwrap().success());
}

#[test]
fn a_relay_tells_its_service_manager_that_it_works_and_sends_signs_of_life() {
    let test = "a_relay_tells_its_service_manager_that_it_works_and_sends_signs_of_life";
    if !privilege::namespaces_or_skip(test) {
        return;
    }
    let lan = BridgeLan::build(&BridgeLanConfig { hosts: 1, ..BridgeLanConfig::default() }).unwrap();
    let path = std::env::temp_dir().join(format!("undrop-relay-notify-{}.sock", std::process::id()));
    let _ = fs::remove_file(&path);
    let manager = Manager::new(&path);
    let mut command = Command::new(PROGRAM);
    command.args(["multicast", "relay", "239.1.1.1:5000", "239.1.1.2:5000", "--interface", HOST]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "3000000");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = lan.host(0).spawn(command).unwrap();
    assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=relays 2 groups at lo");
    (0..3).for_each(|_| drop(manager.wait_for("WATCHDOG=1")));
    assert!(child.terminate(Duration::from_secs(10)).unwrap().success());
    manager.wait_for("STOPPING=1");
    fs::remove_file(&path).unwrap();
}
