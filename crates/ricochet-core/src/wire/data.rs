//! Data packets, and the symbols that repairs are made of.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Kind, Name, Reader, Writer};
use crate::counters::{Malformed, Unsound};
use crate::ids::{GroupId, NodeId, StreamKey};

/// Length of a data packet's header: kind, flags, sender (4), group (8), sequence number (4), sender's (4).
pub const DATA_HEADER: usize = 22;
/// Bytes of a symbol before the payload: length (2), flags, rest of the group (4), sender's number (4), check (4).
pub const SYMBOL_HEAD: usize = 15;

const EXPIRES: u8 = 1;
const FRAGMENT: u8 = 2;

/// A data packet, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Who multicast it.
    pub sender: NodeId,
    /// To whom.
    pub group: GroupId,
    /// Its place among the sender's packets to this group, the low 32 bits of a [`Seq`](crate::Seq).
    pub seq: u32,
    /// Its place among all packets of the sender.
    pub sender_seq: u32,
    /// Not worth asking for once it is late (Ricochet §4.2.7).
    pub expires: bool,
    /// Its payload is a part of a message, and says itself which.
    pub fragment: bool,
    /// What the application sent; up to 65,535 bytes, none included.
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    /// What a recipe calls it.
    pub fn name(&self) -> Name {
        Name { sender: self.sender, group: self.group.tag(), seq: self.seq }
    }

    /// Its stream.
    pub fn key(&self) -> StreamKey {
        StreamKey { sender: self.sender, group: self.group }
    }

    /// Length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        DATA_HEADER + self.payload.len()
    }

    /// Writes the packet as a [`Kind::Data`] into the front of `to`; returns how many bytes.
    ///
    /// # Panics
    /// If `to` is shorter than [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        writer.put(&self.header(Kind::Data));
        writer.put(self.payload);
        writer.written()
    }

    /// Writes the packet as a [`Kind::Retransmission`] into the front of `to`; returns how many bytes.
    ///
    /// # Panics
    /// If `to` is shorter than [`wire_len`](Self::wire_len).
    pub fn write_again(&self, to: &mut [u8]) -> usize {
        let length = self.write(to);
        to[0] = Kind::Retransmission.to_wire();
        length
    }

    /// The header alone, for those who send it and the payload from two places.
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
        if flags & !(EXPIRES | FRAGMENT) != 0 {
            return Err(Malformed::Reserved);
        }
        let data = Self {
            sender: NodeId(body.u32()?),
            group: GroupId(body.u64()?),
            seq: body.u32()?,
            sender_seq: body.u32()?,
            expires: flags & EXPIRES != 0,
            fragment: flags & FRAGMENT != 0,
            payload: body.0,
        };
        if data.payload.len() > usize::from(u16::MAX) { Err(Malformed::TooLong) } else { Ok(data) }
    }

    /// What stands before the payload in the packet's symbol: all that its name does not say, and a check.
    ///
    /// # Panics
    /// If the payload is longer than 65,535 bytes: no datagram is.
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

    /// The packet called `name`, of `group`, from its symbol, which may be padded with zeros.
    ///
    /// # Errors
    /// [`Unsound`] if this cannot be the packet that bears the name.
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
        if flags & !(EXPIRES | FRAGMENT) != 0 {
            return Err(Unsound::Reserved);
        }
        let (expires, fragment) = (flags & EXPIRES != 0, flags & FRAGMENT != 0);
        let data = Self { sender: name.sender, group, seq: name.seq, sender_seq, expires, fragment, payload };
        if data.check() == check { Ok(data) } else { Err(Unsound::Check) }
    }

    fn flags(&self) -> u8 {
        (u8::from(self.expires) * EXPIRES) | (u8::from(self.fragment) * FRAGMENT)
    }

    /// 32 bits over the whole packet, so that a repair of packets that are not what they are called brings back
    /// nothing rather than something wrong. No protection against intent; that is the cluster key's.
    fn check(&self) -> u32 {
        xxh3_64_with_seed(self.payload, xxh3_64(&self.header(Kind::Data))) as u32
    }
}
