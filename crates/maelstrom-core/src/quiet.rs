//! Repairs out of turn: for packets that no regular repair covers soon, because traffic has ceased or is
//! sparse.
//!
//! After a silence of [`SILENCE_US`], what waits for a repair leaves as one. TCP then gets the end of a
//! flight back before its delay looks like a queue, and a sender of single packets does not wait for the next
//! ones. In traffic without such a silence, a packet waits for its first repair no longer than the deadline
//! of the code. A budget bounds both ([`Quiet::paid_us`]), or sparse traffic would pay more for repairs than
//! it is worth.

/// Silence after which packets without repair get one.
pub const SILENCE_US: u64 = 2_000;
/// The round-trip time contains this number of intervals between two repairs out of turn.
const PER_ROUND_TRIP: u64 = 50;
/// It contains this number of times from the repair after a silence to the one that follows it at the end of
/// a flight. All of these then come within a quarter of a round trip of 20 ms or more.
const APARTS: u64 = 64;
/// Shortest such time, and that of a round trip that is not known.
const APART_US: [u64; 2] = [250, SILENCE_US];
/// Silence after which the repair of a packet may be longer than the packet.
const LONELY_US: u64 = 100_000;

/// Loss above which two losses near the end of a flight are so probable that a second repair follows the one
/// after a silence: in each case, and where the budget is ample.
const LOSSY: f64 = 0.02;
const LOSSY_IF_AMPLE: f64 = 0.000_5;
/// Loss above which further ones follow where the budget is ample, and their number.
const VERY_LOSSY_IF_AMPLE: f64 = 0.005;
const FURTHER: u32 = 4;

/// Thousandths of a byte in a byte, the unit of the budget.
const BYTE: i64 = 1_000;
/// Budget for each byte of source packets where they are many: a tenth.
const SHARE: i64 = BYTE / 10;
/// Budget for each microsecond: 64 kbit/s.
const PER_US: i64 = 8;
/// Maximum of each budget that is saved.
const SAVED_MAX: i64 = 8_192 * BYTE;

/// Decides when repairs leave out of turn.
#[derive(Debug)]
pub(crate) struct Quiet {
    last_packet_us: u64,
    /// Interval between two repairs out of turn, at least.
    interval_us: u64,
    /// Time from the repair after a silence to the one that follows it at the end of a flight.
    apart_us: u64,
    next_us: u64,
    /// A tenth of the bytes of source packets, not spent yet. Budgets may be overdrawn by one repair, or by
    /// those of all bins.
    share: i64,
    /// 64 kbit/s, not spent at `filled_us`.
    trickle: i64,
    filled_us: u64,
    /// The bytes of source packets, not spent yet.
    double: i64,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            last_packet_us: 0,
            interval_us: SILENCE_US,
            apart_us: APART_US[1],
            next_us: 0,
            share: SAVED_MAX,
            trickle: SAVED_MAX,
            filled_us: 0,
            double: SAVED_MAX,
        }
    }
}

impl Quiet {
    /// Notes that a packet of `len` bytes left.
    pub(crate) fn on_packet(&mut self, now_us: u64, len: usize) {
        let len = len as i64;
        self.last_packet_us = now_us;
        self.share = (self.share + len * SHARE).min(SAVED_MAX);
        self.double = (self.double + len * BYTE).min(SAVED_MAX);
    }

    /// Notes that repairs of `bytes` bytes left out of turn.
    pub(crate) fn on_repairs(&mut self, now_us: u64, bytes: u64) {
        self.next_us = now_us + self.interval_us;
        let elapsed_us = now_us.saturating_sub(self.filled_us).min(SAVED_MAX as u64) as i64;
        self.filled_us = self.filled_us.max(now_us);
        self.trickle = (self.trickle + elapsed_us * PER_US).min(SAVED_MAX);
        let spent = bytes.min(1 << 32) as i64 * BYTE;
        // Those of lonely packets leave whatever the budgets are. They must not sum up to a debt that later
        // traffic pays.
        let debts = [SAVED_MAX.max(spent), SAVED_MAX.max(spent), spent];
        for (budget, debt_max) in
            [&mut self.share, &mut self.trickle, &mut self.double].into_iter().zip(debts)
        {
            *budget = (*budget - spent).max(-debt_max);
        }
    }

    /// Changes the round-trip time, which may be unknown.
    pub(crate) fn set_rtt(&mut self, rtt_us: Option<u64>) {
        self.interval_us = SILENCE_US.max(rtt_us.unwrap_or(0) / PER_ROUND_TRIP);
        self.apart_us = rtt_us.map_or(APART_US[1], |rtt_us| APART_US[0].max(rtt_us / APARTS));
    }

