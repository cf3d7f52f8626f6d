//! `undrop multicast` from the command line: a receiver, a sender, and their status.
#![allow(missing_docs)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testkit::wait_until;

use crate::pair::PROGRAM;
use crate::schema::faults_by_file;

pub(crate) const HERE: [&str; 6] = ["--interface", "lo", "--address", "127.0.0.1", "--port", "0"];

pub(crate) fn undrop(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("multicast").args(args);
    command
}

/// A process that is killed when the test ends, also if it fails.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a receiver; returns its process and the address that it prints.
pub(crate) fn receiver(args: &[&str]) -> (Running, String) {
    let mut command = undrop(&["recv"]);
    command.args(args).args(HERE).arg("--unicast").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(child.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.split(" at ").nth(1).and_then(|rest| rest.split(',').next());
    (child, address.unwrap_or_else(|| panic!("no address in {said:?}")).to_owned())
}

pub(crate) fn send(seed: &str, args: &[&str], lines: &str) -> Output {
    let mut command = undrop(&["send"]);
    command.args(args).args(HERE).args(["--unicast", "--seed", seed, "--linger", "0.2"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn output_of(mut running: Running) -> String {
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(running.0.wait().unwrap().success());
    text
}

#[test]
fn lines_that_are_sent_are_received() {
    let (receiver, seed) = receiver(&["prices/AAPL", "--count", "2", "--fifo"]);
    let sent = send(&seed, &["prices/AAPL"], "187.21\n187.22\r\n");
    assert!(sent.status.success(), "{sent:?}");
    let text = output_of(receiver);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("prices/AAPL ") && lines[0].ends_with(" 0: 187.21"), "{text}");
    assert!(lines[1].ends_with(" 1: 187.22"), "{text}");
}

#[test]
fn a_receiver_begins_with_the_messages_of_the_past() {
    let (_member, seed) = receiver(&["prices/AAPL", "--seconds", "60"]);
    let lines: String = (0..20).map(|number| format!("price {number}\n")).collect();
    assert!(send(&seed, &["prices/AAPL", "--require-members"], &lines).status.success());
    let late = |args: &[&str]| {
        let mut command = undrop(&["recv", "prices/AAPL", "--seconds", "30", "--seed", &seed]);
        let output = command.args(args).args(HERE).arg("--unicast").output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (text, _) = late(&["--last", "3", "--count", "3"]);
    let ends: Vec<&str> = text.lines().filter_map(|line| line.rsplit(": ").next()).collect();
    assert_eq!(ends, ["price 17", "price 18", "price 19"], "{text}");
    let (text, said) = late(&["--last", "100", "--count", "20", "--json"]);
    assert_eq!(text.lines().count(), 20);
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((first["payload"].as_str(), first["past"].as_bool()), (Some("price 0"), Some(true)));
    assert!(said.contains("expected 100 messages of the past of prices/AAPL, saw 20"), "{said}");
    let (text, _) = late(&["--since", "1h", "--count", "20"]);
    assert_eq!(text.lines().count(), 20);
    let keyed = ["prices/AAPL", "--require-members", "--value-of", "AAPL"];
    assert!(send(&seed, &keyed, "187.21\n187.22\n").status.success());
    let (text, said) = late(&["--last-per-key", "--count", "1", "--json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["key"], &value["payload"]), (&"AAPL".into(), &"187.22".into()), "{text}");
    assert!(said.contains("expected the last value of each key of prices/AAPL, saw 1"), "{said}");
}

#[test]
fn a_receiver_prints_members_and_what_senders_add_and_a_sender_waits_for_holders() {
    let (mut first, seed) = receiver(&["orders", "--json", "--members"]);
    let mut lines = BufReader::new(first.0.stdout.take().unwrap()).lines();
    let mut line = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let (_second, address) = receiver(&["orders", "--seed", &seed]);
    let news = line();
    assert_eq!(faults_by_file(&news, "undrop.multicast.recv.member.1.json"), [""; 0]);
    assert_eq!((news["change"].as_str(), news["address"].as_str()), (Some("joined"), Some(&*address)));
    let extra = ["--content-type", "text/csv", "--headers", "desk=7", "--deadline", "600"];
    let held = ["orders", "--members", "2", "--held", "2", "--held-timeout", "60"];
    let sent = send(&seed, &[&held[..], &extra].concat(), "buy 100\n");
    assert!(sent.status.success(), "{sent:?}");
    let message = line();
    assert_eq!(faults_by_file(&message, "undrop.multicast.recv.message.1.json"), [""; 0]);
    assert_eq!(message["payload"], "buy 100");
    assert_eq!((&message["content_type"], &message["headers"]), (&"text/csv".into(), &"desk=7".into()));
    assert!(message["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{message}");
    assert!(message["sent_us"].as_u64().unwrap() > 1_600_000_000_000_000, "{message}");
    let sent = send(&seed, &["orders", "--held", "9", "--held-timeout", "0.3"], "buy 200\n");
    let said = String::from_utf8_lossy(&sent.stderr);
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(said.contains("expected 9 members that hold message 0"), "{said}");
}

#[test]
fn a_receiver_ends_in_time_although_messages_wait() {
    let (mut receiver, seed) = receiver(&["load", "--seconds", "5"]);
    let mut sender = undrop(&["send", "load", "--size", "100", "--seed", &seed]);
    sender.args(HERE).arg("--unicast").stdin(Stdio::null()).stderr(Stdio::null());
    let _sender = Running(sender.spawn().unwrap());
    // The output is read more slowly than messages come.
    let mut lines = BufReader::new(receiver.0.stdout.take().unwrap()).lines();
    wait_until("it ends", || {
        lines.next();
        receiver.0.try_wait().unwrap().is_some()
    });
}

/// A receiver in total order, and the numbers and payloads that it has printed.
struct Member {
    _process: Running,
    lines: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Member {
    fn start(args: &[&str]) -> (Self, String) {
        let (mut process, address) = receiver(&[&["audit", "--order", "total", "--json"], args].concat());
        let out = BufReader::new(process.0.stdout.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let printed = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).unwrap();
                let text = line["payload"].as_str().unwrap_or_default().to_owned();
                printed.lock().unwrap().extend(line["number"].as_u64().map(|number| (number, text)));
            }
        });
        (Self { _process: process, lines }, address)
    }

    fn lines(&self) -> Vec<(u64, String)> {
        self.lines.lock().unwrap().clone()
    }

    fn has(&self, text: &str) -> bool {
        self.lines().iter().any(|(_, seen)| seen == text)
    }
}

#[test]
fn members_in_total_order_go_on_when_the_sequencer_is_killed() {
    let (first, seed) = Member::start(&[]);
    let say = |seed: &str, text: &str| {
        assert!(send(seed, &["audit", "--require-members"], &format!("{text}\n")).status.success());
    };
    // It is alone, and so begins the order.
    let mut tries = 0..;
    wait_until("the first member delivers", || {
        say(&seed, &format!("alone {}", tries.next().unwrap()));
        !first.lines().is_empty()
    });
    let (second, next_seed) = Member::start(&["--seed", &seed]);
    let (third, _) = Member::start(&["--seed", &seed]);
    wait_until("all members deliver", || {
        say(&seed, &format!("together {}", tries.next().unwrap()));
        !second.lines().is_empty() && !third.lines().is_empty()
    });
    drop(first);
    for number in 0..5 {
        say(&next_seed, &format!("after {number}"));
    }
    wait_until("the others go on", || second.has("after 4") && third.has("after 4"));
    let [a, b] = [second.lines(), third.lines()];
    let from = a[0].0.max(b[0].0);
    let since = |lines: &[(u64, String)]| -> Vec<(u64, String)> {
        lines.iter().filter(|(number, _)| *number >= from).cloned().collect()
    };
    assert_eq!(since(&a), since(&b));
    let numbers: Vec<u64> = since(&a).iter().map(|(number, _)| *number).collect();
    assert!(numbers.iter().copied().eq(from..from + numbers.len() as u64), "{a:?}");
}

#[test]
fn a_script_asks_and_programs_reply() {
    let server = |args: &[&str]| {
        let mut command = undrop(&["reply", "words"]);
        command.args(HERE).arg("--unicast").args(args).stderr(Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        let mut errors = BufReader::new(child.0.stderr.take().unwrap());
        let mut said = String::new();
        errors.read_line(&mut said).unwrap();
        let address = said.split(" at ").nth(1).and_then(|rest| rest.split(',').next()).unwrap().to_owned();
        (child, errors, address)
    };
    let (_counting, mut errors, seed) =
        server(&["--", "sh", "-c", "read line; set -- $line; test $# -gt 0 && echo $#"]);
    let ask = |text: &str, args: &[&str]| {
        let mut command = undrop(&["request", "words", text, "--timeout", "60", "--seed", &seed]);
        command.args(HERE).arg("--unicast").args(args).output().unwrap()
    };
    let one = ask("one two three", &[]);
    assert_eq!(String::from_utf8_lossy(&one.stdout), "3\n", "{one:?}");
    let (_fixed, _, _) = server(&["--seed", &seed, "--text", "many"]);
    let both = ask("one two", &["--all", "--count", "2", "--members", "2", "--json"]);
    let mut replies: Vec<String> = String::from_utf8_lossy(&both.stdout)
        .lines()
        .map(|line| {
            let reply: Value = serde_json::from_str(line).unwrap();
            assert_eq!(faults_by_file(&reply, "undrop.multicast.request.reply.1.json"), [""; 0]);
            reply["payload"].as_str().unwrap().to_owned()
        })
        .collect();
    replies.sort();
    assert_eq!(replies, ["2", "many"], "{both:?}");
    let one = ask("", &["--all", "--count", "1", "--members", "2"]);
    assert_eq!(String::from_utf8_lossy(&one.stdout), "many\n", "{one:?}");
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("expected exit code 0 of sh, saw exit status: 1"), "{said}");
}

/// A difference that copies by unicast cannot make up for: both ends name the setting, and fail.
#[test]
fn members_with_another_longest_datagram_name_the_setting_and_fail() {
    let config = std::env::temp_dir().join(format!("undrop-differs-{}.toml", std::process::id()));
    std::fs::write(&config, "[buffers]\ndatagram_max = 1300\n").unwrap();
    let shown = config.display().to_string();
    let (mut receiver, seed) = receiver(&["g", "--config", &shown]);
    let sent = send(&seed, &["g"], "hello\n");
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(said.contains("error: expected the settings of 127.0.0.1:"), "{said}");
    assert!(said.contains("buffers.datagram_max is 1452 here and 1300 there"), "{said}");
    kill(Pid::from_raw(receiver.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(receiver.0.wait().unwrap().code(), Some(1));
    std::fs::remove_file(&config).unwrap();
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_others_are_sent() {
    let (receiver, seed) = receiver(&["prices", "--count", "2", "--fifo"]);
    let sent = send(&seed, &["prices"], &format!("first\n{}\nlast\n", "x".repeat(5_000)));
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    let said = String::from_utf8(sent.stderr).unwrap();
    assert!(said.contains("error: line 2: expected at most ") && said.contains("saw 5000"), "{said}");
    assert!(said.contains("--fragments") && said.contains("2 messages sent, 1 too long"), "{said}");
    let text = output_of(receiver);
    assert!(text.contains(" 0: first\n") && text.ends_with(" 1: last\n"), "{text}");
}

#[test]
fn programs_get_json_and_the_status_of_a_running_node() {
    let control = std::env::temp_dir().join(format!("undrop-multicast-{}.sock", std::process::id()));
    let shown = control.display().to_string();
    let (receiver, seed) = receiver(&["load", "--json", "--count", "51", "--control", &shown]);
    let sent = send(&seed, &["load", "--size", "100", "--count", "50", "--rate", "500"], "");
    assert!(String::from_utf8_lossy(&sent.stderr).contains("50 messages sent"), "{sent:?}");
    let status = || -> Value {
        let output = undrop(&["status", "--control", &shown, "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    wait_until("all messages are queued", || status()["subscriptions"][0]["counts"]["queued"] == 50);
    let status = status();
    assert_eq!(faults_by_file(&status, "undrop.node.status.1.json"), [""; 0]);
    assert_eq!(status["groups"][0]["name"], "load");
    // The sender may have left already.
    let verdict = status["verdict"]["state"].as_str().unwrap();
    assert!(["working", "alone"].contains(&verdict), "{status}");
    let hour = &status["windows"][2];
    assert_eq!((&hour["span_s"], &hour["lost"]), (&3_600.into(), &0.into()), "{status}");
    let output = undrop(&["status", "--control", &shown]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("working: ") || text.starts_with("alone: "), "{text}");
    assert!(text.contains("1 group over") && text.contains("50 queued"), "{text}");
    assert_eq!(status["groups"][0]["reception"]["messages"], 50);
    let output = undrop(&["top", "--once", "--control", &shown]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row: Vec<&str> =
        text.lines().find(|line| line.starts_with("load ")).unwrap().split_whitespace().collect();
    // A group that nothing is sent to has rates, and no recoveries.
    assert_eq!(row[2..], ["0", "0", "0", "0", "0", "-"], "{text}");

    send(&seed, &["load"], "last\n");
    let text = output_of(receiver);
    let messages: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(messages.len(), 51);
    for message in &messages {
        assert_eq!(message["group"], "load");
        assert!(
            message["sender"].is_string() && message["sequence"].is_u64() && message["latency_us"].is_u64()
        );
        assert!(message["recovered"].is_boolean());
    }
    assert_eq!(messages.last().unwrap()["payload"], "last");
    let gone = undrop(&["status", "--control", &shown]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("start a node with"), "{gone:?}");
}

#[test]
fn a_node_without_an_interface_and_a_doctor_without_one_say_what_to_do() {
    for args in [&["recv", "g"][..], &["send", "g"], &["doctor"]] {
        let refused = undrop(args).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains("expected an interface") && text.contains("node.interface"), "{text}");
    }
    let refused = undrop(&["recv", "g", "--interface", "nothing-like-it"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("doctor"), "{refused:?}");
}

#[test]
fn the_doctor_reports_its_findings() {
    let seen = undrop(&["doctor", "lo", "--json"]).output().unwrap();
    let diagnosis: Value = serde_json::from_slice(&seen.stdout).unwrap();
    assert_eq!(faults_by_file(&diagnosis, "undrop.multicast.doctor.1.json"), [""; 0]);
    assert_eq!(diagnosis["interface"], "lo");
    let about: Vec<&str> = diagnosis["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["about"].as_str())
        .collect();
    for wanted in ["interface", "address", "MTU", "receive buffer", "memberships", "port of the groups"] {
        assert!(about.contains(&wanted), "{wanted}: {about:?}");
    }
    assert_eq!(seen.status.code(), Some(i32::from(diagnosis["errors"] != 0)));
    let text = undrop(&["doctor", "lo"]).output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains("errors"), "{text:?}");
    let missing = undrop(&["doctor", "nothing-like-it"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("ip link"), "{missing:?}");
}

pub(crate) fn stop(running: &Running, signal: Signal) {
    kill(Pid::from_raw(running.0.id().cast_signed()), signal).unwrap();
}

#[test]
fn a_receiver_that_is_stopped_leaves_its_group() {
    let control = std::env::temp_dir().join(format!("undrop-leave-{}.sock", std::process::id()));
    let shown = control.display().to_string();
    let (stays, seed) = receiver(&["load", "--control", &shown]);
    let peers = || {
        let output = undrop(&["status", "--control", &shown, "--json"]).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["peers"].as_array().unwrap().len()
    };
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (goes, _) = receiver(&["load", "--seed", &seed]);
        wait_until("it is known", || peers() > 0);
        stop(&goes, signal);
        // The exit code is 0: the process has handled the signal.
        assert_eq!(output_of(goes), "");
        wait_until("it has left", || peers() == 0);
    }
    stop(&stays, Signal::SIGTERM);
    assert_eq!(output_of(stays), "");
    assert!(!control.exists());
}

#[test]
fn a_sender_that_waits_for_input_stops_at_a_signal() {
    for begun in ["", "half a line"] {
        let mut command = undrop(&["send", "load", "--members", "0", "--linger", "0"]);
        command.args(HERE).arg("--unicast").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut sender = Running(command.spawn().unwrap());
        let mut input = sender.0.stdin.take().unwrap();
        input.write_all(begun.as_bytes()).unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(sender.0.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        // It reads what there is, and waits for the rest.
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop(&sender, Signal::SIGTERM);
        wait_until("the sender ends", || sender.0.try_wait().unwrap().is_some());
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(sender.0.wait().unwrap().code(), Some(130), "{said}");
        assert!(said.contains("0 messages sent"), "{said}");
    }
}

/// A cluster of real processes changes its key step by step, as the manual says.
#[test]
fn a_running_cluster_changes_its_key() {
    let directory = std::env::temp_dir().join(format!("undrop-rekey-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| directory.join(name).display().to_string();
    let (here, there, control) = (file("receiver.key"), file("sender.key"), file("control"));
    assert!(undrop(&["genkey", "--out", &here]).output().unwrap().status.success());
    let old = std::fs::read_to_string(&here).unwrap();
    // A file that is replaced has never half of its content.
    let write = |path: &str, text: &str| {
        let beside = format!("{path}.next");
        std::fs::write(&beside, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&beside, mode).unwrap();
        std::fs::rename(&beside, path).unwrap();
    };
    write(&there, &old);
    let (receiver, seed) = receiver(&["g", "--count", "7", "--key", &here, "--control", &control]);
    let status = || -> Value {
        let output = undrop(&["status", "--control", &control, "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let reread = |times: u64| {
        wait_until("the key file is read", || status()["keys_read"].as_u64() >= Some(times));
    };
    let works = |line: &str| {
        let sent = send(&seed, &["g", "--key", &there], line);
        assert!(sent.status.success(), "{sent:?}");
    };
    works("one key\n");
    // 1. All hosts get a second key.
    let added = undrop(&["genkey", "--append", &here]).output().unwrap();
    assert!(added.status.success(), "{added:?}");
    reread(1);
    works("the receiver accepts both\n");
    let both = std::fs::read_to_string(&here).unwrap();
    let new = both.strip_prefix(&old).unwrap().to_owned();
    write(&there, &both);
    works("both accept both\n");
    // 2. All hosts sign with it.
    write(&here, &(new.clone() + &old));
    reread(2);
    works("the receiver signs with the new key\n");
    write(&there, &(new.clone() + &old));
    works("both sign with the new key\n");
    // 3. The first key is deleted.
    write(&here, &new);
    reread(3);
    works("the receiver has the new key alone\n");
    let keys = status()["keys"].as_array().unwrap().clone();
    assert!(
        keys.len() == 1 && keys[0]["signs"] == true && keys[0]["accepted"].as_u64() > Some(0),
        "{keys:?}"
    );
    // A file with a mistake changes nothing, and the status says so.
    write(&here, "nonsense\n");
    wait_until("the mistake is told", || status()["key_error"].is_string());
    works("the last\n");
    assert_eq!(output_of(receiver).lines().count(), 7);
    std::fs::remove_dir_all(&directory).unwrap();
}
