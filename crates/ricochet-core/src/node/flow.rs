//! Flow control: reports to the senders of streams, and the room that this node's own packets have.

use foundation::Seq;
use hashbrown::{HashMap, HashSet};

use super::{Node, Outbound};
use crate::flow::readers::Readers;
use crate::flow::rooms::Reports;
use crate::flow::{FlowConfig, FlowConfigError, Follow, ReaderStatus};
use crate::ids::{GroupId, NodeId, StreamKey};
use crate::message::{Origin, Output, SendOptions, To};
use crate::outgoing::{Form, Outgoing, OutgoingConfig, Packet};
use crate::tracker::Front;
use crate::view::{Member, View};
use crate::wire::{FRAGMENT_HEAD, Kind, Nak, Probe, Range, Room, Rooms, RoomsView};

/// Number of packets that a group may have on their way before they count against all that are kept.
const BUSY: u64 = 64;
/// Number of packets that wait for room in each group: those of one turn. More would only make them older.
const WAITING_MAX: usize = 64;
/// Number of bytes that wait for room in all groups together.
const WAITING_BYTES: usize = 16 << 20;

/// State of flow control.
#[derive(Debug)]
pub(super) struct FlowControl {
    config: FlowConfig,
    /// Number of packets by which a sender may run ahead of a silent reader.
    ahead: u32,
    reports: Reports,
    view: View,
    /// Groups that this node sends to.
    groups: HashMap<GroupId, Readers>,
    /// Groups with many packets on their way.
    busy: Vec<GroupId>,
    /// Groups whose readers hold up the sender.
    waiting: Vec<GroupId>,
    /// Whether packets wait because those on their way to all groups leave no room.
    is_crowded: bool,
    /// Time of the last event.
    now_us: u64,
}

impl FlowControl {
    pub(super) fn off() -> Self {
        Self::new(FlowConfig::default(), 0, View::default())
    }

    fn new(config: FlowConfig, ahead: u32, view: View) -> Self {
        let reports = Reports::new(config.window);
        Self {
            config,
            ahead,
            reports,
            view,
            groups: HashMap::new(),
            busy: Vec::new(),
            waiting: Vec::new(),
            is_crowded: false,
            now_us: 0,
        }
    }

    /// Continues with the members of another view. The groups whose members are the same cost nothing.
    pub(super) fn change_view(&mut self, me: NodeId, view: &View) {
        if self.config.follow == Follow::Off {
            return;
        }
        let before = std::mem::replace(&mut self.view, view.clone());
        let changes = before.changes(&self.view);
        let others = changes.into_iter().filter(|&(id, ..)| id != me);
        let lists = others.flat_map(|(_, old, new)| {
            let left = old.iter().filter(move |group| new.binary_search(group).is_err());
            left.chain(new.iter().filter(move |group| old.binary_search(group).is_err()))
        });
        let changed: HashSet<GroupId> =
            lists.filter(|group| self.groups.contains_key(*group)).copied().collect();
        // One pass finds the members of all of them.
        let mut members: HashMap<GroupId, Vec<NodeId>> = HashMap::with_capacity(changed.len());
        let read = |member: &&Member| !changed.is_empty() && member.id() != me;
        for member in self.view.members().iter().filter(read) {
            for &group in member.groups().iter().filter(|group| changed.contains(*group)) {
                members.entry(group).or_default().push(member.id());
            }
        }
        for group in changed {
            let members = members.remove(&group).unwrap_or_default();
            if let Some(readers) = self.groups.get_mut(&group) {
                readers.set_members(self.now_us, members.into_iter());
            }
        }
    }

    pub(super) fn forget(&mut self, gone: impl FnMut(StreamKey) -> bool) {
        self.reports.forget(gone);
    }

    /// Notes that this node sends a packet of `messages` messages to a group. Returns the readers if this
    /// node must ask them for reports.
    fn on_sent(&mut self, now_us: u64, me: NodeId, group: GroupId, messages: u32) -> Option<&Readers> {
        if self.config.follow == Follow::Off {
            return None;
        }
        self.now_us = now_us;
        let Self { config, ahead, view, groups, busy, is_crowded, .. } = self;
        let new = || Readers::new(config.follow, *ahead, now_us, members(view, me, group));
        let readers = groups.entry(group).or_insert_with(new);
        readers.on_sent(now_us, messages);
        if readers.outstanding() >= BUSY && !busy.contains(&group) {
            busy.push(group);
        }
        // Little does not count against the packets of all groups.
        let part = is_crowded.then_some(BUSY / 2);
        readers.asks_early(now_us, part).then_some(&*readers)
    }

