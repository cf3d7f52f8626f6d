//! Windows at low rates: repairs that fit the path, and names that travel apart from them.

use super::*;

/// Repairs at a lower rate are longer. None is cut in two for the sake of a low rate.
#[test]
fn auto_raises_the_rate_where_repairs_at_a_lower_one_would_not_fit_the_path() {
    let auto = |side| Config { schedule: Schedule::Auto, ..config(side) };
    let mut pair = Pair::up([auto(A), auto(B)]);
    let code = |pair: &Pair| pair.status(A, |peer| peer.code.to_string());
    let send = |pair: &mut Pair, count: u16, bytes: usize| {
        for n in 0..count {
            pair.send(A, &udp(A, n, &vec![n as u8; bytes - 28]), false);
            pair.advance(1_000);
        }
    };
    send(&mut pair, 800, 1_300);
    // At 1,000 packets a second few come in time, so that a window costs no more than 48 products a packet.
    assert_eq!(code(&pair), "sliding (384; 1/8)");
    send(&mut pair, 800, 1_310);
    assert_eq!(code(&pair), "sliding (288; 1/6)");
    // No rate fits these packets, so that they call for none.
    send(&mut pair, 1, 1_500);
    assert_eq!(code(&pair), "sliding (288; 1/6)");
    let cut = pair.status(A, |peer| peer.egress.cut_in_two);
    assert!(cut <= 288 / 6 + 1, "{cut} repairs cut in two, beyond those that contain the longest packet");
    for _ in 0..2 {
        pair.advance(61_000_000);
        send(&mut pair, 8, 1_000);
    }
    pair.advance(1_000_000);
    assert_eq!(code(&pair), "sliding (512; 1/40)");
}

/// Names travel apart from repairs, so that repairs of low rates fit the MTU.
#[test]
fn repairs_of_low_rates_fit_and_take_at_most_four_per_cent() {
    for (rate, percent) in [("1/16", 7.5), ("1/24", 5.2), ("1/32", 4.0), ("1/40", 3.4)] {
        let mut pair = up(rate, 512);
        let before = pair.status(A, |peer| *peer.egress);
        for n in 0..6_400u32 {
            pair.send(A, &udp(A, n as u16, &vec![n as u8; 1_300 - 28]), false);
            pair.advance(50);
        }
        let sent = pair.status(A, |peer| *peer.egress);
        assert_eq!(sent.cut_in_two, 0, "{rate}: a repair of packets of 1,300 bytes fits into 1,500");
        let bytes = (sent.repair_bytes - before.repair_bytes) as f64 / sent.source_bytes as f64;
        assert!(100.0 * bytes <= percent, "{rate}: {:.3} %", 100.0 * bytes);
        assert!(pair.recovered[B].is_empty());
    }
}

#[test]
fn low_rates_recover_bursts_and_scattered_losses() {
    for (rate, seed) in [("1/16", 3), ("1/32", 4), ("1/40", 5)] {
        let mut pair = up(rate, 512);
        let lost = stream(&mut pair, 30_000, coin(seed, 0.002), coin(seed + 20, 0.002));
        assert!(lost.len() > 40, "{} lost", lost.len());
        let recovered: HashSet<_> = pair.recovered[B].iter().cloned().collect();
        assert_eq!(recovered.len(), pair.recovered[B].len(), "{rate}: injected twice");
        let missed = lost.iter().filter(|packet| !recovered.contains(*packet)).count();
        assert!(missed * 50 <= lost.len(), "{rate}: {missed} of {}", lost.len());
        assert_eq!(recovered.len() + missed, lost.len(), "{rate}: packets that arrived");
        nothing_went_wrong(&pair);
    }
}

/// A datagram of names brings what a lost repair would have named.
#[test]
fn names_apart_replace_those_of_a_lost_repair() {
    let mut pair = up("1/16", 512);
    for n in 0..2_000 {
        // The repair after packet 1,007 is lost; the datagram of names after 1,031 is not.
        pair.lose_datagram = Box::new(move || (1_000..1_010).contains(&n));
        pair.send(A, &packet(n), n == 1_003);
        pair.advance(200);
        let expected = usize::from(n >= 1_031);
        assert_eq!(pair.recovered[B].len(), expected, "after packet {n}");
    }
    assert_eq!(pair.recovered[B], [packet(1_003)]);
    nothing_went_wrong(&pair);
}

/// Where the link loses repairs, the next datagram of names makes up for a lost repair and a lost datagram.
#[test]
fn a_third_copy_of_names_replaces_two_lost_ones() {
    let mut pair = up("1/16", 512);
    for n in 0..20_000 {
        // One repair in fifty is lost. Then the repair after packet 19,215, and the names after 19,271.
        let is_lost =
            if n < 19_000 { n / 16 % 50 == 25 } else { (19_208..19_216).contains(&n) || n == 19_271 };
        pair.lose_datagram = Box::new(move || is_lost);
        pair.send(A, &packet(n), n == 19_210);
        pair.advance(200);
        assert_eq!(pair.recovered[B].len(), usize::from(n >= 19_335), "after packet {n}");
    }
    assert_eq!(pair.recovered[B], [packet(19_210)]);
    nothing_went_wrong(&pair);
}

/// Wherever a loss lies between repairs and datagrams of names, and whichever single datagram is lost.
#[test]
fn at_a_low_rate_a_loss_is_recovered_wherever_it_lies() {
    let mut pair = up("1/32", 512);
    let mut lost = Vec::new();
    for n in 0..65_000u32 {
        let (round, at) = (n / 1_000, n % 1_000);
        // Each round loses another packet of a block of 128, and every other one a repair or names.
        let is_lost = at == 100 + 2 * round;
        let is_muted = round % 2 == 1 && (200 + 4 * round..208 + 4 * round).contains(&at);
        pair.mute[A] = is_muted;
        pair.send(A, &packet(n), is_lost);
        pair.mute[A] = false;
        lost.extend(is_lost.then(|| packet(n)));
        pair.advance(100);
    }
    assert_same(&pair.recovered[B], &lost, "one in a thousand");
}

/// Repairs of packets that were captured together leave as a train, which a burst of losses takes whole.
#[test]
fn names_of_a_lost_train_follow_in_a_later_one() {
    for rate in ["1/12", "1/16", "1/24"] {
        let mut pair = up(rate, 512);
        let mut lost = Vec::new();
        for n in 0..20_000u32 {
            let (train, at) = (n / 50 % 10, n % 50);
            let is_lost = train == 5 && at == 25;
            pair.mute[A] = train == 0;
            pair.send(A, &packet(n), is_lost);
            pair.mute[A] = false;
            lost.extend(is_lost.then(|| packet(n)));
            if at == 49 {
                pair.advance(700);
            }
        }
        pair.advance(100_000);
        assert_same(&pair.recovered[B], &lost, rate);
    }
}
