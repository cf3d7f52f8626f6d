//! One direction of a long-haul link, as a pure state machine: the time is an argument, packets go in and
//! out.
//!
//! A packet passes these stages in order:
//! 1. the finite queue in front of the wire: a packet that does not fit is dropped (tail drop);
//! 2. the wire: packets follow each other at the rate of the link, counted from the IP header on;
//! 3. loss: the packet has used its time on the wire and disappears;
//! 4. corruption (one bit flipped) and duplication;
//! 5. delay, jitter (which keeps the order) and reordering (a share of packets takes longer and is
//!    overtaken).
//!
//! Which packets a seed loses does not depend on the other settings: every effect has its own generator.

mod config;
mod lane;

pub use lane::Arrival;
use lane::Lane;
use loss::chance::{Dice, Probability};
use loss::{Loss, LossModel};

pub use config::{LinkConfig, LinkError, Reorder};

const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;

/// One direction of a link.
///
/// ```
/// use simnet::link::{Fate, Link, LinkConfig};
/// let config = LinkConfig { rate_bps: Some(1_000_000_000), delay_us: 50_000, ..LinkConfig::default() };
/// let mut link = Link::new(&config).unwrap();
/// assert_eq!(link.offer(0, &[7; 1250]), Fate::Carried);
/// // 10 µs on the wire, 50 ms of delay.
/// assert_eq!(link.next_due_us(), Some(50_010));
/// link.deliver(50_010, |arrival| assert_eq!(arrival.packet, [7; 1250]));
/// assert_eq!(link.next_due_us(), None);
/// ```
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    loss: Loss,
    /// Number of changes of the loss model.
    loss_changes: u64,
    dice: AllDice,
    /// Packets in the order of sending.
    ordered: Lane,
    /// Packets that others overtake.
    late: Lane,
    wire_free_ns: u64,
    scratch: Vec<u8>,
    counters: LinkCounters,
}

/// One generator per effect, so that effects do not disturb each other.
#[derive(Debug)]
struct AllDice {
    jitter: Dice,
    reorder: Dice,
    duplicate: Dice,
    corrupt: Dice,
}

/// Fate of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// The packet will arrive, perhaps later than packets behind it.
    Carried,
    /// The packet will arrive twice.
    Duplicated,
    /// The packet will arrive with one bit flipped.
    Corrupted,
    /// The loss model lost the packet on the wire.
    Lost,
    /// The queue in front of the wire was full.
    QueueFull,
    /// The link's memory was full: more packets were in flight than rate, delay and queue can explain.
    Overflow,
}

impl Fate {
    /// Returns whether the packet does not arrive as it was sent.
    pub fn is_loss(self) -> bool {
        !matches!(self, Self::Carried | Self::Duplicated)
    }

    /// Returns the fate of that name.
    pub fn named(name: &str) -> Option<Self> {
        let all =
            [Self::Carried, Self::Duplicated, Self::Corrupted, Self::Lost, Self::QueueFull, Self::Overflow];
        all.into_iter().find(|fate| fate.name() == name)
    }

    /// Returns the name, for logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Carried => "carried",
            Self::Duplicated => "duplicated",
            Self::Corrupted => "corrupted",
            Self::Lost => "lost",
            Self::QueueFull => "queue_full",
            Self::Overflow => "overflow",
        }
    }
}

/// Counters of one direction.
///
/// `offered = lost + queue_full + overflow +` arriving packets `- duplicated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets offered.
    pub offered_packets: u64,
    /// Bytes of the packets offered.
    pub offered_bytes: u64,
    /// Packets delivered at the far end.
    pub delivered_packets: u64,
    /// Bytes of the packets delivered.
    pub delivered_bytes: u64,
    /// Packets lost by the loss model.
    pub lost: u64,
    /// Packets dropped by the full queue.
    pub queue_full: u64,
    /// Packets dropped for lack of memory.
    pub overflow: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets with one bit flipped.
    pub corrupted: u64,
    /// Packets that took longer.
    pub reordered: u64,
}

impl Link {
    /// Makes a link with no packets in flight.
    ///
    /// # Errors
    /// If a setting is out of range; the error names it.
    pub fn new(config: &LinkConfig) -> Result<Self, LinkError> {
        config.check()?;
        let dice = |purpose: u64| Dice::new(config.seed ^ (purpose << 56));
        Ok(Self {
            loss: config.loss.seeded(config.seed),
            loss_changes: 0,
            dice: AllDice { jitter: dice(1), reorder: dice(2), duplicate: dice(3), corrupt: dice(4) },
            ordered: Lane::with_capacity(config.storage_bytes()),
            late: Lane::with_capacity(config.late_storage_bytes()),
            wire_free_ns: 0,
            scratch: Vec::with_capacity(usize::from(u16::MAX)),
            counters: LinkCounters::default(),
            config: config.clone(),
        })
    }

