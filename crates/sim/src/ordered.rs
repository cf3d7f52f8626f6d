//! An ordered subscription (`ricochet_core::delivery::Fifo`) beside the unordered one, and its check.

use std::collections::HashMap;

use ricochet_core::delivery::Released;
use ricochet_core::message::Message;
use ricochet_core::{Fifo, FifoConfig, Seq, StreamKey};

use crate::outbox::Report;

/// Ordered subscription of one node.
#[derive(Debug)]
pub(crate) struct Ordered {
    fifo: Fifo,
    /// Newest packet of each stream that was released or skipped.
    newest: HashMap<StreamKey, Seq>,
    /// Number of messages delivered to it.
    delivered: u64,
    /// Number of messages released by it.
    released: u64,
}

impl Ordered {
    pub(crate) fn new() -> Self {
        let fifo = Fifo::new(FifoConfig::default()).expect("the default is in range");
        Self { fifo, newest: HashMap::new(), delivered: 0, released: 0 }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.fifo.poll_timeout()
    }

    /// Passes a node's report to the subscription; `bytes` are the outbox's.
    ///
    /// # Panics
    /// If a message is released out of order.
    pub(crate) fn take(&mut self, now_us: u64, at: usize, report: &Report, bytes: &[u8]) {
        let Self { fifo, newest, released, .. } = self;
        let mut note = checker(at, newest, released);
        match report {
            Report::Message(message, range) => {
                self.delivered += 1;
                let message = Message { payload: &bytes[range.clone()], ..*message };
                fifo.handle_message(now_us, &message, &mut note);
            }
            Report::Lost(lost) => fifo.on_lost(now_us, lost, &mut note),
            Report::Settled(key, front) => fifo.on_settled(*key, *front, &mut note),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now_us: u64, at: usize) {
        let Self { fifo, newest, released, .. } = self;
        fifo.handle_timeout(now_us, &mut checker(at, newest, released));
    }

    /// Returns the number of messages that were neither released, nor held, nor late.
    pub(crate) fn unaccounted(&self) -> u64 {
        let counts = self.fifo.counts();
        self.delivered - self.released - self.fifo.held() as u64 - counts.late
    }

    pub(crate) fn held(&self) -> usize {
        self.fifo.held()
    }
}

fn checker<'a>(
    at: usize,
    newest: &'a mut HashMap<StreamKey, Seq>,
    count: &'a mut u64,
) -> impl FnMut(Released<'_>) + 'a {
    move |released| {
        let (key, first, last) = match released {
            Released::Message(message) => {
                *count += 1;
                let key = StreamKey { sender: message.sender, group: message.group };
                (key, message.seq, message.seq.plus(u64::from(message.packets) - 1))
            }
            Released::Lost(lost) => (lost.key, lost.first, lost.last),
        };
        let before = newest.insert(key, last);
        assert!(
            before.is_none_or(|before| before < first),
            "node {at}, {key:?}: {first:?} was released after {before:?}"
        );
    }
}