    /// Returns whether readers have not settled the packet `seq` of this node to a group.
    pub(super) fn is_awaited(&self, group: GroupId, seq: u32) -> bool {
        self.groups.get(&group).is_some_and(|readers| readers.is_awaited(seq))
    }

    /// Returns whether two groups that this node sends to are known to have the same readers.
    pub(super) fn have_same_readers(&self, one: GroupId, other: GroupId) -> bool {
        let readers = [one, other].map(|group| self.groups.get(&group));
        matches!(readers, [Some(one), Some(other)] if one.are_those_of(other))
    }

    /// Returns the readers of a group that this node sends to.
    pub(super) fn readers_of(&self, group: GroupId) -> Option<&Readers> {
        self.groups.get(&group)
    }

    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.waiting.iter().filter_map(|group| self.groups.get(group)?.next_due_us()).min()
    }

    /// Returns the number of packets on their way, in the groups that have many.
    fn outstanding(&mut self) -> u64 {
        let Self { groups, busy, .. } = self;
        let mut all = 0;
        busy.retain(|group| {
            let outstanding = groups.get(group).map_or(0, Readers::outstanding);
            all += outstanding;
            outstanding >= BUSY
        });
        all
    }

    /// Notes that the packets of the busy groups leave no room for others: their readers are asked for
    /// reports, although no packets to them wait.
    fn on_crowded(&mut self, now_us: u64) {
        let Self { groups, busy, waiting, is_crowded, .. } = self;
        *is_crowded = true;
        for &group in busy.iter() {
            let Some(readers) = groups.get_mut(&group) else { continue };
            readers.on_crowded(now_us);
            if !waiting.contains(&group) {
                waiting.push(group);
            }
        }
    }

    /// Ends that wait if there is room again. All groups together have room for `kept` packets.
    fn end_crowded(&mut self, kept: u64) {
        if !self.is_crowded || self.outstanding() >= kept {
            return;
        }
        let Self { groups, waiting, is_crowded, .. } = self;
        *is_crowded = false;
        for group in waiting.iter() {
            if let Some(readers) = groups.get_mut(group) {
                readers.end_crowded();
            }
        }
    }
}

/// Writes a request for reports; returns its length.
fn write_probe(me: NodeId, group: GroupId, readers: &Readers, scratch: &mut [u8]) -> usize {
    Probe { sender: me, group, newest: readers.newest() }.write(scratch)
}

fn members(view: &View, me: NodeId, group: GroupId) -> impl Iterator<Item = NodeId> + '_ {
    let reads = move |member: &&Member| member.id() != me && member.groups().binary_search(&group).is_ok();
    view.members().iter().filter(reads).map(Member::id)
}

impl Node {
    /// Sets flow control, before the first packet is sent. Without it the node follows no reader and reports
    /// nothing.
    ///
    /// # Errors
    /// [`FlowConfigError`].
    pub fn set_flow(&mut self, config: FlowConfig, view: &View) -> Result<(), FlowConfigError> {
        config.check()?;
        self.flow = FlowControl::new(config, self.sent_packets_kept(), view.clone());
        Ok(())
    }

    /// Returns the settings for the messages that go to this node, without linger and pace.
    pub fn outgoing_config(&self) -> OutgoingConfig {
        OutgoingConfig {
            payload_max: self.payload_max,
            message_max: self.message_max(),
            fragment_size: self.fragment_size(),
            packets_max: WAITING_MAX,
            bytes_max: WAITING_BYTES,
            linger_us: 0,
            bytes_per_second: None,
            epoch_us: None,
        }
    }

