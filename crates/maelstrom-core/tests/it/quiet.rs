//! Repairs out of turn: after a silence, and of sparse traffic.
//!
//! The path is trusted: the tests lose packets but no repairs.

use crate::pair::{A, B, Pair, coin, trusting, udp};
use maelstrom_core::{Config, Schedule};

fn schedules() -> [Schedule; 4] {
    let window = Schedule::Sliding { rate: "3/8".parse().unwrap(), window: 256, density: 15 };
    [Schedule::Auto, Schedule::layered(), Schedule::ReedSolomon { r: 8, c: 3, interleave: 4 }, window]
}

fn up(schedule: &Schedule, max_delay_us: u64) -> Pair {
    Pair::up([A, B].map(|side| Config {
        schedule: schedule.clone(),
        delayed: true,
        max_delay_us,
        ..trusting(side)
    }))
}

/// Repair bytes per hundred source bytes.
fn overhead(pair: &Pair) -> f64 {
    pair.status(A, |peer| 100.0 * peer.egress.repair_bytes as f64 / peer.egress.source_bytes as f64)
}

#[test]
fn repairs_out_of_turn_are_counted_apart() {
    // Regular repairs alone: packets follow each other, and fill each one.
    let rate = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
    let mut pair = up(&rate, 20_000);
    let counts =
        |pair: &Pair| pair.status(A, |peer| (peer.egress.repair_packets, peer.egress.repairs_out_of_turn));
    for n in 0..800 {
        pair.send(A, &udp(A, n, &[7; 1000]), false);
        pair.advance(50);
    }
    assert_eq!(counts(&pair), (100, 0));
    // The first packet of eight waits, and none follows.
    pair.send(A, &udp(A, 800, &[7; 1000]), false);
    pair.advance(100_000);
    let (repairs, out_of_turn) = counts(&pair);
    assert!(out_of_turn > 0 && repairs == 100 + out_of_turn, "{repairs}, {out_of_turn}");
}

/// A sparse stream from A to B.
#[derive(Clone, Copy)]
struct Stream {
    every_us: u64,
    /// Length of each packet in bytes.
    bytes: usize,
    seconds: u64,
    /// One packet of this number is lost.
    lost_of: u64,
}

const VOICE: Stream = Stream { every_us: 20_000, bytes: 200, seconds: 60, lost_of: 16 };

impl Stream {
    /// Sends the stream, and returns the delays after which lost packets were
    /// recovered, ascending.
    fn send(self, pair: &mut Pair) -> Vec<u64> {
        let mut lost = std::collections::HashMap::new();
        let mut delays_us = Vec::new();
        let count = self.seconds * 1_000_000 / self.every_us / self.lost_of * self.lost_of;
        for n in 0..count {
            let packet = udp(A, n as u16, &vec![n as u8; self.bytes - 28]);
            let is_lost = n % self.lost_of == 7;
            if is_lost {
                lost.insert(packet.clone(), pair.now_us);
            }
            pair.send(A, &packet, is_lost);
            for _ in 0..self.every_us / 100 {
                pair.advance(100);
                let now_us = pair.now_us;
                delays_us.extend(pair.recovered[B].drain(..).map(|packet| now_us - lost[&packet]));
            }
        }
        delays_us.sort_unstable();
        delays_us
    }
}

#[test]
fn the_last_packet_before_a_silence_is_recovered_after_two_milliseconds() {
    for schedule in schedules() {
        let mut pair = up(&schedule, 20_000);
        for n in 0..2_005 {
            pair.send(A, &udp(A, n, &[7; 1000]), n == 2_004);
            pair.advance(100);
        }
        pair.advance(1_800);
        assert!(pair.recovered[B].is_empty(), "{schedule}");
        pair.advance(600);
        assert_eq!(pair.recovered[B], [udp(A, 2_004, &[7; 1000])], "{schedule}");
    }
}

/// Without a bound, 50 packets a second would cost 211 % of their bytes with layers, and 412 % if the
/// operator asks for repairs after 5 ms.
#[test]
fn repairs_of_sparse_streams_cost_no_more_than_their_budget() {
    let game = Stream { every_us: 16_667, bytes: 100, seconds: 60, lost_of: 16 };
    let messages = Stream { every_us: 83_333, bytes: 1_000, seconds: 60, lost_of: 16 };
    let many = Stream { every_us: 10_000, bytes: 1_000, seconds: 30, lost_of: 16 };
    let mut table = String::new();
    for (name, stream, out_of_turn) in
        [("voice", VOICE, 80.0), ("game", game, 100.0), ("messages", messages, 66.7), ("many", many, 10.0)]
    {
        for schedule in schedules() {
            for max_delay_us in [5_000, 20_000] {
                let mut pair = up(&schedule, max_delay_us);
                let delays_us = stream.send(&mut pair);
                let code = schedule.code(true, 20_000, 1_512);
                let repair = (stream.bytes + schedule.repair_overhead(false)) as f64 / stream.bytes as f64;
                let most = out_of_turn + 100.0 * code.overhead() * repair;
                let spent = overhead(&pair);
                let at = |share: f64| delays_us[((delays_us.len() - 1) as f64 * share) as usize] / 1_000;
                table += &format!(
                    "{name} {schedule} {max_delay_us}: {spent:.0} % of at most {most:.0} %, {} recovered after {} ms, {} ms\n",
                    delays_us.len(),
                    at(0.5),
                    at(1.0)
                );
                assert!(spent < most + 15.0, "{table}");
            }
        }
    }
    println!("{table}");
}

