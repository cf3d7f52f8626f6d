//! A flood of first packets.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::packet::internet_checksum;
use testkit::wait_for;

use super::*;

/// Port that is not split.
const UNSPLIT: u16 = 9_000;

/// Returns the first packet of a connection between these hosts, from a port that is drawn.
pub(super) fn first_packet(from: Ipv4Addr, to: (Ipv4Addr, u16), random: &mut Random) -> [u8; 40] {
    let mut packet = [0; 40];
    packet[..2].copy_from_slice(&[0x45, 0]);
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.0.octets());
    packet[20..22].copy_from_slice(&(1_024 + random.below(60_000) as u16).to_be_bytes());
    packet[22..24].copy_from_slice(&to.1.to_be_bytes());
    packet[24..28].copy_from_slice(&(random.draw() as u32).to_be_bytes());
    packet[32..36].copy_from_slice(&[0x50, 2, 0xff, 0xff]);
    let pseudo = [&packet[12..20], &[0, 6, 0, 20], &packet[20..]].concat();
    packet[36..38].copy_from_slice(&internet_checksum(&pseudo).to_be_bytes());
    packet
}

/// Sends first packets of connections from made-up hosts of site A until `is_over`: as fast as possible until
/// `is_seen`, and then some 5,000 a second, beside which a machine with two processors carries the traffic of
/// the test through two gateways and the emulated link.
fn flood(lab: &Lab, is_seen: &AtomicBool, is_over: &AtomicBool) {
    let (from, to) = (Ipv4Addr::new(10, 81, 1, 99), Ipv4Addr::new(10, 81, 2, 2));
    let raw = lab.sites.a.hosts[0].run(|| Socket::new(Domain::IPV4, Type::RAW, Some(255.into())).unwrap());
    let target = SocketAddr::from((to, 0)).into();
    let mut random = Random(5);
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        if is_seen.load(Ordering::Relaxed) && number.is_multiple_of(10) {
            thread::sleep(Duration::from_millis(2));
        }
        let packet = first_packet(from, (to, PORT), &mut random);
        // A full queue drops it.
        let _ = raw.send_to(&packet, &target);
    }
}

/// Ends the flood, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves random bytes there and back through a connection to a port that is not split.
fn converse_unsplit(lab: &Lab, seed: u64) {
    // A process that another test starts has the listener of an earlier conversation for a moment.
    let bind = || TcpListener::bind(lab.server(UNSPLIT)).ok();
    let listener = lab.sites.b.hosts[0].run(|| wait_for(bind)).expect("the port is free");
    let bytes = Random(seed).bytes(50_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = accept(&listener);
            let mut seen = vec![0; bytes.len()];
            stream.read_exact(&mut seen).unwrap();
            stream.write_all(&seen).unwrap();
        });
        let mut client = lab.connect(UNSPLIT);
        client.write_all(&bytes).unwrap();
        let mut seen = vec![0; bytes.len()];
        client.read_exact(&mut seen).unwrap();
        assert!(seen == bytes, "other bytes came back");
    });
}

#[test]
fn a_flood_of_first_packets_leaves_connections_unsplit() {
    let Some(lab) = Lab::start("a_flood_of_first_packets_leaves_connections_unsplit", "uniform:0") else {
        return;
    };
    let (is_seen, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let listener = lab.serve();
    converse(&lab, &listener, 10_000, 12);
    lab.wait_for_counts([("finished", 1), ("finished", 1)]);
    let calm = [0, 1].map(|side| lab.open_files(side));
    thread::scope(|scope| {
        scope.spawn(|| flood(&lab, &is_seen, &is_over));
        let _stop = Stop(&is_over);
        wait_until("the flood is seen", || {
            lab.count(0, "floods") > 0 && lab.split(0).sites.iter().all(|site| !site.is_splitting)
        });
        is_seen.store(true, Ordering::Relaxed);
        // While it lasts, connections that are not split carry bytes.
        converse_unsplit(&lab, 14);
        converse_unsplit(&lab, 15);
    });
    assert!(lab.split(0).connections < 64, "{:?}", lab.split(0));
    let before = lab.count(0, "taken");
    lab.wait_until_splitting(0);
    converse(&lab, &listener, 100_000, 13);
    wait_until("it was split", || lab.count(0, "taken") > before);
    // The flood has left nothing.
    wait_until("nothing is held", || {
        (0..2).all(|side| lab.split(side).connections == 0 && lab.split(side).promised_bytes == 0)
    });
    let left = wait_for(|| (0..2).all(|side| lab.open_files(side) <= calm[side] + 4).then_some(()));
    assert!(left.is_some(), "{calm:?} before, {:?} after", [0, 1].map(|side| lab.open_files(side)));
    lab.pair.stop().unwrap();
}
