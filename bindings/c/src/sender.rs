//! Sending messages to a group.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use nix::sys::eventfd::{EfdFlags, EventFd};
use ricochet::{SendError, SendOptions};

use crate::node::ricochet_node;
use crate::outcome::{Failure, guard, guard_or, ricochet_result};
use crate::pointers::{bytes, duration, give, handle, put, take_back, text};

/// Timeout of a call that does not wait.
pub const RICOCHET_NOW: i64 = 0;
/// Timeout of a call that waits without limit.
pub const RICOCHET_FOREVER: i64 = -1;

/// Flag of a sender whose late messages are worthless: receivers do not request them.
pub const RICOCHET_EXPIRING: u32 = 1;
/// Flag of a sender that sends messages longer than a packet in several packets.
pub const RICOCHET_FRAGMENTS: u32 = 2;

/// Sends messages to one group.
pub struct ricochet_sender {
    inner: ricochet::Sender,
    room: OnceLock<Arc<Room>>,
}

/// A descriptor that becomes readable when there may be room for a message.
struct Room(EventFd);

impl Room {
    fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self(EventFd::from_value_and_flags(0, flags)?))
    }
}

impl Wake for Room {
    fn wake(self: Arc<Self>) {
        // A full counter is not an error: the descriptor is readable already.
        let _ = self.0.write(1);
    }
}

impl ricochet_sender {
    /// Sends a message if there is room. Otherwise the descriptor, if there is one, becomes readable when
    /// there may be.
    fn try_send(&self, payload: &[u8], options: &SendOptions<'_>) -> Result<u32, SendError> {
        let Some(room) = self.room.get() else { return self.inner.try_send_with(payload, options) };
        // In the child of a fork, the descriptor is the parent's.
        self.inner.check_process()?;
        let _ = room.0.read();
        let waker = Waker::from(Arc::clone(room));
        // A wait that is dropped stays registered until the next wake-up.
        match pin!(self.inner.send_async_with(payload, options)).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Err(SendError::WouldBlock),
        }
    }

    fn send(&self, payload: &[u8], options: &SendOptions<'_>, timeout_us: i64) -> Result<u32, SendError> {
        match timeout_us {
            RICOCHET_NOW => self.try_send(payload, options),
            ..0 => self.inner.send_with(payload, options),
            1.. => self.inner.send_timeout_with(payload, options, duration(timeout_us)),
        }
    }
}

/// Creates a sender to a group. The node need not be a member of the group. `flags` is 0 or a sum of
/// RICOCHET_EXPIRING and RICOCHET_FRAGMENTS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_sender_new(
    node: *const ricochet_node,
    group: *const c_char,
    flags: u32,
    sender: *mut *mut ricochet_sender,
) -> ricochet_result {
    guard(|| {
        let known = RICOCHET_EXPIRING | RICOCHET_FRAGMENTS;
        if flags & !known != 0 {
            return Err(Failure::invalid(format_args!("flags: expected 0 to {known}, saw {flags}")));
        }
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe {
            let inner = handle("node", node)?.inner.sender(text("group", group)?)?;
            let inner = inner.expiring(flags & RICOCHET_EXPIRING != 0);
            let inner = inner.fragments(flags & RICOCHET_FRAGMENTS != 0);
            give("sender", sender, ricochet_sender { inner, room: OnceLock::new() })
        }
    })
}

/// Frees a sender. Messages that wait for their readers are sent nevertheless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_sender_free(sender: *mut ricochet_sender) {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        unsafe { take_back(sender) };
        Ok(())
    });
}

/// Sends a message of `length` bytes, and waits while its readers have no room. With RICOCHET_TIMEOUT
/// nothing was sent. If `sequence` is not NULL, stores the number of the message among those of the node to
/// the group. A loss in the network is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_send(
    sender: *const ricochet_sender,
    payload: *const c_void,
    length: usize,
    timeout_us: i64,
    sequence: *mut u32,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        let (sender, payload) = unsafe { (handle("sender", sender)?, bytes("payload", payload, length)?) };
        let sent = sender.send(payload, &SendOptions::default(), timeout_us)?;
        // SAFETY: as above.
        unsafe { put_unless_null(sequence, sent) }
    })
}

/// Sends the value of a key, as ricochet_send sends a message. The key has 1 to RICOCHET_KEY_SIZE bytes. The
/// members of the group keep the last value of each key, up to 64 KiB each, for those who join later with
/// `last_per_key`. A value of no bytes deletes the key. Of two values, the one that was sent later counts, by
/// the clocks of their senders.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_send_keyed(
    sender: *const ricochet_sender,
    key: *const c_void,
    key_length: usize,
    payload: *const c_void,
    length: usize,
    timeout_us: i64,
    sequence: *mut u32,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        let (sender, key, payload) = unsafe {
            (handle("sender", sender)?, bytes("key", key, key_length)?, bytes("payload", payload, length)?)
        };
        let options = SendOptions { key: Some(key), ..SendOptions::default() };
        let sent = sender.send(payload, &options, timeout_us)?;
        // SAFETY: as above.
        unsafe { put_unless_null(sequence, sent) }
    })
}

/// Sends a message, and waits until `members` members of the group hold it. With RICOCHET_NOT_HELD, fewer
/// hold it when the time is over, but it was sent. With RICOCHET_TIMEOUT nothing was sent. A member that has
/// given the message up as lost (`nak.give_up_ms`) counts too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_send_held(
    sender: *const ricochet_sender,
    payload: *const c_void,
    length: usize,
    members: usize,
    timeout_us: i64,
    sequence: *mut u32,
) -> ricochet_result {
    guard(|| {
        // SAFETY: the caller ensures what the header says of pointers.
        let (sender, payload) = unsafe { (handle("sender", sender)?, bytes("payload", payload, length)?) };
        let sent = sender.inner.send_held(payload, members, duration(timeout_us))?;
        // SAFETY: as above.
        unsafe { put_unless_null(sequence, sent) }
    })
}

/// Stores a result that the caller may not want.
///
/// # Safety
/// As for [`put`].
unsafe fn put_unless_null<T>(pointer: *mut T, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: as this function.
    unsafe { put("", pointer, value) }
}

/// Returns a descriptor for event loops, which belongs to the sender; -1 on failure. After ricochet_send
/// with RICOCHET_NOW returned RICOCHET_TIMEOUT, it becomes readable when there may be room. Poll it only
/// meanwhile. A sender with a descriptor should be used by one thread at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ricochet_sender_fd(sender: *const ricochet_sender) -> c_int {
    guard_or(-1, || {
        // SAFETY: the caller ensures what the header says of pointers.
        let sender = unsafe { handle("sender", sender) }?;
        sender.inner.check_process()?;
        let failed = |error| {
            Failure::new(
                ricochet_result::RICOCHET_FAILED,
                format_args!("cannot create an event descriptor: {error}"),
            )
        };
        if sender.room.get().is_none() {
            let room = Arc::new(Room::new().map_err(failed)?);
            // Of two threads that come here at once, the first alone sets the descriptor.
            let _ = sender.room.set(room);
        }
        Ok(sender.room.get().map_or(-1, |room| room.0.as_fd().as_raw_fd()))
    })
}
