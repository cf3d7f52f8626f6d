//! What repairs have not mended is asked for: of the holder that a digest names, of the sender, then of any member.

use hashbrown::HashMap;

use super::expiry::Expiry;
use super::peers::Peers;
use super::under_way::{Asked, UnderWay};
use super::{AskConfig, Node, Output, To};
use crate::buffer::PacketKey;
use crate::chance;
use crate::ids::{NodeId, RegionIndex, StreamKey};
use crate::limits::{Limits, Urgency};
use crate::tracker::Interval;
use crate::view::{Member, View};
use crate::wire::{Data, NAK_RANGES_MAX, Nak, NakView, Range};

/// Intervals dealt with in one turn.
const TURN_MAX: usize = 256;
/// Turns are so far apart at the least, in microseconds.
const TURN_US: u64 = 1_000;
/// Most packets of one interval asked for at a time; of a longer one the first so many are asked for and counted alone.
const RANGE_MAX: u64 = 256;
/// A longer interval is not asked for in smaller parts than this, or it would fall to pieces.
const LEAST: u32 = 64;
/// Where a peer's allowance is used up, the interval is looked at again so much later, in microseconds.
const WITHHELD_US: u64 = 10_000;
/// Packets looked up for one request, so that its answer takes no more than a moment, whatever it claims.
const ANSWER_MAX: u32 = 1_024;
/// Packets asked for that are remembered, so that none is asked for twice in a while.
const RECENT_MAX: usize = 4_096;

/// Requests for a packet come in rounds of so many at most, each to another node, and each only if the one before was
/// not answered in time: where requests and answers are lost too, one of a round gets through.
const ROUND: u8 = 4;
/// So many pauses between rounds are alike; after that each is twice as long as the one before.
const ROUNDS_ALIKE: u8 = 4;

/// What this node knows of packets that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Since when.
    pub(super) since_us: u64,
    /// When they are asked for next.
    due_us: u64,
    /// When they were asked for, if they were.
    asked: Option<Asked>,
    /// How often they were.
    tries: u8,
    /// When they are worthless, if they are taken to expire: then they are not asked for.
    pub(super) expires_us: Option<u64>,
}

/// The state of asking.
#[derive(Debug)]
pub(super) struct Asking {
    config: AskConfig,
    next_turn_us: Option<u64>,
    /// Nothing is given up for now.
    held: bool,
    /// What may be asked of each peer.
    limits: Limits,
    pub(super) expiry: Expiry,
    /// The nodes of the view, in order.
    present: Vec<NodeId>,
    due: Vec<(StreamKey, Interval<Mark>)>,
    requests: Vec<(NodeId, Range)>,
    under_way: UnderWay,
    peers: Peers,
    /// What holders were asked for by which digests came, and when.
    recent: HashMap<PacketKey, Asked>,
    swept_us: u64,
}

impl Asking {
    pub(super) fn new(config: &AskConfig, view: &View) -> Self {
        let mut asking = Self {
            config: *config,
            next_turn_us: None,
            held: false,
            limits: Limits::new(config.packets_per_second),
            expiry: Expiry::new(config.expires_after_us),
            present: Vec::new(),
            due: Vec::with_capacity(TURN_MAX),
            requests: Vec::with_capacity(TURN_MAX),
            under_way: UnderWay::new(config.holder_us, config.under_way_max),
            peers: Peers::new(config.under_way_max),
            recent: HashMap::with_capacity(2 * RECENT_MAX),
            swept_us: 0,
        };
        asking.change_view(view);
        asking
    }

    pub(super) fn change_view(&mut self, view: &View) {
        self.present.clear();
        self.present.extend(view.members().iter().map(Member::id));
    }

    /// The mark of packets whose successor has come: in a stream they cannot be far.
    pub(super) fn mark_of_gap(&self, now_us: u64, expires_us: Option<u64>) -> Mark {
        let wait_us = self.config.gap_us.unwrap_or(self.config.first_us);
        Mark { since_us: now_us, due_us: now_us + wait_us, asked: None, tries: 0, expires_us }
    }

    /// The mark of packets that a repair has named.
    pub(super) fn mark_of_name(&self, now_us: u64, expires_us: Option<u64>) -> Mark {
        let due_us = now_us + self.config.first_us;
        Mark { since_us: now_us, due_us, asked: None, tries: 0, expires_us }
    }

