//! Joining and leaving groups.

use std::sync::{Arc, PoisonError};

use ricochet_core::delivery::{Fifo, FifoConfig};
use ricochet_core::{GroupId, GroupsError};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::JoinError;
use crate::outward::{Joined, Outward, Taker};
use crate::queue::{Policy, Queue};
use crate::shared::{Core, Failed, Shared};

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

impl Shared {
    /// Joins groups, all or none. What is sent to them from now on is received; the others learn of it soon.
    pub(crate) fn join(&self, names: &[&str], options: &JoinOptions) -> Result<Ticket, JoinError> {
        check_options(options)?;
        let c = options.c.unwrap_or(self.config.repair.c);
        let groups = named(names)?;
        let mut ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        let mut core = self.core().map_err(|Failed(why)| JoinError::Failed(why))?;
        let new = self.new_groups(&core.out, &groups, c, options.fragments)?;
        let spread = core.out.spread();
        for (done, &(group, _)) in new.iter().enumerate() {
            let address = spread.address(group).ip();
            if let Err(error) = ip_groups.need(address) {
                new[..done].iter().for_each(|&(group, _)| ip_groups.release(spread.address(group).ip()));
                return Err(JoinError::Address(error));
            }
        }
        let queue = Queue::new(
            options.queue.unwrap_or(self.config.buffers.queue),
            options.policy.unwrap_or(self.config.buffers.policy),
            Arc::clone(&self.gate),
        );
        let fifo = (options.order == Order::Fifo)
            .then(|| Box::new(Fifo::new(FifoConfig::default()).expect("the default is in range")));
        let taker = core.out.add_taker(Taker { queue: Arc::clone(&queue), fifo });
        self.joined.write().unwrap_or_else(PoisonError::into_inner).extend(new.iter().map(|&(id, _)| id));
        for (id, name) in &groups {
            let Core { out, changes, .. } = &mut *core;
            let entry = out.groups.entry(*id).or_insert_with(|| {
                changes.joined.insert(*id);
                Joined { name: Arc::clone(name), c, fragments: options.fragments, takers: Vec::new() }
            });
            entry.takers.push(taker);
        }
        self.note_changes(&mut core, !new.is_empty());
        Ok(Ticket { taker, queue, groups })
    }

    /// Leaves the groups of a subscription that others of this node do not hold.
    pub(crate) fn leave(&self, ticket: &Ticket) {
        ticket.queue.close(crate::error::RecvError::Closed);
        let mut ip_groups = self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner);
        // A node that has failed has left.
        let Ok(mut core) = self.core() else { return };
        let mut gone = Vec::new();
        for (id, _) in &ticket.groups {
            let Some(joined) = core.out.groups.get_mut(id) else { continue };
            joined.takers.retain(|&taker| taker != ticket.taker);
            if joined.takers.is_empty() {
                core.out.groups.remove(id);
                core.changes.joined.remove(id);
                gone.push(*id);
            }
        }
        core.out.takers[ticket.taker] = None;
        let mut joined = self.joined.write().unwrap_or_else(PoisonError::into_inner);
        for id in &gone {
            joined.remove(id);
            ip_groups.release(core.out.spread().address(*id).ip());
        }
        drop(joined);
        self.note_changes(&mut core, !gone.is_empty());
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
        c: u8,
        fragments: bool,
    ) -> Result<Vec<(GroupId, Arc<str>)>, JoinError> {
        let differs = |name: &str, what| JoinError::Differs { group: name.to_owned(), what };
        let mut new = Vec::new();
        for (id, name) in groups {
            match out.groups.get(id) {
                Some(joined) if joined.name != *name => {
                    return Err(GroupsError::Repeated(*id).into());
                }
                Some(joined) if joined.c != c => return Err(differs(name, "c")),
                Some(joined) if joined.fragments != fragments => return Err(differs(name, "fragments")),
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
    if let Some(queue) = options.queue.filter(|queue| !(1..=QUEUE_MAX).contains(queue)) {
        return Err(JoinError::Option { what: "queue", expected: "1 to 1048576", seen: queue as u64 });
    }
    if let Some(c) = options.c.filter(|&c| c > 64) {
        return Err(JoinError::Option { what: "c", expected: "0 to 64", seen: c.into() });
    }
    Ok(())
}
