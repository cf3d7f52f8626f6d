//! Reads a repair: the recipe that names its packets, and the coded symbol.

use super::header::{BodyKind, Lag};
use super::layout::{
    EXCEPTION, Entry, NAME, NAMES_APART_MAX, RUNS, TERMS_MAX, WINDOW_MAX, rows, scheme_from_wire,
};
use crate::counters::Rejected;
use crate::identity::Name;
use crate::packet::MutableFields;
use crate::symbol::SYMBOL_HEADER;
use fec::{DENSITY_FULL, Draw, Scheme, SymbolId, Term, cauchy, coding_coefficients};
use foundation::Seq;
use foundation::bytes::Reader;

/// A repair as the ingress reads it; borrows the datagram.
#[derive(Clone, Copy, Debug)]
pub struct RecipeView<'a> {
    /// Time from the newest protected packet to this repair.
    pub lag: Lag,
    sum: Sum,
    /// Named packets, in order of the stream.
    runs: [Run; RUNS],
    common: MutableFields,
    exceptions: &'a [[u8; EXCEPTION]],
    names: &'a [[u8; NAME]],
    /// The coded symbol.
    pub symbol: &'a [u8],
}

/// The packets in the sum, and the source of their coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// No sum: the packets are named, and no more.
    None,
    /// The named packets, with coefficients 1.
    Layer,
    /// The named packets, times a row of a Cauchy matrix.
    Block {
        /// Number of the repair in its block.
        row: u8,
    },
    /// All packets of a window, or one stripe of them.
    Window {
        /// Oldest packet.
        first: Seq,
        /// Distance of the packets: the number of stripes.
        stride: u16,
        /// Number of packets, 1 to [`WINDOW_MAX`].
        count: u16,
        /// Seed and density of the coefficients.
        draw: Draw,
    },
}

/// Named packets, `stride` apart.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Seq,
    stride: u16,
    count: u8,
}

const NO_RUN: Run = Run { first: Seq(0), stride: 1, count: 0 };

impl Run {
    /// Creates the run that ends with `last`, unless it would begin before the stream.
    fn ending(last: Seq, stride: u16, count: u8) -> Result<Self, Rejected> {
        let reach = u64::from(count.saturating_sub(1)) * u64::from(stride);
        let first = last.0.checked_sub(reach).map(Seq).ok_or(Rejected::Malformed)?;
        Ok(Self { first, stride, count })
    }

    fn seqs(self) -> impl DoubleEndedIterator<Item = Seq> + ExactSizeIterator {
        (0..self.count).map(move |step| self.first.plus(u64::from(step) * u64::from(self.stride)))
    }

    /// Position behind the last packet.
    fn end(self) -> Seq {
        self.seqs().next_back().map_or(self.first, |last| last.plus(1))
    }
}

impl<'a> RecipeView<'a> {
    /// Reads an authenticated body of kind [`BodyKind::Repair`] or [`BodyKind::Names`]. Positions are
    /// interpreted near `newest`.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for lengths or numbers out of range, [`Rejected::UnknownScheme`].
    pub fn read(body: &'a [u8], newest: Seq) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [kind, scheme] = reader.array()?;
        let lag = Lag::read(kind);
        if BodyKind::read(body)? == BodyKind::Names {
            return Ok(Self { lag, ..Self::read_apart(scheme, reader, newest)? });
        }
        let view = match scheme_from_wire(scheme)? {
            Scheme::Sliding => Self::read_window(reader, newest),
            scheme => Self::read_named(scheme, reader, newest),
        }?;
        if view.symbol.len() <= SYMBOL_HEADER {
            return Err(Rejected::Malformed);
        }
        Ok(Self { lag, ..view })
    }

