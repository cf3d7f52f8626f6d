//! How far the repair channel may lag behind the tap.

/// Counts the packets that arrived since those which the next repair names, at the most.
///
/// A repair that we have not decoded yet came after the last moment at which nothing of the repair channel waited, in the
/// kernel or here; so did, or just before, the packets that it names. What the tap has shown since then lies between them
/// and now. Where it lags is all the same: in the tap, which repairs wait for, or in the socket's buffer. What left counts as
/// well, so that no wait for a busy tap is without end.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Packets that the tap has shown so far.
    shown: u64,
    /// How many it had shown when the kernel held no datagram for us.
    at_last_look: u64,
    /// The same of the last such moment whose datagrams have all been decoded.
    at_last_word: u64,
}

impl Lag {
    /// The tap has shown so many packets.
    pub(crate) fn show(&mut self, packets: usize) {
        self.shown += packets as u64;
    }

    /// The kernel holds no datagram any more: all that came are in the inbox.
    pub(crate) fn channel_is_drained(&mut self) {
        self.at_last_look = self.shown;
    }

    /// All that came before the kernel held none has been decoded.
    pub(crate) fn is_decoded(&mut self) {
        self.at_last_word = self.at_last_look;
    }

    /// The packets between.
    pub(crate) fn packets(&self) -> u64 {
        self.shown - self.at_last_word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_keeps_up_lags_by_what_the_last_rounds_showed() {
        let mut lag = Lag::default();
        for _ in 0..100 {
            lag.channel_is_drained();
            lag.show(30);
            assert!(lag.packets() <= 60);
            lag.is_decoded();
            assert_eq!(lag.packets(), 30);
        }
    }

    #[test]
    fn repairs_lag_while_they_wait_for_the_tap() {
        let mut lag = Lag::default();
        lag.channel_is_drained();
        // Four rounds at the tap before anything is decoded.
        (0..4).for_each(|_| lag.show(2_048));
        assert_eq!(lag.packets(), 8_192);
        lag.is_decoded();
        // What is decoded next may have come just after that look.
        assert_eq!(lag.packets(), 8_192);
        lag.channel_is_drained();
        lag.is_decoded();
        assert_eq!(lag.packets(), 0);
    }

    #[test]
    fn repairs_lag_while_they_wait_in_the_kernel_though_the_tap_is_empty() {
        let mut lag = Lag::default();
        lag.channel_is_drained();
        lag.is_decoded();
        // Each round takes some datagrams and leaves more.
        (0..300).for_each(|_| lag.show(50));
        assert_eq!(lag.packets(), 15_000);
        lag.channel_is_drained();
        assert_eq!(lag.packets(), 15_000, "those just taken have waited as long");
        lag.is_decoded();
        assert_eq!(lag.packets(), 0);
    }
}
