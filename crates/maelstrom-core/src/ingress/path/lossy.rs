//! Flows that lose more packets than the link explains, such as those that a policer limits.
//!
//! If too many packets are missing ([`Account`](super::account::Account)), and most of them belong to a few
//! flows, these flows are *set aside*: nothing of them is recovered, and their losses say nothing about the
//! others.

use super::account::ONE;
use crate::flow::Flow;

/// Number of flows whose losses are counted.
const COUNTED: usize = 8;
/// Maximum number of flows set aside.
const ASIDE: usize = 4;
/// Time without packets after which a flow that was set aside is forgotten, in microseconds.
const SILENT_US: u64 = 60_000_000;

/// A flow that is set aside.
#[derive(Clone, Copy, Debug)]
struct Aside {
    flow: Flow,
    /// Losses of the flow beyond those that the link explains, in units of [`ONE`].
    level: i64,
    level_max: i64,
    /// Time of its latest packet.
    at_us: u64,
}

/// Losses by flow, and the flows that are set aside.
#[derive(Debug, Default)]
pub(super) struct Lossy {
    /// Losses of the last seconds, in units of [`ONE`].
    losses: [(Flow, i64); COUNTED],
    /// The same of all flows.
    total: i64,
    aside: [Option<Aside>; ASIDE],
}

impl Lossy {
    /// Takes a missing packet that was solved. Returns whether its flow is set aside; if not, the packet is
    /// counted.
    pub(super) fn on_missing(&mut self, now_us: u64, flow: Flow) -> bool {
        if let Some(aside) = self.aside.iter_mut().flatten().find(|aside| aside.flow == flow) {
            aside.level = (aside.level + ONE).min(aside.level_max);
            aside.at_us = now_us;
            return true;
        }
        self.total += ONE;
        let known = self.losses.iter().position(|&(known, level)| known == flow && level > 0);
        let slot = known.or_else(|| self.losses.iter().position(|&(_, level)| level < ONE / 2));
        if let Some(at) = slot {
            let (_, level) = self.losses[at];
            self.losses[at] = (flow, if known.is_some() { level + ONE } else { ONE });
        }
        false
    }

    /// Notes that a packet of a flow arrived. `explains`: losses that the link explains for each arrival. A
    /// flow set aside is as others again once its level is no higher than `release`.
    pub(super) fn on_arrival(&mut self, now_us: u64, flow: Flow, explains: i64, release: i64) {
        for slot in &mut self.aside {
            if let Some(aside) = slot.as_mut().filter(|aside| aside.flow == flow) {
                aside.level -= explains;
                aside.at_us = now_us;
                if aside.level <= release {
                    *slot = None;
                }
            }
        }
    }

    /// Sets flows aside if their losses account for most of `excess`, which is too much by itself. Returns
    /// their losses; 0 if none is set aside.
    pub(super) fn set_aside(&mut self, now_us: u64, excess: i64, limit: i64) -> i64 {
        self.losses.sort_unstable_by_key(|&(_, level)| std::cmp::Reverse(level));
        let free = self.aside.iter().filter(|slot| slot.is_none()).count();
        let worst: i64 = self.losses[..free].iter().map(|&(_, level)| level).sum();
        if 8 * worst < 5 * self.total || excess - worst > limit / 2 {
            return 0;
        }
        let mut refund = 0;
        // A flow that lost half as much as the worst is not left to lose as much again.
        let (_, half) = self.losses[0];
        let half = half / 2;
        for slot in self.aside.iter_mut().filter(|slot| slot.is_none()) {
            let (flow, level) = self.losses[0];
            if level < ONE || (excess - refund <= limit / 2 && level < half) {
                break;
            }
            let level = level.max(limit);
            *slot = Some(Aside { flow, level, level_max: 2 * level, at_us: now_us });
            refund += self.losses[0].1;
            self.total -= self.losses[0].1;
            self.losses[0] = (Flow::default(), 0);
            self.losses.rotate_left(1);
        }
        // Half of the limit stays: the next flow loses less before it is set aside too.
        refund.min(excess - limit / 2)
    }

