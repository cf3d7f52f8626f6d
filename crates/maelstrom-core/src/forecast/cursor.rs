//! The fates of packets in order of the stream, as soon as they can be known.
//!
//! The ledger settles a place when nothing can change its fate any more, up to a second later. A forecast
//! needs fates at once. A named packet that arrived is an *anchor*: its number among all arrivals shows how
//! many of the packets between it and the anchor before it arrived, whether repairs have named them or not.

use foundation::Seq;

use crate::arrivals::{Arrivals, Place};

/// Fates of consecutive packets, from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Number of packets that have arrived.
    Arrived(u64),
    /// One packet is lost.
    Lost,
    /// Consecutive packets, too many to be told apart, of which nearly all are lost.
    Outage { lost: u64, arrived: u64 },
    /// Packets of which it is not known which have arrived.
    Unknown,
}

/// Part of the packets of an outage that may have arrived: the last before it, and the first after it.
const OUTAGE_PART: u64 = 8;

/// The position up to which fates are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// First place whose fate is open.
    next: Seq,
    /// Number, among all arrivals, of the packet that arrived last before `next`.
    count: Option<u64>,
    /// Whether the packet before `next` is lost.
    in_run: bool,
    /// First place that was not examined for an anchor.
    scanned: Seq,
    anchor: Option<Anchor>,
    strangers: Strangers,
}

/// Arrivals that no repair names, such as those of classes without protection, among those of packets that
/// all arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Strangers {
    all: u64,
    strangers: u64,
}

impl Strangers {
    /// Number of arrivals after which older ones count half.
    const MAX: u64 = 8_192;

    /// Takes the number of arrivals from one named packet to another, and of the packets themselves.
    fn on_arrived(&mut self, all: u64, named: u64) {
        self.all += all.max(named);
        self.strangers += all.saturating_sub(named);
        if self.all > Self::MAX {
            (self.all, self.strangers) = (self.all / 2, self.strangers / 2);
        }
    }

    /// Returns the number of packets of the stream among arrivals. Few strangers are reordered packets.
    fn without(&self, arrivals: u64) -> u64 {
        let are_few = 64 * self.strangers < self.all;
        let others = (self.strangers * arrivals.min(1 << 32)).checked_div(self.all).unwrap_or(0);
        if are_few { arrivals } else { arrivals.saturating_sub(others) }
    }
}

/// The first packet after a gap that arrived and was named.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    seq: Seq,
    count: u64,
}

/// The places between two anchors.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// Places that no repair has named.
    unnamed: u64,
    /// Places that were named, and whose packets did not arrive.
    missing: u64,
    /// Places whose packets a router dropped.
    expired: u64,
    all: u64,
}

impl Cursor {
    /// Passes on the fates that are known, up to the newest place named. Packets before a place are no longer
    /// expected if `is_ripe` says so of the place.
    pub(super) fn advance(
        &mut self,
        arrivals: &Arrivals,
        newest: Seq,
        is_ripe: impl Fn(Seq) -> bool,
        feed: &mut impl FnMut(Seq, Fate),
    ) {
        if newest.0.saturating_sub(self.next.0) >= arrivals.places() / 2 {
            // No packet has arrived under its name for a long time, or the stream has jumped.
            feed(self.next, self.fate_of_skipped(arrivals, newest));
            self.skip_to(newest);
        }
        loop {
            let first = self.next;
            let arrived = self.pass_arrived(arrivals, newest);
            if arrived > 0 {
                feed(first, Fate::Arrived(arrived));
            }
            if self.anchor.is_none() {
                self.anchor = self.find_anchor(arrivals, newest);
            }
            let Some(anchor) = self.anchor.filter(|anchor| is_ripe(anchor.seq)) else { return };
            self.close_gap(anchor, arrivals, feed);
        }
    }

