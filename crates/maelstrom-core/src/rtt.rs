//! The round-trip time between two gateways, from send times that reports return.

/// Longest round-trip time that is believed.
const BELIEVED_MAX_US: u64 = 10_000_000;
/// Time for which the shortest sample counts, at least; at most twice as long.
const REMEMBERED_US: u64 = 60_000_000;

/// The shortest samples of the last minute or two.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Shortest sample of this period, and of the one before it.
    shortest_us: [Option<u64>; 2],
    /// End of the period.
    until_us: u64,
}

impl RoundTrip {
    /// Takes an echo: `elapsed_us` since the datagram was sent, of which it was held for `held_us`.
    pub(crate) fn on_echo(&mut self, now_us: u64, elapsed_us: u64, held_us: u64) {
        // An echo that was held for longer is old, and a peer may state any number.
        let Some(sample_us) = elapsed_us.checked_sub(held_us).filter(|&us| us <= BELIEVED_MAX_US) else {
            return;
        };
        if now_us >= self.until_us {
            self.shortest_us = [None, self.shortest_us[0]];
            self.until_us = now_us + REMEMBERED_US;
        }
        let shortest_us = self.shortest_us[0].map_or(sample_us, |us| us.min(sample_us));
        self.shortest_us[0] = Some(shortest_us);
    }

    pub(crate) fn shortest_us(&self) -> Option<u64> {
        self.shortest_us.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_sample_of_the_last_minutes_counts() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.shortest_us(), None);
        rtt.on_echo(0, 5_000, 5_001);
        rtt.on_echo(0, 50_000_000, 1);
        assert_eq!(rtt.shortest_us(), None, "numbers that cannot be");
        for (at_s, elapsed_us, shortest_us) in [
            (1, 150_000, 100_000),
            (2, 90_000, 40_000),
            (59, 200_000, 40_000),
            (62, 130_000, 40_000),
            (130, 140_000, 80_000),
        ] {
            rtt.on_echo(at_s * 1_000_000, elapsed_us, 50_000);
            assert_eq!(rtt.shortest_us(), Some(shortest_us), "after {at_s} s");
        }
    }
}
