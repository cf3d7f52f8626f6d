//! Flows that lose more packets than the link explains, such as those that a policer limits.
//!
//! If too many packets are missing ([`Account`]), and most of them belong to a few flows, these flows are
//! *set aside*: nothing of them is recovered, and their losses say nothing about the others. The same happens
//! to a flow whose own account shows that it loses more than its share of the packets. Its missing packets
//! have the weight of any others, because a sender may send its packets in a row. A lost datagram excuses its
//! share of the packets that the link may have lost.

use super::account::{Account, ONE};
use crate::flow::Flow;

/// Number of flows whose losses are counted.
const COUNTED: usize = 8;
/// Maximum number of flows set aside.
const ASIDE: usize = 4;
/// Number of latest packets by which flows share the losses that the link explains, in units of [`ONE`].
const RECENT_MAX: i64 = 512 * ONE;
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

/// A flow whose losses are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    flow: Flow,
    /// Losses of the last seconds, and packets among the latest, in units of [`ONE`].
    losses: i64,
    recent: i64,
    /// Evidence of its losses beyond its share of those that the link explains.
    excess: Account,
}

/// Evidence of a missing packet, that of a single one, and that on which a flow is set aside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) evidence: i64,
    pub(super) weight: i64,
    pub(super) limit: i64,
}

/// Meaning of a missing packet for its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is one of those that the link explains.
    Counted,
    /// Its flow is set aside.
    Aside,
    /// Its flow is set aside because of it, with this evidence.
    SetAside(i64),
}

/// Losses by flow, and the flows that are set aside.
#[derive(Debug, Default)]
pub(super) struct Lossy {
    counted: [Counted; COUNTED],
    /// Losses of all flows in the last seconds, and latest packets, in units of [`ONE`].
    losses: i64,
    recent: i64,
    aside: [Option<Aside>; ASIDE],
}

impl Lossy {
    /// Takes a missing packet that was solved, of a flow of which this number of packets has arrived.
    pub(super) fn on_missing(&mut self, now_us: u64, flow: Flow, arrived: u32, scale: Scale) -> Missing {
        if let Some(aside) = self.aside.iter_mut().flatten().find(|aside| aside.flow == flow) {
            aside.level = (aside.level + ONE).min(aside.level_max);
            aside.at_us = now_us;
            return Missing::Aside;
        }
        self.losses += ONE;
        self.note_packet();
        let Some(counted) = self.count(flow, arrived) else { return Missing::Counted };
        counted.losses += ONE;
        counted.recent += ONE;
        counted.excess.charge(scale.evidence);
        if counted.excess.level() <= scale.limit {
            return Missing::Counted;
        }
        let counted = *counted;
        let Some(slot) = self.aside.iter_mut().find(|slot| slot.is_none()) else { return Missing::Counted };
        let level = scale.limit * ONE / scale.weight;
        *slot = Some(Aside { flow, level, level_max: 2 * level, at_us: now_us });
        self.forget(flow);
        Missing::SetAside(counted.excess.level())
    }

    /// Returns the entry of a flow, which may be new, if there is room.
    fn count(&mut self, flow: Flow, arrived: u32) -> Option<&mut Counted> {
        let is_known = |counted: &Counted| counted.flow == flow && counted.losses > 0;
        if let Some(at) = self.counted.iter().position(is_known) {
            return Some(&mut self.counted[at]);
        }
        let at = self.counted.iter().position(|counted| counted.losses < ONE / 2)?;
        let recent = self.recent.min(i64::from(arrived) * ONE);
        self.counted[at] = Counted { flow, recent, ..Counted::default() };
        Some(&mut self.counted[at])
    }

    /// Counts a packet of any flow among the latest.
    ///
    /// A lost datagram excuses the flows by their shares of these, so that a flow which begins when others
    /// end has its whole share at once.
    fn note_packet(&mut self) {
        self.recent += ONE;
        if self.recent > RECENT_MAX {
            self.recent /= 2;
            self.counted.iter_mut().for_each(|counted| counted.recent /= 2);
        }
    }

    fn forget(&mut self, flow: Flow) {
        for counted in self.counted.iter_mut().filter(|counted| counted.flow == flow) {
            self.losses -= counted.losses;
            *counted = Counted::default();
        }
    }

