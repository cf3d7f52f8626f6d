//! Paths that change while packets flow, or while a gateway stands still.

use crate::pair::{A, B, Pair, coin, config};
use crate::path::{has, packet, pair, prove};
use maelstrom_core::counters::Rejected;
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::{Finding, Gateway};

fn has_doubt(pair: &Pair) -> bool {
    [Finding::Rewritten, Finding::Elsewhere, Finding::PartlyElsewhere].iter().any(|&found| has(pair, found))
}

/// A NAT gives flows other ports for a while, again and again.
#[test]
fn a_nat_that_changes_ports_now_and_then_delivers_few_packets_twice() {
    for changing in [1, 4] {
        let mut pair = pair();
        for n in 0..60_000u32 {
            let flow = (n % 6) as u16;
            let bytes = packet(flow, n);
            if flow < changing && n / 3_000 % 2 == 1 {
                pair.leave(A, &bytes);
                let mut rewritten = bytes;
                rewritten[20] ^= 0x40;
                pair.fly(B, rewritten);
            } else {
                pair.send(A, &bytes, false);
            }
            pair.advance(500);
        }
        pair.advance(3_000_000);
        let twice = pair.recovered[B].len();
        assert!(twice <= 60, "{twice} of 60,000 packets, {changing} flows");
    }
}

/// A link aggregate moves half of the flows to a road past the gateways, each time another half.
#[test]
fn flows_that_move_now_and_then_are_rarely_delivered_twice() {
    let mut pair = pair();
    for n in 0..100_000u32 {
        let (flow, phase) = ((n % 40) as u16, n / 5_000);
        let moved = phase % 2 == 1 && (u32::from(flow) + phase / 2) % 4 < 2;
        pair.send(A, &packet(flow, n), moved);
        pair.advance(300);
    }
    pair.advance(3_000_000);
    let twice = pair.recovered[B].len();
    assert!(twice <= 150, "{twice} of 100,000 packets");
}

/// The flow takes another path from the moment at which the gateway stands still.
#[test]
fn a_detour_that_begins_during_a_stall_is_noticed_as_soon() {
    for (stalled, us) in [(A, 400_000), (B, 400_000), (B, 2_000_000), (B, 12_000_000)] {
        let mut pair = pair();
        pair.delay_us = 5_000;
        let stream = |pair: &mut Pair, numbers: std::ops::Range<u32>, moved: bool| {
            for n in numbers {
                pair.send(A, &packet((n % 2) as u16, n), moved && n % 2 == 0);
                pair.advance(1_000);
            }
        };
        stream(&mut pair, 0..2_000, false);
        pair.frozen[stalled] = true;
        stream(&mut pair, 2_000..2_000 + (us / 1_000) as u32, true);
        pair.frozen[stalled] = false;
        let now_us = pair.now_us;
        pair.gateways[stalled].handle_stall(now_us, us);
        stream(&mut pair, 20_000..24_000, true);
        pair.advance(1_000_000);
        let twice = pair.recovered[B].len();
        assert!(twice <= 3, "{twice}, side {stalled} stood still for {us} us");
        assert!(has(&pair, Finding::PartlyElsewhere));
    }
}

/// Sends packets of which some are lost together with all repairs, and returns the repairs.
fn recorded(pair: &mut Pair) -> Vec<Vec<u8>> {
    prove(pair, 50);
    pair.sent_datagrams = Some(Vec::new());
    pair.mute[A] = true;
    for n in 0..200 {
        pair.send(A, &packet(0, n), n % 7 == 3);
        pair.advance(1_000);
    }
    pair.mute[A] = false;
    pair.sent_datagrams.take().unwrap()
}

/// Lets time pass.
type Pass = fn(&mut Pair);

/// A liar on the way records all datagrams and repeats them later.
#[test]
fn datagrams_that_are_repeated_later_inject_nothing_and_raise_no_doubt() {
    let later: [(&str, Pass); 4] = [
        ("after a while", |pair| pair.advance(20_000_000)),
        ("after a stall", |pair| {
            pair.advance(1_000_000);
            let now_us = pair.now_us;
            pair.gateways[B].handle_stall(now_us, 400_000);
            pair.advance(1_000_000);
        }),
        ("after a restart", |pair| {
            pair.gateways[A] = Gateway::new(config(A), [91; 32]).unwrap();
            pair.advance(3_000_000);
        }),
        ("hours later", |pair| pair.advance(7_300_000_000)),
    ];
    for (when, pass) in later {
        let mut pair = pair();
        let datagrams = recorded(&mut pair);
        pass(&mut pair);
        pair.recovered[B].clear();
        for n in 0..2_000 {
            pair.send(A, &packet(0, 10_000 + n), false);
            if let Some(datagram) = datagrams.get(n as usize / 4) {
                pair.inject(B, datagram);
            }
            pair.advance(1_000);
        }
        assert!(datagrams.len() > 40, "{}", datagrams.len());
        assert!(pair.recovered[B].is_empty(), "{when}: {} injected", pair.recovered[B].len());
        assert!(!has_doubt(&pair) && pair.status(B, |peer| peer.is_recovering && peer.is_up), "{when}");
        if when != "after a while" {
            let refused = [Rejected::Replayed, Rejected::UnknownEpoch, Rejected::Forged];
            let refused: u64 = refused.map(|reason| pair.gateways[B].rejected().count(reason)).iter().sum();
            assert!(refused >= datagrams.len() as u64 - 10, "{when}: {refused} of {}", datagrams.len());
        }
    }
}

/// A bonded link sends each packet over all of its cables, and loses whole packets beside that.
#[test]
fn a_link_that_delivers_packets_twice_is_protected_as_any_other() {
    for share in [0.2, 1.0] {
        let mut pair = pair();
        prove(&mut pair, 100);
        let (mut lose, mut again, mut lost) = (coin(71, 0.02), coin(72, share), 0);
        pair.lose_datagram = Box::new(coin(73, 0.02));
        for n in 0..12_000u32 {
            let (bytes, is_lost) = (packet((n % 5) as u16, n), lose());
            pair.send(A, &bytes, is_lost);
            lost += usize::from(is_lost);
            if !is_lost && again() {
                let mut second = bytes;
                let fields = Packet::new_checked(&second).unwrap().mutable_fields();
                restore(&mut second, MutableFields { ttl: fields.ttl - 1, ..fields });
                pair.fly(B, second);
            }
            pair.advance(1_000);
            assert!(!has_doubt(&pair), "packet {n}, share {share}");
        }
        pair.lose_datagram = Box::new(|| false);
        pair.advance(3_000_000);
        let recovered = pair.recovered[B].len();
        assert!(10 * recovered >= 9 * lost && recovered <= lost, "{recovered} of {lost}, share {share}");
    }
}
