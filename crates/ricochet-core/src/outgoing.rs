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

use crate::ids::GroupId;
use crate::message::{SendError, SendOptions};
use crate::wire::{Fragment, JOINT_MAX, MESSAGE_HEAD};

/// Maximum number of groups of one sender.
const GROUPS_MAX: usize = 1 << 16;
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

    fn takes(&self, message: &[u8], options: SendOptions, payload_max: usize) -> bool {
        !self.is_fragment
            && self.messages < JOINT_MAX
            && self.expires == options.expires
            && self.bytes.len() + MESSAGE_HEAD + message.len() <= payload_max
    }

    fn add(&mut self, message: &[u8]) {
        let length = u16::try_from(message.len()).expect("a message in a packet fits a datagram");
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(message);
        self.messages += 1;
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
        }
    }

    /// Puts a message in; returns its sequence number, which is that of its first packet if it has several.
    ///
    /// # Errors
    /// [`NotTaken`]; then nothing was put in.
    pub fn push(
        &mut self,
        now_us: u64,
        group: GroupId,
        message: &[u8],
        options: SendOptions,
        fragments: bool,
    ) -> Result<u32, NotTaken> {
        let OutgoingConfig { payload_max, message_max, packets_max, bytes_max, .. } = self.config;
        let longest = if fragments { message_max } else { payload_max };
        if message.len() > longest {
            let error = SendError::TooLong { length: message.len(), payload_max: longest };
            return Err(NotTaken::Refused(error));
        }
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            return Err(NotTaken::Refused(SendError::TooManyGroups));
        }
        if self.bytes > 0 && self.bytes + message.len() > bytes_max {
            return Err(NotTaken::Full);
        }
        let waiting = self.groups.entry(group).or_default();
        if let Some(open) = waiting.packets.back_mut()
            && open.takes(message, options, payload_max)
        {
            let before = open.bytes.len();
            open.add(message);
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
        Ok(self.push_packets(now_us, group, message, options))
    }

    /// Puts a message into packets of its own; returns the sequence number of the first.
    fn push_packets(&mut self, now_us: u64, group: GroupId, message: &[u8], options: SendOptions) -> u32 {
        let OutgoingConfig { payload_max, fragment_size, .. } = self.config;
        let Self { groups, packets, bytes, idle, .. } = self;
        let waiting = groups.entry(group).or_default();
        let mut add = |packet: Packet| {
            *packets += 1;
            *bytes += packet.bytes.len();
            waiting.packets.push_back(packet);
            waiting.next = waiting.next.wrapping_add(1);
            waiting.next.wrapping_sub(1)
        };
        let mut new = |is_fragment| Packet {
            group,
            bytes: idle.pop().unwrap_or_else(|| Vec::with_capacity(payload_max + MESSAGE_HEAD)),
            messages: 0,
            is_fragment,
            expires: options.expires,
            since_us: now_us,
        };
        if message.len() <= payload_max {
            let mut packet = new(false);
            packet.add(message);
            return add(packet);
        }
        let mut first = None;
        for index in 0..=u16::MAX {
            let Some(fragment) = Fragment::of(message, index, fragment_size) else { break };
            let mut packet = new(true);
            packet.bytes.resize(payload_max, 0);
            let length = fragment.write(&mut packet.bytes);
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
                let Some(packet) = waiting.packets.pop_front() else { break };
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
    use crate::wire::messages_of;

    const GROUP: GroupId = GroupId(7);

    const CONFIG: OutgoingConfig = OutgoingConfig {
        payload_max: 100,
        message_max: 1_000,
        fragment_size: 90,
        packets_max: 8,
        bytes_max: 100_000,
        linger_us: 0,
        bytes_per_second: None,
    };

    fn push(outgoing: &mut Outgoing, message: &[u8], fragments: bool) -> Result<u32, NotTaken> {
        outgoing.push(0, GROUP, message, SendOptions::default(), fragments)
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
        let other = outgoing.push(0, GroupId(8), &[1], SendOptions::default(), false);
        assert_eq!(other, Ok(0));
        assert_eq!(taken(&mut outgoing, 0, 11).len(), 12, "eleven of the one group, and one of the other");
        assert_eq!(push(&mut outgoing, &[1; 60], false), Ok(12));
    }

    #[test]
    fn the_bytes_of_all_groups_together_are_bounded() {
        let mut outgoing = Outgoing::new(OutgoingConfig { bytes_max: 300, ..CONFIG });
        assert_eq!(push(&mut outgoing, &[1; 1_000], true), Ok(0), "one message may be longer");
        for group in 8..40 {
            let other = outgoing.push(0, GroupId(group), &[1], SendOptions::default(), false);
            assert_eq!(other, Err(NotTaken::Full));
        }
        taken(&mut outgoing, 0, 64);
        let groups = (8..40).filter(|&group| {
            outgoing.push(0, GroupId(group), &[1; 90], SendOptions::default(), false).is_ok()
        });
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
                outgoing.push(now_us, GROUP, &message, SendOptions::default(), false).unwrap();
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
