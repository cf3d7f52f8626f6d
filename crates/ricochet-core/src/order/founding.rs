//! The beginning of an order, and the nodes that join it.
//!
//! A node that is no member says so in growing intervals. The sequencer takes it in with the next epoch. If
//! there is no order, the node with the lowest identifier of those that want to be members begins one.

use std::collections::BTreeMap;

use super::epoch::COUNCIL_MAX;
use super::log::Log;
use super::total::{Patience, Total};
use super::wire::{Body, Head};
use crate::ids::NodeId;

/// Time for which a node that wanted to be a member counts as one that does, in microseconds.
const FRESH_US: u64 = 3_000_000;
/// Longest interval between two packets of a node that is no member, in microseconds.
const PAUSE_US_MAX: u64 = 1_000_000;

/// Search for an order.
#[derive(Debug)]
pub(super) struct Founding {
    since_us: u64,
    hello_us: u64,
    pause_us: u64,
    first_pause_us: u64,
    /// Last time that a packet of an order came.
    heard_us: Option<u64>,
    /// Whether the others have gone on without this member.
    pub(super) is_out: bool,
    /// Nodes that want to be members: when they said so, and whether they deliver safely.
    pub(super) hellos: BTreeMap<NodeId, (u64, bool)>,
}

impl Founding {
    pub(super) fn new(now_us: u64, pause_us: u64) -> Self {
        Self {
            since_us: now_us,
            hello_us: now_us,
            pause_us,
            first_pause_us: pause_us,
            heard_us: None,
            is_out: false,
            hellos: BTreeMap::new(),
        }
    }

    fn restart(&mut self, now_us: u64) {
        let hellos = std::mem::take(&mut self.hellos);
        *self = Self { hellos, ..Self::new(now_us, self.first_pause_us) };
    }

    /// Returns the nodes that want to be members.
    pub(super) fn fresh(&self, now_us: u64) -> impl Iterator<Item = NodeId> + '_ {
        let is_fresh = move |at_us: u64| now_us.saturating_sub(at_us) <= FRESH_US;
        self.hellos.iter().filter(move |&(_, &(at_us, _))| is_fresh(at_us)).map(|(&node, _)| node)
    }
}

impl Total {
    /// Returns whether a packet belongs to this node's order. A node that is no member takes part in the
    /// order that it hears. Of two orders that were begun apart from each other, one is given up: one without
    /// messages, otherwise the one with the higher number.
    pub(super) fn is_of_order(&mut self, now_us: u64, from: NodeId, head: Head) -> bool {
        if head.order == 0 {
            return false;
        }
        if self.order == Some(head.order) {
            self.founding.heard_us = Some(now_us);
            return true;
        }
        if !self.view.contains(&from) {
            self.counts.unauthorized += 1;
            return false;
        }
        let is_free = self.council.is_none() && self.pending.is_none() && self.candidacy.is_none();
        let is_empty = self.log.next == 0 && !self.has_delivered;
        let yields = match (is_empty, head.is_empty) {
            (true, false) => true,
            (false, true) => false,
            _ => self.order.is_none_or(|order| head.order < order),
        };
        if !is_free && !yields {
            // The others learn of this order.
            self.announce(now_us);
            return false;
        }
        if !is_free {
            self.give_up_order(now_us);
        }
        self.enter_order(Some(head.order));
        self.founding.heard_us = Some(now_us);
        true
    }

    /// Forgets the order that this node took part in.
    fn give_up_order(&mut self, now_us: u64) {
        if self.has_delivered {
            self.void = Some(self.delivered);
        }
        self.has_delivered = false;
        self.council = None;
        self.log = Log::default();
        self.pending = None;
        self.count_seen = 0;
        self.candidacy = None;
        (self.held, self.delivered, self.acked) = (0, 0, 0);
        self.acks.clear();
        self.byes.clear();
        self.denied.clear();
        (self.want, self.unheard, self.crowded_us) = (None, None, None);
        (self.ack_due_us, self.reform_us, self.campaign_us) = (None, None, None);
        self.patience = Patience::default();
        self.dirty = self.hold.senders().collect();
        self.founding.restart(now_us);
    }

    /// Takes the packet of a node that is no member.
    pub(super) fn on_hello(&mut self, now_us: u64, from: NodeId, head: Head, (safe, count): (bool, u32)) {
        if !self.view.contains(&from) {
            return self.counts.unauthorized += 1;
        }
        let is_ours = head.order == 0 || self.order.is_none_or(|order| order == head.order);
        if !is_ours {
            return self.announce(now_us);
        }
        let hellos = &mut self.founding.hellos;
        if self.byes.contains_key(&from) || (hellos.len() >= COUNCIL_MAX && !hellos.contains_key(&from)) {
            return;
        }
        hellos.insert(from, (now_us, safe));
        self.note_count(count);
        if self.is_sequencer() && self.is_open() {
            let is_member = self.council.as_ref().is_some_and(|council| council.contains(from));
            let present = self.log.epoch().map_or(0, |epoch| epoch.count);
            // A count that leaps was not noted.
            let is_bound = count > present && count <= self.count_seen;
            if !is_member {
                self.reform_soon(now_us);
            } else if is_bound {
                // It has promised to take part in no epoch as early as this one.
                self.start_candidacy(now_us);
            } else {
                self.answer(now_us);
            }
        }
    }

    /// Looks for an order, and begins one if there is none.
    pub(super) fn found(&mut self, now_us: u64) {
        if self.founding_due_us().is_none() {
            return;
        }
        let is_free = self.council.is_none() && self.pending.is_none() && self.candidacy.is_none();
        let is_heard = |heard_us: u64| now_us.saturating_sub(heard_us) <= FRESH_US;
        let is_silent = !self.is_blocked() && !self.founding.heard_us.is_some_and(is_heard);
        if is_free && self.order.is_some() && is_silent {
            self.enter_order(None);
            self.founding.restart(now_us);
        }
        let found_us = self.founding.since_us.saturating_add(self.config.found_us);
        if self.founding.hello_us <= now_us {
            let count = self.promised.map_or(0, |epoch| epoch.count);
            self.send(&Body::Hello { safe: self.config.safe, count });
            let founding = &mut self.founding;
            founding.hello_us = now_us.saturating_add(founding.pause_us);
            founding.pause_us = (2 * founding.pause_us).min(PAUSE_US_MAX);
            if now_us < found_us {
                founding.hello_us = founding.hello_us.min(found_us);
            }
        }
        if !is_free || self.order.is_some() || now_us < found_us || self.is_blocked() {
            return;
        }
        let others: Vec<NodeId> = self.founding.fresh(now_us).collect();
        if others.len() + 1 >= self.config.founders && others.iter().all(|&other| other > self.config.me) {
            self.enter_order(Some(self.own_order));
            // The next order of this node has another number.
            self.own_order = self.own_order.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1).max(1);
            self.start_candidacy(now_us);
        }
    }

    /// Returns when a node that is no member says so next.
    pub(super) fn founding_due_us(&self) -> Option<u64> {
        (self.council.is_none() || self.founding.is_out).then_some(self.founding.hello_us)
    }
}