#[test]
fn voice_is_recovered_in_time_for_its_listener() {
    let mut pair = up(&Schedule::Auto, 20_000);
    let delays_us = VOICE.send(&mut pair);
    assert_eq!(delays_us.len(), 3_000 / 16, "every lost packet");
    let late = delays_us.iter().filter(|&&us| us > 60_000).count();
    assert!(late * 50 < delays_us.len(), "{late} of {}: {delays_us:?}", delays_us.len());
}

/// The packet before a lost one arrived long ago if the stream is sparse.
#[test]
fn the_status_does_not_overstate_the_delay_of_sparse_streams() {
    for schedule in schedules() {
        let mut pair = up(&schedule, 20_000);
        let delays_us = VOICE.send(&mut pair);
        for (quantile, delay_us) in
            [(0.5, delays_us[delays_us.len() / 2]), (1.0, delays_us[delays_us.len() - 1])]
        {
            let stated_us = pair.status(B, |peer| peer.delays_us.value_at_quantile(quantile));
            assert!(stated_us <= delay_us + 1_500, "{schedule}: {stated_us} us in place of {delay_us}");
            assert!(stated_us * 2 + 4_000 >= delay_us, "{schedule}: {stated_us} us in place of {delay_us}");
        }
    }
}

/// A stream may be too slow for the rate of the code and too fast for a silence.
#[test]
fn packets_wait_no_longer_for_a_repair_than_the_deadline() {
    let slow = Schedule::Sliding { rate: "1/64".parse().unwrap(), window: 512, density: 15 };
    let mut pair = up(&slow, 20_000);
    let stream = Stream { every_us: 1_000, bytes: 1_000, seconds: 10, lost_of: 100 };
    let delays_us = stream.send(&mut pair);
    assert_eq!(delays_us.len(), 10_000 / 100);
    // Each repair covers two losses at most, and a later one the second.
    assert!(delays_us[delays_us.len() / 2] <= 20_300, "{delays_us:?}");
    let spent = overhead(&pair);
    assert!(spent < 10.0, "{spent} %");
}

/// TCP that does not fill the link sends a flight in each round trip. Several losses near the end of one
/// would wait for the next flight, so that TCP takes them for lost, and halves its rate.
#[test]
fn losses_at_the_end_of_a_flight_are_recovered_before_tcp_retransmits_them() {
    const TCP_WAITS_US: u64 = 25_000;
    let mut pair = up(&Schedule::Auto, 20_000);
    pair.delay_us = 50_000;
    pair.lose_datagram = Box::new(coin(12, 0.01));
    let mut is_lost = coin(11, 0.01);
    let (mut flights, mut late) = (0, 0);
    for flight in 0..400_u16 {
        let mut missing = std::collections::HashSet::new();
        for n in 0..200_u16 {
            let packet = udp(A, n, &[&flight.to_be_bytes()[..], &[7; 1_000]].concat());
            let loses = is_lost();
            if loses {
                missing.insert(packet.clone());
            }
            pair.send(A, &packet, loses);
            pair.advance(12);
        }
        pair.advance(50_000 + TCP_WAITS_US);
        pair.recovered[B].drain(..).for_each(|packet| {
            missing.remove(&packet);
        });
        // The rate of the code is chosen in the first seconds.
        if flight >= 100 {
            flights += 1;
            late += u32::from(!missing.is_empty());
        }
        pair.advance(100_000 - 50_000 - TCP_WAITS_US);
        pair.recovered[B].clear();
    }
    let choice = pair.status(A, |peer| peer.decision.map(|decision| format!("{decision:?}")));
    assert!(late * 100 <= flights, "{late} of {flights} flights; {choice:?}");
}

#[test]
fn a_lonely_packet_gets_its_repair_though_a_flight_before_it_has_used_up_the_budget() {
    for schedule in schedules() {
        let mut pair = up(&schedule, 20_000);
        for n in 0..200 {
            pair.send(A, &udp(A, n, &[7; 1_000]), false);
            pair.advance(50);
        }
        pair.advance(500_000);
        pair.recovered[B].clear();
        let lost = udp(A, 200, &[8; 1_000]);
        let sent_us = pair.now_us;
        pair.send(A, &lost, true);
        while pair.recovered[B].is_empty() && pair.now_us < sent_us + 1_000_000 {
            pair.advance(1_000);
        }
        let delay_us = pair.now_us - sent_us;
        assert_eq!(pair.recovered[B], [lost], "{schedule:?}");
        assert!(delay_us < 120_000, "{schedule:?}: {delay_us}");
    }
}
