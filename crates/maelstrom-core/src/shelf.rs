//! What the ingress keeps of the packets that arrived, and which of them the repairs have named.
//!
//! A packet arrives without a number. The first repair that names it *binds* it to its place in the far egress'
//! stream; packets equal in everything are so told apart by their number alone: each arrival serves one place.

use fec::{SymbolHandle, SymbolRing};
use hashbrown::HashTable;

use crate::identity::{Name, PacketHash};
use crate::packet::MutableFields;
use crate::symbol::{Symbol, fields_of, set_fields};
use crate::wire::Entry;
use foundation::Seq;

/// One place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// No repair has named it yet.
    Unnamed,
    /// It arrived, as that one of all arrivals; 0 if it is one of several equal ones.
    Arrived { handle: SymbolHandle, at_us: u64, count: u64 },
    /// A repair named it, at that time, and it has not been seen.
    Missing { name: Name, fields: MutableFields, since_us: u64 },
    /// It was missing since that time and has been recovered.
    Recovered { handle: SymbolHandle, name: Name, since_us: u64 },
}

/// The arrivals remembered that share a name: mostly one, or a packet that is sent over and over.
#[derive(Clone, Copy)]
struct Arrivals {
    name: Name,
    /// The newest of them.
    handle: SymbolHandle,
    at_us: u64,
    /// How long after the one before it came; for ever where it is the first.
    pause_us: u32,
    /// Its number among all arrivals.
    count: u64,
    /// How many are remembered.
    live: u32,
    /// How many of these no repair has named yet.
    unbound: u32,
}

/// What an arrival turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Kept until a repair names it.
    Kept,
    /// A repair had named it so long before: it came late, by itself.
    Late { seq: Seq, late_us: u64, fields: MutableFields },
    /// Kept, and equal to one that was recovered: that one came after all, or was sent again. `is_repeated` if other
    /// equal ones are about.
    LikeRecovered { late_us: u64, is_repeated: bool },
}

/// Names are remembered so many times longer than packets: a repair that comes when its packets have left the window must
/// not find their names forgotten too, or they would look as if they had never come.
pub(crate) const NAMES: usize = 4;

/// Equal packets so far apart come seldom: a repair, and what left before or after it, get no further out of order.
const SELDOM_US: u64 = 25_000;

/// The window of packets of one peer's stream.
pub(crate) struct Shelf {
    ring: SymbolRing,
    arrivals: HashTable<Arrivals>,
    /// Names of the last arrivals, in a ring, to forget them in their order.
    order: Box<[Option<Name>]>,
    /// Arrivals kept so far by name.
    kept: u64,
    /// Of these, so many that no repair has named.
    unbound: u64,
    /// So many were forgotten together.
    forgotten: u64,
    /// Arrivals so far.
    count: u64,
    /// Places that are missing or recovered, by name: what a late arrival is found by.
    wanted: HashTable<(Name, Seq)>,
    places: Box<[(Seq, Place)]>,
    /// A symbol while it is copied.
    spare: Box<[u8]>,
}

impl Shelf {
    /// Keeps `window` packets (a power of two) of up to `symbol_max` bytes each.
    pub(crate) fn new(window: usize, symbol_max: usize) -> Self {
        assert!(window.is_power_of_two(), "a window is a power of two, not {window}");
        Self {
            // One symbol more: the ring may leave one symbol's length idle at its end.
            ring: SymbolRing::new(window, (window + 1) * symbol_max),
            arrivals: HashTable::with_capacity(NAMES * window),
            order: vec![None; NAMES * window].into_boxed_slice(),
            kept: 0,
            unbound: 0,
            forgotten: 0,
            count: 0,
            wanted: HashTable::with_capacity(4 * window),
            places: vec![(Seq(0), Place::Unnamed); 2 * window].into_boxed_slice(),
            spare: vec![0; symbol_max].into_boxed_slice(),
        }
    }

    /// How many places can be told apart at a time.
    pub(crate) fn places(&self) -> u64 {
        self.places.len() as u64
    }

    /// Keeps a packet that arrived.
    pub(crate) fn arrive(&mut self, now_us: u64, name: Name, symbol: &Symbol<'_>) -> Arrived {
        let arrived = match self.find_wanted(name) {
            None => Arrived::Kept,
            Some(seq) => self.arrive_wanted(now_us, name, seq),
        };
        let Some(handle) = self.ring.push(&symbol.pieces()) else { return Arrived::Kept };
        self.count += 1;
        match arrived {
            Arrived::Late { seq, fields, .. } => {
                let handle = self.with_fields(handle, fields);
                self.set(seq, Place::Arrived { handle, at_us: now_us, count: self.count });
            }
            Arrived::Kept | Arrived::LikeRecovered { .. } => self.keep(now_us, name, handle),
        }
        arrived
    }

