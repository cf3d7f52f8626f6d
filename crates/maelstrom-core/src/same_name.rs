//! Arrivals that share a name.

use fec::SymbolHandle;

use crate::identity::Name;
use crate::place::Trace;

/// The remembered arrivals that share a name: mostly one, or a packet that is sent repeatedly.
#[derive(Clone, Copy)]
pub(crate) struct SameName {
    pub(crate) name: Name,
    /// Symbol of the newest arrival.
    pub(crate) handle: SymbolHandle,
    /// Trace of the newest arrival.
    pub(crate) trace: Trace,
    pub(crate) at_us: u64,
    /// Time between the two newest arrivals; the maximum if there is one.
    pub(crate) pause_us: u32,
    /// Number of the newest arrival among all arrivals.
    pub(crate) count: u64,
    /// Number of arrivals remembered.
    pub(crate) live: u32,
    /// Number of these that no repair has named.
    pub(crate) unbound: u32,
    /// Number of unnamed arrivals that count as second ones of packets that were injected, and as slow ones.
    pub(crate) doubles: u8,
    pub(crate) slow: u8,
}

impl SameName {
    /// Forgets the doubles among arrivals that are forgotten.
    pub(crate) fn limit_doubles(&mut self) {
        let unbound = u8::try_from(self.unbound).unwrap_or(u8::MAX);
        (self.doubles, self.slow) = (self.doubles.min(unbound), self.slow.min(unbound));
    }
}
