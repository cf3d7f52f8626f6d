//! Encoders that yield whole repairs: the recipe, and the coded symbol.
//!
//! Repairs of bins and blocks name all their packets. A sliding window's repairs name some, chosen by
//! [`naming`].

mod naming;
#[cfg(test)]
mod tests;

use fec::{Code, Encoder, Repair, RepairRate, Scheme, SlidingConfig, SlidingEncoder, SymbolTooLong, names};
use foundation::Seq;

use crate::symbol::Symbol;
use crate::wire::{Entry, Recipe};
pub(crate) use naming::AGE_MAX_US;
use naming::Naming;

/// Maximum number of packets in a repair that contains only those that it names, at rates that allow fewer.
const ALONE_MAX: usize = 24;

/// A repair without header and tag, or names of packets without a symbol.
pub(crate) struct CodedRepair<'a> {
    /// The packets in the sum, and what a receiver needs to know of them.
    pub(crate) recipe: Recipe<'a>,
    /// The sum.
    pub(crate) symbol: &'a [u8],
}

/// The encoder of one peer's stream.
pub(crate) struct Coder {
    /// The code that `kind` runs, with the present rate and window.
    code: Code,
    /// Maximum number of packets in a sliding window.
    window_max: u16,
    /// Longest wait of a packet for its first repair.
    max_delay_us: u64,
    /// Whether packets carry their positions, so that repairs of a window name none.
    is_numbered: bool,
    kind: Kind,
}

enum Kind {
    /// Bins or blocks: a repair names all its packets.
    Named { scheme: Scheme, encoder: Encoder<Entry> },
    /// A sliding window: a repair names some of its packets.
    Window {
        encoder: SlidingEncoder<Entry>,
        naming: Box<Naming>,
        /// Number of packets in a repair if repairs name all their packets.
        alone: Option<usize>,
    },
}

