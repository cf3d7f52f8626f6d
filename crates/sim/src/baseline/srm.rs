//! SRM, scalable reliable multicast: Floyd, Jacobson, Liu, McCanne and Zhang, IEEE/ACM Transactions on
//! Networking 5(6), 1997.
//!
//! A receiver detects a missing packet by the next one of its stream, or by another member's session message.
//! It then requests it from the whole group after a random time, and any member that has the packet sends it
//! to the whole group after a random time. A member that receives another's request postpones its own; one
//! that receives another's repair cancels its own. Here distances are known exactly and all equal, and timers
//! are the fixed ones of the paper's §III, not the adaptive ones.

use std::collections::{BTreeMap, HashMap};

use super::world::{DATA, HEAD, Name, Out, Protocol, Seat, Target, datagram, read};
use loss::chance::Dice;

const REQUEST: u8 = 1;
const REPAIR: u8 = 2;
const SESSION: u8 = 3;

/// Maximum exponent of the backoff: a request waits at most 2^10 times its first interval.
const ROUNDS_MAX: u32 = 10;
/// Number of distances for which requests for a repaired packet are ignored (§III.B).
const HOLD_DISTANCES: u64 = 3;

/// Returns the bytes of a session message about `sources` sources, each with the number of its last packet.
pub const fn session_bytes(sources: usize) -> usize {
    HEAD + 8 * sources
}

/// Constants of the timers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SrmConfig {
    /// C1: a request leaves after C1 to C1 + C2 distances to the packet's source.
    pub c1: f64,
    /// C2, see `c1`.
    pub c2: f64,
    /// D1: a repair leaves after D1 to D1 + D2 distances to the requester. `None` means log10 of the members,
    /// as in the paper.
    pub d1: Option<f64>,
    /// D2, see `d1`.
    pub d2: Option<f64>,
    /// Delay between two members in microseconds.
    pub distance_us: u64,
    /// Mean interval of a member's session messages in microseconds; `None` sends none.
    pub session_us: Option<u64>,
}

impl SrmConfig {
    /// Returns the paper's constants: C1 = C2 = 2, D1 = D2 = log10 G (§III.B).
    pub fn new(distance_us: u64, session_us: Option<u64>) -> Self {
        Self { c1: 2.0, c2: 2.0, d1: None, d2: None, distance_us, session_us }
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    due_us: u64,
    round: u32,
    /// Until then, requests of others belong to the same round.
    ignore_until_us: u64,
}

/// A member of a group.
#[derive(Debug)]
pub struct Srm {
    config: SrmConfig,
    seat: Seat,
    dice: Dice,
    sent: u32,
    /// First unknown sequence number of each source.
    next: BTreeMap<u32, u32>,
    requests: HashMap<Name, Request>,
    repairs: HashMap<Name, u64>,
    held_until_us: HashMap<Name, u64>,
    session_due_us: Option<u64>,
}

impl Srm {
    /// Makes a member.
    pub fn new(config: SrmConfig, seat: Seat) -> Self {
        let mut dice = Dice::new(seat.seed);
        // The first is at a random time of the interval, so that members do not send all at once.
        let session_due_us = config.session_us.map(|us| 1 + dice.below(us));
        Self {
            config,
            seat,
            dice,
            sent: 0,
            next: BTreeMap::new(),
            requests: HashMap::new(),
            repairs: HashMap::new(),
            held_until_us: HashMap::new(),
            session_due_us,
        }
    }

    /// Returns a random time between `low` and `low + width` distances.
    fn wait_us(&mut self, low: f64, width: f64) -> u64 {
        let distance_us = self.config.distance_us as f64;
        let width_us = (width * distance_us) as u64;
        (low * distance_us) as u64 + self.dice.below(width_us + 1)
    }

    fn request_wait_us(&mut self, round: u32) -> u64 {
        self.wait_us(self.config.c1, self.config.c2) << round.min(ROUNDS_MAX)
    }

