//! The stage: one host per node at one bridge, the nodes, and the threads that receive their deliveries.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use ricochet::{Builder, ClusterKey, Event, How, Node, Subscription};
use ricochet_core::{GroupId, NodeId, StreamKey};
use sim::Setting;

use super::clock::Clock;
use super::tap::Tap;
use super::watch::{Step, Watcher};

/// Messages that may wait for their receiver, which does little else: more than a minute's at 1,000 per
/// second.
const QUEUE: usize = 1 << 16;
/// Time limit for all nodes to learn of each other; nodes that start at once need one or two seconds.
const PATIENCE_US: u64 = 60_000_000;
/// Time for a view to reach a node's bins, which takes some milliseconds.
const SETTLE: Duration = Duration::from_millis(200);
/// Length of IPv6 and UDP headers, with some to spare.
const HEADERS: usize = 48;

/// The groups of all nodes, by number as in virtual time and by name as on the wire.
pub(crate) struct Groups {
    /// Groups of each node.
    pub(crate) grouping: Vec<Vec<GroupId>>,
    members: HashMap<GroupId, Rc<[usize]>>,
    names: HashMap<GroupId, String>,
    /// Numbers by the id on the wire.
    numbers: HashMap<GroupId, GroupId>,
}

impl Groups {
    pub(crate) fn of(setting: &Setting) -> Self {
        let grouping = setting.grouping();
        let mut members: HashMap<GroupId, Vec<usize>> = HashMap::new();
        for (at, groups) in grouping.iter().enumerate() {
            groups.iter().for_each(|&group| members.entry(group).or_default().push(at));
        }
        let mut all: Vec<GroupId> = members.keys().copied().collect();
        all.sort_unstable();
        let names: HashMap<_, _> =
            all.into_iter().enumerate().map(|(at, group)| (group, format!("g{at}"))).collect();
        let numbers = names.iter().map(|(&group, name)| (GroupId::of_name(name), group)).collect();
        let members = members.into_iter().map(|(group, members)| (group, members.into())).collect();
        Self { grouping, members, names, numbers }
    }

    pub(crate) fn members(&self, group: GroupId) -> &Rc<[usize]> {
        &self.members[&group]
    }

    pub(crate) fn name(&self, group: GroupId) -> &str {
        &self.names[&group]
    }

    /// Returns the number of a group on the wire, or its id on the wire if no node joined it.
    pub(crate) fn number(&self, group: GroupId) -> GroupId {
        self.numbers.get(&group).copied().unwrap_or(group)
    }
}

/// An output of a subscription.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) now_us: u64,
    pub(crate) key: StreamKey,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A message, with the hash of its payload.
    Message { seq: u32, how: How, print: u64 },
    /// Packets that will not arrive.
    Lost { first: u32, packets: u64 },
}

/// Returns a hash of a payload; payloads with equal hashes count as equal.
pub(crate) fn print(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    hasher.finish()
}

/// A node of the stage. Fields are dropped in this order.
struct Place {
    subscription: Option<Arc<Subscription>>,
    node: Node,
    tap: Tap,
    receiver: Option<JoinHandle<Vec<Report>>>,
}

/// Everything that exists during a run. On drop, nodes end first, then their outputs and the network.
pub(crate) struct Stage {
    places: Vec<Place>,
    pub(crate) groups: Groups,
    pub(crate) clock: Clock,
    pub(crate) delivered: Arc<AtomicU64>,
    pub(crate) lan: BridgeLan,
}

impl Stage {
    /// Builds the network and starts the nodes, each of which joins its groups.
    pub(crate) fn build(
        setting: &Setting,
        key: Option<&ClusterKey>,
        watcher: Watcher<'_>,
    ) -> anyhow::Result<Self> {
        let groups = Groups::of(setting);
        let nodes = groups.grouping.len();
        let hosts = u8::try_from(nodes).unwrap_or(u8::MAX);
        let mtu = (setting.node().datagram_max + HEADERS).max(1_500) as u32;
        let lan = BridgeLan::build(&BridgeLanConfig { hosts, mtu, ..BridgeLanConfig::default() })?;
        let mut stage = Self {
            places: Vec::new(),
            groups,
            clock: Clock::start(),
            delivered: Arc::new(AtomicU64::new(0)),
            lan,
        };
        for at in 0..nodes {
            watcher(Step::Still)?;
            stage.start(setting, key, at).with_context(|| format!("starting node {at}"))?;
        }
        Ok(stage)
    }

