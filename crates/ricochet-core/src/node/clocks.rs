//! The ages of messages, from the times that their packets state.
//!
//! The clocks of two nodes may differ by any amount, so that this node compares them. The difference between
//! the time at which a packet comes and the time that it states is the difference of the clocks, plus the
//! time that the packet took. The smallest difference of the last minute or two stands for a packet that was
//! not held up. A message is as old as its own difference exceeds that one. A delay that all packets of a
//! sender have in common is thus not counted, and the first packet of a sender counts as new.
//!
//! Only packets that their sender has just multicast are compared: others come late, or from a node that may
//! state any time.
//!
//! The clock of a sender may stop while its machine is suspended, or its virtual machine is paused. The
//! differences then rise from one packet to the next, and stay. A queue also lets them rise, but they fall
//! as it drains. Differences that have risen at once and not fallen for some seconds are those of a clock
//! that has stopped.

use hashbrown::HashMap;

use crate::ids::NodeId;
use crate::message::Sent;

/// Time after which an earlier smallest difference is forgotten, in microseconds: clocks drift apart by up to
/// 0.1 ms in a second.
const PERIOD_US: u64 = 60_000_000;
/// Maximum number of senders. A full table is cleared: the next packet of each sender counts as new.
const SENDERS_MAX: usize = 1 << 14;
/// Shortest stop of a clock that is noticed before the smallest difference is forgotten, in microseconds.
const STOP_US_MIN: i64 = 20_000;
/// Time for which differences must not fall after a stop, in microseconds.
const STEADY_US: u64 = 3_000_000;
/// Distance by which they may fall in that time, in microseconds.
const FALL_US_MAX: i64 = 5_000;

/// Differences between this node's clock and that of a sender, modulo 2⁶⁴.
#[derive(Clone, Copy, Debug)]
struct Least {
    /// The smallest of the present period and of the one before.
    differences: [i64; 2],
    until_us: u64,
    /// That of the newest packet.
    newest: i64,
    /// Time and difference of the packet since which the differences have not fallen, if the clock of the
    /// sender may have stopped before it.
    steady: Option<(u64, i64)>,
}

/// Clocks of senders, compared with this node's.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    senders: HashMap<NodeId, Least>,
}

impl Clocks {
    /// Notes a new packet that its sender has just multicast, and the time that it states.
    pub(super) fn on_packet(&mut self, now_us: u64, sender: NodeId, at_us: u64) {
        let difference = difference(now_us, at_us);
        if self.senders.len() >= SENDERS_MAX && !self.senders.contains_key(&sender) {
            self.senders.clear();
        }
        let least = self.senders.entry(sender).or_insert_with(|| Least::new(now_us, difference));
        if now_us >= least.until_us {
            let before = least.smallest(now_us).unwrap_or(difference);
            least.differences = [difference, before];
            least.until_us = now_us.saturating_add(PERIOD_US);
        }
        least.differences[0] = least.differences[0].min(difference);
        least.look_for_stop(now_us, difference);
    }

    /// Returns the time that a packet states, by this node's clock.
    pub(super) fn sent(&self, now_us: u64, sender: NodeId, at_us: u64) -> Sent {
        let smallest = self.senders.get(&sender).and_then(|least| least.smallest(now_us));
        let age_us = smallest.map_or(0, |smallest| difference(now_us, at_us).saturating_sub(smallest));
        Sent { at_us, since_us: now_us.saturating_sub(u64::try_from(age_us).unwrap_or(0)) }
    }

    /// Returns the time that a packet of the past states, by this node's clock. The packet came to the member
    /// that kept it at `past_us`.
    pub(super) fn of_past(&self, now_us: u64, sender: NodeId, at_us: u64, past_us: u64) -> Sent {
        let Sent { since_us, .. } = self.sent(now_us, sender, at_us);
        Sent { at_us, since_us: since_us.min(past_us) }
    }
}

fn difference(now_us: u64, at_us: u64) -> i64 {
    now_us.wrapping_sub(at_us).cast_signed()
}

impl Least {
    fn new(now_us: u64, difference: i64) -> Self {
        let until_us = now_us.saturating_add(PERIOD_US);
        Self { differences: [difference; 2], until_us, newest: difference, steady: None }
    }