    /// Something is newly missing.
    pub(super) fn wake(&mut self, now_us: u64) {
        let (gap, name) = (self.mark_of_gap(now_us, None), self.mark_of_name(now_us, None));
        let due_us = self.next_us(&gap).min(self.next_us(&name)).min(self.expiry.soonest_us(now_us));
        self.next_turn_us = Some(self.next_turn_us.map_or(due_us, |turn_us| turn_us.min(due_us)));
    }

    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.next_turn_us
    }

    /// When something is to be done about packets with this mark.
    fn next_us(&self, mark: &Mark) -> u64 {
        let given_up_us = mark.since_us + self.config.give_up_us;
        if let Some(expires_us) = mark.expires_us {
            return expires_us.min(given_up_us);
        }
        if self.config.enabled { mark.due_us.min(given_up_us) } else { given_up_us }
    }

    /// A packet came on request.
    pub(super) fn answered(&mut self, now_us: u64, key: PacketKey, missed: Option<Mark>) {
        let asked = [missed.and_then(|mark| mark.asked), self.recent.remove(&key)].into_iter().flatten();
        let both = |one: Asked, other: Asked| Asked {
            first_us: one.first_us.min(other.first_us),
            last_us: one.last_us.max(other.last_us),
            whom: if one.last_us < other.last_us { other.whom } else { one.whom },
        };
        if let Some(asked) = asked.reduce(both) {
            self.peers.answered(asked.whom);
            self.under_way.came(now_us, key, asked);
        }
    }

    /// A peer has sent a repair or a request to this node.
    pub(super) fn heard(&mut self, peer: NodeId) {
        self.peers.heard(peer);
    }

    /// A packet came on request that had come before.
    pub(super) fn answered_again(&mut self, key: PacketKey) {
        self.under_way.came_again(key);
    }

    pub(super) fn round_trip_us(&self) -> Option<u64> {
        self.under_way.round_trip_us()
    }

    /// How long to wait after so many requests for a packet.
    fn wait_us(&self, tries: u8) -> u64 {
        let patience_us = self.under_way.patience_us();
        if !tries.is_multiple_of(ROUND) {
            return patience_us;
        }
        let pause_us = self.config.retry_us << (tries / ROUND).saturating_sub(ROUNDS_ALIKE).min(10);
        pause_us.max(patience_us)
    }

    /// Until when an answer is waited for, if one still is: by how long answers take now, which may be longer than they
    /// took when it was asked for.
    fn awaited_until_us(&self, now_us: u64, asked: Option<Asked>) -> Option<u64> {
        let until_us = asked?.last_us + self.under_way.patience_us();
        (until_us > now_us).then_some(until_us)
    }

    /// Whether a packet with this mark is under way.
    pub(super) fn awaits(&self, now_us: u64, mark: &Mark) -> bool {
        self.awaited_until_us(now_us, mark.asked).is_some()
    }

    fn was_asked_lately(&self, now_us: u64, key: PacketKey) -> bool {
        self.awaited_until_us(now_us, self.recent.get(&key).copied()).is_some()
    }

    /// Remembers that a packet is asked for; false if there is no room.
    fn remember(&mut self, now_us: u64, key: PacketKey, whom: NodeId) -> bool {
        let keep_us = self.config.retry_us.max(self.under_way.patience_us());
        if self.recent.len() >= RECENT_MAX && now_us.saturating_sub(self.swept_us) >= TURN_US {
            self.swept_us = now_us;
            self.recent.retain(|_, asked| asked.last_us + keep_us > now_us);
        }
        if self.recent.len() >= RECENT_MAX && !self.recent.contains_key(&key) {
            return false;
        }
        let new = Asked { first_us: now_us, last_us: now_us, whom };
        let asked = self.recent.entry(key).or_insert(new);
        (asked.last_us, asked.whom) = (now_us, whom);
        true
    }
}

impl Node {
    /// Whether nothing is to be given up for now, however long it has been missing: while packets wait that came and were
    /// not handed to this node, what is missing may be among them. Requests go on.
    pub fn hold_losses(&mut self, held: bool) {
        self.asking.held = held;
    }

