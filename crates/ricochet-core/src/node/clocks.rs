//! The ages of messages, from the times that their packets state.
//!
//! The clocks of two nodes may differ by any amount, so that this node compares them. The difference between
//! the time at which a packet comes and the time that it states is the difference of the clocks, plus the
//! time that the packet took. The smallest difference of the last minute or two stands for a packet that was
//! not held up. A message is as old as its own difference exceeds that one. A delay that all packets of a
//! sender have in common is thus not counted, and the first packet of a sender counts as new.

use hashbrown::HashMap;

use crate::ids::NodeId;
use crate::message::Sent;

/// Time after which an earlier smallest difference is forgotten, in microseconds: clocks drift apart by up to
/// 0.1 ms in a second.
const PERIOD_US: u64 = 60_000_000;
/// Maximum number of senders. A full table is cleared: the next packet of each sender counts as new.
const SENDERS_MAX: usize = 1 << 14;

/// Smallest differences between this node's clock and that of a sender, modulo 2⁶⁴.
#[derive(Clone, Copy, Debug)]
struct Least {
    /// Of the present period and of the one before.
    differences: [i64; 2],
    until_us: u64,
}

/// Clocks of senders, compared with this node's.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    senders: HashMap<NodeId, Least>,
}

impl Clocks {
    /// Notes a packet that has come, and the time that it states. Returns that time by this node's clock.
    pub(super) fn on_packet(&mut self, now_us: u64, sender: NodeId, at_us: u64) -> Sent {
        let difference = now_us.wrapping_sub(at_us).cast_signed();
        if self.senders.len() >= SENDERS_MAX && !self.senders.contains_key(&sender) {
            self.senders.clear();
        }
        let new = Least { differences: [difference; 2], until_us: now_us.saturating_add(PERIOD_US) };
        let least = self.senders.entry(sender).or_insert(new);
        if now_us >= least.until_us {
            // After a silence of two periods, nothing of before counts.
            let is_recent = now_us < least.until_us.saturating_add(PERIOD_US);
            let before = if is_recent { least.differences[0] } else { difference };
            *least = Least { differences: [difference, before], ..new };
        }
        least.differences[0] = least.differences[0].min(difference);
        Sent { at_us, since_us: since_us(now_us, difference, least) }
    }

    /// Returns the time that a packet of the past states, by this node's clock. The packet came to the member
    /// that kept it at `past_us`.
    pub(super) fn of_past(&self, now_us: u64, sender: NodeId, at_us: u64, past_us: u64) -> Sent {
        let difference = now_us.wrapping_sub(at_us).cast_signed();
        let least = self.senders.get(&sender);
        let known_us = least.map_or(now_us, |least| since_us(now_us, difference, least));
        Sent { at_us, since_us: known_us.min(past_us) }
    }
}

/// Returns a time by this node's clock: as long ago as the difference exceeds the smallest one.
fn since_us(now_us: u64, difference: i64, least: &Least) -> u64 {
    let [present, before] = least.differences;
    let age_us = difference.saturating_sub(present.min(before));
    now_us.saturating_sub(u64::try_from(age_us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: NodeId = NodeId(7);
    /// The sender's clock is ahead by 50 years.
    const AHEAD_US: u64 = 1_600_000_000_000_000;

    #[test]
    fn a_message_is_as_old_as_it_was_held_up_whatever_the_clocks() {
        for ahead_us in [AHEAD_US, 0, u64::MAX - 500] {
            let mut clocks = Clocks::default();
            let mut age = |sent_us: u64, took_us: u64| {
                let now_us = 1_000_000 + sent_us + took_us;
                let sent = clocks.on_packet(now_us, SENDER, sent_us.wrapping_add(ahead_us));
                assert_eq!(sent.at_us, sent_us.wrapping_add(ahead_us));
                now_us - sent.since_us
            };
            assert_eq!(age(0, 300), 0, "nothing is known yet");
            assert_eq!(age(1_000, 100), 0, "a faster one");
            assert_eq!(age(2_000, 100), 0);
            assert_eq!(age(3_000, 5_100), 5_000);
            assert_eq!(age(4_000, 300), 200);
        }
    }

    #[test]
    fn clocks_that_drift_apart_are_compared_again() {
        let mut clocks = Clocks::default();
        // Each second of the sender has 1,000,100 microseconds here.
        for second in 0..3_600u64 {
            let now_us = second * 1_000_100;
            let sent = clocks.on_packet(now_us, SENDER, AHEAD_US + second * 1_000_000);
            assert!(now_us - sent.since_us <= 2 * 60 * 100, "{second}: {}", now_us - sent.since_us);
        }
        let later_us = 4_000_000_000;
        assert_eq!(clocks.on_packet(later_us, SENDER, AHEAD_US).since_us, later_us, "after a silence");
    }

    #[test]
    fn a_packet_of_the_past_is_as_old_as_its_keeper_says() {
        let mut clocks = Clocks::default();
        let of_past = |clocks: &Clocks| clocks.of_past(10_000, SENDER, AHEAD_US, 7_000).since_us;
        assert_eq!(of_past(&clocks), 7_000);
        clocks.on_packet(5_000, SENDER, AHEAD_US);
        assert_eq!(of_past(&clocks), 5_000, "it was sent at the time of a packet that came then");
    }

    #[test]
    fn the_table_of_senders_is_bounded_and_no_time_overflows() {
        let mut clocks = Clocks::default();
        for sender in 0..40_000 {
            clocks.on_packet(u64::from(sender), NodeId(sender), 0);
        }
        assert!(clocks.senders.len() <= SENDERS_MAX);
        for now_us in [0, 1, u64::MAX / 2, u64::MAX] {
            for at_us in [0, 1, u64::MAX / 2, u64::MAX / 2 + 2, u64::MAX] {
                assert!(clocks.on_packet(now_us, SENDER, at_us).since_us <= now_us);
                assert!(clocks.of_past(now_us, SENDER, at_us, u64::MAX).since_us <= now_us);
            }
        }
    }
}
