//! A subscription in order (`ricochet_core::delivery::Fifo`) beside the unordered one, and its check.

use std::collections::HashMap;

use ricochet_core::delivery::Released;
use ricochet_core::message::Message;
use ricochet_core::{Fifo, FifoConfig, Seq, StreamKey};

use crate::outbox::Told;

/// What one node's ordered subscription released.
#[derive(Debug)]
pub(crate) struct Ordered {
    fifo: Fifo,
    /// Of each stream, the newest packet released or skipped.
    newest: HashMap<StreamKey, Seq>,
    /// Messages that went in.
    delivered: u64,
    /// Messages that came out.
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

    /// Hands on what a node has told; `bytes` are the outbox's.
    ///
    /// # Panics
    /// If a message is released out of order.
    pub(crate) fn take(&mut self, now_us: u64, at: usize, told: &Told, bytes: &[u8]) {
        let Self { fifo, newest, released, .. } = self;
        let mut note = checker(at, newest, released);
        match told {
            Told::Message(message, range) => {
                self.delivered += 1;
                let message = Message { payload: &bytes[range.clone()], ..*message };
                fifo.handle_message(now_us, &message, &mut note);
            }
            Told::Lost(lost) => fifo.on_lost(now_us, lost, &mut note),
            Told::Settled(key, front) => fifo.on_settled(*key, *front, &mut note),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now_us: u64, at: usize) {
        let Self { fifo, newest, released, .. } = self;
        fifo.handle_timeout(now_us, &mut checker(at, newest, released));
    }

    /// Messages that went in and neither came out, nor are held, nor came too late for their place.
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
