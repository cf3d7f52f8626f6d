//! Packets that repairs do not bring back, and that the gateways request from each other.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use maelstrom::config::Schedule;
use maelstrom::status::PeerStatus;
use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use serde_json::Value;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::pair::{PROGRAM, peer, reload, wait_until_up};

/// Losses since an earlier status, packets recovered of them, and packets that came on request.
fn since(earlier: &PeerStatus, later: &PeerStatus) -> [u64; 3] {
    let counts = |peer: &PeerStatus| {
        let ingress = &peer.ingress;
        [ingress.loss.lost, ingress.loss.recovered, ingress.requests.answered]
    };
    let (earlier, later) = (counts(earlier), counts(later));
    std::array::from_fn(|at| later[at] - earlier[at])
}

/// Flows of the gateway of this file whose packets are kept, with this end.
fn kept_flows(config: &Path, end: &str) -> Vec<Value> {
    let mut command = Command::new(PROGRAM);
    command.args(["gateway", "cache", "--json", "--flow", end, "--config"]).arg(config);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "undrop.gateway.cache/1");
    document["peers"][0]["flows"].as_array().unwrap().clone()
}

/// A window of 256 at 1/8 recovers bursts of up to 28 packets.
#[test]
fn requests_bring_back_bursts_that_the_window_cannot_and_without_them_these_stay_lost() {
    if !privilege::available_or_skip(
        "requests_bring_back_bursts_that_the_window_cannot_and_without_them_these_stay_lost",
    ) {
        return;
    }
    let link = LinkConfig {
        delay_us: 10_000,
        loss: "bursty:0.01:60".parse().unwrap(),
        seed: 7,
        ..LinkConfig::default()
    };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let schedule = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
    let setting = Setting { schedule, ..Setting::default() };
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &setting).unwrap();
    wait_until_up(&pair);
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(2_000.0),
        payload_bytes: 500,
        duration: Duration::from_secs(2),
        patience: Duration::from_millis(500),
        ..UdpStream::default()
    };
    // Streams until the counts are as expected: a busy machine may see less of a stream than it should.
    let stream_until = |pair: &GatewayPair, is_so: &dyn Fn([u64; 3]) -> bool| {
        let (before, mut counts) = (peer(pair, 1), [0; 3]);
        for _ in 0..15 {
            let report = udp_stream(between, &plan, &mut unwatched).unwrap();
            assert_eq!(report.altered, 0);
            counts = since(&before, &peer(pair, 1));
            if is_so(counts) {
                return;
            }
        }
        panic!("lost, recovered, requested: {counts:?}\n{}", pair.logs());
    };
    stream_until(&pair, &|[lost, recovered, requested]| requested > 60 && 2 * recovered > lost);
    let answers = peer(&pair, 0).egress.answers;
    assert!(answers > 60, "{answers}");
    let cache = |flow: String| kept_flows(&pair.config(0), &flow);
    // Packets are kept for less than half a second.
    let is_kept = thread::scope(|scope| {
        let stream = scope.spawn(|| udp_stream(between, &plan, &mut unwatched).unwrap());
        let (from, mut is_kept) = (sites.a.host_v4(0).to_string(), false);
        while !is_kept && !stream.is_finished() {
            let flows = cache(sites.b.host_v4(0).to_string());
            let of_stream = |flow: &&Value| flow["protocol"] == 17 && flow["packets"].as_u64() > Some(50);
            is_kept = flows.iter().find(of_stream).is_some_and(|flow| flow["source"] == *from);
        }
        is_kept
    });
    assert!(is_kept, "no look at the cache has shown the stream");
    assert!(
        cache("192.0.2.1".to_owned()).is_empty() && cache(format!("{}:9", sites.b.host_v4(0))).is_empty()
    );
    for side in 0..2 {
        reload(&mut pair, side, |text| text.replace("[code]\n", "[code]\nrequests = \"off\"\n"));
    }
    wait_until_up(&pair);
    // The newest packets are counted when more follow: the first stream counts those of the time before.
    udp_stream(between, &plan, &mut unwatched).unwrap();
    let before = peer(&pair, 1);
    stream_until(&pair, &|[lost, ..]| lost > 150);
    let [lost, recovered, requested] = since(&before, &peer(&pair, 1));
    assert!(requested == 0 && 4 * recovered < lost, "{recovered} of {lost}, {requested} requested");
    pair.stop().unwrap();
}
