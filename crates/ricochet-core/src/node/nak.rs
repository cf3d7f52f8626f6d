//! NAKs: requests for the packets that repairs have not recovered, and answers to the requests of others.
//!
//! A request goes to the node whose digest names the packet, else to the packet's sender, and at last to any
//! member.

use foundation::Seq;

use super::Node;
use super::denials::{Denied, SWEEP_MAX};
use super::in_flight::Requested;
use super::neighbours::all_members;
use super::questions::TRIES_IN_VAIN;
use super::requester::{Mark, Requester, TURN_MAX, TURN_US};
use crate::buffer::PacketKey;
use crate::chance;
use crate::counters::GivenUp;
use crate::ids::{GroupId, NodeId, RegionIndex, StreamKey};
use crate::limits::{Claim, Urgency};
use crate::message::{Origin, Output, To};
use crate::tracker::Interval;
use crate::wire::{Data, Kind, NAK_RANGES_MAX, Nak, NakView, Range};

/// Maximum number of packets of one interval requested at a time. Of a longer interval the first packets are
/// requested and marked by themselves.
const RANGE_MAX: u64 = 256;
/// Smallest part in which a longer interval is requested, to keep it from falling into small pieces.
const PART_MIN: u32 = 64;
/// Time until an interval is looked at again when the allowance of its holder is used up, in microseconds.
const WITHHELD_US: u64 = 10_000;
/// Maximum number of packets looked up for one request, which bounds the time of its answer.
const ANSWER_MAX: u32 = 1_024;
/// Bytes that a node that is no member gets, as a multiple of the bytes of its request.
const STRANGER_FACTOR: usize = 3;
/// Account of all strangers together.
const STRANGERS: NodeId = NodeId(0);

impl Node {
    /// Sets whether packets are kept from being given up, however long they have been missing. A driver sets
    /// it while it holds back packets that arrived, because those may include the missing ones. Requests go
    /// on meanwhile.
    pub fn hold_losses(&mut self, held: bool) {
        self.requester.holds_losses = held;
    }

    /// Sets how long a missing packet of a group is awaited if its sender marked it as expiring, in
    /// microseconds.
    ///
    /// `None` restores `expires_after_us` of [`NakConfig`](super::NakConfig). The setting is forgotten when
    /// this node leaves the group. Returns false if this node is not in the group.
    pub fn set_lifetime(&mut self, group: GroupId, after_us: Option<u64>) -> bool {
        let is_ours = self.groups.index(group).is_some();
        self.requester.expiry.set_lifetime(group, after_us.filter(|_| is_ours));
        is_ours
    }

    /// Requests the packets that have been missing for long enough, and gives up those that were requested in
    /// vain.
    pub(super) fn request_due(&mut self, now_us: u64, out: &mut impl Output) {
        if self.requester.next_turn_us.is_none_or(|turn_us| turn_us > now_us) {
            return;
        }
        let (requester, tracker) = (&mut self.requester, &self.tracker);
        let mut due = std::mem::take(&mut requester.due);
        let mut next_us: Option<u64> = None;
        for (key, interval) in tracker.oldest() {
            let at_us = requester.next_us(&interval.mark);
            if at_us <= now_us && due.len() < TURN_MAX {
                due.push((key, interval));
            } else {
                next_us = Some(next_us.map_or(at_us, |next_us| next_us.min(at_us)));
            }
        }
        for (key, interval) in due.drain(..) {
            let after_us = self.request_or_give_up(now_us, key, &interval);
            next_us = [next_us, after_us].into_iter().flatten().min();
        }
        self.requester.due = due;
        self.requester.holders.sweep(now_us, self.requester.in_flight.patience_us());
        self.requester.next_turn_us = next_us.map(|next_us| next_us.max(now_us + TURN_US));
        self.send_naks(out);
    }

