//! One of several paths to a peer: whether it lives, its round trip, losses and rate.

use super::awaited::{Awaited, SOON_US};
use super::delays::Delays;
use super::divide::Carried;
use super::set::Load;
use crate::config::Source;
use crate::rtt::RoundTrip;
use crate::wire::SendTime;

/// Interval between questions on a path that answers.
const ASK_US: u64 = 200_000;
/// Bytes sent on a path in a tick from which on it carries many. Questions every [`SOON_US`] and their
/// answers are a twentieth of that.
const MANY_BYTES: u64 = 8_192;
/// Time beyond a round trip after which an answer is overdue.
const OVERDUE_US: u64 = 100_000;
/// Time beyond two round trips without an answer to any of several questions, after which a path is dead.
const DEAD_US: u64 = 400_000;
/// Time for which a path that was dead answers again before it is used.
const HOLD_US: u64 = 1_000_000;
/// Longest round trip that is believed. A path that takes longer is of no use.
const BELIEVED_MAX_US: u64 = 2_000_000;
/// Time for which another address of the peer is asked before a third one may be.
const TRY_US: u64 = 1_000_000;
/// Number of questions to another address of the peer whose answers are awaited: those of the longest round
/// trip that is believed.
const TRIES: usize = 12;
/// Number of padded questions whose answers are awaited: those of more than two seconds, in which a length is
/// found not to pass.
const LENGTHS: usize = 12;
/// Number of ticks over which the recent loss is an average.
const LATELY: f64 = 16.0;
/// Number of datagrams by which a probe may come late.
const LATE_MAX: u64 = 100_000;
/// Longest pause of a gateway that must not count as a queue.
const PAUSE_US: u64 = 125_000;
/// Number of answers that tell the queue: those of such a pause.
const QUEUES: usize = 4;
/// Number of ticks over which the rate is an average.
const RATE_TICKS: f64 = 8.0;

/// Datagrams of one direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sealed datagrams. Of those that took several paths, each has its copy.
    pub datagrams: u64,
    /// Their bytes on the link, outer IP and UDP headers included.
    pub bytes: u64,
    /// Those with packets.
    pub packets: u64,
    /// Those with repairs.
    pub repairs: u64,
}

impl Traffic {
    fn add(&mut self, load: Load, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
        self.packets += u64::from(load == Load::Packets);
        self.repairs += u64::from(load == Load::Repair);
    }
}

/// Losses of one direction of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathLoss {
    /// Sealed datagrams whose fate is known.
    pub expected: u64,
    /// Those that did not arrive.
    pub lost: u64,
    /// Of these, those that no datagram which comes late takes back. It never falls in a session.
    pub settled: u64,
    /// Expected and lost ones of the last seconds, with fading weights.
    recent: [f64; 2],
}

impl PathLoss {
    /// Share of the datagrams of the last seconds that did not arrive, from 0 to 1.
    pub fn share(&self) -> f64 {
        let [expected, lost] = self.recent;
        if expected < 1.0 { 0.0 } else { (lost / expected).clamp(0.0, 1.0) }
    }

    /// Takes the totals of the session.
    fn set(&mut self, expected: u64, lost: u64) {
        let more = [expected.saturating_sub(self.expected) as f64, lost as f64 - self.lost as f64];
        for (recent, more) in self.recent.iter_mut().zip(more) {
            *recent = (*recent + more).max(0.0);
        }
        // The next probe takes back what came after the last one, and nothing that was lost before.
        self.settled = self.settled.max(lost.min(self.lost));
        (self.expected, self.lost) = (expected, lost);
    }

    fn on_tick(&mut self) {
        self.recent.iter_mut().for_each(|recent| *recent *= 1.0 - 1.0 / LATELY);
    }
}

/// Bytes of one direction by time.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    at_tick: u64,
    /// Bytes of a tick, on average.
    average: f64,
}

impl Rate {
    fn on_tick(&mut self, bytes: u64) {
        let here = bytes.saturating_sub(self.at_tick) as f64;
        self.average += (here - self.average) / RATE_TICKS;
        self.at_tick = bytes;
    }

