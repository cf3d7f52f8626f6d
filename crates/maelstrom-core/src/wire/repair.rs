//! A repair: the recipe that names its packets, and the coded symbol.

use super::{BodyKind, SEALED_HEADER, TAG};
use crate::counters::Rejected;
use crate::identity::Name;
use crate::packet::MutableFields;
use crate::symbol::SYMBOL_HEADER;
use fec::{BLOCK_C_MAX, BLOCK_R_MAX, cauchy};
use foundation::Seq;
use foundation::bytes::{Reader, Writer};

/// Most packets in one repair.
pub const TERMS_MAX: usize = 64;
// Any position in a recipe has a coefficient.
const _: () = assert!(TERMS_MAX <= BLOCK_R_MAX as usize);
/// Packets whose mutable fields differ from the others' in one repair that [`repair_overhead`] leaves room for.
pub const EXCEPTIONS_BUDGET: usize = 4;

/// Kind, scheme, count, row, stride (2), last sequence number (4), common fields (2), number of exceptions.
const RECIPE_HEADER: usize = 13;
const EXCEPTION: usize = 3;
const NAME: usize = 4;
/// Kind, which half, serial number (4).
const HALF_HEADER: usize = 6;

/// Which code made a repair, and so its coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// XOR of packets one interleave apart (Maelstrom §4.3): all coefficients are 1.
    Layered,
    /// Blocks of packets, each with several repairs, one for each row of a Cauchy matrix: [`fec::cauchy`].
    ReedSolomon,
}

impl Scheme {
    /// How many different repairs there are of the same packets.
    fn rows(self) -> u8 {
        match self {
            Scheme::Layered => 1,
            Scheme::ReedSolomon => BLOCK_C_MAX,
        }
    }

    fn to_wire(self) -> u8 {
        match self {
            Scheme::Layered => 1,
            Scheme::ReedSolomon => 2,
        }
    }

    fn from_wire(byte: u8) -> Result<Self, Rejected> {
        match byte {
            1 => Ok(Scheme::Layered),
            2 => Ok(Scheme::ReedSolomon),
            _ => Err(Rejected::UnknownScheme),
        }
    }
}

/// What the egress remembers of each packet in a bin, and a recipe says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the protected stream.
    pub seq: Seq,
    /// The short identity.
    pub name: Name,
    /// The fields that routers change, as they left.
    pub fields: MutableFields,
}

/// A recipe as the egress writes it.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// The code.
    pub scheme: Scheme,
    /// Which repair of its block; 0 where a code has one.
    pub row: u8,
    /// How far apart its packets are in the stream.
    pub stride: u16,
    /// Its packets in order of the stream, 1 to [`TERMS_MAX`], `stride` apart.
    pub entries: &'a [Entry],
}

impl Recipe<'_> {
    /// Length on the wire in bytes, the symbol excluded.
    pub fn wire_len(&self) -> usize {
        RECIPE_HEADER + self.exceptions().count() * EXCEPTION + self.entries.len() * NAME
    }

    /// Writes kind and recipe into the front of `to`; returns how many bytes.
    pub fn write(&self, to: &mut [u8]) -> usize {
        let count = self.entries.len();
        assert!((1..=TERMS_MAX).contains(&count), "a repair holds 1 to {TERMS_MAX} packets, not {count}");
        assert!(self.row < self.scheme.rows(), "{:?} has no row {}", self.scheme, self.row);
        let common = self.common();
        let last = self.entries[count - 1].seq;
        let exceptions = self.exceptions().count();
        let mut writer = Writer::new(to);
        writer.put(&[BodyKind::Repair.to_wire(), self.scheme.to_wire(), count as u8, self.row]);
        writer.put(&self.stride.to_be_bytes());
        writer.put(&last.to_wire().to_be_bytes());
        writer.put(&[common.ttl, common.tos, exceptions as u8]);
        for (position, entry) in self.exceptions() {
            writer.put(&[position as u8, entry.fields.ttl, entry.fields.tos]);
        }
        for entry in self.entries {
            writer.put(&entry.name.0.to_be_bytes());
        }
        writer.written()
    }

    /// The fields that travel once: the last packet's, since neighbours mostly share them.
    fn common(&self) -> MutableFields {
        self.entries.last().map(|entry| entry.fields).unwrap_or_default()
    }

    fn exceptions(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let common = self.common();
        self.entries.iter().enumerate().filter(move |(_, entry)| entry.fields != common)
    }
}

/// A repair as the ingress reads it; borrows the datagram.
#[derive(Clone, Copy, Debug)]
pub struct RecipeView<'a> {
    /// The code.
    pub scheme: Scheme,
    row: u8,
    stride: u16,
    last: Seq,
    common: MutableFields,
    exceptions: &'a [[u8; EXCEPTION]],
    names: &'a [[u8; NAME]],
    /// The coded symbol.
    pub symbol: &'a [u8],
}