    /// Handles an interval that is due; returns when to look at it again.
    fn request_or_give_up(&mut self, now_us: u64, key: StreamKey, interval: &Interval<Mark>) -> Option<u64> {
        let mark = interval.mark;
        let config = self.requester.config;
        if now_us >= mark.since_us + config.give_up_us {
            if self.requester.holds_losses {
                return Some(now_us + config.retry_us);
            }
            if !self.may_give_up(now_us, key, interval.last) {
                return Some(now_us + self.question_interval_us());
            }
            self.tracker.give_up(key, interval.last);
            return None;
        }
        if let Some(lapse) = mark.lapse.filter(|lapse| lapse.forbids_requests(now_us)) {
            // Giving up an interval gives up all earlier ones of its stream too, which may be worth waiting
            // for.
            if self.tracker.front(key).awaited < interval.first {
                return Some(now_us + config.retry_us);
            }
            if !self.may_give_up(now_us, key, interval.last) {
                return Some(now_us + self.question_interval_us());
            }
            let reason = if lapse.is_requested { GivenUp::Expired } else { GivenUp::Unanswered };
            self.tracker.give_up_for(key, interval.last, reason);
            return None;
        }
        if let Some(until_us) = self.requester.awaited_until_us(now_us, mark.requested) {
            let later = Mark { due_us: until_us, ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.requester.next_us(&later));
        }
        self.request(now_us, key, interval)
    }

    /// Requests an interval as far as the limits allow; returns when to look at it again.
    fn request(&mut self, now_us: u64, key: StreamKey, interval: &Interval<Mark>) -> Option<u64> {
        let mut mark = interval.mark;
        if mark.tries >= self.requester.config.tries_max {
            // An answer, a repair or a digest may still come.
            let later = Mark { due_us: mark.since_us + self.requester.config.give_up_us, ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.requester.next_us(&later));
        }
        if Requester::is_after_pause(&mark) {
            mark.denied = 0;
        }
        let wanted = (interval.last.0 - interval.first.0 + 1).min(RANGE_MAX) as u32;
        self.requester.in_flight.expire(now_us);
        let room = self.requester.in_flight.room();
        if room < wanted.min(PART_MIN).min(self.config.nak.in_flight_max) {
            self.counts.put_off += 1;
            return Some(now_us);
        }
        let tries = mark.tries + 1;
        if tries.is_multiple_of(TRIES_IN_VAIN) && !self.tracker.is_verified(key, interval.last) {
            self.questions.want(key);
        }
        let holder = match self.choose_holder(now_us, key, interval.first, &mark) {
            Ok(holder) => holder,
            Err(end) => return self.on_all_denied(now_us, key, interval, end),
        };
        let patience_us = self.requester.in_flight.patience_us();
        self.requester.holders.settle(now_us, holder, patience_us);
        let of_holder = self.requester.holders.room(now_us, holder, patience_us);
        if of_holder.packets < wanted.min(PART_MIN).min(of_holder.quota).max(1) {
            self.counts.put_off += 1;
            let later = Mark { due_us: of_holder.again_us.max(now_us + TURN_US), ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.requester.next_us(&later));
        }
        // Packets that were never requested go before those that were.
        let first = Urgency::First { again_us: 2 * WITHHELD_US };
        let urgency = if mark.tries == 0 { first } else { Urgency::Later };
        let wanted = wanted.min(room).min(of_holder.packets);
        let claim = Claim { wanted, least: PART_MIN, urgency };
        let count = self.requester.limits.take_part(now_us, holder, claim) as u16;
        self.counts.withheld += u64::from(wanted) - u64::from(count);
        if count == 0 {
            // Nothing was requested, so this does not count as a try.
            let later = Mark { due_us: now_us + WITHHELD_US, ..mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.requester.next_us(&later));
        }
        let first_us = mark.requested.map_or(now_us, |requested| requested.first_us);
        let requested = Some(Requested { first_us, last_us: now_us, holder });
        let mark = Mark { due_us: now_us + self.requester.wait_us(tries), requested, tries, ..mark };
        // The rest of the interval stays due, and is requested in the next turn.
        self.tracker.mark_first(key, interval.first, u64::from(count), mark);
        self.requester.in_flight.on_requested(now_us, u32::from(count));
        self.requester.holders.on_requested(now_us, holder, u32::from(count));
        self.requester.gathered.push((holder, Range { key, first: interval.first.to_wire(), count }));
        self.counts.asked += u64::from(count);
        self.counts.asked_again += if tries > 1 { u64::from(count) } else { 0 };
        let all = interval.first.plus(u64::from(count)) > interval.last;
        Some(if all { self.requester.next_us(&mark) } else { now_us })
    }

