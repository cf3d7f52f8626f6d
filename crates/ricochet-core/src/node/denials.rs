//! Denials: a node that is asked for packets tells which of them it does not hold.
//!
//! The node that asked then turns to another node at once, so a denied request does not count as a try. A
//! packet that every node denies is given up, and the application learns of it long before the time for
//! missing packets is over. A node that was cut off for longer than the others keep packets thus gets what is
//! left, without asking in vain.
//!
//! A sender also denies packets that a reader was sent, may have heard nothing of, and has not requested
//! (`flow.rs`).
//!
//! A sender that does not answer may hold the packet. It may be cut off, even if the membership has declared
//! it dead. Therefore its packets are awaited for the whole time, and requested of it after longer and longer
//! pauses. A sender that has left for good does not count.

use std::collections::VecDeque;

use foundation::Seq;
use hashbrown::HashMap;

use super::Node;
use super::requester::Mark;
use crate::counters::GivenUp;
use crate::ids::{NodeId, StreamKey};
use crate::message::{Origin, Output, To};
use crate::tracker::Interval;
use crate::wire::{Kind, NAK_RANGES_MAX, Nak, NakView, Range};

/// Maximum number of denials that are remembered, one for each block of packets of each node and stream.
const DENIALS_MAX: usize = 4_096;
/// Packets in a block.
const BLOCK: u64 = 64;
/// Maximum number of packets of a denial that are looked at, as many as are requested at a time.
const RANGE_MAX: u64 = 256;
/// Time for which a denial counts, in microseconds. The node may receive the packets later.
const VALID_US: u64 = 300_000;
/// Time for which packets are missing before they are given up because of denials, in microseconds. In this
/// time, packets that arrived everywhere have been processed everywhere.
const MISSING_US: u64 = 500_000;
/// Shortest time until nodes that all denied a packet are asked again, in microseconds.
const AGAIN_US: u64 = 50_000;
/// Number of nodes whose denials count as those of all nodes, except for the sender. It bounds the requests
/// for a packet in a large group.
pub(super) const SWEEP_MAX: u8 = 64;
/// Maximum number of nodes that are remembered after they have left.
const LEFT_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Denial {
    /// Bits of the denied packets of the block.
    packets: u64,
    /// Time of the first of them.
    at_us: u64,
}

/// Packets that other nodes do not hold.
#[derive(Debug)]
pub(super) struct Denials {
    by_block: HashMap<(StreamKey, NodeId, u64), Denial>,
    /// The nodes that have left last.
    left: VecDeque<NodeId>,
}

impl Denials {
    pub(super) fn new() -> Self {
        Self { by_block: HashMap::with_capacity(2 * DENIALS_MAX), left: VecDeque::with_capacity(LEFT_MAX) }
    }

    /// Notes that a node has left for good.
    pub(super) fn on_left(&mut self, node: NodeId) {
        if self.left.len() == LEFT_MAX {
            self.left.pop_front();
        }
        self.left.push_back(node);
    }

    /// Returns whether a node has left for good.
    pub(super) fn has_left(&self, node: NodeId) -> bool {
        self.left.contains(&node)
    }

    /// Remembers that a node denies the packets from `first` on, up to `end`; returns false if there is no
    /// room.
    fn add(&mut self, now_us: u64, key: StreamKey, node: NodeId, first: Seq, end: Seq) -> bool {
        let mut at = first.0;
        while at < end.0 {
            let (block, offset) = (at / BLOCK, at % BLOCK);
            let count = (BLOCK - offset).min(end.0 - at);
            let packets = (u64::MAX >> (BLOCK - count)) << offset;
            if !self.add_to_block(now_us, (key, node, block), packets) {
                return false;
            }
            at += count;
        }
        true
    }

    fn add_to_block(&mut self, now_us: u64, block: (StreamKey, NodeId, u64), packets: u64) -> bool {
        if self.by_block.len() >= DENIALS_MAX && !self.by_block.contains_key(&block) {
            self.by_block.retain(|_, denial| now_us < denial.at_us + VALID_US);
            if self.by_block.len() >= DENIALS_MAX {
                return false;
            }
        }
        let denial = self.by_block.entry(block).or_insert(Denial { packets: 0, at_us: now_us });
        if now_us >= denial.at_us + VALID_US {
            *denial = Denial { packets: 0, at_us: now_us };
        }
        denial.packets |= packets;
        true
    }

