//! Joining and leaving groups.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use ricochet_core::delivery::Fifo;
use ricochet_core::{GroupId, GroupsError};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::HOUR;
use crate::error::JoinError;
use crate::outward::{Joined, Outward, Taker};
use crate::queue::{Policy, Queue};
use crate::shared::{Core, Gone, Shared};

/// Longest name of a group in bytes.
pub const GROUP_NAME_MAX: usize = 1_024;
/// Longest queue of a subscription.
const QUEUE_MAX: usize = 1 << 20;

/// In which order a subscription gives messages out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Order {
    /// As they come: a message that was lost and recovered comes after such as were sent later.
    #[default]
    Unordered,
    /// Those of one sender to one group as they were sent.
    Fifo,
}

/// How groups are joined.
///
/// ```
/// use ricochet::{JoinOptions, Order, Policy};
/// let options = JoinOptions { order: Order::Fifo, queue: Some(64), policy: Some(Policy::Block), ..JoinOptions::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinOptions {
    /// In which order messages are given out.
    pub order: Order,
    /// Messages that may wait in the subscription's queue, 1 to 1,048,576; as the node is set up if left out.
    pub queue: Option<usize>,
    /// What happens to those that find no room there; as the node is set up if left out.
    pub policy: Option<Policy>,
    /// Whether this node sends messages longer than a packet to the groups, in several packets. What others send so is put
    /// together in any case.
    pub fragments: bool,
    /// Repairs that each packet of the groups enters, 0 to 64; as the node is set up if left out. All subscriptions of a
    /// node to a group agree on it.
    pub c: Option<u8>,
    /// How long after it was found missing a message is given up that its sender marked as [expiring](crate::Sender::expiring),
    /// up to an hour; as the node is set up if left out. All subscriptions of a node to a group agree on it.
    pub lifetime: Option<Duration>,
    /// With [`Order::Fifo`]: most messages held back until earlier ones are there, 1 to 1,048,576; as the node is set up if
    /// left out.
    pub held: Option<usize>,
}

/// What a subscription needs to know of its place.
pub(crate) struct Ticket {
    pub(crate) taker: usize,
    pub(crate) queue: Arc<Queue>,
    pub(crate) groups: Vec<(GroupId, Arc<str>)>,
}

/// Checks the name of a group.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=GROUP_NAME_MAX).contains(&name.len())
}

/// What a group is to be opened with; all subscriptions of a node to a group agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Manner {
    c: u8,
    fragments: bool,
    lifetime_us: Option<u64>,
}

impl Shared {
    /// Joins groups, all or none. What is sent to them from now on is received; the others learn of it soon.
    pub(crate) fn join(&self, names: &[&str], options: &JoinOptions) -> Result<Ticket, JoinError> {
        check_options(options)?;
        let manner = Manner {
            c: options.c.unwrap_or(self.config.repair.repairs_per_packet()),
            fragments: options.fragments,
            lifetime_us: options.lifetime.map(|lifetime| lifetime.as_micros() as u64),
        };
        let groups = named(names)?;
        let taker = self.taker(options);
        let queue = Arc::clone(&taker.queue);
        // No other thread joins or leaves meanwhile; and nobody waits for the kernel who sends or receives.
        let mut ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        let (new, spread) = {
            let core = self.open_core()?;
            (self.new_groups(&core.out, &groups, manner)?, core.out.spread())
        };
        let addresses = || new.iter().map(|&(group, _)| spread.address(group).ip());
        ip_groups.need_all(addresses()).map_err(JoinError::Address)?;
        let mut core = self.open_core().inspect_err(|_| addresses().for_each(|ip| ip_groups.release(ip)))?;
        let place = core.out.add_taker(taker);
        for (id, name) in &groups {
            let Core { out, changes, .. } = &mut *core;
            let joined = out.groups.entry(*id).or_insert_with(|| {
                changes.joined.insert(*id);
                let Manner { c, fragments, lifetime_us } = manner;
                Joined { name: Arc::clone(name), c, fragments, lifetime_us, takers: Vec::new() }
            });
            joined.takers.push(place);
        }
        self.note_changes(&mut core, !new.is_empty());
        drop(core);
        self.joined.write().unwrap_or_else(PoisonError::into_inner).extend(new.iter().map(|&(id, _)| id));
        Ok(Ticket { taker: place, queue, groups })
    }

