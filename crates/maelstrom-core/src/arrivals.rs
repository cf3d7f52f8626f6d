//! The packets that arrived, and the places in the stream that repairs have bound them to.
//!
//! A packet arrives without a number. The first repair that names it *binds* it to its place in the far
//! egress' stream. Each arrival serves one place, so packets that are equal in every byte are told apart by
//! their number alone.

mod numbered;

use fec::{SymbolHandle, SymbolRing};
use hashbrown::HashTable;

use crate::hops::Hops;
use crate::identity::{Name, PacketHash};
use crate::packet::MutableFields;
pub(crate) use crate::place::{Arrived, Bound, Counted, Place, Trace, Treatment};
use crate::same_name::SameName;
use crate::symbol::{Symbol, fields_of, set_fields};
use crate::wire::Entry;
use foundation::Seq;
pub(crate) use numbered::Placed;

/// An arrival that a place is bound to.
struct Taken {
    handle: SymbolHandle,
    bound: Bound,
    ttl: u8,
    at_us: u64,
    /// Its number among all arrivals, or 0 if several equal packets arrived.
    count: u64,
}

/// Number of names remembered beside a history of this many packets. A repair may come after its packets have
/// left the history. Were their names forgotten too, the packets would appear lost.
pub(crate) fn names_beside(history: usize) -> usize {
    if history < LONG { 8 * history } else { 4 * history }
}

/// A long history, in packets.
const LONG: usize = 16_384;

/// Maximum number of missing or recovered places of one name.
const EQUAL_MAX: usize = 32;

/// Time between identical packets from which they count as distinct: repairs are reordered by less.
const DISTINCT_US: u64 = 25_000;

/// The recent arrivals of one peer's stream.
pub(crate) struct Arrivals {
    ring: SymbolRing,
    by_name: HashTable<SameName>,
    /// Ring of the names of the last arrivals, to forget them in order.
    order: Box<[Option<Name>]>,
    /// Number of arrivals kept by name since the start.
    kept: u64,
    /// Number of remembered arrivals that no repair has named.
    unbound: u64,
    /// Number of arrivals before which all were forgotten.
    forgotten: u64,
    /// Number of arrivals since the start.
    count: u64,
    /// Places that are missing or recovered, by name, to match late arrivals.
    wanted: HashTable<(Name, Seq)>,
    places: Box<[(Seq, Place)]>,
    hops: Hops,
    /// Buffer for copying a symbol.
    spare: Box<[u8]>,
}

impl Arrivals {
    /// Keeps `history` packets with symbols of up to `symbol_max` bytes each, and tells `places` places
    /// apart; both powers of two.
    pub(crate) fn new(history: usize, places: usize, symbol_max: usize) -> Self {
        assert!(history.is_power_of_two(), "history: expected a power of two, saw {history}");
        assert!(places.is_power_of_two(), "places: expected a power of two, saw {places}");
        Self {
            // One symbol more, because the ring may leave one symbol's length unused at its end.
            ring: SymbolRing::new(history, (history + 1) * symbol_max),
            by_name: HashTable::with_capacity(names_beside(history)),
            order: vec![None; names_beside(history)].into_boxed_slice(),
            kept: 0,
            unbound: 0,
            forgotten: 0,
            count: 0,
            wanted: HashTable::with_capacity(places),
            places: vec![(Seq(0), Place::Unnamed); places].into_boxed_slice(),
            hops: Hops::new(),
            spare: vec![0; symbol_max].into_boxed_slice(),
        }
    }

    /// Number of places that can be distinguished at a time.
    pub(crate) fn places(&self) -> u64 {
        self.places.len() as u64
    }

    /// Keeps a packet that arrived with this time to live.
    pub(crate) fn insert(&mut self, now_us: u64, name: Name, trace: Trace, symbol: &Symbol<'_>) -> Arrived {
        let arrived = match self.find_wanted(name) {
            None => Arrived::Kept,
            Some(seq) => self.match_wanted(now_us, name, seq),
        };
        let Some(handle) = self.ring.push(&symbol.pieces()) else { return Arrived::Kept };
        self.count += 1;
        match arrived {
            Arrived::Late { seq, fields, .. } => {
                let handle = self.with_fields(handle, fields);
                self.set(seq, Place::Arrived { handle, at_us: now_us, count: self.count });
            }
            Arrived::Kept | Arrived::LikeRecovered { .. } => self.keep(now_us, name, trace, handle),
        }
        arrived
    }

