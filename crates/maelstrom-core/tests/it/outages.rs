//! Outages of more packets than a gateway with many peers tells apart.

use std::net::SocketAddr;

use crate::pair::{A, B, Pair, config, tunnel, udp};
use maelstrom_core::{Config, PeerConfig, PeerKey, Schedule};

/// The configuration of a hub with nine peers, of which the first is the other gateway.
fn hub(config: Config) -> Config {
    let others = (1..9_u8).map(|n| PeerConfig {
        address: SocketAddr::from(([10, 81, 9, 10 + n], 4700)),
        networks: vec![format!("10.82.{n}.0/24").parse().unwrap()],
        key: PeerKey::new([10 + n; 32]),
        ..config.peers[0].clone()
    });
    let peers = config.peers.iter().cloned().chain(others).collect();
    Config { peers, ..config }
}

fn beside(side: usize) -> Config {
    Config { schedule: Schedule::Auto, ..config(side) }
}

fn packet(n: u32) -> Vec<u8> {
    udp(A, n as u16, &n.to_be_bytes().repeat(10))
}

/// Losses that B has recorded, the longest run of them, and those that it reports.
fn losses(pair: &Pair) -> (u64, u64, u64) {
    pair.status(B, |peer| {
        let [minutes, ..] = peer.record.history();
        let longest = minutes.iter().map(|(_, tally)| tally.longest).max().unwrap_or(0);
        (minutes.iter().map(|(_, tally)| tally.lost).sum(), u64::from(longest), peer.report.lost)
    })
}

#[test]
fn an_outage_is_one_run_of_losses_however_many_packets_it_takes() {
    for is_tunnel in [false, true] {
        for lost in [10_000, 30_000] {
            let mut pair =
                Pair::up([A, B].map(|side| hub(if is_tunnel { tunnel(side) } else { beside(side) })));
            pair.delay_us = 5_000;
            for n in 0..2_000 + lost + 4_000 {
                let is_out = (2_000..2_000 + lost).contains(&n);
                pair.mute[A] = is_out;
                if is_tunnel {
                    pair.send_by_tunnel(A, &[packet(n)]);
                } else {
                    pair.send(A, &packet(n), is_out);
                }
                pair.advance(20);
            }
            pair.advance(3_000_000);
            let lost = u64::from(lost);
            let seen = losses(&pair);
            let (recorded, longest, reported) = seen;
            let are_near = |count: u64| count.abs_diff(lost) <= 100;
            assert!([recorded, longest, reported].into_iter().all(are_near), "{is_tunnel} {lost}: {seen:?}");
        }
    }
}

/// A box begins to rewrite packets, so that none arrives under its name.
#[test]
fn packets_that_arrive_in_another_form_are_no_outage() {
    let mut pair = Pair::up([A, B].map(|side| hub(beside(side))));
    for n in 0..24_000 {
        let mut packet = packet(n);
        if n < 2_000 {
            pair.send(A, &packet, false);
        } else {
            pair.leave(A, &packet);
            packet[20] ^= 0x40;
            pair.fly(B, packet);
        }
        pair.advance(20);
    }
    pair.advance(3_000_000);
    let (recorded, longest, _) = losses(&pair);
    assert!(recorded <= 100 && longest <= 100, "{recorded} {longest}");
}
