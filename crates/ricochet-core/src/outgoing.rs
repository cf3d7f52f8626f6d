//! Messages on their way to the network: cut into packets, or together in one packet if they have to wait.
//!
//! A driver puts messages in from any thread, under a lock of its own, and takes packets out for the node
//! ([`Node::send_packet_of`](crate::Node::send_packet_of)) while the receivers have room and the pace allows
//! it. Each packet has its sequence number from the beginning, so all packets of this node to a group must
//! pass through one [`Outgoing`].
//!
//! The newest packet of a group is *open* to further messages until it leaves. A few open packets may leave
//! at once. Each further one has to wait up to [`OPEN_US`], so that messages that come faster than that share
//! packets and system calls.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::groups::SENT_GROUPS_MAX;
use crate::ids::GroupId;
use crate::message::{SendError, SendOptions};
use crate::wire::{Envelope, Extras, Fragment, JOINT_MAX, MESSAGE_HEAD, SENT};

/// Number of groups up to which their empty queues keep their memory.
const QUEUES_KEPT: usize = 1 << 14;
/// Maximum number of empty packets kept for reuse.
const IDLE_MAX: usize = 1_024;
/// Interval between the packets of a group from which an open packet has to wait, in microseconds.
const OPEN_US: u64 = 100;
/// Number of packets of a group that are sent before its open packets have to wait.
const OPEN_BURST: u64 = 32;
/// Number of waiting packets from which they are worth sending before the next is due.
const WORTHWHILE: usize = 8;
/// Number of packets that leave at once at any pace.
const PACE_BURST: u64 = 64;

/// Settings of an [`Outgoing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingConfig {
    /// Length of the longest payload of a packet in bytes: [`Node::payload_max`](crate::Node::payload_max).
    pub payload_max: usize,
    /// Length of the longest message: [`Node::message_max`](crate::Node::message_max).
    pub message_max: usize,
    /// Number of bytes of a message in one packet: [`Node::fragment_size`](crate::Node::fragment_size).
    pub fragment_size: u16,
    /// Number of packets that may wait in a group before it takes no further message.
    pub packets_max: usize,
    /// Number of bytes of messages that may wait in all groups together. A single message may be longer.
    pub bytes_max: usize,
    /// Time for which a packet waits for further messages, in microseconds.
    pub linger_us: u64,
    /// Number of payload bytes that leave in a second after a burst of 64 packets; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Microseconds from 1970 to the zero of this node's clock, if packets state the time at which their
    /// first message was put in. This takes [`SENT`] bytes of each packet.
    pub epoch_us: Option<u64>,
}

impl OutgoingConfig {
    /// Returns the length of the longest message in one packet, in bytes.
    pub fn single_max(&self) -> usize {
        self.payload_max.saturating_sub(self.time_len())
    }

    /// Returns the number of bytes of a message in each of its fragments.
    fn part_len(&self) -> u16 {
        self.fragment_size.saturating_sub(self.time_len() as u16).max(1)
    }

    fn time_len(&self) -> usize {
        if self.epoch_us.is_some() { SENT } else { 0 }
    }
}

/// Contents of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One message.
    Single,
    /// A part of a message.
    Fragment,
    /// Several messages.
    Joint,
}

/// A packet to send.
#[derive(Debug)]
pub struct Packet {
    group: GroupId,
    bytes: Vec<u8>,
    messages: usize,
    is_fragment: bool,
    expires: bool,
    extras: Extras,
    since_us: u64,
}

impl Packet {
    /// Returns the group that it goes to.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns its payload on the wire.
    pub fn payload(&self) -> &[u8] {
        // One message needs no length.
        if self.form() == Form::Single { &self.bytes[MESSAGE_HEAD..] } else { &self.bytes }
    }

    /// Returns what the payload is.
    pub fn form(&self) -> Form {
        match (self.is_fragment, self.messages) {
            (true, _) => Form::Fragment,
            (false, 1) => Form::Single,
            (false, _) => Form::Joint,
        }
    }

