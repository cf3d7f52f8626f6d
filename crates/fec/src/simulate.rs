//! What a code recovers, and how late, from a given sequence of losses.
//!
//! Runs the real encoder and decoder over symbols of a few bytes. Nothing is random, and time is counted in source
//! packets: the caller says what is lost. For what coding costs, the caller lends a clock and says how long a symbol is.

mod names;
mod size;

pub use names::Naming;
pub use size::repair_overhead_bytes;

use crate::{Code, CodeError, CodedRepair, Decoder, DecoderConfig, Encoder, SymbolId, Term, Window};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The code. Its deadline and `symbol_max` do not matter here.
    pub code: Code,
    /// Source packets whose fate is reported. As many as the window holds follow them, so that the last have
    /// their chance too.
    pub packets: u64,
    /// Source packets the receiver keeps, and for how many it waits for a lost one.
    pub window: usize,
    /// Bytes in a symbol, at least 8; 8 is enough for what is recovered and how late.
    pub symbol: usize,
    /// How a sliding window's repairs tell the places of packets that arrived; other codes' repairs name all that is
    /// in them.
    pub naming: Naming,
    /// Nanoseconds since whenever, to measure what encoding and decoding cost.
    pub clock: Option<fn() -> u64>,
}

impl Default for Simulation {
    /// The default code over 100,000 packets, with the paper's window of 1,024 (Maelstrom §4.7), without names and clock.
    fn default() -> Self {
        Self {
            code: Code::default(),
            packets: 100_000,
            window: 1_024,
            symbol: SYMBOL_MIN,
            naming: Naming::None,
            clock: None,
        }
    }
}

/// A packet on its way, in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A source packet.
    Source(SymbolId),
    /// A repair packet: of this layer of a layered code, this row of a block; 0 for a sliding window.
    Repair(usize),
}

/// What became of the packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Source packets sent.
    pub sent: u64,
    /// Of those, lost.
    pub lost: u64,
    /// Of those, recovered.
    pub recovered: u64,
    /// Repairs sent, also those after the last reported source packet.
    pub repairs_sent: u64,
    /// Of those, lost.
    pub repairs_lost: u64,
    /// Source packets sent, also those after the last reported one.
    pub sources_sent: u64,
    /// Nanoseconds spent in the encoder for all source packets sent, if there is a clock.
    pub encode_ns: u64,
    /// Nanoseconds spent in the decoder for all that arrived, if there is a clock.
    pub decode_ns: u64,
    /// Recovered symbols whose bytes were wrong. Anything but 0 is a fault of the codec.
    pub wrong: u64,
    /// `delays[d]` packets were recovered when the sender had sent d more source packets.
    pub delays: Vec<u64>,
}

impl Report {
    /// The share of lost packets that was recovered, 1 if none was lost.
    pub fn recovered_share(&self) -> f64 {
        if self.lost == 0 { 1.0 } else { self.recovered as f64 / self.lost as f64 }
    }

    /// The share of packets that was lost and not recovered.
    pub fn residual_loss(&self) -> f64 {
        (self.lost - self.recovered) as f64 / self.sent.max(1) as f64
    }

    /// Repairs sent for each source packet.
    pub fn overhead(&self) -> f64 {
        self.repairs_sent as f64 / self.sources_sent.max(1) as f64
    }

    /// Adds what another run of the same simulation had.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.recovered += other.recovered;
        self.repairs_sent += other.repairs_sent;
        self.repairs_lost += other.repairs_lost;
        self.sources_sent += other.sources_sent;
        self.encode_ns += other.encode_ns;
        self.decode_ns += other.decode_ns;
        self.wrong += other.wrong;
        self.delays.resize(self.delays.len().max(other.delays.len()), 0);
        self.delays.iter_mut().zip(&other.delays).for_each(|(sum, count)| *sum += count);
    }

    /// The mean delay of recovered packets, in source packets; `None` if there are none.
    pub fn delay_mean(&self) -> Option<f64> {
        let total: u64 = self.delays.iter().zip(0..).map(|(count, delay): (&u64, u64)| count * delay).sum();
        (self.recovered > 0).then(|| total as f64 / self.recovered as f64)
    }

    /// The least delay that at least the share `quantile` of the recovered packets stayed within.
    pub fn delay_quantile(&self, quantile: f64) -> Option<usize> {
        let rank = ((self.recovered as f64 * quantile).ceil() as u64).clamp(1, self.recovered.max(1));
        let mut seen = 0;
        self.delays.iter().position(|count| {
            seen += count;
            seen >= rank
        })
    }

    /// The longest delay of a recovered packet.
    pub fn delay_max(&self) -> Option<usize> {
        self.delays.iter().rposition(|&count| count > 0)
    }
}

