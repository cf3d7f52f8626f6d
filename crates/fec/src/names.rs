//! Choice of the packets that a sliding window's repair names.
//!
//! To subtract a packet from a repair, a receiver must know the packet's position in the stream. A repair of
//! a layer or a block names all its packets; a window's repair has no room for that. It names its *new*
//! packets, which left after the previous repair, and again the packets that were new in two earlier repairs.
//! Until a name of a packet arrives, the packet is an unknown of the equations, as if it were lost.
//!
//! At rates below 1/8 three copies would make repairs too long where packets are nearly as long as the MTU.
//! There a repair names its newest packets once, and further copies of names travel *apart*, in datagrams of
//! their own: one copy, or two where the link loses repairs.

use crate::rate::RepairRate;
use std::ops::Range;

/// Maximum number of packets that a repair names.
pub const NAMES_MAX: usize = 64;
/// Number of repairs that name a packet, where there is room.
const COPIES: usize = 3;

/// Maximum number of names in a repair whose further names travel apart: as many as at 1/8.
const BESIDE_MAX: usize = 24;
/// Maximum number of names in a datagram of names.
pub const APART_MAX: usize = 208;
/// Maximum number of newest packets whose second copy waits for a later datagram of names.
pub const HELD_MAX: u64 = 128;

/// Whether copies of names travel apart from repairs at this rate.
pub fn are_apart(rate: RepairRate) -> bool {
    COPIES * stride(rate) > BESIDE_MAX
}

/// Maximum number of packets that a repair names at this rate: the new ones, and as many copies as fit,
/// unless copies travel apart.
pub fn per_repair(rate: RepairRate) -> usize {
    Sizes::of(rate, true).names
}

/// Share of lost repairs from which names have a third copy where they travel apart, and below which they
/// have two again.
///
/// If a repair and the datagram with its names are both lost, all packets between two repairs are unknown at
/// once, which takes as many repairs as a burst of that length. At 1/32 and a loss of 1 % this happens once
/// in 320,000 packets with two copies, and once in 32 million with three.
const LOSSY: [f64; 2] = [0.003, 0.0015];

/// Number of packets between two datagrams of names, and of names in each, at this rate, where the link loses
/// hardly any repairs. Every packet is named twice in all.
pub fn apart(rate: RepairRate) -> Option<[u64; 2]> {
    Apart::of(rate, false).map(|apart| [apart.every, apart.names])
}

/// Datagrams of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Apart {
    /// Number of packets between two datagrams.
    every: u64,
    /// Number of names in each.
    names: u64,
    /// Whether repairs have room for a name of each packet.
    is_beside: bool,
}

impl Apart {
    /// Sizes at this rate, unless all names travel in repairs. `is_lossy`: whether a packet is named by two
    /// datagrams, and not by one.
    ///
    /// A longer distance saves headers at the rates at which repairs have no room for a name of each packet.
    /// There a datagram also repeats the names of those that no repair has named.
    fn of(rate: RepairRate, is_lossy: bool) -> Option<Self> {
        if !are_apart(rate) {
            return None;
        }
        let stride = stride(rate) as u64;
        let is_beside = stride <= BESIDE_MAX as u64;
        // A whole number of repairs lies between two datagrams, so that each finds equally many packets
        // unnamed.
        let longest = if is_beside || is_lossy { 64 } else { 128 };
        let every = if is_beside { longest } else { (longest / stride).max(1) * stride };
        let nowhere_else = if is_beside { 0 } else { every - every / stride * BESIDE_MAX as u64 };
        let copies = if is_lossy { 2 } else { 1 };
        Some(Self { every, names: copies * every + nowhere_else, is_beside })
    }
}

/// Number of packets by which a datagram of names follows a repair, so that a short burst does not take both.
/// At low rates it is the number of packets for which a repair has no room.
fn lag(rate: RepairRate) -> u64 {
    let stride = stride(rate) as u64;
    stride.checked_sub(BESIDE_MAX as u64).filter(|&lag| lag > 0).unwrap_or(stride / 2)
}

/// The names of one repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    /// Number of packets that a repair names where it can.
    names: usize,
    /// Number of repairs that name a packet.
    copies: usize,
    /// Maximum number of new packets named.
    newest: usize,
}

