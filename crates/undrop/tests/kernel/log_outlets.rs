//! Logs and outputs that take nothing: a full disk, a pipe whose reader is gone, a pipe that nobody reads.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use netlab::emulator::EmulatorConfig;
use netlab::namespace::Child;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_for;

use crate::pair::PROGRAM;

const LOST_LINES: &str = "log_lines";
/// Bytes that a pipe holds.
const PIPE_BYTES: usize = 1 << 16;

fn full() -> Stdio {
    Stdio::from(File::options().write(true).open("/dev/full").unwrap())
}

/// Starts the gateway of site B with this stderr, and waits until it protects.
fn start(pair: &mut GatewayPair, sites: &TwoSites, stderr: Stdio) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(["gateway", "run", "--config"]).arg(pair.config(1));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let child = sites.b.gateway.spawn(command).unwrap();
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    child
}

/// Waits until a counter of site B's gateway exceeds `count`; returns it.
fn wait_for_more(pair: &GatewayPair, counter: &str, count: u64) -> u64 {
    let now = || pair.status(1).map_or(0, |status| status.counters[counter]);
    wait_for(|| Some(now()).filter(|&now| now > count))
        .unwrap_or_else(|| panic!("{counter:?} stays at {count}"))
}

/// Makes the gateway log a refused reload.
fn log_a_line(pair: &GatewayPair, child: &mut Child) {
    let config = pair.config(1);
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, "[gateway]\nwan = 7\n").unwrap();
    let before = pair.status(1).unwrap().counters["reloads_refused"];
    child.signal(Signal::SIGHUP).unwrap();
    wait_for_more(pair, "reloads_refused", before);
    fs::write(&config, good).unwrap();
}

#[test]
fn a_gateway_whose_log_takes_nothing_runs_on_and_counts_the_lines() {
    if !privilege::available_or_skip("a_gateway_whose_log_takes_nothing_runs_on_and_counts_the_lines") {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    pair.kill(1).unwrap();
    // A full disk, and a reader that is gone.
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    for stderr in [full(), Stdio::from(writer)] {
        let mut child = start(&mut pair, &sites, stderr);
        let before = wait_for_more(&pair, LOST_LINES, 0);
        log_a_line(&pair, &mut child);
        wait_for_more(&pair, LOST_LINES, before);
        assert!(child.terminate(Duration::from_secs(10)).unwrap().success());
    }
    // A pipe that is full and that nobody reads, until somebody does.
    let (mut reader, mut writer) = io::pipe().unwrap();
    writer.write_all(&[b'.'; PIPE_BYTES]).unwrap();
    let mut child = start(&mut pair, &sites, Stdio::from(writer));
    let lost = wait_for_more(&pair, LOST_LINES, 0);
    reader.read_exact(&mut [0; PIPE_BYTES]).unwrap();
    log_a_line(&pair, &mut child);
    assert!(child.terminate(Duration::from_secs(10)).unwrap().success());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.starts_with(&format!("{lost} lines of this log are missing")), "{text}");
    assert!(text.contains("reload refused"), "{text}");
}

#[test]
fn nodes_whose_stderr_takes_nothing_work_all_the_same() {
    let here = ["--interface", "lo", "--address", "127.0.0.1", "--port", "0", "--unicast"];
    let run = |args: &[&str], stderr: Stdio| {
        let mut command = Command::new(PROGRAM);
        command.arg("multicast").args(args).args(here).args(["--log", "debug"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).status().unwrap()
    };
    let closed = || Stdio::from(io::pipe().unwrap().1);
    for stderr in [full, closed] {
        let recv = run(&["recv", "load", "--seconds", "0.3"], stderr());
        assert_eq!(recv.code(), Some(0));
        let send = run(
            &["send", "load", "--size", "10", "--count", "3", "--members", "0", "--linger", "0"],
            stderr(),
        );
        assert_eq!(send.code(), Some(0));
    }
}

#[test]
fn a_command_whose_output_takes_nothing_fails_with_an_error() {
    let run = |args: &[&str], stdout: Stdio, stderr: Stdio| {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null()).stdout(stdout).stderr(stderr).output().unwrap()
    };
    let output = run(&["gateway", "genkey"], full(), Stdio::piped());
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: cannot write to stdout\n  caused by: "), "{text}");
    // A reader that has seen enough is no failure.
    let closed = Stdio::from(io::pipe().unwrap().1);
    assert_eq!(run(&["gateway", "genkey"], closed, Stdio::piped()).status.code(), Some(0));
    // The exit code survives where the error itself cannot be shown.
    for (args, code) in [
        (&["gateway", "status", "--control", "/nonexistent"][..], 1),
        (&["gateway", "run", "--config", "/nonexistent"], 1),
        (&["gateway", "check", "--config", "/nonexistent"], 1),
        (&["demo"], 2),
    ] {
        assert_eq!(run(args, full(), full()).status.code(), Some(code), "{args:?}");
    }
}