    /// Chooses the node for a request: first the sender, then other members.
    ///
    /// A sender that the view lacks gets only every second request: it may be a sender that is no member, or
    /// cut off, but is more likely dead. A silent node is replaced by another, and so is one that has denied
    /// the packet at `first`.
    ///
    /// # Errors
    /// If all have: the position up to which each of them has denied the packets.
    fn choose_holder(&mut self, now_us: u64, key: StreamKey, first: Seq, mark: &Mark) -> Result<NodeId, Seq> {
        let tries = mark.tries + 1;
        let sender_tries = self.requester.config.sender_tries;
        let is_present = self.requester.is_present(key.sender);
        let is_turn =
            if is_present || sender_tries == 0 { tries <= sender_tries } else { tries.is_multiple_of(2) };
        let is_sender = is_turn && !self.requester.denials.has_left(key.sender);
        let chosen = if is_sender { key.sender } else { self.random_holder(key) };
        let is_swept = mark.denied >= SWEEP_MAX;
        if is_swept || self.requester.denials.end(now_us, key, chosen, first).is_some() {
            let other = self.holder_without_denial(now_us, key, first, is_swept)?;
            return Ok(other.unwrap_or(chosen));
        }
        let patience_us = self.requester.in_flight.patience_us();
        self.requester.holders.settle(now_us, chosen, patience_us);
        if !self.requester.holders.is_silent(chosen) {
            return Ok(chosen);
        }
        let other = self.random_holder(key);
        if self.requester.denials.end(now_us, key, other, first).is_some() {
            return Ok(chosen);
        }
        self.requester.holders.settle(now_us, other, patience_us);
        Ok(if self.requester.holders.is_silent(other) { chosen } else { other })
    }

    /// Returns a node that has not denied a packet: a member, or the sender if all members have, or if as
    /// many were asked as it takes (`is_swept`). `None` if there is no member at all.
    fn holder_without_denial(
        &mut self,
        now_us: u64,
        key: StreamKey,
        first: Seq,
        is_swept: bool,
    ) -> Result<Option<NodeId>, Seq> {
        let Some(group) = self.groups.index(key.group) else { return Ok(None) };
        let regions = all_members(self.members.as_ref(), &self.bins);
        let start = chance::below(&mut self.rng, regions.group_size(group).max(1));
        let of_group = |region: &RegionIndex| regions.groups(*region).binary_search(&group).is_ok();
        let members = || regions.iter().filter(of_group).flat_map(|region| regions.members(region)).copied();
        // The sender may be alive although the view lacks it: it may be cut off.
        let sender = Some(key.sender).filter(|&sender| !self.requester.denials.has_left(sender));
        let others = members().skip(start).chain(members().take(start)).filter(|&node| node != key.sender);
        let mut end: Option<Seq> = None;
        for node in others.chain(sender) {
            match self.requester.denials.end(now_us, key, node, first) {
                None if is_swept && node != key.sender => {}
                None => return Ok(Some(node)),
                Some(denied) => end = Some(end.map_or(denied, |end| end.min(denied))),
            }
        }
        end.map_or(Ok(None), Err)
    }

    /// Makes the missing packets due of senders that the view has got: they may have been cut off, and left
    /// requests unanswered.
    pub(super) fn request_of_returned(&mut self, returned: &[NodeId]) {
        let was_requested = |(key, interval): &(StreamKey, Interval<Mark>)| {
            interval.mark.tries > 0 && returned.binary_search(&key.sender).is_ok()
        };
        let due: Vec<_> = self.tracker.oldest().filter(was_requested).collect();
        for (key, Interval { first, mark, .. }) in due {
            let due_us = mark.due_us.min(mark.since_us);
            self.tracker.mark(key, first, Mark { due_us, tries: 0, denied: 0, ..mark });
            self.requester.look_again(due_us);
        }
    }