    /// Returns the position after the last packet, from `first` on, that a node has denied.
    pub(super) fn end(&self, now_us: u64, key: StreamKey, node: NodeId, first: Seq) -> Option<Seq> {
        let mut at = first.0;
        while at < first.0 + RANGE_MAX {
            let offset = at % BLOCK;
            let denial = self.by_block.get(&(key, node, at / BLOCK));
            let valid = denial.filter(|denial| now_us < denial.at_us + VALID_US);
            let count = valid.map_or(0, |denial| (denial.packets >> offset).trailing_ones());
            at += u64::from(count);
            if u64::from(count) < BLOCK - offset {
                break;
            }
        }
        (at > first.0).then_some(Seq(at))
    }
}

/// Denials of one request, until they are sent.
pub(super) struct Denied {
    ranges: [Range; NAK_RANGES_MAX],
    count: usize,
}

impl Denied {
    pub(super) fn new(nak: &NakView<'_>) -> Self {
        let mut ranges = nak.ranges();
        let any = ranges.next().expect("a request has a range");
        Self { ranges: [any; NAK_RANGES_MAX], count: 0 }
    }

    /// Adds the first `count` packets of a requested range.
    pub(super) fn add(&mut self, range: Range, count: u16) {
        if count > 0 && self.count < NAK_RANGES_MAX {
            self.ranges[self.count] = Range { count, ..range };
            self.count += 1;
        }
    }
}

impl Node {
    /// Tells a member which of the requested packets are not held here. Says nothing while packets that
    /// arrived wait to be processed: the requested ones may be among them.
    pub(super) fn send_denial(&mut self, to: NodeId, denied: &Denied, out: &mut impl Output) {
        if denied.count == 0 || self.requester.holds_losses {
            return;
        }
        let denial = Nak { from: self.config.id, ranges: &denied.ranges[..denied.count] };
        let length = denial.write_denial(&mut self.scratch);
        out.send(To::Node(to), &self.scratch[..length]);
        self.counts.denials_sent += 1;
        self.tally.sent.add(Kind::Denial, length);
    }

    /// Handles the news that a member does not hold packets that it was asked for.
    pub(super) fn handle_denial(
        &mut self,
        now_us: u64,
        origin: Origin,
        denial: &NakView<'_>,
        out: &mut impl Output,
    ) {
        if denial.from == self.config.id {
            return self.counts.own += 1;
        }
        if origin != Origin::Member {
            return self.counts.strangers += 1;
        }
        self.requester.on_heard(denial.from);
        for range in denial.ranges() {
            let Some(highest) = self.tracker.highest(range.key) else { continue };
            let first = Seq::from_wire(range.first, highest);
            let end = first.plus(u64::from(range.count).min(RANGE_MAX));
            self.ask_others(now_us, range.key, denial.from, first, end);
            if denial.from == range.key.sender {
                self.tell_beginning(now_us, range, out);
            }
        }
        self.requester.look_again(now_us);
    }

    /// Remembers which missing packets a node has denied, and makes those due that it was asked for.
    fn ask_others(&mut self, now_us: u64, key: StreamKey, from: NodeId, first: Seq, end: Seq) {
        let mut at = first;
        while at < end {
            let is_next = |interval: &Interval<Mark>| at <= interval.last && interval.first < end;
            let Some(interval) = self.tracker.missing(key).find(is_next) else { break };
            let (start, stop) = (interval.first.max(at), interval.last.plus(1).min(end));
            let is_known = self.requester.denials.add(now_us, key, from, start, stop);
            at = stop;
            let requested = interval.mark.requested.filter(|requested| requested.holder == from);
            // Requests are marked by themselves, so an interval that was requested begins in the range.
            let Some(requested) = requested.filter(|_| start == interval.first) else { continue };
            let count = stop.0 - start.0;
            self.requester.in_flight.on_denied(requested, count);
            self.requester.holders.on_denied(from, count);
            // If the denial cannot be remembered, the request counts, which bounds the requests.
            let mark = Mark {
                due_us: now_us,
                requested: None,
                tries: interval.mark.tries.saturating_sub(is_known.into()),
                denied: interval.mark.denied.saturating_add(1),
                ..interval.mark
            };
            self.tracker.mark_first(key, start, count, mark);
        }
    }

