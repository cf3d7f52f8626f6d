//! Layered interleaving, the schedule of Maelstrom §4.3.
//!
//! Every packet enters one bin of each layer. A layer with interleave i has i bins, fed in turn, so that the
//! packets of a bin lie i apart. A bin that holds r packets fires: the XOR of its packets leaves as a repair.
//! Low interleaves recover single losses quickly; high ones recover bursts of up to i packets, later.

use crate::error::{ConfigError, check_common, check_memory, check_range};
use crate::gf256;
use crate::limits::{INTERLEAVE_MAX, SymbolTooLong, symbol_length};
use crate::repair::{Draw, Repair};
use crate::scheme::Sending;

/// Most packets in a repair.
pub const R_MAX: u8 = 64;
/// Most layers.
pub const LAYERS_MAX: usize = 16;
/// Coefficients of a XOR.
static ONES: [u8; R_MAX as usize] = [1; R_MAX as usize];

/// Parameters of a layered code. Its rate (r, c) has c = `interleaves.len()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayeredConfig {
    /// Packets in a repair, 1 to [`R_MAX`]; 1 sends every packet again, once per layer.
    pub r: u8,
    /// Interleave of each layer: 1 to [`LAYERS_MAX`] distinct values, each 1 to [`INTERLEAVE_MAX`].
    /// Relatively prime interleaves recover most (Maelstrom §4.4).
    pub interleaves: Vec<u16>,
    /// Whether full bins fire at once or one interleave later.
    pub sending: Sending,
    /// Longest time that a bin of the smallest interleave stays part-filled, 1 to
    /// [`DEADLINE_US_MAX`](crate::DEADLINE_US_MAX). Bins of larger interleaves wait longer in proportion, so
    /// that all layers fill in time where the first does. `None`: bins wait for packets without limit.
    pub deadline_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`](crate::SYMBOL_MAX).
    pub symbol_max: usize,
}

impl Default for LayeredConfig {
    /// (8; 1,11,19), sent at once, 20 ms, symbols up to 1,536 bytes.
    fn default() -> Self {
        Self {
            r: 8,
            interleaves: vec![1, 11, 19],
            sending: Sending::Immediate,
            deadline_us: Some(20_000),
            symbol_max: 1_536,
        }
    }
}

impl LayeredConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_range("r", self.r, 1, R_MAX)?;
        check_range("number of interleaves", self.interleaves.len(), 1, LAYERS_MAX)?;
        for (k, &interleave) in self.interleaves.iter().enumerate() {
            check_range("interleaves", interleave, 1, INTERLEAVE_MAX)?;
            if self.interleaves[..k].contains(&interleave) {
                return Err(ConfigError::Repeated(interleave));
            }
        }
        check_common(self.deadline_us, self.symbol_max)
    }

    /// Repairs per source packet in the long run, where bins fill.
    pub fn overhead(&self) -> f64 {
        self.interleaves.len() as f64 / f64::from(self.r)
    }

    fn bins(&self) -> usize {
        self.interleaves.iter().map(|&i| usize::from(i)).sum()
    }
}

/// The number of packets at which bin `x` (counted from 1) of a layer with interleave `i` fires for the first
/// time.
///
/// Maelstrom §4.3.1: `x mod r` where i ≥ r, and `(x mod r) · r / i`, rounded down, where i < r. The paper's
/// text counts bins from 1 ("the first repair bin … would fire at size 1, the second at size 2"). A remainder
/// of 0 means r, so that the sizes 1 to r occur equally often, and "until r · i data packets have been added
/// … all bins have fired exactly once". For i < r the remainder is never 0, and the last bin starts at r.
///
/// ```
/// // the paper's examples: r = 5 and i = 4 begins 1, 2; r = 4 and i = 2 is 2, 4
/// assert_eq!((fec::first_size(1, 4, 5), fec::first_size(2, 4, 5)), (1, 2));
/// assert_eq!((fec::first_size(1, 2, 4), fec::first_size(2, 2, 4)), (2, 4));
/// assert_eq!(fec::first_size(8, 11, 8), 8);
/// ```
pub fn first_size(x: u16, i: u16, r: u8) -> u8 {
    let (x, i, r) = (u32::from(x), u32::from(i), u32::from(r));
    let size = if i >= r { x % r } else { (x % r) * r / i };
    if size == 0 { r as u8 } else { size as u8 }
}

