//! The sender's side: the readers of one group, and how many packets they have room for.
//!
//! The *budget* bounds what is on its way. It grows with what the readers settle, so that a burst after
//! silence does not overrun switches and rings, and shrinks when packets take long to arrive, so that no long
//! queue stands anywhere.

use std::collections::VecDeque;

use foundation::Seq;

use super::reader::{Reader, START};
use super::rooms::REPORTS_PER_WINDOW;
use super::{FlowConfig, Follow, ReaderNews, ReaderStatus};
use crate::ids::NodeId;
use crate::partners::mixed;
use crate::wire::Room;

/// Part of the window that the budget always reaches: twice the packets between two reports.
const BUDGET_PART: u32 = 4;
/// Shortest time between two requests for reports that are too rare, in microseconds for each reader: each of
/// them answers.
const EARLY_US: u64 = 10;
/// Time that packets may take to arrive before the budget shrinks, in microseconds.
const DELAY_US: u64 = 5_000;
/// Packets that the budget grows by in each round trip, once it has shrunk.
const GROWTH: u64 = 16;
/// Number of packets between two noted times.
const MARK_EVERY: u64 = 16;
/// Maximum number of noted times.
const MARKS_MAX: usize = 1_024;
/// Silence after which a burst begins with the smallest budget again, in microseconds.
const IDLE_US: u64 = 1_000_000;
/// Time from the beginning of a wait to the first request for reports, in microseconds; then doubled.
const PROBE_US: u64 = 5_000;
const PROBE_US_MAX: u64 = 100_000;
/// Time for which a reader holds up the sender before it is reported as slow, in microseconds.
const SLOW_US: u64 = 1_000_000;
/// Silence of a reader, while packets wait and others report, after which the sender runs ahead of it, in
/// microseconds: five requests for reports.
const AHEAD_US: u64 = 150_000;
/// Maximum number of readers of a group that are followed.
const READERS_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug)]
struct Wait {
    since_us: u64,
    /// Time up to which readers have been blamed for it.
    blamed_us: u64,
    probe_us: u64,
    pause_us: u64,
}

/// The readers of this node's packets to one group.
#[derive(Debug)]
pub(crate) struct Readers {
    follow: Follow,
    /// Number of packets by which the sender may run ahead of a silent reader, and that are kept for it.
    ahead: u32,
    /// Position of the next packet.
    next: Seq,
    /// In order of their ids.
    readers: Vec<Reader>,
    /// Hash of their ids; `None` if there are none, or more than are followed.
    audience: Option<u64>,
    budget: u32,
    /// The smallest window of the readers that set the pace, which bounds the budget.
    window: u32,
    /// Whether a reader that is waited for reports so rarely that the budget may be used up before.
    is_rare: bool,
    /// Position of the next packet when reports were last asked for because they are too rare.
    asked: Seq,
    /// Time then, in microseconds.
    asked_us: u64,
    /// Budget from which it grows slowly.
    threshold: u32,
    cut_us: u64,
    sent_us: u64,
    /// Positions and the times at which they were sent.
    marks: VecDeque<(Seq, u64)>,
    /// Position before which those who set the pace have settled everything.
    settled: Seq,
    /// Position before which all who are waited for have.
    oldest: Seq,
    /// Position at which the sender has to wait; `None` if nothing limits it.
    limit: Option<Seq>,
    wait: Option<Wait>,
    /// Whether the packets that all groups together have on their way leave no room for more, so that
    /// whatever these readers have not settled holds up the sender.
    is_crowded: bool,
    scratch: Vec<(Seq, Seq)>,
    windows: Vec<u32>,
}

impl Readers {
    /// Creates the readers of a group to which this node has sent nothing. The sender runs at most `ahead`
    /// packets ahead of a silent one.
    pub(crate) fn new(
        follow: Follow,
        ahead: u32,
        now_us: u64,
        members: impl Iterator<Item = NodeId>,
    ) -> Self {
        let next = Seq::first_seen(0);
        let mut readers = Self {
            follow,
            ahead,
            next,
            readers: Vec::new(),
            audience: None,
            budget: START,
            window: START,
            is_rare: false,
            asked: next,
            asked_us: 0,
            threshold: u32::MAX,
            cut_us: 0,
            sent_us: now_us,
            // Thousands of groups that are nearly silent need no room for bursts.
            marks: VecDeque::new(),
            settled: next,
            oldest: next,
            limit: None,
            wait: None,
            is_crowded: false,
            scratch: Vec::new(),
            windows: Vec::new(),
        };
        readers.set_members(now_us, members);
        readers
    }

