//! Super-packets that cannot be cut, and tunnels that carry repairs.
//!
//! The tests that lose packets trust the path, because they lose no repairs.

use maelstrom_core::counters::{Unprotected, Withheld};

use crate::pair::{A, B, Pair, address, config, payload, trusting, udp};

/// Packet `n` of another flow of the same two sites.
fn other(n: u16) -> Vec<u8> {
    let mut packet = udp(A, n, &payload(u32::from(n)));
    packet[20..24].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    packet
}

/// Sends 800 packets, alternately of two flows, and loses every twentieth. Returns the numbers of those
/// recovered.
fn run(pair: &mut Pair, unseen: &[u8]) -> Vec<u16> {
    for n in 0..800_u16 {
        if n.is_multiple_of(10) && !unseen.is_empty() {
            pair.gateways[B].handle_unseen(pair.now_us, unseen);
        }
        let packet = if n % 2 == 0 { udp(A, n, &payload(n.into())) } else { other(n) };
        pair.send(A, &packet, n % 20 == 7 || n % 20 == 14);
        pair.advance(1_000);
    }
    pair.advance(500_000);
    let id = |packet: &Vec<u8>| u16::from_be_bytes([packet[4], packet[5]]);
    pair.recovered[B].drain(..).map(|packet| id(&packet)).collect()
}

#[test]
fn a_super_packet_that_cannot_be_cut_stops_the_recovery_of_its_flow_alone() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let recovered = run(&mut pair, &other(0));
    assert!(recovered.iter().all(|n| n % 2 == 0), "{recovered:?}");
    assert_eq!(recovered.len(), 40, "each lost packet of the other flow");
    let withheld = pair.status(B, |peer| peer.withheld.count(Withheld::Doubtful));
    assert_eq!((withheld, pair.status(B, |peer| peer.doubtful_flows)), (40, 1));
    // Some time after the last one, the flow is recovered again.
    pair.advance(3_000_000);
    assert_eq!(pair.status(B, |peer| peer.doubtful_flows), 0);
    assert_eq!(run(&mut pair, &[]).len(), 80);
}

#[test]
fn forged_super_packets_of_many_flows_stop_no_other_flow() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    for n in 0..10_000_u16 {
        let mut forged = udp(A, 0, b"forged");
        forged[20..22].copy_from_slice(&n.max(1).to_be_bytes());
        pair.gateways[B].handle_unseen(pair.now_us, &forged);
    }
    assert!(pair.status(B, |peer| peer.doubtful_flows) <= 64);
    assert_eq!(run(&mut pair, &[]).len(), 80);
}

#[test]
fn what_is_no_packet_of_the_peer_stops_nothing() {
    let mut pair = Pair::up([config(A), config(B)]);
    for unseen in [&[][..], &[0x45; 40], &udp(B, 1, b"of our own site")] {
        pair.gateways[B].handle_unseen(pair.now_us, unseen);
        assert_eq!(pair.status(B, |peer| peer.doubtful_flows), 0);
    }
}

#[test]
fn repairs_inside_a_tunnel_between_the_sites_are_not_protected() {
    let mut pair = Pair::up([config(A), config(B)]);
    let mut repair = udp(A, 1, b"a repair");
    let std::net::IpAddr::V4(far) = address(B).ip() else { unreachable!() };
    repair[16..20].copy_from_slice(&far.octets());
    repair[22..24].copy_from_slice(&address(B).port().to_be_bytes());
    // IP in IP
    let mut tunnel = udp(A, 2, &repair);
    tunnel.drain(20..28);
    let total = u16::try_from(tunnel.len()).unwrap();
    tunnel[2..4].copy_from_slice(&total.to_be_bytes());
    tunnel[9] = 4;
    pair.gateways[A].handle_outgoing(pair.now_us, &tunnel, &mut pair.out[A]);
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::RepairChannel), 1);
    // Another datagram in the same tunnel
    tunnel[42..44].copy_from_slice(&53_u16.to_be_bytes());
    pair.gateways[A].handle_outgoing(pair.now_us, &tunnel, &mut pair.out[A]);
    assert_eq!(pair.status(A, |peer| peer.egress.source_packets), 1);
}
