//! What the core wants done: datagrams to the socket, messages to the subscriptions.

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use netio::multicast::{Outbox, Sending, UdpCounts};
use ricochet_core::delivery::{Fifo, Released};
use ricochet_core::message::{Message as CoreMessage, Output, To};
use ricochet_core::tracker::{Front, Lost as CoreLost};
use ricochet_core::{GroupId, StreamKey};

use crate::book::{Book, Spread};
use crate::key::Seal;
use crate::message::{Lost, Message};
use crate::pool::Pool;
use crate::queue::Queue;

/// A group that this node has joined.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) name: Arc<str>,
    pub(crate) c: u8,
    pub(crate) fragments: bool,
    pub(crate) lifetime_us: Option<u64>,
    /// Places of those who take its messages.
    pub(crate) takers: Vec<usize>,
}

/// A subscription, as the node's thread sees it.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) queue: Arc<Queue>,
    /// Puts messages in order, where that is asked for.
    pub(crate) fifo: Option<Box<Fifo>>,
}

/// How datagrams leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Each with a system call of its own, so that it waits for nothing.
    AtOnce,
    /// Together, with the next flush.
    Together,
}

/// The socket.
struct Road {
    sending: Sending,
    outbox: Outbox,
}

/// Everything outside of the core.
pub(crate) struct Outward {
    pub(crate) now_us: u64,
    pub(crate) leaving: Leaving,
    /// Where answers go: a request is answered to the address that it came from.
    pub(crate) reply_to: Option<SocketAddr>,
    pub(crate) book: Book,
    pub(crate) groups: HashMap<GroupId, Joined>,
    pub(crate) takers: Vec<Option<Taker>>,
    /// When a subscription that keeps order next has something to do.
    pub(crate) fifo_due_us: Option<u64>,
    /// Datagrams to nodes whose address nobody knows.
    pub(crate) unaddressed: u64,
    spread: Spread,
    /// None once the node is closed.
    road: Option<Road>,
    /// What it has carried, once it is closed.
    sent: UdpCounts,
    seal: Option<Seal>,
    pool: Arc<Pool>,
}

impl Outward {
    pub(crate) fn new(
        sending: Sending,
        spread: Spread,
        book: Book,
        seal: Option<Seal>,
        pool: Arc<Pool>,
    ) -> Self {
        Self {
            now_us: 0,
            leaving: Leaving::Together,
            reply_to: None,
            book,
            groups: HashMap::new(),
            takers: Vec::new(),
            fifo_due_us: None,
            unaddressed: 0,
            spread,
            road: Some(Road { outbox: Outbox::new(sending.clone()), sending }),
            sent: UdpCounts::default(),
            seal,
            pool,
        }
    }

