//! Events for the queues of subscriptions, made of the core's messages and losses.

use std::cell::RefCell;
use std::sync::Arc;

use hashbrown::HashMap;
use ricochet_core::GroupId;
use ricochet_core::counters::GivenUp;
use ricochet_core::delivery::Released;
use ricochet_core::message::Message as CoreMessage;
use ricochet_core::tracker::Lost as CoreLost;
use ricochet_core::wire::{Envelope, MESSAGE_HEAD, messages_of};

use crate::addresses::NodeAddresses;
use crate::message::{Event, Lost, Member, Message};
use crate::outward::Joined;
use crate::pool::{Payload, Pool};
use crate::queue::Queue;
use crate::tasks::Tasks;

/// State that is needed to fill the queues of subscriptions.
pub(crate) struct Filler<'a> {
    pub(crate) groups: &'a HashMap<GroupId, Joined>,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) addresses: &'a NodeAddresses,
    pub(crate) requests: &'a HashMap<u64, Arc<Queue>>,
    pub(crate) me: Member,
    /// Tasks that wait for what is queued.
    pub(crate) tasks: &'a RefCell<Tasks>,
}

impl Filler<'_> {
    /// Queues an event that an ordering stage has released.
    pub(crate) fn release(&self, queue: &Queue, released: &Released<'_>) {
        match released {
            Released::Message(message) => self.push(queue, message),
            Released::Lost(lost) => {
                if let Some(joined) = self.groups.get(&lost.key.group) {
                    self.wake(queue.push_lost(report(joined, lost)));
                }
            }
        }
    }

    /// Queues a message, or the messages that share its packet.
    pub(crate) fn push(&self, queue: &Queue, message: &CoreMessage<'_>) {
        self.open(message, |events| self.wake(queue.push_all(events)));
    }

    /// Queues a message with its number in total order, or the messages that share its packet. It is
    /// delivered whatever its age: members read it at different times, and must deliver the same.
    pub(crate) fn push_numbered(&self, queue: &Queue, message: &CoreMessage<'_>, number: u64) {
        let first = message.seq.to_wire();
        let numbered = |event| match event {
            Event::Message(message) => {
                let number = number + u64::from(message.seq.wrapping_sub(first));
                Event::Message(Message { number: Some(number), expires_us: None, ..message })
            }
            other => other,
        };
        self.open(message, |events| self.wake(queue.push_all(events.map(numbered))));
    }

    /// Passes replies to the requests that wait for them. Returns the number of those that no request waits
    /// for.
    pub(crate) fn pass_replies(&self, message: &CoreMessage<'_>) -> u64 {
        let mut unasked = 0;
        self.open(message, |events| {
            for event in events {
                let Event::Message(reply) = event else { continue };
                match reply.reply.and_then(|number| self.requests.get(&number)) {
                    Some(queue) => self.wake(queue.push_all(std::iter::once(Event::Message(reply)))),
                    None => unasked += 1,
                }
            }
        });
        unasked
    }

    /// Lets tasks be woken when the core is released.
    pub(crate) fn wake(&self, tasks: Tasks) {
        self.tasks.borrow_mut().add(tasks);
    }

    /// Makes events of a message, or of the messages that share its packet. Those share a buffer too.
    fn open(&self, message: &CoreMessage<'_>, take: impl FnOnce(&mut dyn Iterator<Item = Event>)) {
        let Some(joined) = self.groups.get(&message.group) else { return };
        let whole = self.pool.copy(message.payload);
        let is_own = message.sender == self.me.id;
        let address = if is_own { Some(self.me.address) } else { self.addresses.node(message.sender) };
        let sent = message.sent;
        let of = |seq: u32, packets: u32, (payload, about): (Payload, About)| Message {
            group: Arc::clone(&joined.name),
            sender: message.sender,
            seq,
            packets,
            how: message.how,
            missed_us: message.missed_us,
            is_past: message.past_us.is_some(),
            is_own,
            address,
            sent_us: sent.map(|sent| sent.at_us),
            expires_us: sent.and_then(|sent| about.deadline_us.map(|us| sent.since_us.saturating_add(us))),
            envelope: about.envelope,
            request: about.request,
            reply: about.reply,
            number: None,
            payload,
        };
        let seq = message.seq.to_wire();
        let lost = |seq: u32, packets: u32| Lost {
            group: Arc::clone(&joined.name),
            sender: message.sender,
            first: seq,
            last: seq.wrapping_add(packets.saturating_sub(1)),
            reason: GivenUp::Unfit,
        };
        let opened = |seq: u32, packets: u32, whole: Payload| {
            let opened = if message.enveloped { open(&whole) } else { Some((whole, About::default())) };
            let event = opened.map(|opened| Event::Message(of(seq, packets, opened)));
            event.unwrap_or_else(|| Event::Lost(lost(seq, packets)))
        };
        if !message.joint {
            return take(&mut std::iter::once(opened(seq, message.packets, whole)));
        }
        let mut start = 0;
        let mut parts = messages_of(message.payload).zip(0..).map(|(part, step)| {
            start += MESSAGE_HEAD + part.len();
            opened(seq.wrapping_add(step), 1, whole.part(start - part.len()..start))
        });
        take(&mut parts);
    }
}

pub(crate) fn report(joined: &Joined, lost: &CoreLost) -> Lost {
    Lost {
        group: Arc::clone(&joined.name),
        sender: lost.key.sender,
        first: lost.first.to_wire(),
        last: lost.last.to_wire(),
        reason: lost.reason,
    }
}

/// Contents of the envelope of a message.
#[derive(Default)]
struct About {
    /// The envelope itself, if it has content type, headers or key.
    envelope: Option<Payload>,
    deadline_us: Option<u64>,
    request: Option<u64>,
    reply: Option<u64>,
}

/// Parts a message from its envelope; `None` if that cannot be read.
fn open(whole: &Payload) -> Option<(Payload, About)> {
    let (envelope, payload) = Envelope::read(whole.bytes()).ok()?;
    let length = whole.bytes().len();
    let start = length - payload.len();
    let is_kept = envelope.headers_len() > 0 || envelope.content_type.is_some() || envelope.key.is_some();
    let (deadline_us, request, reply) =
        (envelope.deadline_us.map(u64::from), envelope.request, envelope.reply);
    let envelope = is_kept.then(|| whole.part(0..start));
    Some((whole.part(start..length), About { envelope, deadline_us, request, reply }))
}