    /// End of the silence after which packets that wait for a repair get one, if no packet follows.
    pub(crate) fn silent_us(&self) -> u64 {
        self.last_packet_us + SILENCE_US
    }

    /// Whether the budget allows many repairs at a time.
    pub(crate) fn is_rich(&self) -> bool {
        self.double.min(self.share.max(self.trickle)) > SAVED_MAX / 2
    }

    /// Number of repairs that follow the one after a silence on a link with this loss.
    pub(crate) fn further(&self, loss: f64) -> u32 {
        let is_ample = self.share > SAVED_MAX / 2;
        if is_ample && loss > VERY_LOSSY_IF_AMPLE {
            FURTHER
        } else {
            u32::from(loss > if is_ample { LOSSY_IF_AMPLE } else { LOSSY })
        }
    }

    /// Time from `due_us` on at which repairs may leave, if no packet follows: 2 ms and a fiftieth of the
    /// round-trip time after the ones before, at least, and when the budget allows.
    pub(crate) fn paid_us(&self, due_us: u64) -> u64 {
        self.afforded_us(due_us.max(self.next_us))
    }

    /// Time from `due_us` on at which the budget allows repairs, if no packet follows. They take a tenth of
    /// the bytes of the source packets, or 64 kbit/s if that is more, but no more than the source packets
    /// themselves. When these have ceased for some time, repairs leave at any rate: those of the silence
    /// before may have used up the budget of seconds.
    pub(crate) fn afforded_us(&self, due_us: u64) -> u64 {
        let trickle_us =
            if self.trickle > 0 { 0 } else { self.filled_us + (-self.trickle / PER_US) as u64 + 1 };
        let paid_us = if self.share > 0 { 0 } else { trickle_us };
        let lonely_us = self.last_packet_us + LONELY_US;
        let doubled_us = if self.double > 0 { 0 } else { lonely_us };
        due_us.max(paid_us.max(doubled_us).min(lonely_us))
    }
}

/// Repairs that follow the last one of a flight, until a packet leaves.
///
/// That one recovers one of the losses near the end of a flight. If several are missing, the receiver would
/// wait for the next flight, and TCP takes what is late by a quarter of a round trip for lost (RFC 8985
/// §6.2).
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Whether a packet has left since the last silence.
    is_open: bool,
    next_us: Option<u64>,
    interval_us: u64,
    left: u32,
}

impl Tail {
    /// Notes that a packet left.
    pub(crate) fn on_packet(&mut self) {
        *self = Self { is_open: true, ..Self::default() };
    }

    /// Whether a silence would begin the tail.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Begins with `count` repairs, each after one and a half times the time of the one before it.
    pub(crate) fn begin(&mut self, now_us: u64, quiet: &Quiet, count: u32) {
        *self = Self { is_open: false, next_us: None, interval_us: quiet.apart_us, left: count };
        self.proceed(now_us);
    }

    fn proceed(&mut self, now_us: u64) {
        self.next_us = (self.left > 0).then_some(now_us + self.interval_us);
        self.left = self.left.saturating_sub(1);
        self.interval_us += self.interval_us / 2;
    }

