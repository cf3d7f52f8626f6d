//! The history of groups: what this node keeps for others, and what it reads from them when it joins.

use foundation::Seq;

use super::Node;
use super::neighbours::all_members;
use crate::buffer::PacketKey;
use crate::counters::Malformed;
use crate::delivery::{Fragments, Progress};
use crate::history::Wish;
use crate::history::catch_up::{CatchUp, Step};
use crate::history::log::STREAMS_MAX;
use crate::history::record::Record;
use crate::ids::{GroupId, NodeId, RegionIndex, StreamKey};
use crate::message::{How, Message, Origin, Output, To};
use crate::tracker::Mention;
use crate::wire::{Ask, Data, Fragment, History, HistoryRequest, Kind, messages_of};

/// Margin beyond the time after which missing packets are given up, in microseconds.
const LATE_US: u64 = 2_000_000;

/// Messages found in the log of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Number of messages.
    pub messages: u64,
    /// Whether these are all that were wanted.
    pub is_complete: bool,
}

impl Node {
    /// Reads the history of a group that this node has just joined. Until it has it, the node takes nothing
    /// from the group itself. Others should not learn of the new member before
    /// ([`Output::on_history`]), because it reports nothing to senders.
    pub fn catch_up(&mut self, now_us: u64, group: GroupId, wish: Wish) {
        if self.groups.index(group).is_some() {
            let token = rand_chacha::rand_core::Rng::next_u64(&mut self.rng);
            self.catch_ups.entry(group).or_insert_with(|| CatchUp::new(now_us, group, wish, token));
        }
    }

    /// Returns whether this node reads the history of a group.
    pub fn is_catching_up(&self, group: GroupId) -> bool {
        !self.catch_ups.is_empty() && self.catch_ups.contains_key(&group)
    }

    /// Returns the number of packets that found no room in the history that this node keeps.
    pub fn history_refused(&self) -> u64 {
        self.logs.refused()
    }

    pub(super) fn history_due_us(&self) -> Option<u64> {
        self.catch_ups.values().map(CatchUp::due_us).chain(self.snapshots.due_us()).min()
    }