    /// Where packets to a group go.
    pub(crate) fn spread(&self) -> Spread {
        self.spread
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Sends what waits.
    pub(crate) fn flush(&mut self) {
        if let Some(Road { outbox, .. }) = self.road.as_mut().filter(|road| !road.outbox.is_empty()) {
            // What the kernel does not take is counted by the socket, and missed by the others as any loss.
            outbox.flush();
        }
    }

    /// What the socket sent and what it did not.
    pub(crate) fn sent(&self) -> UdpCounts {
        self.road.as_ref().map_or(self.sent, |road| road.sending.counts())
    }

    /// Lets go of the socket: nothing is sent any more.
    pub(crate) fn close(&mut self) {
        self.flush();
        self.sent = self.sent();
        self.road = None;
    }

    /// Subscriptions that keep order let go of what has waited long enough.
    pub(crate) fn settle_due(&mut self) {
        if self.fifo_due_us.is_none_or(|due_us| due_us > self.now_us) {
            return;
        }
        let Self { groups, takers, pool, now_us, .. } = self;
        let mut next_us: Option<u64> = None;
        for Taker { queue, fifo } in takers.iter_mut().flatten() {
            let Some(fifo) = fifo else { continue };
            fifo.handle_timeout(*now_us, &mut |released| hand_over(groups, queue, pool, &released));
            next_us = [next_us, fifo.poll_timeout()].into_iter().flatten().min();
        }
        self.fifo_due_us = next_us;
    }

    fn post(&mut self, to: SocketAddr, datagram: &[u8]) {
        let Some(Road { sending, outbox }) = &mut self.road else { return };
        let trailer = self.seal.as_ref().map(|seal| seal.trailer(datagram));
        let pieces = [datagram, trailer.as_ref().map_or(&[][..], |trailer| &trailer[..])];
        let pieces = if trailer.is_some() { &pieces[..] } else { &pieces[..1] };
        match self.leaving {
            // The socket counts what the kernel does not take.
            Leaving::AtOnce => drop(sending.send_now(to, pieces)),
            Leaving::Together => outbox.push(to, pieces),
        }
    }

    fn post_to_members(&mut self, group: GroupId, datagram: &[u8]) {
        let Some(Road { outbox, .. }) = &mut self.road else { return };
        let trailer = self.seal.as_ref().map(|seal| seal.trailer(datagram));
        let trailer = trailer.as_ref().map_or(&[][..], |trailer| &trailer[..]);
        for &member in self.book.members(group).unwrap_or_default() {
            outbox.push(member, &[datagram, trailer]);
        }
    }

    /// Tells those who keep a group in order; `tell` is given the stage.
    fn in_order(&mut self, group: GroupId, mut tell: impl FnMut(&mut Fifo, &mut dyn FnMut(Released<'_>))) {
        let Self { groups, takers, pool, fifo_due_us, .. } = self;
        let Some(joined) = groups.get(&group) else { return };
        for &at in &joined.takers {
            if let Some(Taker { queue, fifo: Some(fifo) }) = &mut takers[at] {
                tell(fifo, &mut |released| hand_over(groups, queue, pool, &released));
                *fifo_due_us = [*fifo_due_us, fifo.poll_timeout()].into_iter().flatten().min();
            }
        }
    }
}

impl Output for Outward {
    fn send(&mut self, to: To, datagram: &[u8]) {
        match to {
            To::Group(group) if self.book.members(group).is_some() => self.post_to_members(group, datagram),
            To::Group(group) => self.post(self.spread.address(group), datagram),
            To::Node(node) => match self.reply_to.or_else(|| self.book.node(node)) {
                Some(address) => self.post(address, datagram),
                None => self.unaddressed += 1,
            },
        }
    }

    fn deliver(&mut self, message: &CoreMessage<'_>) {
        let Self { groups, takers, pool, now_us, fifo_due_us, .. } = self;
        let Some(joined) = groups.get(&message.group) else { return };
        for &at in &joined.takers {
            let Some(Taker { queue, fifo }) = &mut takers[at] else { continue };
            let Some(fifo) = fifo else {
                queue.push(copied(joined, pool, message));
                continue;
            };
            fifo.handle_message(*now_us, message, &mut |released| hand_over(groups, queue, pool, &released));
            *fifo_due_us = [*fifo_due_us, fifo.poll_timeout()].into_iter().flatten().min();
        }
    }

    fn on_lost(&mut self, lost: &CoreLost) {
        let Self { groups, takers, .. } = self;
        let Some(joined) = groups.get(&lost.key.group) else { return };
        for &at in &joined.takers {
            if let Some(Taker { queue, fifo: None }) = &takers[at] {
                queue.push_lost(reported(joined, lost));
            }
        }
        let now_us = self.now_us;
        self.in_order(lost.key.group, |fifo, mut out| fifo.on_lost(now_us, lost, &mut out));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.in_order(key.group, |fifo, mut out| fifo.on_settled(key, front, &mut out));
    }
}

fn hand_over(groups: &HashMap<GroupId, Joined>, queue: &Queue, pool: &Arc<Pool>, released: &Released<'_>) {
    match released {
        Released::Message(message) => {
            if let Some(joined) = groups.get(&message.group) {
                queue.push(copied(joined, pool, message));
            }
        }
        Released::Lost(lost) => {
            if let Some(joined) = groups.get(&lost.key.group) {
                queue.push_lost(reported(joined, lost));
            }
        }
    }
}

fn copied(joined: &Joined, pool: &Arc<Pool>, message: &CoreMessage<'_>) -> Message {
    Message {
        group: Arc::clone(&joined.name),
        sender: message.sender,
        seq: message.seq.to_wire(),
        how: message.how,
        missed_us: message.missed_us,
        payload: pool.copy(message.payload),
    }
}

fn reported(joined: &Joined, lost: &CoreLost) -> Lost {
    Lost {
        group: Arc::clone(&joined.name),
        sender: lost.key.sender,
        first: lost.first.to_wire(),
        last: lost.last.to_wire(),
        reason: lost.reason,
    }
}