    fn read_apart(count: u8, mut reader: Reader<'a>, newest: Seq) -> Result<Self, Rejected> {
        let last = Seq::from_wire(reader.u32()?, newest);
        let (common, exceptions) = read_common(&mut reader)?;
        let run = Run::ending(last, 1, count)?;
        let view = Self::read_names(Sum::None, [run, NO_RUN, NO_RUN], common, exceptions, reader)?;
        if count == 0 || !view.symbol.is_empty() { Err(Rejected::Malformed) } else { Ok(view) }
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
        let window = reader.u16()?;
        let seed = reader.u16()?;
        let spread = reader.u8()?;
        let (stride, density) = (u16::from(spread >> 4) + 1, spread & DENSITY_FULL);
        let last = Seq::from_wire(reader.u32()?, newest);
        // The window begins and ends with packets of its stripe.
        if !(1..=WINDOW_MAX).contains(&window) || !(window - 1).is_multiple_of(stride) {
            return Err(Rejected::Malformed);
        }
        let count = (window - 1) / stride + 1;
        let first = last.0.checked_sub(u64::from(window) - 1).map(Seq).ok_or(Rejected::Malformed)?;
        let (common, exceptions) = read_common(&mut reader)?;
        let (mut runs, mut free) = ([NO_RUN; RUNS], first);
        for run in &mut runs {
            let (before, names) = (reader.u16()?, reader.u8()?);
            if names == 0 {
                continue;
            }
            let end = last.0.checked_sub(u64::from(before)).map(Seq).ok_or(Rejected::Malformed)?;
            *run = Run::ending(end, 1, names)?;
            // Runs are in order, do not overlap, and lie in the window.
            if run.first < free {
                return Err(Rejected::Malformed);
            }
            free = run.end();
        }
        let draw = Draw { seed, density };
        Self::read_names(Sum::Window { first, stride, count, draw }, runs, common, exceptions, reader)
    }

    fn read_names(
        sum: Sum,
        runs: [Run; RUNS],
        common: MutableFields,
        exceptions: &'a [[u8; EXCEPTION]],
        mut reader: Reader<'a>,
    ) -> Result<Self, Rejected> {
        let count: usize = runs.iter().map(|run| usize::from(run.count)).sum();
        // At least one packet has the common fields.
        let too_many = exceptions.len() > count.saturating_sub(1);
        let count_max = if sum == Sum::None { NAMES_APART_MAX } else { TERMS_MAX };
        if count > count_max || too_many || exceptions.iter().any(|&[at, ..]| usize::from(at) >= count) {
            return Err(Rejected::Malformed);
        }
        let (names, _) = reader.take(count * NAME)?.as_chunks();
        Ok(Self { lag: Lag::UNKNOWN, sum, runs, common, exceptions, names, symbol: reader.rest() })
    }

    /// The packets in the sum, and the source of their coefficients.
    pub fn sum(&self) -> Sum {
        self.sum
    }

    /// Oldest packet of the sum.
    pub fn first(&self) -> Seq {
        self.packets().next().expect("a sum has at least one packet")
    }

    /// Newest packet of the sum.
    pub fn last(&self) -> Seq {
        self.packets().next_back().expect("a sum has at least one packet")
    }

    /// Packets of the sum, oldest first: 1 to [`TERMS_MAX`], or 1 to [`WINDOW_MAX`] of a window. Without a
    /// sum, the packets named.
    pub fn packets(&self) -> impl DoubleEndedIterator<Item = Seq> {
        let (first, stride, count) = match self.sum {
            Sum::Window { first, stride, count, .. } => (first, stride, count),
            Sum::None | Sum::Layer | Sum::Block { .. } => {
                let Run { first, stride, count } = self.runs[0];
                (first, stride, u16::from(count))
            }
        };
        (0..count).map(move |step| first.plus(u64::from(step) * u64::from(stride)))
    }

    /// Named packets, in order of the stream.
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

    /// Whether this is no repair, but names of packets.
    pub fn is_names_only(&self) -> bool {
        self.sum == Sum::None
    }

    /// Writes the terms of the sum into `terms`, without packets whose coefficient is 0.
    pub fn terms(&self, terms: &mut Vec<Term>) {
        let mut coefficients = [1; WINDOW_MAX as usize];
        match self.sum {
            Sum::None => return terms.clear(),
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

/// Reads the fields that most of the named packets share, and the exceptions.
fn read_common<'a>(reader: &mut Reader<'a>) -> Result<(MutableFields, &'a [[u8; EXCEPTION]]), Rejected> {
    let [ttl, tos, exceptions] = reader.array()?;
    let (exceptions, _) = reader.take(usize::from(exceptions) * EXCEPTION)?.as_chunks();
    Ok((MutableFields { ttl, tos }, exceptions))
}

#[cfg(test)]
mod tests;
