//! Data packets, and the symbols that repairs are made of.

use foundation::bytes::{Reader, Writer};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::joint::{JOINT_MAX, is_joint, messages_of};
use super::kind::Kind;
use super::name::Name;
use crate::counters::{Malformed, Unsound};
use crate::ids::{GroupId, NodeId, StreamKey};

/// Length of a data packet's header: kind, flags, sender (4), group (8), sequence number (4), sender's (4).
pub const DATA_HEADER: usize = 22;
/// Bytes of a symbol before the payload: length (2), flags, rest of the group (4), sender's number (4), check
/// (4).
pub const SYMBOL_HEAD: usize = 15;

const EXPIRES: u8 = 1;
const FRAGMENT: u8 = 2;
const JOINT: u8 = 4;
const TIMED: u8 = 8;
const ENVELOPED: u8 = 16;

/// Length of the time at the beginning of a payload.
pub const SENT: usize = 8;

/// Returns whether a byte of flags has no reserved bit, and at most one form of payload.
fn are_flags(flags: u8) -> bool {
    flags & !(EXPIRES | FRAGMENT | JOINT | TIMED | ENVELOPED) == 0
        && flags & (FRAGMENT | JOINT) != FRAGMENT | JOINT
}

/// Content of a packet beside its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Whether the payload begins with the time of sending, [`SENT`] bytes.
    pub timed: bool,
    /// Whether each message in it begins with an [`Envelope`](super::Envelope).
    pub enveloped: bool,
}

impl Extras {
    /// Nothing.
    pub const NONE: Self = Self { timed: false, enveloped: false };

    fn of_flags(flags: u8) -> Self {
        Self { timed: flags & TIMED != 0, enveloped: flags & ENVELOPED != 0 }
    }

    fn flags(self) -> u8 {
        (u8::from(self.timed) * TIMED) | (u8::from(self.enveloped) * ENVELOPED)
    }
}

