//! Gateways that choose the rate of repairs, on a link whose losses change, and the record of these losses.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netlab::emulator::{Direction, EmulatorConfig};
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use serde_json::Value;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_for;

use crate::pair::{PROGRAM, reload, wait_for_log};

/// Runs a command of `undrop gateway` on the second gateway, and reads its JSON.
fn ask(pair: &GatewayPair, command: &str) -> Value {
    let ask = || {
        let mut asked = Command::new(PROGRAM);
        asked.args(["gateway", command, "--json", "--config"]).arg(pair.config(1)).output().unwrap()
    };
    // A process that has just taken over may not answer yet.
    let answered = wait_for(|| Some(ask()).filter(|output| output.status.success()));
    let output = answered.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&ask().stderr)));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_rate_follows_the_losses_of_the_link_and_both_ends_say_so() {
    if !privilege::available_or_skip("the_rate_follows_the_losses_of_the_link_and_both_ends_say_so") {
        return;
    }
    let link = LinkConfig { rate_bps: Some(200_000_000), delay_us: 10_000, seed: 5, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::default()).unwrap();
    let plan = UdpStream {
        pace: Pace::Packets(2_000.0),
        payload_bytes: 500,
        duration: Duration::from_secs(1),
        patience: Duration::from_millis(500),
        ..UdpStream::default()
    };
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    // Streams until the first gateway chooses this rate, and the second one knows it.
    let stream_until = |is_wanted: &dyn Fn(&str) -> bool| {
        let mut seen = String::new();
        for _ in 0..20 {
            udp_stream(between, &plan, &mut unwatched).unwrap();
            let (near, far) = (pair.status(0).unwrap(), pair.status(1).unwrap());
            let code = near.peers[0].egress.code.clone();
            let choice = near.peers[0].egress.choice.clone().unwrap();
            let far_rate = far.peers[0].ingress.far_rate.clone().unwrap_or_default();
            seen = format!("{code}; {choice}; {far_rate}");
            if is_wanted(&code) && code.contains(&format!("; {far_rate})")) {
                return choice;
            }
        }
        panic!("no such rate: {seen}\n{}", pair.logs());
    };
    let choice = stream_until(&|code| code == "sliding (512; 1/40)");
    assert!(choice.starts_with("1/40: "), "{choice}");
    sites.link.set_loss(Direction::AToB, &"uniform:0.05".parse().unwrap());
    let choice = stream_until(&|code| code != "sliding (512; 1/40)");
    assert!(choice.contains(" % lost"), "{choice}");
    let losses = ask(&pair, "losses");
    let trace = losses["peers"][0]["trace"].as_array().unwrap();
    assert!(trace.len() >= 20, "{losses}");
    assert!(losses["peers"][0]["days"][0]["lost"].as_u64() > Some(10), "{losses}");
    assert!(pair.logs().contains("repairs: "), "{}", pair.logs());
    pair.stop().unwrap();
}

fn runs(pair: &GatewayPair) -> Vec<Value> {
    ask(pair, "losses")["peers"][0]["trace"].as_array().unwrap().clone()
}

/// Sends streams to the second site until its gateway has recorded bursts; returns these and their gaps.
pub(crate) fn record_losses(sites: &TwoSites, pair: &GatewayPair) -> Vec<Value> {
    let plan =
        UdpStream { pace: Pace::Packets(1_000.0), duration: Duration::from_secs(1), ..UdpStream::default() };
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    for _ in 0..20 {
        udp_stream(between, &plan, &mut unwatched).unwrap();
        if runs(pair).len() >= 20 {
            break;
        }
    }
    let recorded = runs(pair);
    assert!(recorded.len() >= 20, "{recorded:?}\n{}", pair.logs());
    recorded
}

/// Asserts that the second gateway continues this record.
pub(crate) fn assert_continued(pair: &GatewayPair, before: &[Value]) {
    // The packets since the last loss may be more now.
    let ended = before.len() & !1;
    let ended = if before[ended - 1] == 0 { ended - 2 } else { ended };
    assert!(runs(pair).starts_with(&before[..ended]), "{:?} after {before:?}\n{}", runs(pair), pair.logs());
}

