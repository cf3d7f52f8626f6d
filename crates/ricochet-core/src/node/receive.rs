//! Packets that come, and news of packets.

use super::ask::Mark;
use super::{How, Message, Node, Output};
use crate::buffer::PacketKey;
use crate::ids::GroupIndex;
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
        let Some((seq, mark)) = self.accept(now_us, group, data) else { return };
        deliver(data, seq, how, mark.map(|mark| now_us.saturating_sub(mark.since_us)), out);
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
    ) -> Option<(Seq, Option<Mark>)> {
        let found = self.tracker.received(now_us, data.key(), data.seq, self.asking.mark_of_gap(now_us));
        self.discovered(found.discovered, now_us);
        self.asking.note(group, data.expires);
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
}

pub(super) fn deliver(data: &Data<'_>, seq: Seq, how: How, missed_us: Option<u64>, out: &mut impl Output) {
    let Data { sender, group, payload, fragment, .. } = *data;
    out.deliver(&Message { sender, group, seq, payload, fragment, how, missed_us });
}
