//! Namespaces of the real kernel: everything built works, and nothing is left after the drop.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use netlab::namespace::Route;
use netlab::{Namespace, privilege};

/// Serializes the tests. The kernel reuses the number of a namespace that is gone, so none may be made while
/// a test checks that its own is released.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns `None`, after a message, if namespaces cannot be made.
fn begin(name: &str) -> Option<MutexGuard<'static, ()>> {
    privilege::namespaces_or_skip(name).then(|| ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns whether a thread of this process is in the namespace, or one of its descriptors holds it.
fn is_held(inode: u64) -> bool {
    let name = format!("net:[{inode}]");
    let points_there =
        |path: std::path::PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy() == name);
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let threads =
        fs::read_dir("/proc/self/task").unwrap().filter_map(|e| Some(e.ok()?.path().join("ns/net")));
    descriptors.chain(threads).any(points_there)
}

#[test]
fn a_cable_carries_tcp_between_two_namespaces_over_both_ip_versions() {
    let Some(_turn) = begin("a_cable_carries_tcp_between_two_namespaces_over_both_ip_versions") else {
        return;
    };
    let (a, b) = (Namespace::create("a").unwrap(), Namespace::create("b").unwrap());
    a.add_veth("eth0", &b, "eth0", 1300).unwrap();
    for (left, right) in [("10.0.0.1/24", "10.0.0.2/24"), ("fd00::1/64", "fd00::2/64")] {
        a.add_address("eth0", left.parse().unwrap()).unwrap();
        b.add_address("eth0", right.parse().unwrap()).unwrap();
    }
    for address in ["10.0.0.2:0", "[fd00::2]:0"] {
        let listener = b.run(|| TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = a.run(|| TcpStream::connect(address)).unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        client.write_all(b"over the cable").unwrap();
        drop(client);
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "over the cable");
    }
}

#[test]
fn a_router_between_two_networks_forwards() {
    let Some(_turn) = begin("a_router_between_two_networks_forwards") else { return };
    let [a, router, b] = ["a", "router", "b"].map(|label| Namespace::create(label).unwrap());
    a.add_veth("eth0", &router, "left", 1300).unwrap();
    b.add_veth("eth0", &router, "right", 1300).unwrap();
    a.add_address("eth0", "10.1.0.2/24".parse().unwrap()).unwrap();
    router.add_address("left", "10.1.0.1/24".parse().unwrap()).unwrap();
    router.add_address("right", "10.2.0.1/24".parse().unwrap()).unwrap();
    b.add_address("eth0", "10.2.0.2/24".parse().unwrap()).unwrap();
    router.sysctl("net.ipv4.ip_forward", "1").unwrap();
    assert_eq!(router.read_sysctl("net.ipv4.ip_forward").unwrap(), "1");
    assert_eq!(a.read_sysctl("net.ipv4.ip_forward").unwrap(), "0");
    let (to_b, to_a) = ("10.2.0.0/24".parse().unwrap(), "10.1.0.0/24".parse().unwrap());
    a.add_route(&Route::to(to_b).via("10.1.0.1".parse().unwrap()).mtu(1200)).unwrap();
    b.add_route(&Route::to(to_a).via("10.2.0.1".parse().unwrap())).unwrap();
    let listener = b.run(|| TcpListener::bind("10.2.0.2:0")).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(a.run(|| TcpStream::connect(address)).is_ok());
}

#[test]
fn a_child_sees_only_its_namespace_and_dies_with_its_guard() {
    let Some(_turn) = begin("a_child_sees_only_its_namespace_and_dies_with_its_guard") else { return };
    let namespace = Namespace::create("child").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "readlink /proc/self/ns/net; exec sleep 1000"]).stdout(Stdio::piped());
    let mut child = namespace.spawn(command).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), format!("net:[{}]", namespace.inode()));
    let process = format!("/proc/{}", child.id());
    assert!(fs::exists(&process).unwrap());
    let inode = namespace.inode();
    drop(namespace);
    assert!(is_held(inode), "the guard must keep the parent thread of its child");
    drop(child);
    assert!(!fs::exists(&process).unwrap());
    assert!(!is_held(inode));
}

#[test]
fn a_child_is_asked_to_end_before_it_is_killed() {
    let Some(_turn) = begin("a_child_is_asked_to_end_before_it_is_killed") else { return };
    let namespace = Namespace::create("polite").unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"])
        .stdout(Stdio::piped());
    let mut child = namespace.spawn(command).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(child.terminate(Duration::from_secs(30)).unwrap().code(), Some(7));
}

#[test]
fn a_namespace_is_found_again_by_process_and_by_path() {
    let Some(_turn) = begin("a_namespace_is_found_again_by_process_and_by_path") else { return };
    let namespace = Namespace::create("found").unwrap();
    let mut command = Command::new("sleep");
    command.arg("1000");
    let child = namespace.spawn(command).unwrap();
    // The child's namespace is set before exec returns, so it is in place when spawn returns.
    let by_pid = Namespace::open(&format!("pid:{}", child.id())).unwrap();
    let by_path = Namespace::open(&format!("/proc/{}/ns/net", child.id())).unwrap();
    assert_eq!(by_pid.inode(), namespace.inode());
    assert_eq!(by_path.inode(), namespace.inode());
    assert_ne!(Namespace::open("self").unwrap().inode(), namespace.inode());
    assert_eq!(by_pid.interfaces().unwrap(), namespace.interfaces().unwrap());
}

#[test]
fn errors_name_their_cause() {
    let unknown = Namespace::open("no-such-namespace").unwrap_err().to_string();
    assert!(unknown.contains("no-such-namespace"), "{unknown}");
    let Some(_turn) = begin("errors_name_the_thing_that_is_wrong") else { return };
    let namespace = Namespace::create("empty").unwrap();
    let missing = namespace.set_up("eth9").unwrap_err().to_string();
    assert!(missing.contains("eth9") && missing.contains("empty"), "{missing}");
    let sysctl = namespace.sysctl("net.ipv4.no_such_key", "1").unwrap_err().to_string();
    assert!(sysctl.contains("no_such_key"), "{sysctl}");
    let route = Route::to("10.0.0.0/8".parse().unwrap()).via("10.9.9.9".parse().unwrap());
    let unreachable = namespace.add_route(&route).unwrap_err().to_string();
    assert!(unreachable.contains("10.0.0.0/8"), "{unreachable}");
    let program = namespace.spawn(Command::new("/no/such/program")).unwrap_err().to_string();
    assert!(program.contains("/no/such/program"), "{program}");
}

#[test]
fn nothing_holds_a_namespace_after_the_last_handle() {
    let Some(_turn) = begin("nothing_holds_a_namespace_after_the_last_handle") else { return };
    let namespace = Namespace::create("short").unwrap();
    let inode = namespace.inode();
    let other = namespace.clone();
    drop(namespace);
    assert!(is_held(inode));
    assert_eq!(other.interfaces().unwrap(), ["lo"]);
    drop(other);
    assert!(!is_held(inode));
}
