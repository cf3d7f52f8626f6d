//! The queue between the node's thread and a subscription.

mod inner;

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Poll, Waker as TaskWaker};
use std::time::Duration;

use ricochet_core::counters::GivenUp;
use serde::{Deserialize, Serialize};

use self::inner::Inner;
pub(crate) use self::inner::ORDER_MAX;
use crate::backpressure::Backpressure;
use crate::clock;
use crate::error::{RecvError, RecvIntoError, RecvTimeoutError, TryRecvError};
use crate::message::{Event, Lost, Message};
use crate::policy::Policy;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::tasks::Tasks;
use crate::wake::Waker;

/// Maximum number of tasks that wait for an event. Another one wakes them, so that all try again.
const TASKS_MAX: usize = 64;

/// Counters of a subscription's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Messages queued.
    pub queued: u64,
    /// Messages dropped because the queue was full. Each is reported by an event.
    pub dropped: u64,
    /// Packets reported lost that never came.
    pub lost: u64,
    /// Packets whose deadline passed before they came, or before they were read. Each is reported by an
    /// event.
    #[serde(default)]
    pub expired: u64,
    /// Loss reports and news dropped for lack of room.
    pub reports_dropped: u64,
    /// Times that the queue was full and made the node wait.
    pub blocked: u64,
}

/// A bounded queue that the node's thread fills and the holder of the subscription empties.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    /// Created by the first call of [`ready`](Self::ready).
    ready: OnceLock<Waker>,
    bounds: Bounds,
    policy: Policy,
    backpressure: Arc<Backpressure>,
}

/// Maximum contents of a queue. A single message may have more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) messages: usize,
    /// Bytes of payload.
    pub(crate) bytes: usize,
}

