//! Messages of the application's threads on their way to the core.
//!
//! A thread that sends puts its message in, under a lock that nobody holds for long. If the core is free, the
//! thread passes on what waits itself, so that a single message leaves at once. Otherwise the node's thread
//! does. While the readers have no room or packets follow one another quickly, packets stay here, and short
//! messages share them. When a group has as many packets as it may have, its senders wait.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker as TaskWaker;
use std::time::Duration;

use hashbrown::HashSet;
use ricochet_core::GroupId;
use ricochet_core::message::{SendError as CoreError, SendOptions as CoreOptions};
use ricochet_core::outgoing::{NotTaken, Outgoing as CoreOutgoing, OutgoingMessage, Packet};

use crate::clock;
use crate::error::SendError;
use crate::sender::Outbound;
use crate::shared::{Core, Gone, Shared};

/// Number of packets passed to the core at a time.
const BATCH: usize = 64;
/// Maximum number of batches that a thread passes on before it does something else.
const BATCHES_MAX: usize = 4;
/// Maximum number of tasks that wait for room.
const TASKS_MAX: usize = 1_024;
/// Interval at which a waiting sender checks whether the node has ended.
const CHECK: Duration = Duration::from_millis(100);

/// Messages that wait, and the senders that wait to put more in.
pub(crate) struct Outgoing {
    inner: Mutex<Inner>,
    has_room: Condvar,
}

struct Inner {
    packets: CoreOutgoing,
    /// Buffer for packets on their way to the core.
    taken: Vec<Packet>,
    /// Whether packets wait that the core has not been asked about since they came.
    is_fresh: bool,
    /// Time at which a packet that waits for further messages is due.
    due_us: Option<u64>,
    /// Number of threads that wait for room.
    waiting: usize,
    tasks: Vec<TaskWaker>,
    /// Groups to which long messages are sent in several packets.
    fragmented: HashSet<GroupId>,
}

impl Outgoing {
    pub(crate) fn new(packets: CoreOutgoing) -> Self {
        let inner = Inner {
            packets,
            taken: Vec::new(),
            is_fresh: false,
            due_us: None,
            waiting: 0,
            tasks: Vec::new(),
            fragmented: HashSet::new(),
        };
        Self { inner: Mutex::new(inner), has_room: Condvar::new() }
    }

    /// Returns whether packets came since the core was last asked for room.
    pub(crate) fn is_fresh(&self) -> bool {
        self.lock().is_fresh
    }

    /// Returns the number of packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().packets.len()
    }

    /// Returns the number of packets that a message takes.
    pub(crate) fn packets_of(&self, message: &Outbound<'_>) -> u32 {
        self.lock().packets.packets_of(&message.envelope, message.payload.len())
    }

    /// Returns the number of bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().packets.bytes()
    }

    /// Returns when a packet that waits for further messages is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.lock().due_us
    }

    /// Sets whether long messages to a group are sent in several packets, whatever their sender's option.
    pub(crate) fn set_fragments(&self, group: GroupId, fragments: bool) {
        let mut inner = self.lock();
        if fragments {
            inner.fragmented.insert(group)
        } else {
            inner.fragmented.remove(&group)
        };
    }

    /// Ends all waits.
    pub(crate) fn wake_all(&self) {
        let tasks = mem::take(&mut self.lock().tasks);
        tasks.into_iter().for_each(TaskWaker::wake);
        self.has_room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Puts a message in, and passes it on if the core is free. Returns [`SendError::WouldBlock`] if there is
    /// no room.
    pub(crate) fn try_send(&self, message: &Outbound<'_>) -> Result<u32, SendError> {
        self.check_open()?;
        let mut inner = self.outgoing.lock();
        let sent = inner.push(message);
        let is_due = inner.is_due(&sent);
        drop(inner);
        self.pass_on_if_due(is_due);
        sent
    }

    /// Does the same, and waits for room until the timeout is over.
    pub(crate) fn send(&self, message: &Outbound<'_>, timeout: Option<Duration>) -> Result<u32, SendError> {
        self.send_while(message, timeout, &mut || true)
    }

    /// Does the same as long as `keep_waiting`, which it asks at least every tenth of a second, returns true.
    pub(crate) fn send_while(
        &self,
        message: &Outbound<'_>,
        timeout: Option<Duration>,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<u32, SendError> {
        let deadline_us = timeout.map(|timeout| clock::now_us().saturating_add(timeout.as_micros() as u64));
        loop {
            match self.try_send(message) {
                Err(SendError::WouldBlock) => {}
                sent => return sent,
            }
            let left = deadline_us.map_or(CHECK, |deadline_us| {
                Duration::from_micros(deadline_us.saturating_sub(clock::now_us())).min(CHECK)
            });
            if left.is_zero() || !keep_waiting() {
                return Err(SendError::WouldBlock);
            }
            // The application may have forked.
            self.check_process()?;
            let mut inner = self.outgoing.lock();
            // Room may have come since the attempt.
            match inner.push(message) {
                Err(SendError::WouldBlock) => {}
                sent => {
                    let is_due = inner.is_due(&sent);
                    drop(inner);
                    self.pass_on_if_due(is_due);
                    return sent;
                }
            }
            inner.waiting += 1;
            let waited = self.outgoing.has_room.wait_timeout(inner, left);
            waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
        }
    }

    /// Puts a message in. If there is no room, wakes `task` when there may be.
    pub(crate) fn poll_send(&self, message: &Outbound<'_>, task: &TaskWaker) -> Result<u32, SendError> {
        self.check_process()?;
        let mut inner = self.outgoing.lock();
        // Checked while the lock is held: the end of the node takes it to wake the tasks.
        self.check_open()?;
        let sent = inner.push(message);
        let mut first = None;
        if sent == Err(SendError::WouldBlock) && !inner.tasks.iter().any(|other| other.will_wake(task)) {
            // In a full list, the task that has waited longest tries again.
            first = (inner.tasks.len() >= TASKS_MAX).then(|| inner.tasks.swap_remove(0));
            inner.tasks.push(task.clone());
        }
        let is_due = inner.is_due(&sent);
        drop(inner);
        first.into_iter().for_each(TaskWaker::wake);
        self.pass_on_if_due(is_due);
        sent
    }

    /// Waits until no packet waits, or the node has ended; returns the number of packets left then, or when
    /// the time is over.
    pub(crate) fn wait_until_sent(&self, timeout: Duration) -> usize {
        let mut inner = self.outgoing.lock();
        inner.waiting += 1;
        // The end of the node is set before it takes the lock to wake all that wait.
        let waits = |inner: &mut Inner| !inner.packets.is_empty() && !self.closing.load(Ordering::SeqCst);
        let waited = self.outgoing.has_room.wait_timeout_while(inner, timeout, waits);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.waiting -= 1;
        inner.packets.len()
    }

    fn check_open(&self) -> Result<(), SendError> {
        match self.ended() {
            None => Ok(()),
            Some(gone) => Err(gone.into()),
        }
    }

    /// Passes packets to the core on the application's thread, unless nothing is due or another thread has
    /// the core. Then the node's thread does it.
    fn pass_on_if_due(&self, is_due: bool) {
        if !is_due {
            return;
        }
        for _ in 0..BATCHES_MAX {
            let Some(mut core) = self.core_if_free() else { break };
            let more = core.pass_on(clock::now_us(), &self.outgoing);
            let due = [core.poll_timeout(), self.outgoing.due_us()];
            self.release(core);
            if let Some(due_us) = due.into_iter().flatten().min() {
                self.sleep.wake_before(due_us);
            }
            if !more {
                break;
            }
        }
        // Packets beyond the batches, or of a thread that found the core busy.
        if self.outgoing.is_fresh() {
            self.sleep.wake_before(1);
        }
    }

    /// Passes packets to the core on the node's thread.
    pub(crate) fn pass_on(&self) {
        for _ in 0..BATCHES_MAX {
            let mut core = self.core_for_node();
            let more = core.pass_on(clock::now_us(), &self.outgoing);
            self.release(core);
            if !more {
                return;
            }
        }
    }
}

impl From<Gone> for SendError {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Closed => Self::Closed,
            Gone::Failed(why) => Self::Failed(why),
        }
    }
}

