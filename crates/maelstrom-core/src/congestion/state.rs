//! The knowledge about the queue of a path, in words.

use std::fmt;

use crate::controller::Percent;

/// Losses of a path with its queue full, and with less queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueLoss {
    /// Delay from which the queue counts as full, in microseconds beyond the shortest delay.
    pub full_us: u64,
    /// Share of packets lost at shorter delays: those that the link itself loses.
    pub below: f64,
    /// Share of packets lost from this delay on.
    pub above: f64,
}

/// Knowledge about congestion. Displayed as a sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CongestionState {
    /// Whether losses behind a full queue are left to their senders, but for the share that the link loses.
    pub is_leaving: bool,
    /// Whether the operator wants them recovered.
    pub is_masking: bool,
    /// Delay of the latest datagram beyond the shortest one, in microseconds.
    pub queue_us: u64,
    /// The queue, if losses depend on it.
    pub queue: Option<QueueLoss>,
    /// Whether anything was lost in the last hours.
    pub has_losses: bool,
}

impl fmt::Display for CongestionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_leaving { "left to the senders" } else { "recovered" };
        let Some(QueueLoss { full_us, below, above }) = self.queue else {
            let reason = if self.is_masking {
                "as `congestion` asks"
            } else if self.has_losses {
                "losses do not depend on the queue"
            } else {
                "nothing was lost"
            };
            return write!(f, "all losses are recovered: {reason}");
        };
        write!(
            f,
            "losses behind a queue of {:.1} ms or more are {verdict}: {} of the packets there, {} with less queue",
            full_us as f64 / 1e3,
            Percent(above),
            Percent(below)
        )?;
        match (self.is_masking, self.is_leaving) {
            (true, _) => f.write_str("; `congestion` asks to recover all"),
            (_, true) => f.write_str("; the latter share is recovered"),
            (_, false) => f.write_str("; the link explains them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_what_happens_to_losses_and_why() {
        let queue = Some(QueueLoss { full_us: 98_300, below: 0.000_01, above: 0.012 });
        let leaving = CongestionState {
            is_leaving: true,
            is_masking: false,
            queue_us: 50_000,
            queue,
            has_losses: true,
        };
        assert_eq!(
            leaving.to_string(),
            "losses behind a queue of 98.3 ms or more are left to the senders: 1.2 % of the packets there, 0.0010 % with \
             less queue; the latter share is recovered"
        );
        for (state, expected) in [
            (CongestionState { is_leaving: false, ..leaving }, "are recovered: 1.2 % of the packets there"),
            (CongestionState { is_leaving: false, is_masking: true, ..leaving }, "`congestion` asks"),
            (CongestionState { queue: None, ..leaving }, "do not depend on the queue"),
            (CongestionState { queue: None, has_losses: false, ..leaving }, "nothing was lost"),
            (CongestionState { queue: None, is_masking: true, ..leaving }, "as `congestion` asks"),
        ] {
            assert!(state.to_string().contains(expected), "{state}");
        }
    }
}