impl Sizes {
    fn of(rate: RepairRate, may_be_apart: bool) -> Self {
        // A repair that follows a rise of the rate has more new packets than its rate plans, but no repair
        // may be longer than those at 1/8: the LAN's MTU was chosen for them.
        let newest = if may_be_apart { BESIDE_MAX } else { NAMES_MAX };
        if may_be_apart && are_apart(rate) {
            return Self { names: stride(rate).min(BESIDE_MAX), copies: 1, newest };
        }
        let copies = copies(rate);
        Self { names: (copies * stride(rate)).min(NAMES_MAX), copies, newest }
    }
}

/// Number of repairs that can name a packet at this rate.
fn copies(rate: RepairRate) -> usize {
    (1..=COPIES).rev().find(|copies| copies * stride(rate) <= NAMES_MAX).unwrap_or(1)
}

/// Distance in repairs at which no recoverable burst loses both repairs: 1 + ⌈W · a² / (a + b)²⌉ at a rate of
/// a / b, at least 2.
pub fn spread(rate: RepairRate, window: u16) -> usize {
    // The squares have up to 66 bits, the window 16.
    let (repairs, sources) = (u128::from(rate.repairs()), u128::from(rate.sources()));
    let share = (repairs + sources) * (repairs + sources);
    // The result fits: the share of repairs is below 1, so it is at most the window and 1.
    (1 + (u128::from(window) * repairs * repairs).div_ceil(share) as usize).max(2)
}

/// Whether repairs that name all their packets recover more, if this share of repairs is lost. A packet whose
/// names are all lost is an unknown like a lost one, and too many unknowns make all equations useless.
pub fn are_too_few(rate: RepairRate, repair_loss: f64) -> bool {
    let copies = if are_apart(rate) { 2 } else { copies(rate) };
    let nameless = repair_loss.powi(copies as i32);
    nameless > (1.0 - repair_loss) * rate.as_f64() / 2.0
}

/// Number of packets between two repairs, rounded up. In a shorter window some packets would be in no repair.
pub fn stride(rate: RepairRate) -> usize {
    rate.sources().div_ceil(rate.repairs().max(1)) as usize
}

/// Remembers which packets each repair named, by their positions in the stream.
///
/// ```
/// use fec::{RepairRate, names::Names};
///
/// // A repair for every second packet, with copies of a name in the next repair and the one after it.
/// let mut names = Names::new(RepairRate::new(1, 2).unwrap(), [1, 2], 2, 0);
/// let named: Vec<_> = (1..8).step_by(2).map(|last| names.next(0, last)).collect();
/// assert_eq!(named[3], [2..4, 4..6, 6..8]);
/// ```
#[derive(Debug)]
pub struct Names {
    /// Distances in repairs of the second and the third copy of a name from the first.
    distances: [usize; COPIES - 1],
    /// Whether names may travel apart.
    may_be_apart: bool,
    is_apart: bool,
    /// Whether names have stopped to travel apart, and those that were to do so are still owed.
    is_leaving: bool,
    /// Whether the link loses enough repairs for names to have a third copy where they travel apart.
    is_lossy: bool,
    /// The last rate at which names travelled apart, and the datagrams of names at that rate.
    apart_at: Option<(RepairRate, Apart)>,
    sizes: Sizes,
    /// The next datagram of names is due a while after this packet.
    apart: u64,
    /// First packet of the stream.
    start: u64,
    /// Packets before this one have been named apart.
    covered: u64,
    /// The same before the last datagram of names.
    covered_before: u64,
    /// Packets from this one on had no name in a repair before the last datagram of names.
    unrepaired: u64,
    /// Packets before this one have been named once, while names travel apart.
    first: u64,
    /// Packets from this one on have a name in repairs since the newest packet, while names travel apart.
    repeated: u64,
    /// Ring of the positions just behind the newest packet of each of the last repairs.
    ends: Box<[u64]>,
    repairs: usize,
    /// Packets before this one need no second copy of their names.
    second: u64,
    /// Packets before this one need no third copy of their names.
    third: u64,
}

