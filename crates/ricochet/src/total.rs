//! Groups in total order: the stages between the core and the subscriptions, and the order groups.
//!
//! A subscription with [`Order::Total`](crate::Order::Total) joins a second group, over which the members
//! agree on the order. Its packets go to the stage and to no subscription.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use ricochet_core::message::Message as CoreMessage;
use ricochet_core::order::{OrderNews, OrderOutput, Ordered, Promises, Total, TotalConfig, order_group};
use ricochet_core::tracker::{Front, Lost as CoreLost};
use ricochet_core::{GroupId, NodeId, StreamKey, View};

use crate::filler::{Filler, report};
use crate::joining::JoinOptions;
use crate::message::{Event, OrderChange};
use crate::outward::{Consumer, Outward};
use crate::shared::Core;
use crate::status::TotalStatus;

/// Maximum number of groups that were left of which promises are kept: as many as a node may join.
const LEFT_MAX: usize = 1 << 16;

/// A stage, and when it is due.
#[derive(Debug)]
struct Entry {
    total: Box<Total>,
    safe: bool,
    due_us: Option<u64>,
}

/// The stages of a node.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    groups: HashMap<GroupId, Entry>,
    /// The group of each order group.
    order_groups: HashMap<GroupId, GroupId>,
    /// Groups whose stage has got something since the last flush.
    touched: HashSet<GroupId>,
    due: BTreeSet<(u64, GroupId)>,
    /// Members of the order groups, as the core knows them.
    view: View,
    /// Promises of this node in groups that it has left. They bind it when it joins them again.
    left: HashMap<GroupId, Promises>,
    /// Whether packets that arrived are held back.
    is_blocked: bool,
}

impl Totals {
    /// Adds the stage of a group, unless there is one.
    pub(crate) fn add(&mut self, now_us: u64, group: GroupId, config: TotalConfig, seed: u64) {
        if self.groups.contains_key(&group) {
            return;
        }
        let promises = self.left.remove(&group).unwrap_or_default();
        let mut total = Total::new(now_us, group, config, seed).with_promises(promises);
        let order = order_group(group);
        total.change_view(now_us, members_of(&self.view, order));
        total.set_blocked(now_us, self.is_blocked);
        self.groups.insert(group, Entry { total: Box::new(total), safe: config.safe, due_us: None });
        self.order_groups.insert(order, group);
        self.touched.insert(group);
    }

    /// Lets a node leave the order of a group. The stage is removed by [`Self::remove`].
    fn leave(&mut self, group: GroupId) {
        if let Some(entry) = self.groups.get_mut(&group) {
            entry.total.leave();
            self.touched.insert(group);
        }
    }

    fn remove(&mut self, group: GroupId) {
        if let Some(Entry { total, due_us, .. }) = self.groups.remove(&group) {
            if let Some(due_us) = due_us {
                self.due.remove(&(due_us, group));
            }
            self.keep_promises(group, total.promises());
        }
        self.order_groups.remove(&order_group(group));
        self.touched.remove(&group);
    }

    /// Keeps the promises in a group that is left, in place of those in another one if there are too many.
    fn keep_promises(&mut self, group: GroupId, promises: Promises) {
        if self.left.len() >= LEFT_MAX
            && let Some(other) = self.left.keys().next().copied()
        {
            self.left.remove(&other);
        }
        self.left.insert(group, promises);
    }

    /// Returns whether a group has a stage.
    pub(crate) fn contains(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    /// Returns whether a group is one over which members agree on an order.
    pub(crate) fn is_order_group(&self, group: GroupId) -> bool {
        self.order_groups.contains_key(&group)
    }

    /// Returns whether a group is kept in another order than a subscription wants.
    pub(crate) fn differs(&self, group: GroupId, safety: Option<bool>) -> bool {
        let entry = self.groups.get(&group);
        safety.is_some_and(|safe| entry.is_some_and(|entry| entry.safe != safe))
    }

    /// Takes a message, or a packet of an order group. Returns true if it is a packet, which goes to no
    /// subscription.
    pub(crate) fn take(&mut self, now_us: u64, message: &CoreMessage<'_>) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        let Some(&group) = self.order_groups.get(&message.group) else {
            self.touch(message.group, |total| total.handle_message(message));
            return false;
        };
        self.touch(group, |total| total.handle_packet(now_us, message.sender, message.payload));
        true
    }

    /// Calls `notify` with the stage of a group, if it has one.
    fn touch(&mut self, group: GroupId, notify: impl FnOnce(&mut Total)) {
        if let Some(entry) = self.groups.get_mut(&group) {
            notify(&mut entry.total);
            self.touched.insert(group);
        }
    }

    /// Takes a report of lost packets. Returns true if they are those of an order group.
    pub(crate) fn on_lost(&mut self, lost: &CoreLost) -> bool {
        self.touch(lost.key.group, |total| total.on_lost(lost));
        self.order_groups.contains_key(&lost.key.group)
    }