impl<'a> RecipeView<'a> {
    /// Reads an authenticated body of kind [`BodyKind::Repair`]; positions are taken near `newest`.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for lengths or numbers out of range, [`Rejected::UnknownScheme`].
    pub fn read(body: &'a [u8], newest: Seq) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [_kind, scheme, count, row] = reader.array()?;
        let (count, scheme) = (usize::from(count), Scheme::from_wire(scheme)?);
        let stride = reader.u16()?;
        let last = Seq::from_wire(reader.u32()?, newest);
        let [ttl, tos, exceptions] = reader.array()?;
        let exceptions = usize::from(exceptions);
        if !(1..=TERMS_MAX).contains(&count) || exceptions >= count || stride == 0 || row >= scheme.rows() {
            return Err(Rejected::Malformed);
        }
        // No packet stands before the first of the stream.
        if last.0 < (count as u64 - 1) * u64::from(stride) {
            return Err(Rejected::Malformed);
        }
        let (exceptions, _): (&[[u8; EXCEPTION]], _) = reader.take(exceptions * EXCEPTION)?.as_chunks();
        if exceptions.iter().any(|&[position, ..]| usize::from(position) >= count) {
            return Err(Rejected::Malformed);
        }
        let (names, _) = reader.take(count * NAME)?.as_chunks();
        let symbol = reader.rest();
        if symbol.len() <= SYMBOL_HEADER {
            return Err(Rejected::Malformed);
        }
        let common = MutableFields { ttl, tos };
        Ok(Self { scheme, row, stride, last, common, exceptions, names, symbol })
    }

    /// How many packets it names: 1 to [`TERMS_MAX`].
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Which repair of its block; 0 where a code has one.
    pub fn row(&self) -> u8 {
        self.row
    }

    /// How far apart its packets are in the stream.
    pub fn stride(&self) -> u16 {
        self.stride
    }

    /// The last of its packets.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Its packets in order of the stream.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> + ExactSizeIterator + '_ {
        let first = self.last.minus((self.names.len() as u64 - 1) * u64::from(self.stride));
        self.names.iter().enumerate().map(move |(position, name)| Entry {
            seq: first.plus(position as u64 * u64::from(self.stride)),
            name: Name(u32::from_be_bytes(*name)),
            fields: self.fields(position),
        })
    }

    /// The factor of the packet at `position` of [`RecipeView::entries`] in the coded symbol.
    ///
    /// # Panics
    /// If the position is not below [`TERMS_MAX`].
    pub fn coefficient(&self, position: usize) -> u8 {
        assert!(position < TERMS_MAX, "a repair holds up to {TERMS_MAX} packets, so none at {position}");
        match self.scheme {
            Scheme::Layered => 1,
            Scheme::ReedSolomon => cauchy(self.row, position as u8),
        }
    }

    fn fields(&self, position: usize) -> MutableFields {
        let exception = self.exceptions.iter().find(|&&[at, ..]| usize::from(at) == position);
        exception.map_or(self.common, |&[_, ttl, tos]| MutableFields { ttl, tos })
    }
}

/// One half of a repair that was too long for one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half<'a> {
    /// Whether it is the second half.
    pub second: bool,
    /// Both halves carry the same number.
    pub serial: u32,
    /// Its part of the repair's body.
    pub bytes: &'a [u8],
}

impl<'a> Half<'a> {
    /// Length of a half's own header in bytes.
    pub const HEADER: usize = HALF_HEADER;

    /// Reads an authenticated body of kind [`BodyKind::Half`].
    ///
    /// # Errors
    /// [`Rejected::Malformed`].
    pub fn read(body: &'a [u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [_kind, which] = reader.array()?;
        let serial = reader.u32()?;
        let bytes = reader.rest();
        if which > 1 || bytes.is_empty() {
            return Err(Rejected::Malformed);
        }
        Ok(Self { second: which == 1, serial, bytes })
    }
}

/// Writes the header of a half into the first [`Half::HEADER`] bytes of `to`.
pub fn write_half_header(to: &mut [u8], second: bool, serial: u32) {
    to[0] = BodyKind::Half.to_wire();
    to[1] = u8::from(second);
    to[2..HALF_HEADER].copy_from_slice(&serial.to_be_bytes());
}