    pub(super) fn handle_history_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        self.snapshots.forget(now_us);
        while let Some(group) =
            self.catch_ups.iter().find(|(_, other)| other.due_us() <= now_us).map(|(&group, _)| group)
        {
            if self.requester.holds_losses {
                self.wait_for_answers(now_us, group, out);
            } else {
                self.go_on(now_us, group, out);
            }
            // A step that is due again at once waits for the next call.
            if self.catch_ups.get(&group).is_some_and(|other| other.due_us() <= now_us) {
                break;
            }
        }
    }

    /// Does what is due for the history of a group.
    fn go_on(&mut self, now_us: u64, group: GroupId, out: &mut impl Output) {
        let Some(mut catch_up) = self.catch_ups.remove(&group) else { return };
        let members = self.members_of(group);
        self.process(now_us, &mut catch_up, out);
        loop {
            match catch_up.poll(now_us, &members, &mut self.rng) {
                Step::Send(to, ask) => self.ask_for_history(&catch_up, to, ask, out),
                Step::Notify(news) => out.on_history(group, news),
                Step::Copied(to, ask) => {
                    // Packets that follow the copy are received as by any other member.
                    self.begin_streams(now_us, &catch_up);
                    self.ask_for_history(&catch_up, to, ask, out);
                }
                Step::Wait => break,
                Step::End => return self.end_catch_up(now_us, &catch_up, out),
            }
        }
        self.catch_ups.insert(group, catch_up);
    }

    /// Delivers what has come of the history of a group. Nothing else is done while packets are held back:
    /// the answers that the next step depends on may be among them.
    fn wait_for_answers(&mut self, now_us: u64, group: GroupId, out: &mut impl Output) {
        let Some(mut catch_up) = self.catch_ups.remove(&group) else { return };
        catch_up.hold(now_us);
        self.process(now_us, &mut catch_up, out);
        if let Some((to, ask)) = catch_up.poll_still(now_us) {
            self.ask_for_history(&catch_up, to, ask, out);
        }
        self.catch_ups.insert(group, catch_up);
    }

    fn ask_for_history(&mut self, catch_up: &CatchUp, to: NodeId, ask: Ask, out: &mut impl Output) {
        let CatchUp { token, group, .. } = *catch_up;
        let request = HistoryRequest { from: self.config.id, token, group, ask };
        let length = request.write(&mut self.scratch);
        out.send(To::Node(to), &self.scratch[..length]);
        self.tally.sent.add(Kind::HistoryRequest, length);
    }

    /// Continues as any other member of the group.
    fn end_catch_up(&mut self, now_us: u64, catch_up: &CatchUp, out: &mut impl Output) {
        let group = catch_up.group;
        if let Some((log, since_us)) = self.logs.get_mut(group).zip(catch_up.complete_since_us()) {
            log.set_since(since_us);
        }
        self.keyed.on_read_all(group, now_us + self.config.nak.give_up_us + LATE_US);
        if catch_up.is_whole() {
            self.keyed.on_whole(group);
        } else if catch_up.was_alone() {
            self.keyed.on_alone(group, self.requester.present());
        }
        for (sender, _) in catch_up.streams().filter(|&(sender, _)| self.requester.is_present(sender)) {
            // The sender finds out made-up positions, and tells of packets that the member has missed.
            self.questions.want(StreamKey { sender, group });
        }
        for (sender, noted) in catch_up.noted() {
            let key = StreamKey { sender, group };
            if self.tracker.highest(key).is_none() {
                let first = catch_up.begin_of(sender, &noted);
                self.tracker.begin(now_us, key, first);
                if first == noted.last.wrapping_add(1) {
                    continue;
                }
            }
            let mark = self.requester.mark_of_gap(now_us, self.requester.expiry.of_stream(now_us, key));
            let found = self.tracker.on_named(now_us, key, noted.last, mark);
            if found.what == Mention::Doubtful {
                self.on_doubtful(key, found.seq, sender);
            }
            self.on_discovered(found.discovered, now_us, key);
            if self.requester.is_present(sender) {
                // A made-up history is found out by the sender.
                self.questions.want(key);
            }
        }
        self.begin_streams(now_us, catch_up);
        out.on_caught_up(group);
    }

    /// Begins the streams that members know, where they are not known. The log tells those who join later of
    /// them, even if nothing more comes.
    fn begin_streams(&mut self, now_us: u64, catch_up: &CatchUp) {
        let group = catch_up.group;
        for (sender, next) in catch_up.streams().filter(|&(sender, _)| sender != self.config.id) {
            let key = StreamKey { sender, group };
            self.tracker.begin(now_us, key, next);
            let Some(log) = self.logs.get_mut(group).filter(|log| log.streams() < STREAMS_MAX) else {
                continue;
            };
            if log.next(sender).is_none() && self.tracker.highest(key).is_some() {
                log.set_next(sender, self.tracker.front(key).awaited);
            }
        }
    }

    /// Delivers the records that came, as long as their readers have room.
    fn process(&mut self, now_us: u64, catch_up: &mut CatchUp, out: &mut impl Output) {
        if catch_up.is_copying() {
            return self.process_keyed(now_us, catch_up, out);
        }
        let group = catch_up.group;
        loop {
            let (record, length) = match Record::read(group, catch_up.carry()) {
                Ok(Some(read)) => read,
                Ok(None) if catch_up.is_at_end() && !catch_up.carry().is_empty() => {
                    return self.on_nonsense(catch_up, Malformed::TooShort);
                }
                Ok(None) => return,
                Err(reason) => return self.on_nonsense(catch_up, reason),
            };
            if !out.has_room(group, record.data.count()) {
                return catch_up.on_full(now_us);
            }
            let at_us = catch_up.local_us(now_us, record.at_us);
            let payload = record.data.payload.to_vec();
            let data = Data { payload: &payload, ..record.data };
            let skip = catch_up.take_skip();
            if !catch_up.is_before(at_us) {
                self.handle_past(now_us, at_us, &data, skip, out);
            }
            catch_up.on_processed(length, Some(at_us));
        }
    }

    /// Gives up the log or copy that is read, because it is none.
    pub(super) fn on_nonsense(&mut self, catch_up: &mut CatchUp, reason: Malformed) {
        self.counts.malformed.add(reason);
        catch_up.on_nonsense();
    }

    /// Handles a packet of the past.
    fn handle_past(&mut self, now_us: u64, at_us: u64, data: &Data<'_>, skip: u16, out: &mut impl Output) {
        if data.sender == self.config.id || data.payload.len() > self.payload_max {
            return;
        }
        let key = data.key();
        if self.tracker.highest(key).is_none() {
            let is_rest =
                data.fragment && Fragment::read(data.body()).is_ok_and(|fragment| fragment.index > 0);
            if is_rest {
                return;
            }
            self.tracker.begin(now_us, key, data.seq);
        }
        let Some(index) = self.groups.index(data.group) else { return };
        let Some(fresh) = self.accept(now_us, Origin::Member, index, data, out) else { return };
        let (seq, front) = (fresh.seq, self.tracker.front(key));
        self.counts.past += 1;
        let Data { sender, group, fragment, joint, .. } = *data;
        let packet = Message {
            sender,
            group,
            seq,
            payload: data.body(),
            joint,
            packets: data.count(),
            how: How::Multicast,
            missed_us: None,
            front,
            past_us: Some(at_us),
            sent: data.sent_us().map(|sent_us| self.clocks.of_past(now_us, sender, sent_us, at_us)),
            enveloped: data.extras.enveloped,
        };
        match (fragment, skip) {
            (true, _) => self.reassemble(now_us, &packet, out),
            (false, 0) => self.counts.outdated += self.keyed.pass(now_us, &packet, out),
            (false, skip) => {
                self.keyed.note(now_us, &packet);
                let messages = messages_of(packet.payload).enumerate().skip(skip.into());
                for (step, payload) in messages {
                    let seq = seq.plus(step as u64);
                    out.deliver(&Message { payload, joint: false, packets: 1, seq, ..packet });
                }
            }
        }
        self.buffer.put(PacketKey { stream: key, seq: data.seq }, &[&data.symbol_head(), data.payload]);
        self.log(at_us, data, seq);
        self.forget_old();
    }

    /// Appends a packet to the log of its group once all earlier ones of its stream are there. The packet is
    /// in the buffer.
    pub(super) fn log(&mut self, at_us: u64, data: &Data<'_>, seq: Seq) {
        let Self { logs, tracker, .. } = self;
        if !logs.are_kept() {
            return;
        }
        let Some(log) = logs.get_mut(data.group) else { return };
        let next = match log.next(data.sender) {
            Some(next) => next,
            None => {
                let first = seq.min(tracker.front(data.key()).awaited);
                if log.streams() >= STREAMS_MAX {
                    let group = data.group;
                    log.retain_streams(|sender| tracker.highest(StreamKey { sender, group }).is_some());
                }
                if log.streams() >= STREAMS_MAX {
                    return;
                }
                log.set_next(data.sender, first);
                first
            }
        };
        if next != seq {
            return self.log_settled(at_us, data.key());
        }
        log.set_next(data.sender, seq.plus(u64::from(data.count())));
        if !data.expires {
            logs.append(at_us, data);
        }
        self.log_settled(at_us, data.key());
    }

    /// Appends the packets of a stream that nothing before them keeps back.
    pub(super) fn log_settled(&mut self, now_us: u64, key: StreamKey) {
        let Self { logs, tracker, buffer, config, .. } = self;
        let Some(log) = logs.get_mut(key.group) else { return };
        let (Some(mut next), Some(_)) = (log.next(key.sender), tracker.highest(key)) else { return };
        let awaited = tracker.front(key).awaited;
        if next >= awaited {
            return;
        }
        let reach = awaited.minus(2 * config.packets as u64);
        next = next.max(reach);
        while next < awaited {
            let packet = PacketKey { stream: key, seq: next.to_wire() };
            let symbol = buffer.held(packet).and_then(|id| buffer.symbol(id));
            let data = symbol.and_then(|symbol| Data::from_symbol(packet.name(), key.group, symbol).ok());
            let Some(data) = data else {
                next = next.plus(1);
                continue;
            };
            if !data.expires {
                logs.append(now_us, &data);
            }
            next = next.plus(u64::from(data.count()));
        }
        if let Some(log) = logs.get_mut(key.group) {
            log.set_next(key.sender, next);
        }
    }

    /// Corrects the position of a stream in its log, which was a false one. The stream `goes_on`, or is not
    /// known any more.
    pub(super) fn log_retracted(&mut self, key: StreamKey, goes_on: bool) {
        let Some(log) = self.logs.get_mut(key.group) else { return };
        let Some(next) = log.next(key.sender) else { return };
        if !goes_on {
            log.forget_next(key.sender);
        } else if next > self.tracker.front(key).awaited {
            log.set_next(key.sender, self.tracker.front(key).awaited);
        }
    }

    /// Appends a packet that this node sends to a group of its own.
    pub(super) fn log_own(&mut self, now_us: u64, data: &Data<'_>) {
        if !self.logs.are_kept() || data.expires {
            return;
        }
        if let Some(log) = self.logs.get_mut(data.group) {
            log.set_next(data.sender, Seq::first_seen(data.seq).plus(u64::from(data.count())));
            self.logs.append(now_us, data);
        }
    }

    /// Notes a packet of a group whose history this node still reads. Returns whether it does.
    pub(super) fn note_for_later(
        &mut self,
        group: GroupId,
        sender: NodeId,
        seq: u32,
        announced: bool,
    ) -> bool {
        if self.catch_ups.is_empty() {
            return false;
        }
        let catch_up = self.catch_ups.get_mut(&group);
        catch_up.map(|catch_up| catch_up.note(sender, seq, announced)).is_some()
    }

    /// Handles a member's answer.
    pub(super) fn handle_history(
        &mut self,
        now_us: u64,
        origin: Origin,
        history: &History<'_>,
        out: &mut impl Output,
    ) {
        if origin != Origin::Member {
            return self.counts.strangers += 1;
        }
        let catch_up = self.catch_ups.get_mut(&history.group);
        let Some(catch_up) = catch_up.filter(|catch_up| catch_up.token == history.token) else {
            return self.counts.unasked += 1;
        };
        if self.requester.holds_losses {
            catch_up.hold(now_us);
        }
        catch_up.on_answer(now_us, history);
        self.go_on(now_us, history.group, out);
    }

    /// Hands the messages that this node itself keeps of a group to `deliver`, those of one sender in their
    /// order, and then those that came after a packet that is missing. A message of which parts are missing
    /// comes to all subscriptions when it is complete.
    pub fn replay(
        &mut self,
        now_us: u64,
        group: GroupId,
        wish: Wish,
        begin: &mut impl FnMut(Replayed),
        deliver: &mut impl FnMut(&Message<'_>),
    ) {
        if wish == Wish::LastPerKey {
            return self.replay_keyed(now_us, group, begin, deliver);
        }
        let cut = self.logs.cut(now_us, group, wish).unwrap_or_default();
        begin(Replayed { messages: cut.messages, is_complete: cut.is_complete });
        let Some(log) = self.logs.get(group) else { return };
        let Ok(mut fragments) = Fragments::new(self.config.fragments) else { return };
        let mut pass = |data: &Data<'_>, at_us: u64, skip: u16| {
            let key = data.key();
            if data.sender == self.config.id {
                return;
            }
            let near = self.tracker.highest(key).unwrap_or(Seq::first_seen(data.seq));
            let Data { sender, group, joint, .. } = *data;
            let packet = Message {
                sender,
                group,
                seq: Seq::from_wire(data.seq, near),
                payload: data.body(),
                joint,
                packets: data.count(),
                how: How::Multicast,
                missed_us: None,
                front: self.tracker.front(key),
                past_us: Some(at_us),
                sent: data.sent_us().map(|sent_us| self.clocks.of_past(now_us, sender, sent_us, at_us)),
                enveloped: data.extras.enveloped,
            };
            if data.fragment {
                if let Progress::Whole(slot) = fragments.take(now_us, &packet, &mut |_| {}) {
                    deliver(&Message { past_us: packet.past_us, ..fragments.message(slot, packet.front) });
                    fragments.on_delivered(slot);
                }
                return;
            }
            if skip == 0 {
                return deliver(&packet);
            }
            for (step, payload) in messages_of(packet.payload).enumerate().skip(skip.into()) {
                let seq = packet.seq.plus(step as u64);
                deliver(&Message { payload, joint: false, packets: 1, seq, ..packet });
            }
        };
        let mut bytes = vec![0; usize::try_from(cut.end - cut.start).unwrap_or(0)];
        let length = log.read(cut.start, &mut bytes);
        let (mut rest, mut skip) = (&bytes[..length], cut.skip);
        while let Ok(Some((record, length))) = Record::read(group, rest) {
            pass(&record.data, record.at_us, std::mem::take(&mut skip));
            rest = &rest[length..];
        }
        for (sender, next) in log.positions() {
            let key = StreamKey { sender, group };
            let Some(highest) = self.tracker.highest(key) else { continue };
            let first = next.max(highest.minus(2 * self.config.packets as u64));
            for seq in first.0..=highest.0 {
                let packet = PacketKey { stream: key, seq: seq as u32 };
                let Some(symbol) = self.buffer.held(packet).and_then(|id| self.buffer.symbol(id)) else {
                    continue;
                };
                if let Ok(data) = Data::from_symbol(packet.name(), group, symbol) {
                    pass(&data, now_us, 0);
                }
            }
        }
    }

    /// Returns the other members of a group.
    fn members_of(&self, group: GroupId) -> Vec<NodeId> {
        let Some(index) = self.groups.index(group) else { return Vec::new() };
        let regions = all_members(self.members.as_ref(), &self.bins);
        let of_group = |region: &RegionIndex| regions.groups(*region).binary_search(&index).is_ok();
        regions.iter().filter(of_group).flat_map(|region| regions.members(region)).copied().collect()
    }
}
