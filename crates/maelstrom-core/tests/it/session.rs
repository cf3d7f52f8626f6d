//! Authentication of the repair channel, and restarts of a gateway.

use crate::pair::{A, B, Pair, coin, config, udp};
use maelstrom_core::counters::Rejected;
use maelstrom_core::wire::VERSION;
use maelstrom_core::{Config, Gateway, PeerConfig, PeerKey};
use testkit::Random;

/// Sends packets until repairs leave A, and returns their datagrams.
fn repairs(pair: &mut Pair) -> Vec<Vec<u8>> {
    let mut out = pair.gateways[A].outbox();
    for n in 0..64 {
        pair.gateways[A].handle_outgoing(pair.now_us, &udp(A, n, b"some payload"), &mut out);
    }
    out.datagrams.iter().map(|(_, datagram)| datagram.to_vec()).collect()
}

#[test]
fn a_forged_replayed_or_truncated_repair_is_refused_and_counted() {
    let mut pair = Pair::up([config(A), config(B)]);
    let repairs = repairs(&mut pair);
    assert!(repairs.len() >= 8);
    let mut forged = repairs[0].clone();
    *forged.last_mut().unwrap() ^= 1;
    pair.inject(B, &forged);
    pair.inject(B, &repairs[0]);
    pair.inject(B, &repairs[0]);
    pair.inject(B, &repairs[1][..20]);
    pair.inject(B, &repairs[1][..repairs[1].len() - 1]);
    pair.inject(B, &[]);
    let mut other_epoch = repairs[2].clone();
    other_epoch[5] ^= 0x40;
    pair.inject(B, &other_epoch);
    // The unchanged repair names eight packets that never arrived, so it solves none.
    pair.exchange();
    assert!(pair.recovered[B].is_empty());
    let rejected = pair.gateways[B].rejected();
    let count = |reason| rejected.count(reason);
    assert_eq!(count(Rejected::Forged), 2);
    assert_eq!(count(Rejected::Replayed), 1);
    assert_eq!(count(Rejected::Malformed), 2);
    assert_eq!(count(Rejected::UnknownEpoch), 1);
}

/// Machines that are restored from one snapshot seal other contents under the same numbers. Here the contents
/// are equal, so that datagrams under one nonce would be equal too.
#[test]
fn a_machine_that_is_restored_later_repeats_no_nonce() {
    let sealed = |later_us: u64| {
        let mut pair = Pair::up([config(A), config(B)]);
        pair.advance(1_000_000);
        pair.now_us += later_us;
        repairs(&mut pair)
    };
    let original = sealed(0);
    assert!(original.len() >= 8 && sealed(0) == original, "the machines are equal");
    for later_us in [16, 50_000, 3_600_000_000] {
        let restored = sealed(later_us);
        assert_eq!(restored.len(), original.len());
        for (one, other) in original.iter().zip(&restored) {
            assert_eq!(one[4..12], other[4..12], "session and number are those of the snapshot");
            let equal = one[12..].iter().zip(&other[12..]).filter(|(one, other)| one == other).count();
            assert!(16 * equal < one.len(), "{equal} of {} bytes after {later_us} us", one.len());
        }
    }
}

#[test]
fn repairs_recorded_before_a_restart_are_worthless_after_it() {
    let mut pair = Pair::up([config(A), config(B)]);
    let recorded = repairs(&mut pair);
    pair.gateways[B] = Gateway::new(config(B), [77; 32]).unwrap();
    pair.run_until_up();
    let unknown = |pair: &Pair| pair.gateways[B].rejected().count(Rejected::UnknownEpoch);
    let before = unknown(&pair);
    for datagram in &recorded {
        pair.inject(B, datagram);
    }
    pair.exchange();
    assert!(pair.recovered[B].is_empty());
    assert_eq!(unknown(&pair), before + recorded.len() as u64);
}

#[test]
fn protection_resumes_by_itself_after_either_side_restarts() {
    for restarted in [A, B] {
        let mut pair = Pair::up([config(A), config(B)]);
        pair.gateways[restarted] = Gateway::new(config(restarted), [78; 32]).unwrap();
        pair.advance(1_500_000);
        for n in 0..16 {
            pair.send(A, &udp(A, n, b"after the restart"), n == 3);
        }
        pair.advance(100_000);
        assert_eq!(pair.recovered[B], [udp(A, 3, b"after the restart")], "side {restarted}");
    }
}

#[test]
fn packets_seen_before_the_session_are_never_injected_again() {
    let mut pair = Pair::up([config(A), config(B)]);
    for n in 0..5 {
        pair.send(A, &udp(A, n, b"before"), false);
    }
    pair.gateways[B] = Gateway::new(config(B), [79; 32]).unwrap();
    pair.advance(1_500_000);
    for n in 5..40 {
        pair.send(A, &udp(A, n, b"after"), false);
    }
    pair.advance(500_000);
    assert!(pair.recovered[B].is_empty());
}

