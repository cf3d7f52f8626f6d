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
    /// A repair named it at `since_us`, and it has not arrived. `is_counted` if a repair has waited for it in
    /// vain.
    Missing { name: Name, fields: MutableFields, since_us: u64, is_counted: bool },
    /// It was missing since `since_us` and has been solved.
    Recovered { handle: SymbolHandle, name: Name, since_us: u64, is_counted: bool, treatment: Treatment },
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
    /// A repair had named the packet `late_us` before. `is_counted` if it counted as missing.
    Late { seq: Seq, late_us: u64, fields: MutableFields, is_counted: bool },
    /// The packet is kept, and equals one that was recovered: the original came late, or was sent again.
    /// `is_repeated` if other equal packets are remembered.
    LikeRecovered { late_us: u64, is_repeated: bool, is_counted: bool, is_injected: bool },
}
