//! Stable delivery: senders that wait until members hold a message.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker as TaskWaker};
use std::time::Duration;

use ricochet_core::GroupId;

use crate::clock;
use crate::error::SendError;
use crate::sender::Outbound;
use crate::shared::Shared;
use crate::tasks::Tasks;

/// Interval at which a waiting thread checks whether the node has ended.
const CHECK: Duration = Duration::from_millis(100);

/// Threads and tasks that wait for reports of members.
#[derive(Debug, Default)]
pub(crate) struct Held {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of changes so far.
    changes: u64,
    /// Tasks by the number of their wait.
    tasks: Vec<(u64, TaskWaker)>,
}

impl Held {
    /// Wakes all threads that wait. Returns the tasks that do.
    pub(crate) fn on_change(&self) -> Tasks {
        let mut inner = self.lock();
        inner.changes += 1;
        let tasks = std::mem::take(&mut inner.tasks);
        drop(inner);
        self.changed.notify_all();
        let tasks: Vec<TaskWaker> = tasks.into_iter().map(|(_, task)| task).collect();
        tasks.into()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait for the holders of a message. Dropping it ends the wait.
pub(crate) struct HeldWait<'a> {
    shared: &'a Shared,
    held: Arc<Held>,
    id: u64,
    group: GroupId,
    /// Number of the message, and of its last packet.
    seq: u32,
    last: u32,
    members: usize,
}

impl Shared {
    /// Waits for the holders of a message of this node that was sent as the packets from `seq` on.
    pub(crate) fn wait_for_holders(
        &self,
        outbound: &Outbound<'_>,
        seq: u32,
        members: usize,
    ) -> Result<HeldWait<'_>, SendError> {
        let mut core = self.core().map_err(SendError::from)?;
        let group = outbound.group;
        let last = seq.wrapping_add(self.outgoing.packets_of(outbound) - 1);
        let now_us = clock::now_us();
        let id = core.node.wait_for_holders(now_us, group, last, members).ok_or(SendError::TooManyWaits)?;
        let (held, due_us) = (Arc::clone(&core.out.held), core.poll_timeout());
        drop(core);
        self.sleep.wake_before(due_us.unwrap_or(now_us));
        Ok(HeldWait { shared: self, held, id, group, seq, last, members })
    }
}

impl HeldWait<'_> {
    /// Waits until the members hold the message, the time is over, or `keep_waiting`, which it asks at least
    /// every tenth of a second, returns false.
    pub(crate) fn wait(
        &self,
        timeout: Duration,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<u32, SendError> {
        let until_us = clock::now_us().saturating_add(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
        loop {
            self.shared.check_process()?;
            let changes = self.held.lock().changes;
            let seen = self.holders()?;
            if seen >= self.members {
                return Ok(self.seq);
            }
            let left = Duration::from_micros(until_us.saturating_sub(clock::now_us()));
            if left.is_zero() || !keep_waiting() {
                return Err(SendError::NotHeld { seq: self.seq, expected: self.members, seen });
            }
            let inner = self.held.lock();
            let waited = self
                .held
                .changed
                .wait_timeout_while(inner, left.min(CHECK), |inner| inner.changes == changes);
            drop(waited);
        }
    }

    /// Returns the number of the message if the members hold it. Otherwise wakes `task` when they may.
    pub(crate) fn poll(&self, task: &TaskWaker) -> Poll<Result<u32, SendError>> {
        self.shared.check_process()?;
        // Before the look, so that a report that comes after it wakes the task.
        let mut inner = self.held.lock();
        inner.tasks.retain(|(id, _)| *id != self.id);
        inner.tasks.push((self.id, task.clone()));
        drop(inner);
        match self.holders() {
            Ok(seen) if seen >= self.members => Poll::Ready(Ok(self.seq)),
            Ok(_) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn holders(&self) -> Result<usize, SendError> {
        let core = self.shared.core().map_err(SendError::from)?;
        Ok(core.node.holders_of(self.group, self.last))
    }
}

impl Drop for HeldWait<'_> {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        self.held.lock().tasks.retain(|(id, _)| *id != self.id);
        if let Ok(mut core) = self.shared.core() {
            core.node.end_wait(self.id);
        }
    }
}
