//! `undrop multicast doctor`: what the other members of a cluster hear.
#![allow(missing_docs)]

use std::process::Command;

use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use serde_json::Value;

use crate::node::NodeProcess;
use crate::pair::PROGRAM;

#[test]
fn the_doctor_says_who_hears_whom() {
    let test = "the_doctor_says_who_hears_whom";
    if !netlab::privilege::namespaces_or_skip(test) {
        return;
    }
    let lan = BridgeLan::build(&BridgeLanConfig { hosts: 4, ..BridgeLanConfig::default() }).unwrap();
    let start = |at, args: &[&str], seed| {
        NodeProcess::start(lan.host(at), &[args, &["--interface", HOST]].concat(), seed)
    };
    let hears = start(1, &["recv", "prices/AAPL"], None);
    let seed = Some(&*hears.address);
    // Its multicast goes to another port, so it hears none, and gets copies.
    let deaf = start(2, &["recv", "prices/AAPL", "--group-port", "7999"], seed);
    let says = start(3, &["send", "prices/AAPL", "--size", "50", "--count", "100000", "--rate", "50"], seed);
    let ask = |args: &[&str]| {
        let mut doctor = Command::new(PROGRAM);
        doctor.args(["multicast", "doctor", HOST, "--json"]).args(args);
        let output = lan.host(0).run(|| doctor.output()).unwrap();
        let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = diagnosis["findings"].as_array().unwrap().iter();
        let of_members = findings.filter(|finding| finding["about"] == "members");
        let text = |finding: &Value| {
            format!("{}: {}", finding["severity"].as_str().unwrap(), finding["seen"].as_str().unwrap())
        };
        (output.status.code(), of_members.map(text).collect::<Vec<_>>())
    };
    let (code, findings) = ask(&["--seed", &hears.address]);
    let expected = [
        format!("error: settings of {} differ: node.group_port is 7911 here and 7999 there", deaf.address),
        format!("warning: do not hear the multicast of this host, and get copies: {}", deaf.address),
        format!("note: in no group, and therefore not tested: {}", says.address),
        format!("ok: hear the multicast of this host: {}", hears.address),
        format!("ok: this host hears the multicast of {}", says.address),
    ];
    assert_eq!((code, findings), (Some(1), expected.to_vec()));
    let (code, findings) = ask(&["--seed", "10.88.0.200:7900"]);
    assert_eq!(code, Some(1));
    assert!(findings[0].contains("saw none from 10.88.0.200:7900"), "{findings:?}");
    let (_, findings) = ask(&[]);
    assert_eq!(findings, [""; 0], "without a seed address nobody is asked");
}