/// Sends `simulation.packets` packets through the code; `lose` is asked for each packet sent, sources and repairs in
/// the order of sending, whether it is lost.
///
/// ```
/// use fec::simulate::{Packet, Simulation, simulate};
///
/// let simulation = Simulation { packets: 1_000, ..Simulation::default() };
/// let report = simulate(&simulation, |packet| matches!(packet, Packet::Source(id) if id.0 % 100 == 42)).unwrap();
/// assert_eq!((report.lost, report.recovered), (10, 10));
/// assert!(report.delay_max().unwrap() < 8, "layer 0 mends single losses");
/// ```
///
/// # Errors
/// If the code's configuration has a mistake.
///
/// # Panics
/// If the window is empty, or the symbol shorter than 8 bytes.
pub fn simulate(simulation: &Simulation, mut lose: impl FnMut(Packet) -> bool) -> Result<Report, CodeError> {
    assert!(simulation.symbol >= SYMBOL_MIN, "expected symbols of at least {SYMBOL_MIN} bytes");
    let mut encoder = Encoder::new(&simulation.code.clone().without_clock(simulation.symbol))?;
    let mut receiver = Receiver::new(simulation);
    let (mut names, window) = match &simulation.code {
        Code::Sliding(config) => (simulation.naming.names(config), u64::from(config.window)),
        Code::Layered(_) | Code::ReedSolomon(_) => (None, 0),
    };
    let sources_sent = simulation.packets + simulation.window as u64;
    let mut report = Report { sent: simulation.packets, sources_sent, ..Report::default() };
    let mut bytes = vec![0; simulation.symbol];
    let clock = simulation.clock.unwrap_or(|| 0);
    for n in 0..sources_sent {
        let id = SymbolId(n);
        let lost = lose(Packet::Source(id));
        report.lost += u64::from(lost && n < simulation.packets);
        write_symbol(id, &mut bytes);
        receiver.source(id, &bytes, lost);
        let begun = clock();
        let mut elsewhere = 0;
        let mut emit = |repair: CodedRepair<'_, SymbolId>| {
            let left = clock();
            report.repairs_sent += 1;
            let named = names.as_mut().map(|names| names.next((n + 1).saturating_sub(window), n));
            if lose(Packet::Repair(repair.row)) {
                report.repairs_lost += 1;
            } else {
                let arrived = clock();
                receiver.name(named.into_iter().flatten().flatten());
                receiver.repair(&repair);
                report.decode_ns += clock() - arrived;
            }
            elsewhere += clock() - left;
        };
        encoder.push(0, id, &[&bytes], &mut emit).expect("the symbol is as long as announced");
        report.encode_ns += clock() - begun - elsewhere;
    }
    let kept = receiver.kept;
    report.recovered = kept.delays.iter().sum();
    report.wrong = kept.wrong;
    report.delays = kept.delays;
    Ok(report)
}

/// Bytes of the shortest simulated symbol.
const SYMBOL_MIN: usize = 8;

/// Bytes that no sum of a few others equals by chance, over and over.
fn write_symbol(id: SymbolId, bytes: &mut [u8]) {
    // splitmix64
    let mut x = id.0.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let word = (x ^ (x >> 31)).to_le_bytes();
    bytes.chunks_mut(SYMBOL_MIN).for_each(|chunk| chunk.copy_from_slice(&word[..chunk.len()]));
}

struct Receiver {
    /// Packets that arrive must be named to be known.
    needs_names: bool,
    decoder: Decoder,
    kept: Kept,
    terms: Vec<Term>,
}