    fn arrive_wanted(&mut self, now_us: u64, name: Name, seq: Seq) -> Arrived {
        match self.place(seq) {
            Place::Recovered { since_us, .. } => {
                self.forget_wanted(name, seq);
                let is_repeated = self.has_arrivals(name);
                Arrived::LikeRecovered { late_us: now_us.saturating_sub(since_us), is_repeated }
            }
            // Where equal packets are about, this is more likely the next of them than the missing one, late.
            Place::Missing { since_us, fields, .. } if !self.has_arrivals(name) => {
                self.forget_wanted(name, seq);
                Arrived::Late { seq, late_us: now_us.saturating_sub(since_us), fields }
            }
            _ => Arrived::Kept,
        }
    }

    fn has_arrivals(&self, name: Name) -> bool {
        self.arrivals.find(spread(name), |arrivals| arrivals.name == name).is_some()
    }

    fn keep(&mut self, at_us: u64, name: Name, handle: SymbolHandle) {
        let count = self.count;
        let slot = self.order_slot(self.kept);
        if let Some(oldest) = self.order[slot].replace(name) {
            self.forget_arrival(oldest);
        }
        self.kept += 1;
        self.unbound += 1;
        let same = |arrivals: &Arrivals| arrivals.name == name;
        match self.arrivals.find_mut(spread(name), same) {
            Some(arrivals) => {
                let (live, unbound) = (arrivals.live + 1, arrivals.unbound + 1);
                let pause_us = u32::try_from(at_us.saturating_sub(arrivals.at_us)).unwrap_or(u32::MAX);
                *arrivals = Arrivals { name, handle, at_us, pause_us, count, live, unbound };
            }
            None => {
                let pause_us = u32::MAX;
                let first = Arrivals { name, handle, at_us, pause_us, count, live: 1, unbound: 1 };
                self.arrivals.insert_unique(spread(name), first, |arrivals| spread(arrivals.name));
            }
        }
    }

    fn order_slot(&self, kept: u64) -> usize {
        // There are a power of two.
        kept as usize & (self.order.len() - 1)
    }

    /// Forgets the oldest arrival of a name; 1 if no repair has named it, else 0.
    fn forget_arrival(&mut self, name: Name) -> u64 {
        let Ok(mut entry) = self.arrivals.find_entry(spread(name), |arrivals| arrivals.name == name) else {
            return 0;
        };
        let arrivals = entry.get_mut();
        arrivals.live -= 1;
        // The oldest are bound first.
        let is_unbound = arrivals.unbound > arrivals.live;
        arrivals.unbound -= u32::from(is_unbound);
        if arrivals.live == 0 {
            entry.remove();
        }
        self.unbound -= u64::from(is_unbound);
        u64::from(is_unbound)
    }

    /// Arrivals kept so far, to be told apart by their number.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// Arrivals that no repair has named.
    pub(crate) fn unbound(&self) -> u64 {
        self.unbound
    }

    /// Arrivals before this number are bound to no place from now on. Returns how many of them no repair has named.
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

    /// A repair has named a place that is given up: it stands for one arrival less, where equal ones come seldom.
    pub(crate) fn pass_over(&mut self, now_us: u64, name: Name) {
        if let Some(arrivals) = self.seldom(now_us, name)
            && arrivals.unbound > 0
        {
            arrivals.unbound -= 1;
            self.unbound -= 1;
        }
    }

    /// Arrivals of a name that come seldom are bound to no place from now on. Returns how many of them no repair has named.
    pub(crate) fn forget_name(&mut self, now_us: u64, name: Name) -> u64 {
        let unnamed = self.seldom(now_us, name).map_or(0, |arrivals| std::mem::take(&mut arrivals.unbound));
        self.unbound -= u64::from(unnamed);
        u64::from(unnamed)
    }

    /// The arrivals of a name if all but the newest came [`SELDOM_US`] ago or before.
    fn seldom(&mut self, now_us: u64, name: Name) -> Option<&mut Arrivals> {
        let arrivals = self.arrivals.find_mut(spread(name), |arrivals| arrivals.name == name)?;
        let since_us = now_us.saturating_sub(arrivals.at_us) + u64::from(arrivals.pause_us);
        (since_us >= SELDOM_US).then_some(arrivals)
    }

    /// The place that a repair names, bound now to an arrival of that name if there is one.
    pub(crate) fn name(&mut self, now_us: u64, entry: &Entry) -> Place {
        let place = self.place(entry.seq);
        if place != Place::Unnamed {
            return place;
        }
        let place = match self.take_arrival(entry.name, |_| true) {
            Some((handle, at_us, count)) => {
                Place::Arrived { handle: self.with_fields(handle, entry.fields), at_us, count }
            }
            None => {
                self.want(entry.name, entry.seq);
                Place::Missing { name: entry.name, fields: entry.fields, since_us: now_us }
            }
        };
        self.set(entry.seq, place);
        place
    }

