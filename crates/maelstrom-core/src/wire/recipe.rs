//! Writes a recipe, which precedes the coded symbol.

use std::ops::Range;

use super::header::{BodyKind, Lag, SEALED_HEADER, TAG};
use super::layout::{
    EXCEPTION, EXCEPTIONS_BUDGET, Entry, NAME, NAMES_APART_MAX, NAMES_HEADER, RECIPE_HEADER, RUN, RUNS,
    TERMS_MAX, WINDOW_HEADER, WINDOW_MAX, rows, scheme_to_wire,
};
use crate::packet::MutableFields;
use crate::symbol::SYMBOL_HEADER;
use fec::{Draw, STRIPES_MAX, Scheme};
use foundation::Seq;
use foundation::bytes::Writer;

/// Description of a repair's packets.
#[derive(Clone, Debug)]
pub enum Recipe<'a> {
    /// Every packet is named.
    Named {
        /// The scheme: layered or Reed–Solomon.
        scheme: Scheme,
        /// Number of the repair in its block; 0 for a layer.
        row: u8,
        /// Distance of its packets in the stream.
        stride: u16,
        /// Packets in order of the stream, 1 to [`TERMS_MAX`], `stride` apart.
        entries: &'a [Entry],
    },
    /// Names of packets of a sliding window, without a symbol.
    Names {
        /// Packets in order of the stream, 1 to [`NAMES_APART_MAX`], consecutive.
        entries: &'a [Entry],
    },
    /// Some packets of a sliding window are named (`docs/adr/0007-names-of-a-sliding-window.md`).
    Window {
        /// Seed and density of the coefficients.
        draw: Draw,
        /// Number of stripes, 1 to [`STRIPES_MAX`], of which that of the first packet is in the sum.
        stripes: u8,
        /// All packets from the oldest to the newest of the sum, 1 to [`WINDOW_MAX`], consecutive in the
        /// stream.
        window: &'a [Entry],
        /// Runs of named packets, in order, of together at most [`TERMS_MAX`] packets.
        named: [Range<Seq>; RUNS],
    },
}

impl Recipe<'_> {
    /// Length on the wire in bytes, without the symbol.
    pub fn wire_len(&self) -> usize {
        let header = match self {
            Self::Named { .. } => RECIPE_HEADER,
            Self::Window { .. } => WINDOW_HEADER,
            Self::Names { .. } => NAMES_HEADER,
        };
        header + self.exceptions().count() * EXCEPTION + self.named().count() * NAME
    }

    /// Writes kind, lag and recipe into the front of `to`; returns their length in bytes.
    ///
    /// # Panics
    /// If a number is out of its range, or `to` is too short.
    pub fn write(&self, lag: Lag, to: &mut [u8]) -> usize {
        let mut writer = Writer::new(to);
        match self {
            Self::Named { scheme, row, stride, entries } => {
                let count = entries.len();
                assert!(
                    (1..=TERMS_MAX).contains(&count),
                    "a repair holds 1 to {TERMS_MAX} packets, not {count}"
                );
                assert!(*row < rows(*scheme), "{scheme:?} has no row {row}");
                let kind = lag.beside(BodyKind::Repair);
                writer.put(&[kind, scheme_to_wire(*scheme), count as u8, *row]);
                writer.put(&stride.to_be_bytes());
                writer.put(&entries[count - 1].seq.to_wire().to_be_bytes());
            }
            Self::Names { entries } => {
                let count = entries.len();
                assert!((1..=NAMES_APART_MAX).contains(&count), "{count} names");
                writer.put(&[lag.beside(BodyKind::Names), count as u8]);
                writer.put(&entries[count - 1].seq.to_wire().to_be_bytes());
            }
            Self::Window { draw, stripes, window, .. } => {
                let count = window.len();
                assert!((1..=STRIPES_MAX).contains(stripes), "{stripes} stripes");
                assert!((1..=usize::from(WINDOW_MAX)).contains(&count), "a window of {count} packets");
                assert!(self.named().count() <= TERMS_MAX, "more than {TERMS_MAX} names");
                writer.put(&[lag.beside(BodyKind::Repair), scheme_to_wire(Scheme::Sliding)]);
                writer.put(&(count as u16).to_be_bytes());
                writer.put(&draw.seed.to_be_bytes());
                writer.put(&[(stripes - 1) << 4 | draw.density]);
                writer.put(&window[count - 1].seq.to_wire().to_be_bytes());
            }
        }
        let common = self.common();
        writer.put(&[common.ttl, common.tos, self.exceptions().count() as u8]);
        for (position, entry) in self.exceptions() {
            writer.put(&[position as u8, entry.fields.ttl, entry.fields.tos]);
        }
        if let Self::Window { window, named, .. } = self {
            let last = window[window.len() - 1].seq;
            for run in named {
                let count = run.end.0.saturating_sub(run.start.0);
                // Distance of the run's last packet from the window's; any value for an empty run.
                let before = if count == 0 { 0 } else { (last.0 + 1 - run.end.0) as u16 };
                writer.put(&before.to_be_bytes());
                writer.put(&[count as u8]);
            }
        }
        for entry in self.named() {
            writer.put(&entry.name.0.to_be_bytes());
        }
        writer.written()
    }

    /// Named packets, in order of the stream.
    fn named(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let pieces: [&[Entry]; RUNS] = match self {
            Self::Named { entries, .. } | Self::Names { entries } => [entries, &[], &[]],
            Self::Window { window, named, .. } => named.clone().map(|run| {
                let at = |seq: Seq| (seq.0 - window[0].seq.0) as usize;
                if run.is_empty() { &[] } else { &window[at(run.start)..at(run.end)] }
            }),
        };
        pieces.into_iter().flatten()
    }

    /// Returns the fields that travel once: the last packet's, since neighbours mostly share them.
    fn common(&self) -> MutableFields {
        self.named().next_back().map(|entry| entry.fields).unwrap_or_default()
    }

    fn exceptions(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let common = self.common();
        self.named().enumerate().filter(move |(_, entry)| entry.fields != common)
    }
}

/// Number of bytes by which a repair with `names` names is longer on the WAN than the longest packet in it:
/// outer IP and UDP header, our header and tag, recipe, symbol header.
///
/// The result leaves room for [`EXCEPTIONS_BUDGET`] packets whose mutable fields differ from the others'. A
/// repair with more may have to be cut in two.
pub fn repair_overhead(scheme: Scheme, names: usize, ipv6: bool) -> usize {
    let outer = if ipv6 { 40 + 8 } else { 20 + 8 };
    let recipe = match scheme {
        Scheme::Layered | Scheme::ReedSolomon => RECIPE_HEADER,
        Scheme::Sliding => WINDOW_HEADER,
    };
    let exceptions = EXCEPTIONS_BUDGET.min(names.saturating_sub(1)) * EXCEPTION;
    outer + SEALED_HEADER + TAG + recipe + exceptions + names * NAME + SYMBOL_HEADER
}

const _: () = assert!(WINDOW_HEADER == RECIPE_HEADER + 1 + RUNS * RUN);
