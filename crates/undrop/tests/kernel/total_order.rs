//! Total order from the command line: members that were apart from each other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::wait_until;

use crate::multicast::{Running, undrop};

/// A receiver, what it has printed, and what it has said.
struct Member {
    process: Running,
    printed: Arc<Mutex<String>>,
    said: Arc<Mutex<String>>,
    readers: [JoinHandle<()>; 2],
}

/// Reads lines on a thread of its own.
fn read(source: impl std::io::Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let all = Arc::clone(&text);
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            all.lock().unwrap().push_str(&(line + "\n"));
        }
    });
    (text, reader)
}

impl Member {
    fn start(room: &Room, port: u16) -> Self {
        let mut command = undrop(&["recv", "audit", "--order", "total"]);
        room.add_node(&mut command, port);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Running(command.spawn().unwrap());
        let (printed, out) = read(process.0.stdout.take().unwrap());
        let (said, errors) = read(process.0.stderr.take().unwrap());
        Self { process, printed, said, readers: [out, errors] }
    }

    fn has_said(&self, text: &str) -> bool {
        self.said.lock().unwrap().contains(text)
    }

    /// Ends the process. Returns its exit code, and what it has said.
    fn stop(mut self) -> (Option<i32>, String) {
        kill(Pid::from_raw(self.process.0.id().cast_signed()), Signal::SIGTERM).unwrap();
        let code = self.process.0.wait().unwrap().code();
        self.readers.into_iter().for_each(|reader| reader.join().unwrap());
        (code, self.said.lock().unwrap().clone())
    }
}

/// A directory with the configuration of each node, and its file of members.
struct Room(PathBuf);

impl Room {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("undrop-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes the members that a node knows.
    fn set_members(&self, port: u16, members: &[u16]) {
        let member = |port: &u16| format!("[[member]]\naddress = \"127.0.0.1:{port}\"\n");
        let file = self.file(&format!("members-{port}.toml"));
        std::fs::write(&file, members.iter().map(member).collect::<String>()).unwrap();
        let config = format!("[membership]\nfile = {:?}\n", file.display().to_string());
        std::fs::write(self.config(port), config).unwrap();
    }

    fn config(&self, port: u16) -> PathBuf {
        self.file(&format!("node-{port}.toml"))
    }

    fn add_node(&self, command: &mut Command, port: u16) {
        let port_text = port.to_string();
        command.args(["--interface", "lo", "--address", "127.0.0.1", "--unicast", "--port", &port_text]);
        command.arg("--config").arg(self.config(port));
    }

    /// Sends a line to the group, once it has a member.
    fn say(&self, port: u16, line: &str) {
        let mut command =
            undrop(&["send", "audit", "--require-members", "--patience", "60", "--linger", "0.2"]);
        self.add_node(&mut command, port);
        let mut sending = Running(command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        writeln!(sending.0.stdin.take().unwrap(), "{line}").unwrap();
        let mut said = String::new();
        sending.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(sending.0.wait().unwrap().success(), "{said}");
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all::<&Path>(self.0.as_ref());
    }
}

/// Two receivers that know nothing of each other begin an order each. When they meet, one of them is told
/// that what it has printed is not agreed on.
#[test]
fn a_receiver_that_has_printed_what_is_not_agreed_on_fails() {
    let room = Room::new("total-order");
    let free_port = || UdpSocket::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let (ports, sender) = ([free_port(), free_port()], free_port());
    let members = ports.map(|port| {
        room.set_members(port, &[port, sender]);
        room.set_members(sender, &[port, sender]);
        let member = Member::start(&room, port);
        wait_until("the member delivers", || {
            room.say(sender, "alone");
            member.printed.lock().unwrap().contains("alone")
        });
        member
    });
    for port in ports {
        room.set_members(port, &[ports[0], ports[1], sender]);
    }
    let broken = "otherwise than the other members agreed";
    wait_until("one of the two yields", || members.iter().any(|member| member.has_said(broken)));
    for member in members {
        let is_broken = member.has_said(broken);
        let (code, said) = member.stop();
        assert_eq!(code, Some(i32::from(is_broken)), "{said}");
        assert_eq!(said.contains("error: expected the agreed message at every number"), is_broken, "{said}");
    }
}