    /// Notes that the newest arrival of a name counts as the second one of a packet that was injected, or as
    /// slow. If a repair names another place with that name, it was a packet of its own.
    pub(crate) fn on_double(&mut self, name: Name, is_double: bool, is_slow: bool) {
        if let Some(same) = self.by_name.find_mut(hash_bits(name), |same| same.name == name) {
            same.doubles = same.doubles.saturating_add(is_double.into());
            same.slow = same.slow.saturating_add(is_slow.into());
        }
    }

    fn match_wanted(&mut self, now_us: u64, name: Name, seq: Seq) -> Arrived {
        match self.place(seq) {
            Place::Recovered { since_us, counted, treatment, .. } => {
                let is_injected = treatment == Treatment::Injected;
                self.forget_wanted(name, seq);
                let is_repeated = self.has_arrivals(name);
                let late_us = now_us.saturating_sub(since_us);
                Arrived::LikeRecovered { late_us, is_repeated, counted, is_injected }
            }
            // If equal packets are remembered, this is more likely the next of them than the missing one.
            Place::Missing { since_us, fields, counted, .. } if !self.has_arrivals(name) => {
                self.forget_wanted(name, seq);
                Arrived::Late { seq, late_us: now_us.saturating_sub(since_us), fields, counted }
            }
            _ => Arrived::Kept,
        }
    }

    fn has_arrivals(&self, name: Name) -> bool {
        self.by_name.find(hash_bits(name), |same| same.name == name).is_some()
    }

    fn keep(&mut self, at_us: u64, name: Name, trace: Trace, handle: SymbolHandle) {
        let count = self.count;
        let slot = self.order_slot(self.kept);
        if let Some(oldest) = self.order[slot].replace(name) {
            self.forget_arrival(oldest);
        }
        self.kept += 1;
        self.unbound += 1;
        let same = |same: &SameName| same.name == name;
        match self.by_name.find_mut(hash_bits(name), same) {
            Some(same) => {
                let (live, unbound) = (same.live + 1, same.unbound + 1);
                let pause_us = u32::try_from(at_us.saturating_sub(same.at_us)).unwrap_or(u32::MAX);
                let (doubles, slow) = (same.doubles, same.slow);
                *same =
                    SameName { name, handle, trace, at_us, pause_us, count, live, unbound, doubles, slow };
            }
            None => {
                let (pause_us, live, unbound, doubles, slow) = (u32::MAX, 1, 1, 0, 0);
                let first =
                    SameName { name, handle, trace, at_us, pause_us, count, live, unbound, doubles, slow };
                self.by_name.insert_unique(hash_bits(name), first, |same| hash_bits(same.name));
            }
        }
    }

    fn order_slot(&self, kept: u64) -> usize {
        // The length is a power of two.
        kept as usize & (self.order.len() - 1)
    }

    /// Forgets the oldest arrival of a name; returns 1 if no repair has named it, else 0.
    fn forget_arrival(&mut self, name: Name) -> u64 {
        let Ok(mut entry) = self.by_name.find_entry(hash_bits(name), |same| same.name == name) else {
            return 0;
        };
        let same = entry.get_mut();
        same.live -= 1;
        // The oldest arrivals are bound first.
        let is_unbound = same.unbound > same.live;
        same.unbound -= u32::from(is_unbound);
        same.limit_doubles();
        if same.live == 0 {
            entry.remove();
        }
        self.unbound -= u64::from(is_unbound);
        u64::from(is_unbound)
    }

    /// Number of arrivals kept since the start, which identifies the next one.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Number of remembered arrivals that no repair has named.
    pub(crate) fn unbound(&self) -> u64 {
        self.unbound
    }

    /// Forgets the arrivals before this number, so that no place can be bound to them. Returns the number of
    /// them that no repair has named.
    pub(crate) fn forget_before(&mut self, kept: u64) -> u64 {
        let oldest = self.forgotten.max(self.kept.saturating_sub(self.order.len() as u64));
        let mut unnamed = 0;
        for arrival in oldest..kept {
            let slot = self.order_slot(arrival);
            if let Some(name) = self.order[slot].take() {
                unnamed += self.forget_arrival(name);
            }
        }
        self.forgotten = self.forgotten.max(kept);
        unnamed
    }

