//! Members of groups on a LAN (RFC 3376 §6, RFC 3810 §7): who is there is asked for, unless another router
//! asks. Then the times of that router count, and it decides what a message of a host that leaves is worth:
//! hosts answer its questions, which it asks by its own times.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::ask::{self, ADVERT_S, QUERY_S};
use super::question::Question;
use super::reports::Said;

/// Maximum number of groups with members on one LAN.
const GROUPS_MAX: usize = 1_024;
/// Time in which one of some questions about all groups gets through.
const ASKED_US: u64 = ask::ROBUSTNESS as u64 * QUERY_S as u64 * 1_000_000;
/// Shortest and longest such time of another router that counts, whatever it states.
const ASKED_BY_OTHER_US: [u64; 2] = [10_000_000, 3_600_000_000];
/// Time for answers to such a question.
const ANSWER_US: u64 = 10_000_000;
/// Interval between the first two questions.
const FIRST_US: u64 = 31_000_000;
/// Interval between questions about one group that a host has left, and the time for their answers.
const LAST_MEMBER_US: u64 = 1_000_000;
/// Longest time for answers to such a question of another router that counts.
const LAST_MEMBER_MAX_US: u64 = 10_000_000;
/// Maximum number of groups about which a question is due.
const LEFT_MAX: usize = 256;

/// The members on one LAN, and the questions to them.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Groups with members, and the times until which they have some.
    groups: BTreeMap<IpAddr, u64>,
    refused: u64,
    /// The questions of IPv4 and of IPv6.
    families: [Family; 2],
    /// Groups that a host has left, with the times of the next question and the number of those to come.
    left: VecDeque<(IpAddr, u64, u8)>,
    has_changed: bool,
}

/// The questions of one version of IP.
#[derive(Debug, Default)]
struct Family {
    /// Address of this gateway on the LAN; nothing is asked without one.
    own: Option<IpAddr>,
    asked: u8,
    next_question_us: u64,
    next_advert_us: u64,
    /// The router that asked last instead of this gateway.
    other: Option<Other>,
}

/// Another router that asks.
#[derive(Clone, Copy, Debug)]
struct Other {
    router: IpAddr,
    /// Time in which one of its questions about all groups gets through.
    asked_us: u64,
    /// Time until which it asks, unless it goes on.
    until_us: u64,
}

impl Family {
    /// The other router that asks at present.
    fn other(&self, now_us: u64) -> Option<Other> {
        self.other.filter(|other| now_us < other.until_us)
    }

    /// Time for which a group has members after a report: some questions and their answers.
    fn interval_us(&self, now_us: u64) -> u64 {
        self.other(now_us).map_or(ASKED_US, |other| other.asked_us) + ANSWER_US
    }

    /// Leaves the questions to a router with a lower address (RFC 3376 §6.6.2). Returns whether it counts,
    /// and of several, the one with the lowest does.
    fn on_question(&mut self, now_us: u64, question: &Question) -> bool {
        let router = question.router;
        let is_lower = !router.is_unspecified() && self.own.is_none_or(|own| router < own);
        if !is_lower || self.other(now_us).is_some_and(|other| other.router < router) {
            return false;
        }
        let asked_us = u64::from(question.robustness) * u64::from(question.interval_s) * 1_000_000;
        let asked_us = asked_us.clamp(ASKED_BY_OTHER_US[0], ASKED_BY_OTHER_US[1]);
        let until_us = now_us + asked_us + ANSWER_US / 2;
        self.other = Some(Other { router, asked_us, until_us });
        // If it goes away, this gateway asks before members are forgotten.
        self.next_question_us = until_us;
        true
    }
}

impl Members {
    /// Takes the address of this gateway on the LAN, of one version of IP.
    pub(crate) fn set_own(&mut self, is_v4: bool, own: Option<IpAddr>) {
        self.families[usize::from(!is_v4)].own = own;
    }

    /// Takes what a host or router of the LAN says about groups. `is_ours`: whether a group may cross.
    pub(crate) fn take(&mut self, now_us: u64, said: Said, is_ours: impl Fn(IpAddr) -> bool) {
        match said {
            Said::Joins(group) if is_ours(group) => self.join(now_us, group),
            Said::Leaves(group) if is_ours(group) => self.leave(now_us, group),
            Said::Joins(_) | Said::Leaves(_) => {}
            Said::Asks(question) => self.on_question(now_us, &question),
        }
    }

    fn family(&mut self, of: IpAddr) -> &mut Family {
        &mut self.families[usize::from(of.is_ipv6())]
    }