/// Makes the repairs of a layered code from a stream of source packets.
///
/// `P` is what the owner keeps of each packet in a bin. All memory is allocated at construction. A layer that
/// a deadline or [`flush`](Self::flush) has emptied returns to its first bin sizes ([`first_size`]), so that
/// an idle period does not leave its bins in step.
///
/// ```
/// use fec::{LayeredConfig, LayeredEncoder};
/// let config = LayeredConfig { r: 2, interleaves: vec![1], ..LayeredConfig::default() };
/// let mut encoder = LayeredEncoder::new(&config).unwrap();
/// let mut sent = Vec::new();
/// let mut emit = |repair: fec::Repair<'_, u32>| sent.push((repair.packets.to_vec(), repair.payload.to_vec()));
/// encoder.push(0, 1, &[b"ab"], &mut emit).unwrap();
/// encoder.push(0, 2, &[b"a", b"cd"], &mut emit).unwrap();
/// assert_eq!(sent, [(vec![1, 2], vec![0, b'b' ^ b'c', b'd'])]);
/// ```
#[derive(Debug)]
pub struct LayeredEncoder<P> {
    r: u8,
    sending: Sending,
    symbol_max: usize,
    layers: Box<[Layer]>,
    bins: Box<[Bin<P>]>,
    /// `symbol_max` bytes for each bin.
    payloads: Box<[u8]>,
    /// Latest time seen. A clock that steps back must not disturb the order of the deadlines.
    now_us: u64,
}

/// One layer: a run of bins, and the list of the bins in use, oldest first.
#[derive(Debug)]
struct Layer {
    interleave: u16,
    first_bin: usize,
    /// Bin that the next packet enters, from 0.
    cursor: u16,
    deadline_us: Option<u64>,
    oldest: Option<u32>,
    newest: Option<u32>,
}

#[derive(Debug)]
struct Bin<P> {
    packets: Vec<P>,
    /// Length of the longest symbol in it.
    length: usize,
    /// Number of packets at which the bin fires.
    size: u8,
    /// Whether the bin is full and its repair waits for the next packet (delayed sending).
    held: bool,
    begun_us: u64,
    /// Neighbours in the layer's list of bins in use.
    older: Option<u32>,
    newer: Option<u32>,
}