#[test]
fn losses_found_before_the_peer_restarts_still_count_after_it() {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.lose_one_in_forty();
    pair.advance(2_000_000);
    let before = pair.status(B, |peer| peer.report);
    assert!(before.lost > 0 && before.recovered > 0 && before.repairs > 0);
    pair.gateways[A] = Gateway::new(config(A), [99; 32]).unwrap();
    pair.advance(20_000_000);
    pair.run_until_up();
    assert_eq!(pair.status(B, |peer| peer.report), before);
    pair.lose_one_in_forty();
    pair.advance(2_000_000);
    let after = pair.status(B, |peer| peer.report);
    assert!(after.lost > before.lost && after.named > before.named && after.repairs > before.repairs);
    assert_eq!(after.bursts.iter().sum::<u64>(), 2 * before.bursts.iter().sum::<u64>());
}

/// The gateway that begins the session first must not protect packets that the other saw before it began.
#[test]
fn packets_in_flight_while_a_session_begins_are_never_injected_again() {
    for seed in 0..30 {
        let mut pair = Pair::new([config(A), config(B)]);
        pair.delay_us = 50_000;
        pair.lose_datagram = Box::new(coin(seed, 0.5));
        for n in 0..30_000 {
            if n == 15_000 {
                pair.lose_datagram = Box::new(|| false);
            }
            pair.send(A, &udp(A, n, b"from A"), false);
            pair.send(B, &udp(B, n, b"from B"), false);
            pair.advance(100);
        }
        for side in [A, B] {
            assert!(pair.status(side, |peer| peer.is_up));
            assert!(pair.status(side, |peer| peer.egress.source_packets) > 5_000);
            assert!(pair.recovered[side].is_empty(), "side {side}, seed {seed}");
            assert_eq!(pair.status(side, |peer| peer.report.lost), 0, "side {side}, seed {seed}");
        }
    }
}

#[test]
fn two_gateways_that_lost_each_others_session_find_a_new_one() {
    let mut pair = Pair::up([config(A), config(B)]);
    // Repairs, reports and Hellos are lost until both sides give the session up.
    pair.lose_datagram = Box::new(|| true);
    pair.advance(30_000_000);
    pair.lose_datagram = Box::new(|| false);
    pair.run_until_up();
    for n in 0..16 {
        pair.send(A, &udp(A, n, b"protected"), n == 3);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B], [udp(A, 3, b"protected")]);
}

#[test]
fn a_replayed_hello_changes_nothing() {
    let mut pair = Pair::new([config(A), config(B)]);
    let mut out = pair.gateways[A].outbox();
    pair.gateways[A].handle_timeout(pair.now_us, &mut out);
    let old: Vec<_> = out.datagrams.iter().map(|(_, datagram)| datagram.to_vec()).collect();
    pair.gateways[A] = Gateway::new(config(A), [80; 32]).unwrap();
    pair.run_until_up();
    for _ in 0..50 {
        pair.inject(B, &old[0]);
        pair.advance(1_000);
    }
    let sessions = pair.status(B, |peer| peer.sessions);
    for n in 0..16 {
        pair.send(A, &udp(A, n, b"still protected"), n == 3);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), 1);
    assert_eq!(pair.status(B, |peer| peer.sessions), sessions);
}

#[test]
fn a_hello_of_an_earlier_start_that_echoes_us_never_brings_its_key_back() {
    let mut pair = Pair::up([config(A), config(B)]);
    let mut out = pair.gateways[A].outbox();
    pair.gateways[A].handle_timeout(pair.now_us + 2_000_000, &mut out);
    let hellos: Vec<_> = out.datagrams.iter().map(|(_, datagram)| datagram.to_vec()).collect();
    let hello = hellos.iter().find(|datagram| datagram[0] == VERSION << 4 | 1).expect("a Hello every second");
    pair.gateways[A] = Gateway::new(config(A), [81; 32]).unwrap();
    pair.advance(2_000_000);
    let sessions = pair.status(B, |peer| peer.sessions);
    pair.inject(B, hello);
    assert_eq!(pair.status(B, |peer| peer.sessions), sessions);
    assert_eq!(pair.gateways[B].rejected().count(Rejected::StaleHello), 1);
}

#[test]
fn our_own_hello_sent_back_to_us_changes_nothing() {
    let mut pair = Pair::up([config(A), config(B)]);
    let sessions = pair.status(A, |peer| peer.sessions);
    for _ in 0..3 {
        let mut out = pair.gateways[A].outbox();
        pair.advance(1_100_000);
        pair.gateways[A].handle_timeout(pair.now_us + 1_100_000, &mut out);
        let reflected: Vec<_> = out.datagrams.iter().map(|(_, datagram)| datagram.to_vec()).collect();
        for datagram in reflected.iter().filter(|datagram| datagram[0] == VERSION << 4 | 1) {
            pair.inject(A, datagram);
        }
    }
    pair.advance(2_000_000);
    assert_eq!(pair.status(A, |peer| peer.sessions), sessions);
    for n in 0..16 {
        pair.send(A, &udp(A, n, b"still protected"), n == 3);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B], [udp(A, 3, b"still protected")]);
}