    /// Returns a random member of the stream's group, or its sender if there is no other.
    fn random_holder(&mut self, key: StreamKey) -> NodeId {
        let Some(group) = self.groups.index(key.group) else { return key.sender };
        let regions = all_members(self.members.as_ref(), &self.bins);
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

    /// Sends the gathered requests, those to one node together.
    fn send_naks(&mut self, out: &mut impl Output) {
        let mut gathered = std::mem::take(&mut self.requester.gathered);
        gathered.sort_unstable_by_key(|&(holder, _)| holder);
        for of_one in gathered.chunk_by(|a, b| a.0 == b.0) {
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
                self.tally.on_nak_sent(some[0].0, packets, length);
            }
        }
        gathered.clear();
        self.requester.gathered = gathered;
    }

    /// Requests packets at once from the sender of a digest, which holds them.
    pub(super) fn request_from(
        &mut self,
        now_us: u64,
        holder: NodeId,
        keys: impl Iterator<Item = PacketKey>,
        out: &mut impl Output,
    ) {
        for key in keys {
            if key.stream.sender == self.config.id || self.requester.is_recent(now_us, key) {
                continue;
            }
            if self.requester.limits.take(now_us, holder, 1) == 0 {
                self.counts.withheld += 1;
                continue;
            }
            if !self.requester.remember(now_us, key, holder) {
                self.counts.withheld += 1;
                continue;
            }
            self.requester.gathered.push((holder, Range { key: key.stream, first: key.seq, count: 1 }));
            self.counts.asked += 1;
        }
        self.send_naks(out);
    }

    /// Handles a request: retransmits the packets held here, as far as the requester's allowance goes.
    ///
    /// The address of a stranger may be forged. So it gets at most three times the bytes that it sent, as RFC
    /// 9000 §8 limits what goes to an address that is not validated.
    pub(super) fn handle_nak(
        &mut self,
        now_us: u64,
        origin: Origin,
        nak: &NakView<'_>,
        out: &mut impl Output,
    ) {
        if nak.from == self.config.id {
            return self.counts.own += 1;
        }
        let is_member = origin == Origin::Member;
        let mut bytes_left =
            if is_member { usize::MAX } else { STRANGER_FACTOR * (nak.wire_len() + self.config.trailer) };
        if is_member {
            self.requester.on_heard(nak.from);
        }
        let mut left = ANSWER_MAX;
        let mut denied = Denied::new(nak);
        for range in nak.ranges() {
            // Packets at the beginning of the range that are not held.
            let mut missing = 0;
            let count = u32::from(range.count).min(left);
            left -= count;
            self.counts.refused += u64::from(u32::from(range.count) - count);
            let mut before = None;
            for step in 0..count {
                let key = PacketKey { stream: range.key, seq: range.first.wrapping_add(step) };
                let id = self.buffer.covering(key);
                if id.is_some() && id == std::mem::replace(&mut before, id) {
                    continue;
                }
                let Some((key, symbol)) = id.and_then(|id| self.buffer.packet(id)) else {
                    self.counts.not_held += 1;
                    missing += u16::from(u32::from(missing) == step);
                    continue;
                };
                let Ok(data) = Data::from_symbol(key.name(), key.stream.group, symbol) else { continue };
                let granted = if is_member {
                    self.tally.on_wanted(nak.from);
                    self.answers.take(now_us, nak.from, 1)
                } else {
                    self.stranger_answers.take(now_us, STRANGERS, 1)
                };
                let cost = data.wire_len() + self.config.trailer;
                if granted == 0 || cost > bytes_left {
                    self.counts.refused += 1;
                    continue;
                }
                bytes_left -= cost;
                let length = data.write_retransmission(&mut self.scratch);
                out.send(To::Node(nak.from), &self.scratch[..length]);
                self.counts.answered += 1;
                if is_member {
                    self.tally.on_retransmission_sent(nak.from, length);
                } else {
                    self.tally.sent.add(Kind::Retransmission, length);
                }
            }
            denied.add(range, missing);
        }
        if is_member {
            self.send_denial(nak.from, &denied, out);
        }
    }
}
