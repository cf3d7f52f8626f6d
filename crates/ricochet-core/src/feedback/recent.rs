//! A count that decays.

/// Binary logarithm of the half-life in microseconds: 2^22 µs are 4.2 s.
const HALVED_BITS: u32 = 22;

/// A count of recent events, halved every 4.2 s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    count: u32,
    epoch: u32,
}

impl Recent {
    pub(super) fn add(&mut self, now_us: u64, count: u32) {
        *self =
            Self { count: self.count(now_us).saturating_add(count), epoch: epoch(now_us).max(self.epoch) };
    }

    pub(super) fn count(&self, now_us: u64) -> u32 {
        self.count.checked_shr(epoch(now_us).saturating_sub(self.epoch)).unwrap_or(0)
    }
}

fn epoch(now_us: u64) -> u32 {
    (now_us >> HALVED_BITS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_events_count_less_and_less_and_then_nothing() {
        let mut recent = Recent::default();
        recent.add(1, 100);
        recent.add(1, 28);
        assert_eq!(recent.count(4_000_000), 128);
        assert_eq!(recent.count(4_200_000), 64);
        recent.add(9_000_000, 1);
        assert_eq!((recent.count(9_000_000), recent.count(5_000_000)), (33, 33));
        assert_eq!(recent.count(1_000_000_000), 0);
    }
}