    /// `ticks`: number of them in a second.
    fn bps(&self, ticks: f64) -> u64 {
        (self.average * 8.0 * ticks) as u64
    }
}

/// Another address of the peer, which is asked too.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    source: Source,
    latest_us: u64,
    /// Times of the latest questions there.
    asked: [Option<SendTime>; TRIES],
}

/// State of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathState {
    is_alive: bool,
    /// Time of the first question since the last answer.
    asked_us: Option<u64>,
    awaited: Awaited,
    /// Whether it has been in doubt since the packets were last divided.
    was_doubted: bool,
    /// Whether paths shared many packets in the last tick.
    is_busy: bool,
    /// Time of the latest question.
    latest: Option<SendTime>,
    /// Times of the latest padded questions, and the lengths of their datagrams.
    by_length: [Option<(SendTime, usize)>; LENGTHS],
    /// Time since which it answers.
    since_us: Option<u64>,
    next_ask_us: u64,
    rtt_us: Option<u64>,
    shortest: RoundTrip,
    /// Times of the latest answers, and their round trips without the shortest one.
    queues_us: [(u64, u64); QUEUES],
    /// Bytes of the datagrams sent with packets.
    packet_bytes: u64,
    /// Bytes of packets and of all datagrams sent, datagrams whose fate is known, and those lost, when the
    /// packets were last divided among paths.
    divided: [u64; 4],
    /// Time at which a packet came by it.
    pub(super) packets_us: Option<u64>,
    /// Number of times that it has died.
    deaths: u64,
    sent: Traffic,
    received: Traffic,
    copies: u64,
    rates: [Rate; 2],
    incoming: PathLoss,
    outgoing: PathLoss,
    /// Number of datagrams that the peer had sent at its last probe, and of those that had arrived.
    base: Option<(u64, u64)>,
    /// Another address, from which a question of the peer has come.
    candidate: Option<Candidate>,
    /// Losses between its last two probes.
    lost_last: u64,
    pub(super) delays: Option<Delays>,
}

impl PathState {
    /// Begins a session. Knowledge of the path's round trip stays.
    pub(super) fn restart(&mut self) {
        *self = Self { rtt_us: self.rtt_us, shortest: self.shortest, ..Self::default() };
    }

    pub(super) fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// Whether it answers, and is used if no other path lives.
    pub(super) fn answers(&self) -> bool {
        self.since_us.is_some()
    }

    pub(super) fn on_sent(&mut self, load: Load, bytes: usize) {
        self.sent.add(load, bytes);
        if load == Load::Packets {
            self.packet_bytes += bytes as u64;
        }
    }

    /// Returns the traffic since the last call.
    pub(super) fn carried(&mut self) -> Carried {
        let now = [self.packet_bytes, self.sent.bytes, self.outgoing.expected, self.outgoing.lost];
        let before = std::mem::replace(&mut self.divided, now);
        let [packets, bytes, expected, lost] =
            [0, 1, 2, 3].map(|at| now[at].saturating_sub(before[at]) as f64);
        // Losses and queue of a path that was as good as dead say nothing of what it carries.
        let is_doubted = self.is_doubted();
        let was_doubted = std::mem::replace(&mut self.was_doubted, is_doubted);
        let expected = if was_doubted { 0.0 } else { expected };
        let loss = if expected > 0.0 { (lost / expected).min(1.0) } else { 0.0 };
        let queue_us = if was_doubted { 0 } else { self.queue_us() };
        let rtt_us = self.shortest_rtt_us().unwrap_or(0);
        Carried { packets, others: bytes - packets, expected, loss, queue_us, rtt_us }
    }

    /// The queue by the latest round trips, two at least. Long ones may be a pause of either gateway.
    fn queue_us(&self) -> u64 {
        let [(latest_us, _), ..] = self.queues_us;
        let all = self.queues_us.iter().enumerate();
        let recent = all.filter(|&(at, &(at_us, _))| at < 2 || at_us + PAUSE_US >= latest_us);
        recent.map(|(_, &(_, queue_us))| queue_us).min().unwrap_or(0)
    }

