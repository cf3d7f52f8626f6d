//! Pointers of the caller as Rust values. NULL is an error with the name of the argument.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use crate::outcome::Failure;

/// Longest wait that stands for a wait without limit: 136 years.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Returns the failure of an argument that is NULL.
pub(crate) fn null(what: &str, expected: &str) -> Failure {
    Failure::invalid(format_args!("{what}: expected {expected}, saw NULL"))
}

/// Returns the object of a handle.
///
/// # Safety
/// The pointer is NULL, or from [`give`] and not freed during `'a`.
pub(crate) unsafe fn handle<'a, T>(what: &str, pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as this function.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what, "a handle"))
}

/// Returns the object of a handle that one thread alone uses.
///
/// # Safety
/// As for [`handle`], and no other thread uses the handle during `'a`.
pub(crate) unsafe fn handle_mut<'a, T>(what: &str, pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: as this function.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what, "a handle"))
}

/// Returns a text.
///
/// # Safety
/// The pointer is NULL or to a text that ends with a zero byte and does not change during `'a`.
pub(crate) unsafe fn text<'a>(what: &str, pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(what, "a text"));
    }
    // SAFETY: as this function.
    let text = unsafe { CStr::from_ptr(pointer) };
    let wrong = |_| Failure::invalid(format_args!("{what}: expected UTF-8, saw {text:?}"));
    text.to_str().map_err(wrong)
}

/// Returns bytes. NULL is no bytes if the length is 0.
///
/// # Safety
/// The pointer is NULL or to `length` bytes that do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(
    what: &str,
    pointer: *const c_void,
    length: usize,
) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || isize::try_from(length).is_err() {
        return Err(null(what, "bytes of the length given"));
    }
    // SAFETY: as this function; the length was checked.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
}

/// Stores a result.
///
/// # Safety
/// The pointer is NULL or to room for a `T`.
pub(crate) unsafe fn put<T>(what: &str, pointer: *mut T, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(null(what, "room for a result"));
    }
    // SAFETY: as this function.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Stores a new handle, which [`take_back`] frees.
///
/// # Safety
/// As for [`put`].
pub(crate) unsafe fn give<T>(what: &str, pointer: *mut *mut T, value: T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(null(what, "room for a handle"));
    }
    // SAFETY: as this function.
    unsafe { pointer.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Frees a handle.
///
/// # Safety
/// The pointer is NULL, or from [`give`] and not used by any thread any more.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as this function.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Returns the time of a timeout in microseconds; a negative one is without limit.
pub(crate) fn duration(timeout_us: i64) -> Duration {
    u64::try_from(timeout_us).map_or(FOREVER, Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::outcome::{guard, ricochet_result};

    #[test]
    fn null_is_an_error_and_not_a_fault() {
        // SAFETY: NULL is allowed everywhere.
        unsafe {
            let mut taken: Vec<ricochet_result> = vec![
                guard(|| handle::<u8>("a", ptr::null()).map(|_| ())),
                guard(|| handle_mut::<u8>("a", ptr::null_mut()).map(|_| ())),
                guard(|| text("a", ptr::null()).map(|_| ())),
                guard(|| bytes("a", ptr::null(), 1).map(|_| ())),
                guard(|| bytes("a", ptr::dangling(), usize::MAX).map(|_| ())),
                guard(|| put("a", ptr::null_mut(), 1_u8)),
                guard(|| give("a", ptr::null_mut(), 1_u8)),
            ];
            taken.dedup();
            assert_eq!(taken, [ricochet_result::RICOCHET_INVALID]);
            take_back::<u8>(ptr::null_mut());
            assert_eq!(bytes("a", ptr::null(), 0).unwrap(), b"");
        }
    }

    #[test]
    fn a_text_that_is_not_utf8_is_refused() {
        let latin = c"caf\xe9";
        // SAFETY: a constant text.
        let refused = unsafe { text("group", latin.as_ptr()) };
        assert_eq!(refused.unwrap_err().code, ricochet_result::RICOCHET_INVALID);
    }

    #[test]
    fn negative_timeouts_have_no_limit() {
        assert_eq!(duration(-1), FOREVER);
        assert_eq!(duration(i64::MIN), FOREVER);
        assert_eq!(duration(0), Duration::ZERO);
        assert_eq!(duration(1_500), Duration::from_micros(1_500));
    }
}
