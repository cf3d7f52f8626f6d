//! Forks of this process, noticed in the child.
//!
//! A child has one thread, and shares the descriptors of its parent. The work of the other threads goes on in
//! the parent alone, and a lock that one of them held is locked in the child for good.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of forks between the process that registered the handler first and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// Result of the registration: 0, or an error number.
static REGISTERED: OnceLock<i32> = OnceLock::new();

/// Lets [`count`] see forks from now on. Returns the count of this process, which its children exceed.
///
/// `vfork` and `posix_spawn` do not count, because their children run nothing but another program.
///
/// # Errors
/// If there is no memory for the handler.
pub fn watch() -> io::Result<u64> {
    let register = || {
        // SAFETY: the handler only changes an atomic, which the child of a process with threads may do. The C
        // library forgets the handler when it unloads the shared object that has it.
        unsafe { libc::pthread_atfork(None, None, Some(on_child)) }
    };
    match *REGISTERED.get_or_init(register) {
        0 => Ok(count()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns a number that stays the same in one process, and is greater in each of its children.
pub fn count() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn on_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_a_greater_count_than_its_parent() {
        let own = watch().unwrap();
        assert_eq!(watch().unwrap(), own);
        // SAFETY: the child does only what the child of a process with threads may do.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it does not return.
            unsafe { libc::_exit(i32::from(count() <= own)) };
        }
        let mut status = -1;
        // SAFETY: the status has room for the result.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(child > 0 && ended == child);
        assert_eq!(libc::WEXITSTATUS(status), 0);
        assert!(libc::WIFEXITED(status));
        assert_eq!(count(), own, "the parent is the same process as before");
    }
}
