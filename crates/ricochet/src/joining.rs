//! Joining and leaving groups.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ricochet_core::delivery::Fifo;
use ricochet_core::order::order_group;
use ricochet_core::{GroupId, GroupsError};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::HOUR;
use crate::error::JoinError;
use crate::group_name::{NameMistake, check_group_name};
use crate::outward::{Consumer, Joined, Outward};
use crate::past::{Past, Start};
use crate::patterns::wire::PATTERN_LENGTH_MAX;
use crate::policy::Policy;
use crate::queue::{Bounds, Queue};
use crate::shared::{Core, Gone, Shared};
use crate::tasks::CoreGuard;

/// Maximum capacity of a subscription's queue.
const QUEUE_MAX: usize = 1 << 20;
/// Maximum bytes of a subscription's queue.
const QUEUE_BYTES_MAX: usize = 1 << 40;

/// Order in which a subscription delivers messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Order {
    /// In order of arrival: a recovered message may follow messages that were sent later.
    #[default]
    Unordered,
    /// The messages of one sender to one group in the order in which they were sent.
    Fifo,
    /// The messages of all senders in the same order at all members that join with this order, this node's
    /// own messages included. A message is delivered when it has come and has its number, a hop after it was
    /// sent. A member that was cut off may learn that it has delivered otherwise
    /// ([`OrderNews::Broken`](crate::OrderNews)).
    Total,
    /// The same, and a message is delivered only when a majority of the members has it, a further hop later.
    /// No member delivers otherwise than another.
    TotalSafe,
}

impl Order {
    /// Returns whether messages are delivered safely, if the order is total.
    pub(crate) fn safety(self) -> Option<bool> {
        match self {
            Self::Unordered | Self::Fifo => None,
            Self::Total => Some(false),
            Self::TotalSafe => Some(true),
        }
    }
}

/// Options for joining groups.
///
/// ```
/// use ricochet::{JoinOptions, Order, Policy};
/// let options = JoinOptions {
///     order: Order::Fifo,
///     queue: Some(64),
///     policy: Some(Policy::Block),
///     ..JoinOptions::default()
/// };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinOptions {
    /// Order in which messages are delivered.
    pub order: Order,
    /// Maximum number of messages that wait in the subscription's queue, 1 to 1,048,576;
    /// the node's setting if `None`.
    pub queue: Option<usize>,
    /// Maximum number of bytes of messages that wait in the queue, 1 to 2⁴⁰; a single message may be longer.
    /// The node's setting if `None`.
    pub queue_bytes: Option<usize>,
    /// Treatment of messages for which the queue has no room; the node's setting if `None`.
    pub policy: Option<Policy>,
    /// Whether this node sends messages longer than a packet to the groups, in several packets. Such messages
    /// of other nodes are received in any case.
    pub fragments: bool,
    /// Number of repairs that each packet of the groups enters, 0 to 64; the node's setting if `None`. Must
    /// be the same in all subscriptions of a node to a group.
    pub c: Option<u8>,
    /// Time after its discovery at which a missing message is given up that its sender marked as
    /// [expiring](crate::Sender::expiring), up to an hour; the node's setting if `None`. Must be the same in
    /// all subscriptions of a node to a group.
    pub lifetime: Option<Duration>,
    /// With [`Order::Fifo`]: maximum number of messages held back until earlier ones arrive, 1 to 1,048,576;
    /// the node's setting if `None`.
    pub held: Option<usize>,
    /// First message that the subscription gets. Only the first subscription of a node to a group gets older
    /// messages from other members; further ones get those that the node itself keeps.
    pub from: Start,
    /// Whether the subscription gets the messages that this node itself sends, as they are sent. They do not
    /// wait for messages of the past, and the history does not repeat them.
    pub loopback: bool,
    /// Whether the subscription gets an event for each member of its groups: for those known when it begins,
    /// and whenever a node joins, leaves or fails. If it is not read while 1,024 of these events wait, older
    /// ones about a member of a group are left out when there are newer ones.
    pub members: bool,
    /// With [`Order::Total`]: number of members with which an order begins at least; one if `None`. With more
    /// than half of all members, nodes that are apart from each other never begin two orders.
    pub founders: Option<usize>,
}

/// Handle of a subscription's place within the node.
pub(crate) struct SubscriptionHandle {
    /// Index among the node's consumers.
    pub(crate) consumer: usize,
    pub(crate) queue: Arc<Queue>,
    pub(crate) groups: Vec<(GroupId, Arc<str>)>,
}

/// A subscription that joins groups.
pub(crate) enum Entrant<'a> {
    New(Consumer),
    /// One that exists, by its index and queue.
    Known(usize, &'a Arc<Queue>),
}

