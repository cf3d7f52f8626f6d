//! Receiving events.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ricochet::{Event, JoinOptions, Order, Policy, Start};

use crate::node::ricochet_node;
use crate::outcome::{Failure, guard, guard_or, ricochet_result};
use crate::pointers::{duration, give, handle, null, put, take_back, text};
use crate::received::{ricochet_received, store};
use crate::sender::RICOCHET_NOW;

/// Messages are delivered as they arrive: a recovered one may follow messages that were sent later.
pub const RICOCHET_UNORDERED: u32 = 0;
/// The messages of one sender to one group are delivered in the order in which they were sent.
pub const RICOCHET_FIFO: u32 = 1;

/// The policy of the node's settings.
pub const RICOCHET_POLICY_OF_NODE: u32 = 0;
/// A full queue drops its oldest message, and RICOCHET_SLOW_READER tells.
pub const RICOCHET_DROP_OLDEST: u32 = 1;
/// A full queue drops the newest message, and RICOCHET_SLOW_READER tells.
pub const RICOCHET_DROP_NEWEST: u32 = 2;
/// While the queue is full, the node processes no packets, so that senders wait.
pub const RICOCHET_BLOCK: u32 = 3;

/// Options for joining groups. Zero in all fields is the default, `{0}` in C and `{}` in C++.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ricochet_join_options {
    /// RICOCHET_UNORDERED or RICOCHET_FIFO.
    pub order: u32,
    /// Treatment of messages for which the queue has no room: RICOCHET_POLICY_OF_NODE, RICOCHET_DROP_OLDEST,
    /// RICOCHET_DROP_NEWEST or RICOCHET_BLOCK.
    pub policy: u32,
    /// Maximum number of messages in the queue; 0 for the node's setting.
    pub queue: usize,
    /// Maximum number of bytes of messages in the queue; 0 for the node's setting.
    pub queue_bytes: usize,
    /// With RICOCHET_FIFO: maximum number of messages held back until earlier ones arrive; 0 for the node's
    /// setting.
    pub held: usize,
    /// Number of messages from before the subscription, of each group; 0 for none.
    pub last: u64,
    /// Instead of `last`: time in microseconds before the subscription whose messages it gets; 0 for none.
    pub since_us: u64,
    /// Time after which a missing message is given up that its sender marked as expiring; 0 for the node's
    /// setting.
    pub lifetime_us: u64,
    /// Whether this node sends messages longer than a packet to the groups.
    pub fragments: bool,
    /// Instead of `last`: whether it begins with the last value of each key (ricochet_send_keyed).
    pub last_per_key: bool,
    /// Room for later options, which must be zero.
    pub reserved: [u64; 8],
}

/// A queue of the events of one or more groups.
pub struct ricochet_subscription {
    inner: ricochet::Subscription,
    /// Messages for which the buffer of the caller was too small.
    back: Mutex<VecDeque<Event>>,
}

impl ricochet_subscription {
    fn back(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, timeout_us: i64) -> Result<Event, Failure> {
        self.inner.check_process()?;
        // The lock is not held while the thread waits.
        let back = self.back().pop_front();
        Ok(match (back, timeout_us) {
            (Some(event), _) => event,
            (None, RICOCHET_NOW) => self.inner.try_recv_event()?,
            (None, ..0) => self.inner.recv_event()?,
            (None, 1..) => self.inner.recv_event_timeout(duration(timeout_us))?,
        })
    }
}

impl ricochet_join_options {
    fn parse(&self) -> Result<JoinOptions, Failure> {
        let some = |value: usize| (value > 0).then_some(value);
        let order = match self.order {
            RICOCHET_UNORDERED => Order::Unordered,
            RICOCHET_FIFO => Order::Fifo,
            other => return Err(Failure::invalid(format_args!("order: expected 0 or 1, saw {other}"))),
        };
        let policy = match self.policy {
            RICOCHET_POLICY_OF_NODE => None,
            RICOCHET_DROP_OLDEST => Some(Policy::DropOldest),
            RICOCHET_DROP_NEWEST => Some(Policy::DropNewest),
            RICOCHET_BLOCK => Some(Policy::Block),
            other => return Err(Failure::invalid(format_args!("policy: expected 0 to 3, saw {other}"))),
        };
        let from = match (self.last, self.since_us, self.last_per_key) {
            (0, 0, false) => Start::Live,
            (count, 0, false) => Start::Last(count),
            (0, age_us, false) => Start::Since(Duration::from_micros(age_us)),
            (0, 0, true) => Start::LastPerKey,
            _ => {
                let text = "options: expected one of last, since_us and last_per_key, saw several";
                return Err(Failure::invalid(text));
            }
        };
        if self.reserved != [0; 8] {
            return Err(Failure::invalid(
                "options: expected zeros in reserved, saw others; begin with `ricochet_join_options options = {0}`",
            ));
        }
        Ok(JoinOptions {
            order,
            policy,
            queue: some(self.queue),
            queue_bytes: some(self.queue_bytes),
            held: some(self.held),
            fragments: self.fragments,
            lifetime: (self.lifetime_us > 0).then(|| Duration::from_micros(self.lifetime_us)),
            from,
            ..JoinOptions::default()
        })
    }
}

/// Joins `count` groups, all or none, with one queue for all. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_join(
    node: *const ricochet_node,
    groups: *const *const c_char,
    count: usize,
    options: *const ricochet_join_options,
    subscription: *mut *mut ricochet_subscription,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers; `groups` is to `count` texts.
        unsafe {
            let node = handle("node", node)?;
            let options =
                options.as_ref().map_or(Ok(JoinOptions::default()), ricochet_join_options::parse)?;
            if groups.is_null() {
                return Err(null("groups", "texts"));
            }
            let names: Result<Vec<&str>, Failure> =
                (0..count).map(|at| text("groups", *groups.add(at))).collect();
            let inner = node.inner.join_many_with(names?, &options)?;
            give("subscription", subscription, ricochet_subscription { inner, back: Mutex::default() })
        }
    })
}