    /// Binds a place that no repair has named to the arrival of the packet that was solved for it. False if that packet
    /// has not arrived: it was lost.
    pub(crate) fn recognise(&mut self, seq: Seq, name: Name, hash: PacketHash, symbol: &[u8]) -> bool {
        let is_it = |kept: &[u8]| kept.starts_with(&hash.0.to_be_bytes());
        let Some((handle, at_us, count)) = self.take_arrival(name, is_it) else { return false };
        let handle = match fields_of(symbol) {
            Some(fields) if self.ring.get(handle).is_some() => self.with_fields(handle, fields),
            _ => self.ring.push(&[symbol]).unwrap_or(handle),
        };
        self.set(seq, Place::Arrived { handle, at_us, count });
        true
    }

    /// Takes one of the arrivals of a name that are not bound yet, if what is still kept of it is what was wanted: its
    /// symbol, when it came, and its number among all arrivals.
    fn take_arrival(
        &mut self,
        name: Name,
        is_wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(SymbolHandle, u64, u64)> {
        let arrivals = self.arrivals.find_mut(spread(name), |arrivals| arrivals.name == name)?;
        if arrivals.unbound == 0 || !self.ring.get(arrivals.handle).is_none_or(is_wanted) {
            return None;
        }
        arrivals.unbound -= 1;
        self.unbound -= 1;
        Some((arrivals.handle, arrivals.at_us, if arrivals.live == 1 { arrivals.count } else { 0 }))
    }

    /// Writes the fields into a symbol, or into a copy where an equal packet that left with others has this one.
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

    /// The symbol at a place, if it is known and still kept.
    pub(crate) fn symbol(&self, seq: Seq) -> Option<&[u8]> {
        match self.place(seq) {
            Place::Arrived { handle, .. } | Place::Recovered { handle, .. } => self.ring.get(handle),
            Place::Unnamed | Place::Missing { .. } => None,
        }
    }

    /// Whether a known place's symbol has left the window.
    pub(crate) fn is_gone(&self, place: Place) -> bool {
        match place {
            Place::Arrived { handle, .. } | Place::Recovered { handle, .. } => {
                self.ring.get(handle).is_none()
            }
            Place::Unnamed | Place::Missing { .. } => false,
        }
    }

    /// A place whose packet was lost has its symbol now.
    pub(crate) fn recover(&mut self, now_us: u64, seq: Seq, name: Name, symbol: &[u8]) {
        let since_us = match self.place(seq) {
            Place::Missing { since_us, .. } => since_us,
            _ => {
                self.want(name, seq);
                now_us
            }
        };
        if let Some(handle) = self.ring.push(&[symbol]) {
            self.set(seq, Place::Recovered { handle, name, since_us });
        }
    }

    /// Puts back the symbol of a known place that had left the window.
    pub(crate) fn restore(&mut self, seq: Seq, symbol: &[u8]) {
        let Some(kept) = self.ring.push(&[symbol]) else { return };
        let place = match self.place(seq) {
            Place::Arrived { at_us, count, .. } => Place::Arrived { handle: kept, at_us, count },
            Place::Recovered { name, since_us, .. } => Place::Recovered { handle: kept, name, since_us },
            other => other,
        };
        self.set(seq, place);
    }

    /// Forgets a place whose fate is settled; says what it was.
    pub(crate) fn settle(&mut self, seq: Seq) -> Place {
        let place = self.place(seq);
        if let Place::Missing { name, .. } | Place::Recovered { name, .. } = place {
            self.forget_wanted(name, seq);
        }
        self.set(seq, Place::Unnamed);
        place
    }

    /// When the packet before `seq` arrived, or one near to it: about when `seq` would have.
    pub(crate) fn expected_us(&self, seq: Seq) -> Option<u64> {
        const NEAR: u64 = 64;
        let arrival = |seq| match self.place(seq) {
            Place::Arrived { at_us, .. } => Some(at_us),
            _ => None,
        };
        (1..=NEAR).find_map(|step| {
            (seq.0 >= step).then(|| arrival(seq.minus(step))).flatten().or(arrival(seq.plus(step)))
        })
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.memory_bytes()
            + self.arrivals.allocation_size()
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
        // There are a power of two: no division, for a window's repair looks at hundreds.
        seq.0 as usize & (self.places.len() - 1)
    }

    fn want(&mut self, name: Name, seq: Seq) {
        self.wanted.insert_unique(spread(name), (name, seq), |&(name, _)| spread(name));
    }

    fn find_wanted(&self, name: Name) -> Option<Seq> {
        self.wanted.find(spread(name), |&(wanted, _)| wanted == name).map(|&(_, seq)| seq)
    }

    fn forget_wanted(&mut self, name: Name, seq: Seq) {
        if let Ok(entry) = self.wanted.find_entry(spread(name), |&wanted| wanted == (name, seq)) {
            entry.remove();
        }
    }
}

/// A name is a hash already; the table wants its bits spread over 64.
fn spread(name: Name) -> u64 {
    u64::from(name.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