    /// Notes that a node has left for good: nobody can get packets from it any more.
    pub fn on_left(&mut self, node: NodeId) {
        self.requester.denials.on_left(node);
    }

    /// Handles an interval whose first packets all nodes deny, up to `end`: gives them up if they have been
    /// missing for long enough. Returns when to look again.
    pub(super) fn on_all_denied(
        &mut self,
        now_us: u64,
        key: StreamKey,
        interval: &Interval<Mark>,
        end: Seq,
    ) -> Option<u64> {
        let last = end.minus(1).min(interval.last);
        let is_first = self.tracker.front(key).awaited >= interval.first;
        let is_old = now_us >= interval.mark.since_us + MISSING_US;
        if !is_first || !is_old || self.requester.holds_losses || !self.may_give_up(now_us, key, last) {
            let again_us = AGAIN_US.max((now_us - interval.mark.since_us) / 8);
            let later = Mark { due_us: now_us + again_us, denied: 0, ..interval.mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.requester.next_us(&later));
        }
        self.tracker.give_up_for(key, last, GivenUp::Gone);
        let next = self.tracker.missing(key).next().filter(|next| next.mark.requested.is_none());
        if let Some(Interval { first, mark, .. }) = next {
            // It may have waited for this one.
            self.tracker.mark(key, first, Mark { due_us: mark.due_us.min(now_us), ..mark });
        }
        Some(now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GroupId;

    const KEY: StreamKey = StreamKey { sender: NodeId(1), group: GroupId(7) };
    const NODE: NodeId = NodeId(2);

    #[test]
    fn denials_of_scattered_packets_are_remembered_for_a_while() {
        let mut denials = Denials::new();
        let end = |denials: &Denials, now_us, first| denials.end(now_us, KEY, NODE, Seq(first));
        for (first, end) in [(10, 11), (20, 30), (60, 200), (130, 140)] {
            assert!(denials.add(1_000, KEY, NODE, Seq(first), Seq(end)));
        }
        assert_eq!([9, 11, 30, 59, 200].map(|first| end(&denials, 2_000, first)), [None; 5]);
        assert_eq!([10, 25, 60, 199].map(|first| end(&denials, 2_000, first).unwrap().0), [11, 30, 200, 200]);
        assert_eq!(denials.end(2_000, KEY, NodeId(3), Seq(10)), None);
        // A later denial does not extend the time of an earlier one.
        assert!(denials.add(200_000, KEY, NODE, Seq(12), Seq(13)));
        assert_eq!([10, 12].map(|first| end(&denials, 1_000 + VALID_US, first)), [None; 2]);
        assert!(denials.add(1_000 + VALID_US, KEY, NODE, Seq(12), Seq(13)));
        assert_eq!(end(&denials, 1_001 + VALID_US, 10), None);
        assert_eq!(end(&denials, 1_001 + VALID_US, 12), Some(Seq(13)));
    }

    #[test]
    fn a_flood_of_denials_is_bounded() {
        let mut denials = Denials::new();
        let kept = (0..10_000)
            .filter(|&block| denials.add(0, KEY, NODE, Seq(block * BLOCK), Seq(block * BLOCK + 1)));
        assert_eq!(kept.count(), DENIALS_MAX);
        assert!(denials.add(VALID_US, KEY, NODE, Seq(BLOCK * 20_000), Seq(BLOCK * 20_000 + 1)));
        (0..1_000).for_each(|node| denials.on_left(NodeId(node)));
        assert!(
            denials.has_left(NodeId(999)) && !denials.has_left(NodeId(0)) && denials.left.len() == LEFT_MAX
        );
    }
}