    /// Accepts a packet that reaches the near end at `now_us`; times must not decrease.
    ///
    /// # Panics
    /// If the packet is longer than 65,535 bytes, the maximum of IP.
    pub fn offer(&mut self, now_us: u64, packet: &[u8]) -> Fate {
        assert!(
            packet.len() <= usize::from(u16::MAX),
            "expected a packet of at most 65535 bytes, saw {}",
            packet.len()
        );
        let length = packet.len() as u64;
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += length;
        let Some(sent_ns) = self.send(now_us * NS_PER_US, length) else {
            self.counters.queue_full += 1;
            return Fate::QueueFull;
        };
        if self.loss.lose() {
            self.counters.lost += 1;
            return Fate::Lost;
        }
        let corrupted = self.dice.corrupt.happens(Probability::new(self.config.corrupt));
        let duplicated = self.dice.duplicate.happens(Probability::new(self.config.duplicate));
        if !self.put(sent_ns, packet, corrupted) || (duplicated && !self.put(sent_ns, packet, corrupted)) {
            self.counters.overflow += 1;
            return Fate::Overflow;
        }
        self.counters.duplicated += u64::from(duplicated);
        self.counters.corrupted += u64::from(corrupted);
        match (corrupted, duplicated) {
            (true, _) => Fate::Corrupted,
            (false, true) => Fate::Duplicated,
            (false, false) => Fate::Carried,
        }
    }

    /// Passes queue and wire: returns the time at which the last bit is sent, or `None` if the queue is full.
    fn send(&mut self, now_ns: u64, length: u64) -> Option<u64> {
        let Some(rate) = self.config.rate_bps else { return Some(now_ns) };
        let start = self.wire_free_ns.max(now_ns);
        let waiting = u128::from(start - now_ns) * u128::from(rate) / u128::from(8 * NS_PER_S);
        if waiting + u128::from(length) > u128::from(self.config.queue_bytes()) {
            return None;
        }
        self.wire_free_ns = start + length * 8 * NS_PER_S / rate;
        Some(self.wire_free_ns)
    }

    /// Puts a sent packet in flight; returns `false` if there is no memory.
    fn put(&mut self, sent_ns: u64, packet: &[u8], corrupted: bool) -> bool {
        let jitter_ns = self.dice.jitter.below(self.config.jitter_us * NS_PER_US);
        let mut due_ns = sent_ns + self.config.delay_us * NS_PER_US + jitter_ns;
        let mut lane = &mut self.ordered;
        if let Some(reorder) = &self.config.reorder
            && self.dice.reorder.happens(Probability::new(reorder.share))
        {
            due_ns += reorder.extra_us * NS_PER_US;
            lane = &mut self.late;
            self.counters.reordered += 1;
        }
        if !corrupted || packet.is_empty() {
            return lane.push(due_ns, packet, false);
        }
        let bit = self.dice.corrupt.below(packet.len() as u64 * 8) as usize;
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        self.scratch[bit / 8] ^= 1 << (bit % 8);
        lane.push(due_ns, &self.scratch, true)
    }

    /// Returns when the next packet arrives at the far end, or `None` if none is in flight.
    pub fn next_due_us(&self) -> Option<u64> {
        let due_ns = match (self.ordered.next_due_ns(), self.late.next_due_ns()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        due_ns.map(|ns| ns.div_ceil(NS_PER_US))
    }

    /// Passes the packets that have arrived by `now_us` to `hand_out`, in order of arrival, and returns their
    /// number.
    pub fn deliver(&mut self, now_us: u64, mut hand_out: impl FnMut(Arrival<'_>)) -> usize {
        let now_ns = now_us * NS_PER_US;
        let mut delivered = 0;
        loop {
            let (ordered, late) = (self.ordered.next_due_ns(), self.late.next_due_ns());
            let lane = match (ordered, late) {
                (Some(ordered), Some(late)) if late < ordered => &mut self.late,
                (None, Some(_)) => &mut self.late,
                _ => &mut self.ordered,
            };
            let Some(arrival) = lane.pop_due(now_ns) else { return delivered };
            self.counters.delivered_packets += 1;
            self.counters.delivered_bytes += arrival.packet.len() as u64;
            delivered += 1;
            hand_out(arrival);
        }
    }

    /// Sets another loss model for the packets that follow. Each change has a seed of its own, derived from
    /// the link's, so that models that follow each other do not repeat their draws.
    pub fn set_loss(&mut self, model: &LossModel) {
        self.config.loss = model.clone();
        self.loss_changes += 1;
        self.loss = model.seeded(self.config.seed ^ self.loss_changes.rotate_left(32));
    }

    /// Sets another rate for the packets that follow (`None`: no limit). Queued packets keep their time. The
    /// memory stays that of the original rate: at a much higher rate, packets may overflow and are counted.
    pub fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.config.rate_bps = rate_bps.map(|rate| rate.max(1));
    }

    /// Returns the counters.
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Returns the number of packets in flight.
    pub fn packets_in_flight(&self) -> usize {
        self.ordered.len() + self.late.len()
    }
}

#[cfg(test)]
mod tests;