    /// The shortest round trip of the last minute or two.
    pub(super) fn shortest_rtt_us(&self) -> Option<u64> {
        self.shortest.shortest_us()
    }

    pub(super) fn on_received(&mut self, load: Load, bytes: usize) {
        self.received.add(load, bytes);
    }

    /// Notes a datagram that has arrived by another path before.
    pub(super) fn on_copy(&mut self, bytes: usize) {
        self.received.datagrams += 1;
        self.received.bytes += bytes as u64;
        self.copies += 1;
    }

    /// Time at which the next question is due.
    pub(super) fn next_ask_us(&self) -> u64 {
        self.next_ask_us
    }

    /// Notes a question.
    pub(super) fn on_ask(&mut self, now_us: u64) {
        self.note_question(now_us);
        self.awaited.on_ask(now_us);
        let asked_us = *self.asked_us.get_or_insert(now_us);
        let overdue_us = asked_us + self.rtt_us.unwrap_or(0) + OVERDUE_US;
        let is_overdue = self.since_us.is_some() && now_us >= overdue_us;
        self.next_ask_us = now_us + if is_overdue || self.is_busy { SOON_US } else { ASK_US };
    }

    /// Whether the answer to a padded question that is sent now could not be taken for that to another one:
    /// answers repeat the time of the question.
    pub(super) fn may_ask_by_length(&self, now_us: u64) -> bool {
        self.latest != Some(SendTime::at(now_us))
    }

    fn note_question(&mut self, now_us: u64) {
        let at = SendTime::at(now_us);
        self.latest = Some(at);
        // A padded one of this time could not be told from it.
        self.by_length.iter_mut().for_each(|one| _ = one.take_if(|(of, _)| *of == at));
    }

    /// Notes a question padded to a datagram of this length.
    pub(super) fn on_ask_by_length(&mut self, now_us: u64, len: usize) {
        self.by_length.rotate_right(1);
        self.by_length[0] = Some((SendTime::at(now_us), len));
    }

    /// Length of the padded question that was asked at this time; 0 if it was another question.
    pub(super) fn length_of(&self, asked: SendTime) -> usize {
        let mut known = self.by_length.iter().flatten();
        known.find(|(at, _)| *at == asked).map_or(0, |(_, len)| *len)
    }

    /// Whether a question is due at another address, from which a question of the peer has come. The address
    /// is that of the peer once this question is answered from there.
    pub(super) fn try_elsewhere(&mut self, now_us: u64, source: Source) -> bool {
        let pause_us = |of: Source| if of == source { SOON_US } else { TRY_US };
        if self.candidate.is_some_and(|known| now_us < known.latest_us + pause_us(known.source)) {
            return false;
        }
        let known = self.candidate.filter(|known| known.source == source);
        let mut asked = known.map_or([None; TRIES], |known| known.asked);
        asked.rotate_right(1);
        asked[0] = Some(SendTime::at(now_us));
        self.candidate = Some(Candidate { source, latest_us: now_us, asked });
        self.note_question(now_us);
        true
    }

    /// Whether an answer from `source` shows that the peer is there.
    pub(super) fn is_proof(&mut self, source: Source, asked: SendTime) -> bool {
        let is_it = |known: &mut Candidate| known.source == source && known.asked.contains(&Some(asked));
        self.candidate.take_if(is_it).is_some()
    }

    /// Notes the answer to a question that left `rtt_us` ago.
    pub(super) fn on_answer(&mut self, now_us: u64, rtt_us: u64) {
        if rtt_us > BELIEVED_MAX_US {
            return;
        }
        self.rtt_us = Some(self.rtt_us.map_or(rtt_us, |before_us| (7 * before_us + rtt_us) / 8));
        self.shortest.on_echo(now_us, rtt_us, 0);
        let queue_us = rtt_us.saturating_sub(self.shortest_rtt_us().unwrap_or(rtt_us));
        self.queues_us.rotate_right(1);
        self.queues_us[0] = (now_us, queue_us);
        self.asked_us = None;
        self.awaited.on_answer(now_us.saturating_sub(rtt_us));
        self.since_us.get_or_insert(now_us);
    }

