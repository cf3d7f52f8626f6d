//! Messages and loss reports, as a subscription receives them.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ricochet_core::counters::GivenUp;
use ricochet_core::order::OrderNews;
use ricochet_core::wire::Envelope;
use ricochet_core::{HistoryNews, NodeId};

use crate::pool::Payload;

pub use ricochet_core::message::How;

/// A message of one of the groups of a subscription.
///
/// The payload lies in a buffer of the node, which reuses the buffer when the message is dropped. To keep a
/// payload for long, copy it rather than keep the message.
pub struct Message {
    pub(crate) group: Arc<str>,
    pub(crate) sender: NodeId,
    pub(crate) seq: u32,
    /// Number of packets that carried it.
    pub(crate) packets: u32,
    pub(crate) how: How,
    pub(crate) missed_us: Option<u64>,
    /// Whether this node read it from the history of a member.
    pub(crate) is_past: bool,
    /// Whether this node sent it.
    pub(crate) is_own: bool,
    /// Address of the sender, as far as this node knows it.
    pub(crate) address: Option<SocketAddr>,
    /// Microseconds from 1970 to the time at which it was sent, by the sender's clock.
    pub(crate) sent_us: Option<u64>,
    /// Time from which on it is worthless, by this node's clock.
    pub(crate) expires_us: Option<u64>,
    /// Its envelope, if that has content type, headers or key.
    pub(crate) envelope: Option<Payload>,
    /// Number that replies repeat, if it is a request.
    pub(crate) request: Option<u64>,
    /// Number of the request that it replies to.
    pub(crate) reply: Option<u64>,
    /// Its number in total order.
    pub(crate) number: Option<u64>,
    pub(crate) payload: Payload,
}

impl Message {
    /// Returns the name of the group that the message was sent to.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the sender: one life of a node.
    pub fn sender(&self) -> NodeId {
        self.sender
    }

    /// Returns the address of the sender, as the membership knows it; of a sender that is no member, the one
    /// that its packets come from. `None` if neither is known, as for a message of the past whose sender is
    /// gone.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns whether this node sent the message itself ([`JoinOptions::loopback`](crate::JoinOptions)).
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns the time at which the message was sent, by the sender's clock as it was set when the sender
    /// started. Messages that share a packet have the time of the first; they share one only if they wait.
    pub fn sent(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_micros(self.sent_us?))
    }

    /// Returns the sequence number of the message among those of this sender to this group, from 0, modulo
    /// 2³². A message that was sent in several packets takes as many numbers.
    pub fn seq(&self) -> u32 {
        self.seq
    }

    /// Returns the number of the message in [total order](crate::Order::Total). A message that was sent in
    /// several packets takes as many numbers.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// Returns the type of the payload, if the sender has given one.
    pub fn content_type(&self) -> Option<&str> {
        self.envelope().content_type
    }

    /// Returns the bytes that the sender has given to the message beside the payload; none if it has not.
    pub fn headers(&self) -> &[u8] {
        self.envelope().headers
    }

    /// Returns the key of which the message is the value
    /// ([`Sender::send_keyed`](crate::Sender::send_keyed)). An empty payload deletes the key.
    pub fn key(&self) -> Option<&[u8]> {
        self.envelope().key
    }

    fn envelope(&self) -> Envelope<'_> {
        let envelope = self.envelope.as_ref().and_then(|bytes| Envelope::read(bytes.bytes()).ok());
        envelope.map_or_else(Envelope::default, |(envelope, _)| envelope)
    }

    /// Returns whether its sender waits for replies ([`Node::reply`](crate::Node::reply)).
    pub fn is_request(&self) -> bool {
        self.request.is_some()
    }

    /// Returns whether the message was lost at first, and then recovered from a repair or retransmitted.
    pub fn recovered(&self) -> bool {
        self.how != How::Multicast
    }

    /// Returns whether the message was sent before the subscription, and kept by a member.
    pub fn is_past(&self) -> bool {
        self.is_past
    }

    /// Returns how the message arrived.
    pub fn how(&self) -> How {
        self.how
    }

    /// Returns the time for which this node knew that the message was missing; zero if it never was.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.missed_us.unwrap_or(0))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("group", &self.group())
            .field("sender", &self.sender)
            .field("seq", &self.seq)
            .field("how", &self.how)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// A report of messages that the application does not get: they will not arrive, were dropped because it
/// reads too slowly ([`GivenUp::Unread`]), or are older than their deadline ([`GivenUp::Expired`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub(crate) group: Arc<str>,
    pub(crate) sender: NodeId,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) reason: GivenUp,
}

impl Lost {
    /// Returns the report of a message that is not delivered although it came.
    pub(crate) fn of(message: &Message, reason: GivenUp) -> Self {
        Self {
            group: Arc::clone(&message.group),
            sender: message.sender,
            first: message.seq,
            last: message.seq.wrapping_add(message.packets.saturating_sub(1)),
            reason,
        }
    }

