//! A capture at a gateway, as `tshark` shows it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use stage::gateways::Setting;
use testkit::wait_until;
use testkit::wireshark::dissect_file;

use crate::firewall::lab::{Lab, Wan, possible};
use crate::pair::{PROGRAM, peer, wait_for_log};

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
    // A second one is refused.
    let mut second = Command::new(Path::new(PROGRAM));
    second.args(["gateway", "capture", "--config"]).arg(pair.config(1)).args(["--out", "/dev/null"]);
    let refused = second.output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("grants no capture"), "{refused:?}");
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