    fn taker(&self, options: &JoinOptions) -> Taker {
        let buffers = &self.config.buffers;
        let queue = Queue::new(
            options.queue.unwrap_or(buffers.queue),
            options.policy.unwrap_or(buffers.policy),
            Arc::clone(&self.gate),
        );
        let mut fifo = self.config.fifo.core(buffers);
        fifo.messages_max = options.held.unwrap_or(fifo.messages_max);
        let fifo = (options.order == Order::Fifo)
            .then(|| Box::new(Fifo::new(fifo).expect("settings and options were checked")));
        Taker { queue, fifo }
    }

    fn open_core(&self) -> Result<MutexGuard<'_, Core>, JoinError> {
        self.core().map_err(|gone| match gone {
            Gone::Closed => JoinError::Closed,
            Gone::Failed(why) => JoinError::Failed(why),
        })
    }

    /// Leaves the groups of a subscription that others of this node do not hold.
    pub(crate) fn leave(&self, ticket: &Ticket) {
        ticket.queue.close(crate::error::RecvError::Closed);
        let mut ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        // A node that is gone has left.
        let Ok(mut core) = self.core() else { return };
        let mut gone = Vec::new();
        for (id, _) in &ticket.groups {
            let Some(joined) = core.out.groups.get_mut(id) else { continue };
            joined.takers.retain(|&taker| taker != ticket.taker);
            if joined.takers.is_empty() {
                core.out.groups.remove(id);
                if !core.changes.joined.remove(id) {
                    core.changes.left.insert(*id);
                }
                gone.push(*id);
            }
        }
        core.out.takers[ticket.taker] = None;
        let spread = core.out.spread();
        self.note_changes(&mut core, !gone.is_empty());
        drop(core);
        let mut joined = self.joined.write().unwrap_or_else(PoisonError::into_inner);
        joined.retain(|id| !gone.contains(id));
        drop(joined);
        gone.iter().for_each(|&id| ip_groups.release(spread.address(id).ip()));
    }

    fn note_changes(&self, core: &mut Core, changed: bool) {
        if changed && core.changes.since_us.is_none() {
            let now_us = clock::now_us();
            core.changes.since_us = Some(now_us);
            self.wake_before(now_us);
        }
    }

    /// Those of the groups that this node is not in. Nothing has changed if there is an error.
    fn new_groups(
        &self,
        out: &Outward,
        groups: &[(GroupId, Arc<str>)],
        manner: Manner,
    ) -> Result<Vec<(GroupId, Arc<str>)>, JoinError> {
        let differs = |name: &str, what| JoinError::Differs { group: name.to_owned(), what };
        let mut new = Vec::new();
        for (id, name) in groups {
            match out.groups.get(id) {
                Some(joined) if joined.name != *name => {
                    return Err(GroupsError::Repeated(*id).into());
                }
                Some(joined) if joined.c != manner.c => return Err(differs(name, "c")),
                Some(joined) if joined.fragments != manner.fragments => {
                    return Err(differs(name, "fragments"));
                }
                Some(joined) if joined.lifetime_us != manner.lifetime_us => {
                    return Err(differs(name, "lifetime"));
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
    fn add_taker(&mut self, taker: Taker) -> usize {
        match self.takers.iter().position(Option::is_none) {
            Some(at) => {
                self.takers[at] = Some(taker);
                at
            }
            None => {
                self.takers.push(Some(taker));
                self.takers.len() - 1
            }
        }
    }

    /// Repairs name groups by the low half of their ids: those of one node must differ.
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

/// The groups of these names, each once.
fn named(names: &[&str]) -> Result<Vec<(GroupId, Arc<str>)>, JoinError> {
    if names.is_empty() {
        return Err(JoinError::Nothing);
    }
    let mut groups: Vec<(GroupId, Arc<str>)> = Vec::with_capacity(names.len());
    let mut seen = hashbrown::HashSet::with_capacity(names.len());
    for &name in names {
        if !is_name(name) {
            return Err(JoinError::Name { length: name.len() });
        }
        if seen.insert(name) {
            groups.push((GroupId::of_name(name), name.into()));
        }
    }
    Ok(groups)
}

fn check_options(options: &JoinOptions) -> Result<(), JoinError> {
    let outside = |length: &usize| !(1..=QUEUE_MAX).contains(length);
    for (what, length) in [("queue", options.queue), ("held", options.held)] {
        if let Some(length) = length.filter(outside) {
            return Err(JoinError::Option { what, expected: "1 to 1048576", seen: length as u64 });
        }
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
