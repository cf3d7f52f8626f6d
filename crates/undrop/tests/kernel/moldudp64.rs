//! `undrop multicast moldudp64`: a feed and a feed handler that know nothing of us, written in Python from
//! the specification, between hosts whose network loses packets.
#![allow(missing_docs)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use netlab::{DropFilter, Dropper, Namespace};
use serde_json::Value;
use testkit::wait_until;

use crate::node::{NodeProcess, Sink};
use crate::pair::PROGRAM;
use crate::schema::faults_by_file;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/moldudp64.py");
/// The feed that `in` hears.
const SOURCE: [&str; 2] = ["239.9.1.1", "26477"];
/// The feed that `out` hands out.
const SINK: [&str; 2] = ["239.9.2.2", "26400"];
const SERVER_PORT: &str = "26478";

/// Hosts of the network.
const FEED: usize = 0;
const IN: usize = 1;
const OUT: usize = 2;
const HANDLER: usize = 3;

/// A process that is killed when the test ends, also if it fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a direction of the bridge.
fn start_bridge(host: &Namespace, args: &[&str], seed: Option<&str>) -> NodeProcess {
    let common = ["--local", HOST, "--interface", HOST, "--group", "itch", "--json"];
    NodeProcess::start(host, &[&["moldudp64"], args, &common].concat(), seed)
}

/// Ends a bridge. Returns its exit code, its report, and what it has said.
fn stop(bridge: NodeProcess) -> (Option<i32>, Value, String) {
    let (code, text, said) = bridge.stop();
    let last = text.lines().last().unwrap_or_else(|| panic!("no report: {said}"));
    let report: Value = serde_json::from_str(last).unwrap();
    let schema = report["schema"].as_str().unwrap_or_default();
    assert_eq!(faults_by_file(&report, &format!("{}.json", schema.replace('/', "."))), [""; 0]);
    (code, report, said)
}