/// Waits for the next event and stores it. The payload of a message is copied into `buffer`, which has room
/// for `capacity` bytes. With RICOCHET_TOO_SMALL, `received` is stored and tells the length, and the message
/// waits for the next call. `buffer` may be NULL if `capacity` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_recv(
    subscription: *const ricochet_subscription,
    buffer: *mut c_void,
    capacity: usize,
    timeout_us: i64,
    received: *mut ricochet_received,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        let subscription = unsafe { handle("subscription", subscription) }?;
        if received.is_null() || (buffer.is_null() && capacity > 0) {
            let what = if received.is_null() { "received" } else { "buffer" };
            return Err(null(what, "room for a result"));
        }
        let event = subscription.next(timeout_us)?;
        // SAFETY: it is not NULL, and the caller ensures that there is room.
        unsafe { store(&event, received) };
        let payload = match &event {
            Event::Message(message) => message.payload(),
            _ => return Ok(()),
        };
        if payload.len() > capacity {
            let text = format!("expected a buffer of {} bytes, saw {capacity}", payload.len());
            subscription.back().push_front(event);
            return Err(Failure::new(ricochet_result::RICOCHET_TOO_SMALL, text));
        }
        if !payload.is_empty() {
            // SAFETY: the buffer is not NULL and has room for `capacity` bytes.
            unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(payload.as_ptr(), payload.len()) };
        }
        Ok(())
    })
}

/// Returns a descriptor for event loops, which belongs to the subscription; -1 on failure. It is readable
/// when an event may wait, and stays so until ricochet_recv with RICOCHET_NOW has returned
/// RICOCHET_TIMEOUT. It is also readable when the node was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_subscription_fd(subscription: *const ricochet_subscription) -> c_int {
    guard_or(-1, || {
        // SAFETY: the caller ensures what the header says of pointers.
        let subscription = unsafe { handle("subscription", subscription) }?;
        let failed = |error| {
            let text = format!("cannot create an event descriptor: {error}");
            Failure::new(ricochet_result::RICOCHET_FAILED, text)
        };
        let fd = subscription.inner.ready_fd().map_err(failed)?;
        // Such a message left the queue, perhaps while there was no descriptor yet.
        if !subscription.back().is_empty() {
            subscription.inner.make_ready();
        }
        Ok(fd.as_raw_fd())
    })
}

/// Counters of a subscription.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ricochet_counts {
    /// Messages queued.
    pub queued: u64,
    /// Messages dropped because the queue was full. RICOCHET_SLOW_READER tells of each.
    pub dropped: u64,
    /// Packets that never came. RICOCHET_LOST tells of each.
    pub lost: u64,
    /// Loss reports dropped for lack of room.
    pub reports_dropped: u64,
    /// Times that the queue was full and made the node wait.
    pub blocked: u64,
    /// Messages that wait.
    pub waiting: u64,
}

/// Stores the counters of a subscription.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_subscription_counts(
    subscription: *const ricochet_subscription,
    counts: *mut ricochet_counts,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let subscription = handle("subscription", subscription)?;
            subscription.inner.check_process()?;
            let seen = subscription.inner.counts();
            let back = subscription.back().len();
            let counted = ricochet_counts {
                queued: seen.queued,
                dropped: seen.dropped,
                lost: seen.lost,
                reports_dropped: seen.reports_dropped,
                blocked: seen.blocked,
                waiting: (subscription.inner.len() + back) as u64,
            };
            put("counts", counts, counted)
        }
    })
}

/// Leaves the groups, but does not free the handle. Events that wait can still be received; then
/// ricochet_recv returns RICOCHET_CLOSED. Waits of other threads end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_subscription_leave(
    subscription: *const ricochet_subscription,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { handle("subscription", subscription) }?.inner.leave();
        Ok(())
    })
}

/// Leaves the groups and frees a subscription, with all events that wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_subscription_free(subscription: *mut ricochet_subscription) {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { take_back(subscription) };
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_the_default_and_wrong_options_are_refused() {
        let zero = ricochet_join_options::default();
        assert_eq!(zero.parse().unwrap(), JoinOptions::default());
        for wrong in [
            ricochet_join_options { order: 9, ..zero },
            ricochet_join_options { policy: 4, ..zero },
            ricochet_join_options { last: 1, since_us: 1, ..zero },
            ricochet_join_options { since_us: 1, last_per_key: true, ..zero },
            ricochet_join_options { reserved: [0, 0, 0, 0, 0, 0, 0, 1], ..zero },
        ] {
            assert_eq!(wrong.parse().unwrap_err().code, ricochet_result::RICOCHET_INVALID, "{wrong:?}");
        }
        let all = ricochet_join_options {
            order: RICOCHET_FIFO,
            policy: RICOCHET_BLOCK,
            queue: 7,
            last: 3,
            lifetime_us: 5,
            ..zero
        };
        let parsed = all.parse().unwrap();
        assert_eq!((parsed.order, parsed.policy), (Order::Fifo, Some(Policy::Block)));
        assert_eq!((parsed.queue, parsed.from), (Some(7), Start::Last(3)));
        assert_eq!(parsed.lifetime, Some(Duration::from_micros(5)));
        let keyed = ricochet_join_options { last_per_key: true, ..zero };
        assert_eq!(keyed.parse().unwrap().from, Start::LastPerKey);
    }
}
