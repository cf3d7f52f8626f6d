//! Messages on their way to the network: cut into packets, or together in one packet if they have to wait.
//!
//! A driver puts messages in from any thread, under a lock of its own, and takes packets out for the node
//! ([`Node::send_packet`](crate::Node::send_packet)) while the receivers have room. Each packet has its
//! sequence number from the beginning, so all packets of this node to a group must pass through one
//! [`Outgoing`].

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::ids::GroupId;
use crate::message::{SendError, SendOptions};
use crate::wire::{Fragment, JOINT_MAX, MESSAGE_HEAD};

/// Maximum number of groups of one sender.
const GROUPS_MAX: usize = 1 << 16;
/// Maximum number of empty packets kept for reuse.
const IDLE_MAX: usize = 1_024;

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
    /// Time for which a packet waits for further messages, in microseconds.
    pub linger_us: u64,
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
    /// The group has as many packets waiting as it may have.
    Full,
    /// The message cannot be sent.
    Refused(SendError),
}

#[derive(Debug, Default)]
struct Waiting {
    next: u32,
    packets: VecDeque<Packet>,
    /// Whether packets wait because the readers had no room.
    is_held_up: bool,
}

/// Packets that wait for room at their receivers.
#[derive(Debug)]
pub struct Outgoing {
    config: OutgoingConfig,
    groups: HashMap<GroupId, Waiting>,
    /// Groups with packets, in turn.
    turns: VecDeque<GroupId>,
    packets: usize,
    idle: Vec<Vec<u8>>,
}

