//! How fast a carrier has been, and the carrier on which a new stream opens.
//!
//! A carrier that has sent little knows no rate: a stream of it pays the slow start that carriers are to
//! spare it. One with a few streams and a known rate is the better one.

use netio::transparent::TcpState;

use super::driver::TICK_US;

/// Part of the receiving rate that a look takes off: it halves in 71 s.
const FADE: u64 = 1_024;
/// Least rate of a fast carrier, as a part of that of the fastest.
const FAST: u64 = 4;
/// Streams up to which a fast carrier is better than an empty one: those of connections that have ended
/// stay for a round trip. Many connections at a time take all carriers alike, or some would be slow for
/// their life.
const FEW: usize = 1;

/// The rates of a carrier in bytes a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Warmth {
    /// At which the kernel would send.
    sending: u64,
    /// Of the fastest look of late: at which the far kernel has sent.
    receiving: u64,
    /// Bytes that had arrived at the last look.
    received: u64,
}

impl Warmth {
    /// Takes what the kernel knows at a look.
    pub(super) fn follow(&mut self, state: &TcpState) {
        let arrived = state.received.saturating_sub(self.received);
        self.received = state.received;
        self.sending = state.rate.unwrap_or_default();
        let faded = self.receiving - self.receiving / FADE;
        self.receiving = faded.max(arrived.saturating_mul(1_000_000 / TICK_US));
    }

    fn rate(self) -> u64 {
        self.sending.saturating_add(self.receiving)
    }
}

/// Returns the index of the carrier on which a new stream opens: one with few, of these a fast one. Each has
/// its warmth, its number of streams, and its index.
pub(super) fn choose(carriers: &[(Warmth, usize, usize)]) -> Option<usize> {
    let most = carriers.iter().map(|(warmth, ..)| warmth.rate()).max()?;
    let order = |&(warmth, streams, index): &(Warmth, usize, usize)| {
        (streams.max(FEW), warmth.rate() < most / FAST, streams, index)
    };
    carriers.iter().map(order).min().map(|(.., index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn warm(sending: u64) -> Warmth {
        Warmth { sending, receiving: 0, received: 0 }
    }

    /// Opens streams one after the other, and returns how many each carrier has.
    fn opened(rates: &[u64], streams: usize) -> Vec<usize> {
        let mut counts = vec![0; rates.len()];
        for _ in 0..streams {
            let carriers: Vec<_> = rates
                .iter()
                .zip(&counts)
                .enumerate()
                .map(|(at, (&rate, &count))| (warm(rate), count, at))
                .collect();
            counts[choose(&carriers).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn carriers_that_are_alike_share_streams() {
        assert_eq!(opened(&[0, 0, 0, 0], 8), [2, 2, 2, 2]);
        assert_eq!(opened(&[125_000_000, 124_000_000, 125_000_000, 123_000_000], 8), [2, 2, 2, 2]);
    }

    #[test]
    fn a_carrier_that_knows_its_rate_takes_the_first_streams() {
        let rates = [75_000, 125_000_000, 75_000, 75_000];
        assert_eq!(opened(&rates, 2), [0, 2, 0, 0]);
        // Of many at once each carrier has as many.
        assert_eq!(opened(&rates, 8), [2, 2, 2, 2]);
        assert_eq!(opened(&rates, 14), [4, 4, 3, 3]);
    }

    #[test]
    fn nothing_is_chosen_where_no_carrier_works() {
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn a_rate_of_arrival_fades() {
        let mut warmth = Warmth::default();
        warmth.follow(&TcpState { received: 10_000_000, ..TcpState::default() });
        assert_eq!(warmth.rate(), 100_000_000);
        let looks = 71_000_000 / TICK_US;
        (0..looks).for_each(|_| warmth.follow(&TcpState { received: 10_000_000, ..TcpState::default() }));
        assert!((49_000_000..51_000_000).contains(&warmth.rate()), "{}", warmth.rate());
    }
}
