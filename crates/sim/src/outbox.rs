//! What a node wants done, kept until the node has returned.

use std::ops::Range;

use ricochet_core::StreamKey;
use ricochet_core::message::{Message, Output, To};
use ricochet_core::tracker::{Front, Lost};

/// What a node tells its application.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// A message, and where its payload lies in the bytes of the outbox.
    Message(Message<'static>, Range<usize>),
    Lost(Lost),
    Settled(StreamKey, Front),
}

/// Filled by a node, emptied by the cluster; its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) bytes: Vec<u8>,
    pub(crate) datagrams: Vec<(To, Range<usize>)>,
    /// In order.
    pub(crate) told: Vec<Told>,
}

impl Outbox {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
        self.told.clear();
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
        let range = self.keep(message.payload);
        self.told.push(Told::Message(Message { payload: &[], ..*message }, range));
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.told.push(Told::Lost(*lost));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.told.push(Told::Settled(key, front));
    }
}
