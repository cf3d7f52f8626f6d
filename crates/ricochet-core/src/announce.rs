//! A sender that falls silent says what it sent last, a few times, ever more seldom: else the last packet of a burst, if
//! lost, would not be missed (the papers leave this open).

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::ids::GroupId;
use crate::node::AnnounceConfig;
use crate::wire::Latest;

/// Most streams of one sender.
pub(crate) const STREAMS_MAX: usize = 1 << 16;

/// Where much is lost, so many announcements are made twice: each is likely lost too, and what comes of the later ones is
/// late.
const TWICE: usize = 4;
/// So many repairs that name a packet show that its group knows of it: one comes to a member as well as to its sender.
const NAMED_MIN: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct Sent {
    next: u32,
    last_us: u64,
    /// How often others have named the newest packet.
    named: u8,
    /// The round in which it waits, and the `last_us` of the entry there that counts.
    queued: Option<(usize, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    due_us: u64,
    group: GroupId,
    /// When the stream's newest packet was sent, as of queueing.
    last_us: u64,
}

/// An announcement that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) latest: Latest,
    /// How often it is sent.
    pub(crate) copies: u8,
}

/// The streams that this node sends, and when to say that one has come to rest.
///
/// Each announcement waits some times as long as the one before. All that wait as long are queued in order of time.
#[derive(Debug)]
pub(crate) struct Announcer {
    first_us: u64,
    growth: u64,
    unless_named_us: u64,
    seldom: usize,
    streams: HashMap<GroupId, Sent>,
    rounds: Box<[VecDeque<Queued>]>,
}

impl Announcer {
    /// Announces some times, first after `first_us` of silence, then each time after `growth` times as long.
    pub(crate) fn new(config: &AnnounceConfig) -> Self {
        Self {
            first_us: config.first_us,
            growth: u64::from(config.growth),
            unless_named_us: config.unless_named_us,
            seldom: usize::from(config.seldom),
            streams: HashMap::new(),
            rounds: (0..config.times).map(|_| VecDeque::new()).collect(),
        }
    }

    /// The sequence number of the next packet to a group; `None` if there are too many streams.
    pub(crate) fn send(&mut self, now_us: u64, group: GroupId) -> Option<u32> {
        let room = self.streams.len() < STREAMS_MAX;
        let sent = match self.streams.get_mut(&group) {
            Some(sent) => sent,
            None if room => {
                self.streams.entry(group).or_insert(Sent { next: 0, last_us: 0, named: 0, queued: None })
            }
            None => return None,
        };
        let seq = sent.next;
        sent.next = seq.wrapping_add(1);
        sent.last_us = now_us;
        sent.named = 0;
        // One that waits in the first round is looked at again when its time has come.
        if sent.queued.is_none_or(|(round, _)| round > 0) && !self.rounds.is_empty() {
            sent.queued = Some((0, now_us));
            insert(&mut self.rounds[0], Queued { due_us: now_us + self.first_us, group, last_us: now_us });
        }
        Some(seq)
    }

    /// Somebody named a packet of this node: if it is the stream's newest, others hear of it without being told.
    pub(crate) fn named(&mut self, group: GroupId, seq: u32) {
        if let Some(sent) = self.streams.get_mut(&group) {
            let is_newest = sent.next.wrapping_sub(1) == seq;
            sent.named = sent.named.saturating_add(u8::from(is_newest));
        }
    }

    /// When [`Announcer::pop_due`] next has something to say.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.rounds.iter().filter_map(|round| round.front()).map(|queued| queued.due_us).min()
    }

    /// A stream that has been silent for long enough, and its newest packet.
    /// Where it is `calm`, little being lost, only some of the announcements are made; else the first ones twice.
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
                let wait_us = self.first_us.saturating_mul(self.growth.saturating_pow(round as u32 + 1));
                sent.queued = self.rounds.get_mut(round + 1).map(|next| {
                    let due_us = now_us.saturating_add(wait_us);
                    insert(next, Queued { due_us, ..queued });
                    (round + 1, queued.last_us)
                });
                let fresh = now_us < sent.last_us.saturating_add(self.unless_named_us);
                let known = fresh && sent.named >= NAMED_MIN;
                if calm && (known || !round.is_multiple_of(self.seldom)) {
                    continue;
                }
                let copies = if calm || round >= TWICE { 1 } else { 2 };
                return Some(Due { latest: Latest { group: queued.group, seq }, copies });
            }
        }
        None
    }
}