    fn join(&mut self, now_us: u64, group: IpAddr) {
        self.left.retain(|(left, ..)| *left != group);
        let is_known = self.groups.contains_key(&group);
        if !is_known && self.groups.len() >= GROUPS_MAX {
            self.refused += 1;
            return;
        }
        let interval_us = self.family(group).interval_us(now_us);
        self.groups.insert(group, now_us + interval_us);
        self.has_changed |= !is_known;
    }

    /// Asks whether others are in a group that a host has left, unless another router does (RFC 2236 §3).
    /// Only the question shortens the time of the group: without one, hosts that stay do not report it.
    fn leave(&mut self, now_us: u64, group: IpAddr) {
        if self.family(group).other(now_us).is_some() || !self.groups.contains_key(&group) {
            return;
        }
        if self.left.len() < LEFT_MAX && self.left.iter().all(|(left, ..)| *left != group) {
            self.left.push_back((group, now_us, ask::ROBUSTNESS));
        }
    }

    /// Takes the question of another router, whose answers come to this gateway too.
    fn on_question(&mut self, now_us: u64, question: &Question) {
        let is_v6 = question.router.is_ipv6();
        let family = self.family(question.router);
        let before_us = family.interval_us(now_us);
        if !family.on_question(now_us, question) {
            return;
        }
        let interval_us = family.interval_us(now_us);
        if interval_us > before_us {
            // Members report again when it asks, which is later than they were asked until now.
            let of_family = self.groups.iter_mut().filter(|(group, _)| group.is_ipv6() == is_v6);
            of_family.for_each(|(_, until_us)| *until_us = (*until_us).max(now_us + interval_us));
        }
        if let Some(until_us) = question.group.and_then(|group| self.groups.get_mut(&group)) {
            let answer_us = (1_000 * u64::from(question.answer_ms)).clamp(LAST_MEMBER_US, LAST_MEMBER_MAX_US);
            *until_us = (*until_us).min(now_us + u64::from(question.robustness) * answer_us);
        }
    }

    /// Forgets groups without members; returns whether there are others than at the last call.
    pub(crate) fn update(&mut self, now_us: u64) -> bool {
        let before = self.groups.len();
        self.groups.retain(|_, until_us| now_us < *until_us);
        std::mem::take(&mut self.has_changed) | (self.groups.len() != before)
    }

