//! The pseudo-random number generator of sliding window codes (RFC 8682).

/// First parameter of the recursion (RFC 8682 §2.1).
const MATRIX_1: u32 = 0x8f70_11ee;
/// Second parameter of the recursion.
const MATRIX_2: u32 = 0xfc78_ff1f;
/// Parameter of the tempering.
const TEMPERING: u32 = 0x3793_fdff;
/// Number of rounds that spread the seed over the state, and of outputs discarded after them.
const ROUNDS: usize = 8;

/// TinyMT32, a Mersenne Twister with 127 bits of state. Every implementation yields the same numbers for a
/// seed.
///
/// ```
/// let mut numbers = fec::TinyMt32::new(1);
/// assert_eq!([numbers.next_u32(), numbers.next_u32()], [2_545_341_989, 981_918_433]); // RFC 8682 §2.2
/// ```
#[derive(Debug, Clone)]
pub struct TinyMt32(Together<1>);

impl TinyMt32 {
    /// Creates the generator with this seed. Every seed is valid, also 0.
    pub fn new(seed: u32) -> Self {
        Self(Together::new([seed]))
    }

    /// Returns the next 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        self.0.next()[0]
    }

    /// Returns a number below 16 (RFC 8681 §3.5).
    #[inline]
    pub fn below_16(&mut self) -> u8 {
        (self.next_u32() & 0xf) as u8
    }

    /// Returns a number below 256 (RFC 8681 §3.5).
    #[inline]
    pub fn below_256(&mut self) -> u8 {
        (self.next_u32() & 0xff) as u8
    }
}

/// `N` generators in step. Each step depends only on the same generator's last state, so several cost little
/// more than one.
#[derive(Debug, Clone)]
pub(crate) struct Together<const N: usize>([[u32; N]; 4]);

impl<const N: usize> Together<N> {
    pub(crate) fn new(seeds: [u32; N]) -> Self {
        let mut state = [seeds, [MATRIX_1; N], [MATRIX_2; N], [TEMPERING; N]];
        for k in 1..ROUNDS {
            let before = state[(k - 1) % 4];
            for (word, before) in state[k % 4].iter_mut().zip(before) {
                let mixed = (before ^ (before >> 30)).wrapping_mul(1_812_433_253);
                *word ^= mixed.wrapping_add(k as u32);
            }
        }
        let mut generators = Self(state);
        (0..ROUNDS).for_each(|_| generators.step());
        generators
    }

    /// Returns the next 32 random bits of each generator.
    #[inline]
    pub(crate) fn next(&mut self) -> [u32; N] {
        self.step();
        let [first, _, third, fourth] = self.0;
        std::array::from_fn(|k| {
            let sum = first[k].wrapping_add(third[k] >> 8);
            fourth[k] ^ sum ^ ((sum & 1).wrapping_neg() & TEMPERING)
        })
    }

    #[inline]
    fn step(&mut self) {
        let [first, second, third, fourth] = self.0;
        let mut next = [second, third, [0; N], [0; N]];
        for k in 0..N {
            // The highest bit of the first word is not part of the state.
            let mut x = (first[k] & 0x7fff_ffff) ^ second[k] ^ third[k];
            x ^= x << 1;
            let y = fourth[k] ^ (fourth[k] >> 1) ^ x;
            let odd = (y & 1).wrapping_neg();
            next[1][k] ^= odd & MATRIX_1;
            next[2][k] = x ^ (y << 10) ^ (odd & MATRIX_2);
            next[3][k] = y;
        }
        self.0 = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 1, from RFC 8682 §2.2.
    const VECTORS: [u32; 50] = [
        2545341989, 981918433, 3715302833, 2387538352, 3591001365, 3820442102, 2114400566, 2196103051,
        2783359912, 764534509, 643179475, 1822416315, 881558334, 4207026366, 3690273640, 3240535687,
        2921447122, 3984931427, 4092394160, 44209675, 2188315343, 2908663843, 1834519336, 3774670961,
        3019990707, 4065554902, 1239765502, 4035716197, 3412127188, 552822483, 161364450, 353727785,
        140085994, 149132008, 2547770827, 4064042525, 4078297538, 2057335507, 622384752, 2041665899,
        2193913817, 1080849512, 33160901, 662956935, 642999063, 3384709977, 1723175122, 3866752252,
        521822317, 2292524454,
    ];

    #[test]
    fn numbers_are_those_of_the_rfc() {
        let mut generator = TinyMt32::new(1);
        assert_eq!(VECTORS.map(|_| generator.next_u32()), VECTORS);
    }

    #[test]
    fn small_numbers_are_those_of_the_rfc() {
        // Seed 1, the first ten of each, from RFC 8681 §3.5.
        let (mut bytes, mut nibbles) = (TinyMt32::new(1), TinyMt32::new(1));
        assert_eq!([(); 10].map(|()| bytes.below_256()), [37, 225, 177, 176, 21, 246, 54, 139, 168, 237]);
        assert_eq!([(); 10].map(|()| nibbles.below_16()), [5, 1, 1, 0, 5, 6, 6, 11, 8, 13]);
    }

    #[test]
    fn small_numbers_are_the_low_bits() {
        let (mut bytes, mut nibbles) = (TinyMt32::new(1), TinyMt32::new(1));
        for number in VECTORS {
            assert_eq!(u32::from(bytes.below_256()), number % 256);
            assert_eq!(u32::from(nibbles.below_16()), number % 16);
        }
    }

    #[test]
    fn generators_in_step_give_each_its_own_numbers() {
        let seeds = [1, 0, 77, u32::MAX];
        let (mut together, mut singly) = (Together::new(seeds), seeds.map(TinyMt32::new));
        for _ in 0..100 {
            assert_eq!(together.next(), singly.each_mut().map(TinyMt32::next_u32));
        }
    }

    #[test]
    fn no_seed_is_stuck() {
        for seed in [0, 1, 0x7fff_ffff, u32::MAX] {
            let mut generator = TinyMt32::new(seed);
            let numbers: Vec<u32> = (0..8).map(|_| generator.next_u32()).collect();
            assert!(numbers.windows(2).any(|pair| pair[0] != pair[1]), "{seed}: {numbers:?}");
        }
    }
}
