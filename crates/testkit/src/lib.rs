//! Deterministic random numbers, packets, captures, pages, waits and cases for the tests of all crates. A
//! development dependency only.
//!
//! The random sequences never change: snapshot tables and seeds of past failures depend on them.
#![forbid(unsafe_code)]

pub mod packet;
pub mod page;
mod wait;
pub mod wireshark;

pub use wait::{wait_for, wait_until};

/// Declares a test for each case of a check. Cases that wait then run at the same time, and each has a name.
///
/// The check gets the name of the test, for a test that may be skipped, and the arguments of the case.
///
/// ```
/// fn is_even(_test: &str, number: u32) {
///     assert_eq!(number % 2, 0);
/// }
///
/// testkit::cases! { is_even:
///     two_is_even(2);
///     four_is_even(4);
/// }
/// ```
#[macro_export]
macro_rules! cases {
    ($check:ident: $($name:ident($($argument:expr),* $(,)?);)+) => {
        $(
            #[test]
            fn $name() {
                $check(stringify!($name), $($argument),*);
            }
        )+
    };
}

/// A generator of random numbers (splitmix64). The field is the seed.
///
/// ```
/// let mut random = testkit::Random(1);
/// assert_eq!([random.draw(), random.draw()], [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
/// ```
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// Returns an index below `end`.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// Returns true with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.draw() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// Returns random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.draw() as u8).collect()
    }
}

/// Returns a coin that shows true with this probability.
///
/// It has a generator of its own (Knuth's MMIX), because the seeds of tests over lossy links were chosen with
/// it.
///
/// ```
/// let mut lose = testkit::coin(7, 0.25);
/// let lost = (0..1_000).filter(|_| lose()).count();
/// assert!((200..300).contains(&lost));
/// ```
pub fn coin(seed: u64, probability: f64) -> impl FnMut() -> bool {
    let mut state = seed.wrapping_mul(2) + 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64) < probability * (1u64 << 31) as f64
    }
}
