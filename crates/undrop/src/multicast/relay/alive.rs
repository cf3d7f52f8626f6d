//! Signs of life for the service manager: the loop that hands out sends them, as long as each loop that hears
//! turns as well.

use std::sync::atomic::{AtomicU64, Ordering};

use daemon::supervisor::Supervisor;

/// Time without a turn after which a loop hangs. Each loop turns several times a second.
const HUNG_US: u64 = 10_000_000;

/// Time of the last turn of a loop, in microseconds since the start of the relay.
#[derive(Debug, Default)]
pub(super) struct Pulse(AtomicU64);

impl Pulse {
    /// Notes a turn.
    pub(super) fn beat(&self, now_us: u64) {
        self.0.store(now_us, Ordering::Relaxed);
    }

    fn is_alive(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.0.load(Ordering::Relaxed)) < HUNG_US
    }
}

/// Sends a sign of life if one is due and no loop hangs.
pub(super) fn tell(supervisor: &mut Supervisor, pulses: &[Pulse], now_us: u64) {
    if pulses.iter().all(|pulse| pulse.is_alive(now_us)) {
        supervisor.turn(now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_has_not_turned_for_ten_seconds_hangs() {
        let pulses = [Pulse::default(), Pulse::default()];
        let alive = |now_us| pulses.iter().all(|pulse| pulse.is_alive(now_us));
        assert!(alive(HUNG_US - 1) && !alive(HUNG_US));
        pulses[0].beat(HUNG_US);
        assert!(!alive(HUNG_US), "the other loop still hangs");
        pulses[1].beat(HUNG_US + 1);
        assert!(alive(HUNG_US), "a loop that turned after the clock was read is alive");
        assert!(!alive(2 * HUNG_US));
    }
}
