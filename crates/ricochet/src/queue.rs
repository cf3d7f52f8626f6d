//! The queue between the node's thread and a subscription.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{RecvError, RecvTimeoutError, TryRecvError};
use crate::gate::Gate;
use crate::message::{Event, Lost, Message};
use crate::wake::Waker;

/// What happens to messages for which a subscription's queue has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Policy {
    /// The node waits: it processes no packets, for nobody, until there is room. What comes meanwhile fills its ring; of what
    /// finds no room there a part is lost, and asked for. Nothing is given up as lost before what waited in the ring has been
    /// looked at; then what is missing for longer than `give_up_after` is.
    Block,
    /// The oldest message in the queue makes room.
    #[default]
    DropOldest,
    /// The new message is dropped.
    DropNewest,
}

/// Reports of losses that are kept beside the messages.
const LOST_MAX: usize = 1_024;

/// What a subscription's queue has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Messages queued.
    pub queued: u64,
    /// Messages dropped since the queue was full.
    pub dropped: u64,
    /// Packets that are reported lost.
    pub lost: u64,
    /// Reports of losses that found no room.
    pub reports_dropped: u64,
    /// Times that the queue was full and made the node wait.
    pub blocked: u64,
}

/// Bounded; filled by the node's thread, emptied by whoever holds the subscription.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    /// Made when it is first asked for.
    ready: OnceLock<Waker>,
    capacity: usize,
    policy: Policy,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Inner {
    events: VecDeque<Event>,
    messages: usize,
    closed: Option<RecvError>,
    /// A reader waits for the descriptor.
    armed: bool,
    /// It keeps the gate shut.
    shut: bool,
    counts: QueueCounts,
}

impl Queue {
    pub(crate) fn new(capacity: usize, policy: Policy, gate: Arc<Gate>) -> Arc<Self> {
        let inner = Inner {
            events: VecDeque::new(),
            messages: 0,
            closed: None,
            armed: false,
            shut: false,
            counts: QueueCounts::default(),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            arrived: Condvar::new(),
            ready: OnceLock::new(),
            capacity,
            policy,
            gate,
        })
    }

    /// A message has come.
    pub(crate) fn push(&self, message: Message) {
        let mut inner = self.lock();
        if inner.closed.is_some() {
            return;
        }
        if inner.messages >= self.capacity {
            match self.policy {
                // One packet may bring several messages; the gate is shut before the next packet.
                Policy::Block => {}
                Policy::DropOldest => inner.drop_oldest(),
                Policy::DropNewest => return inner.counts.dropped += 1,
            }
        }
        inner.counts.queued += 1;
        inner.messages += 1;
        inner.events.push_back(Event::Message(message));
        if self.policy == Policy::Block && inner.messages >= self.capacity && !inner.shut {
            inner.shut = true;
            inner.counts.blocked += 1;
            self.gate.shut();
        }
        self.tell(inner);
    }

    /// Messages will not come.
    pub(crate) fn push_lost(&self, lost: Lost) {
        let mut inner = self.lock();
        if inner.closed.is_some() {
            return;
        }
        inner.counts.lost += lost.packets();
        if inner.events.len() - inner.messages >= LOST_MAX {
            return inner.counts.reports_dropped += 1;
        }
        inner.events.push_back(Event::Lost(lost));
        self.tell(inner);
    }

    /// A report of a loss was dropped that had been taken out.
    pub(crate) fn drop_report(&self) {
        self.lock().counts.reports_dropped += 1;
    }

    /// Nothing more will come. What is queued can still be taken; the first reason counts.
    pub(crate) fn close(&self, reason: RecvError) {
        let mut inner = self.lock();
        inner.closed.get_or_insert(reason);
        self.reopen(&mut inner, true);
        drop(inner);
        self.arrived.notify_all();
        if let Some(ready) = self.ready.get() {
            ready.wake();
        }
    }

    /// The next event, without waiting. If there is none the descriptor will tell of the next.
    pub(crate) fn try_pop(&self) -> Result<Event, TryRecvError> {
        let mut inner = self.lock();
        if let Some(event) = self.pop(&mut inner) {
            return Ok(event);
        }
        if let Some(closed) = &inner.closed {
            return Err(closed.clone().into());
        }
        if let Some(ready) = self.ready.get().filter(|_| !inner.armed) {
            ready.clear();
            inner.armed = true;
        }
        Err(TryRecvError::Empty)
    }

    /// The next event; waits for it.
    pub(crate) fn pop_wait(&self) -> Result<Event, RecvError> {
        let mut inner = self.lock();
        loop {
            if let Some(event) = self.pop(&mut inner) {
                return Ok(event);
            }
            if let Some(closed) = &inner.closed {
                return Err(closed.clone());
            }
            inner = self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next event; waits for it until `timeout` is over.
    pub(crate) fn pop_timeout(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        let nothing = |inner: &mut Inner| inner.events.is_empty() && inner.closed.is_none();
        let waited = self.arrived.wait_timeout_while(self.lock(), timeout, nothing);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = self.pop(&mut inner) {
            return Ok(event);
        }
        Err(inner.closed.clone().map_or(RecvTimeoutError::Timeout, RecvTimeoutError::from))
    }

    /// A descriptor that becomes readable when something comes after the queue was seen empty.
    pub(crate) fn ready(&self) -> io::Result<BorrowedFd<'_>> {
        if self.ready.get().is_none() {
            let made = Waker::new()?;
            let inner = self.lock();
            if self.ready.set(made).is_ok()
                && (!inner.events.is_empty() || inner.closed.is_some())
                && let Some(ready) = self.ready.get()
            {
                ready.wake();
            } else {
                let mut inner = inner;
                inner.armed = true;
            }
        }
        self.ready.get().map(AsFd::as_fd).ok_or_else(|| io::Error::other("the descriptor was not made"))
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        self.lock().counts
    }

    /// Messages that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().messages
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    fn pop(&self, inner: &mut Inner) -> Option<Event> {
        let event = inner.events.pop_front()?;
        if matches!(event, Event::Message(_)) {
            inner.messages -= 1;
            self.reopen(inner, false);
        }
        Some(event)
    }

    /// Opens the gate when a quarter of the queue is free, so that the node is not woken for each message.
    fn reopen(&self, inner: &mut Inner, at_once: bool) {
        if inner.shut && (at_once || inner.messages <= self.capacity * 3 / 4) {
            inner.shut = false;
            self.gate.open();
        }
    }

    fn tell(&self, mut inner: MutexGuard<'_, Inner>) {
        let armed = std::mem::take(&mut inner.armed);
        drop(inner);
        self.arrived.notify_one();
        if let Some(ready) = self.ready.get().filter(|_| armed) {
            ready.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The oldest message goes; reports of losses stay where they are.
    fn drop_oldest(&mut self) {
        let oldest = self.events.iter().position(|event| matches!(event, Event::Message(_)));
        if oldest.and_then(|at| self.events.remove(at)).is_some() {
            self.messages -= 1;
            self.counts.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests;
