//! Heartbeats of a sender that falls silent: it announces its newest packet a few times, less and less often.
//! Without them, the loss of the last packet of a burst would go unnoticed (the papers leave this open).

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::groups::SENT_GROUPS_MAX;
use crate::ids::GroupId;
use crate::wire::Latest;

/// Number of announcements that are sent twice where much is lost: each is likely lost too, and the later
/// ones come late.
const TWICE: usize = 4;
/// Age from which a packet may be announced together with an older one of another stream, in microseconds. A
/// packet that is merely late has come by then.
const SETTLED_US: u64 = 1_000;
/// Maximum number of streams that are looked at for one announcement.
const LOOKED_AT_MAX: usize = 256;
/// Number of repairs naming a packet that show that its group knows of it. Repairs go to members as well as
/// to the sender.
const NAMED_MIN: u8 = 3;

/// How a sender that falls silent announces its newest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceConfig {
    /// Silence before the first announcement, in microseconds.
    pub first_us: u64,
    /// Factor by which each silence is longer than the one before, 2 to 16.
    pub growth: u8,
    /// Number of announcements, at most 16; 0 sends none.
    pub times: u8,
    /// Where less than 3 % of the packets are lost, only every n-th announcement is sent, beginning with the
    /// first; 1 to 16.
    pub stride: u8,
    /// Where little is lost, time after a packet during which it is not announced once three repairs have
    /// named it: then others learn of it from repairs too. In microseconds; 0 announces it in any case.
    pub unless_named_us: u64,
}