    /// Returns the number of packets to a group that the readers have room for; `u32::MAX` if nothing limits
    /// it. The packets on their way to all groups are at most half of those kept, so that none is forgotten
    /// before the readers have it. The first 64 of each group do not count, so that no group has to wait for
    /// the readers of others only; of very many groups at once, some of these may be forgotten.
    pub fn room(&mut self, group: GroupId) -> u32 {
        let Some(readers) = self.flow.groups.get(&group) else { return u32::MAX };
        let room = readers.room();
        if room == u32::MAX {
            return room;
        }
        let kept = u64::from(self.sent_packets_kept());
        let uncounted = BUSY.min(kept).saturating_sub(readers.outstanding());
        let left = kept.saturating_sub(self.flow.outstanding()).max(uncounted);
        room.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Returns the number of this node's own packets that are certainly kept, as its newest ones or because
    /// readers wait for them: half of all.
    fn sent_packets_kept(&self) -> u32 {
        u32::try_from(self.config.packets / 2).unwrap_or(u32::MAX)
    }

    /// Sends packets that wait, as far as the readers have room. Returns when further ones are due.
    pub fn send_waiting(
        &mut self,
        now_us: u64,
        outgoing: &mut Outgoing,
        out: &mut impl Output,
    ) -> Option<u64> {
        let mut packets = Vec::new();
        loop {
            let due_us = outgoing.take(now_us, 64, |group| self.room_or_wait(now_us, group), &mut packets);
            if packets.is_empty() {
                return due_us;
            }
            packets.iter().for_each(|packet| self.send_packet_of(now_us, packet, out));
            outgoing.give_back(&mut packets);
        }
    }

    /// Returns the room of a group. If there is none, asks its readers for reports from time to time, or
    /// those of all busy groups if these leave no room.
    pub fn room_or_wait(&mut self, now_us: u64, group: GroupId) -> u32 {
        let room = self.room(group);
        let flow = &mut self.flow;
        if room == 0
            && let Some(readers) = flow.groups.get_mut(&group)
        {
            if readers.room() > 0 {
                flow.on_crowded(now_us);
                return 0;
            }
            readers.on_waiting(now_us);
            if !flow.waiting.contains(&group) {
                flow.waiting.push(group);
            }
        }
        room
    }

    /// Sends a packet. It has the sequence number that [`Outgoing::push`] returned for it.
    pub fn send_packet_of(&mut self, now_us: u64, packet: &Packet, out: &mut impl Output) {
        let form = packet.form();
        let outbound = Outbound {
            group: packet.group(),
            payload: packet.payload(),
            options: SendOptions { expires: packet.expires() },
            fragment: form == Form::Fragment,
            joint: form == Form::Joint,
            extras: packet.extras(),
        };
        // Both bound the number of groups by the same maximum.
        let sent = self.send_packet(now_us, &outbound, out);
        debug_assert!(sent.is_ok(), "{sent:?}");
    }

    /// Returns the readers of this node's packets to a group, as far as it knows them.
    pub fn readers(&self, group: GroupId) -> impl Iterator<Item = ReaderStatus> + '_ {
        self.flow.groups.get(&group).into_iter().flat_map(Readers::status)
    }

    /// Returns the groups that this node sends to under flow control.
    pub fn groups_sent_to(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.flow.groups.keys().copied()
    }

    /// Reports to the sender of a packet, if a report is due.
    pub(super) fn report_room(&mut self, now_us: u64, key: StreamKey, front: Front, out: &mut impl Output) {
        if self.flow.reports.are_sent() && self.flow.reports.on_packet(now_us, key, front) {
            self.send_room(now_us, key, front, out);
        }
    }

    fn send_room(&mut self, now_us: u64, key: StreamKey, front: Front, out: &mut impl Output) {
        let Some(newest) = self.tracker.received(key) else { return };
        let room = self.flow.reports.report(now_us, key, front, newest);
        self.write_room(key, room, out);
    }

    fn write_room(&mut self, key: StreamKey, room: Room, out: &mut impl Output) {
        let length = Rooms { from: self.config.id, rooms: &[room] }.write(&mut self.scratch);
        out.send(To::Node(key.sender), &self.scratch[..length]);
        self.counts.rooms_sent += 1;
        self.tally.sent.add(Kind::Room, length);
    }

    /// Handles the reports of a reader of this node's packets.
    pub(super) fn handle_rooms(
        &mut self,
        now_us: u64,
        origin: Origin,
        report: &RoomsView<'_>,
        out: &mut impl Output,
    ) {
        if report.from == self.config.id {
            return self.counts.own += 1;
        }
        if origin != Origin::Member {
            return self.counts.strangers += 1;
        }
        self.flow.now_us = now_us;
        self.requester.on_heard(report.from);
        for room in report.rooms() {
            let Some(readers) = self.flow.groups.get_mut(&room.group) else { continue };
            if let Some(news) = readers.on_report(now_us, report.from, &room) {
                out.on_reader(room.group, report.from, news);
            }
            if let Some((first, count)) = readers.doubt(report.from) {
                self.ask_for_beginning(report.from, room.group, (first, count), out);
            }
            self.on_progress(room.group, out);
        }
        self.flow.end_crowded(self.sent_packets_kept().into());
    }

