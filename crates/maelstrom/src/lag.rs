//! The lag of the repair channel behind the tap.

use std::collections::VecDeque;

/// Time after which a repair is too old to recover packets. TCP sends a lost packet again after 200 ms or a
/// round trip, whichever is longer; of one that comes later it learns that it slowed down in vain. A pause
/// costs more: what is lost until recovery resumes stays lost.
const OLD_US: u64 = 600_000;
/// Maximum number of moments that are kept.
const MOMENTS_MAX: usize = 1_024;

/// Upper bound on the number of packets that arrived after the packets that the next repair names.
///
/// A repair that is not decoded yet arrived after the last moment at which the repair channel was empty and
/// whose datagrams have all been decoded. The packets that it names arrived after that moment too, or just
/// before. So the packets that the taps have shown since that moment are an upper bound, without those that
/// they had captured before it. It holds whether the lag is in a tap, for which repairs wait, or in the
/// socket's buffer. Packets that leave count as well, so that a wait for a busy tap ends.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Number of packets that the taps have shown.
    shown: u64,
    /// The same at the beginning of this round, and the time of capture of the latest of them; `None` if that
    /// is not known.
    at_round: u64,
    round_us: Option<u64>,
    /// Moments at which the kernel held no datagram, while some that had been read were not decoded.
    drained: VecDeque<Drained>,
    /// Number of packets that had been shown, and captured, before the last moment of this kind whose
    /// datagrams have all been decoded.
    at_decoded: u64,
    /// Time of that moment.
    decoded_us: u64,
}

/// A moment at which the kernel held no datagram.
#[derive(Clone, Copy, Debug)]
struct Drained {
    at_us: u64,
    /// Number of datagrams that had been read.
    taken: u64,
    /// Number of packets that the taps had shown.
    shown: u64,
}

impl Lag {
    /// Creates a lag of none.
    pub(crate) fn new(now_us: u64) -> Self {
        Self { decoded_us: now_us, ..Self::default() }
    }

    /// The loop has slept until input came. The channel was empty when it fell asleep.
    pub(crate) fn on_slept(&mut self, now_us: u64) {
        self.decoded_us = now_us;
    }

    /// A round begins. `latest_us`: time of the latest capture that the taps have shown, if it is known.
    pub(crate) fn on_round(&mut self, latest_us: Option<u64>) {
        (self.at_round, self.round_us) = (self.shown, latest_us);
    }

    /// The taps have shown `packets` more packets.
    pub(crate) fn on_shown(&mut self, packets: usize) {
        self.shown += packets as u64;
    }

    /// The kernel holds no datagram: all that arrived are among the `taken` ones that were read.
    pub(crate) fn on_channel_drained(&mut self, now_us: u64, taken: u64) {
        if self.drained.len() == MOMENTS_MAX {
            // The lag counts as longer than it is.
            self.drained.pop_back();
        }
        self.drained.push_back(Drained { at_us: now_us, taken, shown: self.shown });
    }

    /// The first `done` of the datagrams that were read have been decoded.
    pub(crate) fn on_decoded(&mut self, done: u64) {
        while let Some(Drained { at_us, shown, .. }) = self.drained.pop_front_if(|it| it.taken <= done) {
            // Until this round the taps have shown nothing that was captured later.
            let is_before = self.round_us.is_some_and(|round_us| round_us <= at_us);
            self.at_decoded = self.at_decoded.max(if is_before { self.at_round } else { shown });
            self.decoded_us = at_us;
        }
    }

    /// Whether the next datagram may have waited long enough for the packets that it recovers to be old.
    pub(crate) fn is_old(&self, now_us: u64) -> bool {
        now_us > self.decoded_us + OLD_US
    }

