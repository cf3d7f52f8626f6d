//! The choice between XOR and digest by the measured network.
//!
//! A digest of r packets is small, and costs a request and a whole packet for each packet that its receiver
//! misses. A sum is as long as its longest packet, whether or not the receiver needs it. So digests win where
//! packets are long and losses few. They cost a round trip, and both the request and its answer may be lost.
//! So sums win on long round trips, under heavy loss, and where packets are hardly longer than their names. A
//! bin changes to digests if all of these conditions hold, and back as soon as one of them fails by a factor
//! of two:
//!
//! - The round trip is at most 2 ms. Packets wait longer for their bin to fill, so the round trip hardly
//!   matters.
//! - At most 5 % of packets are lost. Then a request and its answer come through nine times out of ten.
//! - A sum would at least double the bytes of the repair, after subtracting the retransmissions that it
//!   saves.
//!
//! Until a round trip has been measured it is taken for short, since digests are needed to measure it.

/// Longest round trip for digests, in microseconds.
const ROUND_TRIP_US: u64 = 2_000;
/// Highest loss for digests.
const LOSS: f64 = 0.05;
/// Factor by which a limit must be exceeded before the choice is reversed.
const SLACK: f64 = 2.0;
/// Bytes of a repair besides its names and its sum: Ethernet, IPv4 and UDP headers, and its own header.
const REPAIR_BYTES: f64 = 42.0 + 7.0;
const NAME_BYTES: f64 = 12.0;
/// Bytes of a request for one packet and of the headers of its answer.
const REQUEST_BYTES: f64 = 42.0 + 24.0 + 42.0 + 22.0;

/// Network conditions as measured by a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Time from a request to its answer, in microseconds; `None` if none was answered yet.
    pub round_trip_us: Option<u64>,
    /// Share of packets that did not come by themselves.
    pub loss: f64,
}

impl Conditions {
    /// Returns whether a digest suits a repair of `names` packets of about `length` bytes better than a sum;
    /// `was_digest` is the last choice.
    pub(super) fn suit_digest(&self, was_digest: bool, names: u8, length: usize) -> bool {
        let slack = if was_digest { SLACK } else { 1.0 };
        let (names, length) = (f64::from(names), length as f64);
        let saved = length - names * self.loss * (length + REQUEST_BYTES);
        let weight = REPAIR_BYTES + names * NAME_BYTES;
        let round_trip_us = self.round_trip_us.unwrap_or(0) as f64;
        round_trip_us <= ROUND_TRIP_US as f64 * slack && self.loss <= LOSS * slack && saved * slack >= weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: Conditions = Conditions { round_trip_us: Some(200), loss: 0.01 };

    #[test]
    fn large_packets_on_a_quick_network_with_little_loss_get_digests() {
        assert!(LAN.suit_digest(false, 8, 1_024));
        assert!(Conditions { round_trip_us: None, ..LAN }.suit_digest(false, 8, 1_024));
    }

    #[test]
    fn tiny_packets_long_round_trips_and_heavy_loss_get_sums() {
        assert!(!LAN.suit_digest(true, 8, 40));
        assert!(!Conditions { round_trip_us: Some(20_000), ..LAN }.suit_digest(true, 8, 1_024));
        assert!(!Conditions { loss: 0.2, ..LAN }.suit_digest(true, 8, 1_024));
    }

    #[test]
    fn between_the_limits_the_last_choice_stays() {
        for between in [
            (LAN, 120),
            (Conditions { round_trip_us: Some(3_000), ..LAN }, 1_024),
            (Conditions { loss: 0.07, ..LAN }, 1_024),
        ] {
            assert!(between.0.suit_digest(true, 8, between.1), "{between:?}");
            assert!(!between.0.suit_digest(false, 8, between.1), "{between:?}");
        }
    }
}