    /// Asks for what has been missing for long enough, and gives up what was asked for in vain.
    pub(super) fn ask_due(&mut self, now_us: u64, out: &mut impl Output) {
        if self.asking.next_turn_us.is_none_or(|turn_us| turn_us > now_us) {
            return;
        }
        let (asking, tracker) = (&mut self.asking, &self.tracker);
        let mut due = std::mem::take(&mut asking.due);
        let mut next_us: Option<u64> = None;
        for (key, interval) in tracker.oldest() {
            let at_us = asking.next_us(&interval.mark);
            if at_us <= now_us && due.len() < TURN_MAX {
                due.push((key, interval));
            } else {
                next_us = Some(next_us.map_or(at_us, |next_us| next_us.min(at_us)));
            }
        }
        for (key, interval) in due.drain(..) {
            let after_us = self.ask_or_give_up(now_us, key, &interval);
            next_us = [next_us, after_us].into_iter().flatten().min();
        }
        self.asking.due = due;
        self.asking.peers.sweep(now_us, self.asking.under_way.patience_us());
        self.asking.next_turn_us = next_us.map(|next_us| next_us.max(now_us + TURN_US));
        self.send_requests(out);
    }

    /// Returns when to look at the interval again.
    fn ask_or_give_up(&mut self, now_us: u64, key: StreamKey, interval: &Interval<Mark>) -> Option<u64> {
        let mark = interval.mark;
        let config = self.asking.config;
        if now_us >= mark.since_us + config.give_up_us || mark.tries >= config.tries_max {
            if self.asking.held {
                return Some(now_us + config.retry_us);
            }
            self.tracker.give_up(key, interval.last);
            return None;
        }
        if mark.expires_us.is_some() {
            // Giving up takes all before it in its stream with it, which may be worth waiting for.
            if self.tracker.front(key).awaited < interval.first {
                return Some(now_us + config.retry_us);
            }
            self.tracker.give_up(key, interval.last);
            return None;
        }
        if let Some(until_us) = self.asking.awaited_until_us(now_us, mark.asked) {
            let later = Mark { due_us: until_us, ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.asking.next_us(&later));
        }
        self.ask(now_us, key, interval)
    }

    /// The same, of an interval that is to be asked for.
    fn ask(&mut self, now_us: u64, key: StreamKey, interval: &Interval<Mark>) -> Option<u64> {
        let mark = interval.mark;
        let wanted = (interval.last.0 - interval.first.0 + 1).min(RANGE_MAX) as u32;
        let room = self.asking.under_way.room(now_us);
        if room < wanted.min(LEAST).min(self.config.ask.under_way_max) {
            self.counts.put_off += 1;
            return Some(now_us);
        }
        let tries = mark.tries + 1;
        let whom = self.whom(now_us, key, tries);
        let of_peer = self.asking.peers.room(now_us, whom, self.asking.under_way.patience_us());
        if of_peer.packets < wanted.min(LEAST).min(of_peer.window).max(1) {
            self.counts.put_off += 1;
            let later = Mark { due_us: of_peer.again_us.max(now_us + TURN_US), ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.asking.next_us(&later));
        }
        // What was never asked for goes before what was.
        let first = Urgency::First { again_us: 2 * WITHHELD_US };
        let urgency = if mark.tries == 0 { first } else { Urgency::Later };
        let wanted = wanted.min(room).min(of_peer.packets);
        let count = self.asking.limits.take_most(now_us, whom, wanted, LEAST, urgency) as u16;
        self.counts.withheld += u64::from(wanted) - u64::from(count);
        if count == 0 {
            // Not asked for, so not tried.
            let later = Mark { due_us: now_us + WITHHELD_US, ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.asking.next_us(&later));
        }
        let first_us = mark.asked.map_or(now_us, |asked| asked.first_us);
        let asked = Some(Asked { first_us, last_us: now_us, whom });
        let mark = Mark { due_us: now_us + self.asking.wait_us(tries), asked, tries, ..mark };
        // What is not asked for now stays due, and is asked for in the next turn.
        self.tracker.mark_first(key, interval.first, u64::from(count), mark);
        self.asking.under_way.add(now_us, u32::from(count));
        self.asking.peers.asked(now_us, whom, u32::from(count));
        self.asking.requests.push((whom, Range { key, first: interval.first.to_wire(), count }));
        self.counts.asked += u64::from(count);
        self.counts.asked_again += if tries > 1 { u64::from(count) } else { 0 };
        let all = interval.first.plus(u64::from(count)) > interval.last;
        Some(if all { self.asking.next_us(&mark) } else { now_us })
    }