    /// The groups with members.
    pub(crate) fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.keys().copied()
    }

    /// Number of reports of groups for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the next packet for the LAN that is due.
    pub(crate) fn poll_message(&mut self, now_us: u64) -> Option<Vec<u8>> {
        for family in &mut self.families {
            let Some(own) = family.own else { continue };
            if now_us >= family.next_advert_us {
                family.next_advert_us = now_us + u64::from(ADVERT_S) * 1_000_000;
                return Some(ask::advertisement(own));
            }
            if now_us >= family.next_question_us {
                let is_early = family.asked + 1 < ask::ROBUSTNESS;
                family.asked = (family.asked + 1).min(ask::ROBUSTNESS);
                family.next_question_us =
                    now_us + if is_early { FIRST_US } else { u64::from(QUERY_S) * 1_000_000 };
                if family.other(now_us).is_none() {
                    return Some(ask::question(own, None));
                }
            }
        }
        self.ask_about_left(now_us)
    }

    fn ask_about_left(&mut self, now_us: u64) -> Option<Vec<u8>> {
        // Second questions stand before the first ones of groups that were left later.
        while let Some(at) = self.left.iter().position(|&(_, due_us, _)| now_us >= due_us) {
            let (group, _, times) = self.left.remove(at)?;
            let family = &self.families[usize::from(group.is_ipv6())];
            let Some(own) = family.own.filter(|_| family.other(now_us).is_none()) else { continue };
            let Some(until_us) = self.groups.get_mut(&group) else { continue };
            let answers_us = now_us + u64::from(times) * LAST_MEMBER_US;
            let is_first = times == ask::ROBUSTNESS;
            // A second question may be late, and its answers count too.
            *until_us = if is_first { (*until_us).min(answers_us) } else { (*until_us).max(answers_us) };
            if times > 1 {
                self.left.push_back((group, now_us + LAST_MEMBER_US, times - 1));
            }
            return Some(ask::question(own, Some(group)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::reports;
    use super::*;
    use crate::packet::Packet;

    const S: u64 = 1_000_000;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn members() -> Members {
        let mut members = Members::default();
        members.set_own(true, Some(ip("10.1.1.1")));
        members.set_own(false, Some(ip("fe80::1")));
        members
    }

    fn has(members: &mut Members, now_us: u64, group: &str) -> bool {
        members.update(now_us);
        members.iter().any(|member| member == ip(group))
    }

    /// Lets a second pass at a time, and counts the messages to each destination.
    fn sent(members: &mut Members, seconds: std::ops::Range<u64>) -> BTreeMap<IpAddr, usize> {
        let mut sent = BTreeMap::new();
        for second in seconds {
            while let Some(packet) = members.poll_message(second * S) {
                let packet = Packet::new_checked(&packet).or(Packet::new_whole(&packet)).unwrap();
                assert!(packet.mutable_fields().ttl == 1 && packet.is_intact());
                // Whoever reads questions reads these.
                let is_read = reports::read(&packet, &mut |said| assert!(matches!(said, Said::Asks(_))));
                let is_advert = [ip("224.0.0.106"), ip("ff02::6a")].contains(&packet.destination());
                assert_eq!(is_read, !is_advert);
                *sent.entry(packet.destination()).or_default() += 1;
            }
        }
        sent
    }

    /// Lets a host leave a group, and sends what is due at once.
    fn leave(members: &mut Members, now_us: u64, group: &str) {
        members.take(now_us, Said::Leaves(ip(group)), |_| true);
        while members.poll_message(now_us).is_some() {}
    }

    #[test]
    fn a_group_has_members_until_nobody_answers_for_it() {
        let mut members = members();
        let group = ip("239.1.2.3");
        members.take(0, Said::Joins(group), |_| true);
        members.take(0, Said::Joins(ip("239.2.2.3")), |group| group == ip("239.1.2.3"));
        assert!(members.update(0) && !members.update(1));
        assert!(has(&mut members, 259 * S, "239.1.2.3") && members.iter().count() == 1);
        assert!(!has(&mut members, 260 * S, "239.1.2.3"));
        // One of two members leaves, and the other one answers.
        members.take(300 * S, Said::Joins(group), |_| true);
        leave(&mut members, 310 * S, "239.1.2.3");
        members.take(311 * S, Said::Joins(group), |_| true);
        assert!(has(&mut members, 320 * S, "239.1.2.3"));
        leave(&mut members, 330 * S, "239.1.2.3");
        assert!(has(&mut members, 331 * S, "239.1.2.3") && !has(&mut members, 332 * S, "239.1.2.3"));
        assert!(members.left.len() <= 1);
    }

    #[test]
    fn questions_and_advertisements_come_at_their_intervals() {
        let mut members = members();
        let sent_at_first = sent(&mut members, 0..300);
        // At 0, 31, 156 and 281 s.
        assert_eq!((sent_at_first[&ip("224.0.0.1")], sent_at_first[&ip("ff02::1")]), (4, 4));
        assert_eq!((sent_at_first[&ip("224.0.0.106")], sent_at_first[&ip("ff02::6a")]), (15, 15));
        let group = ip("ff15::7");
        members.take(300 * S, Said::Joins(group), |_| true);
        members.take(301 * S, Said::Leaves(group), |_| true);
        assert_eq!(sent(&mut members, 301..310).get(&group), Some(&2));
    }

    /// The question of a router about all groups, by the times of RFC 3376.
    fn question(router: &str) -> Question {
        Question { router: ip(router), group: None, answer_ms: 10_000, interval_s: 125, robustness: 2 }
    }

    fn ask(members: &mut Members, now_us: u64, question: Question) {
        members.take(now_us, Said::Asks(question), |_| true);
    }

    #[test]
    fn a_router_with_a_lower_address_asks_instead() {
        let mut members = members();
        ask(&mut members, 0, question("10.1.1.9"));
        ask(&mut members, 0, question("0.0.0.0"));
        assert_eq!(sent(&mut members, 0..100).get(&ip("224.0.0.1")), Some(&2));
        ask(&mut members, 100 * S, question("10.1.0.9"));
        let quiet = sent(&mut members, 100..355);
        assert!(!quiet.contains_key(&ip("224.0.0.1")) && quiet.contains_key(&ip("ff02::1")));
        // Switches know the port all the same.
        assert!(quiet.contains_key(&ip("224.0.0.106")));
        assert!(sent(&mut members, 355..356).contains_key(&ip("224.0.0.1")), "before members are forgotten");
    }

    #[test]
    fn a_host_that_leaves_ends_nothing_where_another_router_asks() {
        let mut members = members();
        let (group, other) = (ip("239.1.2.3"), question("10.1.0.9"));
        members.take(0, Said::Joins(group), |_| true);
        ask(&mut members, 0, other);
        members.take(S, Said::Leaves(group), |_| true);
        assert!(has(&mut members, 200 * S, "239.1.2.3") && members.left.is_empty());
        // A router that does not ask for all, and the one that does.
        for (router, is_there) in [("10.1.0.10", true), ("10.1.1.200", true), ("10.1.0.9", false)] {
            let about = Question { group: Some(group), answer_ms: 1_000, ..question(router) };
            ask(&mut members, 200 * S, about);
            assert!(has(&mut members, 201 * S, "239.1.2.3"));
            assert_eq!(has(&mut members, 202 * S, "239.1.2.3"), is_there, "{router}");
        }
        // IPv6 has no other router.
        members.take(300 * S, Said::Joins(ip("ff15::7")), |_| true);
        leave(&mut members, 300 * S, "ff15::7");
        assert!(!has(&mut members, 302 * S, "ff15::7"));
    }

    #[test]
    fn groups_have_members_for_as_long_as_the_router_that_asks_takes() {
        let mut members = members();
        let slow = Question { interval_s: 300, ..question("10.1.0.9") };
        members.take(0, Said::Joins(ip("239.1.2.3")), |_| true);
        // It comes into force, and the members that are known wait for its next question.
        ask(&mut members, 100 * S, slow);
        members.take(100 * S, Said::Joins(ip("239.1.2.4")), |_| true);
        assert!(has(&mut members, 709 * S, "239.1.2.3") && has(&mut members, 709 * S, "239.1.2.4"));
        assert!(sent(&mut members, 100..705).keys().all(|to| *to != ip("224.0.0.1")));
        assert!(!has(&mut members, 710 * S, "239.1.2.3"));
        ask(&mut members, 800 * S, Question { interval_s: 20, robustness: 1, ..slow });
        members.take(800 * S, Said::Joins(ip("239.1.2.3")), |_| true);
        assert!(has(&mut members, 829 * S, "239.1.2.3") && !has(&mut members, 830 * S, "239.1.2.3"));
        // One that lies.
        ask(&mut members, 900 * S, Question { interval_s: u16::MAX, robustness: 7, ..slow });
        members.take(900 * S, Said::Joins(ip("239.1.2.3")), |_| true);
        assert!(!has(&mut members, (900 + 3_610) * S, "239.1.2.3"));
    }

    #[test]
    fn a_host_that_joins_everything_gets_no_more_memory() {
        let mut members = members();
        for number in 0..5_000u32 {
            let group = IpAddr::from((0xef01_0000 + number).to_be_bytes());
            members.take(0, Said::Joins(group), |_| true);
            members.take(0, Said::Leaves(group), |_| true);
        }
        assert_eq!((members.iter().count(), members.refused()), (GROUPS_MAX, 5_000 - GROUPS_MAX as u64));
        assert!(members.left.len() <= LEFT_MAX);
    }

    #[test]
    fn groups_about_which_nobody_is_asked_keep_their_members() {
        let mut members = members();
        let groups = (0..300_u32).map(|number| IpAddr::from((0xef01_0000 + number).to_be_bytes()));
        groups.clone().for_each(|group| members.take(0, Said::Joins(group), |_| true));
        while members.poll_message(0).is_some() {}
        groups.clone().for_each(|group| members.take(S, Said::Leaves(group), |_| true));
        let asked = sent(&mut members, 1..4);
        members.update(4 * S);
        let gone: Vec<_> = groups.filter(|group| members.iter().all(|member| member != *group)).collect();
        assert!(gone.iter().all(|group| asked.get(group) == Some(&2)), "{gone:?}");
        assert_eq!(gone.len(), LEFT_MAX);
    }

    #[test]
    fn the_question_about_a_group_waits_for_none_about_another_one() {
        let mut members = members();
        for group in ["239.1.2.3", "239.1.2.4"] {
            members.take(0, Said::Joins(ip(group)), |_| true);
        }
        leave(&mut members, S, "239.1.2.3");
        members.take(S + 50_000, Said::Leaves(ip("239.1.2.4")), |_| true);
        let question = members.poll_message(S + 50_000).expect("a question is due");
        assert_eq!(Packet::new_whole(&question).unwrap().destination(), ip("239.1.2.4"));
        // The loop of the gateway may be late with the second ones, to which hosts answer within a second.
        while members.poll_message(2 * S + 250_000).is_some() {}
        assert!(has(&mut members, 3 * S + 200_000, "239.1.2.3"));
        assert!(!has(&mut members, 3 * S + 250_000, "239.1.2.3") && members.iter().count() == 0);
    }

    #[test]
    fn nothing_is_asked_without_an_address() {
        let mut members = Members::default();
        members.take(0, Said::Joins(ip("239.1.2.3")), |_| true);
        members.take(0, Said::Leaves(ip("239.1.2.3")), |_| true);
        assert!(sent(&mut members, 0..259).is_empty());
        assert!(has(&mut members, 259 * S, "239.1.2.3"), "hosts that stay are not asked to report it");
        assert!(!has(&mut members, 260 * S, "239.1.2.3"));
    }
}
