//! The repair packet that every encoder emits.

/// A repair packet to be sent, of any code.
///
/// `P` is what the owner of the encoder keeps of each packet.
#[derive(Debug, Clone, Copy)]
pub struct Repair<'a, P> {
    /// Layer of a layered code, or row of a Reed–Solomon block; 0 for a sliding window.
    pub row: usize,
    /// Seed and density of a sliding window's coefficients. The default for other codes, whose `row`
    /// determines the coefficients.
    pub draw: Draw,
    /// Packets from the oldest to the newest of the sum. Those of bins and blocks are all in the sum, those
    /// of a sliding window if they are a multiple of `stripes` from the first.
    pub packets: &'a [P],
    /// Distance of the packets of a window that are in the sum, which is its number of stripes. 1 for other
    /// codes.
    pub stripes: usize,
    /// One coefficient for each packet in the sum. It may be 0 in a sliding window.
    pub coefficients: &'a [u8],
    /// Sum of the packets times their coefficients, as long as the longest of their symbols.
    pub payload: &'a [u8],
}

impl<P> Repair<'_, P> {
    /// Packets in the sum, each with its coefficient, oldest first.
    pub fn terms(&self) -> impl Iterator<Item = (&P, u8)> {
        self.packets.iter().step_by(self.stripes).zip(self.coefficients.iter().copied())
    }
}

/// Seed and density of the coefficients of a sliding window's repair. With the number of packets in the sum
/// they are the arguments of [`coding_coefficients`](crate::coding_coefficients).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the generator.
    pub seed: u16,
    /// Density threshold.
    pub density: u8,
}
