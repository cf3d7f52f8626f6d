//! Two paths that share the packets.

use crate::pair::{A, B, LinkQueue, Pair, coin, two_paths, udp};
use crate::paths::{missing, paths, send};
use maelstrom_core::PathUse;

const MS: u64 = 1_000;

/// The last half of a time in which packets were sent over two paths.
#[derive(Debug)]
struct Half {
    /// Packets that A has sent on each path.
    by_path: Vec<u64>,
    /// Packets that have not arrived.
    missing: usize,
    /// Datagrams that the queues have dropped.
    dropped: u64,
    /// Packets that count as lost, before recovery.
    lost: u64,
    /// Rate of repairs in the end.
    rate: f64,
}

/// Two gateways with two paths of which one carries 100 Mbit/s and the other one some of it, with queues of
/// 60 ms.
fn lines(path_us: [u64; 2], second_mbit_per_s: u64) -> Pair {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, PathUse::Spread)));
    pair.path_us = path_us;
    pair.path_queues = [100, second_mbit_per_s].map(|mbit| Some(LinkQueue::new(mbit, 7_500 * mbit)));
    pair.run_until_up();
    pair.advance(500 * MS);
    pair
}

/// Sends packets of 1,000 bytes for a time at this rate over two paths of 100 and 25 Mbit/s.
fn spread(path_us: [u64; 2], mbit_per_s: f64, seconds: f64) -> Half {
    run(&mut lines(path_us, 25), mbit_per_s, seconds)
}

/// Sends packets of 1,000 bytes with the next numbers for a time, and returns them.
fn send_at(pair: &mut Pair, next: &mut u32, mbit_per_s: f64, seconds: f64) -> Vec<Vec<u8>> {
    let interval_us = (8_000.0 / mbit_per_s) as u64;
    let count = (seconds * 1e6) as u64 / interval_us;
    let send = |_| {
        let packet = udp(A, *next as u16, &[(*next >> 16) as u8; 972]);
        pair.send_by_tunnel(A, std::slice::from_ref(&packet));
        pair.advance(interval_us);
        *next += 1;
        packet
    };
    (0..count).map(send).collect()
}

fn run(pair: &mut Pair, mbit_per_s: f64, seconds: f64) -> Half {
    let mut next = 0;
    let lost = |pair: &Pair| -> u64 {
        let [minutes, ..] = pair.status(B, |peer| peer.record.history());
        minutes.iter().map(|(_, tally)| tally.lost).sum()
    };
    send_at(pair, &mut next, mbit_per_s, seconds / 2.0);
    let (before, lost_before) = (paths(pair, A), lost(pair));
    let sent = send_at(pair, &mut next, mbit_per_s, seconds / 2.0);
    let rate = pair.status(A, |peer| peer.decision.unwrap().rate.as_f64());
    pair.advance(1_000 * MS);
    let after = paths(pair, A);
    let both = || after.iter().zip(&before);
    Half {
        by_path: both().map(|(after, before)| after.sent.packets - before.sent.packets).collect(),
        missing: missing(pair, &sent),
        dropped: both().map(|(after, before)| after.outgoing.lost - before.outgoing.lost).sum(),
        lost: lost(pair) - lost_before,
        rate,
    }
}

#[test]
fn packets_that_one_path_cannot_carry_take_the_other_one_too() {
    let Half { by_path, missing, .. } = spread([15 * MS, 20 * MS], 110.0, 8.0);
    let all: u64 = by_path.iter().sum();
    // One of ten at least, and nearly nothing stays lost.
    assert!(by_path[1] * 100 > all * 8 && by_path[1] * 100 < all * 30, "{by_path:?}");
    assert!(missing as u64 * 100 < all, "{missing} of {all}: {by_path:?}");
    let Half { by_path, missing, .. } = spread([15 * MS, 20 * MS], 60.0, 4.0);
    assert_eq!((by_path[1], missing), (0, 0), "{by_path:?}");
}

#[test]
fn packets_that_others_overtake_on_a_faster_path_do_not_count_as_lost() {
    for path_us in [[33 * MS, 15 * MS], [20 * MS, 20 * MS], [15 * MS, 33 * MS]] {
        let half = spread(path_us, 110.0, 6.0);
        assert!(half.by_path.iter().all(|&packets| packets > 3_000), "{half:?}");
        assert!(half.lost <= half.dropped, "{half:?}");
        assert!(half.missing < 50 && half.rate < 0.2, "{half:?}");
    }
}

#[test]
fn repairs_that_the_second_path_cannot_carry_take_the_first() {
    let mut pair = lines([20 * MS, 30 * MS], 2);
    let mut lose = coin(5, 0.02);
    pair.lose_on = Box::new(move |path, from| (path, from) == (0, A) && lose());
    let half = run(&mut pair, 40.0, 8.0);
    assert!(half.missing < 100 && half.by_path[1] == 0, "{half:?}");
    let [first, second] = paths(&pair, A)[..] else { panic!() };
    assert!(first.sent.repairs > 300 && second.sent.repairs > 500, "{first:?} {second:?}");
    assert!(second.outgoing.share() < 0.1, "{second:?}");
}

/// Two gateways that spread packets over two like paths, and the packets that A has sent by the second.
fn alike() -> (Pair, impl Fn(&Pair) -> u64) {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, PathUse::Spread)));
    pair.path_us = [20 * MS, 20 * MS];
    pair.run_until_up();
    pair.advance(500 * MS);
    send(&mut pair, A, 0..1_000);
    (pair, |pair: &Pair| paths(pair, A)[1].sent.packets)
}

#[test]
fn packets_leave_a_path_within_a_quarter_of_a_second_if_others_share_them() {
    let (mut pair, by_second) = alike();
    assert_eq!(by_second(&pair), 0);
    // A moment without answers takes packets off the path, and the next answer takes them back.
    pair.lose_on = Box::new(|path, _| path == 0);
    let (sent, silence_ms) = send(&mut pair, A, 1_000..1_350);
    assert!(silence_ms < 250 && missing(&pair, &sent) < 250, "{silence_ms} ms");
    pair.lose_on = Box::new(|_, _| false);
    let (sent, _) = send(&mut pair, A, 1_350..2_000);
    pair.advance(500 * MS);
    assert_eq!(missing(&pair, &sent), 0);
    let before = by_second(&pair);
    send(&mut pair, A, 2_000..2_500);
    assert_eq!((by_second(&pair), paths(&pair, A)[0].deaths), (before, 0));
}

#[test]
fn a_gateway_that_stands_still_for_a_moment_moves_no_packets_to_another_path() {
    for side in [A, B] {
        let (mut pair, by_second) = alike();
        pair.frozen[side] = true;
        send(&mut pair, A, 1_000..1_300);
        pair.frozen[side] = false;
        send(&mut pair, A, 1_300..2_300);
        assert_eq!(by_second(&pair), 0, "{side}");
    }
}