    /// Records that packets up to this one exist; those unknown so far are missing.
    fn learn(&mut self, now_us: u64, (source, seq): Name, arrived: bool, out: &mut Out) {
        if source == self.seat.number {
            return;
        }
        let first = self.next.get(&source).copied().unwrap_or(0);
        for missing in first..seq.saturating_add(u32::from(!arrived)) {
            let due_us = now_us + self.request_wait_us(0);
            self.requests.insert((source, missing), Request { due_us, round: 0, ignore_until_us: 0 });
            out.found.push((source, missing));
        }
        self.next.insert(source, first.max(seq.saturating_add(1)));
    }

    fn has(&self, name: Name) -> bool {
        let known =
            if name.0 == self.seat.number { self.sent } else { self.next.get(&name.0).copied().unwrap_or(0) };
        name.1 < known && !self.requests.contains_key(&name)
    }

    fn take(&mut self, now_us: u64, name: Name, out: &mut Out) {
        self.learn(now_us, name, true, out);
        if self.requests.remove(&name).is_some() {
            out.back.push(name);
        }
    }

    /// Handles another member's request: a member that lacks the packet skips its own request in this round,
    /// one that has it may answer.
    fn hear_request(&mut self, now_us: u64, name: Name, out: &mut Out) {
        self.learn(now_us, name, false, out);
        if let Some(&request) = self.requests.get(&name) {
            if now_us >= request.ignore_until_us {
                self.put_off(now_us, name, request.round + 1);
            }
            return;
        }
        let is_held = self.held_until_us.get(&name).is_some_and(|&until_us| now_us < until_us);
        if self.has(name) && !is_held && !self.repairs.contains_key(&name) {
            let log = f64::from(self.seat.members).log10();
            let wait_us = self.wait_us(self.config.d1.unwrap_or(log), self.config.d2.unwrap_or(log));
            self.repairs.insert(name, now_us + wait_us);
        }
    }

    fn put_off(&mut self, now_us: u64, name: Name, round: u32) {
        let wait_us = self.request_wait_us(round);
        // Halfway to the timer (§III.B): requests received earlier belong to this round.
        let request = Request { due_us: now_us + wait_us, round, ignore_until_us: now_us + wait_us / 2 };
        self.requests.insert(name, request);
    }

    fn hold(&mut self, now_us: u64, name: Name) {
        self.repairs.remove(&name);
        self.held_until_us.insert(name, now_us + HOLD_DISTANCES * self.config.distance_us);
        if self.held_until_us.len() > 1_024 {
            self.held_until_us.retain(|_, until_us| now_us < *until_us);
        }
    }

    fn say_session(&mut self, now_us: u64, out: &mut Out) {
        let Some(session_us) = self.config.session_us else { return };
        // Half to one and a half of the mean, so that members do not synchronize.
        self.session_due_us = Some(now_us + session_us / 2 + self.dice.below(session_us.max(1)));
        let mut bytes = datagram(SESSION, (0, 0));
        let own = (self.seat.number, self.sent);
        for (source, next) in self.next.iter().map(|(&source, &next)| (source, next)).chain([own]) {
            if next > 0 {
                bytes.extend(source.to_be_bytes());
                bytes.extend((next - 1).to_be_bytes());
            }
        }
        out.sent.push((Target::Group, bytes));
    }
}

impl Protocol for Srm {
    fn send(&mut self, _now_us: u64, out: &mut Out) {
        out.sent.push((Target::Group, datagram(DATA, (self.seat.number, self.sent))));
        self.sent += 1;
    }

