//! The source of randomness that a driver passes in.

use std::fmt;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Source of secret random bytes, for tokens, ephemeral keys and nonces.
///
/// A gateway reads it again for each Hello and keeps none of its bytes. A virtual machine may be cloned while
/// it runs, and the clones must not use one nonce for two Hellos. A driver's source therefore asks the
/// operating system each time. A source with a state of its own, as made from a seed, is for tests and
/// simulations.
pub struct Entropy(Fill);

type Fill = Box<dyn FnMut(&mut [u8]) + Send>;

impl Entropy {
    /// Creates a source from a function that fills a slice.
    pub fn new(fill: impl FnMut(&mut [u8]) + Send + 'static) -> Self {
        Self(Box::new(fill))
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        (self.0)(bytes);
    }
}

impl From<[u8; 32]> for Entropy {
    fn from(seed: [u8; 32]) -> Self {
        let mut random = ChaCha12Rng::from_seed(seed);
        Self::new(move |bytes| random.fill_bytes(bytes))
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}
