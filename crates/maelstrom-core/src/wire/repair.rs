//! A repair: the recipe that names its packets, and the coded symbol.

use crate::counters::Rejected;
use crate::identity::Name;
use crate::packet::MutableFields;
use crate::symbol::SYMBOL_HEADER;
use fec::{
    BLOCK_C_MAX, BLOCK_R_MAX, DENSITY_FULL, Draw, Scheme, SymbolId, Term, cauchy, coding_coefficients,
};
use foundation::Seq;
use foundation::bytes::Reader;

/// Most packets that one repair names.
pub const TERMS_MAX: usize = 64;
// Any position in a recipe has a coefficient.
const _: () = assert!(TERMS_MAX <= BLOCK_R_MAX as usize);
/// Most packets in a sliding window.
pub const WINDOW_MAX: u16 = 512;
/// Packets whose mutable fields differ from the others' in one repair that [`repair_overhead`](super::repair_overhead)
/// leaves room for.
pub const EXCEPTIONS_BUDGET: usize = 4;

/// Kind, scheme, count, row, stride (2), last sequence number (4), common fields (2), number of exceptions.
pub(super) const RECIPE_HEADER: usize = 13;
/// Kind, scheme, count (2), seed (2), density, last sequence number (4), common fields (2), number of exceptions, runs.
pub(super) const WINDOW_HEADER: usize = 14 + RUNS * RUN;
pub(super) const EXCEPTION: usize = 3;
pub(super) const NAME: usize = 4;
/// Runs of names in a window's recipe.
pub(super) const RUNS: usize = 3;
/// How far a run's last packet lies before the window's (2), how many names.
pub(super) const RUN: usize = 3;

/// Number of different repairs of the same named packets.
pub(super) fn rows(scheme: Scheme) -> u8 {
    match scheme {
        Scheme::Layered => 1,
        Scheme::ReedSolomon => BLOCK_C_MAX,
        Scheme::Sliding => 0,
    }
}

/// The byte that names a scheme.
pub(super) fn scheme_to_wire(scheme: Scheme) -> u8 {
    match scheme {
        Scheme::Layered => 1,
        Scheme::ReedSolomon => 2,
        Scheme::Sliding => 3,
    }
}

fn scheme_from_wire(byte: u8) -> Result<Scheme, Rejected> {
    match byte {
        1 => Ok(Scheme::Layered),
        2 => Ok(Scheme::ReedSolomon),
        3 => Ok(Scheme::Sliding),
        _ => Err(Rejected::UnknownScheme),
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

/// A repair as the ingress reads it; borrows the datagram.
#[derive(Clone, Copy, Debug)]
pub struct RecipeView<'a> {
    sum: Sum,
    /// The packets that are named, in order of the stream.
    runs: [Run; RUNS],
    common: MutableFields,
    exceptions: &'a [[u8; EXCEPTION]],
    names: &'a [[u8; NAME]],
    /// The coded symbol.
    pub symbol: &'a [u8],
}

/// Which packets the symbol is the sum of, and times what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// The packets named, as they are.
    Layer,
    /// The packets named, times this row of a Cauchy matrix.
    Block {
        /// Which repair of its block.
        row: u8,
    },
    /// All packets of a window.
    Window {
        /// The oldest.
        first: Seq,
        /// How many, 1 to [`WINDOW_MAX`].
        count: u16,
        /// What their coefficients follow from.
        draw: Draw,
    },
}

/// Packets named, `stride` apart.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Seq,
    stride: u16,
    count: u8,
}

const NO_RUN: Run = Run { first: Seq(0), stride: 1, count: 0 };

impl Run {
    /// The run that ends with `last`; there is no packet before the first of the stream.
    fn ending(last: Seq, stride: u16, count: u8) -> Result<Self, Rejected> {
        let reach = u64::from(count.saturating_sub(1)) * u64::from(stride);
        let first = last.0.checked_sub(reach).map(Seq).ok_or(Rejected::Malformed)?;
        Ok(Self { first, stride, count })
    }

    fn seqs(self) -> impl DoubleEndedIterator<Item = Seq> + ExactSizeIterator {
        (0..self.count).map(move |step| self.first.plus(u64::from(step) * u64::from(self.stride)))
    }

    /// The place behind its last packet.
    fn end(self) -> Seq {
        self.seqs().next_back().map_or(self.first, |last| last.plus(1))
    }
}

impl<'a> RecipeView<'a> {
    /// Reads an authenticated body of kind [`BodyKind::Repair`](super::BodyKind::Repair); positions are taken near
    /// `newest`.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for lengths or numbers out of range, [`Rejected::UnknownScheme`].
    pub fn read(body: &'a [u8], newest: Seq) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [_kind, scheme] = reader.array()?;
        let view = match scheme_from_wire(scheme)? {
            Scheme::Sliding => Self::read_window(reader, newest),
            scheme => Self::read_named(scheme, reader, newest),
        }?;
        if view.symbol.len() <= SYMBOL_HEADER {
            return Err(Rejected::Malformed);
        }
        Ok(view)
    }

    fn read_named(scheme: Scheme, mut reader: Reader<'a>, newest: Seq) -> Result<Self, Rejected> {
        let [count, row] = reader.array()?;
        let stride = reader.u16()?;
        let last = Seq::from_wire(reader.u32()?, newest);
        if count == 0 || stride == 0 || row >= rows(scheme) {
            return Err(Rejected::Malformed);
        }
        let sum = if scheme == Scheme::ReedSolomon { Sum::Block { row } } else { Sum::Layer };
        let (common, exceptions) = read_common(&mut reader)?;
        let run = Run::ending(last, stride, count)?;
        Self::read_names(sum, [run, NO_RUN, NO_RUN], common, exceptions, reader)
    }

