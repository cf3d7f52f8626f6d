//! A gateway that hands over to another process under traffic, over a link that loses packets.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use netio::interface::Interface;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, MessageStream, Pace, UdpStream, message_stream, udp_stream, unwatched};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::{wait_for, wait_until};

use crate::disturbance::assert_duplicates_arrived_late;
use crate::forecasts;
use crate::pair::{PROGRAM, peer, wait_for_log, wait_until_up};
use crate::supervision::{Manager, launch};

/// Packets in each direction while both gateways hand over, and back.
const PACKETS: u64 = 12_000;

/// Processes that have taken over, which have no parent any more. Dropping this kills them.
#[derive(Default)]
pub(crate) struct Successors(Vec<Pid>);

impl Successors {
    pub(crate) fn add(&mut self, process: i32) {
        self.0.push(Pid::from_raw(process));
    }

    pub(crate) fn stop(&mut self) {
        for pid in std::mem::take(&mut self.0) {
            // It may have handed over.
            let _ = kill(pid, Signal::SIGTERM);
            wait_until("a process ends", || !Path::new(&format!("/proc/{pid}")).exists());
        }
    }
}

impl Drop for Successors {
    fn drop(&mut self) {
        self.0.iter().for_each(|&pid| _ = kill(pid, Signal::SIGKILL));
    }
}

/// Runs `undrop gateway upgrade` for one side; returns the number of the new process, or what it said.
fn upgrade(pair: &GatewayPair, side: usize) -> Result<i32, String> {
    upgrade_by(&pair.config(side))
}

/// Runs `undrop gateway upgrade` with a file; returns the number of the new process, or what it said.
pub(crate) fn upgrade_by(config: &Path) -> Result<i32, String> {
    // The process before the present one stays for half a second.
    let asked = wait_for(|| {
        let said = ask_for_upgrade(config);
        let is_busy = said.as_ref().is_err_and(|said| said.contains("an upgrade is under way"));
        (!is_busy).then_some(said)
    });
    asked.expect("an upgrade that is under way ends")
}

fn ask_for_upgrade(config: &Path) -> Result<i32, String> {
    let mut command = Command::new(PROGRAM);
    command.args(["gateway", "upgrade", "--config"]).arg(config);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if !output.status.success() {
        return Err(text(output.stderr));
    }
    let said = text(output.stdout);
    let number = said.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
    let goes_on = said.contains("sessions that go on: ") && !said.contains("sessions that go on: 0");
    assert!(goes_on, "{said}");
    Ok(number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}")))
}

fn link() -> EmulatorConfig {
    EmulatorConfig::symmetric(LinkConfig {
        rate_bps: Some(200_000_000),
        delay_us: 20_000,
        loss: "uniform:0.02".parse().unwrap(),
        seed: 33,
        ..LinkConfig::default()
    })
}

#[test]
fn a_gateway_hands_over_under_traffic_and_no_session_begins() {
    if !privilege::available_or_skip("a_gateway_hands_over_under_traffic_and_no_session_begins") {
        return;
    }
    // A gateway that gets no processor for 250 ms renews its sessions, and its neighbour may begin one.
    let is_done = (0..4).any(|_| hand_over_under_traffic());
    assert!(is_done, "a gateway had no time in each of four runs");
}

/// Returns false if a gateway stood still, after which sessions may begin, or had no time to recover packets
/// while the streams lasted.
fn hand_over_under_traffic() -> bool {
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link()).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let mut successors = Successors::default();
    let before = [0, 1].map(|side| peer(&pair, side).sessions);
    let there = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let back = Between { from: &sites.b.hosts[0], to: &sites.a.hosts[0], address: sites.a.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(1_000.0),
        payload_bytes: 500,
        duration: Duration::from_secs(PACKETS / 1_000),
        patience: Duration::from_secs(2),
        ..UdpStream::default()
    };
    let messages = MessageStream { duration: plan.duration, ..MessageStream::default() };
    let (reports, delivered, is_slow) = thread::scope(|scope| {
        let streams = [there, back].map(|between| {
            let plan = &plan;
            scope.spawn(move || udp_stream(between, plan, &mut unwatched).unwrap())
        });
        let stream = scope.spawn(|| message_stream(there, &messages, &mut unwatched).unwrap());
        let recovers = |side| {
            wait_for(|| match peer(&pair, side).ingress.injected_packets > 20 {
                false if streams.iter().all(thread::ScopedJoinHandle::is_finished) => Some(false),
                recovers => recovers.then_some(true),
            })
        };
        let mut is_slow = false;
        for side in [0, 1, 0] {
            is_slow |= recovers(side) != Some(true);
            let process = upgrade(&pair, side).unwrap_or_else(|said| panic!("{said}\n{}", pair.logs()));
            successors.add(process);
        }
        for side in [0, 1] {
            is_slow |= recovers(side) != Some(true);
        }
        (streams.map(|stream| stream.join().unwrap()), stream.join().unwrap(), is_slow)
    });
    if is_slow || ["stood still", "recovery pauses"].iter().any(|event| pair.logs().contains(event)) {
        println!("repeated, because a gateway had no time:\n{}", pair.logs());
        successors.stop();
        return false;
    }
    for (side, report) in reports.iter().enumerate() {
        let (peer, status) = (peer(&pair, side), pair.status(side).unwrap());
        assert!(peer.up && peer.sessions == before[side], "{}\n{}", peer.sessions, pair.logs());
        // Those that waited in the tap when the far gateway asked for a new stream.
        assert!(status.not_protected["peer_down"] <= 50, "{}", pair.logs());
        assert_eq!(report.altered, 0);
        assert_duplicates_arrived_late(&pair, 1 - side, report.duplicates);
        // The link loses 240 packets. On a busy machine, some of them stay lost at any time.
        assert!(report.missing() < 60, "{} are missing\n{}", report.missing(), pair.logs());
    }
    assert_eq!(delivered.missing(), 0, "a connection lives");
    for direction in [Direction::AToB, Direction::BToA] {
        assert!(sites.link.counters(direction).link.lost > 100, "the link loses packets");
    }
    assert_settled(&sites, &mut pair);
    kill(successors.0[1], Signal::SIGHUP).unwrap();
    wait_for_log(&pair, "reloaded");
    assert!(peer(&pair, 1).up);
    successors.stop();
    pair.stop().unwrap();
    true
}