/// A data packet, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Node that multicast it.
    pub sender: NodeId,
    /// Group that it was multicast to.
    pub group: GroupId,
    /// Position among the sender's packets to this group, the low 32 bits of a [`Seq`](crate::Seq).
    pub seq: u32,
    /// Position among all packets of the sender.
    pub sender_seq: u32,
    /// Whether it is worthless when late, so that receivers do not request it (Ricochet §4.2.7).
    pub expires: bool,
    /// Whether the payload is a [`Fragment`](super::Fragment) of a message.
    pub fragment: bool,
    /// Whether the payload holds [several messages](super::messages_of). The packet then takes as many
    /// positions in its stream, from `seq` on.
    pub joint: bool,
    /// Content beside its messages.
    pub extras: Extras,
    /// Payload, 0 to 65,535 bytes: the time of sending if it has one, and the [body](Self::body).
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    /// Returns its name in recipes.
    pub fn name(&self) -> Name {
        Name { sender: self.sender, group: self.group.tag(), seq: self.seq }
    }

    /// Returns the stream that it belongs to.
    pub fn key(&self) -> StreamKey {
        StreamKey { sender: self.sender, group: self.group }
    }

    /// Returns the number of consecutive positions in the stream that it takes: one for each of its messages.
    pub fn count(&self) -> u32 {
        if self.joint { messages_of(self.body()).take(JOINT_MAX).count() as u32 } else { 1 }
    }

    /// Returns the message, the messages, or the fragment in it.
    pub fn body(&self) -> &'a [u8] {
        if self.extras.timed { self.payload.get(SENT..).unwrap_or(&[]) } else { self.payload }
    }

    /// Returns the time of sending in microseconds since 1970, by the sender's clock.
    pub fn sent_us(&self) -> Option<u64> {
        let time = self.payload.first_chunk().filter(|_| self.extras.timed)?;
        Some(u64::from_be_bytes(*time))
    }

    /// Returns whether the payload has the form that the flags state.
    fn is_sound(&self) -> bool {
        (!self.extras.timed || self.payload.len() >= SENT) && (!self.joint || is_joint(self.body()))
    }

    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        DATA_HEADER + self.payload.len()
    }

    /// Writes the packet as a [`Kind::Data`] to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is shorter than [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        writer.put(&self.header(Kind::Data));
        writer.put(self.payload);
        writer.written()
    }

    /// Writes the packet as a [`Kind::Retransmission`] to the front of `to`; returns the number of bytes
    /// written.
    ///
    /// # Panics
    /// If `to` is shorter than [`wire_len`](Self::wire_len).
    pub fn write_retransmission(&self, to: &mut [u8]) -> usize {
        let length = self.write(to);
        to[0] = Kind::Retransmission.to_wire();
        length
    }

    /// Returns the header alone, for a caller that sends header and payload from two buffers.
    pub fn header(&self, kind: Kind) -> [u8; DATA_HEADER] {
        let mut header = [0; DATA_HEADER];
        let mut writer = Writer::new(&mut header);
        writer.put(&[kind.to_wire(), self.flags()]);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.seq.to_be_bytes());
        writer.put(&self.sender_seq.to_be_bytes());
        header
    }

    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let flags = body.u8()?;
        let (sender, group) = (NodeId(body.u32()?), GroupId(body.u64()?));
        let numbers = (body.u32()?, body.u32()?);
        Self::from_parts(flags, sender, group, numbers, body.0)
    }

    /// Makes a packet of its flags, its sequence number and that of the sender, and its payload.
    pub(crate) fn from_parts(
        flags: u8,
        sender: NodeId,
        group: GroupId,
        (seq, sender_seq): (u32, u32),
        payload: &'a [u8],
    ) -> Result<Self, Malformed> {
        if !are_flags(flags) {
            return Err(Malformed::Reserved);
        }
        let data = Self {
            sender,
            group,
            seq,
            sender_seq,
            expires: flags & EXPIRES != 0,
            fragment: flags & FRAGMENT != 0,
            joint: flags & JOINT != 0,
            extras: Extras::of_flags(flags),
            payload,
        };
        if data.payload.len() > usize::from(u16::MAX) {
            return Err(Malformed::TooLong);
        }
        if data.is_sound() { Ok(data) } else { Err(Malformed::TooShort) }
    }

    /// Returns the bytes before the payload in the packet's symbol: the fields that its name leaves out, and
    /// a check.
    ///
    /// # Panics
    /// If the payload is longer than 65,535 bytes, which no datagram holds.
    pub fn symbol_head(&self) -> [u8; SYMBOL_HEAD] {
        let length = u16::try_from(self.payload.len()).expect("a payload fits a datagram");
        let mut head = [0; SYMBOL_HEAD];
        let mut writer = Writer::new(&mut head);
        writer.put(&length.to_be_bytes());
        writer.put(&[self.flags()]);
        writer.put(&self.group.rest().to_be_bytes());
        writer.put(&self.sender_seq.to_be_bytes());
        writer.put(&self.check().to_be_bytes());
        head
    }

    /// Reads the packet called `name`, of `group`, from its symbol, which may be padded with zeros.
    ///
    /// # Errors
    /// [`Unsound`] if the symbol cannot be that of the named packet.
    pub fn from_symbol(name: Name, group: GroupId, symbol: &'a [u8]) -> Result<Self, Unsound> {
        let mut reader = Reader(symbol);
        let mut head = || Ok((reader.u16()?, reader.u8()?, reader.u32()?, reader.u32()?, reader.u32()?));
        let (length, flags, rest, sender_seq, check) = head().map_err(|_: Malformed| Unsound::Length)?;
        let (payload, padding) = reader.0.split_at_checked(usize::from(length)).ok_or(Unsound::Length)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Unsound::Length);
        }
        if rest != group.rest() || name.group != group.tag() {
            return Err(Unsound::Group);
        }
        if !are_flags(flags) {
            return Err(Unsound::Reserved);
        }
        let data = Self {
            sender: name.sender,
            group,
            seq: name.seq,
            sender_seq,
            expires: flags & EXPIRES != 0,
            fragment: flags & FRAGMENT != 0,
            joint: flags & JOINT != 0,
            extras: Extras::of_flags(flags),
            payload,
        };
        if data.check() != check || !data.is_sound() {
            return Err(Unsound::Check);
        }
        Ok(data)
    }

    /// Returns whether packets with these flags hold one message each.
    pub(crate) fn is_single(flags: u8) -> bool {
        flags & (FRAGMENT | JOINT) == 0
    }

    /// Returns the byte of flags.
    pub(crate) fn flags(&self) -> u8 {
        (u8::from(self.expires) * EXPIRES)
            | (u8::from(self.fragment) * FRAGMENT)
            | (u8::from(self.joint) * JOINT)
            | self.extras.flags()
    }

    /// Returns a 32-bit hash of the whole packet. A repair whose names do not match its symbols then recovers
    /// nothing rather than a wrong packet. The hash does not protect against forgery; the cluster key does.
    fn check(&self) -> u32 {
        xxh3_64_with_seed(self.payload, xxh3_64(&self.header(Kind::Data))) as u32
    }
}
