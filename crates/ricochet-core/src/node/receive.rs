//! Received packets and heartbeats.

use foundation::Seq;

use super::Node;
use super::expiry::{Lapse, Lifetime};
use super::questions::MANY;
use super::requester::Mark;
use crate::buffer::PacketKey;
use crate::ids::{GroupIndex, StreamKey};
use crate::message::{How, Message, Origin, Output, Sent};
use crate::tracker::{Arrival, Mention};
use crate::wire::{Data, Envelope, Fragment, HeartbeatView, messages_of};

/// A packet that came for the first time.
pub(super) struct Fresh {
    group: GroupIndex,
    pub(super) seq: Seq,
    /// Its mark, if it was known to be missing.
    missed: Option<Mark>,
    /// Time at which it was sent, if it states that.
    sent: Option<Sent>,
}

impl Node {
    /// Handles a data packet that came by itself or on request.
    pub(super) fn handle_data(
        &mut self,
        now_us: u64,
        origin: Origin,
        data: &Data<'_>,
        how: How,
        out: &mut impl Output,
    ) {
        let Some(group) = self.groups.index(data.group) else { return self.counts.foreign += 1 };
        if data.sender == self.config.id {
            return self.counts.own += 1;
        }
        if self.note_for_later(data.group, data.sender, data.seq, false) {
            return;
        }
        if data.payload.len() > self.payload_max {
            return self.counts.too_long += 1;
        }
        let key = PacketKey { stream: data.key(), seq: data.seq };
        let Some(fresh) = self.accept(now_us, origin, group, data, out) else {
            if how == How::Requested {
                self.requester.on_duplicate_answer(key);
            }
            return;
        };
        self.deliver(now_us, data, &fresh, how, out);
        match how {
            How::Requested => {
                self.counts.requested += 1;
                self.requester.on_answer(now_us, key, fresh.missed);
            }
            _ => {
                self.counts.delivered += 1;
                if let Some(at_us) = data.sent_us() {
                    self.clocks.on_packet(now_us, data.sender, at_us);
                }
            }
        }
        let put = self.buffer.put(key, &[&data.symbol_head(), data.payload]);
        self.log(now_us, data, fresh.seq);
        if let Some(put) = put {
            self.add_to_bins(now_us, group, put.id, out);
            if put.was_wanted {
                self.solve_with(now_us, put.id, out);
            }
        }
        self.forget_old();
    }

    /// Notes a packet with the tracker; returns it if it is new.
    pub(super) fn accept(
        &mut self,
        now_us: u64,
        origin: Origin,
        group: GroupIndex,
        data: &Data<'_>,
        out: &mut impl Output,
    ) -> Option<Fresh> {
        let sent = data.sent_us().map(|at_us| self.clocks.sent(now_us, data.sender, at_us));
        let lifetime = self.lifetime_of(data);
        let mark = self.requester.mark_of_gap(now_us, self.lapse_before(now_us, data, lifetime, sent));
        let found = match origin {
            Origin::Member => self.tracker.on_received(now_us, data.key(), data.seq, mark),
            _ => self.tracker.on_received_from_stranger(now_us, data.key(), data.seq, mark),
        };
        self.on_discovered(found.discovered, now_us, data.key());
        if found.what.is_new() {
            // A packet with several messages takes as many positions.
            for step in 1..data.count() {
                let seq = data.seq.wrapping_add(step);
                match origin {
                    Origin::Member => self.tracker.on_received(now_us, data.key(), seq, mark),
                    _ => self.tracker.on_received_from_stranger(now_us, data.key(), seq, mark),
                };
            }
        }
        let last = found.seq.plus(u64::from(data.count()) - 1);
        let expiry = &mut self.requester.expiry;
        if expiry.is_affected_by(lifetime) && self.tracker.highest(data.key()) == Some(last) {
            expiry.on_newest(data.key(), lifetime);
        }
        // Packets that this one has pushed out precede it. The front of its own stream is reported with it.
        let is_new = found.what.is_new();
        self.report_lost(now_us, is_new.then_some(data.key()), out);
        match found.what {
            Arrival::New => return Some(Fresh { group, seq: found.seq, missed: None, sent }),
            Arrival::Missed(mark) => {
                return Some(Fresh { group, seq: found.seq, missed: Some(mark), sent });
            }
            Arrival::Duplicate => {
                self.counts.duplicates += 1;
                self.tally.on_duplicate(group, data.sender);
            }
            Arrival::TooOld => self.counts.too_old += 1,
            Arrival::NoRoom => self.counts.no_room += 1,
            Arrival::Doubtful => self.on_doubtful(data.key(), found.seq, data.sender),
        }
        None
    }

    /// Returns for how long a packet is worth something, if it expires.
    fn lifetime_of(&self, data: &Data<'_>) -> Option<Lifetime> {
        if data.expires {
            return Some(Lifetime::OfGroup);
        }
        if !data.extras.enveloped {
            return None;
        }
        if data.fragment {
            let fragment = Fragment::read(data.body()).ok()?;
            // The first fragment alone tells the deadline of its message.
            return if fragment.index == 0 {
                deadline_of(fragment.bytes)
            } else {
                self.requester.expiry.newest(data.key())
            };
        }
        if !data.joint {
            return deadline_of(data.body());
        }
        messages_of(data.body()).map(deadline_of).reduce(longer)?
    }