/// Asserts that the processes before have ended, and that the last ones have all that was theirs.
fn assert_settled(sites: &TwoSites, pair: &mut GatewayPair) {
    for side in [0, 1] {
        let first = pair.child(side).unwrap();
        let ended = wait_for(|| first.try_wait().unwrap()).map(|status| status.success());
        assert_eq!(ended, Some(true), "{}", pair.logs());
    }
    // The device has its name again, and the segments are limited, once the process before has ended.
    for site in [&sites.a, &sites.b] {
        let index = || site.gateway.run(|| Interface::index_of("undrop0").unwrap());
        wait_until("the device has its name", || index().is_some());
    }
    wait_until("the segments are limited", || {
        (0..2).all(|side| pair.status(side).unwrap().gateway.mtu == "managed")
    });
}

#[test]
fn the_next_process_continues_the_record_of_losses_whatever_file_is_named() {
    if !privilege::available_or_skip("the_next_process_continues_the_record_of_losses_whatever_file_is_named")
    {
        return;
    }
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link()).unwrap();
    let pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::default()).unwrap();
    let before = forecasts::record_losses(&sites, &pair);
    let mut successors = Successors::default();
    successors.add(upgrade(&pair, 1).unwrap_or_else(|said| panic!("{said}\n{}", pair.logs())));
    forecasts::assert_continued(&pair, &before);
    // The first process has not read this setting, and the file was there before.
    let record = pair.config(1).with_file_name("losses.json");
    fs::write(&record, "of last month").unwrap();
    let text = fs::read_to_string(pair.config(1)).unwrap();
    fs::write(pair.config(1), text.replacen("[gateway]\n", "[gateway]\nloss_record = \"losses.json\"\n", 1))
        .unwrap();
    successors.add(upgrade(&pair, 1).unwrap_or_else(|said| panic!("{said}\n{}", pair.logs())));
    forecasts::assert_continued(&pair, &before);
    assert_eq!(fs::read_to_string(record.with_file_name("losses.json.former")).unwrap(), "of last month");
    wait_until("the record is written", || {
        fs::read_to_string(&record).is_ok_and(|text| text.contains("\"saved_s\""))
    });
    successors.stop();
    pair.stop().unwrap();
}

/// Nice value of the main thread of a process: field 19 of its `stat` (proc_pid_stat(5)).
fn niceness(process: impl std::fmt::Display) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name before it may hold spaces. The state, field 3, follows the name.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_ascii_whitespace().nth(19 - 3).unwrap().parse().unwrap()
}

#[test]
fn each_process_that_takes_over_has_the_priority_of_the_first_one() {
    if !privilege::available_or_skip("each_process_that_takes_over_has_the_priority_of_the_first_one") {
        return;
    }
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link()).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let first = niceness(pair.child(1).unwrap().id());
    let mut successors = Successors::default();
    for _ in 0..2 {
        successors.add(upgrade(&pair, 1).unwrap_or_else(|said| panic!("{said}\n{}", pair.logs())));
    }
    // When the process before has ended, the last one has set its priority.
    let before = format!("/proc/{}", successors.0[0]);
    wait_until("the process before ends", || !Path::new(&before).exists());
    assert_eq!(niceness(successors.0[1]), first);
    successors.stop();
    pair.stop().unwrap();
}

