//! Output of a node, kept until the node has returned.

use std::ops::Range;

use ricochet_core::StreamKey;
use ricochet_core::message::{Message, Output, To};
use ricochet_core::tracker::{Front, Lost};

/// Report of a node to its application.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// A message, and the range of its payload in the bytes of the outbox.
    Message(Message<'static>, Range<usize>),
    Lost(Lost),
    Settled(StreamKey, Front),
}

/// Filled by a node and emptied by the cluster; its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) bytes: Vec<u8>,
    pub(crate) datagrams: Vec<(To, Range<usize>)>,
    /// Reports, in order.
    pub(crate) reports: Vec<Report>,
}

impl Outbox {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
        self.reports.clear();
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
        self.reports.push(Report::Message(Message { payload: &[], ..*message }, range));
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.reports.push(Report::Lost(*lost));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.reports.push(Report::Settled(key, front));
    }
}