    /// Notes that another path has answered a question of this time.
    pub(super) fn on_answer_elsewhere(&mut self, asked_us: u64) {
        self.awaited.on_answer_elsewhere(asked_us);
    }

    /// Whether it has answered nothing for some time, while another path did.
    pub(super) fn is_doubted(&self) -> bool {
        self.awaited.is_doubted()
    }

    /// Time at which [`PathState::check`] finds a change, unless an answer arrives.
    pub(super) fn next_check_us(&self) -> Option<u64> {
        let since_us = self.since_us?;
        let held_us = (!self.is_alive).then_some(since_us + self.hold_us());
        let doubted_us = self.awaited.next_check_us(self.rtt_us.unwrap_or(0));
        [self.dead_at_us(), held_us, doubted_us].into_iter().flatten().min()
    }

    /// A path that has not died in this session is used at once.
    fn hold_us(&self) -> u64 {
        if self.deaths == 0 { 0 } else { HOLD_US }
    }

    fn dead_at_us(&self) -> Option<u64> {
        Some(self.asked_us? + DEAD_US + 2 * self.rtt_us.unwrap_or(0))
    }

    /// Decides whether the path lives.
    pub(super) fn check(&mut self, now_us: u64) {
        self.awaited.check(now_us, self.rtt_us.unwrap_or(0));
        self.was_doubted |= self.awaited.is_doubted();
        if self.dead_at_us().is_some_and(|at_us| now_us >= at_us) {
            self.deaths += u64::from(self.is_alive);
            (self.is_alive, self.since_us) = (false, None);
        } else if let Some(since_us) = self.since_us {
            self.is_alive |= now_us >= since_us + self.hold_us();
        }
    }

    /// Notes that this gateway stood still and has asked nothing.
    pub(super) fn on_stall(&mut self, now_us: u64) {
        (self.asked_us, self.awaited, self.next_ask_us) = (None, Awaited::default(), now_us);
    }

    /// Takes the number of datagrams that the peer had sent on this path before the probe that arrives.
    pub(super) fn on_peer_sent(&mut self, sent: u64) {
        let arrived = self.received.datagrams;
        let Some((sent_before, arrived_before)) = self.base else {
            self.base = Some((sent, arrived));
            return;
        };
        let Some(expected) = sent.checked_sub(sent_before) else {
            // An earlier probe may come late. Another process of the peer, which has taken the session over,
            // counts from 0.
            if sent_before - sent > LATE_MAX {
                self.base = Some((sent, arrived));
            }
            return;
        };
        self.base = Some((sent, arrived));
        let arrived = arrived - arrived_before;
        let lost = match expected.checked_sub(arrived) {
            Some(lost) => {
                self.lost_last = lost;
                self.incoming.lost.saturating_add(lost)
            }
            None => {
                // Datagrams from before the last probe came after it.
                let back = (arrived - expected).min(std::mem::take(&mut self.lost_last));
                self.incoming.lost.saturating_sub(back)
            }
        };
        self.incoming.set(self.incoming.expected.saturating_add(expected), lost);
    }

    /// Takes what the peer counts of our datagrams on this path.
    pub(super) fn on_peer_counts(&mut self, expected: u64, lost: u64) {
        if expected >= self.outgoing.expected && expected <= self.sent.datagrams {
            self.outgoing.set(expected, lost);
        }
    }

    /// Counts that the next probe on this path states: datagrams sent, expected and lost.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.sent.datagrams, self.incoming.expected, self.incoming.lost)
    }

    /// Whether it has carried many bytes since the last tick.
    pub(super) fn carries_many(&self) -> bool {
        self.sent.bytes.saturating_sub(self.rates[0].at_tick) >= MANY_BYTES
    }

    /// Must be called each tick. `is_busy`: whether paths share many packets.
    pub(super) fn on_tick(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
        self.incoming.on_tick();
        self.outgoing.on_tick();
        for (rate, traffic) in self.rates.iter_mut().zip([self.sent, self.received]) {
            rate.on_tick(traffic.bytes);
        }
    }

    pub(super) fn status(&self, ticks: f64) -> PathStatus {
        PathStatus {
            is_alive: self.is_alive,
            rtt_us: self.rtt_us,
            deaths: self.deaths,
            sent: self.sent,
            received: self.received,
            copies: self.copies,
            sent_bps: self.rates[0].bps(ticks),
            received_bps: self.rates[1].bps(ticks),
            incoming: self.incoming,
            outgoing: self.outgoing,
            is_used: false,
        }
    }
}