impl Names {
    /// Starts at packet `next` of a stream. Copies of a name follow the first at `distances`, in repairs; no
    /// later rate may set a distance above `reach`.
    ///
    /// # Panics
    /// If the distances do not increase from above 0.
    pub fn new(rate: RepairRate, distances: [usize; 2], reach: usize, next: u64) -> Self {
        check(distances);
        let ends = reach.max(distances[1]) + 2;
        Self {
            distances,
            may_be_apart: true,
            is_apart: are_apart(rate),
            is_leaving: false,
            is_lossy: false,
            apart_at: Apart::of(rate, false).map(|apart| (rate, apart)),
            sizes: Sizes::of(rate, true),
            apart: next + lag(rate),
            start: next,
            covered: next,
            covered_before: next,
            unrepaired: next,
            first: next,
            repeated: next,
            ends: vec![next; ends].into_boxed_slice(),
            repairs: 0,
            second: next,
            third: next,
        }
    }

    /// Names all packets in repairs, at any rate.
    #[must_use]
    pub fn in_repairs(mut self, rate: RepairRate) -> Self {
        (self.may_be_apart, self.is_apart) = (false, false);
        self.sizes = Sizes::of(rate, false);
        self
    }

    /// Changes the rate. Copies still owed at the old rate are named as far as there is room.
    ///
    /// # Panics
    /// As [`Names::new`], and if a distance exceeds `reach`.
    pub fn set_rate(&mut self, rate: RepairRate, distances: [usize; 2]) {
        check(distances);
        assert!(distances[1] + 2 <= self.ends.len(), "expected copies within the reach, saw {distances:?}");
        let newest = self.newest();
        let is_apart = self.may_be_apart && are_apart(rate);
        if is_apart && !self.is_apart {
            // Second copies still owed travel apart too.
            let owed = if self.is_leaving { self.covered } else { self.second };
            let owed = owed.clamp(newest.saturating_sub(63), newest);
            (self.apart, self.covered, self.first) = (owed + lag(rate), owed, newest);
            (self.covered_before, self.unrepaired) = (owed, owed);
        }
        self.is_leaving = !is_apart && (self.is_apart || self.is_leaving);
        if self.sizes.copies < 2 {
            // The old rate owed no second copies. Owing them all at once would delay those of the new rate.
            (self.second, self.third) = (newest, newest);
        }
        (self.distances, self.is_apart) = (distances, is_apart);
        self.sizes = Sizes::of(rate, self.may_be_apart);
        // The last datagram of a rate that is left has the names of its others.
        self.apart_at = Apart::of(rate, self.is_lossy).map(|apart| (rate, apart)).or(self.apart_at);
    }

    /// Takes the share of repairs that the link loses. Names that travel apart have a third copy if it is
    /// large enough.
    pub fn set_loss(&mut self, share: f64) {
        let [from, below] = LOSSY;
        let is_lossy = share >= if self.is_lossy { below } else { from };
        if is_lossy != self.is_lossy {
            self.is_lossy = is_lossy;
            self.apart_at = self.apart_at.and_then(|(rate, _)| Some((rate, Apart::of(rate, is_lossy)?)));
        }
    }

    /// Returns the packets that the next repair names, in order of the stream, for a repair of the packets
    /// `first` to `last`.
    ///
    /// These are the new packets, the packets that were new in two earlier repairs at the configured
    /// distances, and enough of the packets before them to make all repairs equally long.
    ///
    /// After a change of rate, runs may be longer or shorter than the room for them. The next repairs name
    /// what is left over, if the new rate has room for copies at all. A shortened distance takes effect as
    /// spare room allows. Where every repair is full there is none, and third copies keep the longer
    /// distance.
    ///
    /// While names travel apart, repairs after the newest packet name the packets before it once more, each
    /// those before the ones that the repair before it named. A lost datagram of names is thus made up for.
    pub fn next(&mut self, first: u64, last: u64) -> [Range<u64>; COPIES] {
        let [to_second, to_third] = self.distances;
        let len = self.ends.len();
        let end = |back: usize| self.ends[(self.repairs + len - 1 - back) % len];
        let behind = last + 1;
        let Sizes { names, copies, newest } = self.sizes;
        let newest = if self.is_apart {
            let start = self.first.max(first);
            start..behind.min(start + newest as u64)
        } else {
            // A repair of a stripe may end before the one of another stripe that left just before it.
            end(0).max(first).max(behind.saturating_sub(newest as u64)).min(behind)..behind
        };
        self.first = self.first.max(newest.end);
        if self.is_apart && count(&newest) == 0 {
            return self.repeat(first, last);
        }
        self.repeated = newest.start;
        // Equal lengths let repairs leave the host as one train. Only the first repair after the rate rises
        // may name more: the packets that came at the lower rate. Those for which it has no room are named
        // apart.
        let mut room = (names as u64).max(count(&newest)) - count(&newest);
        let mut from = |next: u64, to: u64| {
            let start = next.max(first).min(to.max(first));
            let run = start..to.max(start).min(start.saturating_add(room));
            room -= count(&run);
            run
        };
        let second_end = end(to_second - 1).min(newest.start);
        let second = from(if copies < 2 { end(to_second) } else { self.second }, second_end);
        // The third copy of a name never precedes the second.
        let third_end = end(to_third - 1).min(second.start);
        let mut third = from(if copies < COPIES { end(to_third) } else { self.third }, third_end);
        (self.second, self.third) = (self.second.max(second.end), self.third.max(third.end));
        if third.end == third_end {
            third.start = third.start.saturating_sub(room).max(first);
        }
        self.note(behind);
        // An empty run must lie in the window too.
        [third, second, newest].map(|run| if count(&run) == 0 { last..last } else { run })
    }

