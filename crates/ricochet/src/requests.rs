//! Requests and replies.
//!
//! A request is a message to a group with a number. A member replies with a message to the *inbox* of the
//! requester: a group of which the requester alone is a member, named after it. Replies are therefore
//! recovered, flow-controlled and cut into packets like any message. A request has its timeout as a deadline.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ricochet_core::wire::{DEADLINE_US_MAX, Envelope};
use ricochet_core::{GroupId, NodeId};

use crate::clock;
use crate::error::{RecvTimeoutError, RequestError, SendError};
use crate::joining::JoinOptions;
use crate::message::{Event, Message};
use crate::policy::Policy;
use crate::queue::{Bounds, Queue};
use crate::sender::Outbound;
use crate::shared::Shared;

/// Maximum number of requests that wait at once.
const REQUESTS_MAX: usize = 4_096;
/// Maximum number of replies to one request that wait to be taken.
const REPLIES_MAX: usize = 4_096;
/// Interval at which a thread that waits for replies asks whether to go on.
const CHECK: Duration = Duration::from_millis(100);

/// Returns the name of the group of replies to a node.
fn inbox_of(node: NodeId) -> String {
    format!("_inbox/{node}")
}

/// A request that waits for replies. Dropping it ends the wait.
struct Pending<'a> {
    shared: &'a Shared,
    number: u64,
    queue: Arc<Queue>,
}

impl Shared {
    /// Sends a request, and hands replies to `take` until that or `keep_waiting` returns false, or the time
    /// is over.
    pub(crate) fn request(
        &self,
        group: GroupId,
        payload: &[u8],
        timeout: Duration,
        mut take: impl FnMut(Message) -> bool,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<(), RequestError> {
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        let until_us = clock::now_us().saturating_add(timeout_us);
        let pending = self.pending()?;
        let deadline_us = u32::try_from(timeout_us).unwrap_or(u32::MAX).min(DEADLINE_US_MAX);
        let request = Some(pending.number);
        let envelope = Envelope { deadline_us: Some(deadline_us), request, ..Envelope::default() };
        let request = Outbound { group, payload, envelope, expires: false, fragments: true };
        self.send_while(&request, Some(timeout), keep_waiting).map_err(RequestError::Send)?;
        let check_us = CHECK.as_micros() as u64;
        let mut checked_us = clock::now_us();
        loop {
            let now_us = clock::now_us();
            let left = Duration::from_micros(until_us.saturating_sub(now_us));
            // Also while replies come all the time.
            if now_us >= checked_us + check_us {
                checked_us = now_us;
                if !keep_waiting() {
                    return Ok(());
                }
                // The application may have forked.
                self.check_process().map_err(SendError::from)?;
            }
            match pending.queue.pop_timeout(left.min(CHECK)) {
                Ok(Event::Message(reply)) => {
                    if !take(reply) {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) if left <= CHECK => return Ok(()),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Closed) => return Err(RequestError::Send(SendError::Closed)),
                Err(RecvTimeoutError::Failed(why)) => return Err(RequestError::Send(SendError::Failed(why))),
            }
        }
    }

    /// Registers a request. The first one joins the inbox.
    fn pending(&self) -> Result<Pending<'_>, RequestError> {
        self.open_inbox()?;
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        let bounds = Bounds { messages: REPLIES_MAX, bytes: self.config.buffers.queue_bytes };
        let queue = Queue::new(bounds, Policy::DropNewest, Arc::clone(&self.backpressure));
        let mut core = self.core().map_err(|gone| RequestError::Send(gone.into()))?;
        if core.out.requests.len() >= REQUESTS_MAX {
            return Err(RequestError::TooMany);
        }
        core.out.requests.insert(number, Arc::clone(&queue));
        Ok(Pending { shared: self, number, queue })
    }

    fn open_inbox(&self) -> Result<(), RequestError> {
        self.check_process().map_err(SendError::from)?;
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.is_none() {
            // With loopback, because this node may reply to its own requests.
            let options = JoinOptions { loopback: true, ..JoinOptions::default() };
            let handle = self.join(&[&inbox_of(self.id)], &options)?;
            let mut core = self.core().map_err(|gone| RequestError::Send(gone.into()))?;
            if let Some(Some(consumer)) = core.out.consumers.get_mut(handle.consumer) {
                consumer.is_inbox = true;
            }
            *inbox = Some(handle);
        }
        Ok(())
    }

    /// Replies to a request. Waits for room until the timeout is over, if there is one.
    pub(crate) fn reply(
        &self,
        request: &Message,
        payload: &[u8],
        timeout: Option<Duration>,
    ) -> Result<u32, SendError> {
        let Some(number) = request.request else { return Err(SendError::NotARequest) };
        let envelope = Envelope { reply: Some(number), ..Envelope::default() };
        let group = GroupId::of_name(&inbox_of(request.sender()));
        self.send(&Outbound { group, payload, envelope, expires: false, fragments: true }, timeout)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Ok(mut core) = self.shared.core() {
            core.out.requests.remove(&self.number);
        }
    }
}
