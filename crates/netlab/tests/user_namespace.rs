//! An unprivileged process becomes root of a user namespace and builds a cable there.
//!
//! This test has no harness: only a single-threaded process can enter a user namespace.

use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use netlab::privilege::{Entered, enter_user_namespace};
use netlab::{BridgeLan, BridgeLanConfig, LabError, Namespace};

const INSIDE: &str = "--inside";
const SKIP: u8 = 77;
/// The user "nobody", without files and privileges.
const NOBODY: u32 = 65534;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == INSIDE) {
        return inside();
    }
    let name = "an_unprivileged_process_builds_a_cable";
    let mut command = Command::new("/proc/self/exe");
    command.arg(INSIDE);
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(e) => {
            // for example, in a container that must not change its user
            let _ = writeln!(io::stderr(), "SKIPPED: {name}: cannot start a process as user {NOBODY}: {e}");
            return ExitCode::SUCCESS;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(i32::from(SKIP)) {
        let _ = writeln!(io::stderr(), "SKIPPED: {name}: {}", said.trim_end());
        return ExitCode::SUCCESS;
    }
    println!("test {name} ... {}", if output.status.success() { "ok" } else { "FAILED" });
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    ExitCode::from(u8::from(!output.status.success()))
}

fn inside() -> ExitCode {
    match enter_user_namespace() {
        Ok(entered) => {
            assert_eq!(entered, Entered::UserNamespace, "expected the user nobody without privilege");
        }
        Err(reason @ LabError::Unprivileged(_)) => {
            println!("{reason}");
            return ExitCode::from(SKIP);
        }
        Err(e) => panic!("{e}"),
    }
    assert!(nix::unistd::geteuid().is_root());
    let (a, b) = (Namespace::create("a").unwrap(), Namespace::create("b").unwrap());
    a.add_veth("eth0", &b, "eth0", 1500).unwrap();
    a.add_address("eth0", "10.0.0.1/24".parse().unwrap()).unwrap();
    b.add_address("eth0", "10.0.0.2/24".parse().unwrap()).unwrap();
    a.sysctl("net.ipv4.ip_forward", "1").unwrap();
    let receiver = b.run(|| UdpSocket::bind("10.0.0.2:7000")).unwrap();
    let sender = a.run(|| UdpSocket::bind("10.0.0.1:0")).unwrap();
    sender.send_to(b"hello", "10.0.0.2:7000").unwrap();
    let mut buffer = [0; 16];
    let (length, _) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"hello");
    let lan = BridgeLan::build(&BridgeLanConfig { hosts: 2, ..BridgeLanConfig::default() }).unwrap();
    assert_eq!(lan.wires().unwrap().len(), 2);
    let refused = std::thread::spawn(enter_user_namespace).join().unwrap();
    assert!(matches!(refused, Err(LabError::Invalid(_))), "expected a refusal while threads are running");
    ExitCode::SUCCESS
}
