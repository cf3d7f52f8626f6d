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
    /// Packets in the sum, oldest first. A sliding window lists all its packets, also those with coefficient
    /// 0.
    pub packets: &'a [P],
    /// One coefficient for each packet.
    pub coefficients: &'a [u8],
    /// Sum of the packets times their coefficients, as long as the longest of their symbols.
    pub payload: &'a [u8],
}

/// Seed and density of the coefficients of a sliding window's repair. With the number of packets they are
/// the arguments of [`coding_coefficients`](crate::coding_coefficients).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the generator.
    pub seed: u16,
    /// Density threshold.
    pub density: u8,
}