    pub(crate) fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.touch(key.group, |total| total.on_settled(key, front));
    }

    pub(crate) fn on_restart(&mut self, key: StreamKey) {
        self.touch(key.group, |total| total.on_restart(key));
    }

    /// Continues with other members.
    pub(crate) fn change_view(&mut self, now_us: u64, view: &View) {
        if self.groups.is_empty() {
            return self.view.clone_from(view);
        }
        let mut members: HashMap<GroupId, Vec<NodeId>> = HashMap::new();
        for member in view.members() {
            for group in member.groups().iter().filter_map(|group| self.order_groups.get(group)) {
                members.entry(*group).or_default().push(member.id());
            }
        }
        for (group, entry) in &mut self.groups {
            entry.total.change_view(now_us, members.remove(group).unwrap_or_default());
            self.touched.insert(*group);
        }
        self.view.clone_from(view);
    }

    /// Sets whether packets that arrived are held back. The stages have more to do afterwards.
    fn set_blocked(&mut self, now_us: u64, is_blocked: bool) {
        if self.is_blocked == is_blocked {
            return;
        }
        self.is_blocked = is_blocked;
        for (&group, entry) in &mut self.groups {
            entry.total.set_blocked(now_us, is_blocked);
            if !is_blocked {
                self.touched.insert(group);
            }
        }
    }

    /// Returns when a stage is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        if self.touched.is_empty() { self.due.first().map(|&(due_us, _)| due_us) } else { Some(0) }
    }

    /// Returns the state of the order of a group.
    pub(crate) fn status(&self, group: GroupId) -> Option<TotalStatus> {
        let total = &self.groups.get(&group)?.total;
        let (status, counts) = (total.status(), total.counts());
        Some(TotalStatus {
            sequencer: status.epoch.map(|epoch| epoch.sequencer.to_string()),
            members: status.members,
            next: status.next,
            delivered: status.delivered,
            held: status.held,
            stalled: status.stalled,
            epochs: counts.epochs,
            lost: counts.lost,
            broken: counts.broken,
            crowded: counts.crowded,
            unauthorized: counts.unauthorized,
        })
    }
}

fn members_of(view: &View, order: GroupId) -> impl Iterator<Item = NodeId> + '_ {
    let is_in = move |member: &&ricochet_core::Member| member.groups().binary_search(&order).is_ok();
    view.members().iter().filter(is_in).map(ricochet_core::Member::id)
}

/// Where the output of a stage goes.
struct Stage<'a> {
    group: GroupId,
    filler: &'a Filler<'a>,
    consumers: &'a [Option<Consumer>],
    packets: &'a mut Vec<(GroupId, Vec<u8>)>,
}

impl OrderOutput for Stage<'_> {
    fn send(&mut self, packet: &[u8]) {
        self.packets.push((order_group(self.group), packet.to_vec()));
    }

    fn release(&mut self, ordered: Ordered<'_>) {
        let Some(joined) = self.filler.groups.get(&self.group) else { return };
        let consumers = joined.consumers.iter().filter_map(|&at| self.consumers.get(at)?.as_ref());
        let queues = consumers.filter(|consumer| consumer.is_total).map(|consumer| &consumer.queue);
        match ordered {
            Ordered::Message { number, message } => {
                queues.for_each(|queue| self.filler.push_numbered(queue, &message, number));
            }
            Ordered::Lost { lost, .. } => {
                queues.for_each(|queue| self.filler.wake(queue.push_lost(report(joined, &lost))));
            }
            Ordered::News(news) => {
                tell(&joined.name, news);
                let change = OrderChange { group: Arc::clone(&joined.name), news };
                queues.for_each(|queue| self.filler.wake(queue.push_news(Event::Order(change.clone()))));
            }
        }
    }
}

fn tell(group: &str, news: OrderNews) {
    match news {
        OrderNews::Begins { number } => tracing::debug!(group, number, "total order begins"),
        OrderNews::Broken { from, delivered, continues } => {
            tracing::warn!(
                group,
                from,
                delivered,
                continues,
                "what was delivered from a number on is not what the other members have agreed on"
            );
        }
        OrderNews::Missed { from, continues } => {
            tracing::warn!(group, from, continues, "numbers were missed that no member keeps any more");
        }
        OrderNews::Stalled => {
            tracing::warn!(
                group,
                "messages wait: no majority of the members is heard, or no order has begun"
            );
        }
        OrderNews::Resumed => tracing::info!(group, "messages are numbered again"),
    }
}

impl Outward {
    /// Returns whether this node's own messages to a group must wait, because a subscription of its own that
    /// gets them in total order and drops none is full.
    pub(crate) fn holds_up_own(&self, group: GroupId) -> bool {
        if !self.totals.contains(group) {
            return false;
        }
        let consumers = self.groups.get(&group).map_or(&[][..], |joined| &joined.consumers[..]);
        let consumers = consumers.iter().filter_map(|&at| self.consumers.get(at)?.as_ref());
        consumers.filter(|consumer| consumer.is_total).any(|consumer| consumer.queue.holds_up_own())
    }