    /// Continues with the members of a view. New ones read from the next packet on.
    pub(crate) fn set_members(&mut self, now_us: u64, members: impl Iterator<Item = NodeId>) {
        let before = std::mem::take(&mut self.readers);
        let known = |id| before.binary_search_by_key(&id, |reader| reader.id).ok().map(|at| before[at]);
        let new = |id| Reader::new(id, self.next, now_us);
        self.readers = members.take(READERS_MAX).map(|id| known(id).unwrap_or_else(|| new(id))).collect();
        self.readers.sort_unstable_by_key(|reader| reader.id);
        let hash = self.readers.iter().fold(0, |hash, reader| mixed(hash ^ u64::from(reader.id.0) << 1 ^ 1));
        self.audience = (1..READERS_MAX).contains(&self.readers.len()).then_some(hash);
        self.update();
    }

    /// Returns whether the readers of two groups are the same nodes.
    pub(crate) fn are_those_of(&self, other: &Self) -> bool {
        self.audience.is_some() && self.audience == other.audience
    }

    /// Returns the number of packets that may be sent; `u32::MAX` if nothing limits it.
    pub(crate) fn room(&self) -> u32 {
        let left = self.limit.map_or(u64::MAX, |limit| limit.0.saturating_sub(self.next.0));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Returns the number of packets that readers who are waited for have not settled.
    pub(crate) fn outstanding(&self) -> u64 {
        if self.limit.is_some() { self.next.0.saturating_sub(self.oldest.0) } else { 0 }
    }

    /// Returns whether a reader that is waited for has not settled the packet `seq`.
    pub(crate) fn is_awaited(&self, seq: u32) -> bool {
        self.limit.is_some() && Seq::from_wire(seq, self.next) >= self.oldest
    }

    /// Notes that a packet was sent that takes `count` positions in its stream.
    pub(crate) fn on_sent(&mut self, now_us: u64, count: u32) {
        if now_us.saturating_sub(self.sent_us) >= IDLE_US && self.outstanding() == 0 {
            (self.budget, self.threshold) = (self.least(), u32::MAX);
            self.update();
        }
        self.sent_us = now_us;
        let is_marked = self.marks.back().is_some_and(|(seq, _)| seq.plus(MARK_EVERY) > self.next);
        if !is_marked && self.marks.len() < MARKS_MAX {
            self.marks.push_back((self.next, now_us));
        }
        self.next = self.next.plus(u64::from(count));
    }

    /// Returns whether to ask for reports although there is room, because the readers' own reports would come
    /// too late: half of what may be on its way was sent since the last ones. `part` replaces that half if it
    /// is given. Many readers are asked more rarely, because each of them answers.
    pub(crate) fn asks_early(&mut self, now_us: u64, part: Option<u64>) -> bool {
        let pause_us = EARLY_US * self.readers.len() as u64;
        if self.limit.is_none() || (part.is_none() && !self.is_rare) || now_us < self.asked_us + pause_us {
            return false;
        }
        let since = self.next.0.saturating_sub(self.settled.max(self.asked).0);
        let asks = since >= part.unwrap_or(u64::from(self.budget / 2));
        if asks {
            (self.asked, self.asked_us) = (self.next, now_us);
        }
        asks
    }

    /// Notes that packets wait for room.
    pub(crate) fn on_waiting(&mut self, now_us: u64) {
        self.wait.get_or_insert(Wait {
            since_us: now_us,
            blamed_us: now_us,
            probe_us: now_us + PROBE_US,
            pause_us: PROBE_US,
        });
    }

    /// Notes that the packets on their way to all groups leave no room: these readers are asked for reports,
    /// and are left behind as if packets to them waited.
    pub(crate) fn on_crowded(&mut self, now_us: u64) {
        self.is_crowded = true;
        self.on_waiting(now_us);
    }

    /// Notes that the packets on their way to all groups leave room again.
    pub(crate) fn end_crowded(&mut self) {
        self.is_crowded = false;
        self.end_wait();
    }

    /// Handles the report of a reader; returns news about it. A report that contradicts what was sent is
    /// ignored.
    pub(crate) fn on_report(&mut self, now_us: u64, from: NodeId, room: &Room) -> Option<ReaderNews> {
        let position = Seq::from_wire(room.position, self.next);
        let newest = Seq::from_wire(room.newest, self.next);
        let at = self.readers.binary_search_by_key(&from, |reader| reader.id).ok()?;
        if position > self.next {
            return None;
        }
        self.blame(now_us);
        let (next, fastest, is_slowest) =
            (self.next, self.fastest(), self.readers[at].position <= self.settled);
        let reader = &mut self.readers[at];
        (reader.heard_us, reader.is_ahead) = (now_us, false);
        reader.note_beginning(position, newest);
        reader.window = room.window.max(1);
        if position > reader.position {
            (reader.position, reader.progress_us) = (position, now_us);
        }
        if !reader.lags(self.budget, fastest) {
            reader.held_us = 0;
        }
        let is_near = reader.position.plus(u64::from(reader.window.min(self.budget) / 2)) >= next;
        let returns = reader.left_at.is_some_and(|left_at| reader.position > left_at) && is_near;
        if returns {
            (reader.left_at, reader.is_reported, reader.held_us) = (None, false, 0);
        }
        let before = self.settled;
        self.update();
        self.adjust(now_us, newest, is_slowest, self.settled.0.saturating_sub(before.0));
        self.end_wait();
        returns.then_some(ReaderNews::CaughtUp)
    }

    /// Adjusts the budget to the time that packets take, and to `settled` packets.
    fn adjust(&mut self, now_us: u64, newest: Seq, is_slowest: bool, settled: u64) {
        let last = self.marks.iter().take_while(|(seq, _)| *seq <= newest).last();
        let delay_us = last.map(|(_, at_us)| now_us.saturating_sub(*at_us));
        while self.marks.pop_front_if(|(seq, _)| *seq < self.settled).is_some() {}
        if is_slowest && delay_us.is_some_and(|delay_us| delay_us > DELAY_US) {
            if now_us >= self.cut_us + DELAY_US {
                self.cut_us = now_us;
                self.budget -= self.budget / 4;
                self.threshold = self.budget;
            }
        } else if self.budget < self.threshold {
            self.budget = self.budget.saturating_add(u32::try_from(settled).unwrap_or(u32::MAX));
        } else {
            let more = (settled * GROWTH).div_ceil(u64::from(self.budget.max(1)));
            self.budget = self.budget.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        }
        let least = self.least();
        self.budget = self.budget.clamp(least, least.max(self.window));
        self.update();
    }

    fn least(&self) -> u32 {
        START.max(self.window / BUDGET_PART)
    }

    /// Asks for reports and leaves readers behind, while packets wait. Returns whether to ask now.
    pub(crate) fn handle_timeout(
        &mut self,
        now_us: u64,
        config: &FlowConfig,
        news: &mut impl FnMut(NodeId, ReaderNews),
    ) -> bool {
        let Some(wait) = self.wait else { return false };
        if now_us < wait.probe_us {
            return false;
        }
        self.blame(now_us);
        let holds_up = self.holds_up();
        let may_run_ahead = self.follow == Follow::All && self.hears_readers(wait.since_us);
        for reader in self.readers.iter_mut().filter(|reader| reader.left_at.is_none()) {
            if !holds_up(reader) && !reader.is_ahead {
                continue;
            }
            let waited_us = |since_us: u64| now_us.saturating_sub(since_us.max(wait.since_us));
            // One that has never reported may have heard nothing, and then requests nothing.
            let may_request = reader.began.is_some();
            reader.is_ahead |= may_run_ahead && may_request && waited_us(reader.heard_us) >= AHEAD_US;
            let is_slow = reader.held_us >= SLOW_US || waited_us(reader.progress_us) >= SLOW_US;
            if is_slow && !std::mem::replace(&mut reader.is_reported, true) {
                news(reader.id, ReaderNews::Slow);
            }
            if waited_us(reader.heard_us) >= config.silence_us {
                reader.left_at = Some(reader.position);
                news(reader.id, ReaderNews::Silent);
            } else if config.patience_us.is_some_and(|us| waited_us(reader.progress_us) >= us) {
                reader.left_at = Some(reader.position);
                news(reader.id, ReaderNews::LeftBehind);
            }
        }
        let pause_us = (2 * wait.pause_us).min(PROBE_US_MAX);
        self.wait = Some(Wait { blamed_us: now_us, probe_us: now_us + wait.pause_us, pause_us, ..wait });
        self.update();
        self.end_wait();
        self.wait.is_some()
    }

    /// Returns which readers hold up the sender.
    fn holds_up(&self) -> impl Fn(&Reader) -> bool + use<> {
        let Self { next, budget, ahead, is_crowded, .. } = *self;
        move |reader| {
            let end = if is_crowded { reader.position.plus(1) } else { reader.limit(budget, ahead) };
            end <= next
        }
    }

    /// Returns whether a followed reader has reported since a time.
    fn hears_readers(&self, since_us: u64) -> bool {
        self.readers.iter().any(|reader| reader.left_at.is_none() && reader.heard_us > since_us)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.wait.map(|wait| wait.probe_us)
    }

    /// Returns whether a reader is waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Returns the low 32 bits of the newest packet's position.
    pub(crate) fn newest(&self) -> u32 {
        self.next.minus(1).to_wire()
    }

    /// Returns the number of readers that have reported a position after the packet `seq`, were readers when
    /// it was sent, and had begun to hear the stream by then.
    pub(crate) fn holders(&self, seq: u32) -> usize {
        let seq = Seq::from_wire(seq, self.next);
        self.readers.iter().filter(|reader| reader.holds(seq)).count()
    }

    /// Returns the packets that a reader was sent and may have heard nothing of, unless it was asked about
    /// them often enough: the number of the first, and how many.
    pub(crate) fn doubt(&mut self, id: NodeId) -> Option<(u32, u16)> {
        let at = self.readers.binary_search_by_key(&id, |reader| reader.id).ok()?;
        self.readers[at].doubt()
    }

    pub(crate) fn status(&self) -> impl Iterator<Item = ReaderStatus> + '_ {
        self.readers.iter().map(|reader| ReaderStatus {
            id: reader.id,
            behind: self.next.0.saturating_sub(reader.position.0),
            window: reader.window,
            is_followed: reader.left_at.is_none(),
        })
    }