    /// Notes that a repair names a place that is given up: one arrival of a name with distinct arrivals is
    /// used up.
    pub(crate) fn pass_over(&mut self, now_us: u64, name: Name) {
        if let Some(same) = self.distinct(now_us, name)
            && same.unbound > 0
        {
            same.unbound -= 1;
            same.limit_doubles();
            self.unbound -= 1;
        }
    }

    /// Forgets the arrivals of a name with distinct arrivals, so that no place can be bound to them. Returns
    /// the number of them that no repair has named.
    pub(crate) fn forget_name(&mut self, now_us: u64, name: Name) -> u64 {
        let unnamed = self.distinct(now_us, name).map_or(0, |same| {
            (same.doubles, same.slow) = (0, 0);
            std::mem::take(&mut same.unbound)
        });
        self.unbound -= u64::from(unnamed);
        u64::from(unnamed)
    }

    /// Returns the arrivals of a name if all but the newest came at least [`DISTINCT_US`] ago.
    fn distinct(&mut self, now_us: u64, name: Name) -> Option<&mut SameName> {
        let same = self.by_name.find_mut(hash_bits(name), |same| same.name == name)?;
        let since_us = now_us.saturating_sub(same.at_us) + u64::from(same.pause_us);
        (since_us >= DISTINCT_US).then_some(same)
    }

    /// Binds the place that a repair names to an arrival of that name, if there is one. Returns the place,
    /// and the arrival if it was bound by this call.
    pub(crate) fn bind(&mut self, now_us: u64, entry: &Entry) -> (Place, Option<Bound>) {
        let place = self.place(entry.seq);
        if place != Place::Unnamed {
            return (place, None);
        }
        let (place, bound) = match self.take_arrival(entry.name, |_| true) {
            Some(Taken { handle, at_us, count, bound, ttl }) => {
                if count > 0 {
                    self.hops.learn(entry.fields.ttl, ttl);
                }
                let handle = self.with_fields(handle, entry.fields);
                (Place::Arrived { handle, at_us, count }, Some(bound))
            }
            // The place stays without a name. Whether its packet arrived is decided when a repair has solved
            // it.
            None if self.is_crowded(entry.name) => return (Place::Unnamed, None),
            None => {
                self.want(entry.name, entry.seq);
                let Entry { name, fields, .. } = *entry;
                (Place::Missing { name, fields, since_us: now_us, counted: Counted::NOT }, None)
            }
        };
        self.set(entry.seq, place);
        (place, bound)
    }

    /// Time since which a place is missing that does not count yet; none if its packet may have expired on
    /// the way.
    pub(crate) fn uncounted_since_us(&self, seq: Seq) -> Option<u64> {
        match self.place(seq) {
            Place::Missing { fields, since_us, counted, .. } if !counted.is_counted() => {
                self.hops.arriving(fields.ttl).map(|_| since_us)
            }
            _ => None,
        }
    }

    /// Counts a missing place.
    pub(crate) fn count_missing(&mut self, seq: Seq, counted: Counted) {
        if let Place::Missing { name, fields, since_us, .. } = self.place(seq) {
            self.set(seq, Place::Missing { name, fields, since_us, counted });
        }
    }

    /// Binds a place that no repair has named to the arrival of the packet that was solved for it. Returns
    /// the arrival, if that packet has arrived.
    pub(crate) fn recognize(
        &mut self,
        seq: Seq,
        name: Name,
        hash: PacketHash,
        symbol: &[u8],
    ) -> Option<Bound> {
        let is_it = |kept: &[u8]| kept.starts_with(&hash.0.to_be_bytes());
        let Taken { handle, at_us, count, bound, .. } = self.take_arrival(name, is_it)?;
        let handle = match fields_of(symbol) {
            Some(fields) if self.ring.get(handle).is_some() => self.with_fields(handle, fields),
            _ => self.ring.push(&[symbol]).unwrap_or(handle),
        };
        self.set(seq, Place::Arrived { handle, at_us, count });
        Some(bound)
    }

