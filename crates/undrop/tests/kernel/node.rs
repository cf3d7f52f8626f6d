//! A node on a host: a subcommand of `undrop multicast` that says its address when it runs.

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use netlab::Namespace;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::pair::PROGRAM;

/// The process of a node. It is killed when the test ends, also if it fails.
pub(crate) struct NodeProcess {
    child: Child,
    pub(crate) address: String,
    /// Its output, if the test reads it.
    out: Option<ChildStdout>,
    /// Kept open, so that the node can write to it.
    said: BufReader<ChildStderr>,
}

impl NodeProcess {
    /// Starts a subcommand, and waits until it says its address. With a seed address, it joins a cluster.
    pub(crate) fn start(host: &Namespace, args: &[&str], seed: Option<&str>) -> Self {
        Self::start_with(host, args, seed, Stdio::piped())
    }

    /// Does the same with this output.
    pub(crate) fn start_with(host: &Namespace, args: &[&str], seed: Option<&str>, out: Stdio) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("multicast").args(args).args(seed.map_or(vec![], |seed| vec!["--seed", seed]));
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
        let mut child = host.run(|| command.spawn()).unwrap();
        let out = child.stdout.take();
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut node = Self { child, address: String::new(), out, said };
        let mut all = String::new();
        while node.address.is_empty() {
            let mut line = String::new();
            assert!(node.said.read_line(&mut line).unwrap() > 0, "{args:?} has ended: {all}");
            all += &line;
            if let Some((_, rest)) = line.strip_prefix("node ").and_then(|rest| rest.split_once(" at ")) {
                node.address = rest.split([',', '\n']).next().unwrap().to_owned();
            }
        }
        node
    }

    /// Waits until the process ends by itself. Returns its exit code, its output, and what it has said since
    /// it started.
    pub(crate) fn finish(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut said) = (String::new(), String::new());
        if let Some(pipe) = &mut self.out {
            pipe.read_to_string(&mut out).unwrap();
        }
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), out, said)
    }

    /// Ends the process. Returns its exit code, its output, and what it has said since it started.
    pub(crate) fn stop(self) -> (Option<i32>, String, String) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.finish()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An output that takes nothing.
pub(crate) struct Sink {
    pub(crate) name: &'static str,
    pub(crate) out: Stdio,
    /// Kept open and not read.
    _unread: Option<PipeReader>,
}

impl Sink {
    /// Returns a full disk, a pipe whose reader has gone, and a full one whose reader does not read.
    pub(crate) fn all() -> [Self; 3] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let (unread, mut pipe) = std::io::pipe().unwrap();
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while pipe.write(&[b'\n'; 4_096]).is_ok() {}
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        [
            Self { name: "full disk", out: full.into(), _unread: None },
            Self { name: "closed pipe", out: closed.into(), _unread: None },
            Self { name: "unread pipe", out: pipe.into(), _unread: Some(unread) },
        ]
    }
}