    /// Adds the time since the last look to the readers that hold up the sender.
    fn blame(&mut self, now_us: u64) {
        let (holds_up, budget, fastest) = (self.holds_up(), self.budget, self.fastest());
        let Some(wait) = &mut self.wait else { return };
        let waited_us = now_us.saturating_sub(std::mem::replace(&mut wait.blamed_us, now_us));
        let is_blamed = |reader: &&mut Reader| holds_up(reader) && reader.lags(budget, fastest);
        self.readers.iter_mut().filter(is_blamed).for_each(|reader| reader.held_us += waited_us);
    }

    fn fastest(&self) -> Seq {
        self.readers.iter().map(|reader| reader.position).max().unwrap_or(self.next)
    }

    /// Ends the wait once there is room, and no reader is silent: such a one is watched until it is heard or
    /// left behind.
    fn end_wait(&mut self) {
        let has_silent = |readers: &[Reader]| readers.iter().any(Reader::is_run_ahead_of);
        if self.wait.is_some() && !self.is_crowded && self.room() > 0 && !has_silent(&self.readers) {
            self.wait = None;
        }
    }

    /// Recomputes the smallest window of the readers that set the pace: all that are followed, the quorum
    /// with the largest windows, or the one with the largest.
    fn measure_windows(&mut self) {
        let Self { readers, windows, follow, .. } = self;
        let followed = readers.iter().filter(|reader| reader.left_at.is_none());
        let mut all = followed.map(|reader| reader.window);
        let window = match *follow {
            Follow::Off | Follow::All => all.min(),
            Follow::Max => all.max(),
            Follow::Quorum(count) => {
                windows.clear();
                windows.extend(&mut all);
                windows.sort_unstable();
                windows.get(windows.len().saturating_sub(usize::from(count))).copied()
            }
        };
        self.window = window.unwrap_or(START);
    }