    fn handle(&mut self, now_us: u64, _from: u32, datagram: &[u8], out: &mut Out) {
        match read(datagram) {
            Some((DATA, name, _)) => self.take(now_us, name, out),
            Some((REPAIR, name, _)) => {
                self.take(now_us, name, out);
                self.hold(now_us, name);
            }
            Some((REQUEST, name, _)) => self.hear_request(now_us, name, out),
            Some((SESSION, _, list)) => {
                for entry in list.chunks_exact(8) {
                    let number = |at: usize| {
                        u32::from_be_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
                    };
                    self.learn(now_us, (number(0), number(4)), false, out);
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut Out) {
        if self.session_due_us.is_some_and(|due_us| due_us <= now_us) {
            self.say_session(now_us, out);
        }
        // Sorted, because a map's own order differs between runs.
        let mut due: Vec<Name> = self
            .requests
            .iter()
            .filter(|(_, request)| request.due_us <= now_us)
            .map(|(&name, _)| name)
            .collect();
        due.sort_unstable();
        for name in due {
            out.sent.push((Target::Group, datagram(REQUEST, name)));
            let round = self.requests[&name].round + 1;
            self.put_off(now_us, name, round);
        }
        let mut due: Vec<Name> =
            self.repairs.iter().filter(|(_, due_us)| **due_us <= now_us).map(|(&name, _)| name).collect();
        due.sort_unstable();
        for name in due {
            out.sent.push((Target::Group, datagram(REPAIR, name)));
            self.hold(now_us, name);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        let requests_us = self.requests.values().map(|request| request.due_us).min();
        let repairs_us = self.repairs.values().copied().min();
        [requests_us, repairs_us, self.session_due_us].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::world::{Run, WorldConfig, run};
    use loss::LossModel;

    fn member(number: u32, members: u32) -> Srm {
        Srm::new(SrmConfig::new(1_000, None), Seat { number, members, seed: u64::from(number) })
    }

    fn handle(member: &mut Srm, now_us: u64, bytes: &[u8]) -> Out {
        let mut out = Out::default();
        member.handle(now_us, 0, bytes, &mut out);
        out
    }

    #[test]
    fn a_gap_is_requested_within_the_timer_and_again_later() {
        let mut one = member(1, 10);
        assert!(handle(&mut one, 0, &datagram(DATA, (0, 0))).found.is_empty());
        assert_eq!(handle(&mut one, 0, &datagram(DATA, (0, 2))).found, [(0, 1)]);
        let due_us = one.poll_timeout().unwrap();
        assert!((2_000..=4_000).contains(&due_us), "expected C1 to C1 + C2 distances, saw: {due_us}");
        let mut out = Out::default();
        one.handle_timeout(due_us, &mut out);
        assert_eq!(out.sent, [(Target::Group, datagram(REQUEST, (0, 1)))]);
        let again_us = one.poll_timeout().unwrap() - due_us;
        assert!((4_000..=8_000).contains(&again_us), "expected twice the wait, saw: {again_us}");
        assert_eq!(handle(&mut one, due_us + 1, &datagram(REPAIR, (0, 1))).back, [(0, 1)]);
        assert_eq!(one.poll_timeout(), None);
    }

    #[test]
    fn a_request_of_another_member_postpones_ones_own_once_per_round() {
        let mut one = member(1, 10);
        handle(&mut one, 0, &datagram(DATA, (0, 1)));
        handle(&mut one, 100, &datagram(REQUEST, (0, 0)));
        let due_us = one.poll_timeout().unwrap();
        assert!((4_100..=8_100).contains(&due_us), "{due_us}");
        handle(&mut one, 200, &datagram(REQUEST, (0, 0)));
        assert_eq!(one.poll_timeout(), Some(due_us), "the request belongs to the same round");
        handle(&mut one, due_us - 1, &datagram(REQUEST, (0, 0)));
        assert!(one.poll_timeout().unwrap() > due_us, "the request belongs to the next round");
    }

    #[test]
    fn a_member_with_the_packet_repairs_unless_another_did() {
        let mut one = member(1, 10);
        handle(&mut one, 0, &datagram(DATA, (0, 0)));
        handle(&mut one, 0, &datagram(REQUEST, (0, 0)));
        let due_us = one.poll_timeout().unwrap();
        assert!(
            (1_000..=2_000).contains(&due_us),
            "expected D1 to D1 + D2 distances (log10 of 10 is 1), saw: {due_us}"
        );
        handle(&mut one, due_us - 1, &datagram(REPAIR, (0, 0)));
        assert_eq!(one.poll_timeout(), None, "another member repaired first");
        handle(&mut one, due_us + 100, &datagram(REQUEST, (0, 0)));
        assert_eq!(one.poll_timeout(), None, "ignored, because the repair is in flight");
        handle(&mut one, due_us + 3_000, &datagram(REQUEST, (0, 0)));
        assert!(one.poll_timeout().is_some());
    }

    #[test]
    fn a_session_message_reveals_losses_at_the_end_of_a_stream() {
        let mut one = Srm::new(SrmConfig::new(1_000, Some(50_000)), Seat { number: 1, members: 3, seed: 1 });
        handle(&mut one, 0, &datagram(DATA, (0, 0)));
        let mut out = Out::default();
        one.handle_timeout(one.poll_timeout().unwrap(), &mut out);
        let mut two = member(2, 3);
        assert_eq!(handle(&mut two, 0, &out.sent[0].1).found, [(0, 0)]);
        assert_eq!(out.sent[0].1.len(), session_bytes(1));
    }

    fn group_of_ten(session_us: Option<u64>) -> Run {
        run_ten(session_us, false)
    }

    fn run_ten(session_us: Option<u64>, in_turn: bool) -> Run {
        let config = WorldConfig {
            grouping: vec![vec![0]; 10],
            packets_per_second: 100.0,
            in_turn,
            loss: LossModel::Uniform(0.05),
            delay_us: 50,
            measured_us: 10_000_000,
            after_us: 5_000_000,
            seed: 3,
        };
        run(&config, |seat| Srm::new(SrmConfig::new(50, session_us), seat))
    }

    #[test]
    fn packets_are_recovered_soon_after_detection() {
        let run = group_of_ten(None);
        assert!(run.fates.len() > 300, "{}", run.fates.len());
        let mean = |of: fn(&super::super::world::Fate) -> Option<u64>| {
            run.fates.iter().filter_map(of).sum::<u64>() / run.fates.len() as u64
        };
        assert!(run.fates.iter().all(|fate| fate.back_us.is_some()), "{:?}", run.fates);
        // Ten members that send in random order: 100 ms between two packets of one.
        let found_us = mean(|fate| fate.found_us.map(|us| us - fate.missed_us));
        assert!((80_000..130_000).contains(&found_us), "{found_us}");
        let back_us = mean(|fate| Some(fate.back_us? - fate.found_us?));
        assert!(back_us < 2_000, "{back_us}");
    }

    #[test]
    fn with_round_robin_a_loss_is_found_at_the_senders_next_turn() {
        let run = run_ten(None, true);
        let found_us = |fate: &super::super::world::Fate| fate.found_us.unwrap() - fate.missed_us;
        let mut waits: Vec<u64> = run.fates.iter().map(found_us).collect();
        waits.sort_unstable();
        // Earlier detection is possible only by another member's request.
        assert!((99_000..=100_001).contains(&waits[waits.len() / 2]), "{waits:?}");
        assert!(waits.len() > 300 && waits.iter().filter(|&&us| us > 210_000).count() < 10, "{waits:?}");
    }

    #[test]
    fn session_messages_find_losses_sooner() {
        let found = |run: &Run| -> u64 {
            run.fates.iter().map(|fate| fate.found_us.unwrap() - fate.missed_us).sum::<u64>()
                / run.fates.len() as u64
        };
        let (with, without) = (group_of_ten(Some(100_000)), group_of_ten(None));
        assert!(found(&with) < found(&without) / 2, "{} {}", found(&with), found(&without));
        assert_eq!(group_of_ten(None), without, "the same seed must give the same run");
    }
}
