//! Denials: a node that is asked for packets tells which of them it does not hold.
//!
//! The node that asked then turns to another node at once. A packet that every node denies is given up, and
//! the application learns of it long before the time for missing packets is over. A node that was cut off for
//! longer than the others keep packets thus gets what is left, without asking in vain.

use foundation::Seq;
use hashbrown::HashMap;

use super::Node;
use super::requester::Mark;
use crate::counters::GivenUp;
use crate::ids::{NodeId, StreamKey};
use crate::message::{Origin, Output, To};
use crate::tracker::Interval;
use crate::wire::{Kind, NAK_RANGES_MAX, Nak, NakView, Range};

/// Maximum number of denials that are remembered, one for each node and stream.
const DENIALS_MAX: usize = 4_096;
/// Time for which a denial counts, in microseconds. The node may receive the packets later.
const VALID_US: u64 = 300_000;
/// Time for which packets are missing before they are given up because of denials, in microseconds. In this
/// time, packets that arrived everywhere have been processed everywhere.
const MISSING_US: u64 = 500_000;
/// Time until nodes that all denied a packet are asked again, in microseconds.
const AGAIN_US: u64 = 50_000;

#[derive(Clone, Copy, Debug)]
struct Denial {
    first: Seq,
    /// Position after the last packet denied.
    end: Seq,
    at_us: u64,
}

/// Packets that other nodes do not hold.
#[derive(Debug)]
pub(super) struct Denials {
    by_node: HashMap<(StreamKey, NodeId), Denial>,
}

impl Denials {
    pub(super) fn new() -> Self {
        Self { by_node: HashMap::with_capacity(2 * DENIALS_MAX) }
    }

    fn add(&mut self, key: StreamKey, node: NodeId, new: Denial) {
        if self.by_node.len() >= DENIALS_MAX && !self.by_node.contains_key(&(key, node)) {
            self.by_node.retain(|_, denial| new.at_us < denial.at_us + VALID_US);
            if self.by_node.len() >= DENIALS_MAX {
                return;
            }
        }
        let denial = self.by_node.entry((key, node)).or_insert(new);
        let touches =
            denial.at_us + VALID_US > new.at_us && denial.first <= new.end && new.first <= denial.end;
        *denial = match touches {
            true => Denial { first: denial.first.min(new.first), end: denial.end.max(new.end), ..new },
            false => new,
        };
    }

    /// Returns the position after the last packet, from `first` on, that a node has denied.
    pub(super) fn end(&self, now_us: u64, key: StreamKey, node: NodeId, first: Seq) -> Option<Seq> {
        let denial = self.by_node.get(&(key, node))?;
        let covers = denial.first <= first && first < denial.end && now_us < denial.at_us + VALID_US;
        covers.then_some(denial.end)
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
    pub(super) fn handle_denial(&mut self, now_us: u64, origin: Origin, denial: &NakView<'_>) {
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
            let end = first.plus(range.count.into());
            self.requester.denials.add(range.key, denial.from, Denial { first, end, at_us: now_us });
            self.ask_others(now_us, range.key, denial.from, first, end);
        }
        self.requester.look_again(now_us);
    }

    /// Makes packets due that a node has denied.
    fn ask_others(&mut self, now_us: u64, key: StreamKey, from: NodeId, first: Seq, end: Seq) {
        let was_asked = |interval: &Interval<Mark>| {
            let requested = interval.mark.requested;
            first <= interval.first
                && interval.first < end
                && requested.is_some_and(|requested| requested.holder == from)
        };
        // Requests are marked by themselves, so a denied range is one interval, or few.
        loop {
            let next = self.tracker.missing(key).find(was_asked);
            let Some(interval) = next else { break };
            let count = interval.last.plus(1).min(end).0 - interval.first.0;
            if let Some(requested) = interval.mark.requested {
                self.requester.in_flight.on_denied(requested, count);
                self.requester.holders.on_denied(from, count);
            }
            let mark = Mark { due_us: now_us, requested: None, ..interval.mark };
            self.tracker.mark_first(key, interval.first, count, mark);
        }
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
            let later = Mark { due_us: now_us + AGAIN_US, ..interval.mark };
            self.tracker.mark(key, interval.first, later);
            return Some(self.requester.next_us(&later));
        }
        self.tracker.give_up_for(key, last, GivenUp::Gone);
        (last < interval.last).then_some(now_us)
    }
}
