//! Two gateways with traffic, losses and recoveries do not allocate per packet.
//!
//! The path is trusted, because packets are lost but no repairs.

use crate::pair::{A, B, address, coin, trusting, udp};
use maelstrom_core::{Config, Gateway, Schedule};

#[test]
fn neither_direction_allocates_per_packet() {
    let rate = "3/8".parse().unwrap();
    let schedules = [
        Schedule::Auto,
        Schedule::layered(),
        Schedule::ReedSolomon { r: 8, c: 3, interleave: 4 },
        Schedule::Sliding { rate, window: 64, density: 15 },
    ];
    for (schedule, delayed) in schedules.into_iter().zip([false, false, true, false]) {
        neither_direction_allocates_with(&schedule, delayed);
    }
}

fn neither_direction_allocates_with(schedule: &Schedule, delayed: bool) {
    let code = |side| Config { schedule: schedule.clone(), delayed, ..trusting(side) };
    let gateway = |side: usize| Gateway::new(code(side), [side as u8 + 1; 32]).unwrap();
    let mut gateways = [gateway(A), gateway(B)];
    let mut out = [gateways[A].outbox(), gateways[B].outbox()];
    let mut datagram = [0; 2048];
    let mut packet = udp(A, 0, &[7; 900]);
    let (mut lose, mut recovered, mut allocated) = (coin(9, 0.05), 0, 0);
    for n in 0..60_000u32 {
        let now_us = 1_000_000 + u64::from(n) * 50;
        packet[4..6].copy_from_slice(&(n as u16).to_be_bytes());
        packet[28..32].copy_from_slice(&n.to_be_bytes());
        maelstrom_core::packet::restore(
            &mut packet,
            maelstrom_core::packet::MutableFields { ttl: 63, tos: 0 },
        );
        // Hellos, one a second, may allocate. In the first half the gateways find each other.
        let made = allocation_counter::measure(|| {
            gateways[A].handle_outgoing(now_us, &packet, &mut out[A]);
            if !lose() {
                gateways[B].handle_incoming(now_us, &packet, &mut out[B]);
            }
            for side in [A, B] {
                gateways[side].handle_timeout(now_us, &mut out[side]);
                let [out_a, out_b] = &mut out;
                let (from, to) = if side == A { (out_a, out_b) } else { (out_b, out_a) };
                for (_, bytes) in from.datagrams.iter() {
                    let datagram = &mut datagram[..bytes.len()];
                    datagram.copy_from_slice(bytes);
                    gateways[1 - side].handle_datagram(now_us, address(side), datagram, to);
                }
                from.datagrams.clear();
            }
            recovered += out[B].recovered.len();
            out[B].recovered.clear();
        });
        if n >= 30_000 {
            allocated += made.count_total;
        }
    }
    assert!(recovered > 1_500, "{schedule}: {recovered} recovered");
    // 1.5 s with 30,000 packets contain two or three Hellos of each side.
    assert!(allocated < 40, "{schedule}: {allocated} allocations");
}