    /// Numbers and delivers what the stages have got. Returns the packets that they send.
    fn flush_totals(&mut self) -> Vec<(GroupId, Vec<u8>)> {
        let (now_us, mut packets) = (self.now_us, Vec::new());
        let mut totals = std::mem::take(&mut self.totals);
        while let Some(&(due_us, group)) = totals.due.first().filter(|(due_us, _)| *due_us <= now_us) {
            totals.due.remove(&(due_us, group));
            totals.touched.insert(group);
        }
        let touched: Vec<GroupId> = totals.touched.drain().collect();
        let (consumers, filler, _) = self.split();
        for group in touched {
            let Some(entry) = totals.groups.get_mut(&group) else { continue };
            let mut stage = Stage { group, filler: &filler, consumers, packets: &mut packets };
            entry.total.flush(now_us, &mut stage);
            let due_us = entry.total.poll_timeout();
            if let Some(old_us) = std::mem::replace(&mut entry.due_us, due_us) {
                totals.due.remove(&(old_us, group));
            }
            totals.due.extend(due_us.map(|due_us| (due_us, group)));
        }
        self.totals = totals;
        packets
    }
}

impl Core {
    /// Sets whether packets that arrived are held back. Those are then neither given up, nor taken for a
    /// silence of the other members.
    pub(crate) fn hold_losses(&mut self, now_us: u64, held: bool) {
        self.node.hold_losses(held);
        self.out.totals.set_blocked(now_us, held);
    }

    /// Numbers and delivers what the stages of groups in total order have got, and sends their packets.
    pub(crate) fn flush_totals(&mut self) {
        if self.out.totals.groups.is_empty() {
            return;
        }
        let packets = self.out.flush_totals();
        let now_us = self.out.now_us;
        for (group, packet) in packets {
            if let Err(error) = self.node.multicast_order(now_us, group, &packet, &mut self.out) {
                tracing::warn!(%group, %error, "a packet of total order was not sent");
            }
        }
    }

    /// Begins to keep groups in total order.
    pub(crate) fn begin_totals(
        &mut self,
        now_us: u64,
        me: NodeId,
        groups: &[(GroupId, Arc<str>)],
        options: &JoinOptions,
    ) {
        let Some(safe) = options.order.safety() else { return };
        let founders = options.founders.unwrap_or(1);
        let config = TotalConfig { safe, founders, ..TotalConfig::new(me) };
        for &(group, _) in groups {
            self.out.totals.add(now_us, group, config, RandomState::new().hash_one(group));
            self.node.set_loopback(group, true);
        }
    }

    /// Leaves the orders that no subscription wants any more.
    pub(crate) fn end_totals(&mut self, groups: &[GroupId]) {
        for &group in groups {
            let joined = self.out.groups.get(&group);
            let consumers = joined.iter().flat_map(|joined| joined.consumers.iter());
            let mut others = consumers.filter_map(|&at| self.out.consumers.get(at)?.as_ref());
            if !others.any(|consumer| consumer.is_total) {
                self.leave_total(group);
            }
        }
    }

    /// Leaves the order of a group, and tells the other members.
    fn leave_total(&mut self, group: GroupId) {
        if self.out.totals.contains(group) {
            self.out.totals.leave(group);
            self.flush_totals();
            self.out.totals.remove(group);
        }
    }

    /// Leaves all orders.
    pub(crate) fn leave_totals(&mut self) {
        let groups: Vec<GroupId> = self.out.totals.groups.keys().copied().collect();
        groups.into_iter().for_each(|group| self.leave_total(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl OrderOutput for Nowhere {
        fn send(&mut self, _: &[u8]) {}

        fn release(&mut self, _: Ordered<'_>) {}
    }

    #[test]
    fn a_node_that_joins_a_group_again_is_bound_by_its_promises() {
        let (mut totals, group) = (Totals::default(), GroupId(7));
        let config = TotalConfig::new(NodeId(1));
        totals.add(0, group, config, 5);
        // Alone, it begins an order, and promises to take part in no epoch before its own.
        let total = &mut totals.groups.get_mut(&group).unwrap().total;
        [0, 1_000_000].into_iter().for_each(|now_us| total.flush(now_us, &mut Nowhere));
        let promises = total.promises();
        assert_ne!(promises, Promises::default());
        totals.leave(group);
        totals.remove(group);
        totals.add(2_000_000, group, config, 6);
        assert_eq!(totals.groups[&group].total.promises(), promises);
        assert!(totals.left.is_empty());
    }

    #[test]
    fn a_stage_that_heard_nothing_is_due_when_packets_are_processed_again() {
        let (mut totals, group) = (Totals::default(), GroupId(7));
        totals.set_blocked(0, true);
        totals.add(0, group, TotalConfig::new(NodeId(1)), 5);
        let flush = |totals: &mut Totals| {
            totals.touched.clear();
            let total = &mut totals.groups.get_mut(&group).unwrap().total;
            [0, 1_000_000].into_iter().for_each(|now_us| total.flush(now_us, &mut Nowhere));
            total.is_sequencer()
        };
        assert!(!flush(&mut totals), "others may have an order");
        totals.set_blocked(0, true);
        assert_eq!(totals.due_us(), None);
        totals.set_blocked(0, false);
        assert_eq!(totals.due_us(), Some(0));
        assert!(flush(&mut totals));
    }
}