    /// Takes this evidence of a missing packet back: its flow is judged by other evidence.
    pub(super) fn on_explained(&mut self, flow: Flow, evidence: i64) {
        if let Some(counted) = self.counted.iter_mut().find(|counted| counted.flow == flow) {
            counted.excess.charge(-evidence);
        }
    }

    /// Excuses this evidence of missing packets of all flows, because datagrams were lost.
    pub(super) fn on_lost(&mut self, explained: i64) {
        let all = self.recent.max(ONE);
        for counted in &mut self.counted {
            let share = (ONE * counted.recent / all).min(ONE);
            counted.excess.charge(-(explained / ONE * share));
        }
    }

    /// Notes that a packet of a flow arrived. `explains`: losses that the link explains for each arrival. A
    /// flow set aside is as others again once its level is no higher than `release`.
    pub(super) fn on_arrival(&mut self, now_us: u64, flow: Flow, explains: i64, release: i64) {
        self.note_packet();
        for counted in self.counted.iter_mut().filter(|counted| counted.flow == flow) {
            counted.recent += ONE;
        }
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
        self.counted.sort_unstable_by_key(|counted| std::cmp::Reverse(counted.losses));
        let free = self.aside.iter().filter(|slot| slot.is_none()).count();
        // Chance gives some of many flows more losses than others.
        let least = self.losses / 6;
        let worst = self.counted[..free].iter().map(|counted| counted.losses);
        let worst: i64 = worst.filter(|&losses| losses >= least).sum();
        if 8 * worst < 5 * self.losses || excess - worst > limit / 2 {
            return 0;
        }
        let mut refund = 0;
        // A flow that lost half as much as the worst is not left to lose as much again.
        let half = self.counted[0].losses / 2;
        for slot in self.aside.iter_mut().filter(|slot| slot.is_none()) {
            let Counted { flow, losses, .. } = self.counted[0];
            if losses < ONE.max(least) || (excess - refund <= limit / 2 && losses < half) {
                break;
            }
            let level = losses.max(limit);
            *slot = Some(Aside { flow, level, level_max: 2 * level, at_us: now_us });
            refund += losses;
            self.losses -= losses;
            self.counted[0] = Counted::default();
            self.counted.rotate_left(1);
        }
        // Half of the limit stays: the next flow loses less before it is set aside too.
        refund.min(excess - limit / 2)
    }

