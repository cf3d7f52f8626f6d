//! The DSCP of repairs.

use crate::pair::{A, B, Pair, config, udp};
use maelstrom_core::{Config, Gateway, RepairDscp, Schedule};

fn up(schedule: &Schedule, repair_dscp: RepairDscp) -> Pair {
    let side = |side| Config { schedule: schedule.clone(), repair_dscp, ..config(side) };
    Pair::up([side(A), side(B)])
}

/// Sends packets with these DSCPs; returns the DSCPs of the repairs.
fn repairs(pair: &mut Pair, dscps: &[u8]) -> Vec<u8> {
    let mut marks = Vec::new();
    for (n, dscp) in dscps.iter().enumerate() {
        let mut packet = udp(A, n as u16, &[n as u8; 300]);
        packet[1] = dscp << 2 | 1;
        pair.dscps[A].clear();
        let before = pair.status(A, |peer| peer.egress.repair_packets);
        pair.send(A, &packet, false);
        let sent = pair.status(A, |peer| peer.egress.repair_packets) - before;
        assert_eq!(pair.dscps[A].len() as u64, sent, "repairs alone");
        marks.append(&mut pair.dscps[A]);
        pair.advance(10);
    }
    marks
}

#[test]
fn repairs_of_a_window_have_the_dscp_of_its_packets_if_all_of_them_agree() {
    let window = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 16, density: 15 };
    let mut pair = up(&window, RepairDscp::Packets);
    let expedited = [46; 16];
    assert_eq!(repairs(&mut pair, &expedited), [46; 4]);
    // The other packet leaves the window after sixteen more.
    let mixed = [&[0][..], &[46; 15], &[46; 8]].concat();
    assert_eq!(repairs(&mut pair, &mixed), [0, 0, 0, 0, 46, 46]);
    // A packet that is too long for the code changes nothing.
    let mut long = udp(A, 99, &vec![7; 1_600]);
    long[1] = 8 << 2;
    pair.send(A, &long, true);
    assert_eq!(repairs(&mut pair, &expedited[..4]), [46]);
}

#[test]
fn repairs_of_layers_have_the_dscp_of_their_own_packets() {
    let layers = Schedule::Layered { r: 4, interleaves: vec![1, 4] };
    let mut pair = up(&layers, RepairDscp::Packets);
    // Columns of the second layer agree where rows do not.
    let mut marks = repairs(&mut pair, &[[0, 10, 18, 26]; 4].concat());
    marks.retain(|&dscp| dscp != 0);
    assert_eq!(marks, [10, 18, 26]);
}

#[test]
fn repairs_may_have_a_dscp_of_their_own_and_reports_have_none() {
    let mut pair = up(&Schedule::Auto, RepairDscp::Fixed(8));
    assert!(pair.dscps[A].iter().all(|&dscp| dscp == 0), "Hellos and reports");
    let marks = repairs(&mut pair, &[46; 64]);
    assert!(marks.len() >= 8 && marks.iter().all(|&dscp| dscp == 8), "{marks:?}");
    // A packet alone gets its repair after a silence.
    pair.dscps[A].clear();
    pair.advance(300_000);
    assert!(pair.dscps[A].contains(&0), "reports: {:?}", pair.dscps[A]);
    pair.gateways[A].reconfigure(Config { schedule: Schedule::Auto, ..config(A) }).unwrap();
    let marks = repairs(&mut pair, &[46; 64]);
    assert!(marks.len() >= 8 && marks.iter().all(|&dscp| dscp == 46), "{marks:?}");
}

#[test]
fn a_dscp_out_of_range_is_refused() {
    let error = Gateway::new(Config { repair_dscp: RepairDscp::Fixed(64), ..config(A) }, [1; 32]).err();
    assert_eq!(error.unwrap().to_string(), "repair_dscp: expected at most 63, saw 64");
}
