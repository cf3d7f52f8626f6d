//! Pauses between attempts.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Pause after the first failure, in milliseconds.
const FIRST_MS: u64 = 100;
/// Longest pause in milliseconds. A node that the registry has forgotten registers again after that time.
const LONGEST_MS: u64 = 2_000;

/// Pauses that double with each failure. Each is drawn between half and all of its length, so that nodes that
/// failed together do not try again together.
#[derive(Debug)]
pub(super) struct Backoff {
    rng: ChaCha8Rng,
    next_ms: u64,
}

impl Backoff {
    pub(super) fn new(random_seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(random_seed), next_ms: FIRST_MS }
    }

    pub(super) fn next(&mut self) -> Duration {
        let whole_ms = self.next_ms;
        self.next_ms = (2 * whole_ms).min(LONGEST_MS);
        Duration::from_millis(whole_ms / 2 + self.rng.next_u64() % (whole_ms / 2 + 1))
    }

    pub(super) fn reset(&mut self) {
        self.next_ms = FIRST_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_again_after_a_success() {
        let mut backoff = Backoff::new(1);
        for whole_ms in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
            let pause_ms = backoff.next().as_millis();
            assert!((whole_ms / 2..=whole_ms).contains(&pause_ms), "{pause_ms} of {whole_ms}");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(100));
    }
}
