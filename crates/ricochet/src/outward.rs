//! The core's output: datagrams to the socket, messages to the subscriptions.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use ricochet_core::delivery::{Fifo, Released};
use ricochet_core::flow::ReaderNews;
use ricochet_core::message::{Message as CoreMessage, Output, To};
use ricochet_core::tracker::{Front, Lost as CoreLost};
use ricochet_core::{GroupId, HistoryNews, NodeId, StreamKey};

use crate::addresses::{GroupAddresses, NodeAddresses};
use crate::filler::{Filler, report};
use crate::held::Held;
use crate::marks::Marks;
use crate::message::{Event, Member, RegistryNews};
use crate::news_log::Losses;
use crate::past::Past;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::tasks::Tasks;
use crate::total::Totals;
use crate::transmitter::Datagrams;

/// A group that this node has joined.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) name: Arc<str>,
    pub(crate) c: u8,
    pub(crate) fragments: bool,
    pub(crate) lifetime_us: Option<u64>,
    /// Indices of the consumers of its messages.
    pub(crate) consumers: Vec<usize>,
    /// Reading of messages from before.
    pub(crate) past: Past,
}

/// A subscription as the node's thread sees it.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) queue: Arc<Queue>,
    /// Orders the messages, if the subscription requires it.
    pub(crate) fifo: Option<Box<Fifo>>,
    /// Whether it wants this node's own messages.
    pub(crate) loopback: bool,
    /// Whether it wants news about members.
    pub(crate) members: bool,
    /// Whether it takes the replies to this node's requests.
    pub(crate) is_inbox: bool,
    /// Whether it gets messages in total order alone.
    pub(crate) is_total: bool,
}

/// Readers of this node's messages that did not keep up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReaderCounts {
    pub(crate) slow: u64,
    pub(crate) left_behind: u64,
    pub(crate) caught_up: u64,
}

/// Implementation of the core's [`Output`].
pub(crate) struct Outward {
    pub(crate) now_us: u64,
    /// Datagrams to be handed over when the core is released.
    pub(crate) datagrams: Datagrams,
    /// Source address of the request in progress, to which its answer goes.
    pub(crate) reply_to: Option<SocketAddr>,
    pub(crate) addresses: NodeAddresses,
    pub(crate) groups: HashMap<GroupId, Joined>,
    pub(crate) consumers: Vec<Option<Consumer>>,
    /// Time of the next timeout of a subscription that keeps order.
    pub(crate) fifo_due_us: Option<u64>,
    /// News that the registry of the members is away, while it is.
    pub(crate) registry_away: Option<RegistryNews>,
    /// Numbers of readers that did not keep up.
    pub(crate) readers: ReaderCounts,
    /// Losses that the log does not tell yet.
    pub(crate) losses: Losses,
    /// Packets given up since the start, but for those whose deadline had passed.
    pub(crate) lost: u64,
    /// Number of datagrams to nodes whose address is unknown.
    pub(crate) unaddressed: u64,
    /// Groups whose history has been read.
    pub(crate) caught_up: Vec<GroupId>,
    /// Bits of the multicast addresses that the node has sent to.
    pub(crate) sent_to: u64,
    /// Whether the findings about all members are wanted, also where nothing is wrong.
    pub(crate) tells_all: bool,
    /// Senders that wait until members hold a message.
    pub(crate) held: Arc<Held>,
    /// Requests that wait for replies, by their numbers.
    pub(crate) requests: HashMap<u64, Arc<Queue>>,
    /// Number of replies that nobody waits for.
    pub(crate) unasked_replies: u64,
    /// Groups in total order.
    pub(crate) totals: Totals,
    /// Tasks to be woken when the core is released.
    pub(crate) tasks: RefCell<Tasks>,
    me: Member,
    group_addresses: GroupAddresses,
    marks: Marks,
    pool: Arc<Pool>,
}

