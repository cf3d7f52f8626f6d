//! The page about the last hour, from a running gateway.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, process};

use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_until;

use crate::pair::PROGRAM;

#[test]
fn a_gateway_writes_a_page_about_its_losses() {
    if !privilege::available_or_skip("a_gateway_writes_a_page_about_its_losses") {
        return;
    }
    let link = LinkConfig { loss: "uniform:0.05".parse().unwrap(), seed: 7, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    pair.wait_until_up(Duration::from_secs(20)).unwrap();
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 300,
        duration: Duration::from_secs(2),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    udp_stream(between, &plan, &mut unwatched).unwrap();
    let file = env::temp_dir().join(format!("undrop-report-{}.html", process::id()));
    let report = |peer: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["gateway", "report", "--peer", peer, "--html"]).arg(&file);
        let output = command.arg("--config").arg(pair.config(1)).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let mut page = String::new();
    wait_until("the page tells of losses", || {
        assert_eq!(report("10.81.9.1:4700").0, Some(0));
        page = fs::read_to_string(&file).unwrap();
        let row = page.split_once("<td>from 10.81.9.1:4700</td>").map(|(_, row)| row);
        row.is_some_and(|row| row.split("<td>").nth(2).is_some_and(|lost| lost.contains(" %)")))
    });
    assert!(page.contains("class=\"value\"") && page.contains("up: packets are protected"), "{page}");
    fs::remove_file(&file).unwrap();
    let (code, said) = report("nobody");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("expected one of 10.81.9.1:4700, saw `nobody`") && !file.exists(), "{said}");
    pair.stop().unwrap();
}