    /// Lets losses of earlier expire. Must be called ten times a second.
    pub(super) fn on_tick(&mut self, now_us: u64) {
        for level in self.losses.iter_mut().map(|(_, level)| level).chain([&mut self.total]) {
            *level -= *level / 32;
        }
        for slot in &mut self.aside {
            slot.take_if(|aside| now_us > aside.at_us + SILENT_US);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flows_with_most_losses_are_set_aside() {
        let mut lossy = Lossy::default();
        for n in 0..12 {
            assert!(!lossy.on_missing(1, Flow(if n % 4 == 0 { n } else { 99 })));
        }
        assert_eq!(lossy.set_aside(1, 10 * ONE, 8 * ONE), 6 * ONE);
        assert!(lossy.on_missing(2, Flow(99)) && !lossy.on_missing(2, Flow(4)));
        // Arrivals that the link's losses do not explain keep it aside, others end that.
        (0..10).for_each(|_| lossy.on_arrival(3, Flow(99), ONE / 4, 4 * ONE));
        assert!(lossy.on_missing(4, Flow(99)));
        (0..40).for_each(|_| lossy.on_arrival(5, Flow(99), ONE / 4, 4 * ONE));
        assert!(!lossy.on_missing(6, Flow(99)));
    }

    #[test]
    fn flows_with_as_many_losses_are_set_aside_together() {
        let mut lossy = Lossy::default();
        (0..8).for_each(|n| _ = lossy.on_missing(1, Flow(n % 2)));
        assert_eq!(lossy.set_aside(1, 8 * ONE, 8 * ONE), 4 * ONE);
        assert!(lossy.on_missing(2, Flow(0)) && lossy.on_missing(2, Flow(1)));
    }

    #[test]
    fn losses_of_many_flows_are_no_matter_of_one() {
        let mut lossy = Lossy::default();
        (0..90).for_each(|n| _ = lossy.on_missing(1, Flow(n % 9)));
        assert_eq!(lossy.set_aside(1, 9 * ONE, 8 * ONE), 0);
        let mut lossy = Lossy::default();
        for group in 0..5 {
            (0..20).for_each(|_| _ = lossy.on_missing(1, Flow(group)));
            let refund = lossy.set_aside(1, 9 * ONE, 8 * ONE);
            assert_eq!(refund > 0, group < 4, "at most four flows are set aside");
        }
        lossy.on_tick(2 + SILENT_US);
        (0..20).for_each(|_| _ = lossy.on_missing(1, Flow(50)));
        assert!(lossy.set_aside(1, 9 * ONE, 8 * ONE) > 0, "silent flows are forgotten");
    }

    #[test]
    fn losses_of_long_ago_are_forgotten() {
        let mut lossy = Lossy::default();
        (0..20).for_each(|_| _ = lossy.on_missing(1, Flow(50)));
        (0..400).for_each(|_| lossy.on_tick(2));
        (0..20).for_each(|n| _ = lossy.on_missing(3, Flow(n % 7)));
        assert_eq!(lossy.set_aside(3, 9 * ONE, 8 * ONE), 0);
    }

    #[test]
    fn nothing_is_set_aside_if_the_worst_flows_do_not_explain_the_excess() {
        let mut lossy = Lossy::default();
        (0..9).for_each(|_| _ = lossy.on_missing(1, Flow(1)));
        assert_eq!(lossy.set_aside(1, 30 * ONE, 8 * ONE), 0);
        assert!(!lossy.on_missing(2, Flow(1)));
    }

    #[test]
    fn a_flow_is_aside_for_a_while_whether_it_lost_few_or_many_packets() {
        let mut lossy = Lossy::default();
        (0..8).for_each(|n| _ = lossy.on_missing(1, Flow(n % 2)));
        assert_eq!(lossy.set_aside(1, 8 * ONE, 8 * ONE), 4 * ONE);
        lossy.on_arrival(2, Flow(0), ONE / 4, 4 * ONE);
        assert!(lossy.on_missing(2, Flow(0)), "four losses count as many as the limit");
        (0..1_000).for_each(|_| assert!(lossy.on_missing(2, Flow(1))));
        (0..48).for_each(|_| lossy.on_arrival(3, Flow(1), ONE / 4, 4 * ONE));
        assert!(!lossy.on_missing(4, Flow(1)), "a thousand losses count as twice that");
    }
}
