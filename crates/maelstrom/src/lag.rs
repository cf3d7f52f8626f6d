//! The lag of the repair channel behind the tap.

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
}

impl Lag {
    /// The tap has shown `packets` more packets.
    pub(crate) fn on_shown(&mut self, packets: usize) {
        self.shown += packets as u64;
    }

    /// The kernel holds no datagram: all that arrived are in the inbox.
    pub(crate) fn on_channel_drained(&mut self) {
        self.at_channel_drained = self.shown;
    }

    /// All datagrams in the inbox have been decoded.
    pub(crate) fn on_decoded(&mut self) {
        self.at_decoded = self.at_channel_drained;
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
            lag.on_channel_drained();
            lag.on_shown(30);
            assert!(lag.packets() <= 60);
            lag.on_decoded();
            assert_eq!(lag.packets(), 30);
        }
    }

    #[test]
    fn repairs_lag_while_they_wait_for_the_tap() {
        let mut lag = Lag::default();
        lag.on_channel_drained();
        // Four rounds at the tap, before any datagram is decoded.
        (0..4).for_each(|_| lag.on_shown(2_048));
        assert_eq!(lag.packets(), 8_192);
        lag.on_decoded();
        // The next datagram may have arrived just after the channel was empty.
        assert_eq!(lag.packets(), 8_192);
        lag.on_channel_drained();
        lag.on_decoded();
        assert_eq!(lag.packets(), 0);
    }

    #[test]
    fn repairs_lag_while_they_wait_in_the_kernel_though_the_tap_is_empty() {
        let mut lag = Lag::default();
        lag.on_channel_drained();
        lag.on_decoded();
        // Each round takes some datagrams and leaves more.
        (0..300).for_each(|_| lag.on_shown(50));
        assert_eq!(lag.packets(), 15_000);
        lag.on_channel_drained();
        assert_eq!(lag.packets(), 15_000, "the datagrams in the inbox have waited as long");
        lag.on_decoded();
        assert_eq!(lag.packets(), 0);
    }
}