    /// Takes an unbound arrival of a name, if its symbol, where still kept, is the wanted one.
    fn take_arrival(&mut self, name: Name, is_wanted: impl FnOnce(&[u8]) -> bool) -> Option<Taken> {
        let same = self.by_name.find_mut(hash_bits(name), |same| same.name == name)?;
        if same.unbound == 0 || !self.ring.get(same.handle).is_none_or(is_wanted) {
            return None;
        }
        // The others are taken first: a double remains without a name.
        let was_double = u32::from(same.doubles) >= same.unbound;
        let was_slow = u32::from(same.slow) >= same.unbound;
        same.unbound -= 1;
        self.unbound -= 1;
        same.doubles -= u8::from(was_double);
        same.slow -= u8::from(was_slow);
        let count = if same.live == 1 { same.count } else { 0 };
        let bound = Bound { trace: same.trace, was_double, was_slow };
        Some(Taken { handle: same.handle, bound, ttl: same.trace.ttl, at_us: same.at_us, count })
    }

    /// Writes the fields into a symbol, or into a copy if it already has those of an equal packet.
    fn with_fields(&mut self, handle: SymbolHandle, fields: MutableFields) -> SymbolHandle {
        let Some(symbol) = self.ring.get_mut(handle) else { return handle };
        let before = fields_of(symbol).unwrap_or_default();
        if before == MutableFields::default() || before == fields {
            set_fields(symbol, fields);
            return handle;
        }
        let copy = &mut self.spare[..symbol.len()];
        copy.copy_from_slice(symbol);
        set_fields(copy, fields);
        self.ring.push(&[copy]).unwrap_or(handle)
    }

    /// Returns the symbol at a place, if it is known and still kept.
    pub(crate) fn symbol(&self, seq: Seq) -> Option<&[u8]> {
        match self.place(seq) {
            Place::Arrived { handle, .. } | Place::Recovered { handle, .. } => self.ring.get(handle),
            Place::Unnamed | Place::Missing { .. } => None,
        }
    }

    /// Whether the symbol of a known place has left the history.
    pub(crate) fn is_gone(&self, place: Place) -> bool {
        match place {
            Place::Arrived { handle, .. } | Place::Recovered { handle, .. } => {
                self.ring.get(handle).is_none()
            }
            Place::Unnamed | Place::Missing { .. } => false,
        }
    }

    /// Keeps the solved symbol of a place, and what was done with the packet.
    pub(crate) fn recover(&mut self, now_us: u64, seq: Seq, name: Name, symbol: &[u8], treatment: Treatment) {
        let (since_us, counted) = match self.place(seq) {
            Place::Missing { since_us, counted, .. } => (since_us, counted),
            _ => {
                self.want(name, seq);
                (now_us, Counted::NOT)
            }
        };
        if let Some(handle) = self.ring.push(&[symbol]) {
            self.set(seq, Place::Recovered { handle, name, since_us, counted, treatment });
        }
    }

    /// Notes that the packet of a place could not be injected. Returns whether it counted as injected.
    pub(crate) fn on_uninjected(&mut self, seq: Seq) -> bool {
        let mut place = self.place(seq);
        let Place::Recovered { treatment: treatment @ Treatment::Injected, .. } = &mut place else {
            return false;
        };
        *treatment = Treatment::Uninjected;
        self.set(seq, place);
        true
    }

    /// Keeps the symbol of a place whose packet counts as arrived although it was not seen.
    pub(crate) fn presume(&mut self, now_us: u64, seq: Seq, symbol: &[u8]) {
        if let Place::Missing { name, .. } = self.place(seq) {
            self.forget_wanted(name, seq);
        }
        if let Some(handle) = self.ring.push(&[symbol]) {
            self.set(seq, Place::Arrived { handle, at_us: now_us, count: 0 });
        }
    }

    /// Time since which a place is missing.
    pub(crate) fn missing_since_us(&self, seq: Seq) -> Option<u64> {
        match self.place(seq) {
            Place::Missing { since_us, .. } => Some(since_us),
            _ => None,
        }
    }

    /// Whether a place counts as missing ([`Arrivals::count_missing`]).
    pub(crate) fn counted(&self, seq: Seq) -> Counted {
        if let Place::Missing { counted, .. } = self.place(seq) { counted } else { Counted::NOT }
    }