impl Inner {
    fn push(&mut self, message: &Outbound<'_>) -> Result<u32, SendError> {
        let Outbound { group, payload, envelope, expires, fragments } = *message;
        let fragments = fragments || (!self.fragmented.is_empty() && self.fragmented.contains(&group));
        let (now_us, before) = (clock::now_us(), self.packets.len());
        let options = CoreOptions { expires };
        let message = OutgoingMessage { group, envelope, payload, options, fragments };
        let sent = self.packets.push(now_us, &message);
        // A message that shares a packet leaves with it. A new packet may wait for those that are due.
        let is_near = self.due_us.is_some_and(|due_us| due_us > now_us);
        let is_begun = self.packets.len() > before && (!is_near || self.packets.is_worthwhile());
        self.is_fresh |= is_begun || self.due_us.is_some_and(|due_us| due_us <= now_us);
        sent.map_err(|error| match error {
            NotTaken::Full => SendError::WouldBlock,
            NotTaken::Refused(CoreError::TooLong { length, payload_max }) => {
                SendError::TooLong { length, payload_max }
            }
            NotTaken::Refused(CoreError::TooManyGroups) => SendError::TooManyGroups,
            NotTaken::Refused(other) => SendError::Failed(other.to_string()),
        })
    }

    /// Returns whether packets should be passed on after an attempt to send.
    fn is_due(&self, sent: &Result<u32, SendError>) -> bool {
        self.is_fresh || *sent == Err(SendError::WouldBlock)
    }
}

impl Core {
    /// Takes a batch of the packets that wait, as far as their readers have room. Returns whether there may
    /// be more.
    pub(crate) fn pass_on(&mut self, now_us: u64, outgoing: &Outgoing) -> bool {
        let Self { node, out, .. } = self;
        out.now_us = now_us;
        let mut taken = {
            let mut inner = outgoing.lock();
            let Inner { packets, taken, due_us, is_fresh, .. } = &mut *inner;
            let room = |group| if out.holds_up_own(group) { 0 } else { node.room_or_wait(now_us, group) };
            *due_us = packets.take(now_us, BATCH, room, taken);
            *is_fresh = taken.len() >= BATCH;
            if taken.is_empty() {
                return false;
            }
            mem::take(taken)
        };
        taken.iter().for_each(|packet| node.send_packet_of(now_us, packet, out));
        let more = taken.len() >= BATCH;
        let (has_waiting, tasks) = {
            let mut inner = outgoing.lock();
            inner.packets.give_back(&mut taken);
            inner.taken = taken;
            (inner.waiting > 0, mem::take(&mut inner.tasks))
        };
        out.tasks.get_mut().add(tasks.into());
        if has_waiting {
            outgoing.has_room.notify_all();
        }
        more
    }
}