    /// Returns whether it is worthless when late.
    pub fn expires(&self) -> bool {
        self.expires
    }

    /// Returns what it carries beside its messages.
    pub fn extras(&self) -> Extras {
        self.extras
    }

    fn takes(&self, message: &[u8], options: SendOptions, enveloped: bool, payload_max: usize) -> bool {
        !self.is_fragment
            && self.messages < JOINT_MAX
            && (self.expires, self.extras.enveloped) == (options.expires, enveloped)
            && self.bytes.len() + MESSAGE_HEAD + message.len() <= payload_max
    }

    fn add(&mut self, now_us: u64, message: &[u8]) {
        let length = u16::try_from(message.len()).expect("a message in a packet fits a datagram");
        self.bytes.extend_from_slice(&length.to_be_bytes());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        self.messages += 1;
        if self.extras.enveloped && now_us > self.since_us {
            Envelope::postpone(&mut self.bytes[start..], now_us - self.since_us);
        }
    }

    /// Moves the time next to the message if there is only one.
    fn close(&mut self) {
        if self.extras.timed && self.form() == Form::Single {
            self.bytes.copy_within(..SENT, MESSAGE_HEAD);
        }
    }
}

/// Reason why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The group has as many packets waiting as it may have, or all groups together have as many bytes.
    Full,
    /// The message cannot be sent.
    Refused(SendError),
}

#[derive(Debug, Default)]
struct Waiting {
    next: u32,
    packets: VecDeque<Packet>,
    /// Time from which an open packet may leave at once, with a burst counted in.
    open_from_us: u64,
}

/// Packets that wait for room at their receivers.
#[derive(Debug)]
pub struct Outgoing {
    config: OutgoingConfig,
    groups: HashMap<GroupId, Waiting>,
    /// Groups with packets, in turn.
    turns: VecDeque<GroupId>,
    packets: usize,
    /// Bytes of the packets that wait.
    bytes: usize,
    /// Time from which the pace allows the next packet, with a burst counted in, in nanoseconds.
    pace_from_ns: u64,
    idle: Vec<Vec<u8>>,
    /// Buffer for a message with its envelope.
    scratch: Vec<u8>,
}

/// A message to put in.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingMessage<'a> {
    /// The group that it goes to.
    pub group: GroupId,
    /// Content beside its payload.
    pub envelope: Envelope<'a>,
    /// Its payload.
    pub payload: &'a [u8],
    /// Its options.
    pub options: SendOptions,
    /// Whether it is cut into several packets if it is longer than one.
    pub fragments: bool,
}

