//! Waiting for a condition of the real machine, however busy it is.

use std::thread::sleep;
use std::time::Duration;

/// Interval between the first two looks. It doubles up to [`STEP_MAX`].
const STEP: Duration = Duration::from_millis(1);
/// Longest interval between two looks.
const STEP_MAX: Duration = Duration::from_millis(20);
/// Sum of the intervals: a minute, and the wait is longer where a look takes time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the first value that `look` finds, or `None` if it finds none within a minute.
///
/// ```
/// let mut looks = 0..;
/// assert_eq!(testkit::wait_for(|| looks.next().filter(|&look| look == 3)), Some(3));
/// ```
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (mut step, mut waited) = (STEP, Duration::ZERO);
    loop {
        let found = look();
        if found.is_some() || waited >= PATIENCE {
            return found;
        }
        sleep(step);
        waited += step;
        step = (2 * step).min(STEP_MAX);
    }
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
