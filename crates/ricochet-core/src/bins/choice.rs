//! The choice between XOR and digest by the measured network (`docs/adr/0026`).
//!
//! A digest is small, and costs a request and a whole packet for each packet that its receiver misses. A sum
//! is as long as its longest packet, whether or not the receiver needs it. So digests win where packets are
//! long and losses few. They cost a round trip, and both the request and its answer may be lost. So sums win
//! on long round trips, under heavy loss, and where packets are hardly longer than their names. But a sum of
//! few packets is nearly a copy of them. So digests win everywhere where bins fill little and a packet enters
//! many repairs, as in large groups that share little traffic.
//!
//! A bin changes to digests if a sum would at least double the bytes of the repair, after subtracting the
//! retransmissions that it saves, and if one of these holds:
//!
//! - The network suits digests: the round trip is at most 2 ms, since packets wait longer for their bin to
//!   fill, and at most 5 % of packets are lost, so that a request and its answer come through nine times out
//!   of ten.
//! - Sums are dear: all sums that a packet enters together would cost two and a half times the packet.
//!
//! It changes back as soon as this fails by a factor of two. The number of packets in a repair is the average
//! of the bins before. Until a round trip has been measured it is taken for short, since digests are needed
//! to measure it.

/// Longest round trip for digests, in microseconds.
const ROUND_TRIP_US: u64 = 2_000;
/// Highest loss for digests.
const LOSS: f64 = 0.05;
/// Bytes of sums for each byte of packets from which on sums are dear.
const DEAR: f64 = 2.5;
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

/// Expected properties of a repair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prospect {
    /// Number of packets.
    pub(super) names: f64,
    /// Bytes of their symbols, about.
    pub(super) length: f64,
    /// Number of repairs that each of the packets enters: c, or the other members of a smaller group.
    pub(super) repairs: f64,
}

impl Conditions {
    /// Returns whether a digest suits a repair better than a sum; `was_digest` is the last choice.
    pub(super) fn suit_digest(&self, was_digest: bool, repair: &Prospect) -> bool {
        let Prospect { names, length, repairs } = *repair;
        let slack = if was_digest { SLACK } else { 1.0 };
        // A missing packet is requested once, although several digests name it.
        let retransmitted = names * self.loss * (length + REQUEST_BYTES) / repairs.max(1.0);
        let weight = REPAIR_BYTES + names * NAME_BYTES;
        if (length - retransmitted) * slack < weight {
            return false;
        }
        let round_trip_us = self.round_trip_us.unwrap_or(0) as f64;
        let is_suited = round_trip_us <= ROUND_TRIP_US as f64 * slack && self.loss <= LOSS * slack;
        is_suited || repairs * (weight + length) * slack >= DEAR * names * length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: Conditions = Conditions { round_trip_us: Some(200), loss: 0.01 };
    const FAR: Conditions = Conditions { round_trip_us: Some(20_000), ..LAN };
    const LOSSY: Conditions = Conditions { loss: 0.2, ..LAN };

    /// Returns a full repair of packets of this length.
    fn full(length: u16) -> Prospect {
        Prospect { names: 8.0, length: f64::from(length), repairs: 5.0 }
    }

    #[test]
    fn large_packets_on_a_quick_network_with_little_loss_get_digests() {
        assert!(LAN.suit_digest(false, &full(1_024)));
        assert!(Conditions { round_trip_us: None, ..LAN }.suit_digest(false, &full(1_024)));
    }

    #[test]
    fn tiny_packets_long_round_trips_and_heavy_loss_get_sums() {
        assert!(!LAN.suit_digest(true, &full(40)));
        assert!(!FAR.suit_digest(true, &full(1_024)));
        assert!(!LOSSY.suit_digest(true, &full(1_024)));
    }

    #[test]
    fn between_the_limits_the_last_choice_stays() {
        let nearly_dear = Prospect { names: 3.0, ..full(1_024) };
        for (conditions, repair) in [
            (LAN, full(120)),
            (Conditions { round_trip_us: Some(3_000), ..LAN }, full(1_024)),
            (Conditions { loss: 0.07, ..LAN }, full(1_024)),
            (FAR, nearly_dear),
        ] {
            assert!(conditions.suit_digest(true, &repair), "{conditions:?} {repair:?}");
            assert!(!conditions.suit_digest(false, &repair), "{conditions:?} {repair:?}");
        }
    }

    #[test]
    fn nearly_empty_bins_of_large_groups_get_digests_everywhere() {
        let thin = Prospect { names: 1.0, ..full(1_024) };
        assert!(FAR.suit_digest(false, &thin) && LOSSY.suit_digest(false, &thin));
        // A copy for the one other member costs as much as its packet.
        let pair = Prospect { repairs: 1.0, ..thin };
        assert!(!FAR.suit_digest(true, &pair) && !LOSSY.suit_digest(true, &pair));
        // A digest of a tiny packet is no shorter than the packet.
        assert!(!FAR.suit_digest(true, &Prospect { names: 1.0, ..full(24) }));
    }
}