    /// Returns the smallest difference that counts; `None` after a silence of a period.
    fn smallest(&self, now_us: u64) -> Option<i64> {
        let [present, before] = self.differences;
        if now_us < self.until_us {
            return Some(present.min(before));
        }
        (now_us < self.until_us.saturating_add(PERIOD_US)).then_some(present)
    }

    /// Takes the present difference for the smallest if the clock of the sender has stopped.
    fn look_for_stop(&mut self, now_us: u64, difference: i64) {
        let [present, before] = self.differences;
        let excess_us = difference.saturating_sub(present.min(before));
        let rise_us = difference.saturating_sub(std::mem::replace(&mut self.newest, difference));
        if excess_us < STOP_US_MIN {
            self.steady = None;
            return;
        }
        let Some((since_us, steady)) = self.steady else {
            self.steady = (rise_us >= excess_us / 2).then_some((now_us, difference));
            return;
        };
        if difference <= steady.saturating_sub(FALL_US_MAX) {
            self.steady = Some((now_us, difference));
        } else if now_us >= since_us.saturating_add(STEADY_US) {
            (self.differences, self.steady) = ([steady; 2], None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: NodeId = NodeId(7);
    /// The sender's clock is ahead by 50 years.
    const AHEAD_US: u64 = 1_600_000_000_000_000;

    /// Notes a packet, and returns its age.
    fn age_us(clocks: &mut Clocks, now_us: u64, at_us: u64) -> u64 {
        let sent = clocks.sent(now_us, SENDER, at_us);
        clocks.on_packet(now_us, SENDER, at_us);
        assert_eq!(sent.at_us, at_us);
        now_us - sent.since_us
    }

    #[test]
    fn a_message_is_as_old_as_it_was_held_up_whatever_the_clocks() {
        for ahead_us in [AHEAD_US, 0, u64::MAX - 500] {
            let mut clocks = Clocks::default();
            let mut age = |sent_us: u64, took_us: u64| {
                age_us(&mut clocks, 1_000_000 + sent_us + took_us, sent_us.wrapping_add(ahead_us))
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
            let age_us = age_us(&mut clocks, second * 1_000_100, AHEAD_US + second * 1_000_000);
            assert!(age_us <= 2 * 60 * 100, "{second}: {age_us}");
        }
        assert_eq!(age_us(&mut clocks, 4_000_000_000, AHEAD_US), 0, "after a silence");
    }

    #[test]
    fn a_clock_that_has_stopped_is_compared_again_within_seconds() {
        for stop_us in [50_000, 2_000_000, 3_600_000_000] {
            for interval_us in [100, 400_000] {
                let mut clocks = Clocks::default();
                let mut age = |sent_us: u64, stopped_us: u64, took_us: u64| {
                    age_us(&mut clocks, sent_us + stopped_us + took_us, AHEAD_US + sent_us)
                };
                assert_eq!(age(0, 0, 200), 0);
                // The first packet after the stop is held up for longer than others.
                assert!(age(1_000_000, stop_us, 9_000) >= 50_000 || stop_us > 2 * PERIOD_US);
                let times = (1_000_100..5_000_000u64).step_by(interval_us);
                for (number, sent_us) in times.enumerate() {
                    let late = age(sent_us, stop_us, 200 + number as u64 % 7 * 100);
                    let is_known = sent_us > 4_500_000 || stop_us > 2 * PERIOD_US;
                    assert!(!is_known || late < 10_000, "{stop_us}, {sent_us}: {late}");
                }
            }
        }
    }

    #[test]
    fn messages_that_a_queue_holds_up_are_old_as_long_as_it_drains() {
        let mut clocks = Clocks::default();
        age_us(&mut clocks, 1_000, AHEAD_US);
        // Nothing comes for 9 s. The queue then drains within 20 s.
        for number in 0..20_000u64 {
            let (sent_us, now_us) = (number * 1_450, 9_000_000 + number * 1_000);
            let age_us = age_us(&mut clocks, now_us.max(sent_us) + 1_000, AHEAD_US + sent_us);
            assert_eq!(age_us, now_us.saturating_sub(sent_us), "{number}");
        }
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
                assert!(clocks.sent(now_us, SENDER, at_us).since_us <= now_us);
                clocks.on_packet(now_us, SENDER, at_us);
                assert!(clocks.of_past(now_us, SENDER, at_us, u64::MAX).since_us <= now_us);
            }
        }
    }
}