/// Options that must be the same in all subscriptions of a node to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupOptions {
    c: u8,
    fragments: bool,
    lifetime_us: Option<u64>,
    /// Whether messages are delivered safely, if the order is total.
    safety: Option<bool>,
}

impl Shared {
    /// Joins groups, all or none. The node receives messages to them at once; other
    /// nodes learn of it soon after.
    pub(crate) fn join(
        &self,
        names: &[&str],
        options: &JoinOptions,
    ) -> Result<SubscriptionHandle, JoinError> {
        self.check_process()?;
        check_options(options)?;
        let (patterns, groups) = named(names)?;
        let consumer = self.new_consumer(options);
        let queue = Arc::clone(&consumer.queue);
        let consumer = self.enter(Entrant::New(consumer), &groups, options)?;
        let handle = SubscriptionHandle { consumer, queue, groups };
        if !patterns.is_empty() {
            self.add_patterns(&handle, &patterns, options).inspect_err(|_| self.leave(&handle))?;
        }
        Ok(handle)
    }

    /// Lets a subscription join groups, all or none. Returns its index.
    pub(crate) fn enter(
        &self,
        who: Entrant<'_>,
        groups: &[(GroupId, Arc<str>)],
        options: &JoinOptions,
    ) -> Result<usize, JoinError> {
        let group_options = GroupOptions {
            c: options.c.unwrap_or(self.config.repair.repairs_per_packet()),
            fragments: options.fragments,
            lifetime_us: options.lifetime.map(|lifetime| lifetime.as_micros() as u64),
            safety: options.order.safety(),
        };
        let named = groups;
        let groups = &with_order_groups(named, options.order)[..];
        // This lock excludes other joins and leaves. The core's lock is not held while the kernel joins IP
        // groups, so that threads that send or receive do not wait for it.
        let mut ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, group_addresses) = {
            let core = self.core_for_join()?;
            (self.new_groups(&core.out, groups, group_options)?, core.out.group_addresses())
        };
        let addresses = || new.iter().map(|&(group, _)| group_addresses.address(group).ip());
        ip_groups.acquire_all(addresses()).map_err(JoinError::Address)?;
        let mut core =
            self.core_for_join().inspect_err(|_| addresses().for_each(|ip| ip_groups.release(ip)))?;
        let consumer = match who {
            Entrant::New(consumer) => core.out.add_consumer(consumer),
            Entrant::Known(at, queue) if core.out.is_consumer(at, queue) => at,
            Entrant::Known(..) => {
                // The subscription was left meanwhile.
                addresses().for_each(|ip| ip_groups.release(ip));
                return Err(JoinError::Closed);
            }
        };
        let (now_us, wish) = (clock::now_us(), options.from.wish());
        for (at, (id, name)) in groups.iter().enumerate() {
            let Core { out, changes, .. } = &mut *core;
            if out.groups.get(id).is_some_and(|joined| joined.consumers.contains(&consumer)) {
                continue;
            }
            let is_new = !out.groups.contains_key(id);
            let joined = out.groups.entry(*id).or_insert_with(|| {
                changes.joined.insert(*id);
                let GroupOptions { c, fragments, lifetime_us, .. } = group_options;
                let (name, past) = (Arc::clone(name), Past::default());
                Joined { name, c, fragments, lifetime_us, consumers: Vec::new(), past }
            });
            if joined.add(now_us, consumer, wish, is_new)
                && let Some(wish) = wish
            {
                core.replay(now_us, consumer, *id, wish);
            }
            if options.loopback {
                core.node.set_loopback(*id, true);
            }
            // Order groups follow those with names.
            if options.members && at < named.len() {
                self.tell_known_members(&core.out, consumer, *id);
            }
        }
        if options.members {
            core.out.tell_registry_away(consumer);
        }
        core.begin_totals(now_us, self.id, named, options);
        self.note_changes(&mut core, !new.is_empty());
        let tasks = core.unlock();
        new.iter().for_each(|&(id, _)| self.outgoing.set_fragments(id, options.fragments));
        self.joined.write().unwrap_or_else(PoisonError::into_inner).extend(new.iter().map(|&(id, _)| id));
        let is_named = |id: GroupId| named.iter().any(|&(named, _)| named == id);
        let names = new.into_iter().filter(|&(id, _)| is_named(id)).map(|(_, name)| name);
        self.names.lock().unwrap_or_else(PoisonError::into_inner).on_joined(names);
        drop(ip_groups);
        tasks.wake();
        Ok(consumer)
    }

    fn new_consumer(&self, options: &JoinOptions) -> Consumer {
        let buffers = &self.config.buffers;
        let bounds = Bounds {
            messages: options.queue.unwrap_or(buffers.queue),
            bytes: options.queue_bytes.unwrap_or(buffers.queue_bytes),
        };
        let queue =
            Queue::new(bounds, options.policy.unwrap_or(buffers.policy), Arc::clone(&self.backpressure));
        let mut fifo = self.config.fifo.core(buffers);
        fifo.messages_max = options.held.unwrap_or(fifo.messages_max);
        let fifo = (options.order == Order::Fifo)
            .then(|| Box::new(Fifo::new(fifo).expect("settings and options were checked")));
        let JoinOptions { loopback, members, .. } = *options;
        let is_total = options.order.safety().is_some();
        Consumer { queue, fifo, loopback, members, is_inbox: false, is_total }
    }

    fn core_for_join(&self) -> Result<CoreGuard<'_>, JoinError> {
        self.core().map_err(|gone| match gone {
            Gone::Closed => JoinError::Closed,
            Gone::Failed(why) => JoinError::Failed(why),
        })
    }

    /// Leaves the groups of a subscription, except those of other subscriptions of this node.
    pub(crate) fn leave(&self, handle: &SubscriptionHandle) {
        if self.is_forked() {
            return;
        }
        handle.queue.close(crate::error::RecvError::Closed).wake();
        self.patterns.lock().unwrap_or_else(PoisonError::into_inner).remove(handle);
        let mut ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        // A node that has ended has left all groups.
        let Ok(mut core) = self.core() else { return };
        let mut gone = Vec::new();
        let of_consumer = |(_, joined): &(&GroupId, &Joined)| joined.consumers.contains(&handle.consumer);
        let groups: Vec<GroupId> = core.out.groups.iter().filter(of_consumer).map(|(&id, _)| id).collect();
        for &id in &groups {
            let Some(joined) = core.out.groups.get_mut(&id) else { continue };
            joined.consumers.retain(|&consumer| consumer != handle.consumer);
            joined.past.parts.remove(&handle.consumer);
            if joined.consumers.is_empty() {
                self.names.lock().unwrap_or_else(PoisonError::into_inner).on_left(&joined.name);
                core.out.groups.remove(&id);
                if !core.changes.joined.remove(&id) {
                    core.changes.left.insert(id);
                }
                gone.push(id);
            }
        }
        core.out.consumers[handle.consumer] = None;
        core.end_totals(&groups);
        for &id in &groups {
            let is_wanted = core.out.wants_loopback(id);
            core.node.set_loopback(id, is_wanted);
        }
        let group_addresses = core.out.group_addresses();
        self.note_changes(&mut core, !gone.is_empty());
        let tasks = core.unlock();
        let mut joined = self.joined.write().unwrap_or_else(PoisonError::into_inner);
        joined.retain(|id| !gone.contains(id));
        drop(joined);
        gone.iter().for_each(|&id| self.outgoing.set_fragments(id, false));
        gone.iter().for_each(|&id| ip_groups.release(group_addresses.address(id).ip()));
        drop(ip_groups);
        tasks.wake();
    }

    /// Schedules the next change of the core's groups.
    fn note_changes(&self, core: &mut Core, changed: bool) {
        if changed && core.changes.since_us.is_none() {
            let now_us = clock::now_us();
            core.changes.since_us = Some(now_us);
            self.sleep.wake_before(now_us);
        }
    }

    /// Returns the groups that this node is not in yet. Checks that the options fit the others.
    fn new_groups(
        &self,
        out: &Outward,
        groups: &[(GroupId, Arc<str>)],
        options: GroupOptions,
    ) -> Result<Vec<(GroupId, Arc<str>)>, JoinError> {
        let differs = |name: &str, what| JoinError::Differs { group: name.to_owned(), what };
        let mut new = Vec::new();
        for (id, name) in groups {
            match out.groups.get(id) {
                Some(joined) if joined.name != *name => {
                    return Err(GroupsError::Repeated(*id).into());
                }
                Some(joined) if joined.c != options.c => return Err(differs(name, "c")),
                Some(joined) if joined.fragments != options.fragments => {
                    return Err(differs(name, "fragments"));
                }
                Some(joined) if joined.lifetime_us != options.lifetime_us => {
                    return Err(differs(name, "lifetime"));
                }
                Some(_) if out.totals.differs(*id, options.safety) => return Err(differs(name, "order")),
                Some(joined)
                    if options.safety.is_some() && (joined.past.is_open() || joined.past.is_keyed) =>
                {
                    return Err(JoinError::PastOfOther { group: name.to_string() });
                }
                Some(_) => {}
                None => new.push((*id, Arc::clone(name))),
            }
        }
        let (count, max) = (out.groups.len() + new.len(), self.config.node.max_groups);
        if count > max {
            return Err(JoinError::TooMany { groups: count, max });
        }
        if !new.is_empty() {
            out.check_tags(&new)?;
        }
        Ok(new)
    }
}