    /// Adds a message that its reader was too slow for, if it follows those of this report. Returns whether
    /// it does.
    pub(crate) fn extend_by(&mut self, message: &Message) -> bool {
        // The names of groups last: most reports differ before them.
        let follows = message.sender == self.sender
            && message.seq == self.last.wrapping_add(1)
            && self.reason == GivenUp::Unread
            && message.group == self.group;
        if follows {
            self.last = self.last.wrapping_add(message.packets);
        }
        follows
    }

    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the sender of the messages.
    pub fn sender(&self) -> NodeId {
        self.sender
    }

    /// Returns the sequence numbers of the messages among those of this sender to this group.
    pub fn range(&self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    /// Returns the number of packets lost.
    pub fn packets(&self) -> u64 {
        u64::from(self.last.wrapping_sub(self.first)) + 1
    }

    /// Returns the reason why they were given up.
    pub fn reason(&self) -> GivenUp {
        self.reason
    }
}

/// An event of a subscription.
#[derive(Debug)]
pub enum Event {
    /// A message.
    Message(Message),
    /// Messages that will not arrive, that were dropped because the queue was full, or that came too late.
    Lost(Lost),
    /// The messages from before the subscription begin, or end.
    History(History),
    /// A node has become a member of a group, or is one no more.
    Member(MemberNews),
    /// A group whose name matches a pattern of the subscription has been found.
    Group(GroupNews),
    /// News about the total order of a group.
    Order(OrderChange),
    /// The registry of the members is away, or is reached again.
    Registry(RegistryNews),
}

/// News about the registry that the members come from, for subscriptions that want to know the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryNews {
    pub(crate) kind: &'static str,
    pub(crate) error: Option<Arc<str>>,
}

impl RegistryNews {
    /// Returns the name of the service: `etcd` or `Kubernetes`.
    pub fn kind(&self) -> &str {
        self.kind
    }

    /// Returns why the registry cannot be reached, in which case the members stay as they are known; `None`
    /// if it is reached again.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// News about the total order of a group, in its place among the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderChange {
    pub(crate) group: Arc<str>,
    pub(crate) news: OrderNews,
}

impl OrderChange {
    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the news.
    pub fn news(&self) -> OrderNews {
        self.news
    }

    /// Returns whether numbers were missed, or delivered otherwise than the other members have agreed
    /// ([`OrderNews::Missed`], [`OrderNews::Broken`]).
    pub fn is_loss(&self) -> bool {
        matches!(self.news, OrderNews::Missed { .. } | OrderNews::Broken { .. })
    }
}

/// News about a member of a group, which a subscription gets if it asks for them
/// ([`JoinOptions::members`](crate::JoinOptions)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberNews {
    pub(crate) group: Arc<str>,
    pub(crate) member: Member,
    pub(crate) change: MemberChange,
}

impl MemberNews {
    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the member.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Returns what has changed.
    pub fn change(&self) -> MemberChange {
        self.change
    }
}

/// News about a group whose name matches a pattern of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNews {
    pub(crate) group: Arc<str>,
    pub(crate) pattern: Arc<str>,
    pub(crate) change: GroupChange,
}

impl GroupNews {
    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the pattern that it matches.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns what has happened.
    pub fn change(&self) -> &GroupChange {
        &self.change
    }
}

/// Outcome for a group that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// The subscription has joined it.
    Found,
    /// The subscription has not joined it, for this reason. If the pattern has found as many groups as it
    /// may, this event is the last one of the pattern.
    Refused(String),
}

/// Another node in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identifier of this life of the node.
    pub id: NodeId,
    /// Its address.
    pub address: SocketAddr,
}

/// Change of a node's membership in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// The node has joined the group, or was in it when this node learned of it.
    Joined,
    /// The node has left the group, or was closed.
    Left,
    /// The node does not answer any more.
    Failed,
}

/// News about the messages from before a subscription, which it gets if it [asks for them](crate::Start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub(crate) group: Arc<str>,
    pub(crate) news: HistoryNews,
}

impl History {
    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the news.
    pub fn news(&self) -> HistoryNews {
        self.news
    }
}

/// Returns message `seq` of a sender to the group `g`, for tests of queues.
#[cfg(test)]
pub(crate) fn numbered(seq: u32) -> Message {
    Message {
        group: "g".into(),
        sender: NodeId(1),
        seq,
        packets: 1,
        how: How::Multicast,
        missed_us: None,
        is_past: false,
        is_own: false,
        address: None,
        sent_us: None,
        expires_us: None,
        envelope: None,
        request: None,
        reply: None,
        number: None,
        payload: crate::pool::Pool::new(1, 8).copy(b"x"),
    }
}