#[test]
fn the_service_manager_learns_which_process_is_the_main_one() {
    if !privilege::available_or_skip("the_service_manager_learns_which_process_is_the_main_one") {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    pair.kill(1).unwrap();
    let directory = pair.config(1).parent().unwrap().to_owned();
    let (path, log) = (directory.join("notify.sock"), directory.join("supervised.log"));
    let manager = Manager::new(&path);
    let mut child = launch(&pair, &sites, &path, &log);
    manager.wait_for("READY=1");
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    let process = upgrade(&pair, 1).unwrap();
    let mut successors = Successors(vec![Pid::from_raw(process)]);
    assert_eq!(manager.wait_for("MAINPID="), format!("MAINPID={process}"));
    assert_eq!(manager.wait_for("READY=1"), "READY=1\nSTATUS=protecting wan0");
    (0..3).for_each(|_| drop(manager.wait_for("WATCHDOG=1")));
    let ended = wait_for(|| child.try_wait().unwrap());
    assert!(ended.is_some_and(|status| status.success()), "{}", fs::read_to_string(&log).unwrap());
    successors.stop();
    manager.wait_for("STOPPING=1");
}

/// A pair whose first gateway is the program at a path that the test changes.
fn with_link(sites: &TwoSites) -> (GatewayPair, PathBuf) {
    let program = std::env::temp_dir().join(format!("undrop-upgrade-{}", std::process::id()));
    let _ = fs::remove_file(&program);
    symlink(PROGRAM, &program).unwrap();
    let pair = GatewayPair::start(&program, &End::of(sites), &Setting::layered()).unwrap();
    (pair, program)
}

pub(crate) fn install(program: &Path, script: &str) {
    // A symbolic link must not be followed.
    let _ = fs::remove_file(program);
    fs::write(program, script).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_upgrade_that_fails_leaves_the_gateway_at_work_and_says_why() {
    if !privilege::available_or_skip("an_upgrade_that_fails_leaves_the_gateway_at_work_and_says_why") {
        return;
    }
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link()).unwrap();
    let (mut pair, program) = with_link(&sites);
    let before = [0, 1].map(|side| peer(&pair, side).sessions);
    let good = fs::read_to_string(pair.config(0)).unwrap();
    let refused = |pair: &GatewayPair, reason: &str| {
        let said = upgrade(pair, 0).unwrap_err();
        assert!(said.contains(reason), "{said}\n{}", pair.logs());
        assert!(said.contains("which protects as before"), "{said}");
    };
    // A file with a mistake, and one of another gateway.
    fs::write(pair.config(0), good.replace("tap = ", "tapp = ")).unwrap();
    let said = Command::new(PROGRAM)
        .args(["gateway", "upgrade", "--control"])
        .arg(pair.config(0).with_extension("sock"))
        .output()
        .unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("the configuration has mistakes"), "{said}\n{}", pair.logs());
    fs::write(pair.config(0), good.replace(":4700\"\ncontrol", ":4701\"\ncontrol")).unwrap();
    refused(&pair, "as this process uses them");
    fs::write(pair.config(0), &good).unwrap();
    // Programs that do not take over.
    for (script, reason) in [
        ("#!/bin/sh\nexit 3\n", "ended with exit status: 3"),
        ("#!/bin/sh\necho nonsense >&0\nexec sleep 60\n", "cannot be understood"),
        ("#!/bin/sh\nexec sleep 60\n", "was not ready within 15 s"),
        ("no program at all", "cannot start the program"),
    ] {
        install(&program, script);
        refused(&pair, reason);
    }
    fs::remove_file(&program).unwrap();
    refused(&pair, "cannot start the program");
    // The process that has said that it watches, and ends: it knew the sessions, and sent nothing.
    install(
        &program,
        &format!(
            "#!/bin/sh\nprintf '%s\\n' '{}' '{}' >&0\nexec sleep 30\n",
            "{\"step\":\"ready\",\"version\":3,\"listen\":\"10.81.9.1:4700\",\"wan\":\"wan0\"}",
            "{\"step\":\"watching\"}"
        ),
    );
    refused(&pair, "did not answer");
    wait_for_log(&pair, "this process goes on");
    wait_until_up(&pair);
    // The sessions had been given away: only another one is safe.
    let after = [0, 1].map(|side| peer(&pair, side).sessions);
    assert_eq!(after, before.map(|count| count + 1), "{}", pair.logs());
    assert!(pair.child(0).unwrap().try_wait().unwrap().is_none());
    fs::remove_file(&program).unwrap();
    symlink(PROGRAM, &program).unwrap();
    let mut successors = Successors(vec![Pid::from_raw(upgrade(&pair, 0).unwrap())]);
    wait_until_up(&pair);
    assert_eq!(peer(&pair, 0).sessions, after[0]);
    successors.stop();
    fs::remove_file(&program).unwrap();
    pair.stop().unwrap();
}