impl Outward {
    /// Returns whether the consumer at an index is the one with this queue.
    fn is_consumer(&self, at: usize, queue: &Arc<Queue>) -> bool {
        let consumer = self.consumers.get(at).and_then(Option::as_ref);
        consumer.is_some_and(|consumer| Arc::ptr_eq(&consumer.queue, queue))
    }

    /// Adds a consumer and returns its index.
    fn add_consumer(&mut self, consumer: Consumer) -> usize {
        match self.consumers.iter().position(Option::is_none) {
            Some(at) => {
                self.consumers[at] = Some(consumer);
                at
            }
            None => {
                self.consumers.push(Some(consumer));
                self.consumers.len() - 1
            }
        }
    }

    /// Checks that the tags of a node's groups differ: repairs name groups by their tags,
    /// the low halves of their ids.
    fn check_tags(&self, new: &[(GroupId, Arc<str>)]) -> Result<(), GroupsError> {
        let mut tags = hashbrown::HashMap::with_capacity(new.len());
        for &(id, _) in new {
            if let Some(other) = tags.insert(id.tag(), id) {
                return Err(GroupsError::Indistinct(other, id));
            }
        }
        let clash = self.groups.keys().find_map(|id| tags.get(&id.tag()).map(|&new| (*id, new)));
        clash.map_or(Ok(()), |(old, new)| Err(GroupsError::Indistinct(old, new)))
    }
}

