//! Repairs: a recipe, with or without the XOR of the packets that it names.

use foundation::bytes::{Reader, Writer};

use super::data::SYMBOL_HEAD;
use super::kind::Kind;
use super::name::{NAME, Name};
use crate::counters::Malformed;
use crate::ids::NodeId;

/// Maximum number of packets named in one repair.
pub const NAMES_MAX: usize = 64;
/// Length of a repair before its names: kind, flags, count, sender (4).
pub const REPAIR_HEADER: usize = 7;

const XOR: u8 = 1;

/// A repair as its sender writes it.
#[derive(Clone, Copy, Debug)]
pub struct Repair<'a> {
    /// Node that made it.
    pub from: NodeId,
    /// Names of the packets in it, 1 to [`NAMES_MAX`], each once.
    pub names: &'a [Name],
    /// XOR of their symbols; without it, the repair is a lateral digest.
    pub symbol: Option<&'a [u8]>,
}

impl Repair<'_> {
    /// Returns the length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        REPAIR_HEADER + self.names.len() * NAME + self.symbol.map_or(0, <[u8]>::len)
    }

    /// Writes the repair to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If it names no packet or too many, if its symbol is shorter than [`SYMBOL_HEAD`], or if `to` is
    /// shorter than [`wire_len`](Self::wire_len).
    pub fn write(&self, to: &mut [u8]) -> usize {
        let count = self.names.len();
        assert!((1..=NAMES_MAX).contains(&count), "a repair: expected 1 to {NAMES_MAX} names, saw {count}");
        assert!(self.symbol.is_none_or(|symbol| symbol.len() >= SYMBOL_HEAD), "a symbol has a whole head");
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
    /// Node that made it, and that holds the packets it names.
    pub from: NodeId,
    names: &'a [[u8; NAME]],
    /// XOR of the packets' symbols; `None` in a lateral digest.
    pub symbol: Option<&'a [u8]>,
}

impl<'a> RepairView<'a> {
    /// Returns the length on the wire in bytes.
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
        // A packet named twice would cancel itself out of the sum. The search is quadratic in at most 64
        // names.
        if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            return Err(Malformed::Repeated);
        }
        Ok(Self { from, names, symbol })
    }

    /// Returns the number of packets that it names, 1 to [`NAMES_MAX`].
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the names of its packets, in the order in which they entered it.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = Name> + ExactSizeIterator + use<'a> {
        self.names.iter().map(|&bytes| Name::from_wire(bytes))
    }
}
