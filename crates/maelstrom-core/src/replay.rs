//! The replay window: each counter of a session is accepted once.

/// Words of the ring. Datagrams that take several paths arrive out of order by the difference of the paths'
/// delays, here up to 180 ms at 1 Gbit/s.
const WORDS: usize = 256;
/// Number of counters behind the newest one that the window covers.
pub const REPLAY_WINDOW: u64 = WORDS as u64 * 64;

/// A sliding bitmap of the counters seen, by the scheme of RFC 6479: a ring of words, cleared ahead word by
/// word.
pub struct ReplayWindow {
    /// One more than the newest accepted counter.
    next: u64,
    bits: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { next: 0, bits: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// Creates a window in which all counters below `next` count as accepted.
    pub fn continued_at(next: u64) -> Self {
        let mut window = Self { next, bits: [u64::MAX; WORDS] };
        let (word, bit) = position(next);
        window.bits[word] = bit - 1;
        window
    }

    /// Returns one more than the highest accepted counter.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether `counter` has not been accepted and is not too old. A forged datagram cannot move the window.
    pub fn is_fresh(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        let (word, bit) = position(counter);
        self.next - counter <= REPLAY_WINDOW - 64 && self.bits[word] & bit == 0
    }

    /// Whether no counter has been accepted.
    pub fn is_unused(&self) -> bool {
        self.next == 0
    }

    /// Whether no higher counter than this one has been accepted.
    pub fn is_newest(&self, counter: u64) -> bool {
        counter + 1 >= self.next
    }

    /// Notes that an authentic datagram had this counter.
    pub fn accept(&mut self, counter: u64) {
        if counter >= self.next {
            let newest_word = self.next.div_ceil(64);
            let first_new = newest_word;
            let last_new = counter / 64;
            let span = (last_new + 1).saturating_sub(first_new).min(WORDS as u64);
            for step in 0..span {
                self.bits[((last_new - step) % WORDS as u64) as usize] = 0;
            }
            self.next = counter + 1;
        }
        let (word, bit) = position(counter);
        self.bits[word] |= bit;
    }
}

fn position(counter: u64) -> (usize, u64) {
    (((counter / 64) % WORDS as u64) as usize, 1 << (counter % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    proptest::proptest! {
        #[test]
        fn accepts_each_counter_once_and_refuses_only_seen_or_old(steps in proptest::collection::vec((-30_000i64..30_000, 0u8..4), 1..400)) {
            let (mut window, mut model, mut at, mut newest) = (ReplayWindow::default(), HashSet::new(), 50_000u64, 0u64);
            for (step, repeat) in steps {
                at = at.saturating_add_signed(if repeat == 0 { step } else { step.signum() });
                let fresh = window.is_fresh(at);
                if model.contains(&at) {
                    proptest::prop_assert!(!fresh);
                } else if at + REPLAY_WINDOW - 128 > newest {
                    proptest::prop_assert!(fresh, "{at} with newest {newest}");
                }
                if fresh {
                    window.accept(at);
                    model.insert(at);
                    newest = newest.max(at);
                    proptest::prop_assert_eq!(window.is_newest(at), at == newest);
                }
            }
        }
    }
}
