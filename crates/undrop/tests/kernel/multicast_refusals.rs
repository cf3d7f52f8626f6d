//! Errors of `undrop multicast`, and its exit code, where a node cannot reach the others.

use std::process::{Output, Stdio};

use crate::multicast::{HERE, receiver, send, undrop};

/// Runs a receiver for a second; returns its exit code and what it said.
fn recv(args: &[&str]) -> (Option<i32>, String) {
    ended(&undrop(&["recv", "load", "--seconds", "1"]).args(args).output().unwrap())
}

fn ended(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[track_caller]
fn assert_refused((code, said): (Option<i32>, String), expected: &[&str]) {
    assert_eq!(code, Some(1), "{said}");
    for text in expected {
        assert!(said.contains(text), "{text:?} is not in: {said}");
    }
}

#[test]
fn a_sender_without_members_can_refuse_and_says_why() {
    let nobody = ["--seed", "127.0.0.1:9", "--patience", "1", "--require-members"];
    let mut command = undrop(&["send", "load", "--count", "1", "--size", "10"]);
    let refused = command.args(nobody).args(HERE).arg("--unicast").output().unwrap();
    let help = "help: name the address and port of a live node";
    assert_refused(ended(&refused), &["expected at least 1 other members", "127.0.0.1:9", help]);
}

#[test]
fn a_seed_that_is_dead_or_wrong_is_an_error_with_a_remedy() {
    let here = |seed: &str| recv(&[&HERE[..], &["--unicast", "--seed", seed]].concat());
    let remedy = "name the address and port of a live node";
    assert_refused(
        here("127.0.0.1:9"),
        &["error: expected an answer from a seed address", "127.0.0.1:9", remedy],
    );
    assert_refused(here("127.0.0.1"), &["seed \"127.0.0.1\": expected ADDRESS:PORT"]);
    assert_refused(here("[::1]:7900"), &["[::1]:7900", "expected an IPv4 address"]);
    let of_ipv6 = ["--interface", "lo", "--address", "::1", "--port", "0", "--unicast"];
    let with_seed = [&of_ipv6[..], &["--seed", "127.0.0.1:7900"]].concat();
    assert_refused(recv(&with_seed), &["127.0.0.1:7900", "expected an IPv6 address"]);
}

#[test]
fn a_wrong_key_is_an_error_at_the_node_that_has_it() {
    let directory = std::env::temp_dir().join(format!("undrop-keys-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| directory.join(name).display().to_string();
    let (good, wrong) = (file("good.key"), file("wrong.key"));
    for key in [&good, &wrong] {
        let made = undrop(&["genkey", "--out", key]).stdout(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let (_member, seed) = receiver(&["load", "--seconds", "60", "--key", &good]);
    let with = |args: &[&str]| recv(&[&HERE[..], &["--unicast", "--seed", &seed], args].concat());
    // Nobody answers a datagram that is not signed with the cluster key.
    let nobody = "error: expected an answer from a seed address, saw none";
    assert_refused(with(&["--key", &wrong]), &[nobody, &seed]);
    assert_refused(with(&[]), &[nobody, &seed]);
    let sent = send(&seed, &["load", "--key", &wrong, "--require-members", "--patience", "1"], "hello\n");
    assert_refused(ended(&sent), &["expected at least 1 other members"]);
    let (code, said) = with(&["--key", &good]);
    assert_eq!(code, Some(0), "{said}");
    std::fs::remove_dir_all(&directory).unwrap();
}
