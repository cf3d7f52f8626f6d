//! Real servers of etcd in namespaces, each with its data in a directory of its own.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use netlab::Namespace;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use testkit::wait_until;

/// A running etcd, which is killed and whose data are deleted at the end.
pub(crate) struct EtcdServer<'a> {
    host: &'a Namespace,
    /// Address of the host.
    ip: String,
    /// All servers that keep the same data, as etcd's option has them.
    cluster: String,
    directory: PathBuf,
    child: Option<Child>,
}

impl<'a> EtcdServer<'a> {
    /// Starts a server that is alone. `None` if the program is not installed, which is reported.
    pub(crate) fn start(what: &str, host: &'a Namespace, ip: &str) -> Option<Self> {
        Self::start_all(what, &[(host, ip)])?.pop()
    }

    /// Starts servers that keep the same data, on hosts with their addresses. `None` if the program is not
    /// installed, which is reported.
    pub(crate) fn start_all(what: &str, hosts: &[(&'a Namespace, &str)]) -> Option<Vec<Self>> {
        if let Err(error) = Command::new("etcd").arg("--version").stdout(Stdio::null()).status() {
            // Past the capture of the harness, so that the line is counted.
            let reason = format!("cannot start etcd: {error} (apt-get install etcd-server)");
            let _ = writeln!(io::stderr(), "SKIPPED: {what}: {reason}");
            return None;
        }
        let peers: Vec<String> = hosts.iter().map(|(_, ip)| format!("{ip}=http://{ip}:2380")).collect();
        let server = |&(host, ip): &(&'a Namespace, &str)| {
            let (ip, cluster, directory) = (ip.to_owned(), peers.join(","), new_directory());
            Self { host, ip, cluster, directory, child: None }
        };
        let mut servers: Vec<Self> = hosts.iter().map(server).collect();
        // None of them answers before most of them run.
        servers.iter_mut().for_each(Self::spawn);
        servers.iter().for_each(Self::wait);
        Some(servers)
    }

    /// Returns the address for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}:2379", self.ip)
    }

    /// Starts the server with the data that it has.
    pub(crate) fn start_again(&mut self) {
        self.spawn();
        self.wait();
    }

    fn wait(&self) {
        wait_until("etcd answers", || self.try_post("/v3/kv/range", r#"{"key":"AA=="}"#).is_ok());
    }

    fn spawn(&mut self) {
        let (clients, peers) = (self.endpoint(), format!("http://{}:2380", self.ip));
        let log = File::create(self.directory.join("log")).unwrap();
        let mut command = Command::new("etcd");
        command
            .args(["--name", &self.ip, "--data-dir"])
            .arg(self.directory.join("data"))
            // Half of the default: servers soon notice that they have lost the others.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &self.cluster])
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH.replace("aarch64", "arm64"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(self.host.run(|| command.spawn()).unwrap());
    }

    /// Ends the server as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops the server for a while, as a machine that is suspended.
    pub(crate) fn stand_still(&self, span: Duration) {
        let id = self.child.as_ref().expect("it runs").id();
        let id = Pid::from_raw(id.cast_signed());
        signal::kill(id, Signal::SIGSTOP).unwrap();
        std::thread::sleep(span);
        signal::kill(id, Signal::SIGCONT).unwrap();
    }

    /// Deletes the data of a server that does not run.
    pub(crate) fn forget(&mut self) {
        assert!(self.child.is_none(), "it runs");
        std::fs::remove_dir_all(self.directory.join("data")).unwrap();
    }

    /// Sends a request, and returns the answer with its head.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        self.try_post(path, body).unwrap()
    }

    fn try_post(&self, path: &str, body: &str) -> io::Result<String> {
        let (address, length) = (format!("{}:2379", self.ip), body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let mut stream = self.host.run(|| TcpStream::connect(&address))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(io::Error::other(answer)) }
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> usize {
        // All keys from the first one on.
        self.post("/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","keys_only":true}"#)
            .matches("\"mod_revision\"")
            .count()
    }

    /// Returns the present revision.
    pub(crate) fn revision(&self) -> u64 {
        let answer = self.post("/v3/kv/range", r#"{"key":"AA=="}"#);
        let digits = answer.split("\"revision\":\"").nth(1).and_then(|rest| rest.split('"').next());
        digits.expect("an answer has a revision").parse().unwrap()
    }
}

impl Drop for EtcdServer<'_> {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn new_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // A disk that is busy would delay each change.
    let memory = PathBuf::from("/dev/shm");
    let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let directory = parent.join(format!("ricochet-etcd-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