    /// Numbers of routers that packets have passed.
    pub(crate) fn hops(&self) -> &Hops {
        &self.hops
    }

    /// Restores the symbol of a known place that had left the history.
    pub(crate) fn restore(&mut self, seq: Seq, symbol: &[u8]) {
        let Some(kept) = self.ring.push(&[symbol]) else { return };
        let place = match self.place(seq) {
            Place::Arrived { at_us, count, .. } => Place::Arrived { handle: kept, at_us, count },
            Place::Recovered { name, since_us, counted, treatment, .. } => {
                Place::Recovered { handle: kept, name, since_us, counted, treatment }
            }
            other => other,
        };
        self.set(seq, place);
    }

    /// Forgets a place whose fate is settled, and returns it.
    pub(crate) fn settle(&mut self, seq: Seq) -> Place {
        let place = self.place(seq);
        if let Place::Missing { name, .. } | Place::Recovered { name, .. } = place {
            self.forget_wanted(name, seq);
        }
        self.set(seq, Place::Unnamed);
        place
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.memory_bytes()
            + self.by_name.allocation_size()
            + self.wanted.allocation_size()
            + size_of_val(&*self.order)
            + size_of_val(&*self.places)
            + self.spare.len()
    }

    /// Whether the packet at a place arrived, or was recovered.
    pub(crate) fn is_known(&self, seq: Seq) -> bool {
        matches!(self.place(seq), Place::Arrived { .. } | Place::Recovered { .. })
    }

    pub(crate) fn place(&self, seq: Seq) -> Place {
        let (at, place) = self.places[self.slot(seq)];
        if at == seq { place } else { Place::Unnamed }
    }

    fn set(&mut self, seq: Seq, place: Place) {
        let slot = self.slot(seq);
        self.places[slot] = (seq, place);
    }

    fn slot(&self, seq: Seq) -> usize {
        // The length is a power of two, which avoids a division: a window's repair looks at hundreds of
        // places.
        seq.0 as usize & (self.places.len() - 1)
    }

    /// Whether [`EQUAL_MAX`] places wait for packets of this name.
    fn is_crowded(&self, name: Name) -> bool {
        let equal = self.wanted.iter_hash(hash_bits(name)).filter(|&&(wanted, _)| wanted == name);
        equal.take(EQUAL_MAX).count() == EQUAL_MAX
    }

    fn want(&mut self, name: Name, seq: Seq) {
        if self.is_crowded(name) {
            return;
        }
        self.wanted.insert_unique(hash_bits(name), (name, seq), |&(name, _)| hash_bits(name));
    }

    fn find_wanted(&self, name: Name) -> Option<Seq> {
        self.wanted.find(hash_bits(name), |&(wanted, _)| wanted == name).map(|&(_, seq)| seq)
    }

    fn forget_wanted(&mut self, name: Name, seq: Seq) {
        if let Ok(entry) = self.wanted.find_entry(hash_bits(name), |&wanted| wanted == (name, seq)) {
            entry.remove();
        }
    }
}

