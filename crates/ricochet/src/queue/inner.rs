//! The contents of a queue: messages, and reports and news in their places among them.

use std::collections::VecDeque;
use std::task::Waker as TaskWaker;

use ricochet_core::counters::GivenUp;

use super::{Bounds, QueueCounts};
use crate::error::RecvError;
use crate::message::{Event, Lost, Message, OrderChange};

/// Maximum number of loss reports and news in a queue, beside its messages and the news about total order.
pub(super) const LOST_MAX: usize = 1_024;
/// Maximum number of news about total order in a queue.
pub(crate) const ORDER_MAX: usize = 64;
/// Maximum number of reports that are compared with a message that is dropped, to extend one of them.
const COMPARED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) events: VecDeque<Event>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// Number of messages of the past. They do not count against the bounds: a node reads no more of them
    /// than there is room for, and those that it keeps itself are bounded.
    pub(super) past: usize,
    /// Number of news about total order. They have room of their own: reports of losses must not push out
    /// what says that messages must be discarded.
    pub(super) order: usize,
    /// Whether a thread may wait that was not notified since it began.
    pub(super) is_awaited: bool,
    pub(super) closed: Option<RecvError>,
    /// Tasks that wait for an event.
    pub(super) tasks: Vec<TaskWaker>,
    /// Whether a reader waits for the descriptor. If so, the descriptor is not readable.
    pub(super) armed: bool,
    /// Whether this queue exerts backpressure.
    pub(super) blocking: bool,
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
        let before = self.events.range_mut(..at).rev().take(COMPARED_MAX);
        let reports = before.map_while(|event| if let Event::Lost(lost) = event { Some(lost) } else { None });
        for report in reports {
            if report.extend_by(message) {
                return;
            }
        }
        if self.is_full_of_reports() {
            self.counts.reports_dropped += 1;
            return;
        }
        self.events.insert(at, Event::Lost(Lost::of(message, GivenUp::Unread)));
    }

    fn is_full_of_reports(&self) -> bool {
        self.events.len() - self.messages - self.past - self.order >= LOST_MAX
    }
}