impl Receiver {
    fn new(simulation: &Simulation) -> Self {
        assert!(simulation.window > 0, "expected a window of at least 1, saw 0");
        // Every repair sent while a packet is waited for may be of use.
        let repairs = (simulation.window as f64 * simulation.code.overhead()).ceil() as usize;
        let config = DecoderConfig {
            equations: repairs.clamp(1, 4_096),
            payload_max: simulation.symbol,
            terms_max: simulation.code.terms_max(),
        };
        let needs_names = matches!(simulation.code, Code::Sliding(_)) && simulation.naming != Naming::None;
        Self { needs_names, decoder: Decoder::new(config), kept: Kept::new(simulation), terms: Vec::new() }
    }

    fn source(&mut self, id: SymbolId, bytes: &[u8], lost: bool) {
        let window = self.kept.states.len() as u64;
        self.kept.newest = id.0;
        let place = (id.0 % window) as usize;
        self.kept.states[place] = match (lost, self.needs_names) {
            (true, _) => State::Missing,
            (false, false) => State::Known,
            (false, true) => State::Unnamed,
        };
        if !lost {
            self.kept.symbol_mut(place).copy_from_slice(bytes);
        }
        self.decoder.expire_before(SymbolId((id.0 + 1).saturating_sub(window)));
    }

    /// Takes names: of what arrived the places are known now.
    fn name(&mut self, places: impl Iterator<Item = u64>) {
        for id in places.map(SymbolId) {
            if let Some(place) = self.kept.place(id)
                && self.kept.states[place] == State::Unnamed
            {
                self.kept.states[place] = State::Known;
                self.decoder.source(&mut self.kept, id);
            }
        }
    }

    fn repair(&mut self, repair: &CodedRepair<'_, SymbolId>) {
        self.terms.clear();
        let pairs = repair.names.iter().zip(repair.coefficients);
        self.terms.extend(pairs.map(|(&id, &coefficient)| Term { id, coefficient }));
        // What it led to is counted where the symbols go.
        let _ = self.decoder.repair(&mut self.kept, &self.terms, repair.payload);
    }
}

/// What the receiver has of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    /// It arrived, but where it belongs has not been told.
    Unnamed,
    Known,
}

struct Kept {
    /// Of the newest packets, each at its position modulo the window.
    states: Vec<State>,
    /// Their bytes.
    symbols: Vec<u8>,
    length: usize,
    expected: Vec<u8>,
    newest: u64,
    packets: u64,
    delays: Vec<u64>,
    wrong: u64,
}

impl Kept {
    fn new(simulation: &Simulation) -> Self {
        Self {
            states: vec![State::Missing; simulation.window],
            symbols: vec![0; simulation.window * simulation.symbol],
            length: simulation.symbol,
            expected: vec![0; simulation.symbol],
            newest: 0,
            packets: simulation.packets,
            delays: vec![0; simulation.window],
            wrong: 0,
        }
    }

    fn place(&self, id: SymbolId) -> Option<usize> {
        let window = self.states.len() as u64;
        (id.0 <= self.newest && self.newest - id.0 < window).then_some((id.0 % window) as usize)
    }

    fn symbol_mut(&mut self, place: usize) -> &mut [u8] {
        &mut self.symbols[place * self.length..][..self.length]
    }
}

impl Window for Kept {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        let place = self.place(id).filter(|&place| self.states[place] == State::Known)?;
        Some(&self.symbols[place * self.length..][..self.length])
    }

    fn recovered(&mut self, id: SymbolId, bytes: &[u8]) -> bool {
        let Some(place) = self.place(id) else { return false };
        write_symbol(id, &mut self.expected);
        if bytes != self.expected {
            self.wrong += 1;
            return false;
        }
        // One that only lacked a name was not lost.
        let lost = std::mem::replace(&mut self.states[place], State::Known) == State::Missing;
        self.symbol_mut(place).copy_from_slice(bytes);
        if lost && id.0 < self.packets {
            self.delays[(self.newest - id.0) as usize] += 1;
        }
        true
    }
}
