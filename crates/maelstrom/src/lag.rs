//! The lag of the repair channel behind the tap.

/// Time after which a repair is too old to recover packets. TCP sends a lost packet again after 200 ms or a
/// round trip, whichever is longer; of one that comes later it learns that it slowed down in vain. A pause
/// costs more: what is lost until recovery resumes stays lost.
const OLD_US: u64 = 600_000;

/// Upper bound on the number of packets that arrived after the packets that the next repair names.
///
/// A repair that is not decoded yet arrived after the last moment at which the repair channel was empty, in
/// the kernel and in the inbox. The packets that it names arrived after that moment too, or just before. So
/// the packets that the tap has shown since that moment are an upper bound. It holds whether the lag is in
/// the tap, for which repairs wait, or in the socket's buffer. Packets that leave count as well, so that a
/// wait for a busy tap ends.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Number of packets that the tap has shown.
    shown: u64,
    /// The same number when the kernel last held no datagram.
    at_channel_drained: u64,
    /// The same number at the last such moment whose datagrams have all been decoded.
    at_decoded: u64,
    /// Time when the kernel last held no datagram.
    channel_drained_us: u64,
    /// Time of the last such moment whose datagrams have all been decoded.
    decoded_us: u64,
}

impl Lag {
    /// Creates a lag of none.
    pub(crate) fn new(now_us: u64) -> Self {
        Self { channel_drained_us: now_us, decoded_us: now_us, ..Self::default() }
    }

    /// The loop has slept until input came. The channel was empty when it fell asleep.
    pub(crate) fn on_slept(&mut self, now_us: u64) {
        self.decoded_us = now_us;
    }

    /// The tap has shown `packets` more packets.
    pub(crate) fn on_shown(&mut self, packets: usize) {
        self.shown += packets as u64;
    }

    /// The kernel holds no datagram: all that arrived are in the inbox.
    pub(crate) fn on_channel_drained(&mut self, now_us: u64) {
        self.at_channel_drained = self.shown;
        self.channel_drained_us = now_us;
    }

    /// All datagrams in the inbox have been decoded.
    pub(crate) fn on_decoded(&mut self) {
        self.at_decoded = self.at_channel_drained;
        self.decoded_us = self.channel_drained_us;
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
        for _ in 0..100 {
            lag.on_channel_drained(0);
            lag.on_shown(30);
            assert!(lag.packets() <= 60);
            lag.on_decoded();
            assert_eq!(lag.packets(), 30);
        }
    }

    #[test]
    fn repairs_lag_while_they_wait_for_the_tap() {
        let mut lag = Lag::default();
        lag.on_channel_drained(0);
        // Four rounds at the tap, before any datagram is decoded.
        (0..4).for_each(|_| lag.on_shown(2_048));
        assert_eq!(lag.packets(), 8_192);
        lag.on_decoded();
        // The next datagram may have arrived just after the channel was empty.
        assert_eq!(lag.packets(), 8_192);
        lag.on_channel_drained(0);
        lag.on_decoded();
        assert_eq!(lag.packets(), 0);
    }

    #[test]
    fn repairs_lag_while_they_wait_in_the_kernel_though_the_tap_is_empty() {
        let mut lag = Lag::default();
        lag.on_channel_drained(0);
        lag.on_decoded();
        // Each round takes some datagrams and leaves more.
        (0..300).for_each(|_| lag.on_shown(50));
        assert_eq!(lag.packets(), 15_000);
        lag.on_channel_drained(0);
        assert_eq!(lag.packets(), 15_000, "the datagrams in the inbox have waited as long");
        lag.on_decoded();
        assert_eq!(lag.packets(), 0);
    }

    #[test]
    fn datagrams_are_old_if_the_channel_was_last_empty_long_ago() {
        let mut lag = Lag::new(500_000);
        lag.on_channel_drained(1_000_000);
        lag.on_decoded();
        assert!(!lag.is_old(1_000_000 + OLD_US));
        // The channel was empty for a moment, and its datagrams wait for the tap.
        lag.on_channel_drained(1_200_000);
        assert!(lag.is_old(1_000_001 + OLD_US));
        lag.on_decoded();
        assert!(!lag.is_old(1_000_001 + OLD_US));
        lag.on_slept(5_000_000);
        assert!(!lag.is_old(5_000_001));
    }
}