/// Keeps the order of time; what is new belongs at the end, or very near.
fn insert(round: &mut VecDeque<Queued>, queued: Queued) {
    let behind = round.iter().rev().take_while(|other| other.due_us > queued.due_us).count();
    round.insert(round.len() - behind, queued);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubling(times: u8) -> AnnounceConfig {
        AnnounceConfig { first_us: 5_000, growth: 2, times, seldom: 1, unless_named_us: 30_000 }
    }

    fn all(announcer: &mut Announcer, until_us: u64) -> Vec<(u64, u32)> {
        let mut said = Vec::new();
        while let Some(due_us) = announcer.next_due_us().filter(|&due_us| due_us <= until_us) {
            said.extend(announcer.pop_due(due_us, true).map(|due| (due_us, due.latest.seq)));
        }
        said
    }

    #[test]
    fn a_stream_at_rest_is_announced_ever_more_seldom_and_then_no_more() {
        let mut announcer = Announcer::new(&doubling(3));
        assert_eq!(announcer.send(0, GroupId(1)), Some(0));
        assert_eq!(announcer.send(1_000, GroupId(1)), Some(1));
        assert_eq!(all(&mut announcer, 100_000), [(6_000, 1), (16_000, 1), (36_000, 1)]);
        assert_eq!(announcer.send(200_000, GroupId(1)), Some(2));
        assert_eq!(all(&mut announcer, 1_000_000), [(205_000, 2), (215_000, 2), (235_000, 2)]);
    }

    #[test]
    fn a_stream_in_motion_is_never_announced() {
        let mut announcer = Announcer::new(&doubling(3));
        for at in 0..1_000 {
            assert_eq!(all(&mut announcer, at * 2_000), []);
            announcer.send(at * 2_000, GroupId(1));
        }
        assert_eq!(all(&mut announcer, 2_005_000).len(), 1);
    }

    #[test]
    fn a_second_burst_is_announced_as_soon_as_the_first() {
        let mut announcer = Announcer::new(&doubling(4));
        announcer.send(0, GroupId(1));
        assert_eq!(all(&mut announcer, 20_000), [(5_000, 0), (15_000, 0)]);
        announcer.send(20_000, GroupId(1));
        assert_eq!(all(&mut announcer, 1_000_000), [(25_000, 1), (35_000, 1), (55_000, 1), (95_000, 1)]);
    }

    #[test]
    fn what_others_name_is_announced_only_later_on() {
        let mut announcer = Announcer::new(&doubling(4));
        announcer.send(0, GroupId(1));
        (0..NAMED_MIN).for_each(|_| announcer.named(GroupId(1), 0));
        announcer.named(GroupId(2), 0);
        assert_eq!(all(&mut announcer, 1_000_000), [(35_000, 0), (75_000, 0)]);
        announcer.send(1_000_000, GroupId(1));
        (0..NAMED_MIN).for_each(|_| announcer.named(GroupId(1), 0));
        let said = [(1_005_000, 1), (1_015_000, 1)];
        assert_eq!(all(&mut announcer, 1_020_000), said, "those named the one before");
    }

    #[test]
    fn where_much_is_lost_all_is_said() {
        let config = AnnounceConfig { seldom: 3, ..doubling(4) };
        for (calm, said) in [(true, 2), (false, 4)] {
            let mut announcer = Announcer::new(&config);
            announcer.send(0, GroupId(1));
            (1..100).for_each(|_| announcer.named(GroupId(1), 5));
            let times = (0..1_000).filter(|&at| announcer.pop_due(at * 1_000, calm).is_some());
            assert_eq!(times.count(), said);
        }
    }

    #[test]
    fn streams_do_not_disturb_each_other() {
        let mut announcer = Announcer::new(&doubling(2));
        for group in 0..100 {
            announcer.send(group, GroupId(group));
        }
        announcer.send(4_000, GroupId(3));
        let said = all(&mut announcer, 1_000_000);
        assert_eq!(said.len(), 200);
        assert!(said.is_sorted_by_key(|&(due_us, _)| due_us));
    }
}
