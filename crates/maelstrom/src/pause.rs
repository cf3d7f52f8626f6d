//! Pauses of recovery: why, how often, how long, and their lines in the log.

use tracing::{info, warn};

use crate::status::{Counts, PauseStatus};

/// Minimum interval between pauses that are logged; those between are counted.
const LOG_US: u64 = 10_000_000;

/// Reason for a pause of recovery toward all peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Packets arrived that the tap has not captured.
    Missed,
    /// The WAN interface or the TUN device is missing, down, or without the programs of this process.
    Interface,
    /// Repairs are processed too long after their packets.
    Lag,
    /// The tap was replaced by another.
    Replaced,
}

impl Reason {
    const ALL: [Self; 4] = [Self::Missed, Self::Interface, Self::Lag, Self::Replaced];

    fn text(self) -> &'static str {
        match self {
            Self::Missed => "packets arrived that the tap did not capture",
            Self::Interface => "an interface is missing or down",
            Self::Lag => "repairs lag behind the tap",
            Self::Replaced => "the tap was replaced",
        }
    }
}

/// The pauses since the gateway started.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    active: Option<Active>,
    counts: [u64; Reason::ALL.len()],
    total_us: u64,
    last_end_us: Option<u64>,
    next_log_us: u64,
    unlogged: u64,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    reason: Reason,
    since_us: u64,
    is_logged: bool,
}

impl Pauses {
    /// Whether recovery pauses.
    pub(crate) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Begins a pause, unless one has begun.
    pub(crate) fn begin(&mut self, now_us: u64, reason: Reason) {
        if self.is_active() {
            return;
        }
        self.counts[reason as usize] += 1;
        let is_logged = now_us >= self.next_log_us;
        if is_logged {
            self.next_log_us = now_us + LOG_US;
            let others = match std::mem::take(&mut self.unlogged) {
                0 => String::new(),
                count => format!("; {count} pauses since the last such line are not in the log"),
            };
            warn!("recovery pauses: {}{others}", reason.text());
        } else {
            self.unlogged += 1;
        }
        self.active = Some(Active { reason, since_us: now_us, is_logged });
    }

    /// Ends the pause, if there is one.
    pub(crate) fn end(&mut self, now_us: u64) {
        let Some(Active { since_us, is_logged, .. }) = self.active.take() else { return };
        let length_us = now_us.saturating_sub(since_us);
        self.total_us += length_us;
        self.last_end_us = Some(now_us);
        if is_logged {
            info!(
                "the pause has ended after {} ms; recovery continues with packets sent from here on",
                length_us / 1_000
            );
        }
    }

    /// Number of pauses.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn status(&self, now_us: u64) -> PauseStatus {
        let ongoing_us = self.active.map_or(0, |active| now_us.saturating_sub(active.since_us));
        PauseStatus {
            reason: self.active.map(|active| active.reason.text().to_owned()),
            count: self.count(),
            total_ms: (self.total_us + ongoing_us) / 1_000,
            last_end_ms: self.last_end_us.map(|end_us| now_us.saturating_sub(end_us) / 1_000),
            by_reason: Reason::ALL
                .iter()
                .map(|&reason| (reason.text().to_owned(), self.counts[reason as usize]))
                .collect::<Counts>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_by_reason_and_measured() {
        let mut pauses = Pauses::default();
        pauses.begin(1_000, Reason::Lag);
        pauses.begin(2_000, Reason::Missed);
        assert!(pauses.is_active());
        let status = pauses.status(4_000);
        assert_eq!(status.reason.as_deref(), Some("repairs lag behind the tap"));
        assert_eq!((status.count, status.total_ms), (1, 3));
        pauses.end(6_000);
        pauses.end(7_000);
        pauses.begin(20_000, Reason::Missed);
        pauses.end(20_000);
        let status = pauses.status(30_000);
        assert_eq!((status.count, status.total_ms, status.last_end_ms), (2, 5, Some(10)));
        assert_eq!(status.reason, None);
        assert_eq!(status.by_reason["packets arrived that the tap did not capture"], 1);
    }
}
