//! How long a part-filled bin waits: shorter where it would gather nothing, and not the same at all nodes.
//!
//! A bin that waits gathers packets, and each of them saves a repair. But packets that two nodes share may be
//! rare, however much each of them receives: of 1,000 nodes in 128 groups of ten each, two share a packet
//! each eighth of a second. There a wait of some milliseconds gathers nothing and delays every recovery. So
//! each instance measures its *gain*: the number of further packets that a bin would get within the longest
//! wait. A gain of half a packet or more is worth this wait. For each halving below it the wait is halved
//! too, down to an eighth. An eighth is long enough for packets that are merely late to overtake a digest
//! that names them.
//!
//! Nodes that share their groups receive the same packets at about the same time. With equal waits, their
//! bins would soon begin with the same packets wherever packets come irregularly: two bins that end within
//! one gap between packets both begin with the next packet, and from then on end together. All nodes
//! would then send their repairs at the same time, and packets would wait behind these repairs. So each node
//! draws its own longest wait (`docs/adr/0037`).

use rand_chacha::rand_core::Rng;

use crate::chance;

/// Number of different waits.
pub(super) const WAITS: usize = 4;
/// Gain from which on a bin waits for as long as it may.
const WORTHWHILE: f32 = 0.5;
/// Part of the longest wait by which the wait of a node is longer or shorter at most: a tenth. The average
/// over all nodes, and so the number of repairs, stays as if all waited equally long.
const SPREAD: u64 = 10;
/// Number of bins over which the gain is averaged.
const SMOOTHING: f32 = 4.0;

/// Returns the longest wait of a node: the configured one, up to a tenth more or less.
pub(super) fn own_longest_us(longest_us: u64, rng: &mut impl Rng) -> u64 {
    let spread_us = longest_us / SPREAD;
    longest_us - spread_us + chance::below(rng, 2 * spread_us as usize + 1) as u64
}

/// The gain of an instance, smoothed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    mean: f32,
    /// Packets in the last bin; 0 before the first.
    last: u8,
}

impl Gain {
    /// Gain of an instance that has measured nothing. Busy bins measure within a few bins, and quiet ones
    /// for minutes, so an instance begins as if it were quiet.
    pub(super) const NONE: Self = Self { mean: 0.0, last: 0 };

    /// Notes that a bin begins, `after_us` after the bin before it.
    pub(super) fn on_begin(&mut self, after_us: u64, longest_us: u64) {
        if self.last > 0 {
            // With the longest wait, the packet that begins this bin would have been in the one before.
            let would_join = after_us < longest_us;
            let gain = f32::from(self.last - 1) + f32::from(u8::from(would_join));
            self.mean += (gain - self.mean) / SMOOTHING;
        }
    }

    /// Notes that a bin with this number of packets was emptied.
    pub(super) fn on_end(&mut self, packets: u8) {
        self.last = packets;
    }

    /// Returns the number of packets in the last bin; 0 before the first.
    pub(super) fn last(&self) -> u8 {
        self.last
    }

    /// Returns the number of times that the longest wait is halved.
    pub(super) fn halvings(&self) -> usize {
        let limits = (0..WAITS - 1).map(|halvings| WORTHWHILE / (1 << halvings) as f32);
        limits.take_while(|&limit| self.mean < limit).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_US: u64 = 4_000;

    /// Returns the halvings after bins with these numbers of packets, each with its time after the one
    /// before.
    fn halvings(bins: &[(u8, u64)]) -> usize {
        let mut gain = Gain::NONE;
        for &(packets, after_us) in bins {
            gain.on_begin(after_us, LONGEST_US);
            gain.on_end(packets);
        }
        gain.halvings()
    }

    #[test]
    fn a_bin_waits_long_where_it_gathers_packets_and_briefly_where_it_does_not() {
        assert_eq!(halvings(&[]), WAITS - 1, "nothing is known");
        assert_eq!(halvings(&[(1, 0), (1, 128_000), (1, 128_000)]), WAITS - 1);
        // The packets of a busy region follow in time, also where a short wait separates them.
        assert_eq!(halvings(&[(1, 3_000); 5]), 0);
        assert_eq!(halvings(&[(6, 4_000); 2]), 0);
        // Bursts with long silences between them.
        assert_eq!(halvings(&[(8, 100_000); 2]), 0);
    }

    #[test]
    fn the_wait_shrinks_step_by_step_with_the_gain() {
        // A packet in three follows another one in time.
        let some: Vec<(u8, u64)> = (0..30).map(|at| (1, if at % 3 == 0 { 1_000 } else { 9_000 })).collect();
        assert!((1..WAITS - 1).contains(&halvings(&some)), "{}", halvings(&some));
        // A busy region that falls quiet.
        let mut quiet = vec![(8, 1_000); 8];
        quiet.extend([(1, 100_000); 20]);
        assert_eq!(halvings(&quiet), WAITS - 1);
    }
}
