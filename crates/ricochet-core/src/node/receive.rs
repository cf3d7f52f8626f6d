//! Packets that come, and news of packets.

use super::ask::Mark;
use super::{How, Message, Node, Output};
use crate::buffer::PacketKey;
use crate::ids::{GroupIndex, StreamKey};
use crate::tracker::Arrival;
use crate::wire::{Data, HeartbeatView};
use foundation::Seq;

impl Node {
    /// A data packet came, by itself or on request.
    pub(super) fn take(&mut self, now_us: u64, data: &Data<'_>, how: How, out: &mut impl Output) {
        let Some(group) = self.groups.index(data.group) else { return self.counts.foreign += 1 };
        if data.sender == self.config.id {
            return self.counts.own += 1;
        }
        if data.payload.len() > self.payload_max {
            return self.counts.too_long += 1;
        }
        let Some((seq, mark)) = self.accept(now_us, group, data, out) else { return };
        self.deliver(now_us, data, seq, how, mark, out);
        match how {
            How::Requested => self.counts.requested += 1,
            _ => self.counts.delivered += 1,
        }
        let (key, head) = (PacketKey { stream: data.key(), seq: data.seq }, data.symbol_head());
        let symbol = [&head[..], data.payload];
        let put = self.buffer.put(key, &symbol);
        self.spread(now_us, group, key, &symbol, out);
        if let Some(put) = put.filter(|put| put.was_wanted) {
            self.solve_with(now_us, put.id, out);
        }
        self.forget_old();
    }

    /// Whether a packet is new; with its place, and the mark it had if it was known to be missing.
    pub(super) fn accept(
        &mut self,
        now_us: u64,
        group: GroupIndex,
        data: &Data<'_>,
        out: &mut impl Output,
    ) -> Option<(Seq, Option<Mark>)> {
        let found = self.tracker.received(now_us, data.key(), data.seq, self.asking.mark_of_gap(now_us));
        self.discovered(found.discovered, now_us);
        self.asking.note(group, data.expires);
        // What this packet has pushed out was before it. Its own stream's front goes with it.
        let is_new = found.what.is_new();
        self.report_lost(now_us, is_new.then_some(data.key()), out);
        match found.what {
            Arrival::New => return Some((found.seq, None)),
            Arrival::Missed(mark) => return Some((found.seq, Some(mark))),
            Arrival::Duplicate => self.counts.duplicates += 1,
            Arrival::TooOld => self.counts.too_old += 1,
            Arrival::NoRoom => self.counts.no_room += 1,
        }
        None
    }

    /// A sender that has fallen silent says what it sent last.
    pub(super) fn note(&mut self, now_us: u64, heartbeat: &HeartbeatView<'_>) {
        if heartbeat.sender == self.config.id {
            return self.counts.own += 1;
        }
        for latest in heartbeat.latest() {
            if self.groups.index(latest.group).is_none() {
                self.counts.foreign += 1;
                continue;
            }
            let key = Self::stream(heartbeat.sender, latest.group);
            let found = self.tracker.named(now_us, key, latest.seq, self.asking.mark_of_gap(now_us));
            self.discovered(found.discovered, now_us);
        }
    }

    pub(super) fn discovered(&mut self, packets: u64, now_us: u64) {
        if packets > 0 {
            self.counts.discovered += packets;
            self.asking.wake(now_us);
        }
    }

    /// Hands a packet to the application.
    pub(super) fn deliver(
        &mut self,
        now_us: u64,
        data: &Data<'_>,
        seq: Seq,
        how: How,
        mark: Option<Mark>,
        out: &mut impl Output,
    ) {
        let Data { sender, group, payload, fragment, .. } = *data;
        let missed_us = mark.map(|mark| now_us.saturating_sub(mark.since_us));
        let front = self.tracker.front(data.key());
        let packet = Message { sender, group, seq, payload, packets: 1, how, missed_us, front };
        if fragment { self.gather(now_us, &packet, out) } else { out.deliver(&packet) }
    }

    /// Tells of packets given up, and then how far their streams are settled: not that of `pending`, a packet of which
    /// has come and is delivered next.
    pub(super) fn report_lost(&mut self, now_us: u64, pending: Option<StreamKey>, out: &mut impl Output) {
        let Self { tracker, fragments, .. } = self;
        tracker.lost().for_each(|lost| fragments.lost(now_us, lost, &mut |lost| out.lost(lost)));
        while let Some(lost) = tracker.pop_lost() {
            if Some(lost.key) != pending {
                out.settled(lost.key, tracker.front(lost.key));
            }
        }
    }
}