    /// Names of a repair without new packets.
    fn repeat(&mut self, first: u64, last: u64) -> [Range<u64>; COPIES] {
        let end = if self.repeated > first { self.repeated.min(last + 1) } else { last + 1 };
        self.repeated = end.saturating_sub(self.sizes.names as u64).max(first);
        self.note(last + 1);
        [self.repeated..end, last..last, last..last]
    }

    /// Notes that a repair has named packets up to `behind`. Those of a later one may lie before it.
    fn note(&mut self, behind: u64) {
        let len = self.ends.len();
        self.ends[self.repairs % len] = behind.max(self.newest());
        self.repairs = (self.repairs + 1) % len;
    }

    /// Position just behind the newest packet of any repair.
    fn newest(&self) -> u64 {
        self.ends[(self.repairs + self.ends.len() - 1) % self.ends.len()]
    }

    /// Names all packets of a repair of the packets `first` to `last`, which must be few enough. Copies of
    /// names that are owed are dropped.
    ///
    /// # Panics
    /// If these are more than [`NAMES_MAX`] packets.
    pub fn next_all(&mut self, first: u64, last: u64) -> [Range<u64>; COPIES] {
        let behind = last + 1;
        assert!(
            behind - first <= NAMES_MAX as u64,
            "expected at most {NAMES_MAX} names, saw {first} to {last}"
        );
        (self.second, self.third) = (behind, behind);
        self.note(behind);
        [last..last, last..last, first..behind]
    }

    /// Returns the packets that a datagram of names names after the packet `last`, if one is due.
    ///
    /// A gateway sends the repairs of packets that left as a train, or that it captured together, in one
    /// train too, with the datagram of names behind. A burst of losses there would take both copies of their
    /// names. So `settled` returns the first packet that left too lately for a second copy now; at most
    /// [`HELD_MAX`] wait for the next datagram, fewer where names have a third copy.
    ///
    /// One more is due after a rise of the rate to 1/8 or above: second copies, and names of the packets for
    /// which the next repair has no room.
    pub fn next_apart(&mut self, last: u64, settled: impl FnOnce() -> u64) -> Option<Range<u64>> {
        if self.is_leaving {
            return self.leave(last);
        }
        let (_, Apart { every, .. }) = self.apart_at.filter(|_| self.is_apart)?;
        if last + 1 < self.apart + every {
            return None;
        }
        let named = self.take_apart(last, settled());
        (count(&named) > 0).then_some(named)
    }

    /// Returns the same when the stream falls silent, if packets have not been named at all, or if more
    /// second copies were held back than a datagram usually has.
    pub fn owed_apart(&mut self, last: u64) -> Option<Range<u64>> {
        if self.is_leaving {
            return self.leave(last);
        }
        let (_, Apart { every, .. }) = self.apart_at.filter(|_| self.is_apart && self.covered <= last)?;
        let is_owed = self.first <= last || last + 1 - self.covered > every;
        is_owed.then(|| self.take_apart(last, last + 1))
    }

    /// Names of the last datagram before repairs name all packets.
    fn leave(&mut self, last: u64) -> Option<Range<u64>> {
        self.is_leaving = false;
        let named = self.take_apart(last, last + 1);
        (count(&named) > 0).then_some(named)
    }