impl Default for AnnounceConfig {
    /// Twelve announcements from 5 ms to 20 s, so that a node cut off for some seconds still hears one. Where
    /// little is lost, only those after 5 ms, 155 ms and 2.6 s, and the first only if repairs have not spread
    /// the news.
    fn default() -> Self {
        Self { first_us: 5_000, growth: 2, times: 12, stride: 4, unless_named_us: 100_000 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    next: u32,
    last_us: u64,
    /// Number of repairs that have named the newest packet.
    named: u8,
    /// The round in which the stream waits, and `last_us` of its valid entry there.
    queued: Option<(usize, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    due_us: u64,
    group: GroupId,
    /// Time at which the stream's newest packet was sent, as of queueing.
    last_us: u64,
}

/// An announcement that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) latest: Latest,
    /// Number of times to send it.
    pub(crate) copies: u8,
    /// Number of earlier announcements of the same packet, made or not.
    pub(crate) round: usize,
}

/// The streams that this node sends, and when to announce those that are silent.
///
/// Each announcement waits a multiple of the one before. All streams with the same wait queue in one round,
/// in order of time.
#[derive(Debug)]
pub(crate) struct Announcer {
    first_us: u64,
    growth: u64,
    unless_named_us: u64,
    stride: usize,
    streams: HashMap<GroupId, Sent>,
    rounds: Box<[VecDeque<Queued>]>,
}

impl Announcer {
    pub(crate) fn new(config: &AnnounceConfig) -> Self {
        Self {
            first_us: config.first_us,
            growth: u64::from(config.growth),
            unless_named_us: config.unless_named_us,
            stride: usize::from(config.stride),
            streams: HashMap::new(),
            rounds: (0..config.times).map(|_| VecDeque::new()).collect(),
        }
    }

    /// Takes the sequence number for a packet to a group that is sent at `now_us`; `None` if there are too
    /// many streams.
    #[cfg(test)]
    pub(crate) fn next_seq(&mut self, now_us: u64, group: GroupId) -> Option<u32> {
        self.next_seqs(now_us, group, 1)
    }

    /// Takes `count` consecutive sequence numbers; returns the first.
    pub(crate) fn next_seqs(&mut self, now_us: u64, group: GroupId, count: u32) -> Option<u32> {
        let room = self.streams.len() < SENT_GROUPS_MAX;
        let sent = match self.streams.get_mut(&group) {
            Some(sent) => sent,
            None if room => {
                self.streams.entry(group).or_insert(Sent { next: 0, last_us: 0, named: 0, queued: None })
            }
            None => return None,
        };
        let seq = sent.next;
        sent.next = seq.wrapping_add(count);
        sent.last_us = now_us;
        sent.named = 0;
        // A stream in the first round is looked at again when it is due.
        if sent.queued.is_none_or(|(round, _)| round > 0) && !self.rounds.is_empty() {
            sent.queued = Some((0, now_us));
            insert(&mut self.rounds[0], Queued { due_us: now_us + self.first_us, group, last_us: now_us });
        }
        Some(seq)
    }

    /// Announces the streams that were sent to since a time, as if they had just fallen silent.
    pub(crate) fn announce_again(&mut self, now_us: u64, since_us: u64) {
        let Some(round) = self.rounds.first_mut() else { return };
        for (&group, sent) in self.streams.iter_mut().filter(|(_, sent)| sent.last_us >= since_us) {
            sent.queued = Some((0, sent.last_us));
            insert(round, Queued { due_us: now_us, group, last_us: sent.last_us });
        }
    }

    /// Returns the sequence number of the newest packet sent to a group.
    pub(crate) fn newest(&self, group: GroupId) -> Option<u32> {
        self.streams.get(&group).map(|sent| sent.next.wrapping_sub(1))
    }

    /// Notes that a repair named a packet of this node. If it is the stream's newest, others learn of it
    /// without an announcement.
    pub(crate) fn on_named(&mut self, group: GroupId, seq: u32) {
        if let Some(sent) = self.streams.get_mut(&group) {
            let is_newest = sent.next.wrapping_sub(1) == seq;
            sent.named = sent.named.saturating_add(u8::from(is_newest));
        }
    }

    /// Returns when [`Announcer::pop_due`] is due next.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.rounds.iter().filter_map(|round| round.front()).map(|queued| queued.due_us).min()
    }

    /// Returns the next announcement that is due.
    ///
    /// On a `calm` network, where little is lost, only some of the announcements are made. Else the first
    /// ones are sent twice.
    pub(crate) fn pop_due(&mut self, now_us: u64, calm: bool) -> Option<Due> {
        for round in 0..self.rounds.len() {
            while let Some(queued) = self.rounds[round].pop_front_if(|queued| queued.due_us <= now_us) {
                let Some(sent) = self.streams.get_mut(&queued.group) else { continue };
                if sent.queued != Some((round, queued.last_us)) {
                    continue;
                }
                if sent.last_us > queued.last_us {
                    sent.queued = Some((0, sent.last_us));
                    let due_us = sent.last_us + self.first_us;
                    insert(&mut self.rounds[0], Queued { due_us, last_us: sent.last_us, ..queued });
                    continue;
                }
                let seq = sent.next.wrapping_sub(1);
                let is_known = sent.is_known(now_us, self.unless_named_us);
                self.postpone(now_us, round, &queued);
                if calm && (is_known || !round.is_multiple_of(self.stride)) {
                    continue;
                }
                let copies = if calm || round >= TWICE { 1 } else { 2 };
                return Some(Due { latest: Latest { group: queued.group, seq }, copies, round });
            }
        }
        None
    }

    /// Returns the next stream that may be named in an announcement of this round, in place of an
    /// announcement of its own soon afterwards: one that `is_alike`, and whose newest packet is not so new
    /// that it may be on its way. `place` is where the search begins, and where the next one does.
    pub(crate) fn pop_alike(
        &mut self,
        now_us: u64,
        (round, calm): (usize, bool),
        place: &mut usize,
        is_alike: impl Fn(GroupId) -> bool,
    ) -> Option<Latest> {
        let end_us = now_us + self.first_us.saturating_sub(SETTLED_US);
        while *place < LOOKED_AT_MAX {
            let queued = *self.rounds[round].get(*place).filter(|queued| queued.due_us <= end_us)?;
            *place += 1;
            let Some(sent) = self.streams.get(&queued.group) else { continue };
            let is_due = sent.queued == Some((round, queued.last_us)) && sent.last_us == queued.last_us;
            if is_due && !(calm && sent.is_known(now_us, self.unless_named_us)) && is_alike(queued.group) {
                let seq = sent.next.wrapping_sub(1);
                // Its entry in this round counts no more.
                self.postpone(now_us, round, &queued);
                return Some(Latest { group: queued.group, seq });
            }
        }
        None
    }

    /// Lets a stream wait for its announcement in the next round.
    fn postpone(&mut self, now_us: u64, round: usize, queued: &Queued) {
        let Some(sent) = self.streams.get_mut(&queued.group) else { return };
        let wait_us = self.first_us.saturating_mul(self.growth.saturating_pow(round as u32 + 1));
        sent.queued = self.rounds.get_mut(round + 1).map(|next| {
            let due_us = now_us.saturating_add(wait_us);
            insert(next, Queued { due_us, ..*queued });
            (round + 1, queued.last_us)
        });
    }
}

impl Sent {
    /// Returns whether repairs have told others of the newest packet, which is not old yet.
    fn is_known(&self, now_us: u64, unless_named_us: u64) -> bool {
        now_us < self.last_us.saturating_add(unless_named_us) && self.named >= NAMED_MIN
    }
}

/// Inserts in order of time; the place is at the end or close to it.
fn insert(round: &mut VecDeque<Queued>, queued: Queued) {
    let behind = round.iter().rev().take_while(|other| other.due_us > queued.due_us).count();
    round.insert(round.len() - behind, queued);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubling(times: u8) -> AnnounceConfig {
        AnnounceConfig { first_us: 5_000, growth: 2, times, stride: 1, unless_named_us: 30_000 }
    }

    #[test]
    fn streams_that_were_sent_to_lately_are_announced_again_on_request() {
        let mut announcer = Announcer::new(&doubling(1));
        announcer.next_seq(0, GroupId(1));
        announcer.next_seq(500_000, GroupId(2));
        assert_eq!(all(&mut announcer, 900_000).len(), 2);
        announcer.announce_again(1_000_000, 400_000);
        announcer.announce_again(1_000_000, 400_000);
        assert_eq!(all(&mut announcer, 2_000_000), [(1_000_000, 0)]);
    }

    #[test]
    fn streams_that_are_alike_share_an_announcement_once_their_packets_have_settled() {
        let mut announcer = Announcer::new(&doubling(2));
        for (group, at_us) in [(1, 0), (2, 100), (3, 1_000), (4, 3_900), (5, 4_500)] {
            announcer.next_seq(at_us, GroupId(group));
        }
        // A newer packet has its own time.
        announcer.next_seq(2_000, GroupId(3));
        let due = announcer.pop_due(5_000, true).unwrap();
        assert_eq!((due.latest.group, due.round), (GroupId(1), 0));
        let is_alike = |group: GroupId| group != GroupId(2);
        let mut place = 0;
        let mut shared = Vec::new();
        while let Some(latest) = announcer.pop_alike(5_000, (0, true), &mut place, is_alike) {
            shared.push(latest.group.0);
        }
        assert_eq!(shared, [4], "5 is too new");
        // Each stream is announced once in each round.
        let rest: Vec<_> = [100, 2_000, 4_500].map(|at_us| at_us + 5_000).to_vec();
        let mut first: Vec<u64> = Vec::new();
        let mut second = 0;
        while let Some(due_us) = announcer.next_due_us() {
            while let Some(due) = announcer.pop_due(due_us, true) {
                if due.round == 0 { first.push(due_us) } else { second += 1 }
            }
        }
        assert_eq!((first, second), (rest, 5));
    }

    fn all(announcer: &mut Announcer, until_us: u64) -> Vec<(u64, u32)> {
        let mut seen = Vec::new();
        while let Some(due_us) = announcer.next_due_us().filter(|&due_us| due_us <= until_us) {
            seen.extend(announcer.pop_due(due_us, true).map(|due| (due_us, due.latest.seq)));
        }
        seen
    }

    #[test]
    fn a_silent_stream_is_announced_less_and_less_often_and_then_no_more() {
        let mut announcer = Announcer::new(&doubling(3));
        assert_eq!(announcer.next_seq(0, GroupId(1)), Some(0));
        assert_eq!(announcer.next_seq(1_000, GroupId(1)), Some(1));
        assert_eq!(all(&mut announcer, 100_000), [(6_000, 1), (16_000, 1), (36_000, 1)]);
        assert_eq!(announcer.next_seq(200_000, GroupId(1)), Some(2));
        assert_eq!(all(&mut announcer, 1_000_000), [(205_000, 2), (215_000, 2), (235_000, 2)]);
    }

    #[test]
    fn an_active_stream_is_never_announced() {
        let mut announcer = Announcer::new(&doubling(3));
        for at in 0..1_000 {
            assert_eq!(all(&mut announcer, at * 2_000), []);
            announcer.next_seq(at * 2_000, GroupId(1));
        }
        assert_eq!(all(&mut announcer, 2_005_000).len(), 1);
    }

    #[test]
    fn a_second_burst_is_announced_as_soon_as_the_first() {
        let mut announcer = Announcer::new(&doubling(4));
        announcer.next_seq(0, GroupId(1));
        assert_eq!(all(&mut announcer, 20_000), [(5_000, 0), (15_000, 0)]);
        announcer.next_seq(20_000, GroupId(1));
        assert_eq!(all(&mut announcer, 1_000_000), [(25_000, 1), (35_000, 1), (55_000, 1), (95_000, 1)]);
    }

    #[test]
    fn a_packet_that_repairs_name_is_announced_later() {
        let mut announcer = Announcer::new(&doubling(4));
        announcer.next_seq(0, GroupId(1));
        (0..NAMED_MIN).for_each(|_| announcer.on_named(GroupId(1), 0));
        announcer.on_named(GroupId(2), 0);
        assert_eq!(all(&mut announcer, 1_000_000), [(35_000, 0), (75_000, 0)]);
        announcer.next_seq(1_000_000, GroupId(1));
        (0..NAMED_MIN).for_each(|_| announcer.on_named(GroupId(1), 0));
        let announced = [(1_005_000, 1), (1_015_000, 1)];
        assert_eq!(all(&mut announcer, 1_020_000), announced, "those repairs named the packet before");
    }

    #[test]
    fn where_much_is_lost_all_announcements_are_sent() {
        let config = AnnounceConfig { stride: 3, ..doubling(4) };
        for (calm, expected) in [(true, 2), (false, 4)] {
            let mut announcer = Announcer::new(&config);
            announcer.next_seq(0, GroupId(1));
            (1..100).for_each(|_| announcer.on_named(GroupId(1), 5));
            let times = (0..1_000).filter(|&at| announcer.pop_due(at * 1_000, calm).is_some());
            assert_eq!(times.count(), expected);
        }
    }

    #[test]
    fn the_numbers_of_a_million_groups_continue_and_one_more_group_is_refused() {
        let mut announcer = Announcer::new(&AnnounceConfig { times: 0, ..AnnounceConfig::default() });
        for group in 0..SENT_GROUPS_MAX as u64 {
            assert_eq!(announcer.next_seq(0, GroupId(group)), Some(0));
        }
        assert_eq!(announcer.next_seq(0, GroupId(u64::MAX)), None);
        assert_eq!(announcer.next_seq(0, GroupId(0)), Some(1));
    }

    #[test]
    fn streams_do_not_disturb_each_other() {
        let mut announcer = Announcer::new(&doubling(2));
        for group in 0..100 {
            announcer.next_seq(group, GroupId(group));
        }
        announcer.next_seq(4_000, GroupId(3));
        let announced = all(&mut announcer, 1_000_000);
        assert_eq!(announced.len(), 200);
        assert!(announced.is_sorted_by_key(|&(due_us, _)| due_us));
    }
}
