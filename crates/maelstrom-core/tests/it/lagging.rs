//! A far gateway that is short of time: its tap shows packets long after they left, and its repairs come long
//! after their packets. Packets that arrived before this gateway saw any must not count as lost then.

use std::collections::{HashSet, VecDeque};

use maelstrom_core::{Config, Schedule};

use super::pair::{A, B, Pair, coin, payload, trusting, udp};

/// Interval between packets.
const EVERY_US: u64 = 40;

/// A stream from A to B, of which A's tap lags.
struct Stream {
    pair: Pair,
    /// Packets that left, with the times at which they did, and that A's gateway has not seen.
    tap: VecDeque<(u64, Vec<u8>)>,
    lag_us: u64,
    /// Time for which A's gateway works before its repairs leave; it reads the clock before.
    work_us: u64,
    /// Whether B's tap shows what arrives.
    sees: bool,
    lose: Box<dyn FnMut() -> bool>,
    lost: HashSet<Vec<u8>>,
    /// Number of packets in `lost` at the last call of [`Stream::settle`].
    settled: usize,
    sent: u32,
}

impl Stream {
    fn new(schedule: &Schedule, seed: u64) -> Self {
        let config = |side| Config { schedule: schedule.clone(), ..trusting(side) };
        let mut pair = Pair::new([A, B].map(config));
        pair.delay_us = 2_000;
        Self {
            pair,
            tap: VecDeque::new(),
            lag_us: 0,
            work_us: 0,
            sees: true,
            lose: Box::new(coin(seed, 0.02)),
            lost: HashSet::new(),
            settled: 0,
            sent: 0,
        }
    }

    fn up(schedule: &Schedule, seed: u64) -> Self {
        let mut stream = Self::new(schedule, seed);
        stream.pair.run_until_up();
        stream
    }

    /// Sends packets for this time. A's gateway looks at its tap every `turn_us`.
    fn run(&mut self, for_us: u64, turn_us: u64) {
        for _ in 0..for_us / EVERY_US {
            let packet = udp(A, self.sent as u16, &payload(self.sent));
            self.sent += 1;
            let now_us = self.pair.now_us;
            if (self.lose)() {
                self.lost.insert(packet.clone());
            } else if self.sees {
                self.pair.fly(B, packet.clone());
            }
            self.tap.push_back((now_us, packet));
            if now_us.is_multiple_of(turn_us) {
                self.drain();
            }
            self.pair.advance(EVERY_US);
        }
    }

    fn drain(&mut self) {
        let now_us = self.pair.now_us;
        while let Some((left_us, packet)) = self.tap.pop_front_if(|(us, _)| *us + self.lag_us <= now_us) {
            let read_us = now_us - self.work_us;
            self.pair.gateways[A].handle_departed(read_us, left_us, &packet, &mut self.pair.out[A]);
        }
        self.pair.exchange();
    }

    /// Ends the stream. Returns the number of packets lost and recovered since the last call.
    fn settle(&mut self) -> [usize; 2] {
        self.pair.advance(self.lag_us);
        self.drain();
        self.pair.advance(300_000);
        let recovered = std::mem::take(&mut self.pair.recovered[B]);
        let wrong = recovered.iter().filter(|packet| !self.lost.contains(*packet)).count();
        assert_eq!(
            wrong,
            0,
            "of {} packets that were injected, these had arrived; lag {} us",
            recovered.len(),
            self.lag_us
        );
        let before = std::mem::replace(&mut self.settled, self.lost.len());
        [self.lost.len() - before, recovered.len()]
    }

    /// Asserts that losses are recovered, also while the far gateway lags, unless it lags by more packets
    /// than an ingress keeps in any case.
    fn assert_recovers(&mut self, schedule: &Schedule, turn_us: u64) {
        self.settle();
        self.run(500_000, turn_us);
        let [lost, recovered] = self.settle();
        let lag_us = self.lag_us + turn_us + self.work_us;
        let is_kept = lag_us / EVERY_US < 4_096;
        assert!(!is_kept || 10 * recovered > 8 * lost, "{schedule}, {lag_us} us: {recovered} of {lost}");
    }
}

/// Each code, with lags of the far gateway from none to some 15,000 packets.
fn each(mut check: impl FnMut(&Schedule, u64)) {
    let window = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
    for schedule in [Schedule::layered(), window] {
        for lag_us in [0, 3_000, 40_000, 170_000, 600_000] {
            check(&schedule, lag_us);
        }
    }
}

/// Checks a gap of this length. A's gateway looks at its tap every `turn_us`, and then works for `work_us`.
fn check_gap(schedule: &Schedule, lag_us: u64, gap_us: u64, turn_us: u64, work_us: u64) {
    let mut stream = Stream::up(schedule, lag_us + gap_us);
    (stream.lag_us, stream.work_us) = (lag_us, work_us);
    stream.run(200_000, turn_us);
    stream.pair.gateways[B].handle_gap();
    stream.sees = false;
    stream.run(gap_us, turn_us);
    stream.sees = true;
    stream.pair.gateways[B].handle_caught_up(stream.pair.now_us);
    stream.run(700_000, turn_us);
    stream.assert_recovers(schedule, turn_us);
}

#[test]
fn packets_from_before_a_gap_are_not_injected_by_repairs_of_a_far_gateway_that_lags() {
    each(|schedule, lag_us| {
        for (gap_us, turn_us, work_us) in [(1_000, 200, 0), (400_000, 1_000, 0), (20_000, 90_000, 80_000)] {
            check_gap(schedule, lag_us, gap_us, turn_us, work_us);
        }
    });
}

/// The time of sending that repairs state is then long ago when they leave.
#[test]
fn packets_from_before_a_gap_are_not_injected_by_repairs_of_a_far_gateway_that_works_for_long() {
    for gap_us in (0..5).map(|step| 20_000 + 40_000 * step) {
        check_gap(&Schedule::layered(), 170_000, gap_us, 190_000, 180_000);
    }
}

#[test]
fn packets_from_before_a_stall_are_not_injected_by_repairs_of_a_far_gateway_that_lags() {
    each(|schedule, lag_us| {
        let mut stream = Stream::up(schedule, lag_us);
        stream.lag_us = lag_us;
        stream.run(200_000, 1_000);
        stream.pair.frozen[B] = true;
        stream.run(700_000, 1_000);
        stream.pair.frozen[B] = false;
        stream.pair.gateways[B].handle_stall(stream.pair.now_us, 700_000);
        stream.run(500_000, 1_000);
        stream.assert_recovers(schedule, 1_000);
    });
}

#[test]
fn packets_from_before_a_session_are_not_injected_by_repairs_of_a_far_gateway_that_lags() {
    each(|schedule, lag_us| {
        let mut stream = Stream::new(schedule, lag_us);
        stream.lag_us = lag_us;
        stream.run(1_000_000, 1_000);
        stream.assert_recovers(schedule, 1_000);
    });
}
