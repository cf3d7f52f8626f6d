//! Number of routers between the two gateways, learned from packets that arrived.
//!
//! A repair carries the time to live with which a packet left the far gateway. Each router on the way lowers
//! it by one and drops the packet at the end. Such a packet is not lost: its sender expects the router's
//! answer, as traceroute does. A recovered packet that has time left must have as much of it as the original
//! would have had.

/// Maximum number of routers that is believed. Of more, a middle box that rewrites the field is more likely.
const HOPS_MAX: usize = 32;
/// Number of packets after which the counts are halved, so that they follow a change of the path.
const SAMPLES_MAX: u32 = 1024;
/// Smallest share of the packets for which a number of routers counts: one in this many.
const SHARE: u32 = 8;

/// The numbers of routers that packets of one peer have passed recently.
#[derive(Clone, Debug)]
pub(crate) struct Hops {
    counts: [u32; HOPS_MAX + 1],
    samples: u32,
    longest: Option<u8>,
}

impl Hops {
    pub(crate) fn new() -> Self {
        Self { counts: [0; HOPS_MAX + 1], samples: 0, longest: None }
    }

    /// Learns from a packet that left the far gateway with a time to live of `sent`.
    pub(crate) fn learn(&mut self, sent: u8, arrived: u8) {
        let Some(count) = self.counts.get_mut(usize::from(sent.saturating_sub(arrived))) else { return };
        *count += 1;
        self.samples += 1;
        if self.samples >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.samples = self.counts.iter().sum();
        }
        // Where packets take paths of different lengths, the longest of them counts: if in doubt, a packet is
        // not injected.
        let is_frequent = |&hops: &usize| self.counts[hops] > 0 && self.counts[hops] * SHARE >= self.samples;
        self.longest = (0..=HOPS_MAX).rev().find(is_frequent).map(|hops| hops as u8);
    }

    /// Returns the time to live with which a packet arrives that left with `sent`; `None` if it expires on
    /// the way, or may do so as far as is known.
    pub(crate) fn arriving(&self, sent: u8) -> Option<u8> {
        match self.longest {
            Some(hops) => sent.checked_sub(hops).filter(|&left| left > 0),
            None => Some(sent).filter(|&sent| usize::from(sent) > HOPS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_arrives_with_what_the_routers_leave_it() {
        let mut hops = Hops::new();
        assert_eq!((hops.arriving(64), hops.arriving(32), hops.arriving(1)), (Some(64), None, None));
        hops.learn(63, 61);
        assert_eq!((hops.arriving(64), hops.arriving(3), hops.arriving(2)), (Some(62), Some(1), None));
    }

    #[test]
    fn a_few_packets_with_other_numbers_change_nothing() {
        let mut hops = Hops::new();
        for round in 0..10_000 {
            hops.learn(64, if round % 10 == 0 { 40 } else { 64 });
        }
        assert_eq!(hops.arriving(5), Some(5));
        // A middle box that sets the field to a number of its own, upward or far downward.
        hops.learn(64, 255);
        hops.learn(255, 64);
        assert_eq!(hops.arriving(5), Some(5));
    }

    #[test]
    fn a_new_path_is_learned() {
        let mut hops = Hops::new();
        (0..5_000).for_each(|_| hops.learn(64, 54));
        (0..5_000).for_each(|_| hops.learn(64, 63));
        assert_eq!(hops.arriving(5), Some(4));
    }
}