/// State of one of several paths to a peer, in this session.
#[derive(Clone, Copy, Debug)]
pub struct PathStatus {
    /// Whether it lives: datagrams pass in both directions.
    pub is_alive: bool,
    /// Whether packets take it at present.
    pub is_used: bool,
    /// Round trip, on average, in microseconds.
    pub rtt_us: Option<u64>,
    /// Number of times that it has died.
    pub deaths: u64,
    /// Datagrams sent.
    pub sent: Traffic,
    /// Datagrams that arrived, copies included.
    pub received: Traffic,
    /// Datagrams that had arrived by another path before.
    pub copies: u64,
    /// Bit rate sent, over the last second.
    pub sent_bps: u64,
    /// Bit rate that arrives, over the last second.
    pub received_bps: u64,
    /// Losses of the peer's datagrams.
    pub incoming: PathLoss,
    /// Losses of our datagrams, as the peer counts them.
    pub outgoing: PathLoss,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// Asks when it is due, and answers after `rtt_us` if `answers` says so for the time of the question;
    /// returns the times at which the path came to life and died.
    fn run(
        path: &mut PathState,
        span_us: u64,
        rtt_us: u64,
        answers: impl Fn(u64) -> bool,
    ) -> Vec<(u64, bool)> {
        let (mut changes, mut due) = (Vec::new(), Vec::new());
        for now_us in (0..span_us).step_by(1_000) {
            due.retain(|&asked_us| {
                let is_here = now_us >= asked_us + rtt_us;
                if is_here {
                    path.on_answer(now_us, rtt_us);
                }
                !is_here
            });
            let before = path.is_alive();
            path.check(now_us);
            if path.is_alive() != before {
                changes.push((now_us, path.is_alive()));
            }
            if now_us >= path.next_ask_us() {
                path.on_ask(now_us);
                due.extend(answers(now_us).then_some(now_us));
            }
        }
        changes
    }

    #[test]
    fn a_path_dies_within_a_second_and_is_used_again_after_it_held_for_one() {
        for rtt_us in [1, 40, 300].map(|ms| ms * MS) {
            let changes = run(&mut PathState::default(), 12_000 * MS, rtt_us, |at_us| {
                !(4_000 * MS..8_000 * MS).contains(&at_us)
            });
            let [(begun_us, true), (died_us, false), (back_us, true)] = changes[..] else {
                panic!("{rtt_us}: {changes:?}")
            };
            assert!(begun_us <= rtt_us + MS);
            let dead_us = died_us - 4_000 * MS;
            assert!((400 * MS..=620 * MS + 3 * rtt_us).contains(&dead_us), "{rtt_us}: {dead_us}");
            let held_us = back_us - 8_000 * MS;
            assert!((HOLD_US..HOLD_US + ASK_US + 2 * rtt_us).contains(&held_us), "{rtt_us}: {held_us}");
        }
    }

    #[test]
    fn single_losses_do_not_kill_a_path() {
        for at_ms in (1_000..1_200).step_by(7) {
            let span = at_ms * MS..(at_ms + 300) * MS;
            let changes = run(&mut PathState::default(), 5_000 * MS, 40 * MS, |at_us| !span.contains(&at_us));
            assert_eq!(changes.len(), 1, "{at_ms}: {changes:?}");
        }
    }

    #[test]
    fn a_gateway_that_stood_still_takes_no_path_for_dead() {
        let mut path = PathState::default();
        run(&mut path, 1_000 * MS, MS, |_| true);
        path.on_ask(1_000 * MS);
        path.on_stall(9_000 * MS);
        path.check(9_000 * MS);
        assert!(path.is_alive() && !path.is_doubted() && path.next_ask_us() == 9_000 * MS);
    }