impl Outward {
    pub(crate) fn new(
        (id, address): (NodeId, SocketAddr),
        group_addresses: GroupAddresses,
        addresses: NodeAddresses,
        marks: Marks,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            me: Member { id, address },
            now_us: 0,
            datagrams: Datagrams::default(),
            reply_to: None,
            addresses,
            groups: HashMap::new(),
            consumers: Vec::new(),
            fifo_due_us: None,
            registry_away: None,
            readers: ReaderCounts::default(),
            losses: Losses::default(),
            lost: 0,
            unaddressed: 0,
            caught_up: Vec::new(),
            sent_to: 0,
            tells_all: false,
            held: Arc::default(),
            requests: HashMap::new(),
            unasked_replies: 0,
            totals: Totals::default(),
            tasks: RefCell::default(),
            group_addresses,
            marks,
            pool,
        }
    }

    /// Returns the multicast addresses of groups.
    pub(crate) fn group_addresses(&self) -> GroupAddresses {
        self.group_addresses
    }

    /// Returns this node.
    pub(crate) fn me(&self) -> Member {
        self.me
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the names of the groups of a consumer, at most three of them.
    pub(crate) fn groups_of(&self, consumer: usize) -> String {
        const NAMED_MAX: usize = 3;
        let of_consumer = |joined: &&Joined| joined.consumers.contains(&consumer);
        let mut names: Vec<&str> =
            self.groups.values().filter(of_consumer).map(|joined| &*joined.name).collect();
        names.sort_unstable();
        let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
        names.truncate(NAMED_MAX);
        names.join(", ") + more
    }

    /// Returns whether a subscription to a group wants this node's own messages.
    pub(crate) fn wants_loopback(&self, group: GroupId) -> bool {
        let consumers = self.groups.get(&group).map_or(&[][..], |joined| &joined.consumers[..]);
        let wants = |&at: &usize| matches!(&self.consumers[at], Some(consumer) if consumer.loopback);
        self.totals.contains(group) || consumers.iter().any(wants)
    }

    /// Splits off the consumers from what it takes to fill their queues.
    pub(crate) fn split(&mut self) -> (&mut [Option<Consumer>], Filler<'_>, &mut Option<u64>) {
        let Self { groups, consumers, pool, addresses, requests, me, fifo_due_us, tasks, .. } = self;
        (consumers, Filler { groups, pool, addresses, requests, me: *me, tasks }, fifo_due_us)
    }

    /// Tells a subscription news.
    pub(crate) fn tell(&self, queue: &Queue, news: Event) {
        self.tasks.borrow_mut().add(queue.push_news(news));
    }

    /// Handles the timeouts of subscriptions that keep order.
    pub(crate) fn handle_timeout(&mut self) {
        let now_us = self.now_us;
        if self.fifo_due_us.is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let (consumers, filler, fifo_due_us) = self.split();
        let mut next_us: Option<u64> = None;
        for Consumer { queue, fifo, .. } in consumers.iter_mut().flatten() {
            let Some(fifo) = fifo else { continue };
            fifo.handle_timeout(now_us, &mut |released| filler.release(queue, &released));
            next_us = [next_us, fifo.poll_timeout()].into_iter().flatten().min();
        }
        *fifo_due_us = next_us;
    }

    /// Hands a message to one consumer.
    pub(crate) fn deliver_to(&mut self, at: usize, message: &CoreMessage<'_>) {
        let now_us = self.now_us;
        let (consumers, filler, fifo_due_us) = self.split();
        let Some(Some(Consumer { queue, fifo, .. })) = consumers.get_mut(at) else { return };
        let Some(fifo) = fifo else { return filler.push(queue, message) };
        fifo.handle_message(now_us, message, &mut |released| filler.release(queue, &released));
        *fifo_due_us = [*fifo_due_us, fifo.poll_timeout()].into_iter().flatten().min();
    }

    /// Calls `notify` with the ordering stage of each subscription that keeps a stream in order, unless it
    /// waits for its history: messages of the past may precede what is known of the stream at present.
    fn for_each_fifo(
        &mut self,
        key: StreamKey,
        mut notify: impl FnMut(&mut Fifo, &mut dyn FnMut(Released<'_>)),
    ) {
        let (consumers, filler, fifo_due_us) = self.split();
        let Some(joined) = filler.groups.get(&key.group) else { return };
        let is_own = key.sender == filler.me.id;
        for &at in &joined.consumers {
            let Some(consumer) = consumers[at].as_mut().filter(|consumer| consumer.loopback || !is_own)
            else {
                continue;
            };
            if joined.past.is_later(at) {
                continue;
            }
            if let Consumer { queue, fifo: Some(fifo), .. } = consumer {
                notify(fifo, &mut |released| filler.release(queue, &released));
                *fifo_due_us = [*fifo_due_us, fifo.poll_timeout()].into_iter().flatten().min();
            }
        }
    }
}

impl Output for Outward {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let Self { datagrams, addresses, marks, .. } = self;
        match to {
            To::Group(group) => {
                let tos = marks.of_group(group);
                self.sent_to |= self.group_addresses.bit(group);
                match addresses.group_members(group) {
                    Some(members) => datagrams.push_copies(members, tos, datagram),
                    None => {
                        datagrams.push(self.group_addresses.address(group), true, tos, datagram);
                        let deaf = addresses.deaf(group);
                        if !deaf.is_empty() {
                            datagrams.push_copies(deaf, tos, datagram);
                        }
                    }
                }
            }
            To::Node(node) => match self.reply_to.or_else(|| addresses.node(node)) {
                Some(address) => datagrams.push(address, false, marks.of_datagram(datagram), datagram),
                None => self.unaddressed += 1,
            },
        }
    }

    fn deliver(&mut self, message: &CoreMessage<'_>) {
        let now_us = self.now_us;
        if self.totals.take(now_us, message) {
            return;
        }
        let (consumers, filler, fifo_due_us) = self.split();
        let Some(joined) = filler.groups.get(&message.group) else { return };
        let is_own = message.sender == filler.me.id;
        let mut unasked = 0;
        for &at in &joined.consumers {
            if !is_own && !joined.past.takes(at, message) {
                continue;
            }
            let Some(Consumer { queue, fifo, loopback, is_inbox, is_total, .. }) = &mut consumers[at] else {
                continue;
            };
            if *is_total || (is_own && !*loopback) {
                continue;
            }
            if *is_inbox {
                unasked += filler.pass_replies(message);
                continue;
            }
            let Some(fifo) = fifo else {
                filler.push(queue, message);
                continue;
            };
            fifo.handle_message(now_us, message, &mut |released| filler.release(queue, &released));
            *fifo_due_us = [*fifo_due_us, fifo.poll_timeout()].into_iter().flatten().min();
        }
        self.unasked_replies += unasked;
    }

    fn on_lost(&mut self, lost: &CoreLost) {
        let is_own = lost.key.sender == self.me.id;
        if self.totals.on_lost(lost) || (is_own && !self.wants_loopback(lost.key.group)) {
            // A message of this node that it did not put together for itself was sent.
            return;
        }
        let Self { groups, consumers, losses, lost: total, tasks, .. } = self;
        let Some(joined) = groups.get(&lost.key.group) else { return };
        *total += losses.note(lost);
        for &at in &joined.consumers {
            let Some(Consumer { queue, fifo: None, is_total: false, loopback, is_inbox, .. }) =
                &consumers[at]
            else {
                continue;
            };
            if (is_own && !loopback) || joined.past.is_later(at) {
                continue;
            }
            let report = report(joined, lost);
            if *is_inbox {
                // Which request it belonged to is lost too.
                let (sender, reason) = (report.sender(), report.reason());
                tracing::warn!(%sender, "a reply, or a part of one, is lost: {reason}; a request has fewer replies");
                continue;
            }
            tasks.get_mut().add(queue.push_lost(report));
        }
        let now_us = self.now_us;
        self.for_each_fifo(lost.key, |fifo, mut out| fifo.on_lost(now_us, lost, &mut out));
    }

    fn on_reader(&mut self, group: GroupId, reader: NodeId, news: ReaderNews) {
        let name =
            self.groups.get(&group).map_or_else(|| group.to_string(), |joined| joined.name.to_string());
        let reader = reader.to_string();
        match news {
            ReaderNews::Slow => {
                self.readers.slow += 1;
                tracing::warn!(group = name, reader, "a reader holds up the messages to its group");
            }
            ReaderNews::LeftBehind => {
                self.readers.left_behind += 1;
                tracing::warn!(group = name, reader, "a reader is left behind: it makes no progress");
            }
            ReaderNews::Silent => {
                self.readers.left_behind += 1;
                tracing::warn!(group = name, reader, "a reader is left behind: it reports nothing");
            }
            ReaderNews::CaughtUp => {
                self.readers.caught_up += 1;
                tracing::info!(group = name, reader, "a reader that was left behind has caught up");
            }
        }
    }

    fn on_held(&mut self, _: GroupId, _: u32) {
        self.tasks.get_mut().add(self.held.on_change());
    }

    fn has_room(&mut self, group: GroupId, messages: u32) -> bool {
        self.has_room_for_past(group, messages)
    }

    fn on_history(&mut self, group: GroupId, news: HistoryNews) {
        self.tell_history(group, news);
    }

    fn on_caught_up(&mut self, group: GroupId) {
        self.caught_up.push(group);
    }

    fn on_restart(&mut self, key: StreamKey) {
        self.totals.on_restart(key);
        self.for_each_fifo(key, |fifo, _| fifo.forget(|other| other == key));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.totals.on_settled(key, front);
        self.for_each_fifo(key, |fifo, mut out| fifo.on_settled(key, front, &mut out));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ricochet_core::counters::GivenUp;
    use ricochet_core::message::{Message as CoreMessage, Output as _, Sent};
    use ricochet_core::tracker::{Front, Lost as CoreLost};
    use ricochet_core::wire::Envelope;
    use ricochet_core::{GroupId, NodeId, Seq, StreamKey};

    use crate::error::TryRecvError;
    use crate::joining::{JoinOptions, Order};
    use crate::message::Event;
    use crate::node::Node;
    use crate::past::Start;
    use crate::queue::Queue;

    /// Returns the first numbers of the messages and losses that wait.
    fn drained(queue: &Queue) -> Vec<(&'static str, u32)> {
        let mut events = Vec::new();
        loop {
            match queue.try_pop() {
                Ok(Event::Message(message)) => events.push(("message", message.seq())),
                Ok(Event::Lost(lost)) => events.push(("lost", lost.first)),
                Err(TryRecvError::Empty) => return events,
                other => panic!("{other:?}"),
            }
        }
    }

    fn lost(sender: NodeId, first: u32, last: u32) -> CoreLost {
        let key = StreamKey { sender, group: GroupId::of_name("g") };
        let [first, last] = [first, last].map(Seq::first_seen);
        CoreLost { key, first, last, reason: GivenUp::Unanswered }
    }

    #[test]
    fn a_subscription_that_waits_for_its_history_gets_no_losses_of_its_present() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = Arc::clone(&driver.shared);
        let join = |order| {
            let options = JoinOptions { order, from: Start::Last(9), ..JoinOptions::default() };
            shared.join(&["g"], &options).unwrap()
        };
        let first = join(Order::Unordered);
        let later = [join(Order::Unordered), join(Order::Fifo)];
        let mut core = shared.core_for_node();
        let lost = lost(NodeId(9), 5, 6);
        core.out.on_lost(&lost);
        let front = Front { settled: Seq::first_seen(7), awaited: Seq::first_seen(7) };
        core.out.on_settled(lost.key, front);
        // Its history begins before the packets that were lost.
        let seq = Seq::first_seen(3);
        let message = CoreMessage::new(NodeId(9), GroupId::of_name("g"), seq, b"past");
        let message = CoreMessage { front, past_us: Some(1), ..message };
        later.iter().for_each(|handle| core.out.deliver_to(handle.consumer, &message));
        drop(core);
        assert_eq!(drained(&first.queue), [("lost", 5)]);
        for handle in &later {
            assert_eq!(drained(&handle.queue), [("message", 3)]);
        }
    }

    #[test]
    fn a_message_in_total_order_is_delivered_whatever_its_age() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = Arc::clone(&driver.shared);
        let handle = shared.join(&["g"], &JoinOptions::default()).unwrap();
        let mut payload = Vec::new();
        Envelope { deadline_us: Some(1), ..Envelope::default() }.write(&mut payload);
        payload.extend_from_slice(b"187.21");
        let (group, seq) = (GroupId::of_name("g"), Seq::first_seen(3));
        let sent = Some(Sent { at_us: 1, since_us: 0 });
        let message = CoreMessage::new(NodeId(9), group, seq, &payload);
        let message = CoreMessage { sent, enveloped: true, ..message };
        let mut core = shared.core_for_node();
        let (_, filler, _) = core.out.split();
        filler.push(&handle.queue, &message);
        filler.push_numbered(&handle.queue, &message, 7);
        drop(core);
        assert_eq!(drained(&handle.queue), [("lost", 3), ("message", 3)]);
    }

    #[test]
    fn losses_of_own_messages_are_told_where_these_are_wanted() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = Arc::clone(&driver.shared);
        let join = |order, loopback| {
            shared.join(&["g"], &JoinOptions { order, loopback, ..JoinOptions::default() }).unwrap()
        };
        let handles = [Order::Unordered, Order::Fifo].map(|order| [false, true].map(|own| join(order, own)));
        let mut core = shared.core_for_node();
        let [seq, next] = [4, 5].map(Seq::first_seen);
        let message = CoreMessage::new(shared.id, GroupId::of_name("g"), seq, b"own");
        core.out.deliver(&CoreMessage { front: Front { settled: next, awaited: next }, ..message });
        core.out.on_lost(&lost(shared.id, 5, 6));
        drop(core);
        for [without, with] in &handles {
            assert_eq!(drained(&without.queue), []);
            assert_eq!(drained(&with.queue), [("message", 4), ("lost", 5)]);
        }
    }
}