impl<P: Copy> LayeredEncoder<P> {
    /// Checks every range and the memory that an encoder needs, without building one.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(config: &LayeredConfig) -> Result<(), ConfigError> {
        config.check()?;
        let memory = config.bins() * Self::bin_bytes(config.r, config.symbol_max);
        check_memory("interleaves, r and symbol_max", memory)
    }

    /// Creates an encoder with empty bins at their first sizes.
    ///
    /// # Errors
    /// As [`LayeredEncoder::check`].
    pub fn new(config: &LayeredConfig) -> Result<Self, ConfigError> {
        Self::check(config)?;
        let bins = config.bins();
        let smallest = config.interleaves.iter().copied().min().unwrap_or(1);
        let mut first_bin = 0;
        let mut layers = Vec::with_capacity(config.interleaves.len());
        for &interleave in &config.interleaves {
            layers.push(Layer {
                interleave,
                first_bin,
                cursor: 0,
                deadline_us: config.deadline_us.map(|us| us * u64::from(interleave) / u64::from(smallest)),
                oldest: None,
                newest: None,
            });
            first_bin += usize::from(interleave);
        }
        let mut encoder = Self {
            r: config.r,
            sending: config.sending,
            symbol_max: config.symbol_max,
            layers: layers.into_boxed_slice(),
            bins: (0..bins).map(|_| Bin::empty(config.r)).collect(),
            payloads: vec![0; bins * config.symbol_max].into_boxed_slice(),
            now_us: 0,
        };
        for layer in 0..encoder.layers.len() {
            encoder.restart(layer);
        }
        Ok(encoder)
    }

    /// Adds the next source packet to a bin of every layer and emits the repairs that become due.
    ///
    /// `symbol` is given as consecutive pieces. Deadlines are not checked here.
    ///
    /// # Errors
    /// If the symbol is too long; then nothing changes.
    pub fn push(
        &mut self,
        now_us: u64,
        packet: P,
        symbol: &[&[u8]],
        emit: &mut impl FnMut(Repair<'_, P>),
    ) -> Result<(), SymbolTooLong> {
        let length = symbol_length(symbol, self.symbol_max)?;
        self.now_us = self.now_us.max(now_us);
        for layer in 0..self.layers.len() {
            let bin = self.next_bin(layer);
            if self.bins[bin].held {
                self.fire(layer, bin, emit);
            }
            self.add(layer, bin, packet, symbol, length);
            if self.bins[bin].packets.len() < usize::from(self.bins[bin].size) {
                continue;
            }
            if self.sending == Sending::Delayed && self.layers[layer].interleave > 1 {
                self.bins[bin].held = true;
            } else {
                self.fire(layer, bin, emit);
            }
        }
        Ok(())
    }

    /// Time of the next deadline; `None` without deadline or without a bin in use. Costs one look per layer.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.layers.iter().filter_map(|layer| self.deadline_of(layer)).min()
    }

    /// Emits the repairs whose deadline has passed: part-filled bins, and delayed repairs not yet sent.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(Repair<'_, P>)) {
        self.now_us = self.now_us.max(now_us);
        for layer in 0..self.layers.len() {
            while let Some(due_us) = self.deadline_of(&self.layers[layer])
                && due_us <= self.now_us
            {
                self.fire_oldest(layer, emit);
            }
        }
    }

    /// Whether a bin holds a packet.
    pub fn has_waiting(&self) -> bool {
        self.layers.iter().any(|layer| layer.oldest.is_some())
    }

    /// Whether a bin of the smallest interleave holds a packet.
    pub fn has_waiting_first(&self) -> bool {
        self.layers[self.narrowest()].oldest.is_some()
    }

    /// Emits a repair for every bin of the smallest interleave that holds a packet.
    pub fn flush_first(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        let layer = self.narrowest();
        while self.layers[layer].oldest.is_some() {
            self.fire_oldest(layer, emit);
        }
    }

    fn narrowest(&self) -> usize {
        let interleave = |layer: &usize| self.layers[*layer].interleave;
        (0..self.layers.len()).min_by_key(interleave).unwrap_or(0)
    }

    /// Emits a repair for every bin that holds a packet.
    pub fn flush(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        for layer in 0..self.layers.len() {
            while self.layers[layer].oldest.is_some() {
                self.fire_oldest(layer, emit);
            }
        }
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        self.bins.len() * Self::bin_bytes(self.r, self.symbol_max) + size_of_val(&*self.layers)
    }

    fn bin_bytes(r: u8, symbol_max: usize) -> usize {
        symbol_max + usize::from(r) * size_of::<P>() + size_of::<Bin<P>>()
    }

    /// Takes the next bin in turn: packet x enters bin x mod i (Maelstrom §4.3).
    fn next_bin(&mut self, layer: usize) -> usize {
        let layer = &mut self.layers[layer];
        let bin = layer.first_bin + usize::from(layer.cursor);
        layer.cursor += 1;
        if layer.cursor == layer.interleave {
            layer.cursor = 0;
        }
        bin
    }

    fn add(&mut self, layer: usize, at: usize, packet: P, symbol: &[&[u8]], length: usize) {
        if self.bins[at].packets.is_empty() {
            self.link(layer, at);
        }
        let bin = &mut self.bins[at];
        bin.packets.push(packet);
        let payload = &mut self.payloads[at * self.symbol_max..][..self.symbol_max];
        let mut offset = 0;
        for piece in symbol {
            // Bytes beyond the longest symbol are left over from an earlier repair and are
            // overwritten.
            let sum = piece.len().min(bin.length.saturating_sub(offset));
            let place = &mut payload[offset..offset + piece.len()];
            gf256::xor_into(&mut place[..sum], &piece[..sum]);
            place[sum..].copy_from_slice(&piece[sum..]);
            offset += piece.len();
        }
        bin.length = bin.length.max(length);
    }

    fn fire(&mut self, layer: usize, at: usize, emit: &mut impl FnMut(Repair<'_, P>)) {
        self.unlink(layer, at);
        let bin = &mut self.bins[at];
        emit(Repair {
            row: layer,
            draw: Draw::default(),
            stripes: 1,
            packets: &bin.packets,
            coefficients: &ONES[..bin.packets.len()],
            payload: &self.payloads[at * self.symbol_max..][..bin.length],
        });
        bin.packets.clear();
        bin.length = 0;
        bin.held = false;
        bin.size = self.r;
    }

    fn fire_oldest(&mut self, layer: usize, emit: &mut impl FnMut(Repair<'_, P>)) {
        let Some(at) = self.layers[layer].oldest else { return };
        self.fire(layer, at as usize, emit);
        if self.layers[layer].oldest.is_none() {
            self.restart(layer);
        }
    }

    /// Sets the bins of an empty layer back to their first sizes.
    fn restart(&mut self, layer: usize) {
        let layer = &mut self.layers[layer];
        layer.cursor = 0;
        for k in 0..layer.interleave {
            self.bins[layer.first_bin + usize::from(k)].size = first_size(k + 1, layer.interleave, self.r);
        }
    }

    fn deadline_of(&self, layer: &Layer) -> Option<u64> {
        Some(self.bins[layer.oldest? as usize].begun_us.saturating_add(layer.deadline_us?))
    }

    /// Appends a bin that receives its first packet to the layer's list of bins in use.
    fn link(&mut self, layer: usize, at: usize) {
        let layer = &mut self.layers[layer];
        let before = layer.newest.replace(at as u32);
        match before {
            Some(before) => self.bins[before as usize].newer = Some(at as u32),
            None => layer.oldest = Some(at as u32),
        }
        let bin = &mut self.bins[at];
        bin.begun_us = self.now_us;
        bin.older = before;
        bin.newer = None;
    }

    fn unlink(&mut self, layer: usize, at: usize) {
        let (older, newer) = (self.bins[at].older, self.bins[at].newer);
        match older {
            Some(older) => self.bins[older as usize].newer = newer,
            None => self.layers[layer].oldest = newer,
        }
        match newer {
            Some(newer) => self.bins[newer as usize].older = older,
            None => self.layers[layer].newest = older,
        }
    }
}

impl<P> Bin<P> {
    fn empty(r: u8) -> Self {
        Self {
            packets: Vec::with_capacity(usize::from(r)),
            length: 0,
            size: r,
            held: false,
            begun_us: 0,
            older: None,
            newer: None,
        }
    }
}
