//! The places of a stream, and what an arrival means for them.

use std::num::NonZero;

use fec::SymbolHandle;

use crate::flow::Flow;
use crate::identity::Name;
use crate::packet::MutableFields;
use foundation::Seq;

/// One place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// No repair has named it.
    Unnamed,
    /// It arrived. `count` is its number among all arrivals, or 0 if several equal packets arrived.
    Arrived { handle: SymbolHandle, at_us: u64, count: u64 },
    /// A repair named it at `since_us`, and it has not arrived. It counts if a repair has waited for it in
    /// vain.
    Missing { name: Name, fields: MutableFields, since_us: u64, counted: Counted },
    /// It was missing since `since_us` and has been solved.
    Recovered { handle: SymbolHandle, name: Name, since_us: u64, counted: Counted, treatment: Treatment },
}

/// Whether a packet counts as missing, and as how much evidence that packets take another path.
///
/// A burst of losses is one event, however many packets it takes. The packets of a gateway's tick leave as a
/// train, with their repairs behind, so that a burst may take tens of packets and no repair. The packet at
/// place k of a run of missing packets therefore has a share of 1/k² of a single one's evidence, and a run at
/// most π²/6 in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted(Option<NonZero<u8>>);

impl Counted {
    /// It does not count.
    pub(crate) const NOT: Self = Self(None);

    /// The packet that begins a run.
    pub(crate) const FIRST: Self = Self(NonZero::new(1));

    /// The packet behind this one in its run.
    pub(crate) fn next(self) -> Self {
        Self(self.0.map(|place| place.saturating_add(1)))
    }

    pub(crate) fn is_counted(self) -> bool {
        self.0.is_some()
    }

    /// Its part of an amount that is that of a single packet.
    pub(crate) fn part_of(self, single: i64) -> i64 {
        self.0.map_or(0, |place| single / i64::from(place.get()).pow(2))
    }
}

/// Treatment of a solved packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    Injected,
    /// It may have arrived, or would not have.
    Withheld,
    /// A full queue dropped it, and its sender must learn of that.
    Left,
    /// The driver could not inject it.
    Uninjected,
}

/// Traits of an arrival that concern its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) flow: Flow,
    pub(crate) ttl: u8,
    /// Whether it opened a TCP connection.
    pub(crate) opens: bool,
    /// Whether it is an IPv4 fragment.
    pub(crate) is_fragment: bool,
    /// Time of sending that a TCP segment states, unless it is 0.
    pub(crate) timestamp: Option<NonZero<u32>>,
}

/// An arrival that a place was bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) trace: Trace,
    /// Whether it had counted as the second arrival of a packet that was injected.
    pub(crate) was_double: bool,
    /// Whether it had counted as a slow one.
    pub(crate) was_slow: bool,
}

/// Classification of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The packet is kept until a repair names it.
    Kept,
    /// A repair had named the packet `late_us` before.
    Late { seq: Seq, late_us: u64, fields: MutableFields, counted: Counted },
    /// The packet is kept, and equals one that was recovered: the original came late, or was sent again.
    /// `is_repeated` if other equal packets are remembered.
    LikeRecovered { late_us: u64, is_repeated: bool, counted: Counted, is_injected: bool },
}