    /// Who is asked: first the sender, then others. One that is gone from the view is asked only every second time: it
    /// may be a sender that is no member, but is more likely dead. Instead of one that answers nothing, another.
    fn whom(&mut self, now_us: u64, key: StreamKey, tries: u8) -> NodeId {
        let sender_tries = self.asking.config.sender_tries;
        let is_present = self.asking.present.binary_search(&key.sender).is_ok();
        let sender =
            if is_present || sender_tries == 0 { tries <= sender_tries } else { tries.is_multiple_of(2) };
        let whom = if sender { key.sender } else { self.any_holder(key) };
        let patience_us = self.asking.under_way.patience_us();
        if !self.asking.peers.is_silent(now_us, whom, patience_us) {
            return whom;
        }
        let other = self.any_holder(key);
        if self.asking.peers.is_silent(now_us, other, patience_us) { whom } else { other }
    }

    /// A random member of the stream's group, its sender where there is no other.
    fn any_holder(&mut self, key: StreamKey) -> NodeId {
        let Some(group) = self.groups.index(key.group) else { return key.sender };
        let regions = self.bins.regions();
        let members = regions.group_size(group);
        if members == 0 {
            return key.sender;
        }
        let mut skip = chance::below(&mut self.rng, members);
        let of_group = |region: &RegionIndex| regions.groups(*region).binary_search(&group).is_ok();
        for region in regions.iter().filter(of_group) {
            let members = regions.members(region);
            match members.get(skip) {
                Some(&member) => return member,
                None => skip -= members.len(),
            }
        }
        key.sender
    }

    /// Sends the requests that were gathered, those to one node together.
    fn send_requests(&mut self, out: &mut impl Output) {
        let mut requests = std::mem::take(&mut self.asking.requests);
        requests.sort_unstable_by_key(|&(whom, _)| whom);
        for of_one in requests.chunk_by(|a, b| a.0 == b.0) {
            for some in of_one.chunks(NAK_RANGES_MAX) {
                let mut ranges = [some[0].1; NAK_RANGES_MAX];
                for (range, &(_, wanted)) in ranges.iter_mut().zip(some) {
                    *range = wanted;
                }
                let nak = Nak { from: self.config.id, ranges: &ranges[..some.len()] };
                let length = nak.write(&mut self.scratch);
                out.send(To::Node(some[0].0), &self.scratch[..length]);
                self.counts.requests_sent += 1;
                let packets = ranges[..some.len()].iter().map(|range| u64::from(range.count)).sum();
                self.tally.asked(some[0].0, packets, length);
            }
        }
        requests.clear();
        self.asking.requests = requests;
    }

    /// A digest came: its sender holds what we miss, and is asked at once.
    pub(super) fn ask_holder(
        &mut self,
        now_us: u64,
        holder: NodeId,
        keys: impl Iterator<Item = PacketKey>,
        out: &mut impl Output,
    ) {
        for key in keys {
            if key.stream.sender == self.config.id || self.asking.was_asked_lately(now_us, key) {
                continue;
            }
            if self.asking.limits.take(now_us, holder, 1) == 0 {
                self.counts.withheld += 1;
                continue;
            }
            if !self.asking.remember(now_us, key, holder) {
                self.counts.withheld += 1;
                continue;
            }
            self.asking.requests.push((holder, Range { key: key.stream, first: key.seq, count: 1 }));
            self.counts.asked += 1;
        }
        self.send_requests(out);
    }

    /// Somebody asks for packets: those held here are sent again, as far as its allowance goes.
    pub(super) fn answer(&mut self, now_us: u64, nak: &NakView<'_>, out: &mut impl Output) {
        if nak.from == self.config.id {
            return self.counts.own += 1;
        }
        self.asking.heard(nak.from);
        let mut left = ANSWER_MAX;
        for range in nak.ranges() {
            let count = u32::from(range.count).min(left);
            left -= count;
            self.counts.refused += u64::from(u32::from(range.count) - count);
            for step in 0..count {
                let key = PacketKey { stream: range.key, seq: range.first.wrapping_add(step) };
                let Some((_, symbol)) = self.buffer.held(key).and_then(|id| self.buffer.packet(id)) else {
                    self.counts.not_held += 1;
                    continue;
                };
                let Ok(data) = Data::from_symbol(key.name(), key.stream.group, symbol) else { continue };
                self.tally.wanted(nak.from);
                if self.answers.take(now_us, nak.from, 1) == 0 {
                    self.counts.refused += 1;
                    continue;
                }
                let length = data.write_again(&mut self.scratch);
                out.send(To::Node(nak.from), &self.scratch[..length]);
                self.counts.answered += 1;
                self.tally.answered(nak.from, length);
            }
        }
    }
}
