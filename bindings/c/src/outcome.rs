//! Result codes, the text of a thread's last error, and the guard that stops panics.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ricochet::{JoinError, RecvError, RecvTimeoutError, RekeyError, SendError, StartError, TryRecvError};

use crate::outcome::ricochet_result::{
    RICOCHET_CLOSED, RICOCHET_FAILED, RICOCHET_INVALID, RICOCHET_NOT_HELD, RICOCHET_OK, RICOCHET_TIMEOUT,
    RICOCHET_TOO_LONG,
};

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ricochet_result {
    /// Success.
    RICOCHET_OK = 0,
    /// The time was over: no event came, the readers had no room, or there were too few members.
    RICOCHET_TIMEOUT = 1,
    /// The buffer is too small for the message, which waits for the next call. The needed length is told.
    RICOCHET_TOO_SMALL = 2,
    /// The node was closed or the groups were left, and nothing waits any more.
    RICOCHET_CLOSED = 3,
    /// An argument or a setting is wrong.
    RICOCHET_INVALID = 4,
    /// The message is longer than a packet of the node, or than the longest message.
    RICOCHET_TOO_LONG = 5,
    /// Too few members hold the message. It was sent.
    RICOCHET_NOT_HELD = 6,
    /// Another failure, such as a missing interface, a port in use, or a node that has failed.
    RICOCHET_FAILED = 7,
}

/// A result other than success, and its text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: ricochet_result,
    text: Cow<'static, CStr>,
}

thread_local! {
    static LAST: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Returns the text of the last error of the calling thread, or an empty text if there was none.
///
/// The text is valid until the next call of this library on the same thread. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn ricochet_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

impl Failure {
    pub(crate) fn new(code: ricochet_result, text: impl Display) -> Self {
        let mut bytes = text.to_string().into_bytes();
        bytes.retain(|&byte| byte != 0);
        Self { code, text: Cow::Owned(CString::new(bytes).unwrap_or_default()) }
    }

    /// Returns a failure that occurs in normal operation, so that its text is not copied each time.
    const fn usual(code: ricochet_result, text: &'static CStr) -> Self {
        Self { code, text: Cow::Borrowed(text) }
    }

    pub(crate) fn invalid(text: impl Display) -> Self {
        Self::new(RICOCHET_INVALID, text)
    }

    pub(crate) const fn timeout() -> Self {
        Self::usual(RICOCHET_TIMEOUT, c"expected an event, room or members in the time given, saw none")
    }

    const fn closed() -> Self {
        Self::usual(RICOCHET_CLOSED, c"the node was closed")
    }

    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::new(RICOCHET_FAILED, format_args!("internal error: {}", text.unwrap_or("panic")))
    }
}

/// Does the work of a function of the library. A panic becomes a failure: unwinding must not reach C.
pub(crate) fn guard(work: impl FnOnce() -> Result<(), Failure>) -> ricochet_result {
    match guarded(work) {
        Ok(()) => RICOCHET_OK,
        Err(code) => code,
    }
}

/// Does the same for a function that returns a value, or `otherwise` on failure.
pub(crate) fn guard_or<T>(otherwise: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    guarded(work).unwrap_or(otherwise)
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, ricochet_result> {
    // A panic may leave values of the library half done; its locks recover from panics.
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic)));
    done.map_err(|failure| {
        // A thread that ends has no texts any more.
        let _ = LAST.try_with(|last| last.replace(failure.text));
        failure.code
    })
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match &error {
            StartError::Config(_) | StartError::Seed { .. } | StartError::SeedVersion { .. } => {
                RICOCHET_INVALID
            }
            _ => RICOCHET_FAILED,
        };
        Self::new(code, error)
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Closed => Self::closed(),
            JoinError::Address(_) | JoinError::Failed(_) => Self::new(RICOCHET_FAILED, error),
            _ => Self::invalid(error),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let code = match &error {
            SendError::WouldBlock => return Self::timeout(),
            SendError::Closed => return Self::closed(),
            SendError::TooLong { .. } => RICOCHET_TOO_LONG,
            SendError::NotHeld { .. } => RICOCHET_NOT_HELD,
            SendError::Name { .. } | SendError::Pattern { .. } | SendError::Key { .. } => RICOCHET_INVALID,
            _ => RICOCHET_FAILED,
        };
        Self::new(code, error)
    }
}

impl From<RekeyError> for Failure {
    fn from(error: RekeyError) -> Self {
        Self::new(RICOCHET_FAILED, error)
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::Closed => Self::closed(),
            other => Self::new(RICOCHET_FAILED, other),
        }
    }
}

impl From<TryRecvError> for Failure {
    fn from(error: TryRecvError) -> Self {
        match error {
            TryRecvError::Empty => Self::timeout(),
            TryRecvError::Closed => Self::closed(),
            other => Self::new(RICOCHET_FAILED, other),
        }
    }
}

impl From<RecvTimeoutError> for Failure {
    fn from(error: RecvTimeoutError) -> Self {
        match error {
            RecvTimeoutError::Timeout => Self::timeout(),
            RecvTimeoutError::Closed => Self::closed(),
            other => Self::new(RICOCHET_FAILED, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text is valid until the next call, and is copied at once.
        unsafe { CStr::from_ptr(ricochet_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_result_with_its_text() {
        assert_eq!(guard(|| panic!("at {}", 7)), RICOCHET_FAILED);
        assert_eq!(last(), "internal error: at 7");
        assert_eq!(guard(|| std::panic::panic_any(7)), RICOCHET_FAILED);
        assert_eq!(last(), "internal error: panic");
        assert_eq!(guard_or(-1, || panic!("a constant text")), -1);
        assert_eq!(last(), "internal error: a constant text");
    }

    #[test]
    fn each_thread_has_its_own_last_error() {
        assert_eq!(guard(|| Err(Failure::invalid("here\0and there"))), RICOCHET_INVALID);
        assert_eq!(last(), "hereand there");
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!(guard(|| Ok(())), RICOCHET_OK);
        assert_eq!(last(), "hereand there", "success leaves the text of the last error");
    }
}
