//! Content that is known from its offset in the stream.

/// Number of bytes after which the content repeats. It is a prime, so no whole number of segments is a
/// period, and a displaced segment is noticed unless it moved by a multiple of this.
const PERIOD: usize = 65_521;

/// Number of periods in one piece.
const PIECES: usize = 4;

/// Pseudo-random bytes, stored once and repeated, so that making and checking content is as cheap as copying
/// and comparing memory.
#[derive(Debug)]
pub(super) struct Pattern {
    repeated: Box<[u8]>,
}

impl Pattern {
    /// Maximum length of a piece, in bytes.
    pub(super) const PIECE_MAX: usize = PERIOD * PIECES;

    pub(super) fn new() -> Self {
        // xorshift64*; any bytes without a short period would do.
        let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
        let period: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_be_bytes()[0]
        })
        .take(PERIOD)
        .collect();
        Self { repeated: period.repeat(PIECES + 1).into() }
    }

    /// Returns the content from `offset` on, in the maximum length of a piece.
    pub(super) fn at(&self, offset: u64) -> &[u8] {
        let phase = usize::try_from(offset % PERIOD as u64).expect("less than the period");
        &self.repeated[phase..phase + Self::PIECE_MAX]
    }

    /// Returns the offset of the first byte of `piece` that differs from the content at `offset`.
    ///
    /// # Panics
    /// If the piece is longer than [`Self::PIECE_MAX`].
    pub(super) fn first_mismatch(&self, offset: u64, piece: &[u8]) -> Option<u64> {
        let expected = &self.at(offset)[..piece.len()];
        if expected == piece {
            return None;
        }
        let position = expected.iter().zip(piece).position(|(expected, seen)| expected != seen)?;
        Some(offset + position as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_the_offset_alone() {
        let pattern = Pattern::new();
        let start: Vec<u8> = pattern.at(0)[..100_000].to_vec();
        assert_eq!(pattern.first_mismatch(0, &start), None);
        assert_eq!(pattern.first_mismatch(1234, &start[1234..]), None);
        assert_eq!(pattern.at(PERIOD as u64 * 1_000_000 + 5)[..500], start[5..505]);
    }

    #[test]
    fn a_wrong_byte_and_missing_or_displaced_segments_are_located() {
        let pattern = Pattern::new();
        let mut piece = pattern.at(7000)[..5000].to_vec();
        piece[4321] ^= 1;
        assert_eq!(pattern.first_mismatch(7000, &piece), Some(11_321));
        for segments in 1..1000 {
            let segment = &pattern.at(segments * 1248)[..1248];
            assert!(pattern.first_mismatch(0, segment).is_some_and(|at| at < 16), "{segments} segments");
        }
    }
}
