//! `undrop multicast` with default settings where a receiver does not keep up: nothing is lost in silence.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::thread::{self, sleep};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::wait_until;

use crate::multicast::{HERE, Running, send, stop, undrop};

/// Starts a receiver whose status can be asked for; returns its process, its address and the rest of what it
/// says, once it has ended.
fn watched(control: &str) -> (Running, String, thread::JoinHandle<String>) {
    let mut command = undrop(&["recv", "load", "--json", "--seconds", "100", "--control", control]);
    command.args(HERE).arg("--unicast").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let mut errors = BufReader::new(child.0.stderr.take().unwrap());
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    let address = said.split(" at ").nth(1).and_then(|rest| rest.split(',').next());
    let address = address.unwrap_or_else(|| panic!("no address in {said:?}")).to_owned();
    let rest = thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    });
    (child, address, rest)
}

fn status(control: &str) -> Value {
    let output = undrop(&["status", "--control", control, "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn control(name: &str) -> String {
    let file = format!("undrop-{name}-{}.sock", std::process::id());
    std::env::temp_dir().join(file).display().to_string()
}

/// Numbers of messages that were printed, and those that were reported as lost with the reasons given.
#[derive(Default)]
struct Told {
    printed: u64,
    lost: u64,
    reasons: std::collections::BTreeSet<String>,
}

impl Told {
    /// Takes a line; returns the first and the last number in it.
    fn take(&mut self, line: &str) -> (u64, u64) {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(number) = line["sequence"].as_u64() {
            self.printed += 1;
            return (number, number);
        }
        let [first, last] = [0, 1].map(|at| line["lost"][at].as_u64().unwrap());
        self.lost += last - first + 1;
        self.reasons.insert(line["reason"].as_str().unwrap().to_owned());
        (first, last)
    }
}

/// A pipe that is read at 2,000 lines a second, and then not at all until everything is sent, of a receiver
/// to which messages come much faster. Each message is printed or reported, and log, status and exit code
/// say that not all were printed.
#[test]
fn a_receiver_that_is_read_too_slowly_says_so_by_event_log_status_and_exit_code() {
    const COUNT: u64 = 25_000;
    const PACED: usize = 2_000;
    let control = control("slow");
    let (mut receiver, seed, said) = watched(&control);
    let count = COUNT.to_string();
    let output = receiver.0.stdout.take().unwrap();
    let (sent_all, wait) = std::sync::mpsc::channel();
    let told = thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let (mut told, mut next) = (Told::default(), 0);
            for (at, line) in BufReader::new(output).lines().enumerate() {
                let (first, last) = told.take(&line.unwrap());
                assert_eq!(first, next, "nothing is missing between what is printed and what is reported");
                next = last + 1;
                if next == COUNT {
                    break;
                }
                if at < PACED && at % 20 == 19 {
                    sleep(Duration::from_millis(10));
                } else if at == PACED {
                    wait.recv().unwrap();
                }
            }
            told
        });
        let sent = send(&seed, &["load", "--size", "1000", "--count", &count, "--rate", "10000"], "");
        assert!(sent.status.success(), "{sent:?}");
        sent_all.send(()).unwrap();
        reading.join().unwrap()
    });
    assert_eq!(told.printed + told.lost, COUNT);
    assert!(told.lost > 0 && told.reasons.iter().eq(["the reader was too slow"]), "{:?}", told.reasons);
    let counts = &status(&control)["subscriptions"][0]["counts"];
    assert_eq!(counts["dropped"].as_u64(), Some(told.lost), "{counts}");
    stop(&receiver, Signal::SIGTERM);
    assert_eq!(receiver.0.wait().unwrap().code(), Some(1));
    let said = said.join().unwrap();
    assert!(said.contains("a subscription is read too slowly: messages are dropped"), "{said}");
    let summary = format!("expected every message, saw {} dropped because the output was", told.lost);
    assert!(said.contains(&summary) && said.contains("help: read faster"), "{said}");
}

/// The kernel holds packets for a process that stands still. All are printed when the process goes on, and so
/// are those that the kernel had no room for, which the sender keeps.
#[test]
fn a_receiver_that_is_stopped_for_five_seconds_misses_nothing() {
    const COUNT: u64 = 8_000;
    let control = control("stopped");
    let (mut receiver, seed, said) = watched(&control);
    let count = COUNT.to_string();
    let output = receiver.0.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut told = Told::default();
        for line in BufReader::new(output).lines() {
            told.take(&line.unwrap());
            if told.printed + told.lost == COUNT {
                break;
            }
        }
        told
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            let sent = send(&seed, &["load", "--size", "200", "--count", &count, "--rate", "1000"], "");
            assert!(sent.status.success(), "{sent:?}");
        });
        wait_until("messages come", || {
            status(&control)["groups"][0]["reception"]["messages"].as_u64() > Some(500)
        });
        stop(&receiver, Signal::SIGSTOP);
        sleep(Duration::from_secs(5));
        stop(&receiver, Signal::SIGCONT);
    });
    let told = reading.join().unwrap();
    let status = status(&control);
    stop(&receiver, Signal::SIGTERM);
    let code = receiver.0.wait().unwrap().code();
    let said = said.join().unwrap();
    assert_eq!((told.printed, told.lost, code), (COUNT, 0, Some(0)), "{:?} {said} {status:#}", told.reasons);
    assert_eq!(status["ring"]["dropped"], 0, "{status:#}");
}