/// Patterns, and groups with their names.
type Named = (Vec<Arc<str>>, Vec<(GroupId, Arc<str>)>);

/// Returns the patterns among names, and the groups with the other names, each once.
fn named(names: &[&str]) -> Result<Named, JoinError> {
    if names.is_empty() {
        return Err(JoinError::Nothing);
    }
    let mut groups: Vec<(GroupId, Arc<str>)> = Vec::with_capacity(names.len());
    let mut patterns = Vec::new();
    let mut seen = hashbrown::HashSet::with_capacity(names.len());
    for &name in names {
        let mistake = check_group_name(name);
        match mistake {
            Err(NameMistake::Length) => return Err(JoinError::Name { length: name.len() }),
            Err(NameMistake::Pattern) if name.len() > PATTERN_LENGTH_MAX => {
                return Err(JoinError::Pattern { length: name.len() });
            }
            _ if !seen.insert(name) => {}
            Err(NameMistake::Pattern) => patterns.push(name.into()),
            Ok(()) => groups.push((GroupId::of_name(name), name.into())),
        }
    }
    Ok((patterns, groups))
}

/// Adds the groups over which members agree on the order of these.
fn with_order_groups(groups: &[(GroupId, Arc<str>)], order: Order) -> Vec<(GroupId, Arc<str>)> {
    let mut all = groups.to_vec();
    if order.safety().is_some() {
        all.extend(groups.iter().map(|(id, name)| (order_group(*id), format!("{name}: order").into())));
    }
    all
}

fn check_options(options: &JoinOptions) -> Result<(), JoinError> {
    if options.order.safety().is_some() && options.from != Start::Live {
        return Err(JoinError::Past);
    }
    if options.held.is_some() && options.order != Order::Fifo {
        return Err(JoinError::Unused { what: "held", needs: "Order::Fifo" });
    }
    if options.founders.is_some() && options.order.safety().is_none() {
        return Err(JoinError::Unused { what: "founders", needs: "total order" });
    }
    let outside = |length: &usize| !(1..=QUEUE_MAX).contains(length);
    for (what, length) in [("queue", options.queue), ("held", options.held)] {
        if let Some(length) = length.filter(outside) {
            return Err(JoinError::Option { what, expected: "1 to 1048576", seen: length as u64 });
        }
    }
    if let Some(bytes) = options.queue_bytes.filter(|bytes| !(1..=QUEUE_BYTES_MAX).contains(bytes)) {
        let expected = "1 to 1099511627776";
        return Err(JoinError::Option { what: "queue_bytes", expected, seen: bytes as u64 });
    }
    if let Some(c) = options.c.filter(|&c| c > 64) {
        return Err(JoinError::Option { what: "c", expected: "0 to 64", seen: c.into() });
    }
    if let Some(lifetime) = options.lifetime.filter(|&lifetime| lifetime > HOUR) {
        let seen = lifetime.as_secs();
        return Err(JoinError::Option { what: "lifetime", expected: "up to 3600 seconds", seen });
    }
    Ok(())
}