impl Queue {
    pub(crate) fn new(bounds: Bounds, policy: Policy, backpressure: Arc<Backpressure>) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner::default()),
            arrived: Condvar::new(),
            ready: OnceLock::new(),
            bounds,
            policy,
            backpressure,
        })
    }

    /// Adds a message.
    #[cfg(test)]
    pub(crate) fn push(&self, message: Message) {
        self.push_all(std::iter::once(Event::Message(message))).wake();
    }

    /// Adds messages that came together, and reports about some of them.
    pub(crate) fn push_all(&self, events: impl Iterator<Item = Event>) -> Tasks {
        let mut inner = self.lock();
        if inner.closed.is_some() {
            return Tasks::default();
        }
        for event in events {
            match event {
                Event::Message(message) => self.add(&mut inner, message),
                Event::Lost(lost) => inner.add_lost(lost),
                Event::Order(change) => inner.add_order(change),
                Event::Member(_) | Event::Registry(_) => inner.add_member(event),
                Event::History(_) | Event::Group(_) => inner.add_news(event),
            }
        }
        self.notify_reader(inner)
    }

    fn add(&self, inner: &mut Inner, message: Message) {
        let length = message.payload().len();
        if message.is_past() {
            inner.counts.queued += 1;
            inner.past += 1;
            return inner.events.push_back(Event::Message(message));
        }
        if !inner.has_room(self.bounds, length) {
            // The node's own messages do not wait: backpressure would not stop them. Those in total order are
            // part of what all members deliver; their sender waits, see `holds_up_own`.
            let is_droppable = message.is_own && message.number().is_none();
            let policy = if is_droppable { self.policy.without_waiting() } else { self.policy };
            match policy {
                // One packet may bring several messages. Backpressure is active before the next packet.
                Policy::Block => {}
                Policy::DropOldest => {
                    while inner.messages > 0 && !inner.has_room(self.bounds, length) {
                        inner.drop_oldest();
                    }
                    self.backpressure.on_overrun();
                }
                Policy::DropNewest => {
                    let end = inner.events.len();
                    inner.report_dropped(end, &message);
                    self.backpressure.on_overrun();
                    return;
                }
            }
        }
        inner.counts.queued += 1;
        inner.messages += 1;
        inner.bytes += length;
        if !message.is_own {
            inner.reach = inner.reach.max(inner.messages);
        }
        inner.events.push_back(Event::Message(message));
        if self.policy == Policy::Block && !inner.blocking && !inner.has_room(self.bounds, 1) {
            inner.blocking = true;
            inner.counts.blocked += 1;
            self.backpressure.on_queue_full();
        }
    }

    /// Returns whether the node's own messages must wait for the reader, which then wakes the node. They may
    /// take the places of messages that the reader has taken, so that it can send one for each that it gets.
    pub(crate) fn holds_up_own(&self) -> bool {
        if self.policy != Policy::Block {
            return false;
        }
        let mut inner = self.lock();
        let has_room = inner.has_room(self.bounds, 1) || inner.messages < inner.reach;
        inner.holds_sender = !has_room && inner.closed.is_none();
        inner.holds_sender
    }

    /// Adds a report of messages that will not come.
    pub(crate) fn push_lost(&self, lost: Lost) -> Tasks {
        self.push_all(std::iter::once(Event::Lost(lost)))
    }

    /// Adds news about the messages of the past, or about members.
    pub(crate) fn push_news(&self, news: Event) -> Tasks {
        self.push_all(std::iter::once(news))
    }

    /// Returns the number of messages dropped since the last call.
    pub(crate) fn take_overrun(&self) -> u64 {
        let mut inner = self.lock();
        let dropped = inner.counts.dropped;
        dropped - mem::replace(&mut inner.logged, dropped)
    }

    /// Counts a loss report that was dropped after it had left the queue.
    pub(crate) fn on_report_dropped(&self) {
        self.lock().counts.reports_dropped += 1;
    }

    /// Closes the queue to new events. Queued events can still be taken. Only the first reason counts.
    pub(crate) fn close(&self, reason: RecvError) -> Tasks {
        let mut inner = self.lock();
        inner.closed.get_or_insert(reason);
        self.release(&mut inner);
        let tasks = mem::take(&mut inner.tasks);
        drop(inner);
        self.arrived.notify_all();
        self.wake_reader();
        tasks.into()
    }

    /// Returns the next event without waiting. If there is none, arms the descriptor.
    pub(crate) fn try_pop(&self) -> Result<Event, TryRecvError> {
        let mut inner = self.lock();
        if let Some(event) = self.pop(&mut inner) {
            return Ok(event);
        }
        if let Some(closed) = &inner.closed {
            return Err(closed.clone().into());
        }
        self.arm(&mut inner);
        Err(TryRecvError::Empty)
    }

    /// Lets the descriptor become readable with the next event. None waits.
    fn arm(&self, inner: &mut Inner) {
        if let Some(ready) = self.ready.get().filter(|_| !inner.armed) {
            ready.clear();
            inner.armed = true;
        }
    }

    /// Waits for the next event until the timeout is over, if there is one. A message whose payload is longer
    /// than `room` stays.
    pub(crate) fn pop_fitting(&self, room: usize, timeout: Option<Duration>) -> Result<Event, RecvIntoError> {
        let mut inner = self.lock();
        let mut until_us = None;
        loop {
            if let Some(length) = inner.next_length().filter(|&length| length > room) {
                return Err(RecvIntoError::TooSmall { length, room });
            }
            if let Some(event) = self.pop(&mut inner) {
                return Ok(event);
            }
            if let Some(closed) = &inner.closed {
                return Err(closed.clone().into());
            }
            let Some(timeout) = timeout else {
                inner.is_awaited = true;
                inner = self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(left) = left(timeout, &mut until_us) else {
                self.arm(&mut inner);
                return Err(RecvIntoError::Timeout);
            };
            inner.is_awaited = true;
            let waited = self.arrived.wait_timeout(inner, left);
            (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the next event.
    pub(crate) fn pop_wait(&self) -> Result<Event, RecvError> {
        let mut inner = self.lock();
        loop {
            if let Some(event) = self.pop(&mut inner) {
                return Ok(event);
            }
            if let Some(closed) = &inner.closed {
                return Err(closed.clone());
            }
            inner.is_awaited = true;
            inner = self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the next event. If there is none, wakes `task` when there may be one.
    pub(crate) fn poll_pop(&self, task: &TaskWaker) -> Poll<Result<Event, RecvError>> {
        let mut inner = self.lock();
        if let Some(event) = self.pop(&mut inner) {
            return Poll::Ready(Ok(event));
        }
        if let Some(closed) = &inner.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        if inner.tasks.iter().any(|other| other.will_wake(task)) {
            return Poll::Pending;
        }
        let crowd = if inner.tasks.len() >= TASKS_MAX { mem::take(&mut inner.tasks) } else { Vec::new() };
        inner.tasks.push(task.clone());
        drop(inner);
        crowd.into_iter().for_each(TaskWaker::wake);
        Poll::Pending
    }

    /// Waits for the next event until the timeout is over.
    pub(crate) fn pop_timeout(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        let mut inner = self.lock();
        // The time is read only if there is nothing.
        let mut until_us = None;
        loop {
            if let Some(event) = self.pop(&mut inner) {
                return Ok(event);
            }
            if let Some(closed) = &inner.closed {
                return Err(closed.clone().into());
            }
            let Some(left) = left(timeout, &mut until_us) else { return Err(RecvTimeoutError::Timeout) };
            inner.is_awaited = true;
            let waited = self.arrived.wait_timeout(inner, left);
            (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns a descriptor that becomes readable when an event comes after a reader found the queue empty.
    pub(crate) fn ready(&self) -> io::Result<BorrowedFd<'_>> {
        if self.ready.get().is_none() {
            let waker = Waker::new()?;
            let mut inner = self.lock();
            // Of two threads that come here at once, the first alone sets the descriptor.
            if let Ok(()) = self.ready.set(waker) {
                inner.armed = inner.events.is_empty() && inner.closed.is_none();
                if !inner.armed {
                    self.wake_reader();
                }
            }
        }
        self.ready.get().map(AsFd::as_fd).ok_or_else(|| io::Error::other("the descriptor was not created"))
    }

    /// Makes the descriptor readable until a reader finds the queue empty.
    pub(crate) fn make_ready(&self) {
        let mut inner = self.lock();
        inner.armed = false;
        self.wake_reader();
    }

    /// Waits until the descriptor is readable, on a thread that Shuttle schedules.
    #[cfg(shuttle)]
    pub(crate) fn wait_until_ready(&self) {
        self.ready.get().expect("a reader created the descriptor").wait();
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        self.lock().counts
    }

    /// Returns the number of messages that wait.
    pub(crate) fn len(&self) -> usize {
        let inner = self.lock();
        inner.messages + inner.past
    }

    /// Returns whether a node that reads history may add messages. Those of the present do not count: other
    /// groups may fill a queue as fast as it is emptied, and would keep out the past of this one.
    pub(crate) fn has_room_for_past(&self, messages: usize) -> bool {
        let past = self.lock().past;
        past == 0 || past + messages <= self.bounds.messages
    }

    /// Returns the number of bytes of payload that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    fn pop(&self, inner: &mut Inner) -> Option<Event> {
        let event = inner.events.pop_front()?;
        self.on_popped(inner, &event);
        if let Event::Message(message) = &event
            && message.expires_us.is_some_and(|expires_us| clock::now_us() >= expires_us)
        {
            inner.counts.expired += 1;
            return Some(Event::Lost(Lost::of(message, GivenUp::Expired)));
        }
        Some(event)
    }

    fn on_popped(&self, inner: &mut Inner, event: &Event) {
        match event {
            Event::Order(_) => inner.order -= 1,
            Event::Member(_) | Event::Registry(_) => inner.on_member_popped(),
            Event::Lost(lost) if lost.reason == GivenUp::Unread => inner.unread -= 1,
            _ => {}
        }
        if let Event::Message(message) = event {
            if message.is_past() {
                return inner.past -= 1;
            }
            inner.messages -= 1;
            inner.bytes -= message.payload().len();
            // Once a quarter of the queue is free, so that the node is not woken for each message.
            let Bounds { messages, bytes } = self.bounds;
            if inner.messages <= messages * 3 / 4 && inner.bytes <= bytes / 4 * 3 {
                self.release(inner);
            }
        }
    }

    /// Ends the backpressure of this queue, and the wait of own messages for it.
    fn release(&self, inner: &mut Inner) {
        inner.reach = 0;
        if mem::take(&mut inner.holds_sender) {
            self.backpressure.wake();
        }
        if mem::take(&mut inner.blocking) {
            self.backpressure.on_queue_drained();
        }
    }

    fn notify_reader(&self, mut inner: MutexGuard<'_, Inner>) -> Tasks {
        // Within the lock: after it, a reader could take the event and arm the descriptor before it became
        // readable. The reader would then find it readable, and nothing to read, again and again.
        if mem::take(&mut inner.armed) {
            self.wake_reader();
        }
        // A wake-up is a system call, so each wait gets one. A thread that begins to wait later finds the
        // event.
        let is_awaited = mem::take(&mut inner.is_awaited);
        let tasks = mem::take(&mut inner.tasks);
        drop(inner);
        if is_awaited {
            self.arrived.notify_all();
        }
        tasks.into()
    }

    fn wake_reader(&self) {
        if let Some(ready) = self.ready.get() {
            ready.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the rest of a timeout, whose end is noted at the first call; `None` if it is over.
fn left(timeout: Duration, until_us: &mut Option<u64>) -> Option<Duration> {
    let now_us = clock::now_us();
    let wait_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
    let left_us = until_us.get_or_insert(now_us.saturating_add(wait_us)).saturating_sub(now_us);
    (left_us > 0).then(|| Duration::from_micros(left_us))
}

#[cfg(test)]
mod tests;