    /// Decides what became of the packets up to `newest`, which will not be told apart. In an outage hardly
    /// any packet arrives, and the repairs that would name them are lost too. Packets that change their form
    /// on the way, or of which the gateway does not see any, are named.
    fn fate_of_skipped(&self, arrivals: &Arrivals, newest: Seq) -> Fate {
        let all = newest.0 - self.next.0;
        let told_apart = all.min(arrivals.places());
        let named =
            (newest.0 - told_apart..newest.0).filter(|&seq| arrivals.is_named(Seq(seq))).count() as u64;
        let until = match arrivals.place(newest) {
            Place::Arrived { count, .. } if count > 0 => count - 1,
            _ => arrivals.count(),
        };
        let arrived = self.count.and_then(|before| until.checked_sub(before));
        match arrived.map(|arrived| self.strangers.without(arrived)) {
            Some(arrived) if arrived <= all / OUTAGE_PART && 2 * named < told_apart => {
                Fate::Outage { lost: all - arrived, arrived }
            }
            _ => Fate::Unknown,
        }
    }

    /// Forgets the places before `limit`, whose fates will never be known.
    pub(super) fn skip_to(&mut self, limit: Seq) {
        *self = Self { next: self.next.max(limit), strangers: self.strangers, ..Self::default() };
        self.scanned = self.next;
    }

    /// Passes over named packets that have arrived; returns their number.
    fn pass_arrived(&mut self, arrivals: &Arrivals, newest: Seq) -> u64 {
        let first = self.next;
        // A number, and the first place after the packet that has it.
        let mut known = self.count.map(|count| (count, first));
        while self.next <= newest
            && let Place::Arrived { count, .. } = arrivals.place(self.next)
        {
            // One of several equal packets has no number of its own.
            self.count = if count > 0 { Some(count) } else { self.count.map(|count| count + 1) };
            self.next = self.next.plus(1);
            known = known.or(self.count.map(|count| (count, self.next)));
        }
        let arrived = self.next.0 - first.0;
        if arrived > 0 {
            if let (Some((before, from)), Some(after)) = (known, self.count) {
                self.strangers.on_arrived(after.saturating_sub(before), self.next.0 - from.0);
            }
            self.in_run = false;
            self.anchor = self.anchor.filter(|anchor| anchor.seq >= self.next);
            self.scanned = self.scanned.max(self.next);
        }
        arrived
    }

    fn find_anchor(&mut self, arrivals: &Arrivals, newest: Seq) -> Option<Anchor> {
        while self.scanned <= newest {
            let seq = self.scanned;
            self.scanned = seq.plus(1);
            if let Place::Arrived { count, .. } = arrivals.place(seq)
                && count > 0
            {
                return Some(Anchor { seq, count });
            }
        }
        None
    }

