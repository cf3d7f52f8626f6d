//! Answers to nodes that join a group and read its history.

use super::Node;
use crate::history::Wish;
use crate::history::keyed::Snapshot;
use crate::ids::NodeId;
use crate::message::{Origin, Output, To};
use crate::wire::{Ask, HISTORY_HEADER, History, HistoryBody, HistoryRequest, Kind, Streams};

/// Maximum number of streams that a joining node is told of.
const STREAMS_TOLD_MAX: usize = 1_024;
/// Maximum number of datagrams for one request, which bounds the time of its answer.
const PARTS_MAX: usize = 128;

impl Node {
    /// Answers a request for history.
    pub(super) fn handle_history_request(
        &mut self,
        now_us: u64,
        origin: Origin,
        request: &HistoryRequest,
        out: &mut impl Output,
    ) {
        let HistoryRequest { from, group, ask, .. } = *request;
        if from == self.config.id {
            return self.counts.own += 1;
        }
        if origin != Origin::Member {
            return self.counts.strangers += 1;
        }
        self.requester.on_heard(from);
        if self.groups.index(group).is_none() || self.is_catching_up(group) {
            return self.counts.foreign += 1;
        }
        match ask {
            Ask::Offer(wish) => {
                self.keyed.on_joiner(group, from);
                self.send_offer(now_us, request, wish, out);
            }
            Ask::Read { offset, length } => {
                self.snapshots.on_read(now_us, request);
                let Some(log) = self.logs.get(group) else { return };
                let (start, end) = (log.start(), log.end());
                if offset < start {
                    return self.send_gone(request, (start, end), out);
                }
                let to = offset.saturating_add(length.into()).min(end);
                let read = |node: &Self, offset, to: &mut [u8]| {
                    node.logs.get(group).map_or(0, |log| log.read(offset, to))
                };
                self.send_parts(now_us, request, (offset, to, end), read, out);
            }
            Ask::Copy { offset, length } => {
                let (start, end) = self.logs.get(group).map_or((0, 0), |log| (log.start(), log.end()));
                let Some(copied) = self.snapshots.of(now_us, request) else {
                    return self.send_gone(request, (start, end), out);
                };
                let copy = &copied.snapshot.bytes;
                let to = offset.saturating_add(length.into()).min(copy.len() as u64);
                let read = |_: &Self, offset, to: &mut [u8]| copy_from(copy, offset, to);
                self.send_parts(now_us, request, (offset, to, end), read, out);
            }
        }
    }

    /// Tells a joining node where the wanted part of the log begins, or how long its copy is. Says of neither
    /// that it is complete while packets that arrived wait to be processed.
    fn send_offer(&mut self, now_us: u64, request: &HistoryRequest, wish: Wish, out: &mut impl Output) {
        let HistoryRequest { from, token, group, .. } = *request;
        if self.answers.take(now_us, from, 1) == 0 {
            return self.counts.refused += 1;
        }
        let (sender, is_up_to_date) = (self.config.id, !self.requester.holds_losses);
        if wish == Wish::LastPerKey {
            let Some(copied) = self.copy_for(now_us, request) else {
                self.counts.refused += 1;
                let log = self.logs.get(group).map_or((0, 0), |log| (log.start(), log.end()));
                return self.send_gone(request, log, out);
            };
            let Snapshot { ref bytes, messages, is_complete } = copied.snapshot;
            let is_complete = is_complete && is_up_to_date;
            let body = HistoryBody::Offer { skip: 0, messages, is_complete, clock_us: now_us };
            let end = bytes.len() as u64;
            return self.send_history(from, &History { sender, token, group, offset: 0, end, body }, out);
        }
        let cut = self.logs.cut(now_us, group, wish).unwrap_or_default();
        let (skip, messages, is_complete) = (cut.skip, cut.messages, cut.is_complete && is_up_to_date);
        let body = HistoryBody::Offer { skip, messages, is_complete, clock_us: now_us };
        let offer = History { sender, token, group, offset: cut.start, end: cut.end, body };
        self.send_history(from, &offer, out);
        self.send_streams(now_us, request, out);
    }

    /// Tells a joining node which streams there are, so that it requests nothing from before its time.
    fn send_streams(&mut self, now_us: u64, request: &HistoryRequest, out: &mut impl Output) {
        let HistoryRequest { from, token, group, .. } = *request;
        let Some(log) = self.logs.get(group) else { return };
        let (sender, offset, end) = (self.config.id, log.start(), log.end());
        let streams: Vec<(NodeId, u32)> =
            log.positions().map(|(sender, next)| (sender, next.to_wire())).take(STREAMS_TOLD_MAX).collect();
        let mut streams = streams.into_iter();
        let mut bytes = std::mem::take(&mut self.symbol);
        let length = bytes.len().min(self.scratch.len() - HISTORY_HEADER - self.config.trailer);
        loop {
            let some = Streams::write(&mut streams, &mut bytes[..length]);
            if some.is_empty() || self.answers.take(now_us, from, 1) == 0 {
                break;
            }
            let body = HistoryBody::Streams(some);
            self.send_history(from, &History { sender, token, group, offset, end, body }, out);
        }
        self.symbol = bytes;
    }

    /// Tells a joining node that the requested bytes are forgotten, or that this node can make no copy for it
    /// at present.
    fn send_gone(&mut self, request: &HistoryRequest, (start, end): (u64, u64), out: &mut impl Output) {
        let HistoryRequest { from, token, group, .. } = *request;
        let (sender, body) = (self.config.id, HistoryBody::Gone);
        self.send_history(from, &History { sender, token, group, offset: start, end, body }, out);
    }

    /// Sends bytes between two offsets, with the end of the log.
    fn send_parts(
        &mut self,
        now_us: u64,
        request: &HistoryRequest,
        (mut offset, to, end): (u64, u64, u64),
        read: impl Fn(&Self, u64, &mut [u8]) -> usize,
        out: &mut impl Output,
    ) {
        let HistoryRequest { from, token, group, .. } = *request;
        let sender = self.config.id;
        let mut part = std::mem::take(&mut self.symbol);
        let part_max = part.len().min(self.scratch.len() - HISTORY_HEADER - self.config.trailer);
        for _ in 0..PARTS_MAX {
            let wanted = part_max.min(usize::try_from(to.saturating_sub(offset)).unwrap_or(0));
            if wanted == 0 {
                break;
            }
            let copied = read(self, offset, &mut part[..wanted]);
            if copied == 0 {
                break;
            }
            if self.answers.take(now_us, from, 1) == 0 {
                self.counts.refused += 1;
                break;
            }
            let body = HistoryBody::Part(&part[..copied]);
            self.send_history(from, &History { sender, token, group, offset, end, body }, out);
            offset += copied as u64;
        }
        self.symbol = part;
    }

    fn send_history(&mut self, to: NodeId, history: &History<'_>, out: &mut impl Output) {
        let length = history.write(&mut self.scratch);
        out.send(To::Node(to), &self.scratch[..length]);
        self.tally.sent.add(Kind::History, length);
    }
}

/// Copies bytes from an offset on to `to`; returns their number.
fn copy_from(bytes: &[u8], offset: u64, to: &mut [u8]) -> usize {
    let from = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or(&[]);
    let length = from.len().min(to.len());
    to[..length].copy_from_slice(&from[..length]);
    length
}