    /// Lets losses of earlier expire. Must be called ten times a second.
    pub(super) fn on_tick(&mut self, now_us: u64) {
        self.losses -= self.losses / 32;
        self.recent -= self.recent / 32;
        for counted in &mut self.counted {
            counted.losses -= counted.losses / 32;
            counted.recent -= counted.recent / 32;
            counted.excess.forget_credit();
        }
        for slot in &mut self.aside {
            slot.take_if(|aside| now_us > aside.at_us + SILENT_US);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::FOLD;
    use super::*;

    /// Takes a missing packet without the judgement of its flow's own account.
    fn miss(lossy: &mut Lossy, now_us: u64, flow: u32) -> bool {
        let scale = Scale { evidence: FOLD / 4, weight: FOLD / 4, limit: i64::MAX / ONE };
        lossy.on_missing(now_us, Flow(flow), 0, scale) == Missing::Aside
    }

    #[test]
    fn the_flows_with_most_losses_are_set_aside() {
        let mut lossy = Lossy::default();
        for n in 0..12 {
            assert!(!miss(&mut lossy, 1, if n % 4 == 0 { n } else { 99 }));
        }
        assert_eq!(lossy.set_aside(1, 10 * ONE, 8 * ONE), 6 * ONE);
        assert!(miss(&mut lossy, 2, 99) && !miss(&mut lossy, 2, 4));
        // Arrivals that the link's losses do not explain keep it aside, others end that.
        (0..10).for_each(|_| lossy.on_arrival(3, Flow(99), ONE / 4, 4 * ONE));
        assert!(miss(&mut lossy, 4, 99));
        (0..40).for_each(|_| lossy.on_arrival(5, Flow(99), ONE / 4, 4 * ONE));
        assert!(!miss(&mut lossy, 6, 99));
    }

    #[test]
    fn flows_with_as_many_losses_are_set_aside_together() {
        let mut lossy = Lossy::default();
        (0..8).for_each(|n| _ = miss(&mut lossy, 1, n % 2));
        assert_eq!(lossy.set_aside(1, 8 * ONE, 8 * ONE), 4 * ONE);
        assert!(miss(&mut lossy, 2, 0) && miss(&mut lossy, 2, 1));
    }

    #[test]
    fn losses_of_many_flows_are_no_matter_of_one() {
        let mut lossy = Lossy::default();
        (0..90).for_each(|n| _ = miss(&mut lossy, 1, n % 9));
        assert_eq!(lossy.set_aside(1, 9 * ONE, 8 * ONE), 0);
        let mut lossy = Lossy::default();
        for group in 0..5 {
            (0..20).for_each(|_| _ = miss(&mut lossy, 1, group));
            let refund = lossy.set_aside(1, 9 * ONE, 8 * ONE);
            assert_eq!(refund > 0, group < 4, "at most four flows are set aside");
        }
        lossy.on_tick(2 + SILENT_US);
        (0..20).for_each(|_| _ = miss(&mut lossy, 1, 50));
        assert!(lossy.set_aside(1, 9 * ONE, 8 * ONE) > 0, "silent flows are forgotten");
    }

    #[test]
    fn losses_of_long_ago_are_forgotten() {
        let mut lossy = Lossy::default();
        (0..20).for_each(|_| _ = miss(&mut lossy, 1, 50));
        (0..400).for_each(|_| lossy.on_tick(2));
        (0..20).for_each(|n| _ = miss(&mut lossy, 3, n % 7));
        assert_eq!(lossy.set_aside(3, 9 * ONE, 8 * ONE), 0);
    }

    #[test]
    fn nothing_is_set_aside_if_the_worst_flows_do_not_explain_the_excess() {
        let mut lossy = Lossy::default();
        (0..9).for_each(|_| _ = miss(&mut lossy, 1, 1));
        assert_eq!(lossy.set_aside(1, 30 * ONE, 8 * ONE), 0);
        assert!(!miss(&mut lossy, 2, 1));
    }

    #[test]
    fn a_flow_is_aside_for_a_while_whether_it_lost_few_or_many_packets() {
        let mut lossy = Lossy::default();
        (0..8).for_each(|n| _ = miss(&mut lossy, 1, n % 2));
        assert_eq!(lossy.set_aside(1, 8 * ONE, 8 * ONE), 4 * ONE);
        lossy.on_arrival(2, Flow(0), ONE / 4, 4 * ONE);
        assert!(miss(&mut lossy, 2, 0), "four losses count as many as the limit");
        (0..1_000).for_each(|_| assert!(miss(&mut lossy, 2, 1)));
        (0..48).for_each(|_| lossy.on_arrival(3, Flow(1), ONE / 4, 4 * ONE));
        assert!(!miss(&mut lossy, 4, 1), "a thousand losses count as twice that");
    }

    #[test]
    fn a_flow_that_loses_more_than_its_share_is_set_aside() {
        // One packet in ten belongs to the first flow, which loses a share of its own beside the link's.
        for (own, is_found) in [(0, false), (1, false), (15, true)] {
            let (mut lossy, mut found, mut random) = (Lossy::default(), false, testkit::Random(4));
            let scale = Scale { evidence: FOLD / 4, weight: FOLD / 4, limit: 16 * FOLD };
            for n in 0..40_000 {
                let flow = Flow(random.below(10) as u32 + 1);
                let is_missing = random.below(100) == 0 || flow == Flow(1) && random.below(100) < own;
                if !is_missing {
                    lossy.on_arrival(n, flow, ONE / 32, ONE);
                } else if let Missing::SetAside(excess) = lossy.on_missing(n, flow, 1_000, scale) {
                    assert!(flow == Flow(1) && excess > scale.limit, "{flow:?}");
                    found = true;
                }
                if n % 4 == 0 && random.below(100) == 0 {
                    lossy.on_lost(3 * FOLD);
                }
                if n % 300 == 0 {
                    lossy.on_tick(n);
                }
            }
            assert_eq!(found, is_found, "{own} % of its packets");
        }
    }
}
