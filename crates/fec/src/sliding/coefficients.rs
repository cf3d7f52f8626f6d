//! Coefficients of a repair, generated from its seed.

use super::config::DENSITY_FULL;
use crate::tinymt32::{TinyMt32, Together};

/// Numbers drawn from each seed at a time.
const AT_ONCE: usize = 16;

/// Fills in the coefficients of the repair with this seed, for the packets of its window, oldest first (RFC
/// 8681 §3.6, over GF(256)).
///
/// The receiver of a repair calls it to reproduce the sender's coefficients.
///
/// # Panics
/// If `density` is above [`DENSITY_FULL`].
pub fn coding_coefficients(seed: u16, density: u8, coefficients: &mut [u8]) {
    assert!(density <= DENSITY_FULL, "density threshold: expected 0 to {DENSITY_FULL}, saw {density}");
    Drawing::new([seed], density).draw(coefficients.len(), &mut [coefficients]);
}

/// Returns the first seed, from `seed` on, with which a coefficient is nonzero.
pub(super) fn first_seed(mut seed: u16, density: u8, length: usize) -> u16 {
    let empty = |seed: u16| {
        let mut numbers = TinyMt32::new(seed.into());
        (0..length).all(|_| numbers.below_16() > density)
    };
    while density < DENSITY_FULL && empty(seed) {
        seed = seed.wrapping_add(1);
    }
    seed
}

/// Incremental generator of the coefficients of `N` repairs in step.
#[derive(Debug)]
pub(super) struct Drawing<const N: usize> {
    numbers: Together<N>,
    density: u8,
    /// Number of coefficients drawn for each repair.
    drawn: [usize; N],
    /// Whether the next number is a coefficient. If not, it decides whether the next coefficient is nonzero.
    chosen: [bool; N],
}

impl<const N: usize> Drawing<N> {
    pub(super) fn new(seeds: [u16; N], density: u8) -> Self {
        let numbers = Together::new(seeds.map(u32::from));
        Self { numbers, density, drawn: [0; N], chosen: [density == DENSITY_FULL; N] }
    }

    /// Draws until each row has `count` coefficients or is full. The rows must be the same on every call.
    pub(super) fn draw(&mut self, count: usize, rows: &mut [&mut [u8]; N]) {
        while (0..N).any(|k| self.drawn[k] < count.min(rows[k].len())) {
            // Only the low byte of a number is used (RFC 8681 §3.5).
            let mut bytes = [[0; AT_ONCE]; N];
            for at in 0..AT_ONCE {
                for (bytes, number) in bytes.iter_mut().zip(self.numbers.next()) {
                    bytes[at] = number as u8;
                }
            }
            for k in 0..N {
                self.take(k, &bytes[k], rows[k]);
            }
        }
    }

    fn take(&mut self, k: usize, bytes: &[u8; AT_ONCE], row: &mut [u8]) {
        let dense = self.density == DENSITY_FULL;
        let drawn = self.drawn[k];
        if dense
            && bytes.iter().all(|&byte| byte != 0)
            && let Some(place) = row.get_mut(drawn..drawn + AT_ONCE)
        {
            place.copy_from_slice(bytes);
            self.drawn[k] += AT_ONCE;
            return;
        }
        let (mut drawn, mut chosen) = (drawn, self.chosen[k]);
        for &byte in bytes {
            let Some(place) = row.get_mut(drawn) else { break };
            // Branch-free, because random branches are mispredicted. A chosen coefficient that is 0 is drawn
            // again.
            *place = if chosen { byte } else { 0 };
            let there = (chosen & (byte != 0)) | (!chosen & (byte & 0xf > self.density));
            drawn += usize::from(there);
            chosen = dense | !there;
        }
        (self.drawn[k], self.chosen[k]) = (drawn, chosen);
    }
}
