//! A flood of first packets.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::packet::internet_checksum;

use super::*;

/// Sends first packets of connections from made-up hosts of site A until `is_over`.
fn flood(lab: &Lab, is_over: &AtomicBool) {
    let (from, to) = (Ipv4Addr::new(10, 81, 1, 99), Ipv4Addr::new(10, 81, 2, 2));
    let raw = lab.sites.a.hosts[0].run(|| Socket::new(Domain::IPV4, Type::RAW, Some(255.into())).unwrap());
    let target = SocketAddr::from((to, 0)).into();
    let mut random = Random(5);
    while !is_over.load(Ordering::Relaxed) {
        let mut packet = [0; 40];
        packet[..2].copy_from_slice(&[0x45, 0]);
        packet[8..10].copy_from_slice(&[64, 6]);
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        packet[20..22].copy_from_slice(&(1_024 + random.below(60_000) as u16).to_be_bytes());
        packet[22..24].copy_from_slice(&PORT.to_be_bytes());
        packet[24..28].copy_from_slice(&(random.draw() as u32).to_be_bytes());
        packet[32..36].copy_from_slice(&[0x50, 2, 0xff, 0xff]);
        let pseudo = [&packet[12..20], &[0, 6, 0, 20], &packet[20..]].concat();
        packet[36..38].copy_from_slice(&internet_checksum(&pseudo).to_be_bytes());
        // A full queue drops it.
        let _ = raw.send_to(&packet, &target);
    }
}

#[test]
fn a_flood_of_first_packets_leaves_connections_unsplit() {
    let Some(lab) = Lab::start("a_flood_of_first_packets_leaves_connections_unsplit", "uniform:0") else {
        return;
    };
    let is_over = AtomicBool::new(false);
    let listener = lab.serve();
    thread::scope(|scope| {
        scope.spawn(|| flood(&lab, &is_over));
        wait_until("the flood is seen", || {
            lab.count(0, "floods") > 0 && lab.split(0).sites.iter().all(|site| !site.is_splitting)
        });
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(lab.split(0).connections < 64, "{:?}", lab.split(0));
    let before = lab.count(0, "taken");
    lab.wait_until_splitting(0);
    converse(&lab, &listener, 100_000, 13);
    wait_until("it was split", || lab.count(0, "taken") > before);
    lab.pair.stop().unwrap();
}