fn python(host: &Namespace, role: &str, args: &[&str]) -> Child {
    let mut command = Command::new("python3");
    command.args([SCRIPT, role]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    host.run(|| command.spawn()).unwrap()
}

/// The feed, which obeys commands.
struct Feed {
    input: ChildStdin,
    _process: Running,
}

impl Feed {
    fn say(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }
}

/// The handler, with the lines that it has printed.
struct Handler {
    lines: Arc<Mutex<Vec<String>>>,
    _process: Running,
}

impl Handler {
    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits until the handler has printed as many messages, the last of which has this text.
    fn wait(&self, messages: usize, text: &str) {
        let found = testkit::wait_for(|| {
            let lines = self.lines();
            let shown: Vec<_> = lines.iter().filter(|line| !line.starts_with("end ")).collect();
            assert!(shown.len() <= messages, "more messages than were sent: {:?}", &shown[messages..]);
            (shown.len() == messages && shown[messages - 1].ends_with(&format!(" {text}"))).then_some(())
        });
        let lines = self.lines();
        let last = &lines[lines.len().saturating_sub(3)..];
        assert!(
            found.is_some(),
            "expected {messages} messages within a minute, saw {}: {last:?}",
            lines.len()
        );
    }

    /// Returns the sessions, each with the texts of its messages, whose numbers begin at 1 and have no gap.
    fn sessions(&self) -> Vec<(String, Vec<String>)> {
        let mut sessions: Vec<(String, Vec<String>)> = Vec::new();
        for line in self.lines().iter().filter(|line| !line.starts_with("end ")) {
            let mut words = line.splitn(3, ' ');
            let (session, number) = (words.next().unwrap(), words.next().unwrap());
            let text = words.next().unwrap_or_default().to_owned();
            if sessions.last().is_none_or(|(last, _)| last != session) {
                assert!(sessions.iter().all(|(past, _)| past != session), "{session} comes again");
                sessions.push((session.to_owned(), Vec::new()));
            }
            let texts = &mut sessions.last_mut().unwrap().1;
            texts.push(text);
            assert_eq!(number, texts.len().to_string(), "{line}");
        }
        sessions
    }
}

/// Texts of messages of a session of the feed, as the script makes them.
fn texts(session: &str, numbers: impl Iterator<Item = u32>) -> Vec<String> {
    let text = |number| if number % 19 == 0 { String::new() } else { format!("{session}:{number}") };
    numbers.map(text).collect()
}

/// Four hosts: a feed, both directions of the bridge, and a feed handler.
struct Site {
    lan: BridgeLan,
    _droppers: Vec<Dropper>,
    feed: Feed,
    handler: Handler,
}

impl Site {
    fn build(test: &str, loss: Option<&str>) -> Option<Self> {
        let works = match loss {
            Some(_) => netlab::privilege::dropper_or_skip(test),
            None => netlab::privilege::namespaces_or_skip(test),
        };
        if !works {
            return None;
        }
        let version = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            println!("SKIPPED: {test}: no python3 (apt-get install python3)");
            return None;
        }
        let lan = BridgeLan::build(&BridgeLanConfig { hosts: 4, ..BridgeLanConfig::default() }).unwrap();
        let droppers = loss.map_or(vec![], |loss| {
            let (model, all) = (loss.parse().unwrap(), DropFilter::default());
            (0..4).map(|at| Dropper::attach(lan.host(at), HOST, &model, &all).unwrap()).collect()
        });
        let [feed, out, handler] = [FEED, OUT, HANDLER].map(|at| lan.address_v4(at).to_string());
        let args = [SOURCE[0], SOURCE[1], &feed, SERVER_PORT];
        let mut process = python(lan.host(FEED), "feed", &args);
        let feed = Feed { input: process.stdin.take().unwrap(), _process: Running(process) };
        let args = [SINK[0], SINK[1], &handler, &out, SERVER_PORT];
        let mut process = python(lan.host(HANDLER), "handle", &args);
        let output = BufReader::new(process.stdout.take().unwrap());
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let printed = Arc::clone(&lines);
        let is_ready = Arc::new(Mutex::new(false));
        let ready = Arc::clone(&is_ready);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                match &*line {
                    "ready" => *ready.lock().unwrap() = true,
                    _ => printed.lock().unwrap().push(line),
                }
            }
        });
        let handler = Handler { lines, _process: Running(process) };
        wait_until("the handler listens", || *is_ready.lock().unwrap());
        Some(Self { lan, _droppers: droppers, feed, handler })
    }

    fn start_out(&self, args: &[&str], seed: Option<&str>) -> NodeProcess {
        let serve = format!("{}:{SERVER_PORT}", self.lan.address_v4(OUT));
        let sink = SINK.join(":");
        let own = ["out", &sink, "--serve", &serve, "--heartbeat", "0.3"];
        start_bridge(self.lan.host(OUT), &[&own[..], args].concat(), seed)
    }

    /// Lets the feed send while no bridge hears it, until `next` is the number of its next message.
    fn send_unheard(&mut self, command: &str, next: u64) {
        let socket = self.lan.host(IN).run(|| UdpSocket::bind(SOURCE.join(":"))).unwrap();
        let IpAddr::V4(here) = self.lan.address_v4(IN) else { panic!("expected an address of IPv4") };
        socket.join_multicast_v4(&SOURCE[0].parse().unwrap(), &here).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        self.feed.say(command);
        let mut packet = [0; 2_000];
        loop {
            socket.recv(&mut packet).expect("a packet of the feed within a minute");
            let number = u64::from_be_bytes(packet[10..18].try_into().unwrap());
            let count = u16::from_be_bytes(packet[18..20].try_into().unwrap());
            if number + u64::from(count) >= next {
                return;
            }
        }
    }

    /// Starts the direction that hears the feed, with its request server or without.
    fn start_in(&self, has_server: bool, args: &[&str], seed: &str) -> NodeProcess {
        let server = format!("{}:{SERVER_PORT}", self.lan.address_v4(FEED));
        let source = SOURCE.join(":");
        let own = ["in", &source, "--requests", &server];
        let own = if has_server { &own[..] } else { &own[..2] };
        start_bridge(self.lan.host(IN), &[own, args].concat(), Some(seed))
    }
}