impl Outgoing {
    /// Creates an empty one.
    pub fn new(config: OutgoingConfig) -> Self {
        Self { config, groups: HashMap::new(), turns: VecDeque::new(), packets: 0, idle: Vec::new() }
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
        let OutgoingConfig { payload_max, message_max, packets_max, fragment_size, linger_us } = self.config;
        let longest = if fragments { message_max } else { payload_max };
        if message.len() > longest {
            let error = SendError::TooLong { length: message.len(), payload_max: longest };
            return Err(NotTaken::Refused(error));
        }
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            return Err(NotTaken::Refused(SendError::TooManyGroups));
        }
        let Self { groups, turns, packets, idle, .. } = self;
        let waiting = groups.entry(group).or_default();
        // Messages that only wait until the core is free leave together, each in its own packet.
        let joins = waiting.is_held_up || linger_us > 0;
        if let Some(last) = waiting.packets.back_mut().filter(|_| joins)
            && last.takes(message, options, payload_max)
        {
            last.add(message);
            let seq = waiting.next;
            waiting.next = seq.wrapping_add(1);
            return Ok(seq);
        }
        if waiting.packets.len() >= packets_max {
            return Err(NotTaken::Full);
        }
        if waiting.packets.is_empty() {
            turns.push_back(group);
        }
        let mut new = |is_fragment| Packet {
            group,
            bytes: idle.pop().unwrap_or_else(|| Vec::with_capacity(payload_max + MESSAGE_HEAD)),
            messages: 0,
            is_fragment,
            expires: options.expires,
            since_us: now_us,
        };
        let first = waiting.next;
        if message.len() <= payload_max {
            let mut packet = new(false);
            packet.add(message);
            waiting.packets.push_back(packet);
            waiting.next = first.wrapping_add(1);
            *packets += 1;
            return Ok(first);
        }
        for index in 0..=u16::MAX {
            let Some(fragment) = Fragment::of(message, index, fragment_size) else { break };
            let mut packet = new(true);
            packet.bytes.resize(payload_max, 0);
            let length = fragment.write(&mut packet.bytes);
            packet.bytes.truncate(length);
            waiting.packets.push_back(packet);
            waiting.next = waiting.next.wrapping_add(1);
            *packets += 1;
        }
        Ok(first)
    }

    /// Moves packets to `out`, at most `count`, while `room` returns that their group has room. The groups
    /// take turns. Returns when packets that linger are due.
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
        for _ in 0..self.turns.len() {
            let Some(group) = self.turns.pop_front() else { break };
            let Some(waiting) = self.groups.get_mut(&group) else { continue };
            let left = count.saturating_sub(out.len()).min(TURN);
            let readers = if left == 0 { 0 } else { room(group) as usize };
            waiting.is_held_up |= left > 0 && readers == 0;
            let mut room = readers.min(left);
            while room > 0
                && let Some(packet) = waiting.packets.front()
            {
                let lingers = waiting.packets.len() == 1 && !packet.is_fragment;
                let until_us = packet.since_us + self.config.linger_us;
                if lingers && until_us > now_us {
                    due_us = Some(due_us.map_or(until_us, |due_us| due_us.min(until_us)));
                    break;
                }
                out.extend(waiting.packets.pop_front());
                self.packets -= 1;
                room -= 1;
            }
            if waiting.packets.is_empty() {
                waiting.is_held_up = false;
            } else {
                self.turns.push_back(group);
            }
        }
        due_us
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

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages_of;

    const GROUP: GroupId = GroupId(7);

    fn outgoing(packets_max: usize, linger_us: u64) -> Outgoing {
        Outgoing::new(OutgoingConfig {
            payload_max: 100,
            message_max: 1_000,
            fragment_size: 90,
            packets_max,
            linger_us,
        })
    }

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
        let mut outgoing = outgoing(8, 0);
        assert_eq!(push(&mut outgoing, &[0xff; 30], false), Ok(0));
        assert_eq!(push(&mut outgoing, &[0xff; 30], false), Ok(1), "it waits for the core alone");
        assert_eq!(taken(&mut outgoing, 0, 64).len(), 2);
        assert_eq!(push(&mut outgoing, &[0; 30], false), Ok(2));
        assert!(taken(&mut outgoing, 0, 0).is_empty(), "the readers have no room");
        let sequence: Vec<_> = (1..10u8).map(|at| push(&mut outgoing, &[at; 30], false).unwrap()).collect();
        assert_eq!(sequence, [3, 4, 5, 6, 7, 8, 9, 10, 11]);
        let packets = taken(&mut outgoing, 0, 64);
        let messages = packets.iter().flat_map(|packet| match packet.form() {
            Form::Joint => messages_of(packet.payload()).map(|message| message[0]).collect::<Vec<_>>(),
            _ => vec![packet.payload()[0]],
        });
        assert!(messages.into_iter().eq(0..10));
        assert_eq!(packets[3].payload(), [9; 30]);
        assert!(outgoing.is_empty());
    }

    #[test]
    fn a_message_as_long_as_a_packet_is_sent_alone() {
        let mut outgoing = outgoing(8, 0);
        push(&mut outgoing, &[1; 100], false).unwrap();
        push(&mut outgoing, &[], false).unwrap();
        let packets = taken(&mut outgoing, 0, 64);
        assert_eq!(packets.iter().map(|packet| packet.payload().len()).collect::<Vec<_>>(), [100, 0]);
        let refused = push(&mut outgoing, &[1; 101], false).unwrap_err();
        assert_eq!(refused, NotTaken::Refused(SendError::TooLong { length: 101, payload_max: 100 }));
    }

    #[test]
    fn a_full_group_takes_nothing_and_other_groups_do() {
        let mut outgoing = outgoing(2, 0);
        assert_eq!(push(&mut outgoing, &[1; 1_000], true), Ok(0), "one long message may exceed the limit");
        assert_eq!(outgoing.len(), 12);
        assert_eq!(push(&mut outgoing, &[1; 60], false), Err(NotTaken::Full));
        let other = outgoing.push(0, GroupId(8), &[1], SendOptions::default(), false);
        assert_eq!(other, Ok(0));
        assert_eq!(taken(&mut outgoing, 0, 11).len(), 12, "eleven of the one group, and one of the other");
        assert_eq!(push(&mut outgoing, &[1; 60], false), Ok(12));
    }

    #[test]
    fn a_packet_lingers_until_its_time_or_until_it_is_full() {
        let mut outgoing = outgoing(8, 50);
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
}