    #[test]
    fn the_queue_is_that_of_two_answers_or_of_an_eighth_of_a_second() {
        for (every_us, of) in [(50 * MS, 3), (200 * MS, 2)] {
            let mut path = PathState::default();
            path.on_answer(MS, 40 * MS);
            let mut at = |number: u64, queue_us| {
                path.on_answer(MS + number * every_us, 40 * MS + queue_us);
                path.carried().queue_us
            };
            (1..9).for_each(|number| assert_eq!(at(number, 0), 0));
            // Single long ones are a pause.
            (9..8 + of).for_each(|number| assert_eq!(at(number, 30 * MS), 0, "{number}"));
            assert_eq!(at(8 + of, 20 * MS), 20 * MS);
            assert_eq!(at(9 + of, 60 * MS), 20 * MS);
        }
    }

    #[test]
    fn losses_are_counted_between_probes_also_if_datagrams_overtake_them() {
        let mut path = PathState::default();
        let arrive =
            |path: &mut PathState, count| (0..count).for_each(|_| path.on_received(Load::Packets, 100));
        path.on_peer_sent(1_000);
        arrive(&mut path, 95);
        path.on_peer_sent(1_100);
        assert_eq!((path.incoming.expected, path.incoming.lost), (100, 5));
        // Three of the five come after the probe.
        arrive(&mut path, 103);
        path.on_peer_sent(1_200);
        assert_eq!((path.incoming.expected, path.incoming.lost), (200, 2));
        // A probe from before, and copies that no probe explains.
        path.on_peer_sent(1_150);
        arrive(&mut path, 500);
        path.on_peer_sent(1_300);
        assert_eq!((path.incoming.expected, path.incoming.lost), (300, 2));
        path.on_peer_sent(1_400);
        assert_eq!((path.incoming.expected, path.incoming.lost), (400, 102));
        assert!((0.2..0.4).contains(&path.incoming.share()), "{}", path.incoming.share());
        // Another process of the peer goes on.
        path.on_peer_sent(1_000_000);
        path.on_peer_sent(10);
        let before = path.incoming;
        arrive(&mut path, 90);
        path.on_peer_sent(110);
        assert_eq!((path.incoming.expected, path.incoming.lost), (before.expected + 100, before.lost + 10));
    }

    #[test]
    fn the_settled_losses_never_fall_while_datagrams_overtake_probes() {
        let (mut path, mut far) = (PathState::default(), PathState::default());
        (0..4_000).for_each(|_| far.on_sent(Load::Packets, 100));
        let (mut settled, mut falls) = ([0; 2], 0);
        path.on_peer_sent(0);
        for number in 1..40_u64 {
            // One of a hundred datagrams is lost, and seven more come late each second time.
            let (late, lost) = (7 * (number % 2), path.incoming.lost);
            let arrived = 99 * number - late;
            (path.received.datagrams..arrived).for_each(|_| path.on_received(Load::Packets, 100));
            path.on_peer_sent(100 * number);
            falls += u64::from(path.incoming.lost < lost);
            let (_, expected, lost) = path.counts();
            far.on_peer_counts(expected, lost);
            for (settled, way) in settled.iter_mut().zip([path.incoming, far.outgoing]) {
                assert!(way.settled >= *settled && way.settled <= number, "{number}: {way:?}");
                *settled = way.settled;
            }
        }
        assert!(falls > 10 && settled == [38; 2], "{falls} {settled:?}");
    }

    #[test]
    fn counts_of_a_peer_that_lies_are_not_taken() {
        let mut path = PathState::default();
        (0..10).for_each(|_| path.on_sent(Load::Repair, 100));
        path.on_peer_counts(11, 3);
        assert_eq!(path.outgoing.expected, 0, "more than were sent");
        path.on_peer_counts(10, 3);
        path.on_peer_counts(9, 3);
        assert_eq!((path.outgoing.expected, path.outgoing.lost), (10, 3));
        path.on_peer_sent(5);
        path.on_peer_sent(u64::MAX);
        path.on_peer_sent(0);
        assert_eq!(path.incoming.share(), 1.0);
    }
}