    /// Returns the end of the life of the packets that this one shows to be missing, if both this packet and
    /// the one before the gap expire.
    fn lapse_before(
        &self,
        now_us: u64,
        data: &Data<'_>,
        lifetime: Option<Lifetime>,
        sent: Option<Sent>,
    ) -> Option<Lapse> {
        let (expiry, key) = (&self.requester.expiry, data.key());
        let is_known = self.tracker.highest(key).is_some();
        let lifetime = lifetime.filter(|_| !is_known || expiry.newest(key).is_some())?;
        Some(expiry.before(now_us, sent.map_or(now_us, |sent| sent.since_us), key, lifetime))
    }

    /// Handles the latest sequence numbers of a sender that has fallen silent.
    pub(super) fn handle_heartbeat(&mut self, now_us: u64, heartbeat: &HeartbeatView<'_>) {
        if heartbeat.sender == self.config.id {
            return self.counts.own += 1;
        }
        for latest in heartbeat.latest() {
            if self.groups.index(latest.group).is_none() {
                self.counts.foreign += 1;
                continue;
            }
            if self.note_for_later(latest.group, heartbeat.sender, latest.seq, true) {
                continue;
            }
            let key = StreamKey { sender: heartbeat.sender, group: latest.group };
            let mark = self.requester.mark_of_gap(now_us, self.requester.expiry.of_stream(now_us, key));
            let found = self.tracker.on_named(now_us, key, latest.seq, mark);
            if found.what == Mention::Doubtful {
                self.on_doubtful(key, found.seq, heartbeat.sender);
            }
            self.on_discovered(found.discovered, now_us, key);
        }
    }

    /// Notes that packets of a stream were found missing.
    pub(super) fn on_discovered(&mut self, packets: u64, now_us: u64, key: StreamKey) {
        if packets > 0 {
            self.counts.discovered += packets;
            self.tally.on_discovered(self.groups.index(key.group), key.sender, packets);
            self.requester.on_missing(now_us);
            if packets > MANY {
                self.questions.want(key);
            }
        }
    }

    /// Hands a packet to the application, or a fragment to its message.
    pub(super) fn deliver(
        &mut self,
        now_us: u64,
        data: &Data<'_>,
        fresh: &Fresh,
        how: How,
        out: &mut impl Output,
    ) {
        let missed_us = fresh.missed.map(|mark| now_us.saturating_sub(mark.since_us));
        let Data { sender, group, fragment, joint, .. } = *data;
        let front = self.tracker.front(data.key());
        let packet = Message {
            sender,
            group,
            seq: fresh.seq,
            payload: data.body(),
            joint,
            packets: data.count(),
            how,
            missed_us,
            front,
            past_us: None,
            sent: fresh.sent,
            enveloped: data.extras.enveloped,
        };
        self.tally.on_delivered(fresh.group, &packet, data.wire_len());
        if fragment {
            self.reassemble(now_us, &packet, out);
        } else {
            self.counts.outdated += self.keyed.pass(now_us, &packet, out);
        }
        self.report_room(now_us, data.key(), front, out);
    }

    /// Reports packets given up, and then how far their streams are settled. Leaves out the front of
    /// `pending`, a stream with a packet that is delivered next and carries the front.
    pub(super) fn report_lost(&mut self, now_us: u64, pending: Option<StreamKey>, out: &mut impl Output) {
        let Self { tracker, fragments, tally, groups, keyed, .. } = self;
        for lost in tracker.lost() {
            keyed.on_lost(lost.key.group);
            tally.on_lost(groups.index(lost.key.group), lost.key.sender, lost.last.0 - lost.first.0 + 1);
            fragments.on_lost(now_us, lost, &mut |lost| out.on_lost(lost));
        }
        while let Some(lost) = self.tracker.pop_lost() {
            if Some(lost.key) != pending {
                out.on_settled(lost.key, self.tracker.front(lost.key));
            }
            if self.logs.are_kept() {
                self.log_settled(now_us, lost.key);
            }
        }
    }
}

/// Returns the lifetime that the envelope at the beginning of a message tells.
fn deadline_of(message: &[u8]) -> Option<Lifetime> {
    let (envelope, _) = Envelope::read(message).ok()?;
    envelope.deadline_us.map(Lifetime::Deadline)
}

/// Returns the longer of the lifetimes of two messages, of which none may be without end.
fn longer(one: Option<Lifetime>, other: Option<Lifetime>) -> Option<Lifetime> {
    match (one?, other?) {
        (Lifetime::Deadline(one_us), Lifetime::Deadline(other_us)) => {
            Some(Lifetime::Deadline(one_us.max(other_us)))
        }
        (one, _) => Some(one),
    }
}