    /// Tells a reader which packets it was sent and may have heard nothing of, with a denial that it did not
    /// ask for.
    fn ask_for_beginning(
        &mut self,
        reader: NodeId,
        group: GroupId,
        (first, count): (u32, u16),
        out: &mut impl Output,
    ) {
        let key = StreamKey { sender: self.config.id, group };
        let denial = Nak { from: self.config.id, ranges: &[Range { key, first, count }] };
        let length = denial.write_denial(&mut self.scratch);
        out.send(To::Node(reader), &self.scratch[..length]);
        self.counts.denials_sent += 1;
        self.tally.sent.add(Kind::Denial, length);
    }

    /// Handles a sender's news that this node was its reader when it sent the packets of a range. Those
    /// before the first one that this node heard of are lost. A report tells where that was.
    ///
    /// Others deny packets that this node has requested and awaits. The range of such a denial does not lie
    /// before the first awaited packet.
    pub(super) fn tell_beginning(&mut self, now_us: u64, range: Range, out: &mut impl Output) {
        let front = self.tracker.front(range.key);
        let end = Seq::from_wire(range.first, front.awaited).plus(u64::from(range.count));
        if front == Front::END || end > front.awaited || !self.flow.reports.are_sent() {
            return;
        }
        let Some(begin) = self.tracker.give_up_before_start(range.key, range.first) else { return };
        let Some(newest) = self.tracker.received(range.key) else { return };
        let room = self.flow.reports.report(now_us, range.key, front, newest);
        self.write_room(range.key, Room { position: begin.to_wire(), ..room }, out);
    }

    /// Handles a sender's request for a report.
    pub(super) fn handle_probe(&mut self, now_us: u64, origin: Origin, probe: &Probe, out: &mut impl Output) {
        if probe.sender == self.config.id {
            return self.counts.own += 1;
        }
        if self.groups.index(probe.group).is_none() {
            return self.counts.foreign += 1;
        }
        let key = StreamKey { sender: probe.sender, group: probe.group };
        let front = self.tracker.front(key);
        // A stream that is not known yet shows the sender that this node has heard nothing of it.
        if origin == Origin::Member && self.flow.reports.are_sent() && front != Front::END {
            self.send_room(now_us, key, front, out);
        }
    }

    /// Notes that this node sends a packet. Asks its readers for reports if their own would come too late.
    pub(super) fn on_sent(&mut self, now_us: u64, group: GroupId, messages: u32, out: &mut impl Output) {
        let Self { flow, config, scratch, counts, tally, .. } = self;
        let Some(readers) = flow.on_sent(now_us, config.id, group, messages) else { return };
        let length = write_probe(config.id, group, readers, scratch);
        out.send(To::Group(group), &scratch[..length]);
        counts.probes_sent += 1;
        tally.sent.add(Kind::Probe, length);
    }

    /// Asks readers for reports, and leaves those behind that hold up the sender for too long.
    pub(super) fn handle_flow_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        self.flow.now_us = now_us;
        self.flow.end_crowded(self.sent_packets_kept().into());
        let Self { flow, config, scratch, counts, tally, .. } = self;
        flow.waiting.retain(|group| flow.groups.get(group).is_some_and(Readers::is_waiting));
        for &group in &flow.waiting {
            let Some(readers) = flow.groups.get_mut(&group) else { continue };
            let mut notify = |reader, news| out.on_reader(group, reader, news);
            if !readers.handle_timeout(now_us, &flow.config, &mut notify) {
                continue;
            }
            let length = write_probe(config.id, group, readers, scratch);
            out.send(To::Group(group), &scratch[..length]);
            counts.probes_sent += 1;
            tally.sent.add(Kind::Probe, length);
        }
    }

    /// Returns the number of bytes of a message in a packet.
    pub(super) fn fragment_size(&self) -> u16 {
        u16::try_from(self.payload_max.saturating_sub(FRAGMENT_HEAD)).unwrap_or(u16::MAX)
    }
}
