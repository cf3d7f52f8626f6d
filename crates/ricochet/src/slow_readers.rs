//! Log messages about subscriptions that are read too slowly.

use crate::backpressure::Backpressure;
use crate::outward::Outward;

/// Shortest interval between two log messages about one node's subscriptions.
const INTERVAL_US: u64 = 1_000_000;

/// Reports queues that drop messages: the first drop at once, and then at most once a second.
#[derive(Debug, Default)]
pub(crate) struct SlowReaders {
    next_us: u64,
}

impl SlowReaders {
    /// Returns when there is something to report, if there is.
    pub(crate) fn poll_timeout(&self, backpressure: &Backpressure) -> Option<u64> {
        backpressure.has_overrun().then_some(self.next_us)
    }

    /// Logs the subscriptions that have dropped messages since the last report.
    pub(crate) fn handle_timeout(&mut self, now_us: u64, out: &Outward, backpressure: &Backpressure) {
        if now_us < self.next_us || !backpressure.take_overrun() {
            return;
        }
        self.next_us = now_us + INTERVAL_US;
        for (at, consumer) in out.consumers.iter().enumerate() {
            let Some(dropped) = consumer.as_ref().map(|consumer| consumer.queue.take_overrun()) else {
                continue;
            };
            if dropped > 0 {
                let groups = out.groups_of(at);
                tracing::warn!(
                    dropped,
                    groups,
                    "a subscription is read too slowly: messages are dropped; read faster, raise \
                     `buffers.queue`, or set `buffers.policy` to \"block\""
                );
            }
        }
    }
}
