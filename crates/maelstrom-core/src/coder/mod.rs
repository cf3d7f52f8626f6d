//! Encoders that yield whole repairs: the recipe, and the coded symbol.
//!
//! Repairs of bins and blocks name all their packets. A sliding window's repairs name some, chosen by
//! [`naming`].

mod naming;

use fec::{Code, Encoder, Repair, RepairRate, Scheme, SlidingConfig, SlidingEncoder, SymbolTooLong};
use foundation::Seq;

use crate::symbol::Symbol;
use crate::wire::{Entry, Recipe};
use naming::Naming;

/// A repair without header and tag.
pub(crate) struct CodedRepair<'a> {
    /// The packets in the sum, and what a receiver needs to know of them.
    pub(crate) recipe: Recipe<'a>,
    /// The sum.
    pub(crate) symbol: &'a [u8],
}

/// The encoder of one peer's stream.
pub(crate) struct Coder {
    /// The code that `kind` runs.
    code: Code,
    /// Longest wait of a packet for its first repair.
    max_delay_us: u64,
    kind: Kind,
}

enum Kind {
    /// Bins or blocks: a repair names all its packets.
    Named { scheme: Scheme, encoder: Encoder<Entry> },
    /// A sliding window: a repair names some of its packets.
    Window { encoder: SlidingEncoder<Entry>, naming: Naming },
}

impl Coder {
    /// Creates the encoder of a stream that stands at `next`.
    ///
    /// # Panics
    /// If the code is not valid: [`Config::check`](crate::Config::check) comes first.
    pub(crate) fn new(code: Code, max_delay_us: u64, next: Seq) -> Self {
        Self { kind: Kind::new(&code, max_delay_us, next), code, max_delay_us }
    }

    /// The code in force.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Changes the code. A change of a sliding window's rate alone keeps the window; any other gives up the
    /// packets that wait for a repair.
    ///
    /// # Panics
    /// As [`Coder::new`].
    pub(crate) fn reconfigure(&mut self, code: Code, max_delay_us: u64, next: Seq) {
        if code == self.code {
            return;
        }
        match (&mut self.kind, changed_rate(&self.code, &code)) {
            (Kind::Window { encoder, naming }, Some(rate)) => {
                encoder.set_rate(rate);
                naming.set_rate(rate);
            }
            (kind, _) => *kind = Kind::new(&code, max_delay_us, next),
        }
        (self.code, self.max_delay_us) = (code, max_delay_us);
    }

    /// Changes the rate of a sliding window, which keeps its packets. Other codes stay as they are.
    pub(crate) fn set_rate(&mut self, rate: RepairRate) {
        let (Code::Sliding(config), Kind::Window { encoder, naming }) = (&mut self.code, &mut self.kind)
        else {
            return;
        };
        if config.rate != rate {
            config.rate = rate;
            encoder.set_rate(rate);
            naming.set_rate(rate);
        }
    }

    /// Gives up the packets that wait for a repair. The stream stands at `next`.
    pub(crate) fn clear(&mut self, next: Seq) {
        self.kind = Kind::new(&self.code, self.max_delay_us, next);
    }

    /// Adds the next packet and emits the repairs that become due.
    ///
    /// # Errors
    /// If the symbol is too long for the code; then nothing changes but the age of the window.
    pub(crate) fn push(
        &mut self,
        now_us: u64,
        entry: Entry,
        symbol: &Symbol<'_>,
        emit: &mut impl FnMut(&CodedRepair<'_>),
    ) -> Result<(), SymbolTooLong> {
        match &mut self.kind {
            Kind::Named { scheme, encoder } => {
                let scheme = *scheme;
                encoder.push(now_us, entry, &symbol.pieces(), &mut |repair| emit(&name_all(scheme, repair)))
            }
            Kind::Window { encoder, naming } => {
                if let Some(packets) = naming.expire(now_us) {
                    encoder.keep_newest(packets);
                }
                let mut emit = |repair: Repair<'_, Entry>| emit(&name_some(naming, repair));
                encoder.push(now_us, entry, &symbol.pieces(), &mut emit)?;
                naming.on_packet(now_us);
                Ok(())
            }
        }
    }

    /// Time of the next deadline, if there is one.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        match &self.kind {
            Kind::Named { encoder, .. } => encoder.next_deadline_us(),
            Kind::Window { encoder, .. } => encoder.next_deadline_us(),
        }
    }

    /// Emits the repairs whose deadline has passed.
    pub(crate) fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(&CodedRepair<'_>)) {
        match &mut self.kind {
            Kind::Named { scheme, encoder } => {
                let scheme = *scheme;
                encoder.fire_due(now_us, &mut |repair| emit(&name_all(scheme, repair)));
            }
            Kind::Window { encoder, naming } => {
                encoder.fire_due(now_us, &mut |repair| emit(&name_some(naming, repair)));
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.kind {
            Kind::Named { encoder, .. } => encoder.memory_bytes(),
            Kind::Window { encoder, naming } => encoder.memory_bytes() + naming.memory_bytes(),
        }
    }
}

impl Kind {
    fn new(code: &Code, max_delay_us: u64, next: Seq) -> Self {
        const CHECKED: &str = "the configuration was checked";
        match code {
            Code::Sliding(config) => Self::Window {
                encoder: SlidingEncoder::new(config).expect(CHECKED),
                naming: Naming::new(config.rate, config.window, max_delay_us, next),
            },
            Code::Layered(_) | Code::ReedSolomon(_) => {
                Self::Named { scheme: code.scheme(), encoder: Encoder::new(code).expect(CHECKED) }
            }
        }
    }
}

/// Writes the recipe of a bin's or block's repair.
fn name_all<'a>(scheme: Scheme, repair: Repair<'a, Entry>) -> CodedRepair<'a> {
    // The stride identifies a layer.
    let row = if scheme == Scheme::Layered { 0 } else { repair.row as u8 };
    let entries = repair.packets;
    CodedRepair {
        recipe: Recipe::Named { scheme, row, stride: stride(entries), entries },
        symbol: repair.payload,
    }
}

/// Writes the recipe of a window's repair.
fn name_some<'a>(naming: &mut Naming, repair: Repair<'a, Entry>) -> CodedRepair<'a> {
    let window = repair.packets;
    let named = naming.next(window[0].seq, window[window.len() - 1].seq);
    CodedRepair { recipe: Recipe::Window { draw: repair.draw, window, named }, symbol: repair.payload }
}

/// Distance in the stream of packets that share a repair; 1 for a single packet.
fn stride(entries: &[Entry]) -> u16 {
    match entries {
        [first, second, ..] => (second.seq.0 - first.seq.0) as u16,
        _ => 1,
    }
}

/// Returns the new rate of a sliding window, if nothing else differs.
fn changed_rate(old: &Code, new: &Code) -> Option<RepairRate> {
    let (Code::Sliding(old), Code::Sliding(new)) = (old, new) else { return None };
    (*new == SlidingConfig { rate: new.rate, ..old.clone() }).then_some(new.rate)
}
