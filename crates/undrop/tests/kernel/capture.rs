//! A capture at a gateway, as `tshark` shows it.

use std::collections::HashSet;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netlab::privilege;
use netlab::traffic::{Pace, UdpStream, udp_stream, unwatched};
use stage::gateways::{End, GatewayPair, Setting, between};
use testkit::wait_until;
use testkit::wireshark::dissect_file;

use crate::by_tunnel::{apart, in_tunnel_mode};
use crate::firewall::lab::{Lab, Wan, possible};
use crate::groups;
use crate::pair::{PROGRAM, peer, wait_for_log, wait_for_logs};

#[test]
fn a_capture_tells_of_each_packet_what_happened_to_it() {
    const NAME: &str = "a_capture_tells_of_each_packet_what_happened_to_it";
    if !possible(NAME) {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    let pair = lab.start(&Setting::layered());
    let file = pair.config(1).with_file_name("capture.pcapng");
    let mut capture = Command::new(Path::new(PROGRAM));
    capture.args(["gateway", "capture", "--seconds", "600", "--packets", "1000000", "--config"]);
    capture.arg(pair.config(1)).arg("--out").arg(&file);
    let mut capture = lab.gateway().spawn(capture).unwrap();
    wait_for_log(&pair, "a capture of packets begins");
    // A second one to the same file is refused, and leaves it to the first one.
    let is_file = || fs::metadata(&file).is_ok_and(|file| file.len() > 0);
    wait_until("the file begins", is_file);
    let begin = fs::read(&file).unwrap();
    let mut second = Command::new(Path::new(PROGRAM));
    second.args(["gateway", "capture", "--config"]).arg(pair.config(1)).arg("--out").arg(&file);
    let refused = second.output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("grants no capture"), "{refused:?}");
    assert!(fs::read(&file).unwrap().starts_with(&begin), "the second one has emptied the file");
    let before = peer(&pair, 1).ingress.injected_packets;
    let report = lab.stream(false);
    let injected = peer(&pair, 1).ingress.injected_packets - before;
    assert!(injected > 20, "{injected} of {} packets were recovered", report.sent_us.len());
    let recovered = || String::from_utf8_lossy(&fs::read(&file).unwrap()).matches("lost, recovered").count();
    wait_until("the file has all recovered packets", || recovered() as u64 >= injected);
    assert!(capture.terminate(Duration::from_secs(30)).unwrap().success());
    let fields = ["frame.comment", "ip.src", "ip.dst"];
    let Some(rows) = dissect_file(NAME, &file, &fields) else { return };
    let with = |text: &str| rows.iter().filter(|row| row[0].starts_with(text)).cloned().collect::<Vec<_>>();
    let label = "10.81.9.1:4700";
    assert_eq!(with("lost, recovered").len() as u64, injected);
    let (from, to) = (lab.sites.a.host_v4(0).to_string(), lab.sites.b.host_v4(0).to_string());
    let numbers: HashSet<String> = with("datagram ").into_iter().map(|row| row[0].clone()).collect();
    for row in with("lost, recovered by repair ") {
        let number = row[0].split(' ').nth(4).unwrap();
        assert!(numbers.contains(&format!("datagram {number} of {label}")), "{row:?}");
        assert!(row[0].ends_with(" ms late") && row[0].contains(&format!(" of {label}, ")), "{row:?}");
        assert_eq!([&row[1], &row[2]], [&from, &to]);
    }
    let arrived = with(&format!("arrived from {label}"));
    assert!(arrived.len() + injected as usize >= report.sent_us.len() * 9 / 10, "{}", arrived.len());
    assert!(arrived.iter().all(|row| row[1] == from && row[2] == to));
    assert!(!with("datagram ").is_empty() && !with("Hello").is_empty());
    let away = rows.iter().filter(|row| row[0].contains(" to 10.81.9.1"));
    assert!(away.clone().count() > 0 && away.clone().all(|row| row[2] == "10.81.9.1"), "{rows:?}");
    // A full disk is an error, and the gateway goes on.
    let mut full = Command::new(Path::new(PROGRAM));
    full.args(["gateway", "capture", "--config"]).arg(pair.config(1)).args(["--out", "/dev/full"]);
    let refused = full.output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("No space left"), "{refused:?}");
    assert!(peer(&pair, 1).up);
    pair.stop().unwrap();
}

#[test]
fn a_capture_shows_the_packets_of_a_tunnel_at_both_of_its_ends() {
    if !privilege::available_or_skip("a_capture_shows_the_packets_of_a_tunnel_at_both_of_its_ends") {
        return;
    }
    let sites = apart(0.03);
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        in_tunnel_mode(&pair, side);
        let text = fs::read_to_string(pair.config(side)).unwrap();
        fs::write(pair.config(side), text + groups::FILE).unwrap();
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    let knows = |side| pair.status(side).unwrap().wanted_groups[0].count == 3;
    let is_open = |side| pair.status(side).unwrap().multicast[0].open;
    wait_until("groups can cross", || (0..2).all(|side| knows(side) && is_open(side)));
    let file = |side| pair.config(side).with_file_name(format!("capture-{side}.pcapng"));
    let captures = [0, 1].map(|side| {
        let mut capture = Command::new(PROGRAM);
        capture.args(["gateway", "capture", "--seconds", "600", "--packets", "1000000", "--config"]);
        capture.arg(pair.config(side)).arg("--out").arg(file(side));
        ends[side].namespace.spawn(capture).unwrap()
    });
    wait_for_logs(&pair, ["a capture of packets begins"; 2]);
    let before = peer(&pair, 1).ingress.injected_packets;
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 600,
        duration: Duration::from_secs(2),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let sent = udp_stream(between(&sites), &plan, &mut unwatched).unwrap().sent_us.len();
    // A packet of the gateway itself, whose address the other file does not name.
    let (own, far) = (sites.a.wan_v4(), sites.b.host_v4(0));
    sites.a.gateway.run(|| UdpSocket::bind((own, 0)).unwrap().send_to(b"own", (far, 9)).unwrap());
    groups::send(&sites.a.hosts[0], "239.1.7.7:5007".parse().unwrap(), groups::TTL, 0..100);
    groups::send(&sites.a.hosts[0], "239.1.7.7:5007".parse().unwrap(), 1, 0..10);
    let of_groups = || pair.status(1).unwrap().multicast[0].received as usize;
    wait_until("most packets to the group have come", || of_groups() > 90);
    let injected = (peer(&pair, 1).ingress.injected_packets - before) as usize;
    assert!(injected > 10, "{injected} of {sent} packets were recovered");
    let count = |side: usize, text: &str| {
        String::from_utf8_lossy(&fs::read(file(side)).unwrap()).matches(text).count()
    };
    wait_until("the first end shows all", || {
        count(0, "left for 10.81.9.2:4700 by the tunnel") >= sent
            && count(0, "left for the far sites that want its group") == 100
    });
    assert_eq!(count(0, "not for far sites: time to live ends here"), 10);
    let dropped = "dropped before the tunnel to 10.81.9.2:4700: source outside the networks the peer watches";
    assert_eq!(count(0, dropped), 1);
    let arrived = "arrived from 10.81.9.1:4700";
    wait_until("the second end shows all", || {
        count(1, "lost, recovered") >= injected && count(1, arrived) + injected >= sent + of_groups()
    });
    for mut capture in captures {
        assert!(capture.terminate(Duration::from_secs(30)).unwrap().success());
    }
    pair.stop().unwrap();
}
