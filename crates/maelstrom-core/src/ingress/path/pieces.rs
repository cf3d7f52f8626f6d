//! First pieces of packets that routers fragment, by which a solved packet is recognised as not lost.
//!
//! A fragment has another name than the packet it is a piece of. It is remembered until repairs name no
//! packets of its time any more. An injected packet is remembered as well: if its first piece arrives later,
//! the packet was delivered twice.

use crate::flow::Piece;

/// Maximum number of entries of a bucket that are looked at. The hash is keyed, so that strangers cannot fill
/// a bucket with different pieces.
const CHAIN_MAX: usize = 32;

/// A fragment that arrived, or a packet that was injected.
#[derive(Clone, Copy)]
struct Known {
    piece: Piece,
    /// Time at which the packet was injected; `None` for a fragment.
    injected_us: Option<u64>,
    /// Number of the entry before it in its bucket.
    before: u64,
}

/// The newest pieces, in a ring. The entries of a bucket form a chain from the newest to the oldest.
pub(super) struct Pieces {
    ring: Box<[Known]>,
    /// Number of the newest entry of each bucket.
    newest: Box<[u64]>,
    /// Number of the next entry. The first one is 1.
    next: u64,
}

impl Pieces {
    /// Remembers `capacity` pieces, a power of two.
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "capacity: expected a power of two, saw {capacity}");
        let none = Known { piece: Piece(0), injected_us: None, before: 0 };
        Self {
            ring: vec![none; capacity].into_boxed_slice(),
            newest: vec![0; capacity].into_boxed_slice(),
            next: 1,
        }
    }

    /// Notes a fragment that arrived. If its packet was injected, returns when.
    pub(super) fn on_fragment(&mut self, piece: Piece) -> Option<u64> {
        let injected_us = self.find(piece).and_then(|known| known.injected_us);
        self.insert(piece, None);
        injected_us
    }

    /// Notes a packet that was injected.
    pub(super) fn on_injected(&mut self, now_us: u64, piece: Piece) {
        self.insert(piece, Some(now_us));
    }

    /// Whether such a fragment arrived.
    pub(super) fn has_arrived(&self, piece: Piece) -> bool {
        self.find(piece).is_some_and(|known| known.injected_us.is_none())
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }

    /// Returns the newest entry of a piece.
    fn find(&self, piece: Piece) -> Option<&Known> {
        let mut number = self.newest[self.slot(piece.0.into())];
        for _ in 0..CHAIN_MAX {
            if number == 0 || number + (self.ring.len() as u64) < self.next {
                return None;
            }
            let known = &self.ring[self.slot(number)];
            if known.piece == piece {
                return Some(known);
            }
            number = known.before;
        }
        None
    }

    fn insert(&mut self, piece: Piece, injected_us: Option<u64>) {
        let bucket = self.slot(piece.0.into());
        let before = std::mem::replace(&mut self.newest[bucket], self.next);
        self.ring[self.slot(self.next)] = Known { piece, injected_us, before };
        self.next += 1;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ring) + size_of_val(&*self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_pieces_are_remembered() {
        // Also pieces that share a bucket.
        for stride in [1, 2, 64] {
            let (mut pieces, piece) = (Pieces::new(32), |n: u32| Piece(n * stride));
            for n in 0..1_000 {
                assert_eq!(pieces.on_fragment(piece(n)), None);
                let oldest = n.saturating_sub(31);
                assert!((oldest..=n).all(|n| pieces.has_arrived(piece(n))), "{n}, stride {stride}");
                assert!(!pieces.has_arrived(piece(n + 1)));
                assert!(n < 32 || !pieces.has_arrived(piece(n - 32)), "{n}, stride {stride}");
            }
        }
    }

    #[test]
    fn a_piece_that_comes_again_is_remembered_since_then() {
        let mut pieces = Pieces::new(4);
        for piece in [1, 2, 1, 3, 4] {
            pieces.on_fragment(Piece(piece));
        }
        assert!(pieces.has_arrived(Piece(1)) && pieces.has_arrived(Piece(4)));
        pieces.on_fragment(Piece(5));
        assert!(pieces.has_arrived(Piece(1)) && !pieces.has_arrived(Piece(2)));
    }

    #[test]
    fn a_piece_of_an_injected_packet_tells_when_that_was() {
        let mut pieces = Pieces::new(4);
        pieces.on_injected(70, Piece(1));
        assert!(!pieces.has_arrived(Piece(1)));
        assert_eq!((pieces.on_fragment(Piece(1)), pieces.on_fragment(Piece(1))), (Some(70), None));
        assert!(pieces.has_arrived(Piece(1)));
    }
}