    /// Passes on the fates of the places before an anchor.
    fn close_gap(&mut self, anchor: Anchor, arrivals: &Arrivals, feed: &mut impl FnMut(Seq, Fate)) {
        let places = || (self.next.0..anchor.seq.0).map(|seq| arrivals.place(Seq(seq)));
        let mut gap = Gap::default();
        for place in places() {
            gap.all += 1;
            match place {
                Place::Unnamed => gap.unnamed += 1,
                Place::Missing { fields, .. } if arrivals.hops().arriving(fields.ttl).is_none() => {
                    gap.expired += 1;
                }
                Place::Missing { .. } | Place::Recovered { .. } => gap.missing += 1,
                Place::Arrived { .. } => {}
            }
        }
        // Reordered arrivals have no meaning as numbers; then only named packets count as lost.
        let between = self.count.and_then(|before| anchor.count.checked_sub(before + 1));
        let between = between.map(|between| self.strangers.without(between));
        let lost = between.map_or(0, |between| gap.all.saturating_sub(between + gap.missing + gap.expired));
        let lost = lost.min(gap.unnamed);
        // Which unnamed packets are lost is not known. They are those next to other losses.
        let lost_first = self.in_run && !matches!(arrivals.place(anchor.seq.minus(1)), Place::Missing { .. });
        let is_lost = |number: u64| if lost_first { number < lost } else { number >= gap.unnamed - lost };
        let mut unnamed = 0;
        for (place, seq) in places().zip(self.next.0..) {
            let is_lost = match place {
                Place::Unnamed => {
                    unnamed += 1;
                    is_lost(unnamed - 1)
                }
                Place::Missing { fields, .. } => arrivals.hops().arriving(fields.ttl).is_some(),
                Place::Recovered { .. } => true,
                Place::Arrived { .. } => false,
            };
            self.in_run = is_lost;
            feed(Seq(seq), if is_lost { Fate::Lost } else { Fate::Arrived(1) });
        }
        (self.next, self.anchor) = (anchor.seq, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Trace;
    use crate::flow::Flow;
    use crate::identity::{Name, PacketHash};
    use crate::packet::{MutableFields, Packet};
    use crate::symbol::Symbol;
    use crate::wire::Entry;

    const FIELDS: MutableFields = MutableFields { ttl: 64, tos: 0 };

    /// A stream of packets of which the receiver learns the names in any order.
    struct Stream {
        arrivals: Arrivals,
        cursor: Cursor,
        fates: String,
    }

    impl Stream {
        /// Each packet has its position as name; those at `lost` do not arrive.
        fn new(packets: u64, lost: &[u64]) -> Self {
            let arrivals = Arrivals::new(1 << 12, 1 << 13, 64);
            let mut stream = Self { arrivals, cursor: Cursor::default(), fates: String::new() };
            (0..packets).filter(|seq| !lost.contains(seq)).for_each(|seq| stream.arrive(0, seq));
            stream
        }

        fn arrive(&mut self, now_us: u64, seq: u64) {
            let packet = testkit::packet::udp4([10, 81, 1, 10].into(), [10, 81, 2, 10].into(), 0, 1, &[7]);
            let packet = Packet::new_checked(&packet).unwrap();
            let symbol = Symbol::new(&packet, PacketHash(seq), MutableFields::default());
            self.arrivals.insert(
                now_us,
                Name(seq as u32 + 1),
                Trace {
                    flow: Flow::default(),
                    ttl: FIELDS.ttl,
                    opens: false,
                    is_fragment: false,
                    timestamp: None,
                },
                &symbol,
            );
        }

        fn name(&mut self, now_us: u64, seqs: impl IntoIterator<Item = u64>) {
            for seq in seqs {
                let entry = Entry { seq: Seq(seq), name: Name(seq as u32 + 1), fields: FIELDS };
                self.arrivals.bind(now_us, &entry);
            }
        }

        /// Places before `ripe` have been known for a while.
        fn advance(&mut self, ripe: u64, newest: u64) -> &str {
            let fates = &mut self.fates;
            self.cursor.advance(&self.arrivals, Seq(newest), |seq| seq.0 < ripe, &mut |_, fate| match fate {
                Fate::Arrived(count) => (0..count).for_each(|_| fates.push('.')),
                Fate::Lost => fates.push('x'),
                Fate::Outage { lost, arrived } => *fates += &format!("<{lost}x{arrived}.>"),
                Fate::Unknown => fates.push('?'),
            });
            &self.fates
        }
    }

    #[test]
    fn losses_are_known_once_a_later_packet_is_named_and_the_wait_is_over() {
        let mut stream = Stream::new(16, &[5, 6, 7, 9]);
        stream.name(10, 0..8);
        assert_eq!(stream.advance(8, 7), ".....", "a later packet may be overtaken");
        stream.name(20, 8..16);
        assert_eq!(stream.advance(8, 15), ".....");
        assert_eq!(stream.advance(9, 15), ".....xxx.");
        assert_eq!(stream.advance(16, 15), ".....xxx.x......");
    }

    #[test]
    fn the_number_of_arrivals_shows_losses_that_no_repair_names() {
        // The repair that names 8 to 15 is lost, and with it the packets from 12 on.
        let mut stream = Stream::new(32, &[12, 13, 14, 15, 16, 17]);
        stream.name(10, 0..8);
        stream.name(10, 16..24);
        assert_eq!(stream.advance(24, 23), "............xxxxxx......");
        // Names that come later change nothing.
        stream.name(120, 8..16);
        stream.name(120, 24..32);
        assert_eq!(stream.advance(32, 31).len(), 32);
    }

    #[test]
    fn arrivals_that_are_never_named_hide_no_losses() {
        let mut stream = Stream::new(0, &[]);
        // Two of three packets belong to a class without protection. From 900 on, 20 are lost with theirs.
        for seq in (0..900).chain(920..1_000) {
            stream.arrive(0, seq);
            (1..3).for_each(|kind| stream.arrive(0, 10_000 * kind + seq));
        }
        // The repairs that name 905 to 924 are lost too.
        stream.name(10, (0..905).chain(925..1_000));
        let fates = stream.advance(1_000, 999);
        let lost = fates.matches('x').count();
        assert!((18..=20).contains(&lost), "{lost} of 20: {}", &fates[890..]);
        assert!(!fates[..895].contains('x'));
    }

    #[test]
    fn packets_whose_names_are_lost_have_arrived_if_the_numbers_say_so() {
        let mut stream = Stream::new(32, &[]);
        stream.name(10, (0..8).chain(16..32));
        assert_eq!(stream.advance(32, 31), ".".repeat(32));
    }

    #[test]
    fn a_packet_that_arrives_during_the_wait_is_not_lost() {
        let mut stream = Stream::new(8, &[3]);
        stream.name(10, 0..8);
        assert_eq!(stream.advance(0, 7), "...");
        stream.arrive(50, 3);
        assert_eq!(stream.advance(0, 7), "........");
    }

    #[test]
    fn names_in_any_order_give_the_same_fates() {
        // A layer of interleave 4 names every fourth packet.
        let mut stream = Stream::new(64, &[9, 10, 30]);
        for start in 0..4 {
            stream.name(10, (start..64).step_by(4));
            stream.advance(16 * start, 63);
        }
        assert_eq!(stream.advance(64, 63).matches('x').count(), 3);
        assert_eq!(stream.fates.len(), 64);
    }

    #[test]
    fn a_stream_that_jumps_is_skipped() {
        let mut stream = Stream::new(16, &[]);
        stream.name(10, 0..8);
        assert_eq!(stream.advance(8, 1 << 40), "?", "far beyond what the arrivals remember");
        stream.cursor.skip_to(Seq(4));
        assert_eq!(stream.cursor.next, Seq(1 << 40), "never back");
    }

    #[test]
    fn an_outage_longer_than_places_are_told_apart_is_one_run_of_losses() {
        for last in [100 + 5_000, 100 + 500_000] {
            let mut stream = Stream::new(100, &[]);
            stream.name(10, 0..95);
            stream.advance(94, 94);
            (last - 3..=last).for_each(|seq| stream.arrive(1_000, seq));
            stream.name(1_000, last - 7..=last);
            let fates = stream.advance(last, last)[95..].to_owned();
            // Five packets before it had no name yet, and the last has a fate of its own.
            assert_eq!(fates, format!("<{}x8.>.", last - 95 - 8));
        }
    }

    #[test]
    fn packets_that_arrive_under_no_name_that_repairs_name_are_no_outage() {
        let mut stream = Stream::new(100, &[]);
        stream.name(10, 0..100);
        stream.advance(99, 99);
        stream.name(20, 100..5_000);
        assert_eq!(&stream.advance(4_999, 4_999)[100..], "?");
        // Nor is it one if the repairs alone are lost.
        let mut stream = Stream::new(5_000, &[]);
        stream.name(10, 0..100);
        stream.advance(99, 99);
        stream.name(20, 4_990..5_000);
        assert_eq!(&stream.advance(4_999, 4_999)[100..], "?.");
    }
}