/// Each host loses packets: those of the feed, its answers, those of Ricochet, and those of the feed that is
/// handed out. The handler gets all messages in order.
#[test]
fn a_handler_gets_all_messages_of_a_feed_over_a_lossy_network() {
    let test = "a_handler_gets_all_messages_of_a_feed_over_a_lossy_network";
    let Some(mut site) = Site::build(test, Some("uniform:5%")) else { return };
    let out = site.start_out(&[], None);
    let hears = site.start_in(true, &["--from-first"], &out.address);
    site.feed.say("session DAY1");
    site.feed.say("send 1500");
    site.handler.wait(1_500, "DAY1:1500");
    let sessions = site.handler.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].1, texts("DAY1", 1..=1_500));
    assert_ne!(sessions[0].0, "DAY1", "the session is one of its own");
    let (code, report, said) = stop(hears);
    assert_eq!(code, Some(0), "{said}\n{report}");
    assert_eq!((&report["carried"], &report["lost"]), (&1_500.into(), &0.into()), "{report}");
    assert!(report["answered"].as_u64() > Some(0), "the network loses nothing: {report}");
    let (code, report, said) = stop(out);
    assert_eq!(code, Some(0), "{said}\n{report}");
    assert_eq!((&report["handed_out"], &report["lost"]), (&1_500.into(), &0.into()), "{report}");
    assert!(report["messages_answered"].as_u64() > Some(0), "the network loses nothing: {report}");
    let end = format!("end {} 1501", sessions[0].0);
    wait_until("the handler learns of the end", || site.handler.lines().last() == Some(&end));
}

/// Each part is killed and started again, and the feed begins another session: nothing is lost, doubled or
/// mixed.
#[test]
fn sessions_never_mix_when_a_part_starts_again() {
    let test = "sessions_never_mix_when_a_part_starts_again";
    let Some(mut site) = Site::build(test, None) else { return };
    let out = site.start_out(&[], None);
    let hears = site.start_in(true, &[], &out.address);
    site.feed.say("session DAY1");
    site.feed.say("send 101");
    site.handler.wait(101, "DAY1:101");
    // While nobody hears the feed, it goes on.
    drop(hears);
    site.feed.say("send 100");
    let hears = site.start_in(true, &[], &out.address);
    site.feed.say("send 100");
    site.handler.wait(301, "DAY1:301");
    // The feed dies without an end, and another one begins.
    site.feed.say("session DAY2");
    site.feed.say("send 50");
    site.handler.wait(351, "DAY2:50");
    let sessions = site.handler.sessions();
    assert_eq!(sessions.iter().map(|(_, texts)| texts.len()).collect::<Vec<_>>(), [301, 50]);
    assert_eq!(sessions[0].1, texts("DAY1", 1..=301));
    assert_eq!(sessions[1].1, texts("DAY2", 1..=50));
    // The direction that hands out starts again: with another session.
    let seed = hears.address.clone();
    drop(out);
    let out = site.start_out(&[], Some(&seed));
    wait_until("the bridges know one another", || {
        site.feed.say("send 1");
        std::thread::sleep(std::time::Duration::from_millis(200));
        site.handler.sessions().len() == 3
    });
    site.feed.say("end");
    let ends = |name: &str| format!("end {name} ");
    wait_until("the session ends", || {
        let last = site.handler.sessions().last().unwrap().0.clone();
        site.handler.lines().last().unwrap().starts_with(&ends(&last))
    });
    let sessions = site.handler.sessions();
    let last: u32 =
        sessions[2].1.iter().filter_map(|text| text.strip_prefix("DAY2:")?.parse().ok()).max().unwrap();
    let count = u32::try_from(sessions[2].1.len()).unwrap();
    // An empty message may be the last.
    let last = if sessions[2].1.last().unwrap().is_empty() { last + 1 } else { last };
    assert!(last - count >= 50, "{sessions:?}");
    assert_eq!(sessions[2].1, texts("DAY2", last - count + 1..=last), "no gap within it");
    drop((hears, out));
}