    /// Recomputes what the followed readers have settled and have room for.
    fn update(&mut self) {
        self.measure_windows();
        let rare = |reader: &Reader| reader.window / REPORTS_PER_WINDOW > self.budget / 2;
        self.is_rare = self.readers.iter().any(|reader| reader.left_at.is_none() && rare(reader));
        let Self { readers, scratch, budget, follow, ahead, .. } = self;
        let followed = readers.iter().filter(|reader| reader.left_at.is_none());
        let mut places = followed.clone().map(|reader| (reader.limit(*budget, *ahead), reader.position));
        let place = match *follow {
            Follow::Off => None,
            Follow::All => places.min(),
            Follow::Max => places.max(),
            Follow::Quorum(count) => {
                scratch.clear();
                scratch.extend(&mut places);
                // The slowest first.
                scratch.sort_unstable();
                scratch.get(scratch.len().saturating_sub(usize::from(count))).copied()
            }
        };
        let Some((limit, settled)) = place else {
            (self.limit, self.settled, self.oldest) = (None, self.next, self.next);
            return;
        };
        let slowest = followed.map(|reader| reader.position).min().filter(|_| *follow == Follow::All);
        (self.limit, self.settled, self.oldest) = (Some(limit), settled, slowest.unwrap_or(settled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;

    const CONFIG: FlowConfig =
        FlowConfig { follow: Follow::All, window: 0, patience_us: Some(10_000_000), silence_us: 1_000_000 };

    const AHEAD: u32 = 256;

    fn readers(follow: Follow, count: u32) -> Readers {
        Readers::new(follow, AHEAD, 0, (1..=count).map(NodeId))
    }

    fn room(position: u32) -> Room {
        Room { group: GroupId(7), position, newest: position.wrapping_sub(1), window: 1_024 }
    }

    /// Sends all that there is room for; returns the number of packets.
    fn send(readers: &mut Readers, now_us: u64) -> u32 {
        let room = readers.room().min(100_000);
        (0..room).for_each(|_| readers.on_sent(now_us, 1));
        readers.on_waiting(now_us);
        room
    }

    #[test]
    fn a_sender_follows_the_readers_that_it_is_set_to_follow() {
        for (follow, expected) in [
            (Follow::All, 10),
            (Follow::Quorum(3), 10),
            (Follow::Quorum(2), 30),
            (Follow::Quorum(9), 10),
            (Follow::Max, 60),
            (Follow::Off, u32::MAX),
        ] {
            let mut readers = readers(follow, 3);
            assert_eq!(readers.room(), if follow == Follow::Off { u32::MAX } else { START });
            (0..START).for_each(|_| readers.on_sent(0, 1));
            for (reader, position) in [(1, 10), (2, 30), (3, 60)] {
                readers.on_report(1_000, NodeId(reader), &room(position));
            }
            assert_eq!(readers.room() == u32::MAX, follow == Follow::Off);
            assert_eq!(
                readers.outstanding(),
                if follow == Follow::Off { 0 } else { u64::from(START - expected) }
            );
        }
    }

    #[test]
    fn the_budget_grows_with_what_is_settled_up_to_the_window_and_falls_after_silence() {
        let mut readers = readers(Follow::All, 1);
        let mut bursts = Vec::new();
        for round in 0..8u64 {
            bursts.push(send(&mut readers, round * 1_000));
            let all = readers.next.to_wire();
            readers.on_report(round * 1_000 + 500, NodeId(1), &room(all));
        }
        assert_eq!(bursts[..4], [64, 256, 512, 1_024]);
        assert_eq!(bursts[7], 1_024, "the reader's window");
        readers.on_sent(5_000_000, 1);
        assert!(readers.room() < 256, "{}", readers.room());
    }

    #[test]
    fn the_budget_is_bounded_by_the_windows_of_the_readers_that_set_the_pace() {
        for (follow, expected) in
            [(Follow::All, 100), (Follow::Quorum(2), 1_024), (Follow::Quorum(3), 100), (Follow::Max, 1_024)]
        {
            let mut readers = readers(follow, 3);
            for round in 0..12u64 {
                send(&mut readers, round * 1_000);
                let all = readers.next.to_wire();
                for (id, window) in [(1, 1_024), (2, 1_024), (3, 100)] {
                    let report = Room { window, ..room(all) };
                    readers.on_report(round * 1_000 + 500, NodeId(id), &report);
                }
            }
            assert_eq!(readers.budget, expected, "{follow:?}");
        }
    }

    #[test]
    fn a_reader_that_is_left_behind_bounds_no_budget() {
        let mut readers = readers(Follow::All, 2);
        for round in 0..3_000u64 {
            let now_us = round * 1_000;
            let all = readers.next.to_wire();
            readers.on_report(now_us, NodeId(1), &room(all));
            if round == 0 {
                readers.on_report(now_us, NodeId(2), &Room { window: 100, ..room(all) });
            }
            send(&mut readers, now_us);
            readers.handle_timeout(now_us, &CONFIG, &mut |_, _| {});
        }
        assert_eq!(readers.budget, 1_024);
    }

    #[test]
    fn reports_are_asked_for_where_those_of_large_windows_are_too_rare_for_the_budget() {
        for (window, expected) in [(1_024, 0), (128, 4)] {
            let mut readers = readers(Follow::All, 2);
            readers.on_report(0, NodeId(1), &room(0));
            readers.on_report(0, NodeId(2), &Room { window, ..room(0) });
            (0..200).for_each(|_| readers.on_sent(0, 1));
            readers.on_report(0, NodeId(1), &room(200));
            readers.on_report(0, NodeId(2), &Room { window, ..room(200) });
            let budget = readers.budget;
            let asked = (1..=2 * budget).filter(|&number| {
                readers.on_sent(0, 1);
                let now_us = u64::from(number) * 2 * EARLY_US;
                let asks = readers.asks_early(now_us, None);
                assert!(
                    !asks || !readers.asks_early(now_us + 2 * EARLY_US - 1, Some(0)),
                    "not again so soon"
                );
                asks
            });
            assert_eq!(asked.count(), expected, "a budget of {budget}");
        }
    }

    #[test]
    fn packets_that_take_long_to_arrive_shrink_the_budget() {
        let mut readers = readers(Follow::All, 1);
        for round in 0..40u64 {
            send(&mut readers, round * 30_000);
            let all = readers.next.to_wire();
            readers.on_report(round * 30_000 + 25_000, NodeId(1), &room(all));
        }
        assert_eq!(readers.budget, 1_024 / BUDGET_PART);
    }

    #[test]
    fn false_reports_and_unknown_readers_change_nothing() {
        let mut readers = readers(Follow::All, 1);
        send(&mut readers, 0);
        readers.on_report(1, NodeId(9), &room(64));
        readers.on_report(2, NodeId(1), &room(65));
        assert_eq!(readers.room(), 0, "a reader cannot have settled what was not sent");
        readers.on_report(3, NodeId(1), &room(64));
        readers.on_report(4, NodeId(1), &room(3));
        assert_eq!(readers.outstanding(), 0, "a report that was overtaken");
    }

    #[test]
    fn a_reader_that_reports_nothing_is_left_behind_soon_and_one_that_stands_still_late() {
        let mut readers = readers(Follow::All, 2);
        readers.on_report(0, NodeId(2), &Room { window: START, ..room(0) });
        send(&mut readers, 0);
        let mut news = Vec::new();
        let mut now_us = 0;
        while news.len() < 4 {
            send(&mut readers, now_us);
            now_us = readers.next_due_us().unwrap();
            // Node 1 hears the requests for reports, and stands still.
            if readers
                .handle_timeout(now_us, &CONFIG, &mut |id, what| news.push((id.0, what, now_us / 1_000_000)))
            {
                readers.on_report(now_us, NodeId(1), &room(5));
            }
        }
        let (slow, silent, left) = (ReaderNews::Slow, ReaderNews::Silent, ReaderNews::LeftBehind);
        // Once the silent one is left behind, its window does not bound the budget. There is room again, so
        // that the wait for the other one begins at that time.
        assert_eq!(news, [(1, slow, 1), (2, slow, 1), (2, silent, 1), (1, left, 11)]);
        assert_eq!(readers.room(), u32::MAX, "nobody is left to follow");
        let all = readers.next.to_wire();
        assert_eq!(readers.on_report(now_us, NodeId(1), &room(all)), Some(ReaderNews::CaughtUp));
        assert!(readers.room() <= 1_024);
    }

    /// Answers the requests for reports of a time, as a reader that settles everything at once. Returns when
    /// each packet was sent.
    fn answer_until(readers: &mut Readers, end_us: u64, answers: &[NodeId]) -> Vec<u64> {
        let mut sent = Vec::new();
        while readers.next_due_us().is_some_and(|due_us| due_us < end_us) {
            let now_us = readers.next_due_us().unwrap();
            readers.handle_timeout(now_us, &CONFIG, &mut |id, what| panic!("{id}: {what:?} at {now_us}"));
            loop {
                let all = readers.next.to_wire();
                for &id in answers {
                    let _ = readers.on_report(now_us, id, &room(all));
                }
                let count = send(readers, now_us);
                sent.extend((0..count).map(|_| now_us));
                if count == 0 {
                    break;
                }
            }
        }
        sent
    }

    #[test]
    fn a_sender_runs_ahead_of_a_silent_reader_as_far_as_packets_are_kept_for_it() {
        let mut readers = readers(Follow::All, 2);
        readers.on_report(0, NodeId(2), &Room { window: START, ..room(0) });
        assert_eq!(send(&mut readers, 0), START);
        let sent = answer_until(&mut readers, 900_000, &[NodeId(1)]);
        assert_eq!(sent, [160_000; (AHEAD - START) as usize], "at once, and no further");
        assert_eq!((readers.outstanding(), readers.room()), (AHEAD.into(), 0), "all of it is kept");
        // Once it is heard, it is a reader like others, and silent for a time of its own.
        readers.on_report(900_000, NodeId(2), &room(AHEAD));
        assert!((1..=AHEAD).contains(&readers.room()), "{}", readers.room());
        send(&mut readers, 900_000);
        assert_eq!(answer_until(&mut readers, 1_000_000, &[NodeId(1)]), []);
    }

    #[test]
    fn a_sender_runs_ahead_of_no_reader_that_has_never_reported() {
        let mut readers = readers(Follow::All, 2);
        assert_eq!(send(&mut readers, 0), START);
        assert_eq!(answer_until(&mut readers, 900_000, &[NodeId(1)]), [], "it may have heard nothing");
    }

    #[test]
    fn a_reader_holds_nothing_from_before_the_first_position_that_it_can_have_begun_at() {
        let mut readers = readers(Follow::Max, 2);
        (0..1_000).for_each(|_| readers.on_sent(0, 1));
        let report = |position, newest| Room { newest, ..room(position) };
        // This one was heard from the start.
        readers.on_report(1, NodeId(1), &report(20, 40));
        readers.on_report(2, NodeId(1), &report(1_000, 999));
        readers.on_report(3, NodeId(2), &report(900, 950));
        assert_eq!([0, 899, 900].map(|seq| readers.holders(seq)), [1, 1, 1]);
        assert_eq!((readers.doubt(NodeId(1)), readers.doubt(NodeId(2))), (None, Some((0, 900))));
        readers.on_report(4, NodeId(2), &report(800, 950));
        assert_eq!([0, 799, 800, 899, 900].map(|seq| readers.holders(seq)), [1, 1, 2, 2, 1]);
        assert_eq!([2, 2, 2].map(|id| readers.doubt(NodeId(id))), [Some((0, 800)), Some((0, 800)), None]);
        // A reader that joins later is asked only about what it was sent.
        readers.set_members(5, [1, 2, 3].into_iter().map(NodeId));
        readers.on_sent(5, 1);
        readers.on_report(6, NodeId(3), &report(990, 1_000));
        readers.on_report(7, NodeId(3), &report(1_001, 1_000));
        assert_eq!((readers.doubt(NodeId(3)), readers.holders(995), readers.holders(1_000)), (None, 1, 1));
    }

    #[test]
    fn a_sender_that_hears_no_reader_runs_ahead_of_none() {
        let mut readers = readers(Follow::All, 2);
        send(&mut readers, 0);
        assert_eq!(answer_until(&mut readers, 900_000, &[]), [], "it may be cut off itself");
    }

    #[test]
    fn thin_groups_take_little_memory() {
        let mut all: Vec<Readers> = (0..1_000).map(|_| readers(Follow::All, 4)).collect();
        for readers in &mut all {
            (0..4).for_each(|at| readers.on_sent(at * 1_000_000, 1));
        }
        let bytes = |readers: &Readers| {
            readers.marks.capacity() * size_of::<(Seq, u64)>()
                + readers.readers.capacity() * size_of::<Reader>()
                + readers.scratch.capacity() * size_of::<(Seq, Seq)>()
        };
        let held: usize = all.iter().map(bytes).sum();
        assert!(held < 1_000 * 512, "{} bytes each", held / 1_000);
    }

    #[test]
    fn members_that_join_read_from_the_next_packet_on() {
        let mut readers = readers(Follow::All, 1);
        send(&mut readers, 0);
        readers.on_report(1, NodeId(1), &room(64));
        readers.set_members(1, [NodeId(2), NodeId(1)].into_iter());
        assert_eq!((readers.readers.len(), readers.room()), (2, START));
        readers.set_members(2, std::iter::empty());
        assert_eq!(readers.room(), u32::MAX);
    }
}