    fn take_apart(&mut self, last: u64, settled: u64) -> Range<u64> {
        let behind = last + 1;
        self.apart = behind;
        let Some((_, apart)) = self.apart_at else { return behind..behind };
        let longest = behind.saturating_sub(APART_MAX as u64);
        if apart.is_beside {
            let held_max = HELD_MAX.min(APART_MAX as u64 - apart.names);
            let held = settled.clamp(behind.saturating_sub(held_max), behind);
            let start = if self.is_lossy { self.covered_before } else { self.covered }.max(longest);
            self.covered_before = self.covered;
            self.covered = held.max(self.covered.max(longest));
            return start..self.covered;
        }
        let start = behind.saturating_sub(apart.names).min(self.unrepaired).max(self.start).min(self.covered);
        (self.covered_before, self.unrepaired) = (self.covered, self.first);
        // Repairs have no room for all packets, so that these need no other first copy.
        (self.covered, self.first, self.repeated) = (behind, behind, behind);
        start.max(longest)..behind
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ends)
    }
}

fn check(distances: [usize; 2]) {
    assert!(
        0 < distances[0] && distances[0] < distances[1],
        "expected copies one after the other, saw {distances:?}"
    );
}

fn count(run: &Range<u64>) -> u64 {
    run.end.saturating_sub(run.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn rate(text: &str) -> RepairRate {
        text.parse().unwrap()
    }

    /// Added to the number of a repair that precedes a datagram of names.
    const APART: usize = 1 << 20;

    fn as_gateways(rate: RepairRate, window: u16) -> Names {
        Names::new(rate, [1, spread(rate, window)], usize::from(window) + 2, 0)
    }

    /// Returns the repairs that name each packet. Each rate applies from the packet stated beside it. The
    /// newest `held` packets have left just now.
    fn named_by(
        mut sender: Names,
        rates: &[(u64, RepairRate)],
        window: u16,
        packets: u64,
        is_apart: bool,
        held: u64,
    ) -> BTreeMap<u64, Vec<usize>> {
        let (mut named, mut repairs, mut due) = (BTreeMap::<u64, Vec<usize>>::new(), 0, 0);
        let (mut rate, mut next) = (rates[0].1, 0);
        for packet in 0..packets {
            if let Some(&(_, changed)) = rates.iter().find(|(from, _)| *from == packet) {
                rate = changed;
                sender.set_rate(rate, [1, spread(rate, window)]);
            }
            due += u64::from(rate.repairs());
            while due >= u64::from(rate.sources()) {
                due -= u64::from(rate.sources());
                let first = (packet + 1).saturating_sub(u64::from(window));
                let all: Vec<u64> = sender.next(first, packet).into_iter().flatten().collect();
                let new = (packet + 1 - next) as usize;
                next = packet + 1;
                assert!(all.is_sorted_by(|a, b| a < b), "{rate}: {all:?}");
                // Packets that waited at a lower rate are still named, as far as repairs at 1/8 have room.
                let names = Sizes::of(rate, is_apart);
                let most = if repairs == 0 { names.names } else { names.names.max(new.min(names.newest)) };
                assert!(all.len() <= most, "{rate}: {} names: {all:?}", all.len());
                assert!(all.iter().all(|&seq| seq >= first && seq <= packet));
                all.iter().for_each(|&seq| named.entry(seq).or_default().push(repairs));
                repairs += 1;
            }
            for seq in sender.next_apart(packet, || (packet + 1).saturating_sub(held)).into_iter().flatten() {
                named.entry(seq).or_default().push(APART + repairs);
            }
        }
        named
    }

    /// Returns the first 3,000 packets of 4,000, after checking that each was named.
    fn all_named(rates: &[(u64, RepairRate)], window: u16) -> Vec<(u64, Vec<usize>)> {
        check_named(named_by(as_gateways(rates[0].1, window), rates, window, 4_000, true, 0))
    }

    fn check_named(mut named: BTreeMap<u64, Vec<usize>>) -> Vec<(u64, Vec<usize>)> {
        let named: Vec<_> = (0..3_000).map(|seq| (seq, named.remove(&seq).unwrap_or_default())).collect();
        assert!(named.iter().all(|(_, repairs)| !repairs.is_empty()), "no repair names a packet");
        named
    }

    /// As [`all_named`], where all names travel in repairs.
    fn all_inside(rates: &[(u64, RepairRate)], window: u16) -> Vec<(u64, Vec<usize>)> {
        let sender = as_gateways(rates[0].1, window).in_repairs(rates[0].1);
        check_named(named_by(sender, rates, window, 4_000, false, 0))
    }

    #[test]
    fn every_packet_is_named_three_times_and_no_recoverable_burst_loses_all_names() {
        for (text, window) in
            [("3/8", 160), ("3/8", 256), ("1/8", 256), ("1/8", 512), ("5/4", 64), ("1/1", 1)]
        {
            let rate = rate(text);
            let share = rate.as_f64() / (1.0 + rate.as_f64());
            let burst = share * share * f64::from(window);
            for (seq, repairs) in all_named(&[(0, rate)], window) {
                // Extra copies fill repairs up to equal length.
                let copies = if window == 1 { 1..=1 } else { 3..=5 };
                assert!(copies.contains(&repairs.len()), "{text}, W={window}: packet {seq}: {repairs:?}");
                if let [first, second, .., last] = repairs[..] {
                    assert!(second == first + 1 && (last - first) as f64 > burst, "{text}: {repairs:?}");
                }
            }
        }
    }

    #[test]
    fn a_repair_that_ends_before_the_last_one_names_no_later_packet() {
        // Repairs of two stripes in turn, of which one ends a packet earlier.
        let mut names = as_gateways(rate("3/8"), 512);
        let mut named = BTreeMap::<u64, usize>::new();
        for n in 0..200 {
            let last = [4, 3][n as usize % 2] + n / 2 * 3;
            let runs = names.next(0, last);
            assert!(runs.iter().all(|run| run.end <= last + 1), "{runs:?} of packets up to {last}");
            let all: Vec<u64> = runs.into_iter().flatten().collect();
            assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
            all.into_iter().for_each(|seq| *named.entry(seq).or_default() += 1);
        }
        assert!((0..200).all(|seq| named[&seq] >= 3), "{named:?}");
    }

    #[test]
    fn a_low_rate_names_new_packets_first() {
        for (text, copies) in [("1/21", 3), ("1/22", 2), ("1/32", 2), ("1/33", 1), ("1/64", 1)] {
            for (seq, repairs) in all_inside(&[(0, rate(text))], 512) {
                assert_eq!(repairs.len(), copies, "{text}: packet {seq}: {repairs:?}");
            }
        }
    }

    #[test]
    fn below_one_eighth_names_travel_apart_too_and_repairs_are_no_longer() {
        for (text, names, beside) in [
            ("1/9", 9, 1),
            ("1/16", 16, 1),
            ("1/24", 24, 1),
            ("1/28", 24, 2),
            ("1/32", 24, 2),
            ("1/64", 24, 2),
        ] {
            let rate = rate(text);
            assert_eq!((are_apart(rate), per_repair(rate)), (true, names), "{text}");
            for (seq, copies) in all_named(&[(0, rate)], 512) {
                let apart = copies.iter().filter(|&&copy| copy >= APART).count();
                assert!(
                    (copies.len() >= 2 || seq < 128) && (1..=beside).contains(&apart),
                    "{text}: packet {seq}: {copies:?}"
                );
            }
        }
        assert!(!are_apart(rate("1/8")));
        assert_eq!(apart(rate("1/64")).map(|[_, names]| names), Some(APART_MAX as u64));
    }

    #[test]
    fn where_repairs_are_lost_two_datagrams_name_each_packet() {
        let rates = ["1/9", "1/16", "1/24", "1/28", "1/32", "1/40", "1/48", "1/64"];
        for (text, held) in rates.iter().zip([0, 50, 128, 0, 0, 0, 0, 0]) {
            let rate = rate(text);
            let mut sender = as_gateways(rate, 512);
            sender.set_loss(0.01);
            let named = named_by(sender, &[(0, rate)], 512, 4_000, true, held);
            for (seq, copies) in check_named(named).split_off(128) {
                let apart: BTreeSet<_> = copies.iter().filter(|&&copy| copy >= APART).collect();
                assert!(copies.len() >= 3 && apart.len() >= 2, "{text}: packet {seq}: {copies:?}");
            }
        }
    }

    #[test]
    fn a_loss_that_comes_and_goes_leaves_no_packet_with_a_single_name() {
        for text in ["1/9", "1/24", "1/28", "1/40"] {
            let rate = rate(text);
            let (mut sender, mut named) = (as_gateways(rate, 512), BTreeMap::<u64, usize>::new());
            for packet in 0..4_000 {
                if packet % 300 == 0 {
                    sender.set_loss(if packet % 600 == 0 { 0.01 } else { 0.0 });
                }
                let repair = ((packet + 1) % stride(rate) as u64 == 0)
                    .then(|| sender.next((packet + 1).saturating_sub(512), packet));
                let runs = repair.into_iter().flatten().chain(sender.next_apart(packet, || packet + 1));
                runs.flatten().for_each(|seq| *named.entry(seq).or_default() += 1);
            }
            let once: Vec<_> =
                (0..3_800).filter(|seq| named.get(seq).is_none_or(|&count| count < 2)).collect();
            assert_eq!(once, [], "{text}");
        }
    }

    #[test]
    fn names_have_a_third_copy_until_the_loss_is_much_smaller() {
        let mut names = as_gateways(rate("1/16"), 512);
        let sizes = [0.002, 0.0035, 0.002, 0.001, 0.002].map(|share| {
            names.set_loss(share);
            names.apart_at.unwrap().1.names
        });
        assert_eq!(sizes, [64, 128, 128, 64, 64]);
    }

    #[test]
    fn copies_apart_are_far_from_the_first_ones() {
        for (text, held) in [("1/9", 100), ("1/16", 50), ("1/24", 100), ("1/24", 128)] {
            let rate = rate(text);
            let named = named_by(as_gateways(rate, 512), &[(0, rate)], 512, 4_000, true, held);
            for (seq, copies) in check_named(named) {
                // The last repair before a datagram left at most a stride earlier.
                let last = copies.iter().filter_map(|copy| copy.checked_sub(APART)).max().unwrap_or_default();
                let packets = (last + 1) * stride(rate);
                assert!(packets as u64 > seq + held, "{text}: packet {seq}: {copies:?}");
            }
        }
    }

    #[test]
    fn a_silence_brings_the_names_for_which_repairs_had_no_room() {
        let mut names = as_gateways(rate("1/32"), 512);
        assert_eq!((names.next(0, 20)[2].clone(), names.owed_apart(20)), (0..21, None));
        assert_eq!((names.next(0, 52)[2].clone(), names.owed_apart(52)), (21..45, Some(0..53)));
        assert_eq!((names.owed_apart(52), names.next_apart(179, || 180)), (None, None));
        assert_eq!(names.next_apart(180, || 181), Some(21..181));
    }

    #[test]
    fn repairs_without_new_packets_repeat_names_that_only_one_datagram_had() {
        let mut names = as_gateways(rate("1/40"), 512);
        for last in (39..200).step_by(40) {
            assert_eq!(count(&names.next(0, last)[2]), 24);
        }
        assert_eq!(names.owed_apart(199).map(|named| named.end), Some(200));
        let repeated: Vec<_> = (0..4).map(|_| names.next(0, 199)[0].clone()).collect();
        assert_eq!(repeated, [176..200, 152..176, 128..152, 104..128]);
        // The window begins behind the packets that would be next.
        assert_eq!(names.next(95, 199), [95..104, 199..199, 199..199]);
        assert_eq!(names.next(95, 199)[0], 176..200);
    }

    #[test]
    fn no_repair_names_more_than_there_is_room_for() {
        for text in ["3/64", "2/43", "2/65", "2/127", "5/108", "3.1%", "4.7%", "1.6%"] {
            all_named(&[(0, rate(text))], 512);
        }
    }

    #[test]
    fn the_first_repair_of_a_higher_rate_is_no_longer_than_planned() {
        for (before, after) in [("1/40", "1/4"), ("1/64", "1/2"), ("1/32", "1/8"), ("1/16", "1/6")] {
            for (seq, copies) in all_named(&[(0, rate(before)), (2_030, rate(after))], 512) {
                // Second copies begin with the second datagram of names, and end with the old rate.
                let is_between = (128..2_030 - 128).contains(&seq) || seq >= 2_030;
                assert!(copies.len() >= 2 || !is_between, "{before} to {after}: packet {seq}: {copies:?}");
            }
        }
    }

    #[test]
    fn a_silence_after_a_rise_of_the_rate_brings_the_names_that_are_owed() {
        let mut names = as_gateways(rate("1/40"), 512);
        names.next(0, 39);
        names.set_rate(rate("1/4"), [1, 2]);
        assert_eq!((names.next(0, 78)[2].clone(), names.owed_apart(78)), (55..79, Some(0..79)));
        assert_eq!(names.owed_apart(78), None);
        // A rate that rises and falls at once owes what it owed before.
        let mut names = as_gateways(rate("1/16"), 512);
        names.next(0, 15);
        names.set_rate(rate("1/4"), [1, 2]);
        names.set_rate(rate("1/16"), [1, 2]);
        assert_eq!((names.next(0, 31)[2].clone(), names.next_apart(80, || 70)), (16..32, Some(0..70)));
    }

    #[test]
    fn a_change_of_rate_loses_no_copies_of_names() {
        for (before, after, window) in [
            ("1/1", "1/8", 256),
            ("3/8", "1/8", 256),
            ("3/8", "1/8", 512),
            ("1/1", "1/16", 512),
            ("1/8", "3/8", 256),
            ("1/16", "1/2", 256),
            ("2/1", "1/4", 160),
        ] {
            let rates = [(0, rate(before)), (2_000, rate(after))];
            let copies = if are_apart(rate(after)) {
                2
            } else if are_apart(rate(before)) {
                1
            } else {
                3
            };
            for (seq, repairs) in all_named(&rates, window) {
                assert!(
                    repairs.len() >= copies,
                    "{before} to {after}, W={window}: packet {seq}: {repairs:?}"
                );
            }
        }
    }

    #[test]
    fn a_rate_without_second_copies_does_not_delay_those_of_a_higher_one() {
        let named = all_named(&[(0, rate("1/64")), (2_000, rate("3/8"))], 256);
        let at_once = |(_, repairs): &(u64, Vec<usize>)| repairs[1] == repairs[0] + 1;
        assert!(
            named[2_003..].iter().all(at_once),
            "{:?}",
            named[2_003..].iter().find(|entry| !at_once(entry))
        );
    }

    #[test]
    fn a_rate_with_room_for_new_names_alone_drops_owed_copies() {
        let named = all_inside(&[(0, rate("3/8")), (2_000, rate("1/33"))], 256);
        assert!(named[..1_900].iter().all(|(_, repairs)| repairs.len() >= 3));
        assert!(named[2_033..].iter().all(|(_, repairs)| repairs.len() == 1));
    }

    #[test]
    fn a_shorter_distance_takes_no_effect_where_there_is_no_room_to_catch_up() {
        let rates = [(0, rate("1/1")), (2_000, rate("1/8"))];
        let last = all_named(&rates, 256).into_iter().filter(|(seq, _)| *seq > 2_500);
        let distances: Vec<_> = last.map(|(_, repairs)| repairs[2] - repairs[0]).collect();
        let spread = spread(rate("1/8"), 256);
        assert!(distances.iter().all(|distance| (spread..spread + 5).contains(distance)), "{distances:?}");
    }

    #[test]
    fn rates_of_many_digits_have_the_spread_of_their_neighbours() {
        for (text, near) in
            [("0.333333333", "1/3"), ("2147483647/2147483649", "1/1"), ("0.015625001", "1/64")]
        {
            assert!(spread(rate(text), 512).abs_diff(spread(near.parse().unwrap(), 512)) <= 1, "{text}");
        }
        assert_eq!(spread(rate("0.333333333"), 256), 17);
    }

    #[test]
    fn all_repairs_of_a_steady_stream_name_equally_many_packets() {
        for (text, window) in [("3/8", 160), ("3/8", 256), ("2/7", 512), ("1/8", 256), ("1/1", 64)] {
            let rate = rate(text);
            let mut sender = as_gateways(rate, window);
            let mut repairs = 0;
            for packet in 0..4_000 {
                let due = (packet + 1) * u64::from(rate.repairs()) / u64::from(rate.sources());
                while repairs < due {
                    let first = (packet + 1).saturating_sub(u64::from(window));
                    let count = sender.next(first, packet).into_iter().flatten().count();
                    assert!(packet < 1_000 || count == per_repair(rate), "{text}: {count} at {packet}");
                    repairs += 1;
                }
            }
        }
    }
}
