//! Waiting for a condition of the real machine, however busy it is.

use std::thread::sleep;
use std::time::Duration;

/// Interval between two looks.
const STEP: Duration = Duration::from_millis(10);
/// Number of looks: a minute at least, and longer where a look takes time.
const LOOKS: u32 = 6_000;

/// Returns the first value that `look` finds, or `None` if it finds none within a minute.
///
/// ```
/// let mut looks = 0..;
/// assert_eq!(testkit::wait_for(|| looks.next().filter(|&look| look == 3)), Some(3));
/// ```
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return Some(found);
        }
        sleep(STEP);
    }
    None
}

/// Waits until a condition holds.
///
/// # Panics
/// With `what`, if the condition does not hold within a minute.
///
/// ```
/// let mut looks = 0..;
/// testkit::wait_until("the third look", || looks.next() == Some(2));
/// ```
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(wait_for(|| holds().then_some(())).is_some(), "not within a minute: {what}");
}