    /// Time of the next repair.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.next_us
    }

    /// Takes the next repair if it is due; returns whether it is.
    pub(crate) fn take_due(&mut self, now_us: u64) -> bool {
        let is_due = self.next_us.is_some_and(|due_us| due_us <= now_us);
        if is_due {
            self.proceed(now_us);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets of `len` bytes at an interval for ten seconds, and a repair of `repair` bytes whenever
    /// one is due and a packet waits. Returns the bytes of repairs in per mille of those of packets, and the
    /// shortest interval between repairs.
    fn spent(every_us: u64, len: usize, repair: u64, rtt_us: u64) -> (u64, u64) {
        let mut quiet = Quiet::default();
        quiet.set_rtt(Some(rtt_us).filter(|&rtt_us| rtt_us > 0));
        let (mut last_us, mut shortest_us, mut bytes) = (None, u64::MAX, 0);
        let count = 10_000_000 / every_us;
        for n in 0..count {
            let now_us = 1_000_000 + n * every_us;
            quiet.on_packet(now_us, len);
            let due_us = quiet.paid_us(quiet.silent_us());
            if due_us < now_us + every_us {
                assert!(due_us >= now_us + SILENCE_US, "no silence before");
                quiet.on_repairs(due_us, repair);
                bytes += repair;
                shortest_us = shortest_us.min(last_us.map_or(u64::MAX, |last_us| due_us - last_us));
                last_us = Some(due_us);
            }
        }
        (bytes * 1_000 / (count * len as u64), shortest_us)
    }

    #[test]
    fn repairs_out_of_turn_take_a_tenth_of_the_bytes_or_64_kbit_s_but_no_more_than_the_packets() {
        // Packets with more than 640 kbit/s; with 80 kbit/s; with 16 kbit/s.
        for (every_us, len, repair, permille) in [
            (2_500, 1_000, 1_190, 90..=111),
            (12_000, 1_000, 1_190, 95..=112),
            (20_000, 200, 330, 760..=890),
            (50_000, 100, 230, 900..=1_450),
        ] {
            let (spent, _) = spent(every_us, len, repair, 0);
            assert!(permille.contains(&spent), "{len} bytes each {every_us} us: {spent} in a thousand");
        }
        // A single packet a second always gets its repair.
        assert_eq!(spent(1_000_000, 1_000, 1_190, 0).0, 1_190);
    }

    #[test]
    fn the_end_of_a_flight_gets_more_repairs_on_a_lossy_link() {
        let mut quiet = Quiet::default();
        assert_eq!([0.0, 0.000_1, 0.001, 0.01, 0.1].map(|loss| quiet.further(loss)), [0, 0, 1, 4, 4]);
        let mut tail = Tail::default();
        tail.begin(1_000, &quiet, 3);
        let times_us: Vec<u64> = (1_000..100_000).filter(|&now_us| tail.take_due(now_us)).collect();
        assert_eq!(times_us, [3_000, 6_000, 10_500]);
        tail.begin(1_000, &quiet, 0);
        assert_eq!(tail.due_us(), None);
        // A stream of small packets, whose repairs take more than a tenth.
        (0..100).for_each(|n| {
            quiet.on_packet(n, 100);
            quiet.on_repairs(n, 250);
        });
        assert_eq!([0.001, 0.01, 0.1].map(|loss| quiet.further(loss)), [0, 0, 1]);
    }

    /// Each ping gets its repair, which is longer than the ping.
    #[test]
    fn a_night_of_pings_takes_nothing_from_the_next_call_or_connection() {
        const SECOND_US: u64 = 1_000_000;
        let night = || {
            let mut quiet = Quiet::default();
            for second in 1..=5_000 {
                quiet.on_packet(second * SECOND_US, 84);
                quiet.on_repairs(second * SECOND_US + 100_000, 214);
            }
            quiet
        };
        let mut quiet = night();
        let in_time = (0..50u64).filter(|at| {
            let now_us = 5_001 * SECOND_US + at * 20_000;
            quiet.on_packet(now_us, 200);
            let due_us = quiet.paid_us(quiet.silent_us());
            let is_in_time = due_us < now_us + 20_000;
            if is_in_time {
                quiet.on_repairs(due_us, 330);
            }
            is_in_time
        });
        assert!(in_time.count() >= 25, "as many as its bytes pay for");
        let mut quiet = night();
        (0..150).for_each(|n| quiet.on_packet(5_001 * SECOND_US + 10 * n, 1_300));
        assert_eq!(quiet.further(0.01), FURTHER, "one flight wins back what the night took");
    }

    /// TCP takes a packet for lost that is late by a quarter of the round trip.
    #[test]
    fn the_end_of_a_flight_is_repaired_within_a_quarter_of_a_round_trip_of_20_ms_or_more() {
        for rtt_us in [20_000, 40_000, 100_000, 500_000] {
            let mut quiet = Quiet::default();
            quiet.set_rtt(Some(rtt_us));
            quiet.on_packet(1_000_000, 1_000);
            let mut tail = Tail::default();
            let silent_us = quiet.silent_us();
            quiet.on_repairs(silent_us, 1_200);
            tail.begin(silent_us, &quiet, quiet.further(0.05));
            let mut times_us = vec![silent_us];
            while let Some(due_us) = tail.due_us() {
                assert_eq!(quiet.afforded_us(due_us), due_us, "the budget suffices");
                assert!(tail.take_due(due_us));
                quiet.on_repairs(due_us, 1_200);
                times_us.push(due_us);
            }
            assert_eq!(times_us.len(), 5);
            assert!(times_us[4] < 1_000_000 + rtt_us / 4, "{times_us:?} at {rtt_us}");
        }
        let mut quiet = Quiet::default();
        let mut first_us = |rtt_us| {
            quiet.set_rtt(rtt_us);
            let mut tail = Tail::default();
            tail.begin(0, &quiet, 1);
            tail.due_us().unwrap()
        };
        assert_eq!([Some(1_000), None].map(&mut first_us), APART_US);
    }

    #[test]
    fn repairs_out_of_turn_leave_a_fiftieth_of_a_round_trip_apart() {
        for (rtt_us, least_us) in [(0, 2_000), (100_000, 2_000), (500_000, 10_000)] {
            let (_, shortest_us) = spent(2_100, 100, 10, rtt_us);
            assert!(shortest_us >= least_us, "{shortest_us} at a round trip of {rtt_us}");
        }
    }
}
