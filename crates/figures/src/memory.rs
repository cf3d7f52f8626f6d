//! Memory for simultaneous simulations, so that the system does not kill a run that was left alone over
//! night.

use std::fs;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Returns three quarters of the memory available to a new process, in bytes; no bound where the system does
/// not say.
///
/// The value is that of the first call. The allocator keeps what finished simulations have freed, which the
/// system would subtract in later calls, so that later figures would run one simulation at a time.
pub fn memory_to_use() -> u64 {
    static TO_USE: OnceLock<u64> = OnceLock::new();
    *TO_USE.get_or_init(|| {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        available(&meminfo).map_or(u64::MAX, |bytes| bytes / 4 * 3)
    })
}

/// Returns `MemAvailable` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// A budget of memory, shared by threads.
pub(crate) struct Memory {
    budget: u64,
    in_use: Mutex<InUse>,
    freed: Condvar,
}

#[derive(Default)]
struct InUse {
    bytes: u64,
    by: usize,
}

impl Memory {
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, in_use: Mutex::default(), freed: Condvar::new() }
    }

    /// Waits until this number of bytes is free. A thread that is alone gets more than the budget, since
    /// waiting would not help.
    pub(crate) fn take(&self, bytes: u64) -> Taken<'_> {
        let has_room = |used: &InUse| used.by == 0 || used.bytes.saturating_add(bytes) <= self.budget;
        let used = self.freed.wait_while(self.in_use(), |used| !has_room(used));
        let mut used = used.unwrap_or_else(PoisonError::into_inner);
        used.bytes = used.bytes.saturating_add(bytes);
        used.by += 1;
        Taken { memory: self, bytes }
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory in use, returned on drop.
#[must_use]
pub(crate) struct Taken<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut used = self.memory.in_use();
        used.bytes = used.bytes.saturating_sub(self.bytes);
        used.by -= 1;
        drop(used);
        self.memory.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_found_by_its_name() {
        let text =
            "MemTotal:       24689012 kB\nMemFree:         1 kB\nMemAvailable:   1000 kB\nBuffers: 2 kB\n";
        assert_eq!(available(text), Some(1_024_000));
        assert_eq!((available("MemTotal: 5 kB\n"), available("MemAvailable: 5\n")), (None, None));
    }

    fn of(memory: &Memory) -> (u64, usize) {
        let used = memory.in_use();
        (used.bytes, used.by)
    }

    #[test]
    fn several_share_the_budget_and_a_larger_one_waits_until_it_is_alone() {
        let memory = Memory::new(10);
        let (first, second) = (memory.take(4), memory.take(6));
        assert_eq!(of(&memory), (10, 2));
        drop((first, second));
        let alone = memory.take(11);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(memory.take(1)));
            assert!(!waiting.is_finished());
            drop(alone);
            waiting.join().unwrap();
        });
        assert_eq!(of(&memory), (0, 0));
    }
}
