//! Events in the log, the verdict about a gateway, and its exit code.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_until;

use crate::pair::{PROGRAM, reload, wait_for_log};
use crate::schema::faults_by_file;

/// Runs `undrop gateway health --json` on the gateway of a site; returns its exit code and its document.
pub(crate) fn health_of(pair: &GatewayPair, side: usize) -> (Option<i32>, serde_json::Value) {
    let mut command = Command::new(PROGRAM);
    command.args(["gateway", "health", "--json", "--config"]).arg(pair.config(side));
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns the text of a reason in a document of `undrop gateway health`.
pub(crate) fn reason<'a>(document: &'a serde_json::Value, id: &str) -> &'a str {
    let reasons = document["reasons"].as_array().unwrap();
    let found = reasons.iter().find(|reason| reason["id"] == id);
    found.and_then(|reason| reason["text"].as_str()).unwrap_or_else(|| panic!("no reason {id} in {document}"))
}

fn health(pair: &GatewayPair) -> (Option<i32>, serde_json::Value) {
    health_of(pair, 0)
}

/// Asks for the metrics at an address; returns the response.
fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_peer_that_is_killed_is_an_event_and_a_verdict_until_it_returns() {
    if !privilege::available_or_skip("a_peer_that_is_killed_is_an_event_and_a_verdict_until_it_returns") {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    // In a user namespace the other way is impossible, which degrades a gateway that is not told to use
    // this one.
    let setting = Setting { injection: "tun", ..Setting::layered() };
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &setting).unwrap();
    wait_until("the gateway is protected", || health(&pair).0 == Some(0));
    let before = fs::read_to_string(pair.config(0)).unwrap();
    let address = "127.0.0.1:9469";
    reload(&mut pair, 0, |text| text.replace("[gateway]", &format!("[gateway]\nmetrics = \"{address}\"")));
    let scraped = sites.a.gateway.run(|| scrape(address));
    let sample = "undrop_gateway_peer_up{peer=\"10.81.9.2:4700\"} 1\n";
    assert!(scraped.starts_with("HTTP/1.1 200 OK\r\n") && scraped.contains(sample), "{scraped}");
    assert!(scraped.ends_with("# EOF\n"), "{scraped}");
    // Without the setting nobody listens.
    reload(&mut pair, 0, |_| before);
    let refused = || sites.a.gateway.run(|| TcpStream::connect(address).is_err());
    wait_until("the port is closed", refused);
    // Clients that connect and read nothing keep nobody waiting.
    let control = maelstrom::config::read(&pair.config(0)).control().unwrap();
    let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(&control).unwrap()).collect();
    let (code, document) = health(&pair);
    assert_eq!((code, &document["state"]), (Some(0), &"protected".into()), "{document}");
    assert_eq!(document["schema"], "undrop.gateway.health/1");
    drop(silent);
    assert_eq!(faults_by_file(&document, "undrop.gateway.health.1.json"), [""; 0]);
    for command in ["status", "losses", "cache", "advise"] {
        let mut shown = Command::new(PROGRAM);
        shown.args(["gateway", command, "--json", "--config"]).arg(pair.config(0)).stdin(Stdio::null());
        let document = serde_json::from_slice(&shown.output().unwrap().stdout).unwrap();
        assert_eq!(faults_by_file(&document, &format!("undrop.gateway.{command}.1.json")), [""; 0]);
    }

    pair.kill(1).unwrap();
    wait_for_log(&pair, "packets to this peer are not protected; no datagram of the peer arrives");
    let (code, document) = health(&pair);
    assert_eq!((code, &document["state"]), (Some(2), &"down".into()), "{document}");
    assert_eq!(document["reasons"][0]["id"], "peer_down");
    let status = pair.status(0).unwrap();
    assert_eq!(status.schema, "undrop.gateway.status/1");
    let last = status.events.iter().rev().find(|event| event.id == "peer_down").unwrap();
    assert!(last.remedy.as_ref().is_some_and(|remedy| remedy.starts_with("check that the peer runs")));

    pair.launch(1, End::of(&sites)[1].namespace).unwrap();
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    wait_for_log(&pair, "up again after");
    wait_until("the gateway is protected again", || health(&pair).0 == Some(0));
    // Without a gateway the answer is `down` as well.
    pair.kill(0).unwrap();
    let (code, document) = health(&pair);
    assert_eq!((code, &document["reasons"][0]["id"]), (Some(2), &"no_answer".into()), "{document}");
}
