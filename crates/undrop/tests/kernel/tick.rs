//! Gateways that handle packets by ticks at a high rate.

use std::path::Path;
use std::time::Duration;

use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::pair::PROGRAM;

#[test]
fn many_packets_are_handled_by_ticks_and_recovered_until_there_are_few_again() {
    if !privilege::available_or_skip(
        "many_packets_are_handled_by_ticks_and_recovered_until_there_are_few_again",
    ) {
        return;
    }
    let link = LinkConfig {
        delay_us: 20_000,
        loss: "uniform:0.01".parse().unwrap(),
        seed: 5,
        ..LinkConfig::default()
    };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::default()).unwrap();
    let ticks = |pair: &GatewayPair| [0, 1].map(|side| pair.status(side).unwrap().gateway.tick_us);
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let starts = |pair: &GatewayPair| [0, 1].map(|side| pair.status(side).unwrap().gateway.tick_starts);
    let loss = |pair: &GatewayPair| pair.status(1).unwrap().peers[0].ingress.loss.clone();
    // A busy machine may send or see less than it should, so that it gets several attempts.
    for _ in 0..8 {
        let many = UdpStream {
            pace: Pace::Packets(15_000.0),
            payload_bytes: 100,
            duration: Duration::from_secs(2),
            ..UdpStream::default()
        };
        let report = udp_stream(between, &many, &mut netlab::traffic::unwatched).unwrap();
        assert_eq!(report.altered, 0);
        if starts(&pair).iter().all(|&starts| starts > 0) && loss(&pair).recovered > 20 {
            break;
        }
    }
    assert!(starts(&pair).iter().all(|&starts| starts > 0), "{:?}: {}", starts(&pair), pair.logs());
    assert!(loss(&pair).recovered > 20, "{:?}: {}", loss(&pair), pair.logs());
    wait_for("the tick to end", || ticks(&pair) == [None; 2]);
    // A single packet wakes both gateways again.
    let before = pair.status(1).unwrap().peers[0].ingress.source_packets;
    let few =
        UdpStream { pace: Pace::Packets(50.0), duration: Duration::from_secs(1), ..UdpStream::default() };
    udp_stream(between, &few, &mut netlab::traffic::unwatched).unwrap();
    wait_for("packets to be seen", || pair.status(1).unwrap().peers[0].ingress.source_packets > before + 30);
    assert!(pair.child(0).unwrap().try_wait().unwrap().is_none(), "{}", pair.logs());
    pair.stop().unwrap();
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let so = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(50));
        is_so()
    });
    assert!(so.take(400).any(|is_so| is_so), "waited 20 s for {what}");
}