impl Outgoing {
    /// Creates an empty one.
    pub fn new(config: OutgoingConfig) -> Self {
        Self {
            config,
            groups: HashMap::new(),
            turns: VecDeque::new(),
            packets: 0,
            bytes: 0,
            pace_from_ns: 0,
            idle: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Puts a message in; returns its sequence number, which is that of its first packet if it has several.
    ///
    /// # Errors
    /// [`NotTaken`]; then nothing was put in.
    pub fn push(&mut self, now_us: u64, message: &OutgoingMessage<'_>) -> Result<u32, NotTaken> {
        let OutgoingMessage { group, ref envelope, payload, options, fragments } = *message;
        let around = if envelope.is_empty() { 0 } else { envelope.wire_len() };
        let longest = if fragments { self.config.message_max } else { self.config.single_max() };
        let longest = longest.saturating_sub(around);
        if payload.len() > longest {
            let error = SendError::TooLong { length: payload.len(), payload_max: longest };
            return Err(NotTaken::Refused(error));
        }
        if around == 0 {
            return self.push_bytes(now_us, group, payload, options, false);
        }
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        envelope.write(&mut bytes);
        bytes.extend_from_slice(payload);
        let pushed = self.push_bytes(now_us, group, &bytes, options, true);
        self.scratch = bytes;
        pushed
    }

    /// Returns the number of packets that a message takes.
    pub fn packets_of(&self, envelope: &Envelope<'_>, length: usize) -> u32 {
        let around = if envelope.is_empty() { 0 } else { envelope.wire_len() };
        let length = around + length;
        if length <= self.config.single_max() {
            return 1;
        }
        u32::try_from(length.div_ceil(self.config.part_len().into())).unwrap_or(u32::MAX)
    }

    fn push_bytes(
        &mut self,
        now_us: u64,
        group: GroupId,
        message: &[u8],
        options: SendOptions,
        enveloped: bool,
    ) -> Result<u32, NotTaken> {
        let OutgoingConfig { payload_max, packets_max, bytes_max, .. } = self.config;
        if self.groups.len() >= SENT_GROUPS_MAX && !self.groups.contains_key(&group) {
            return Err(NotTaken::Refused(SendError::TooManyGroups));
        }
        if self.bytes > 0 && self.bytes + message.len() > bytes_max {
            return Err(NotTaken::Full);
        }
        let waiting = self.groups.entry(group).or_default();
        if let Some(open) = waiting.packets.back_mut()
            && open.takes(message, options, enveloped, payload_max)
        {
            let before = open.bytes.len();
            open.add(now_us, message);
            self.bytes += open.bytes.len() - before;
            let seq = waiting.next;
            waiting.next = seq.wrapping_add(1);
            return Ok(seq);
        }
        if waiting.packets.len() >= packets_max {
            return Err(NotTaken::Full);
        }
        if waiting.packets.is_empty() {
            self.turns.push_back(group);
        }
        Ok(self.push_packets(now_us, group, message, options, enveloped))
    }

    /// Puts a message into packets of its own; returns the sequence number of the first.
    fn push_packets(
        &mut self,
        now_us: u64,
        group: GroupId,
        message: &[u8],
        options: SendOptions,
        enveloped: bool,
    ) -> u32 {
        let OutgoingConfig { payload_max, epoch_us, .. } = self.config;
        let (single_max, time_len) = (self.config.single_max(), self.config.time_len());
        let part_len = self.config.part_len();
        let extras = Extras { timed: epoch_us.is_some(), enveloped };
        let Self { groups, packets, bytes, idle, .. } = self;
        let waiting = groups.entry(group).or_default();
        let mut add = |packet: Packet| {
            *packets += 1;
            *bytes += packet.bytes.len();
            waiting.packets.push_back(packet);
            waiting.next = waiting.next.wrapping_add(1);
            waiting.next.wrapping_sub(1)
        };
        let mut new = |is_fragment| {
            let mut bytes = idle.pop().unwrap_or_else(|| Vec::with_capacity(payload_max + MESSAGE_HEAD));
            if let Some(epoch_us) = epoch_us {
                bytes.extend_from_slice(&epoch_us.wrapping_add(now_us).to_be_bytes());
            }
            let (expires, since_us) = (options.expires, now_us);
            Packet { group, bytes, messages: 0, is_fragment, expires, extras, since_us }
        };
        if message.len() <= single_max {
            let mut packet = new(false);
            packet.add(now_us, message);
            return add(packet);
        }
        let mut first = None;
        for index in 0..=u16::MAX {
            let Some(fragment) = Fragment::of(message, index, part_len) else { break };
            let mut packet = new(true);
            packet.bytes.resize(payload_max, 0);
            let length = time_len + fragment.write(&mut packet.bytes[time_len..]);
            packet.bytes.truncate(length);
            let seq = add(packet);
            first.get_or_insert(seq);
        }
        first.expect("a long message has fragments")
    }

    /// Moves packets to `out`, at most `count`, while `room` returns that their group has room. The groups
    /// take turns. Returns when packets are due that wait for further messages or for the pace.
    pub fn take(
        &mut self,
        now_us: u64,
        count: usize,
        mut room: impl FnMut(GroupId) -> u32,
        out: &mut Vec<Packet>,
    ) -> Option<u64> {
        /// Maximum number of packets of one group in a turn.
        const TURN: usize = 64;
        let mut due_us: Option<u64> = None;
        let mut is_due = |at_us: u64| due_us = Some(due_us.map_or(at_us, |due_us| due_us.min(at_us)));
        let keeps_queues = self.groups.len() <= QUEUES_KEPT;
        for _ in 0..self.turns.len() {
            let Some(group) = self.turns.pop_front() else { break };
            let Some(waiting) = self.groups.get_mut(&group) else { continue };
            let left = count.saturating_sub(out.len()).min(TURN);
            let mut room = if left == 0 { 0 } else { (room(group) as usize).min(left) };
            while room > 0
                && let Some(packet) = waiting.packets.front()
            {
                let from_us = match pace(&self.config, now_us, self.pace_from_ns) {
                    Some(from_us) => from_us,
                    None if waiting.packets.len() > 1 || packet.is_fragment => now_us,
                    None => waiting.leaves_us(packet, self.config.linger_us),
                };
                if from_us > now_us {
                    is_due(from_us);
                    break;
                }
                let Some(mut packet) = waiting.packets.pop_front() else { break };
                packet.close();
                waiting.on_taken(now_us);
                if let Some(rate) = self.config.bytes_per_second {
                    let cost_ns = packet.bytes.len() as u64 * 1_000_000_000 / rate.max(1);
                    self.pace_from_ns = self.pace_from_ns.max(now_us * 1_000) + cost_ns;
                }
                self.bytes -= packet.bytes.len();
                self.packets -= 1;
                room -= 1;
                out.push(packet);
            }
            if !waiting.packets.is_empty() {
                self.turns.push_back(group);
            } else if !keeps_queues {
                waiting.packets = VecDeque::new();
            }
        }
        due_us
    }

    /// Returns whether it is worthwhile to take packets before the time that the last
    /// [`take`](Self::take) returned, after a message has begun a packet.
    pub fn is_worthwhile(&self) -> bool {
        self.packets >= WORTHWHILE
    }

    /// Takes back the buffers of packets that were sent.
    pub fn give_back(&mut self, packets: &mut Vec<Packet>) {
        for mut packet in packets.drain(..) {
            if self.idle.len() < IDLE_MAX {
                packet.bytes.clear();
                self.idle.push(packet.bytes);
            }
        }
    }

    /// Returns the number of packets that wait.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Returns the number of bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

impl Waiting {
    /// Returns the time from which the open packet may leave.
    fn leaves_us(&self, open: &Packet, linger_us: u64) -> u64 {
        let by_pace_us = self.open_from_us.saturating_sub(OPEN_BURST * OPEN_US);
        (open.since_us + linger_us).max(by_pace_us.min(open.since_us + OPEN_US))
    }

    /// Notes that a packet leaves.
    fn on_taken(&mut self, now_us: u64) {
        let most_us = now_us + (OPEN_BURST + 1) * OPEN_US;
        self.open_from_us = (self.open_from_us.max(now_us) + OPEN_US).min(most_us);
    }
}

/// Returns the time from which the pace allows the next packet, if it does not allow it at once.
fn pace(config: &OutgoingConfig, now_us: u64, from_ns: u64) -> Option<u64> {
    let rate = config.bytes_per_second?.max(1);
    let burst_ns = PACE_BURST * config.payload_max as u64 * 1_000_000_000 / rate;
    let from_us = from_ns.saturating_sub(burst_ns).div_ceil(1_000);
    (from_us > now_us).then_some(from_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::wire::{Data, messages_of};

    const GROUP: GroupId = GroupId(7);

    const CONFIG: OutgoingConfig = OutgoingConfig {
        payload_max: 100,
        message_max: 1_000,
        fragment_size: 90,
        packets_max: 8,
        bytes_max: 100_000,
        linger_us: 0,
        bytes_per_second: None,
        epoch_us: None,
    };

    fn push_to(
        outgoing: &mut Outgoing,
        now_us: u64,
        group: GroupId,
        payload: &[u8],
        fragments: bool,
    ) -> Result<u32, NotTaken> {
        let (envelope, options) = (Envelope::default(), SendOptions::default());
        outgoing.push(now_us, &OutgoingMessage { group, envelope, payload, options, fragments })
    }

    fn push(outgoing: &mut Outgoing, message: &[u8], fragments: bool) -> Result<u32, NotTaken> {
        push_to(outgoing, 0, GROUP, message, fragments)
    }

    fn taken(outgoing: &mut Outgoing, now_us: u64, room: u32) -> Vec<Packet> {
        let mut packets = Vec::new();
        outgoing.take(now_us, usize::MAX, |_| room, &mut packets);
        packets
    }

    #[test]
    fn messages_that_wait_share_packets_and_a_single_one_does_not_show_it() {
        let mut outgoing = Outgoing::new(CONFIG);
        let sequence: Vec<_> = (0..10u8).map(|at| push(&mut outgoing, &[at; 30], false).unwrap()).collect();
        assert_eq!(sequence, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(taken(&mut outgoing, 0, 0).is_empty(), "the readers have no room");
        let packets = taken(&mut outgoing, 0, 64);
        let messages = packets.iter().flat_map(|packet| match packet.form() {
            Form::Joint => messages_of(packet.payload()).map(|message| message[0]).collect::<Vec<_>>(),
            _ => vec![packet.payload()[0]],
        });
        assert!(messages.into_iter().eq(0..10));
        assert_eq!(packets[3].payload(), [9; 30]);
        assert!(outgoing.is_empty() && outgoing.bytes() == 0);
    }

    #[test]
    fn a_million_groups_are_taken_and_their_empty_queues_keep_no_memory() {
        let mut outgoing = Outgoing::new(CONFIG);
        let groups =
            (0..SENT_GROUPS_MAX as u64 - 1).map(|group| (GroupId(1_000 + group), Waiting::default()));
        outgoing.groups.extend(groups);
        assert_eq!(push(&mut outgoing, &[1], false), Ok(0));
        let refused = push_to(&mut outgoing, 0, GroupId(8), &[1], false);
        assert_eq!(refused, Err(NotTaken::Refused(SendError::TooManyGroups)));
        assert_eq!(taken(&mut outgoing, 0, 1).len(), 1);
        assert_eq!(outgoing.groups[&GROUP].packets.capacity(), 0);
        assert_eq!(push(&mut outgoing, &[2], false), Ok(1), "its numbers continue");
    }

    /// Returns the data packet that a receiver reads.
    fn data(packet: &Packet) -> Data<'_> {
        Data {
            sender: NodeId(1),
            group: GROUP,
            seq: 0,
            sender_seq: 0,
            expires: packet.expires(),
            fragment: packet.form() == Form::Fragment,
            joint: packet.form() == Form::Joint,
            extras: packet.extras(),
            payload: packet.payload(),
        }
    }

    #[test]
    fn packets_state_the_time_of_their_first_message() {
        let mut outgoing = Outgoing::new(OutgoingConfig { epoch_us: Some(1_000_000), ..CONFIG });
        for (now_us, length) in [(5, 93), (6, 92), (7, 30), (8, 30), (9, 500)] {
            let pushed = push_to(&mut outgoing, now_us, GROUP, &vec![7; length], length > 93);
            assert_eq!(pushed.is_ok(), length != 93, "the time takes eight bytes");
        }
        let packets = taken(&mut outgoing, 20, 64);
        let times: Vec<_> =
            packets.iter().map(|packet| data(packet).sent_us().unwrap() - 1_000_000).collect();
        assert_eq!(times, [&[6, 7][..], &[9; 7]].concat(), "82 bytes of 500 in each fragment");
        assert_eq!(data(&packets[0]).body(), [7; 92]);
        assert!(messages_of(data(&packets[1]).body()).eq([[7; 30]; 2]));
        assert!(packets.iter().all(|packet| packet.payload().len() <= 100));
        let fragment = Fragment::read(data(&packets[2]).body()).unwrap();
        assert_eq!((fragment.total, fragment.index), (500, 0));
    }

    #[test]
    fn a_message_with_an_envelope_shares_packets_with_its_like() {
        let mut outgoing = Outgoing::new(OutgoingConfig { epoch_us: Some(0), ..CONFIG });
        let envelope = Envelope { deadline_us: Some(500), headers: b"h", ..Envelope::default() };
        let message = OutgoingMessage {
            group: GROUP,
            envelope,
            payload: b"late",
            options: SendOptions::default(),
            fragments: false,
        };
        outgoing.push(10, &message).unwrap();
        outgoing.push(40, &message).unwrap();
        outgoing.push(50, &OutgoingMessage { envelope: Envelope::default(), ..message }).unwrap();
        let packets = taken(&mut outgoing, 60, 64);
        assert_eq!(packets.len(), 2, "a plain message does not share the packet");
        assert!(!packets[1].extras().enveloped);
        let first = data(&packets[0]);
        let deadlines = messages_of(first.body()).map(|message| {
            let (envelope, payload) = Envelope::read(message).unwrap();
            assert_eq!((envelope.headers, payload), (&b"h"[..], &b"late"[..]));
            envelope.deadline_us.unwrap()
        });
        assert_eq!(deadlines.collect::<Vec<_>>(), [500, 530], "both count from the time of the packet");
        let long = OutgoingMessage { payload: &[1; 82], ..message };
        let around = envelope.wire_len();
        let error = SendError::TooLong { length: 82, payload_max: 92 - around };
        assert_eq!(outgoing.push(60, &long), Err(NotTaken::Refused(error)));
        outgoing.push(60, &OutgoingMessage { fragments: true, ..long }).unwrap();
        let packets = taken(&mut outgoing, 60, 64);
        assert!(packets.iter().all(|packet| packet.extras().enveloped && packet.form() == Form::Fragment));
    }

    #[test]
    fn a_message_as_long_as_a_packet_is_sent_alone() {
        let mut outgoing = Outgoing::new(CONFIG);
        push(&mut outgoing, &[1; 100], false).unwrap();
        push(&mut outgoing, &[], false).unwrap();
        let packets = taken(&mut outgoing, 0, 64);
        assert_eq!(packets.iter().map(|packet| packet.payload().len()).collect::<Vec<_>>(), [100, 0]);
        let refused = push(&mut outgoing, &[1; 101], false).unwrap_err();
        assert_eq!(refused, NotTaken::Refused(SendError::TooLong { length: 101, payload_max: 100 }));
    }

    #[test]
    fn a_full_group_takes_nothing_and_other_groups_do() {
        let mut outgoing = Outgoing::new(OutgoingConfig { packets_max: 2, ..CONFIG });
        assert_eq!(push(&mut outgoing, &[1; 1_000], true), Ok(0), "one long message may exceed the limit");
        assert_eq!(outgoing.len(), 12);
        assert_eq!(push(&mut outgoing, &[1; 60], false), Err(NotTaken::Full));
        let other = push_to(&mut outgoing, 0, GroupId(8), &[1], false);
        assert_eq!(other, Ok(0));
        assert_eq!(taken(&mut outgoing, 0, 11).len(), 12, "eleven of the one group, and one of the other");
        assert_eq!(push(&mut outgoing, &[1; 60], false), Ok(12));
    }

    #[test]
    fn the_bytes_of_all_groups_together_are_bounded() {
        let mut outgoing = Outgoing::new(OutgoingConfig { bytes_max: 300, ..CONFIG });
        assert_eq!(push(&mut outgoing, &[1; 1_000], true), Ok(0), "one message may be longer");
        for group in 8..40 {
            let other = push_to(&mut outgoing, 0, GroupId(group), &[1], false);
            assert_eq!(other, Err(NotTaken::Full));
        }
        taken(&mut outgoing, 0, 64);
        let groups =
            (8..40).filter(|&group| push_to(&mut outgoing, 0, GroupId(group), &[1; 90], false).is_ok());
        assert_eq!(groups.count(), 3);
        assert!(outgoing.bytes() <= 300, "{}", outgoing.bytes());
    }

    #[test]
    fn a_packet_lingers_until_its_time_or_until_it_is_full() {
        let mut outgoing = Outgoing::new(OutgoingConfig { linger_us: 50, ..CONFIG });
        push(&mut outgoing, &[1; 60], false).unwrap();
        let mut packets = Vec::new();
        assert_eq!(outgoing.take(10, 8, |_| 8, &mut packets), Some(50));
        assert!(packets.is_empty());
        push(&mut outgoing, &[2; 60], false).unwrap();
        assert_eq!(outgoing.take(10, 8, |_| 8, &mut packets), Some(50));
        assert_eq!(packets.len(), 1, "the first is full");
        assert_eq!(outgoing.take(50, 8, |_| 8, &mut packets), None);
        assert_eq!(packets.len(), 2);
        outgoing.give_back(&mut packets);
        push(&mut outgoing, &[3; 60], false).unwrap();
        assert_eq!(outgoing.idle.len(), 1, "a buffer is used again");
    }

    /// Sends a message of `length` bytes each `every_us` for a second, and takes packets when they are due.
    /// Returns the number of packets and the longest wait.
    fn sent_in_a_second(length: usize, every_us: u64) -> (usize, u64) {
        let mut outgoing = Outgoing::new(OutgoingConfig { payload_max: 1_400, packets_max: 64, ..CONFIG });
        let (mut packets, mut due_us, mut wait_us) = (Vec::new(), None, 0);
        for now_us in 1..1_000_000 {
            if now_us % every_us == 0 {
                let (message, before) = (vec![0; length], outgoing.len());
                push_to(&mut outgoing, now_us, GROUP, &message, false).unwrap();
                if outgoing.len() > before && (due_us.is_none() || outgoing.is_worthwhile()) {
                    due_us = Some(now_us);
                }
            }
            if due_us.is_some_and(|due_us| due_us <= now_us) {
                let before = packets.len();
                due_us = outgoing.take(now_us, usize::MAX, |_| 64, &mut packets);
                let waits = packets[before..].iter().map(|packet| now_us - packet.since_us);
                wait_us = waits.max().unwrap_or(0).max(wait_us);
            }
        }
        (packets.len(), wait_us)
    }

    #[test]
    fn messages_in_quick_succession_share_packets_and_others_leave_at_once() {
        assert_eq!(sent_in_a_second(64, 125), (7_999, 0), "slower than open packets may leave");
        let (packets, wait_us) = sent_in_a_second(64, 2);
        assert!((500_000 / 21..=500_000 / 20).contains(&packets), "{packets} packets of 21 messages");
        assert!((2..=OPEN_US + 2).contains(&wait_us), "{wait_us}");
    }

    #[test]
    fn packets_leave_at_the_pace_after_a_burst() {
        // 100 packets in 10 ms.
        let paced = OutgoingConfig { packets_max: 200, bytes_per_second: Some(1_020_000), ..CONFIG };
        let mut outgoing = Outgoing::new(paced);
        (0..200).for_each(|_| assert!(push(&mut outgoing, &[7; 100], false).is_ok()));
        let mut packets = Vec::new();
        let mut now_us = 1_000_000;
        let due_us = outgoing.take(now_us, 256, |_| 256, &mut packets).unwrap();
        assert!((63..=65).contains(&packets.len()), "{}", packets.len());
        assert!(due_us > now_us);
        now_us += 5_000;
        outgoing.take(now_us, 256, |_| 256, &mut packets);
        assert!((113..=116).contains(&packets.len()), "{}", packets.len());
        assert_eq!(outgoing.take(now_us, 0, |_| 0, &mut packets), None, "nothing is due without room");
    }
}