    fn start(&mut self, setting: &Setting, key: Option<&ClusterKey>, at: usize) -> anyhow::Result<()> {
        let tap = Tap::default();
        let groups = &self.groups.grouping[at];
        let mut builder = Node::builder(HOST)
            .address(self.lan.address_v4(at))
            .core(setting.node())
            .c(setting.c)
            .max_groups(groups.len().max(1))
            .randomness(setting.seed.wrapping_mul(1_000_003).wrapping_add(at as u64))
            .lose(tap.lose(setting, at, self.clock));
        if let Some(key) = key {
            builder = builder.key(key.clone());
        }
        if let Some(first) = self.places.first() {
            builder = builder.seed(first.node.address().to_string());
        }
        let node = self.lan.host(at).run(|| Builder::start(builder))?;
        let mut place = Place { node, subscription: None, tap, receiver: None };
        if !groups.is_empty() {
            let names = groups.iter().map(|&group| self.groups.name(group));
            let options = ricochet::JoinOptions { queue: Some(QUEUE), ..ricochet::JoinOptions::default() };
            let subscription = Arc::new(place.node.join_many_with(names, &options)?);
            place.subscription = Some(Arc::clone(&subscription));
            let (clock, delivered) = (self.clock, Arc::clone(&self.delivered));
            let receive = move || receive(&subscription, clock, &delivered);
            let thread = thread::Builder::new().name(format!("receiver-{at}"));
            place.receiver = Some(thread.spawn(receive).context("starting a thread")?);
        }
        self.places.push(place);
        Ok(())
    }

    /// Waits until every node knows all members of all groups.
    pub(crate) fn wait_for_views(&self, watcher: Watcher<'_>) -> anyhow::Result<()> {
        let deadline_us = self.clock.now_us() + PATIENCE_US;
        while let Some((at, group)) = self.unknown_member() {
            watcher(Step::Still)?;
            if self.clock.now_us() > deadline_us {
                let others = self.groups.members(group).iter().filter(|&&member| member != at).count();
                let name = self.groups.name(group);
                let known = self.places[at].node.members(name);
                bail!(
                    "node {at} knows {known} of {others} members of {name} after {} s",
                    PATIENCE_US / 1_000_000
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(SETTLE);
        Ok(())
    }

    /// Returns a node, and a group of which it does not know all members.
    pub(crate) fn unknown_member(&self) -> Option<(usize, GroupId)> {
        let nodes = self.places.iter().enumerate();
        nodes.flat_map(|(at, place)| self.groups.names.iter().map(move |name| (at, place, name))).find_map(
            |(at, place, (&group, name))| {
                let members = self.groups.members(group);
                let others = members.len() - usize::from(members.binary_search(&at).is_ok());
                (place.node.members(name) < others).then_some((at, group))
            },
        )
    }

    pub(crate) fn node(&self, at: usize) -> &Node {
        &self.places[at].node
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.places.iter().map(|place| &place.node)
    }

    pub(crate) fn tap(&self, at: usize) -> &Tap {
        &self.places[at].tap
    }

    /// Returns the nodes by id.
    pub(crate) fn ids(&self) -> HashMap<NodeId, usize> {
        self.nodes().enumerate().map(|(at, node)| (node.id(), at)).collect()
    }

    /// Ends the subscriptions and returns their outputs.
    pub(crate) fn end(&mut self) -> anyhow::Result<Vec<Vec<Report>>> {
        let mut all = Vec::new();
        for (at, place) in self.places.iter_mut().enumerate() {
            place.subscription.take().iter().for_each(|subscription| subscription.leave());
            let joined = place.receiver.take().map_or_else(|| Ok(Vec::new()), JoinHandle::join);
            all.push(joined.map_err(|_| anyhow!("the receiving thread of node {at} panicked"))?);
        }
        Ok(all)
    }
}

/// Receives until the subscription ends.
fn receive(subscription: &Subscription, clock: Clock, delivered: &AtomicU64) -> Vec<Report> {
    let mut all = Vec::new();
    while let Ok(event) = subscription.recv_event() {
        let now_us = clock.now_us();
        let key = |sender, group: &str| StreamKey { sender, group: GroupId::of_name(group) };
        all.push(match event {
            Event::Message(message) => {
                delivered.fetch_add(1, Ordering::Relaxed);
                let (seq, how, print) = (message.seq(), message.how(), print(message.payload()));
                Report {
                    now_us,
                    key: key(message.sender(), message.group()),
                    what: What::Message { seq, how, print },
                }
            }
            Event::Lost(lost) => {
                let what = What::Lost { first: *lost.range().start(), packets: lost.packets() };
                Report { now_us, key: key(lost.sender(), lost.group()), what }
            }
            Event::History(_) | Event::Member(_) | Event::Group(_) | Event::Order(_) | Event::Registry(_) => {
                continue;
            }
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_on_the_wire_and_numbers_in_the_ledger() {
        let setting =
            Setting { nodes: 6, groups_per_node: 4, group_size: 3, outside_senders: 1, ..Setting::default() };
        let groups = Groups::of(&setting);
        assert_eq!((groups.grouping.len(), groups.grouping[6].len()), (7, 0));
        for (at, of_node) in groups.grouping.iter().enumerate() {
            for &group in of_node {
                assert!(groups.members(group).binary_search(&at).is_ok());
                assert_eq!(groups.number(GroupId::of_name(groups.name(group))), group);
            }
        }
        let unknown = GroupId::of_name("unknown");
        assert_eq!(groups.number(unknown), unknown);
    }
}
