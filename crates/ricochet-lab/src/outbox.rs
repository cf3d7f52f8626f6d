//! What a node wants done, kept until the node has returned.

use std::ops::Range;

use ricochet_core::node::{How, Message, Output, To};
use ricochet_core::tracker::Lost;
use ricochet_core::{Seq, StreamKey};

/// A packet that was handed to the application.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) key: StreamKey,
    pub(crate) seq: Seq,
    pub(crate) how: How,
    /// Where its payload lies in the bytes of the outbox.
    pub(crate) payload: Range<usize>,
}

/// Filled by a node, emptied by the cluster; its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) bytes: Vec<u8>,
    pub(crate) datagrams: Vec<(To, Range<usize>)>,
    pub(crate) delivered: Vec<Delivered>,
    pub(crate) lost: Vec<Lost>,
}

impl Outbox {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
        self.delivered.clear();
        self.lost.clear();
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

impl Output for Outbox {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let range = self.keep(datagram);
        self.datagrams.push((to, range));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let payload = self.keep(message.payload);
        let key = StreamKey { sender: message.sender, group: message.group };
        self.delivered.push(Delivered { key, seq: message.seq, how: message.how, payload });
    }

    fn lost(&mut self, lost: &Lost) {
        self.lost.push(*lost);
    }
}
