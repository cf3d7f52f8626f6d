//! Gateways that choose the rate of repairs, on a link whose losses change, and the record of these losses.

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

const PROGRAM: &str = env!("CARGO_BIN_EXE_undrop");

/// Runs a command of `undrop gateway` on the second gateway, and reads its JSON.
fn ask(pair: &GatewayPair, command: &str) -> Value {
    let output = Command::new(PROGRAM)
        .args(["gateway", command, "--json", "--config"])
        .arg(pair.config(1))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    let choice = stream_until(&|code| code == "sliding (512; 1/32)");
    assert!(choice.starts_with("1/32: "), "{choice}");
    sites.link.set_loss(Direction::AToB, &"uniform:0.05".parse().unwrap());
    let choice = stream_until(&|code| code != "sliding (512; 1/32)");
    assert!(choice.contains(" % lost"), "{choice}");
    let losses = ask(&pair, "losses");
    let trace = losses["peers"][0]["trace"].as_array().unwrap();
    assert!(trace.len() >= 20, "{losses}");
    assert!(losses["peers"][0]["days"][0]["lost"].as_u64() > Some(10), "{losses}");
    assert!(pair.logs().contains("repairs: "), "{}", pair.logs());
    pair.stop().unwrap();
}
