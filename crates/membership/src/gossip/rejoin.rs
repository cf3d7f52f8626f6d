//! Rejoining: of this node, when others declared it down, and of others, when a partition heals.

/// Minimum interval between attempts to rejoin.
const REJOIN_PERIOD_US: u64 = 100_000;
/// Time without a further attempt after which the last one counts as successful.
const SETTLED_US: u64 = 5_000_000;

/// This node's attempts to rejoin.
///
/// A node cannot refute that it was declared down: it must become another identity, of a later life at the
/// same address. Its id stays, because the id names its streams. A life is a start time in microseconds.
/// Adding one is enough where a live node was declared down, and cannot be confused with a true restart.
///
/// If the clock was set back before a restart, other nodes know a life at this address that is later than
/// this one. As long as they consider it alive they send to it, and so this node learns of it. Otherwise each
/// attempt adds 256 times as much as the last.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    due_us: Option<u64>,
    last_us: Option<u64>,
    attempts: u32,
    /// Latest life that others know at this node's address.
    rival: u64,
}

/// Number of attempts after which the step stays the same.
const ATTEMPTS_MAX: u32 = 6;

impl Rejoin {
    /// Others have declared this node down: schedules an attempt.
    pub(super) fn on_declared_down(&mut self, now_us: u64) {
        let earliest_us = self.last_us.map_or(0, |last_us| last_us + REJOIN_PERIOD_US);
        self.due_us = Some(earliest_us.max(now_us));
    }

    /// Others believe that `life` is the one at this node's address: schedules an attempt that outlives it.
    pub(super) fn on_rival(&mut self, now_us: u64, life: u64) {
        self.rival = self.rival.max(life);
        self.on_declared_down(now_us);
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// If an attempt is due, returns the life to continue with, at most `latest`: others refuse a later one.
    pub(super) fn poll(&mut self, now_us: u64, life: u64, latest: u64) -> Option<u64> {
        self.due_us.take_if(|due_us| *due_us <= now_us)?;
        if self.last_us.is_some_and(|last_us| now_us >= last_us + SETTLED_US) {
            self.attempts = 0;
        }
        self.last_us = Some(now_us);
        if self.rival >= life {
            return Some((self.rival + 1).min(latest).max(life));
        }
        let step = 1 << (8 * self.attempts);
        self.attempts = (self.attempts + 1).min(ATTEMPTS_MAX);
        Some((life + step).min(latest).max(life))
    }
}

/// Attempts to reach the nodes that were declared down.
///
/// Once one of them is back, the others of its partition are probably alive too, so all are
/// contacted in quick succession.
#[derive(Debug, Default)]
pub(super) struct Revival {
    due_us: Option<u64>,
    rounds: u8,
}

impl Revival {
    const PERIOD_US: u64 = 100_000;
    const ROUNDS: u8 = 10;
    /// Number of nodes contacted in a round.
    pub(super) const FANOUT: usize = 4;

    /// A node that was declared down is back: begins the rounds.
    pub(super) fn on_revived(&mut self, now_us: u64) {
        self.rounds = Self::ROUNDS;
        self.due_us.get_or_insert(now_us);
    }

    pub(super) fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// Returns whether a round is due, and schedules the next one. `down` is the number of nodes to contact.
    pub(super) fn poll(&mut self, now_us: u64, down: usize) -> bool {
        if self.due_us.is_none_or(|due_us| due_us > now_us) {
            return false;
        }
        self.rounds -= 1;
        let over = self.rounds == 0 || down == 0;
        self.due_us = (!over).then_some(now_us + Self::PERIOD_US);
        true
    }
}