/// Other programs send to the group while `in` does not run. It continues behind its last message.
#[test]
fn a_bridge_that_starts_again_continues_although_others_have_used_the_group() {
    let test = "a_bridge_that_starts_again_continues_although_others_have_used_the_group";
    let Some(mut site) = Site::build(test, None) else { return };
    let out = site.start_out(&["--keep-session"], None);
    let hears = site.start_in(true, &[], &out.address);
    site.feed.say("session DAY1");
    site.feed.say("send 30");
    site.handler.wait(30, "DAY1:30");
    drop(hears);
    let mut command = Command::new(PROGRAM);
    command.args(["multicast", "send", "itch", "--interface", HOST, "--seed", &out.address]);
    command.args(["--linger", "0.2"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut others = Running(site.lan.host(FEED).run(|| command.spawn()).unwrap());
    let lines: String = (0..20).map(|number| format!("other {number}\n")).collect();
    others.0.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(others.0.wait().unwrap().success());
    site.send_unheard("send 30", 61);
    let hears = site.start_in(true, &[], &out.address);
    site.feed.say("send 30");
    site.handler.wait(90, "DAY1:90");
    assert_eq!(site.handler.sessions(), [("DAY1".to_owned(), texts("DAY1", 1..=90))]);
    let (code, report, said) = stop(hears);
    assert_eq!(code, Some(0), "{said}\n{report}");
    assert!(report["answered"].as_u64() >= Some(30), "{report}");
    let (code, report, said) = stop(out);
    assert_eq!(code, Some(0), "{said}\n{report}");
    assert_eq!((&report["without_number"], &report["lost"]), (&20.into(), &0.into()), "{report}");
}

/// Reports that stdout does not take are lost. The session goes on, and so do the messages.
#[test]
fn bridges_go_on_when_nobody_takes_their_reports() {
    let test = "bridges_go_on_when_nobody_takes_their_reports";
    for (of_in, of_out) in Sink::all().into_iter().zip(Sink::all()) {
        let Some(mut site) = Site::build(test, None) else { return };
        let (server, sink) = (format!("{}:{SERVER_PORT}", site.lan.address_v4(OUT)), SINK.join(":"));
        let common = ["--local", HOST, "--interface", HOST, "--group", "itch", "--json", "--every", "0.02"];
        let args = ["moldudp64", "out", &sink, "--serve", &server, "--linger", "0.5"];
        let out =
            NodeProcess::start_with(site.lan.host(OUT), &[&args[..], &common].concat(), None, of_out.out);
        let (source, seed) = (SOURCE.join(":"), Some(&*out.address));
        let args = ["moldudp64", "in", &source];
        let hears =
            NodeProcess::start_with(site.lan.host(IN), &[&args[..], &common].concat(), seed, of_in.out);
        site.feed.say("session DAY1");
        // Several times as long as the interval of the reports.
        for round in 1..=18 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            site.feed.say("send 1");
            site.handler.wait(round, &format!("DAY1:{round}"));
        }
        let lines = site.handler.lines();
        assert!(!lines.iter().any(|line| line.starts_with("end ")), "{}: {lines:?}", of_in.name);
        for bridge in [hears, out] {
            let (code, _, said) = bridge.stop();
            assert_eq!(code, Some(1), "{}: {said}", of_in.name);
            assert_eq!(said.matches("stdout does not take a report").count(), 1, "{}: {said}", of_in.name);
            assert!(said.contains("cannot write the last report to stdout"), "{}: {said}", of_in.name);
        }
        wait_until("the session ends", || site.handler.lines().last().unwrap().starts_with("end "));
    }
}

/// Nobody fills the gaps of a feed without request servers. They are told on both sides, and the handler gets
/// the rest.
#[test]
fn gaps_that_nobody_fills_are_told() {
    let test = "gaps_that_nobody_fills_are_told";
    let Some(mut site) = Site::build(test, None) else { return };
    let out = site.start_out(&[], None);
    let hears = site.start_in(false, &[], &out.address);
    for command in ["session DAY1", "send 20", "skip 3", "send 20", "skip 2", "send 1"] {
        site.feed.say(command);
    }
    site.handler.wait(41, "DAY1:46");
    let sessions = site.handler.sessions();
    assert_eq!(sessions[0].1, texts("DAY1", (1..=20).chain(24..=43).chain(46..=46)));
    let (code, report, said) = stop(hears);
    assert_eq!((code, &report["lost"]), (Some(1), &5.into()), "{said}\n{report}");
    assert!(said.contains("messages did not come") && said.contains("first=21 last=23"), "{said}");
    let (code, report, said) = stop(out);
    assert_eq!((code, &report["lost"]), (Some(1), &5.into()), "{said}\n{report}");
    assert!(said.contains("first=44 last=45"), "{said}");
}

/// With `--keep-session`, handlers see the session and the numbers of the feed, also if two bridges carry it.
#[test]
fn the_session_of_a_feed_can_be_kept() {
    let test = "the_session_of_a_feed_can_be_kept";
    let Some(mut site) = Site::build(test, None) else { return };
    let out = site.start_out(&["--keep-session"], None);
    let hears = site.start_in(true, &[], &out.address);
    let also = {
        let source = SOURCE.join(":");
        start_bridge(site.lan.host(FEED), &["in", &source], Some(&out.address))
    };
    site.feed.say("session DAY1");
    site.feed.say("send 300");
    site.handler.wait(300, "DAY1:300");
    let sessions = site.handler.sessions();
    assert_eq!(sessions, [("DAY1".to_owned(), texts("DAY1", 1..=300))]);
    let (code, report, said) = stop(out);
    assert_eq!(code, Some(0), "{said}\n{report}");
    assert_eq!((&report["session"], &report["next"]), (&"DAY1".into(), &301.into()), "{report}");
    assert!(report["duplicates"].as_u64() > Some(0), "two bridges carry the feed: {report}");
    drop((hears, also));
}

/// `out` is killed and started again. Handlers request what they missed meanwhile, and what they missed
/// before: the history of the group has it, which `in` keeps.
#[test]
fn a_bridge_that_starts_again_answers_requests_from_the_history_of_the_group() {
    let test = "a_bridge_that_starts_again_answers_requests_from_the_history_of_the_group";
    let Some(mut site) = Site::build(test, None) else { return };
    let out = site.start_out(&["--keep-session"], None);
    let hears = site.start_in(true, &[], &out.address);
    site.feed.say("session DAY1");
    site.feed.say("send 60");
    site.handler.wait(60, "DAY1:60");
    drop(out);
    site.feed.say("send 60");
    let out = site.start_out(&["--keep-session"], Some(&hears.address));
    // Nothing is sent after the start: the handler learns of the messages from a heartbeat.
    site.handler.wait(120, "DAY1:120");
    assert_eq!(site.handler.sessions(), [("DAY1".to_owned(), texts("DAY1", 1..=120))]);
    site.feed.say("send 10");
    site.handler.wait(130, "DAY1:130");
    let (code, report, said) = stop(out);
    assert_eq!(code, Some(0), "{said}\n{report}");
    let [from_history, handed_out, answered] =
        ["from_history", "handed_out", "messages_answered"].map(|name| report[name].as_u64().unwrap());
    // `in` may have waited for the reader that was killed.
    assert!(from_history >= 60 && from_history + handed_out == 130 && answered > 0, "{report}");
    assert_eq!((&report["oldest"], &report["lost"]), (&1.into(), &0.into()), "{report}");
    drop(hears);
}

#[test]
fn a_bridge_refuses_what_it_cannot_serve() {
    let refused = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["multicast", "moldudp64"]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let node = ["--group", "itch", "--interface", "lo"];
    for (args, code, says) in [
        (&["in", "10.0.0.1:26477", "--local", "lo"][..], 2, "expected a multicast address and a port"),
        (&["in", "239.255.79.1:7911", "--local", "lo"], 1, "which Ricochet uses itself"),
        (
            &["in", "239.9.1.1:1", "--local", "lo", "--session", "elevenbytes"],
            2,
            "1 to 10 letters and digits",
        ),
        (&["in", "239.9.1.1:1", "--local", "lo", "--from-first"], 2, "--requests"),
        (
            &["in", "239.9.1.1:1", "--local", "lo", "--requests", "10.0.0.1:1", "--requests", "[fd00::1]:1"],
            1,
            "saw 10.0.0.1:1 and [fd00::1]:1",
        ),
        (&["in", "239.9.1.1:1", "--local", "no-such-name"], 1, "--local"),
        (&["out", "239.9.1.1:1", "--local", "no-such-name"], 1, "--local"),
        (&["out", "239.9.1.1:1", "--local", "lo", "--serve", "203.0.113.1:1"], 1, "--serve"),
        (&["out", "239.9.1.1:1", "--local", "lo", "--packet-max", "9"], 2, "64"),
    ] {
        let (seen, said) = refused(&[args, &node].concat());
        assert!(seen == Some(code) && said.contains(says), "{args:?}: {seen:?} {said}");
    }
}
