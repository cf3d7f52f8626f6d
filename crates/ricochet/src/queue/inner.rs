//! The contents of a queue: messages, and reports and news in their places among them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker as TaskWaker;

use hashbrown::HashMap;
use ricochet_core::NodeId;
use ricochet_core::counters::GivenUp;

use super::{Bounds, QueueCounts};
use crate::error::RecvError;
use crate::message::{Event, Lost, Message, OrderChange};

/// Maximum number of loss reports and news in a queue, beside its messages, the reports of those that it has
/// dropped, and the news about total order and members. Also the maximum number of those reports.
pub(super) const LOST_MAX: usize = 1_024;
/// Maximum number of news about total order in a queue.
pub(crate) const ORDER_MAX: usize = 64;
/// Number of news about members in a queue from which on those are dropped that newer ones supersede.
pub(super) const MEMBERS_DUE: usize = 1_024;
/// Maximum number of news about members in a queue.
const MEMBERS_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) events: VecDeque<Event>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// Number of messages of the past. They do not count against the bounds: a node reads no more of them
    /// than there is room for, and those that it keeps itself are bounded.
    pub(super) past: usize,
    /// Number of reports of messages that the queue has dropped. They have room of their own: the losses of a
    /// reader that is too slow must not push out other news.
    pub(super) unread: usize,
    /// Number of news about total order. They have room of their own: reports of losses must not push out
    /// what says that messages must be discarded.
    pub(super) order: usize,
    /// Number of news about members. They have room of their own too: a program that misses one has another
    /// list of members for good.
    pub(super) members: usize,
    /// Number of news about members with which superseded ones are dropped next.
    members_due: usize,
    /// Whether news about members were dropped that nothing supersedes.
    is_overfull: bool,
    /// Whether a thread may wait that was not notified since it began.
    pub(super) is_awaited: bool,
    pub(super) closed: Option<RecvError>,
    /// Tasks that wait for an event.
    pub(super) tasks: Vec<TaskWaker>,
    /// Whether a reader waits for the descriptor. If so, the descriptor is not readable.
    pub(super) armed: bool,
    /// Whether this queue exerts backpressure.
    pub(super) blocking: bool,
    /// Whether own messages wait for room.
    pub(super) holds_sender: bool,
    /// Greatest number of messages that those of other nodes have brought it to since it had room.
    pub(super) reach: usize,
    /// Number of dropped messages that were logged.
    pub(super) logged: u64,
    pub(super) counts: QueueCounts,
}

impl Inner {
    /// Returns whether a message of `length` bytes fits.
    pub(super) fn has_room(&self, bounds: Bounds, length: usize) -> bool {
        self.messages < bounds.messages && (self.messages == 0 || self.bytes + length <= bounds.bytes)
    }

    /// Returns the length of the payload that is next, if a message is.
    pub(super) fn next_length(&self) -> Option<usize> {
        let Event::Message(message) = self.events.front()? else { return None };
        Some(message.payload().len())
    }

    pub(super) fn add_lost(&mut self, lost: Lost) {
        let count =
            if lost.reason == GivenUp::Expired { &mut self.counts.expired } else { &mut self.counts.lost };
        *count += lost.packets();
        self.add_news(Event::Lost(lost));
    }

    pub(super) fn add_news(&mut self, news: Event) {
        if self.is_full_of_reports() {
            self.counts.reports_dropped += 1;
        } else {
            self.events.push_back(news);
        }
    }

    /// Adds news about a member or the registry. The newest news about each have room, as long as there are
    /// fewer members in all groups than news may wait.
    pub(super) fn add_member(&mut self, news: Event) {
        if self.members >= self.members_due.max(MEMBERS_DUE) {
            self.drop_superseded();
        }
        if self.members >= MEMBERS_MAX {
            if !std::mem::replace(&mut self.is_overfull, true) {
                tracing::warn!(MEMBERS_MAX, "a subscription that is not read misses news about members");
            }
            self.counts.reports_dropped += 1;
            return;
        }
        self.members += 1;
        self.events.push_back(news);
    }

    /// Notes that a reader has taken news about a member or the registry.
    pub(super) fn on_member_popped(&mut self) {
        self.members -= 1;
        if self.members == 0 {
            self.members_due = 0;
        }
    }

    /// Drops news about members that newer ones supersede. The queue then takes as many again before the next
    /// time, so that the cost of this is small.
    fn drop_superseded(&mut self) {
        let subjects = self.events.iter().enumerate().filter_map(|(at, event)| Some((subject(event)?, at)));
        let newest: HashMap<_, _> = subjects.collect();
        let mut ats = 0..;
        self.events.retain(|event| {
            let at = ats.next();
            subject(event).is_none_or(|subject| newest.get(&subject).copied() == at)
        });
        self.counts.reports_dropped += (self.members - newest.len()) as u64;
        self.members = newest.len();
        self.members_due = 2 * newest.len();
    }

    /// Adds news about total order.
    pub(super) fn add_order(&mut self, change: OrderChange) {
        self.order += 1;
        self.events.push_back(Event::Order(change));
        if self.order > ORDER_MAX {
            self.drop_order();
        }
    }

    /// Drops the oldest news about total order that tells of no loss, or the oldest of all.
    fn drop_order(&mut self) {
        let is_minor = |event: &Event| matches!(event, Event::Order(change) if !change.is_loss());
        let is_any = |event: &Event| matches!(event, Event::Order(_));
        let minor = self.events.iter().position(is_minor);
        if let Some(at) = minor.or_else(|| self.events.iter().position(is_any)) {
            self.events.remove(at);
            self.order -= 1;
            self.counts.reports_dropped += 1;
        }
    }

    /// Drops the oldest message, and reports it in its place. Loss reports keep their place.
    pub(super) fn drop_oldest(&mut self) {
        let is_droppable = |event: &Event| matches!(event, Event::Message(message) if !message.is_past());
        let oldest = self.events.iter().position(is_droppable);
        let Some(at) = oldest else { return };
        if let Some(Event::Message(message)) = self.events.remove(at) {
            self.messages -= 1;
            self.bytes -= message.payload().len();
            self.report_dropped(at, &message);
        }
    }

    /// Reports a dropped message before the event at `at`: extends a report there, or adds one.
    pub(super) fn report_dropped(&mut self, at: usize, message: &Message) {
        self.counts.dropped += 1;
        // All of them are compared: between two messages of one stream there may be some of each other one.
        let before = self.events.range_mut(..at).rev().take(2 * LOST_MAX);
        let reports = before.map_while(|event| if let Event::Lost(lost) = event { Some(lost) } else { None });
        for report in reports {
            if report.extend_by(message) {
                return;
            }
        }
        if self.unread >= LOST_MAX {
            self.counts.reports_dropped += 1;
            return;
        }
        self.unread += 1;
        self.events.insert(at, Event::Lost(Lost::of(message, GivenUp::Unread)));
    }

    fn is_full_of_reports(&self) -> bool {
        let others = self.messages + self.past + self.unread + self.order + self.members;
        self.events.len() - others >= LOST_MAX
    }
}

/// Returns the subject of news about members: a member of a group, or the registry.
fn subject(event: &Event) -> Option<(Option<Arc<str>>, NodeId)> {
    match event {
        Event::Member(news) => Some((Some(Arc::clone(&news.group)), news.member.id)),
        Event::Registry(_) => Some((None, NodeId(0))),
        _ => None,
    }
}