impl Coder {
    /// Creates the encoder of a stream at its beginning. A sliding window may grow to `window_max` packets.
    ///
    /// # Panics
    /// If the code is not valid: [`Config::check`](crate::Config::check) comes first.
    pub(crate) fn new(code: Code, window_max: u16, max_delay_us: u64, is_numbered: bool) -> Self {
        let kind = Kind::new(&code, window_max, max_delay_us, Seq(0)).numbered(is_numbered);
        Self { kind, code, window_max, max_delay_us, is_numbered }
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
    pub(crate) fn reconfigure(&mut self, code: Code, window_max: u16, max_delay_us: u64, next: Seq) {
        if code == self.code && window_max == self.window_max {
            return;
        }
        let rate = changed_rate(&self.code, &code).filter(|_| window_max == self.window_max);
        match (&mut self.kind, rate) {
            (Kind::Window { encoder, naming, alone }, Some(rate)) => {
                encoder.set_rate(rate);
                naming.set_rate(rate);
                *alone = alone.map(|packets| packets.max(all_of(rate)));
            }
            (kind, _) => {
                *kind = Kind::new(&code, window_max, max_delay_us, next).numbered(self.is_numbered);
            }
        }
        (self.code, self.window_max, self.max_delay_us) = (code, window_max, max_delay_us);
    }

    /// Changes the number of packets in a sliding window, which keeps its packets, and of its stripes. Other
    /// codes stay as they are.
    pub(crate) fn set_window(&mut self, packets: u16, stripes: u8) {
        let (Code::Sliding(config), Kind::Window { encoder, naming, .. }) = (&mut self.code, &mut self.kind)
        else {
            return;
        };
        if config.stripes != stripes {
            config.stripes = stripes;
            encoder.set_stripes(stripes);
        }
        let packets = packets.clamp(1, self.window_max);
        if config.window != packets {
            config.window = packets;
            encoder.set_window(packets);
            naming.set_window(encoder.rate(), packets);
        }
    }

    /// Changes the rate of a sliding window, which keeps its packets. Other codes stay as they are.
    pub(crate) fn set_rate(&mut self, rate: RepairRate) {
        let (Code::Sliding(config), Kind::Window { encoder, naming, alone }) =
            (&mut self.code, &mut self.kind)
        else {
            return;
        };
        if config.rate != rate {
            config.rate = rate;
            encoder.set_rate(rate);
            naming.set_rate(rate);
            *alone = alone.map(|packets| packets.max(all_of(rate)));
        }
    }

    /// Adapts a sliding window to the share of repairs that are lost. If that is large, repairs contain only
    /// packets that they name, so that each is of use alone. There is room for `names_max` of them.
    pub(crate) fn set_repair_loss(&mut self, loss: f64, names_max: usize) {
        let Kind::Window { encoder, alone, .. } = &mut self.kind else { return };
        if self.is_numbered {
            return;
        }
        let rate = encoder.rate();
        // Less is needed to return, so that the code does not change to and fro.
        let is_too_lossy = names::are_too_few(rate, if alone.is_some() { loss * 1.25 } else { loss });
        *alone = is_too_lossy.then(|| all_of(rate).max(names_max.min(ALONE_MAX)));
    }

    /// Adapts the copies of names to the share of repairs that the link loses most of the time.
    pub(crate) fn set_steady_loss(&mut self, loss: f64) {
        if let Kind::Window { naming, .. } = &mut self.kind {
            naming.set_loss(loss);
        }
    }

    /// Number of packets in a repair, if repairs contain only packets that they name.
    pub(crate) fn alone(&self) -> Option<usize> {
        match self.kind {
            Kind::Window { alone, .. } => alone,
            Kind::Named { .. } => None,
        }
    }

    /// Gives up the packets that wait for a repair. The stream stands at `next`.
    pub(crate) fn clear(&mut self, next: Seq) {
        let kind = Kind::new(&self.code, self.window_max, self.max_delay_us, next);
        self.kind = kind.numbered(self.is_numbered);
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
            Kind::Window { encoder, naming, alone } => {
                if let Some(packets) = naming.expire(now_us) {
                    encoder.keep_newest(packets);
                }
                if let Some(packets) = alone {
                    encoder.keep_newest(*packets - 1);
                }
                let mut emit_repair = |repair: Repair<'_, Entry>| emit(&name_some(naming, repair, *alone));
                encoder.push(now_us, entry, &symbol.pieces(), &mut emit_repair)?;
                naming.on_packet(now_us, entry);
                if let Some(names) = naming.next_apart() {
                    emit(&names);
                }
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

    /// Time at which packets without repair would become too old for the window. Bins and blocks keep theirs.
    pub(crate) fn late_us(&self) -> Option<u64> {
        match &self.kind {
            Kind::Named { .. } => None,
            Kind::Window { encoder, .. } => Some(encoder.next_deadline_us()? + naming::LATE_US),
        }
    }

    /// Emits the repairs whose deadline has passed.
    pub(crate) fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(&CodedRepair<'_>)) {
        match &mut self.kind {
            Kind::Named { scheme, encoder } => {
                let scheme = *scheme;
                encoder.fire_due(now_us, &mut |repair| emit(&name_all(scheme, repair)));
            }
            Kind::Window { encoder, naming, alone } => {
                encoder.fire_due(now_us, &mut |repair| emit(&name_some(naming, repair, *alone)));
                naming.owed_apart().iter().for_each(emit);
            }
        }
    }

    /// The rate of a sliding window.
    pub(crate) fn rate(&self) -> Option<RepairRate> {
        match &self.kind {
            Kind::Window { encoder, .. } => Some(encoder.rate()),
            Kind::Named { .. } => None,
        }
    }

    /// Emits a repair of the window beyond those of its rate. Other codes emit none.
    pub(crate) fn fire_extra(&mut self, emit: &mut impl FnMut(&CodedRepair<'_>)) {
        if let Kind::Window { encoder, naming, alone } = &mut self.kind {
            encoder.fire_extra(&mut |repair| emit(&name_some(naming, repair, *alone)));
        }
    }

    /// Whether [`Coder::flush`] would emit a repair.
    pub(crate) fn has_waiting(&self) -> bool {
        match &self.kind {
            Kind::Named { encoder, .. } => encoder.has_waiting(),
            Kind::Window { encoder, .. } => encoder.has_waiting(),
        }
    }

    /// Whether [`Coder::flush`] would emit a repair of which a single loss can be recovered.
    pub(crate) fn has_waiting_first(&self) -> bool {
        match &self.kind {
            Kind::Named { encoder, .. } => encoder.has_waiting_first(),
            Kind::Window { encoder, .. } => encoder.has_waiting(),
        }
    }

    /// Emits the repairs of all bins and blocks in use, or one of a window that contains a packet without
    /// repair. Without `wide`, of layers only those of the smallest interleave, which recover single losses.
    pub(crate) fn flush(&mut self, wide: bool, emit: &mut impl FnMut(&CodedRepair<'_>)) {
        match &mut self.kind {
            Kind::Named { scheme, encoder } => {
                let scheme = *scheme;
                let emit = &mut |repair: Repair<'_, Entry>| emit(&name_all(scheme, repair));
                if wide { encoder.flush(emit) } else { encoder.flush_first(emit) }
            }
            Kind::Window { encoder, naming, alone } => {
                encoder.flush(&mut |repair| emit(&name_some(naming, repair, *alone)));
                naming.owed_apart().iter().for_each(emit);
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        match &self.kind {
            Kind::Named { encoder, .. } => encoder.memory_bytes(),
            Kind::Window { encoder, naming, .. } => encoder.memory_bytes() + naming.memory_bytes(),
        }
    }
}

impl Kind {
    /// Lets a window's repairs name no packets if those carry their positions.
    fn numbered(self, is_numbered: bool) -> Self {
        match self {
            Self::Window { encoder, naming, alone } => {
                Self::Window { encoder, naming: Box::new(naming.numbered(is_numbered)), alone }
            }
            named => named,
        }
    }

    fn new(code: &Code, window_max: u16, max_delay_us: u64, next: Seq) -> Self {
        const CHECKED: &str = "the configuration was checked";
        match code {
            Code::Sliding(config) => {
                let kept = SlidingConfig { window: window_max.max(config.window), ..config.clone() };
                let mut encoder = SlidingEncoder::new(&kept).expect(CHECKED);
                let mut naming = Box::new(Naming::new(config.rate, kept.window, max_delay_us, next));
                encoder.set_window(config.window);
                naming.set_window(config.rate, config.window);
                Self::Window { encoder, naming, alone: None }
            }
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
fn name_some<'a>(naming: &mut Naming, repair: Repair<'a, Entry>, alone: Option<usize>) -> CodedRepair<'a> {
    let window = repair.packets;
    let (first, last) = (window[0].seq, window[window.len() - 1].seq);
    let named = match alone {
        Some(packets) if window.len() <= packets => naming.next_all(first, last),
        _ => naming.next(first, last),
    };
    let stripes = repair.stripes as u8;
    CodedRepair {
        recipe: Recipe::Window { draw: repair.draw, stripes, window, named },
        symbol: repair.payload,
    }
}

/// Number of packets in a repair that names all of its packets, at least: those that it has room to name, and
/// no fewer than come between two repairs, or some would be in none.
fn all_of(rate: RepairRate) -> usize {
    names::per_repair(rate).max(names::stride(rate))
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