/// By how many bytes a repair over `r` packets is longer on the WAN than the longest packet in it: outer IP and UDP
/// header, our header and tag, recipe, symbol header. Leaves room for [`EXCEPTIONS_BUDGET`] packets whose mutable
/// fields differ from the others'; a repair with more may have to be cut in two.
pub fn repair_overhead(r: u8, ipv6: bool) -> usize {
    let outer = if ipv6 { 40 + 8 } else { 20 + 8 };
    let r = usize::from(r);
    let exceptions = EXCEPTIONS_BUDGET.min(r.saturating_sub(1)) * EXCEPTION;
    outer + SEALED_HEADER + TAG + RECIPE_HEADER + exceptions + r * NAME + SYMBOL_HEADER
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scheme_and_row() -> impl Strategy<Value = (Scheme, u8)> {
        prop_oneof![Just((Scheme::Layered, 0)), (0..BLOCK_C_MAX).prop_map(|row| (Scheme::ReedSolomon, row))]
    }

    fn entries(first: u64, stride: u16, fields: &[(u8, u8)]) -> Vec<Entry> {
        let entry = |(at, &(ttl, tos)): (usize, &(u8, u8))| Entry {
            seq: Seq(first + at as u64 * u64::from(stride)),
            name: Name(0xdead_0000 + at as u32),
            fields: MutableFields { ttl, tos },
        };
        fields.iter().enumerate().map(entry).collect()
    }

    proptest! {
        #[test]
        fn a_recipe_survives_the_wire(
            first in 0u64..1 << 40,
            stride in 1u16..1024,
            fields in proptest::collection::vec((62u8..64, 0u8..2), 1..=TERMS_MAX),
            symbol in proptest::collection::vec(any::<u8>(), SYMBOL_HEADER + 1..100),
            (scheme, row) in scheme_and_row(),
        ) {
            let entries = entries(first, stride, &fields);
            let recipe = Recipe { scheme, row, stride, entries: &entries };
            let mut body = vec![0; recipe.wire_len()];
            prop_assert_eq!(recipe.write(&mut body), recipe.wire_len());
            body.extend(&symbol);
            let view = RecipeView::read(&body, Seq(first)).unwrap();
            prop_assert_eq!(view.entries().collect::<Vec<_>>(), entries);
            prop_assert_eq!((view.scheme, view.row(), view.stride()), (scheme, row, stride));
            prop_assert_eq!(view.symbol, &symbol[..]);
            let coefficients: Vec<u8> = (0..view.count()).map(|position| view.coefficient(position)).collect();
            prop_assert!(coefficients.iter().all(|&one| one != 0 && (row > 0 || one == 1)));
            for cut in 0..body.len() - symbol.len() + SYMBOL_HEADER {
                prop_assert!(RecipeView::read(&body[..cut], Seq(first)).is_err());
            }
        }

        #[test]
        fn no_bytes_panic_the_readers(mut body: Vec<u8>, newest: u64) {
            if let Ok(view) = RecipeView::read(&body, Seq(newest >> 1)) {
                prop_assert!(view.entries().count() <= TERMS_MAX);
            }
            for (scheme, rows) in [(1, 1), (2, BLOCK_C_MAX)] {
                for row in [0, rows - 1, rows, u8::MAX] {
                    body.splice(0..body.len().min(4), [1, scheme, 8, row]);
                    if let Ok(view) = RecipeView::read(&body, Seq(newest >> 1)) {
                        prop_assert!(row < rows && view.entries().count() == 8);
                        prop_assert!((0..TERMS_MAX).all(|position| view.coefficient(position) != 0));
                    }
                }
            }
            let _ = Half::read(&body);
        }
    }

    #[test]
    fn a_row_that_the_scheme_does_not_have_is_refused() {
        let entries = entries(0, 1, &[(63, 0); 8]);
        let recipe = Recipe { scheme: Scheme::Layered, row: 0, stride: 1, entries: &entries };
        let mut body = vec![0; recipe.wire_len() + SYMBOL_HEADER + 1];
        recipe.write(&mut body);
        for (scheme, row, expected) in [
            (1, 0, Ok(0)),
            (1, 1, Err(Rejected::Malformed)),
            (2, BLOCK_C_MAX - 1, Ok(BLOCK_C_MAX - 1)),
            (2, BLOCK_C_MAX, Err(Rejected::Malformed)),
            (2, u8::MAX, Err(Rejected::Malformed)),
            (0, 0, Err(Rejected::UnknownScheme)),
            (3, 0, Err(Rejected::UnknownScheme)),
        ] {
            (body[1], body[3]) = (scheme, row);
            assert_eq!(RecipeView::read(&body, Seq(7)).map(|view| view.row()), expected, "{scheme}, {row}");
        }
    }

    #[test]
    fn the_stated_overhead_is_what_goes_over_the_link() {
        let fields: Vec<_> =
            (0..20).map(|at| (if at < EXCEPTIONS_BUDGET as u8 { 60 } else { 63 }, 0)).collect();
        let entries = entries(0, 1, &fields);
        let recipe = Recipe { scheme: Scheme::Layered, row: 0, stride: 1, entries: &entries };
        let datagram = SEALED_HEADER + recipe.wire_len() + SYMBOL_HEADER + TAG;
        assert_eq!(repair_overhead(20, false), 28 + datagram);
        assert_eq!(repair_overhead(20, true), 48 + datagram);
    }
}
