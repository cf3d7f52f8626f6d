//! Repairs: a recipe, and with it or without it the XOR of what it names.

use super::{Kind, Reader, SYMBOL_HEAD, Writer};
use crate::counters::Malformed;
use crate::ids::{GroupTag, NodeId};

/// Most packets named in one repair.
pub const NAMES_MAX: usize = 64;
/// Length of a repair before its names: kind, flags, count, sender (4).
pub const REPAIR_HEADER: usize = 7;
/// Length of a name: sender (4), group (4), sequence number (4).
pub const NAME: usize = 12;

const XOR: u8 = 1;

/// What a recipe calls a data packet (Ricochet §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Who multicast it.
    pub sender: NodeId,
    /// The short form of its group: the sender and the receiver of a repair are both in it.
    pub group: GroupTag,
    /// Its sequence number's low 32 bits.
    pub seq: u32,
}

impl Name {
    fn to_wire(self) -> [u8; NAME] {
        let mut bytes = [0; NAME];
        let mut writer = Writer::new(&mut bytes);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.seq.to_be_bytes());
        bytes
    }

    fn from_wire(bytes: [u8; NAME]) -> Self {
        let [sender, group, seq] =
            [0, 4, 8].map(|at| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        Self { sender: NodeId(sender), group: GroupTag(group), seq }
    }
}

/// A repair as its sender writes it.
#[derive(Clone, Copy, Debug)]
pub struct Repair<'a> {
    /// Who made it.
    pub from: NodeId,
    /// The packets in it, 1 to [`NAMES_MAX`], each once.
    pub names: &'a [Name],
    /// The XOR of their symbols; without it, the repair is a digest.
    pub symbol: Option<&'a [u8]>,
}

impl Repair<'_> {
    /// Length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        REPAIR_HEADER + self.names.len() * NAME + self.symbol.map_or(0, <[u8]>::len)
    }

    /// Writes the repair into the front of `to`; returns how many bytes.
    ///
    /// # Panics
    /// If it names none or too many, if its symbol has no whole head, or if `to` is shorter than
    /// [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        let count = self.names.len();
        assert!((1..=NAMES_MAX).contains(&count), "a repair names 1 to {NAMES_MAX} packets, not {count}");
        assert!(self.symbol.is_none_or(|symbol| symbol.len() >= SYMBOL_HEAD), "a symbol has a head");
        let flags = if self.symbol.is_some() { XOR } else { 0 };
        let mut writer = Writer::new(to);
        writer.put(&[Kind::Repair.to_wire(), flags, count as u8]);
        writer.put(&self.from.0.to_be_bytes());
        for name in self.names {
            writer.put(&name.to_wire());
        }
        writer.put(self.symbol.unwrap_or_default());
        writer.written()
    }
}

/// A repair as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairView<'a> {
    /// Who made it, and so holds what it names.
    pub from: NodeId,
    names: &'a [[u8; NAME]],
    /// The XOR of the packets' symbols, unless this is a digest.
    pub symbol: Option<&'a [u8]>,
}

impl<'a> RepairView<'a> {
    /// Length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        REPAIR_HEADER + self.names.len() * NAME + self.symbol.map_or(0, <[u8]>::len)
    }

    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let [flags, count] = body.array()?;
        if flags & !XOR != 0 {
            return Err(Malformed::Reserved);
        }
        let from = NodeId(body.u32()?);
        let names = body.list(count, NAMES_MAX)?;
        let symbol = if flags & XOR != 0 {
            if body.0.len() < SYMBOL_HEAD {
                return Err(Malformed::TooShort);
            }
            Some(body.0)
        } else {
            body.end()?;
            None
        };
        // A packet named twice would cancel itself out of the sum. Quadratic, but in at most 64.
        if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            return Err(Malformed::Repeated);
        }
        Ok(Self { from, names, symbol })
    }

    /// How many packets it names: 1 to [`NAMES_MAX`].
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The packets it names, in the order in which they entered it.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = Name> + ExactSizeIterator + use<'a> {
        self.names.iter().map(|&bytes| Name::from_wire(bytes))
    }
}