#[test]
fn a_reload_keeps_the_record_of_a_peer_that_is_renumbered_or_dropped() {
    if !privilege::available_or_skip("a_reload_keeps_the_record_of_a_peer_that_is_renumbered_or_dropped") {
        return;
    }
    let link = LinkConfig { loss: "uniform:0.05".parse().unwrap(), seed: 9, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::default()).unwrap();
    reload(&mut pair, 1, |text| {
        let text = text.replacen("[gateway]\n", "[gateway]\nloss_record = \"losses.json\"\n", 1);
        text.replacen("[[peer]]\n", "[[peer]]\nname = \"osaka\"\n", 1)
    });
    let before = record_losses(&sites, &pair);
    let elsewhere = |text: &str, number: u8| {
        let line = |line: &str| match line.split(' ').next() {
            Some("address") => format!("address = \"198.51.100.{number}:4700\"\n"),
            Some("networks") => format!("networks = [\"203.0.113.{number}/32\"]\n"),
            _ => format!("{line}\n"),
        };
        text.lines().map(line).collect::<String>()
    };
    reload(&mut pair, 1, |text| elsewhere(&text, 7));
    assert_continued(&pair, &before);
    let former = pair.config(1).with_file_name("losses.json.former");
    assert!(!former.exists(), "{}", pair.logs());
    reload(&mut pair, 1, |text| elsewhere(&text, 8).replace("osaka", "kobe"));
    wait_for_log(&pair, "goes on without them: osaka; the whole record is kept as ");
    let kept: Value = serde_json::from_str(&fs::read_to_string(former).unwrap()).unwrap();
    let osaka = kept["losses"]["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == "osaka");
    assert!(osaka.unwrap()["days"][0]["lost"].as_u64() >= Some(10), "{kept}");
    assert_eq!(ask(&pair, "losses")["peers"][0]["days"], Value::Array(Vec::new()));
    pair.stop().unwrap();
}

#[test]
fn the_record_of_losses_survives_a_restart_and_a_damaged_file_is_put_aside() {
    if !privilege::available_or_skip(
        "the_record_of_losses_survives_a_restart_and_a_damaged_file_is_put_aside",
    ) {
        return;
    }
    let link = LinkConfig { loss: "uniform:0.05".parse().unwrap(), seed: 9, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::default()).unwrap();
    let text = fs::read_to_string(pair.config(1)).unwrap();
    fs::write(pair.config(1), text.replacen("[gateway]\n", "[gateway]\nloss_record = \"losses.json\"\n", 1))
        .unwrap();
    let record = pair.config(1).with_file_name("losses.json");
    let launch = |pair: &mut GatewayPair, side: usize| pair.launch(side, ends[side].namespace).unwrap();
    let up = |pair: &mut GatewayPair| pair.wait_until_up(Duration::from_secs(30)).unwrap();
    (0..2).for_each(|side| launch(&mut pair, side));
    up(&mut pair);
    let before = record_losses(&sites, &pair);
    assert!(pair.child(1).unwrap().terminate(Duration::from_secs(10)).unwrap().success());
    launch(&mut pair, 1);
    up(&mut pair);
    assert_continued(&pair, &before);
    assert!(ask(&pair, "losses")["peers"][0]["days"][0]["lost"].as_u64() >= Some(10));
    // A file that was cut off does not keep the gateway from its work.
    pair.kill(1).unwrap();
    fs::write(&record, "{\"version\":1,\"sav").unwrap();
    launch(&mut pair, 1);
    up(&mut pair);
    assert!(pair.logs().contains("cannot read the record of losses"), "{}", pair.logs());
    assert!(record.with_file_name("losses.json.unreadable").exists());
    assert!(pair.child(1).unwrap().terminate(Duration::from_secs(10)).unwrap().success());
    assert!(fs::read_to_string(&record).unwrap().contains("\"saved_s\""), "written at the end");
}
