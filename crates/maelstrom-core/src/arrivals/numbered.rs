//! Places of a stream whose packets carry their positions, as those of a tunnel do.

use super::{Arrivals, Counted, Place, Treatment};
use crate::identity::Name;
use crate::packet::MutableFields;
use crate::symbol::Symbol;
use foundation::Seq;

/// Packets in a tunnel pass no router, so that none of them expires.
const UNROUTED: MutableFields = MutableFields { ttl: u8::MAX, tos: 0 };

/// The meaning of a packet for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is the first one there.
    New,
    /// It was missing for `late_us`.
    Late { late_us: u64 },
    /// It had been solved, `late_us` after it was found missing. `is_injected`: whether it was handed on.
    Solved { late_us: u64, is_injected: bool },
    /// It has arrived before.
    Double,
}

impl Arrivals {
    /// Notes that the packets from `first` to before `limit` have been sent. Those that have not arrived are
    /// missing from now on.
    pub(crate) fn expect(&mut self, now_us: u64, first: Seq, limit: Seq) {
        let missing =
            Place::Missing { name: Name(0), fields: UNROUTED, since_us: now_us, counted: Counted::NOT };
        for seq in (first.0..limit.0).map(Seq) {
            if self.place(seq) == Place::Unnamed {
                self.set(seq, missing);
            }
        }
    }

    /// Number of arrivals since the start, with positions or without.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a repair has named the packet of a place. Packets with positions have no names.
    pub(crate) fn is_named(&self, seq: Seq) -> bool {
        match self.place(seq) {
            Place::Unnamed => false,
            Place::Missing { name, fields, .. } => (name, fields) != (Name(0), UNROUTED),
            Place::Arrived { .. } | Place::Recovered { .. } => true,
        }
    }

    /// Keeps a packet that arrived with its position.
    pub(crate) fn put(&mut self, now_us: u64, seq: Seq, symbol: &Symbol<'_>) -> Placed {
        let placed = match self.place(seq) {
            Place::Unnamed => Placed::New,
            Place::Missing { since_us, .. } => Placed::Late { late_us: now_us.saturating_sub(since_us) },
            Place::Recovered { since_us, treatment, .. } => {
                let late_us = now_us.saturating_sub(since_us);
                Placed::Solved { late_us, is_injected: treatment == Treatment::Injected }
            }
            Place::Arrived { .. } => Placed::Double,
        };
        let is_known = matches!(placed, Placed::Double | Placed::Solved { is_injected: true, .. });
        if !is_known && let Some(handle) = self.ring.push(&symbol.pieces()) {
            self.count += 1;
            self.set(seq, Place::Arrived { handle, at_us: now_us, count: self.count });
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_finds_its_place_once() {
        let mut arrivals = Arrivals::new(8, 16, 100);
        let symbol = Symbol::whole(b"packet");
        assert_eq!(arrivals.put(10, Seq(0), &symbol), Placed::New);
        assert_eq!(arrivals.put(11, Seq(0), &symbol), Placed::Double);
        arrivals.expect(20, Seq(0), Seq(3));
        assert!(matches!(arrivals.place(Seq(0)), Place::Arrived { .. }));
        assert_eq!(arrivals.put(50, Seq(1), &symbol), Placed::Late { late_us: 30 });
        for (treatment, is_injected) in [(Treatment::Injected, true), (Treatment::Left, false)] {
            arrivals.recover(60, Seq(2), Name(0), b"solved", treatment);
            assert!(arrivals.is_named(Seq(2)) && !arrivals.is_named(Seq(3)));
            assert_eq!(arrivals.put(70, Seq(2), &symbol), Placed::Solved { late_us: 50, is_injected });
            arrivals.settle(Seq(2));
            arrivals.expect(20, Seq(2), Seq(3));
        }
        assert_eq!(arrivals.symbol(Seq(1)).map(<[u8]>::len), Some(18));
    }
}
