//! Keys of a running gateway, and of a node.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::firewall::skipped;
use crate::pair::PROGRAM;

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Raises the limit of core files, and returns it. `None` if none may be written, so that a test shows
/// nothing.
fn raise_limit(test: &str) -> Option<u64> {
    let (_, most) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    if most == 0 {
        skipped(&format!("{test}: the hard limit of core files is 0 (ulimit -Hc)"));
        return None;
    }
    setrlimit(Resource::RLIMIT_CORE, most, most).unwrap();
    Some(most)
}

#[test]
fn a_gateway_that_crashes_leaves_no_core_file() {
    if !privilege::available_or_skip("a_gateway_that_crashes_leaves_no_core_file") {
        return;
    }
    // A gateway inherits the largest limit that is permitted.
    let Some(most) = raise_limit("a_gateway_that_crashes_leaves_no_core_file") else { return };
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let child = pair.child(0).unwrap();
    child.signal(Signal::SIGABRT).unwrap();
    let ended = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(Signal::SIGABRT as i32));
    assert!(!ended.core_dumped(), "a core file holds the keys (limit {most})");
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a node on the loopback interface, with a program and as a user, and waits until it runs.
fn start_node(program: &Path, uid: Option<u32>) -> Running {
    let mut command = Command::new(program);
    command.args([
        "multicast",
        "recv",
        "orders",
        "--interface",
        "lo",
        "--address",
        "127.0.0.1",
        "--port",
        "0",
        "--unicast",
    ]);
    uid.into_iter().for_each(|uid| _ = command.uid(uid).gid(uid));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut node = Running(command.spawn().unwrap());
    let mut said = BufReader::new(node.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("node ")), "the node runs");
    node
}

#[test]
fn a_node_that_crashes_leaves_no_core_file() {
    let Some(most) = raise_limit("a_node_that_crashes_leaves_no_core_file") else { return };
    let mut node = start_node(Path::new(PROGRAM), None);
    kill(Pid::from_raw(node.0.id().cast_signed()), Signal::SIGABRT).unwrap();
    let ended = node.0.wait().unwrap();
    assert_eq!(ended.signal(), Some(Signal::SIGABRT as i32));
    assert!(!ended.core_dumped(), "a core file holds the key (limit {most})");
}

/// The kernel asks for the right to trace a process before it shows its map of memory.
#[test]
fn another_process_of_the_same_user_cannot_trace_a_node() {
    if !Uid::effective().is_root() {
        return skipped("another_process_of_the_same_user_cannot_trace_a_node: only root can start both");
    }
    // Others may not reach the folder of the build.
    let directory = env::temp_dir().join(format!("undrop-trace-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let program = directory.join("undrop");
    fs::copy(PROGRAM, &program).unwrap();
    let node = start_node(&program, Some(NOBODY));
    let plain = Command::new("sleep").arg("60").uid(NOBODY).gid(NOBODY).spawn().unwrap();
    let plain = Running(plain);
    let reads = |child: &Running| {
        let mut command = Command::new("cat");
        command.arg(format!("/proc/{}/maps", child.0.id())).uid(NOBODY).gid(NOBODY);
        let output = command.stdin(Stdio::null()).output().unwrap();
        output.status.success() && !output.stdout.is_empty()
    };
    assert!(reads(&plain), "a process without secrets is open to its user");
    assert!(!reads(&node), "the memory of a node is open to other processes of its user");
    fs::remove_dir_all(&directory).unwrap();
}