/// Spreads a name, which is a hash already, over the 64 bits that the table needs.
fn hash_bits(name: Name) -> u64 {
    u64::from(name.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;

    fn entry(seq: u64, name: u32) -> Entry {
        Entry { seq: Seq(seq), name: Name(name), fields: MutableFields::default() }
    }

    fn arrive(arrivals: &mut Arrivals, name: u32) -> Arrived {
        let bytes = crate::packet::tests::udp4([10, 0, 0, 1], [10, 0, 1, 1], name as u16, b"hello");
        let packet = crate::packet::Packet::new_checked(&bytes).unwrap();
        let symbol = Symbol::new(&packet, PacketHash(name.into()), MutableFields::default());
        let trace = Trace { flow: Flow(1), ttl: 64, opens: false, is_fragment: false, timestamp: None };
        arrivals.insert(1, Name(name), trace, &symbol)
    }

    #[test]
    fn forgotten_arrivals_that_no_repair_has_named_are_counted() {
        let mut arrivals = Arrivals::new(8, 16, 100);
        assert_eq!(arrivals.forget_before(0), 0);
        (0..5).for_each(|name| _ = arrive(&mut arrivals, name));
        (0..3).for_each(|seq| _ = arrivals.bind(1, &entry(seq, seq as u32)));
        assert_eq!(arrivals.forget_before(3), 0, "each of them was named");
        assert_eq!((arrivals.forget_before(5), arrivals.unbound()), (2, 0));
        assert_eq!(arrivals.forget_before(5), 0, "they are forgotten once");
        assert!(matches!(arrivals.bind(1, &entry(3, 3)).0, Place::Missing { .. }));
    }

    #[test]
    fn an_arrival_is_the_next_of_equal_packets_and_not_the_missing_one() {
        let mut arrivals = Arrivals::new(8, 16, 100);
        arrive(&mut arrivals, 7);
        assert!(matches!(arrivals.bind(1, &entry(0, 7)).0, Place::Arrived { .. }));
        for seq in [1, 3] {
            assert!(matches!(arrivals.bind(1, &entry(seq, 7)).0, Place::Missing { .. }));
            assert!(matches!(arrive(&mut arrivals, 7), Arrived::Kept));
            assert!(matches!(arrivals.bind(1, &entry(seq + 1, 7)).0, Place::Arrived { .. }));
            assert!(matches!(arrivals.place(Seq(seq)), Place::Missing { .. }));
        }
        assert!(matches!(arrivals.bind(1, &entry(5, 8)).0, Place::Missing { .. }));
        assert!(
            matches!(arrive(&mut arrivals, 8), Arrived::Late { seq: Seq(5), .. }),
            "no equal one is known"
        );
    }

    #[test]
    fn the_double_among_equal_arrivals_is_bound_last_and_forgotten_with_them() {
        let mut arrivals = Arrivals::new(8, 16, 100);
        let bind = |arrivals: &mut Arrivals, seq| {
            let bound = arrivals.bind(1, &entry(seq, 7)).1.expect("an arrival of this name");
            (bound.was_double, bound.was_slow)
        };
        for (is_double, is_slow) in [(true, false), (true, true)] {
            let seq = arrivals.kept();
            (0..2).for_each(|_| _ = arrive(&mut arrivals, 7));
            arrivals.on_double(Name(7), is_double, is_slow);
            assert_eq!(bind(&mut arrivals, seq), (false, false));
            assert_eq!(bind(&mut arrivals, seq + 1), (is_double, is_slow));
        }
        // A repair of a place that is given up uses one of two doubles up.
        (0..2).for_each(|_| {
            arrive(&mut arrivals, 7);
            arrivals.on_double(Name(7), true, true);
        });
        arrivals.pass_over(DISTINCT_US + 1, Name(7));
        arrive(&mut arrivals, 7);
        assert_eq!(bind(&mut arrivals, 9), (false, false), "one of two is a double");
    }

    #[test]
    fn the_memory_of_each_part_counts() {
        let bytes = |history, places, symbol_max| Arrivals::new(history, places, symbol_max).memory_bytes();
        let base = bytes(8, 16, 100);
        // A symbol for each of the history, one more in the ring, and a spare one.
        assert_eq!(bytes(8, 16, 200) - base, 10 * 100);
        assert!(bytes(8, 32, 100) - base >= 16 * size_of::<(Seq, Place)>());
        let names = |history| HashTable::<SameName>::with_capacity(names_beside(history)).allocation_size();
        let ring = |history| SymbolRing::new(history, (history + 1) * 100).memory_bytes();
        let order = names_beside(8) * size_of::<Option<Name>>();
        assert_eq!(bytes(16, 16, 100) - base, ring(16) - ring(8) + names(16) - names(8) + order);
    }

    #[test]
    fn the_number_of_places_that_wait_for_equal_packets_is_bounded() {
        let mut arrivals = Arrivals::new(1 << 13, 1 << 14, 100);
        for seq in 0..8_000 {
            arrivals.bind(1, &entry(seq, 7));
        }
        assert_eq!(arrivals.wanted.len(), EQUAL_MAX);
        assert!(
            matches!(arrivals.bind(1, &entry(8_000, 8)).0, Place::Missing { .. }),
            "other names are not affected"
        );
        // Places that are settled make room.
        (0..100).for_each(|seq| _ = arrivals.settle(Seq(seq)));
        assert_eq!(arrivals.wanted.len(), 1);
        assert!(matches!(arrivals.bind(1, &entry(9_000, 7)).0, Place::Missing { .. }));
    }
}