    /// The lag in packets.
    pub(crate) fn packets(&self) -> u64 {
        self.shown - self.at_decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_keeps_up_lags_by_the_packets_of_its_last_rounds() {
        let mut lag = Lag::default();
        for round in 0..100 {
            lag.on_round(None);
            lag.on_channel_drained(0, round);
            lag.on_shown(30);
            assert!(lag.packets() <= 60);
            lag.on_decoded(round);
            assert_eq!(lag.packets(), 30);
        }
    }

    #[test]
    fn repairs_lag_while_they_wait_for_the_tap() {
        let mut lag = Lag::default();
        lag.on_channel_drained(0, 5);
        // Four rounds at the tap, before any datagram is decoded.
        (0..4).for_each(|_| lag.on_shown(2_048));
        assert_eq!(lag.packets(), 8_192);
        lag.on_decoded(4);
        assert_eq!(lag.packets(), 8_192);
        lag.on_decoded(5);
        // The next datagram may have arrived just after the channel was empty.
        assert_eq!(lag.packets(), 8_192);
        lag.on_channel_drained(0, 5);
        lag.on_decoded(5);
        assert_eq!(lag.packets(), 0);
    }

    #[test]
    fn repairs_that_follow_a_tap_in_order_lag_by_a_round() {
        let mut lag = Lag::default();
        // Each round shows 2,000 packets of 20 ms, 300 ms after their capture, and reads all datagrams.
        for round in 0..100 {
            let now_us = 1_000_000 + 20_000 * round;
            lag.on_round(Some(now_us - 300_000));
            lag.on_channel_drained(now_us, 100 * (round + 1));
            lag.on_shown(2_000);
            // Those read before the capture of the latest packet shown: 14 rounds ago.
            lag.on_decoded(100 * (round + 1).saturating_sub(14));
            let expected = if round < 14 { 2_000 * (round + 1) } else { 2_000 };
            assert_eq!((round, lag.packets()), (round, expected));
        }
        // A tap that has shown later packets before, or does not tell when: the earlier bound holds.
        for latest_us in [Some(10_000_000), None] {
            let before = lag.packets();
            lag.on_round(latest_us);
            lag.on_shown(2_000);
            lag.on_decoded(100 * 87);
            assert_eq!(lag.packets(), before + 2_000);
        }
    }

    #[test]
    fn repairs_lag_while_they_wait_in_the_kernel_though_the_tap_is_empty() {
        let mut lag = Lag::default();
        lag.on_channel_drained(0, 0);
        lag.on_decoded(0);
        // Each round takes some datagrams and leaves more.
        (0..300).for_each(|_| lag.on_shown(50));
        assert_eq!(lag.packets(), 15_000);
        lag.on_channel_drained(0, 300);
        assert_eq!(lag.packets(), 15_000, "the datagrams in the inbox have waited as long");
        lag.on_decoded(300);
        assert_eq!(lag.packets(), 0);
    }

    #[test]
    fn more_moments_than_are_kept_make_the_lag_longer_and_never_shorter() {
        let mut lag = Lag::default();
        for moment in 0..3 * MOMENTS_MAX as u64 {
            lag.on_channel_drained(moment, moment);
            lag.on_shown(1);
        }
        lag.on_decoded(u64::MAX);
        assert_eq!((lag.packets(), lag.decoded_us), (1, 3 * MOMENTS_MAX as u64 - 1), "the latest is kept");
    }

    #[test]
    fn datagrams_are_old_if_the_channel_was_last_empty_long_ago() {
        let mut lag = Lag::new(500_000);
        lag.on_channel_drained(1_000_000, 1);
        lag.on_decoded(1);
        assert!(!lag.is_old(1_000_000 + OLD_US));
        // The channel was empty for a moment, and its datagrams wait for the tap.
        lag.on_channel_drained(1_200_000, 2);
        assert!(lag.is_old(1_000_001 + OLD_US));
        lag.on_decoded(2);
        assert!(!lag.is_old(1_000_001 + OLD_US));
        lag.on_slept(5_000_000);
        assert!(!lag.is_old(5_000_001));
    }
}
