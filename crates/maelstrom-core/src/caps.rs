//! Caps on what an egress sends besides Hellos, reports and announcements: repairs, names of packets, answers
//! to requests, and requests.
//!
//! An operator may cap the bit rate (`max_repair_rate`) and the number of repairs for each packet
//! (`overhead_max`). Each cap is a token bucket. Output leaves if no bucket is in debt, and its cost may
//! leave a debt behind. A bucket thus exceeds its cap by at most one repair, however long that is. Output
//! that a cap refuses is counted by kind, and is lost as if by the link. Repairs out of turn wait for the
//! caps instead, as long as their packets are kept.

use fec::RepairRate;

use crate::controller::Targets;
use crate::counters::{Refused, Unsent};

/// The bucket of a bit rate saves this part of a second, and refills at so much less than its rate. Any
/// second therefore sees no more than the rate.
const SAVED_PART: i64 = 16;
/// Share of the bit rate at which its bucket refills.
pub(crate) const REFILL: f64 = 1.0 - 1.0 / SAVED_PART as f64;
/// Millionths of a bit in a byte. A rate of one bit per second is one millionth of a bit per microsecond.
const BYTE: i64 = 8_000_000;
/// Highest bit rate that is told apart from no cap.
const BPS_MAX: u64 = 1_000_000_000_000;
/// Millionths of a repair in a repair.
const REPAIR: i64 = 1_000_000;
/// Maximum number of repairs that the bucket of an overhead saves.
const REPAIRS_SAVED: i64 = 16;
/// Number of ticks for which the share of refused output is counted: a second.
const TICKS: u32 = 10;

/// A cap that an operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// The bit rate.
    BitRate,
    /// The number of repairs for each packet.
    Overhead,
}

impl Cap {
    /// Returns the name of its setting.
    pub fn key(self) -> &'static str {
        match self {
            Cap::BitRate => "max_repair_rate",
            Cap::Overhead => "overhead_max",
        }
    }
}

impl From<Cap> for Unsent {
    fn from(cap: Cap) -> Self {
        match cap {
            Cap::BitRate => Unsent::BitRate,
            Cap::Overhead => Unsent::Overhead,
        }
    }
}

/// Output that the caps refused in the last second in which there was any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// Share of the output that was refused.
    pub share: f64,
    /// The cap that refused most of it.
    pub cap: Cap,
}

/// The caps of one egress.
#[derive(Debug)]
pub(crate) struct Caps {
    bit_rate: Option<BitRate>,
    overhead: Option<Overhead>,
    recent: Recent,
    refusal: Option<Refusal>,
    held: Held,
}

/// Repairs that wait for packets in front of them. Their cost is in the buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    repairs: i64,
    bytes: i64,
}

/// Output since the last sample.
#[derive(Debug, Default)]
struct Recent {
    admitted: u64,
    /// Refused by the bit rate, and by the overhead.
    refused: [u64; 2],
    ticks: u32,
}

/// Bucket of a bit rate.
#[derive(Debug)]
pub(crate) struct BitRate {
    bps: i64,
    /// Millionths of a bit, at `filled_us`.
    level: i64,
    filled_us: u64,
}

/// Bucket of a number of repairs for each packet.
#[derive(Debug)]
struct Overhead {
    rate: RepairRate,
    /// Millionths of a repair.
    level: i64,
}

impl Caps {
    pub(crate) fn new(targets: &Targets) -> Self {
        Self {
            bit_rate: targets.repair_bps_max.map(BitRate::new),
            overhead: targets.overhead_max.map(Overhead::new),
            recent: Recent::default(),
            refusal: None,
            held: Held::default(),
        }
    }

    /// Takes other caps. Buckets of unchanged ones keep what is in them, so that a reload frees nothing.
    pub(crate) fn reconfigure(&mut self, targets: &Targets) {
        let held = self.release();
        self.reconfigure_buckets(targets);
        self.charge(held);
        self.held = held;
    }

    fn reconfigure_buckets(&mut self, targets: &Targets) {
        let new = Self::new(targets);
        if self.bit_rate.as_ref().map(|own| own.bps) != new.bit_rate.as_ref().map(|new| new.bps) {
            self.bit_rate = new.bit_rate;
        }
        if self.overhead.as_ref().map(|own| own.rate) != new.overhead.as_ref().map(|new| new.rate) {
            self.overhead = new.overhead;
        }
    }