#[test]
fn a_peer_may_restart_any_number_of_times() {
    let mut pair = Pair::up([config(A), config(B)]);
    for start in 0..80 {
        pair.send(B, &udp(B, 1, b"is in a bin of the side that stays up"), false);
        pair.gateways[A] = Gateway::new(config(A), [start + 100; 32]).unwrap();
        pair.advance(2_500_000);
        assert!(pair.status(A, |peer| peer.is_up) && pair.status(B, |peer| peer.is_up), "start {start}");
    }
}

/// Reports return the times of sending of datagrams, and so tell the round-trip time to either side.
#[test]
fn both_sides_know_the_round_trip_time() {
    let mut pair = Pair::new([config(A), config(B)]);
    pair.delay_us = 40_000;
    pair.advance(3_000_000);
    for side in [A, B] {
        let rtt_us = pair.status(side, |peer| peer.rtt_us).expect("reports have arrived");
        assert!(rtt_us.abs_diff(80_000) <= 32, "{rtt_us}");
    }
}

#[test]
fn another_key_is_refused() {
    let peer = PeerConfig { key: PeerKey::new([6; 32]), ..config(B).peers[0].clone() };
    let mut pair = Pair::new([config(A), Config { peers: vec![peer], ..config(B) }]);
    pair.advance(2_000_000);
    assert!(!pair.status(A, |peer| peer.is_up) && !pair.status(B, |peer| peer.is_up));
    assert!(pair.gateways[A].rejected().count(Rejected::Forged) > 0);
}

#[test]
fn a_silent_peer_gets_no_repairs_until_it_returns() {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.lose_datagram = Box::new(|| true);
    pair.advance(5_000_000);
    assert!(!pair.status(A, |peer| peer.is_up));
    let sent = pair.status(A, |peer| peer.egress.repair_packets);
    for n in 0..100 {
        pair.send(A, &udp(A, n, b"unprotected"), n == 50);
    }
    assert_eq!(pair.status(A, |peer| peer.egress.repair_packets), sent);
    pair.lose_datagram = Box::new(|| false);
    pair.advance(2_000_000);
    for n in 0..16 {
        pair.send(A, &udp(A, n, b"protected"), n == 3);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B], [udp(A, 3, b"protected")]);
}

/// With a ninth peer each gets a shorter history, but for those that are there.
#[test]
fn a_reload_that_adds_a_ninth_peer_ends_no_session() {
    let with = |peers: u8| {
        let mut with = config(A);
        for n in 1..peers {
            let network = format!("10.82.{n}.0/24").parse().unwrap();
            let address = ([10, 81, 9, 100 + n], 4700).into();
            let key = PeerKey::new([100 + n; 32]);
            with.peers.push(PeerConfig {
                address,
                key,
                networks: vec![network],
                ..config(A).peers[0].clone()
            });
        }
        with
    };
    assert!(with(8).ingress().history > with(9).ingress().history);
    let mut pair = Pair::up([with(8), config(B)]);
    pair.lose_one_in_forty();
    let lag_max = pair.gateways[A].lag_max();
    pair.gateways[A].reconfigure(with(9)).unwrap();
    let lost = pair.lose_one_in_forty();
    pair.advance(100_000);
    assert_eq!(pair.status(A, |peer| (peer.is_up, peer.sessions)), (true, 1));
    for (to, lost) in [B, A].into_iter().zip(lost) {
        assert!(pair.recovered[to].ends_with(&lost), "at {to}");
    }
    // The new peer's names are fewer.
    assert!(pair.gateways[A].lag_max() <= lag_max);
}

#[test]
fn random_datagrams_never_crash_a_gateway() {
    let mut pair = Pair::up([config(A), config(B)]);
    let templates = repairs(&mut pair);
    let mut random = Random(1);
    for round in 0..20_000 {
        let mut datagram = templates[round % templates.len()].clone();
        for _ in 0..random.below(8) {
            let at = random.index(datagram.len());
            datagram[at] = random.draw() as u8;
        }
        datagram.truncate(random.index(datagram.len() + 1));
        pair.inject(B, &datagram);
    }
    pair.exchange();
    // Some datagrams arrived unchanged. B has seen none of the packets, and may recover only these.
    assert!(pair.recovered[B].iter().all(|packet| (0..64).any(|n| *packet == udp(A, n, b"some payload"))));
}
