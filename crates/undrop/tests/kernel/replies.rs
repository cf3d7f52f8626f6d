//! `undrop multicast reply` with programs that leave others behind.
#![allow(missing_docs)]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::wait_until;

use crate::multicast::{HERE, Running, stop, undrop};

/// Leaves a worker with the same stdout in a session of its own, and prints its process id. On the request
/// `stay`, it then runs on.
const SCRIPT: &str = "read line
    setsid sh -c 'echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600' \"$0\" &
    until test -e \"$0\"; do sleep 0.01; done
    cat \"$0\"
    if test \"$line\" = stay; then exec sleep 600; fi
    rm \"$0\"";

/// Workers to be killed when the test ends, also if it fails.
struct Workers(Vec<Pid>);

impl Workers {
    fn add(&mut self, text: &str) {
        self.0.push(Pid::from_raw(text.trim().parse().unwrap_or_else(|_| panic!("no process id: {text:?}"))));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for &worker in &self.0 {
            let _ = kill(worker, Signal::SIGKILL);
        }
    }
}

#[test]
fn a_program_that_leaves_another_one_behind_costs_its_time_alone() {
    let mut workers = Workers(Vec::new());
    let file: PathBuf = std::env::temp_dir().join(format!("undrop-replies-{}", std::process::id()));
    let mut command = undrop(&["reply", "words", "--limit", "300"]);
    command.args(HERE).args(["--unicast", "--", "sh", "-c", SCRIPT]).arg(&file).stderr(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let mut errors = BufReader::new(server.0.stderr.take().unwrap());
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    let seed = said.split(" at ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    let ask = |text: &str| -> Command {
        let mut command = undrop(&["request", "words", text, "--timeout", "60", "--seed", seed]);
        command.args(HERE).arg("--unicast").stdout(Stdio::piped());
        command
    };
    for _ in 0..2 {
        let asked = ask("one\n").output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        workers.add(&String::from_utf8_lossy(&asked.stdout));
    }
    let _asks = Running(ask("stay\n").spawn().unwrap());
    wait_until("the program runs", || file.exists());
    workers.add(&std::fs::read_to_string(&file).unwrap());
    stop(&server, Signal::SIGTERM);
    wait_until("the command ends", || server.0.try_wait().unwrap().is_some());
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    let is_alive = |&worker: &Pid| kill(worker, None).is_ok();
    assert!(workers.0.iter().all(is_alive), "the workers have kept the pipes open");
    std::fs::remove_file(&file).unwrap();
}