    /// Notes that a packet was protected.
    pub(crate) fn on_packet(&mut self) {
        if let Some(overhead) = &mut self.overhead {
            overhead.earn(millionths(overhead.rate));
        }
    }

    /// Notes that the latest packet belongs to a class with a rate. The operator asks for that rate, so that
    /// it raises the cap for this packet.
    pub(crate) fn on_class_rate(&mut self, rate: RepairRate) {
        if let Some(overhead) = &mut self.overhead {
            overhead.earn((millionths(rate) - millionths(overhead.rate)).max(0));
        }
    }

    /// Decides whether output of this kind leaves.
    ///
    /// # Errors
    /// The cap that refuses it.
    pub(crate) fn admit(&mut self, now_us: u64, kind: Refused) -> Result<(), Cap> {
        let cap = if self.bit_rate.as_mut().is_some_and(|bucket| !bucket.is_free(now_us)) {
            Cap::BitRate
        } else if kind != Refused::Request && self.overhead.as_ref().is_some_and(|bucket| bucket.level < 0) {
            Cap::Overhead
        } else {
            self.recent.admitted += 1;
            return Ok(());
        };
        self.recent.refused[cap as usize] += 1;
        Err(cap)
    }

    /// Notes that a datagram of this length on the link left.
    pub(crate) fn on_datagram(&mut self, bytes: usize) {
        if let Some(bucket) = &mut self.bit_rate {
            bucket.level -= bytes as i64 * BYTE;
        }
    }

    /// Notes that a repair, names or an answer left, in one datagram or two.
    pub(crate) fn on_repair(&mut self) {
        if let Some(bucket) = &mut self.overhead {
            bucket.level -= REPAIR;
        }
    }

    /// Notes that a repair waits, which takes a datagram of this length on the link. Others are admitted as
    /// if it had left.
    pub(crate) fn hold(&mut self, bytes: usize) {
        let one = Held { repairs: 1, bytes: bytes as i64 };
        self.charge(one);
        self.held = Held { repairs: self.held.repairs + 1, bytes: self.held.bytes + one.bytes };
    }

    /// Notes that no repair waits any more. Those that leave are charged then, as what the link carries.
    pub(crate) fn release(&mut self) -> Held {
        let held = std::mem::take(&mut self.held);
        self.charge(Held { repairs: -held.repairs, bytes: -held.bytes });
        held
    }

    fn charge(&mut self, held: Held) {
        if let Some(bucket) = &mut self.bit_rate {
            bucket.level -= held.bytes * BYTE;
        }
        if let Some(bucket) = &mut self.overhead {
            bucket.level -= held.repairs * REPAIR;
        }
    }

    /// Time from which output is admitted, if no packet follows.
    pub(crate) fn free_us(&self) -> u64 {
        let paid_us = self.bit_rate.as_ref().map_or(0, BitRate::free_us);
        match &self.overhead {
            Some(bucket) if bucket.level < 0 => u64::MAX,
            _ => paid_us,
        }
    }

    /// Must be called ten times a second.
    pub(crate) fn on_tick(&mut self) {
        self.recent.ticks += 1;
        if self.recent.ticks < TICKS {
            return;
        }
        let Recent { admitted, refused, .. } = std::mem::take(&mut self.recent);
        let [by_rate, by_overhead] = refused;
        let all = admitted + by_rate + by_overhead;
        if all > 0 {
            let share = (by_rate + by_overhead) as f64 / all as f64;
            let cap = if by_rate >= by_overhead { Cap::BitRate } else { Cap::Overhead };
            self.refusal = (share > 0.0).then_some(Refusal { share, cap });
        }
    }

    /// Output that was refused lately.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }
}

impl BitRate {
    pub(crate) fn new(bps: u64) -> Self {
        let bps = bps.min(BPS_MAX) as i64;
        // A cap of 0 lets nothing leave.
        let level = if bps == 0 { -1 } else { Self::saved_max(bps) };
        Self { bps, level, filled_us: 0 }
    }

    fn saved_max(bps: i64) -> i64 {
        bps * (1_000_000 / SAVED_PART)
    }

    /// Millionths of a bit for each microsecond.
    fn refill(&self) -> i64 {
        self.bps - self.bps.div_euclid(SAVED_PART) - i64::from(self.bps % SAVED_PART != 0)
    }

    fn is_free(&mut self, now_us: u64) -> bool {
        let elapsed_us = i64::try_from(now_us.saturating_sub(self.filled_us)).unwrap_or(i64::MAX);
        let filled = self.level.saturating_add(elapsed_us.saturating_mul(self.refill()));
        self.level = filled.min(Self::saved_max(self.bps));
        self.filled_us = self.filled_us.max(now_us);
        self.bps > 0 && self.level >= 0
    }

