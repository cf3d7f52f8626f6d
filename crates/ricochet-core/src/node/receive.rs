//! Packets that come, and news of packets.

use super::ask::Mark;
use super::{How, Message, Node, Output};
use crate::buffer::PacketKey;
use crate::ids::{GroupIndex, StreamKey};
use crate::tracker::{Arrival, Mention};
use crate::wire::{Data, HeartbeatView};
use foundation::Seq;

/// A packet that came for the first time.
pub(super) struct Fresh {
    group: GroupIndex,
    seq: Seq,
    /// What was known of it, if it was known to be missing.
    missed: Option<Mark>,
}

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
        let key = PacketKey { stream: data.key(), seq: data.seq };
        let Some(fresh) = self.accept(now_us, group, data, out) else {
            if how == How::Requested {
                self.asking.answered_again(key);
            }
            return;
        };
        self.deliver(now_us, data, &fresh, how, out);
        match how {
            How::Requested => {
                self.counts.requested += 1;
                self.asking.answered(now_us, key, fresh.missed);
            }
            _ => self.counts.delivered += 1,
        }
        if let Some(put) = self.buffer.put(key, &[&data.symbol_head(), data.payload]) {
            self.spread(now_us, group, put.id, out);
            if put.was_wanted {
                self.solve_with(now_us, put.id, out);
            }
        }
        self.forget_old();
    }

    /// Whether a packet is new.
    pub(super) fn accept(
        &mut self,
        now_us: u64,
        group: GroupIndex,
        data: &Data<'_>,
        out: &mut impl Output,
    ) -> Option<Fresh> {
        let mark = self.asking.mark_of_gap(now_us, self.expiry_before(now_us, data));
        let found = self.tracker.received(now_us, data.key(), data.seq, mark);
        self.discovered(found.discovered, now_us, data.key());
        if self.asking.expiry.heeds(data.expires) && self.tracker.highest(data.key()) == Some(found.seq) {
            self.asking.expiry.note(data.key(), data.expires);
        }
        // What this packet has pushed out was before it. Its own stream's front goes with it.
        let is_new = found.what.is_new();
        self.report_lost(now_us, is_new.then_some(data.key()), out);
        match found.what {
            Arrival::New => return Some(Fresh { group, seq: found.seq, missed: None }),
            Arrival::Missed(mark) => {
                return Some(Fresh { group, seq: found.seq, missed: Some(mark) });
            }
            Arrival::Duplicate => {
                self.counts.duplicates += 1;
                self.tally.duplicate(group, data.sender);
            }
            Arrival::TooOld => self.counts.too_old += 1,
            Arrival::NoRoom => self.counts.no_room += 1,
            Arrival::Doubtful => self.counts.doubtful += 1,
        }
        None
    }

    /// When packets are worthless that this one shows to be missing before it, if it and the one before them expire.
    fn expiry_before(&self, now_us: u64, data: &Data<'_>) -> Option<u64> {
        let expiry = &self.asking.expiry;
        if !data.expires {
            return None;
        }
        match self.tracker.highest(data.key()) {
            Some(_) => expiry.of_stream(now_us, data.key()),
            None => Some(expiry.of_beginning(now_us, data.key())),
        }
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
            let mark = self.asking.mark_of_gap(now_us, self.asking.expiry.of_stream(now_us, key));
            let found = self.tracker.named(now_us, key, latest.seq, mark);
            self.counts.doubtful += u64::from(found.what == Mention::Doubtful);
            self.discovered(found.discovered, now_us, key);
        }
    }

    pub(super) fn discovered(&mut self, packets: u64, now_us: u64, key: StreamKey) {
        if packets > 0 {
            self.counts.discovered += packets;
            self.tally.discovered(self.groups.index(key.group), key.sender, packets);
            self.asking.wake(now_us);
        }
    }

    /// Hands a packet to the application.
    pub(super) fn deliver(
        &mut self,
        now_us: u64,
        data: &Data<'_>,
        fresh: &Fresh,
        how: How,
        out: &mut impl Output,
    ) {
        let Fresh { group, seq, missed } = *fresh;
        let missed_us = missed.map(|mark| now_us.saturating_sub(mark.since_us));
        self.tally.delivered(group, data.sender, data.wire_len(), how, missed_us);
        let Data { sender, group, payload, fragment, .. } = *data;
        let front = self.tracker.front(data.key());
        let packet = Message { sender, group, seq, payload, packets: 1, how, missed_us, front };
        if fragment { self.gather(now_us, &packet, out) } else { out.deliver(&packet) }
    }

    /// Tells of packets given up, and then how far their streams are settled: not that of `pending`, a packet of which
    /// has come and is delivered next.
    pub(super) fn report_lost(&mut self, now_us: u64, pending: Option<StreamKey>, out: &mut impl Output) {
        let Self { tracker, fragments, tally, groups, .. } = self;
        for lost in tracker.lost() {
            tally.lost(groups.index(lost.key.group), lost.key.sender, lost.last.0 - lost.first.0 + 1);
            fragments.lost(now_us, lost, &mut |lost| out.lost(lost));
        }
        while let Some(lost) = tracker.pop_lost() {
            if Some(lost.key) != pending {
                out.settled(lost.key, tracker.front(lost.key));
            }
        }
    }
}
