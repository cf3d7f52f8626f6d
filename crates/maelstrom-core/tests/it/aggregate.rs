//! Small packets of a tunnel that wait for others to share a datagram with.

use crate::pair::{A, B, Pair, coin, tunnel, udp};
use maelstrom_core::{Config, PeerConfig, TunnelConfig};

/// The same gateway whose packets wait for others for up to `us`.
fn waiting(config: Config, us: u64) -> Config {
    let tunnel = TunnelConfig { aggregate_us: us, ..TunnelConfig::default() };
    let peer = PeerConfig { tunnel, ..config.peers[0].clone() };
    Config { peers: vec![peer], ..config }
}

fn up(us: u64) -> Pair {
    Pair::up([A, B].map(|side| waiting(tunnel(side), us)))
}

fn datagrams(pair: &Pair) -> u64 {
    pair.status(A, |peer| peer.egress.tunnel_datagrams)
}

/// An IPv4 packet of `len` bytes.
fn packet(n: u16, len: usize) -> Vec<u8> {
    udp(A, n, &vec![n as u8; len - 28])
}

/// Sends packets of 60 bytes, 20,000 a second, for 200 ms; returns datagrams and bytes on the wire.
fn cost(us: u64) -> (u64, u64) {
    let mut pair = up(us);
    let sent: Vec<_> = (0..4_000).map(|n| packet(n, 60)).collect();
    for packet in &sent {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
        pair.advance(50);
    }
    pair.advance(1_000_000);
    assert!(pair.recovered[B] == sent, "{us}");
    let repairs = pair.status(A, |peer| peer.egress.repairs);
    assert_eq!((repairs > 100, repairs), (true, pair.status(B, |peer| peer.report.repairs)));
    pair.status(A, |peer| (peer.egress.tunnel_datagrams, peer.egress.tunnel_bytes))
}

#[test]
fn packets_that_follow_each_other_share_datagrams_and_none_waits_without_being_asked_to() {
    let (alone, bytes) = cost(0);
    assert_eq!(alone, 4_000);
    let (together, fewer) = cost(500);
    // Ten and eleven in turn, unless a repair ends the wait.
    assert!((360..700).contains(&together) && fewer * 3 < bytes * 2, "{together} {fewer} {bytes}");
}

#[test]
fn a_packet_waits_no_longer_than_the_limit() {
    let mut pair = up(800);
    for n in 0..200 {
        let before = pair.recovered[B].len();
        pair.send_by_tunnel(A, &[packet(n, 100)]);
        assert_eq!(pair.recovered[B].len(), before);
        pair.advance(790);
        pair.advance(10);
        assert_eq!(pair.recovered[B].len(), before + 1, "{n}");
        pair.advance(5_000);
    }
    assert_eq!(datagrams(&pair), 200);
}

#[test]
fn long_packets_do_not_wait_and_full_datagrams_leave_at_once() {
    let mut pair = up(5_000);
    pair.send_by_tunnel(A, &[packet(0, 1_000)]);
    assert_eq!(pair.recovered[B].len(), 1, "another one like it would not fit");
    pair.send_by_tunnel(A, &[packet(1, 600)]);
    assert_eq!(pair.recovered[B].len(), 1);
    pair.send_by_tunnel(A, &[packet(2, 600)]);
    assert_eq!((pair.recovered[B].len(), datagrams(&pair)), (3, 2));
}

#[test]
fn packets_that_wait_are_coded_and_recovered() {
    let mut pair = up(2_000);
    pair.lose_datagram = Box::new(coin(3, 0.02));
    let mut sent: Vec<_> = (0..4_000).map(|n| packet(n, 200)).collect();
    for packet in &sent {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
        pair.advance(700);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(2_000_000);
    let mut arrived = pair.recovered[B].clone();
    arrived.sort();
    sent.sort();
    assert!(arrived == sent && datagrams(&pair) < 2_500, "{} {}", arrived.len(), datagrams(&pair));
    assert!(pair.status(B, |peer| peer.ingress.recovered_packets) > 20);
}

#[test]
fn a_shorter_limit_counts_at_once() {
    let mut pair = up(10_000);
    pair.send_by_tunnel(A, &[packet(0, 100)]);
    pair.advance(1_000);
    assert_eq!(pair.recovered[B].len(), 0);
    pair.gateways[A].reconfigure(waiting(tunnel(A), 0)).unwrap();
    pair.advance(0);
    assert_eq!(pair.recovered[B].len(), 1);
    pair.send_by_tunnel(A, &[packet(1, 100)]);
    assert_eq!((pair.recovered[B].len(), pair.status(A, |peer| peer.sessions)), (2, 1));
}

#[test]
fn packets_that_wait_leave_at_the_end_of_a_stream_and_their_repairs_behind_them() {
    let mut pair = up(1_000_000);
    let sent: Vec<_> = (0..5).map(|n| packet(n, 100)).collect();
    pair.send_by_tunnel(A, &sent);
    pair.advance(1_000);
    assert!(pair.recovered[B].is_empty());
    let before = pair.status(A, |peer| peer.egress.repair_packets);
    pair.gateways[A].finish_stream(pair.now_us, 0, &mut pair.out[A]);
    pair.exchange();
    assert!(pair.recovered[B] == sent);
    assert!(pair.status(A, |peer| peer.egress.repair_packets) > before);
}