    /// Takes the cost of a number of bytes if the bucket is not in debt; returns whether it was not.
    pub(crate) fn take(&mut self, now_us: u64, bytes: usize) -> bool {
        let is_free = self.is_free(now_us);
        if is_free {
            self.level -= bytes as i64 * BYTE;
        }
        is_free
    }

    fn free_us(&self) -> u64 {
        let debt = u64::try_from(-self.level).unwrap_or(0);
        match u64::try_from(self.refill()) {
            _ if debt == 0 => 0,
            Ok(refill) if refill > 0 => self.filled_us.saturating_add(debt.div_ceil(refill)),
            _ => u64::MAX,
        }
    }
}

impl Overhead {
    fn new(rate: RepairRate) -> Self {
        Self { rate, level: 0 }
    }

    fn earn(&mut self, millionths: i64) {
        self.level = (self.level + millionths).min(REPAIRS_SAVED * REPAIR);
    }
}

/// Millionths of a repair for each packet at this rate, rounded down.
fn millionths(rate: RepairRate) -> i64 {
    (u64::from(rate.repairs()) * REPAIR as u64 / u64::from(rate.sources())) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::counters::{RefusedCounts, UnsentCounts};

    const SECOND: u64 = 1_000_000;

    struct Egress {
        caps: Caps,
        refused: RefusedCounts,
        unsent: UnsentCounts,
    }

    impl Egress {
        fn new(targets: Targets) -> Self {
            Self {
                caps: Caps::new(&targets),
                refused: RefusedCounts::default(),
                unsent: UnsentCounts::default(),
            }
        }

        /// Offers a repair; returns whether it left.
        fn offer(&mut self, now_us: u64, kind: Refused, bytes: usize) -> bool {
            match self.caps.admit(now_us, kind) {
                Ok(()) => {
                    self.caps.on_datagram(bytes);
                    self.caps.on_repair();
                    true
                }
                Err(cap) => {
                    self.refused.add(kind);
                    self.unsent.add(cap.into());
                    false
                }
            }
        }
    }

    fn bits(bps: u64) -> Targets {
        Targets { repair_bps_max: Some(bps), ..Targets::default() }
    }

    fn overhead(rate: &str) -> Targets {
        Targets { overhead_max: rate.parse().ok(), ..Targets::default() }
    }

    proptest! {
        /// Any traffic, in any order, and any cap: no second sees more than the cap and one datagram.
        #[test]
        fn no_second_exceeds_a_bit_rate_by_more_than_a_datagram(
            bps in prop_oneof![1_u64..5_000, 5_000_u64..2_000_000, 2_000_000_u64..400_000_000],
            offers in prop::collection::vec((0_u64..60_000, 29_usize..1_500, 0_u8..8), 1..600),
        ) {
            let mut egress = Egress::new(bits(bps));
            let (mut now_us, mut sent) = (7 * SECOND, Vec::new());
            for (pause_us, bytes, burst) in offers {
                now_us += if burst < 6 { 0 } else { pause_us };
                if egress.offer(now_us, Refused::Regular, bytes) {
                    sent.push((now_us, bytes));
                }
            }
            for (first, &(from_us, _)) in sent.iter().enumerate() {
                let second = sent[first..].iter().take_while(|(at_us, _)| *at_us <= from_us + SECOND);
                let bytes: Vec<_> = second.map(|(_, bytes)| *bytes as u64).collect();
                let longest = bytes.iter().max().unwrap();
                prop_assert!(8 * bytes.iter().sum::<u64>() <= bps + 8 * longest, "{bytes:?} at {bps}");
            }
        }

        #[test]
        fn packets_pay_for_no_more_repairs_than_the_overhead_allows(
            repairs in 1_u32..9, sources in 1_u32..65,
            steps in prop::collection::vec(0_u32..4, 1..2_000),
        ) {
            let targets = overhead(&format!("{repairs}/{sources}"));
            let mut egress = Egress::new(targets);
            let (mut packets, mut sent) = (0_u64, 0_u64);
            for step in steps {
                if step == 0 {
                    egress.caps.on_packet();
                    packets += 1;
                } else {
                    sent += u64::from(egress.offer(0, Refused::OutOfTurn, 1_000));
                }
                prop_assert!(sent * u64::from(sources) <= packets * u64::from(repairs) + u64::from(sources));
            }
        }
    }

    #[test]
    fn a_cap_is_used_whole_but_for_its_sixteenth() {
        for bps in [64_000, 20_000_000, 1_000_000_000] {
            let mut egress = Egress::new(bits(bps));
            let bytes: u64 =
                (0..100_000).map(|n| 1_000 * u64::from(egress.offer(n * 100, Refused::Regular, 1_000))).sum();
            // Ten seconds, and what was saved at the begin; 80 Mbit/s are offered.
            let most = bps.min(80_000_000) as f64 * 10.0 / 8.0;
            assert!((0.92 * most..=1.01 * most + 1_000.0).contains(&(bytes as f64)), "{bytes} at {bps}");
        }
        let mut egress = Egress::new(overhead("1/8"));
        let mut sent = 0;
        for _ in 0..8_000 {
            egress.caps.on_packet();
            sent += u64::from(egress.offer(0, Refused::Regular, 1_000));
        }
        assert!((999..=1_001).contains(&sent), "{sent}");
    }

    #[test]
    fn repairs_at_the_rate_of_the_cap_are_never_refused() {
        for rate in ["1/64", "1/32", "1/24", "1/3", "3/8", "5/8", "1/1"] {
            let mut egress = Egress::new(overhead(rate));
            let (rate, mut due) = (rate.parse::<RepairRate>().unwrap(), 0);
            for _ in 0..10_000 {
                egress.caps.on_packet();
                due += rate.repairs();
                if due >= rate.sources() {
                    due -= rate.sources();
                    assert!(egress.offer(0, Refused::Regular, 1_000), "{rate}");
                }
            }
        }
    }

    #[test]
    fn what_is_refused_is_counted_by_kind_and_by_cap() {
        let mut egress = Egress::new(Targets { repair_bps_max: Some(1_000), ..overhead("1/64") });
        assert!(egress.offer(0, Refused::Names, 1_250));
        // The debt of 10,000 bits is paid off in 10.6 seconds; the packets of then pay for no repair yet.
        let free_us = egress.caps.bit_rate.as_ref().unwrap().free_us();
        assert!((10 * SECOND..11 * SECOND).contains(&free_us), "{free_us}");
        assert_eq!(egress.caps.free_us(), u64::MAX);
        assert!(!egress.offer(free_us - 1, Refused::Answer, 100));
        assert!(!egress.offer(free_us, Refused::OutOfTurn, 100));
        assert!(egress.offer(free_us, Refused::Request, 100), "requests are no repairs of packets from here");
        (0..192).for_each(|_| egress.caps.on_packet());
        assert!(!egress.offer(free_us, Refused::Regular, 100));
        let counts = |kind| egress.refused.count(kind);
        assert_eq!(
            (counts(Refused::Answer), counts(Refused::OutOfTurn), counts(Refused::Regular)),
            (1, 1, 1)
        );
        assert_eq!((egress.unsent.count(Unsent::BitRate), egress.unsent.count(Unsent::Overhead)), (2, 1));
        (0..10).for_each(|_| egress.caps.on_tick());
        assert_eq!(egress.caps.refusal(), Some(Refusal { share: 0.6, cap: Cap::BitRate }));
    }

    #[test]
    fn a_cap_of_nothing_lets_nothing_leave_and_a_reload_frees_nothing() {
        let mut egress = Egress::new(bits(0));
        assert!((0..100).all(|n| !egress.offer(n * SECOND, Refused::Regular, 100)));
        assert_eq!(egress.caps.free_us(), u64::MAX);
        let mut egress = Egress::new(bits(1_000));
        assert!(egress.offer(0, Refused::Regular, 1_250));
        egress.caps.reconfigure(&bits(1_000));
        assert!(!egress.offer(SECOND, Refused::Regular, 1_250));
        egress.caps.reconfigure(&Targets::default());
        assert!((0..100).all(|_| egress.offer(SECOND, Refused::Regular, 1_250)));
    }

    #[test]
    fn a_class_with_a_rate_pays_for_its_repairs() {
        let mut egress = Egress::new(overhead("1/64"));
        for _ in 0..1_000 {
            egress.caps.on_packet();
            egress.caps.on_class_rate("1/2".parse().unwrap());
            egress.offer(0, Refused::Class, 1_000);
        }
        let refused = egress.refused.count(Refused::Class);
        assert!((495..=505).contains(&refused), "{refused}");
    }
}