    fn read_window(mut reader: Reader<'a>, newest: Seq) -> Result<Self, Rejected> {
        let count = reader.u16()?;
        let seed = reader.u16()?;
        let density = reader.u8()?;
        let last = Seq::from_wire(reader.u32()?, newest);
        if !(1..=WINDOW_MAX).contains(&count) || density > DENSITY_FULL {
            return Err(Rejected::Malformed);
        }
        let first = last.0.checked_sub(u64::from(count) - 1).map(Seq).ok_or(Rejected::Malformed)?;
        let (common, exceptions) = read_common(&mut reader)?;
        let (mut runs, mut free) = ([NO_RUN; RUNS], first);
        for run in &mut runs {
            let (before, names) = (reader.u16()?, reader.u8()?);
            if names == 0 {
                continue;
            }
            let end = last.0.checked_sub(u64::from(before)).map(Seq).ok_or(Rejected::Malformed)?;
            *run = Run::ending(end, 1, names)?;
            // In order, apart, and within the window.
            if run.first < free {
                return Err(Rejected::Malformed);
            }
            free = run.end();
        }
        let draw = Draw { seed, density };
        Self::read_names(Sum::Window { first, count, draw }, runs, common, exceptions, reader)
    }

    fn read_names(
        sum: Sum,
        runs: [Run; RUNS],
        common: MutableFields,
        exceptions: &'a [[u8; EXCEPTION]],
        mut reader: Reader<'a>,
    ) -> Result<Self, Rejected> {
        let count: usize = runs.iter().map(|run| usize::from(run.count)).sum();
        // One at least has the common fields.
        let too_many = exceptions.len() > count.saturating_sub(1);
        if count > TERMS_MAX || too_many || exceptions.iter().any(|&[at, ..]| usize::from(at) >= count) {
            return Err(Rejected::Malformed);
        }
        let (names, _) = reader.take(count * NAME)?.as_chunks();
        Ok(Self { sum, runs, common, exceptions, names, symbol: reader.rest() })
    }

    /// What the symbol is the sum of.
    pub fn sum(&self) -> Sum {
        self.sum
    }

    /// The oldest packet of the sum.
    pub fn first(&self) -> Seq {
        self.packets().next().expect("a sum has one packet at least")
    }

    /// The newest packet of the sum.
    pub fn last(&self) -> Seq {
        self.packets().next_back().expect("a sum has one packet at least")
    }

    /// The packets of the sum, oldest first: 1 to [`TERMS_MAX`], or to [`WINDOW_MAX`] of a window.
    pub fn packets(&self) -> impl DoubleEndedIterator<Item = Seq> {
        let (first, stride, count) = match self.sum {
            Sum::Window { first, count, .. } => (first, 1, count),
            Sum::Layer | Sum::Block { .. } => {
                let Run { first, stride, count } = self.runs[0];
                (first, stride, u16::from(count))
            }
        };
        (0..count).map(move |step| first.plus(u64::from(step) * u64::from(stride)))
    }

    /// The packets that are named, in order of the stream.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> + '_ {
        let mut behind = 0;
        let starts = self.runs.map(|run| {
            behind += usize::from(run.count);
            (run, behind - usize::from(run.count))
        });
        starts.into_iter().flat_map(move |(run, start)| {
            run.seqs().enumerate().map(move |(at, seq)| self.entry(seq, start + at))
        })
    }

    fn entry(&self, seq: Seq, position: usize) -> Entry {
        Entry { seq, name: Name(u32::from_be_bytes(self.names[position])), fields: self.fields(position) }
    }

    /// Writes into `terms` what the symbol is the sum of: packets whose factor is 0 are left out.
    pub fn terms(&self, terms: &mut Vec<Term>) {
        let mut coefficients = [1; WINDOW_MAX as usize];
        match self.sum {
            Sum::Layer => {}
            Sum::Block { row } => {
                for (position, coefficient) in coefficients[..self.names.len()].iter_mut().enumerate() {
                    *coefficient = cauchy(row, position as u8);
                }
            }
            Sum::Window { count, draw, .. } => {
                coding_coefficients(draw.seed, draw.density, &mut coefficients[..usize::from(count)]);
            }
        }
        let all = self.packets().zip(coefficients).filter(|&(_, coefficient)| coefficient != 0);
        terms.clear();
        terms.extend(all.map(|(seq, coefficient)| Term { id: SymbolId(seq.0), coefficient }));
    }

    fn fields(&self, position: usize) -> MutableFields {
        let exception = self.exceptions.iter().find(|&&[at, ..]| usize::from(at) == position);
        exception.map_or(self.common, |&[_, ttl, tos]| MutableFields { ttl, tos })
    }
}

/// The fields that most of the packets named share, and the exceptions.
fn read_common<'a>(reader: &mut Reader<'a>) -> Result<(MutableFields, &'a [[u8; EXCEPTION]]), Rejected> {
    let [ttl, tos, exceptions] = reader.array()?;
    let (exceptions, _) = reader.take(usize::from(exceptions) * EXCEPTION)?.as_chunks();
    Ok((MutableFields { ttl, tos }, exceptions))
}

#[cfg(test)]
mod tests;
