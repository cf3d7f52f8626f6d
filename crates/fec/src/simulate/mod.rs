//! Simulation of a code under a given sequence of losses: which packets it recovers, and how late.
//!
//! The simulation runs the real encoder and decoder over symbols of a few bytes. The caller decides which
//! packets are lost; nothing else is random. Time is counted in source packets. To measure processor time,
//! the caller passes a clock and a symbol length.

mod names;
mod size;

pub use names::Naming;
pub use size::{Carriage, apart_bytes, repair_overhead_bytes};

use crate::code::Code;
use crate::decoder::{Decoder, DecoderConfig, SymbolStore};
use crate::encoder::Encoder;
use crate::error::ConfigError;
use crate::repair::Repair;
use crate::scheme::Scheme;
use crate::symbol::{SymbolId, Term};

/// Parameters of a simulation.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The code. Its deadline and `symbol_max` have no effect here.
    pub code: Code,
    /// Number of source packets whose fate is reported. `history` more follow them, so that the last ones can
    /// be recovered too.
    pub packets: u64,
    /// Number of source packets that the receiver keeps, and for which it waits for a lost one.
    pub history: usize,
    /// Length of a symbol in bytes, at least 8. It affects processor times only.
    pub symbol: usize,
    /// Rule by which a sliding window's repairs name packets. Repairs of other codes name all their packets.
    pub naming: Naming,
    /// Clock in nanoseconds from any origin, to measure encoding and decoding.
    pub clock: Option<fn() -> u64>,
}

impl Default for Simulation {
    /// The default code over 100,000 packets, with the paper's history of 1,024 (Maelstrom §4.7), without
    /// names and clock.
    fn default() -> Self {
        Self {
            code: Code::default(),
            packets: 100_000,
            history: 1_024,
            symbol: SYMBOL_MIN,
            naming: Naming::None,
            clock: None,
        }
    }
}

/// A packet on the link, in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A source packet.
    Source(SymbolId),
    /// A datagram with names of packets.
    Names,
    /// A repair packet of this layer of a layered code, or this row of a block; 0 for a sliding window.
    Repair(usize),
}

/// Fate of the packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Source packets sent.
    pub sent: u64,
    /// Source packets lost.
    pub lost: u64,
    /// Lost source packets that were recovered.
    pub recovered: u64,
    /// Repairs sent, including those after the last reported source packet.
    pub repairs_sent: u64,
    /// Repairs lost.
    pub repairs_lost: u64,
    /// Source packets sent, including those after the last reported one.
    pub sources_sent: u64,
    /// Nanoseconds spent in the encoder for all source packets sent, if there is a clock.
    pub encode_ns: u64,
    /// Nanoseconds spent in the decoder for all repairs that arrived, if there is a clock.
    pub decode_ns: u64,
    /// Recovered symbols whose bytes were wrong. Any value but 0 is a fault of the codec.
    pub wrong: u64,
    /// Delay histogram: `delays[d]` packets were recovered after the sender had sent d more source packets.
    pub delays: Vec<u64>,
}

impl Report {
    /// Share of lost packets that were recovered, 1 if none was lost.
    pub fn recovered_share(&self) -> f64 {
        if self.lost == 0 { 1.0 } else { self.recovered as f64 / self.lost as f64 }
    }

    /// Share of packets that were lost and not recovered.
    pub fn residual_loss(&self) -> f64 {
        (self.lost - self.recovered) as f64 / self.sent.max(1) as f64
    }

    /// Repairs sent per source packet.
    pub fn overhead(&self) -> f64 {
        self.repairs_sent as f64 / self.sources_sent.max(1) as f64
    }

    /// Adds the counts of another run of the same simulation.
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

    /// Mean delay of recovered packets in source packets; `None` if there are none.
    pub fn delay_mean(&self) -> Option<f64> {
        let total: u64 = self.delays.iter().zip(0..).map(|(count, delay): (&u64, u64)| count * delay).sum();
        (self.recovered > 0).then(|| total as f64 / self.recovered as f64)
    }

    /// Smallest delay that the share `quantile` of the recovered packets did not exceed.
    pub fn delay_quantile(&self, quantile: f64) -> Option<usize> {
        let rank = ((self.recovered as f64 * quantile).ceil() as u64).clamp(1, self.recovered.max(1));
        let mut seen = 0;
        self.delays.iter().position(|count| {
            seen += count;
            seen >= rank
        })
    }

    /// Longest delay of a recovered packet.
    pub fn delay_max(&self) -> Option<usize> {
        self.delays.iter().rposition(|&count| count > 0)
    }
}

/// Sends `simulation.packets` packets through the code. `lose` decides for each packet sent whether it is
/// lost, sources and repairs in the order of sending.
///
/// ```
/// use fec::simulate::{Packet, Simulation, simulate};
///
/// let simulation = Simulation { packets: 1_000, ..Simulation::default() };
/// let report = simulate(&simulation, |packet| matches!(packet, Packet::Source(id) if id.0 % 100 == 42)).unwrap();
/// assert_eq!((report.lost, report.recovered), (10, 10));
/// assert!(report.delay_max().unwrap() < 8, "layer 0 recovers single losses");
/// ```
///
/// # Errors
/// If the code's configuration has a mistake.
///
/// # Panics
/// If the history is empty, or the symbol shorter than 8 bytes.
pub fn simulate(
    simulation: &Simulation,
    mut lose: impl FnMut(Packet) -> bool,
) -> Result<Report, ConfigError> {
    assert!(simulation.symbol >= SYMBOL_MIN, "expected symbols of at least {SYMBOL_MIN} bytes");
    let mut encoder = Encoder::new(&simulation.code.clone().without_clock(simulation.symbol))?;
    let mut receiver = Receiver::new(simulation);
    let mut names = match &simulation.code {
        Code::Sliding(config) => simulation.naming.names(config),
        Code::Layered(_) | Code::ReedSolomon(_) => None,
    };
    let sources_sent = simulation.packets + simulation.history as u64;
    let mut report = Report { sent: simulation.packets, sources_sent, ..Report::default() };
    let mut bytes = vec![0; simulation.symbol];
    let clock = simulation.clock.unwrap_or(|| 0);
    for n in 0..sources_sent {
        let id = SymbolId(n);
        let lost = lose(Packet::Source(id));
        report.lost += u64::from(lost && n < simulation.packets);
        write_symbol(id, &mut bytes);
        receiver.on_source(id, &bytes, lost);
        let begun = clock();
        let mut elsewhere = 0;
        let mut emit = |repair: Repair<'_, SymbolId>| {
            let left = clock();
            report.repairs_sent += 1;
            let ends = [repair.packets[0], repair.packets[repair.packets.len() - 1]];
            let named = names.as_mut().map(|names| names.next(ends[0].0, ends[1].0));
            if lose(Packet::Repair(repair.row)) {
                report.repairs_lost += 1;
            } else {
                let arrived = clock();
                receiver.on_names(named.into_iter().flatten().flatten());
                receiver.on_repair(&repair);
                report.decode_ns += clock() - arrived;
            }
            elsewhere += clock() - left;
        };
        encoder.push(0, id, &[&bytes], &mut emit).expect("the symbol is as long as announced");
        if let Some(apart) = names.as_mut().and_then(|names| names.next_apart(n, || n + 1))
            && !lose(Packet::Names)
        {
            receiver.on_names(apart);
        }
        report.encode_ns += clock() - begun - elsewhere;
    }
    let kept = receiver.kept;
    report.recovered = kept.delays.iter().sum();
    report.wrong = kept.wrong;
    report.delays = kept.delays;
    Ok(report)
}

/// Length of the shortest simulated symbol in bytes.
const SYMBOL_MIN: usize = 8;

/// Fills a symbol with eight bytes, repeated, that no sum of a few other symbols equals by chance.
fn write_symbol(id: SymbolId, bytes: &mut [u8]) {
    // splitmix64
    let mut x = id.0.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let word = (x ^ (x >> 31)).to_le_bytes();
    bytes.chunks_mut(SYMBOL_MIN).for_each(|chunk| chunk.copy_from_slice(&word[..chunk.len()]));
}

struct Receiver {
    /// Whether packets that arrive are known only once named.
    needs_names: bool,
    decoder: Decoder,
    kept: Kept,
    terms: Vec<Term>,
}

impl Receiver {
    fn new(simulation: &Simulation) -> Self {
        assert!(simulation.history > 0, "expected a history of at least 1, saw 0");
        // Any repair sent while the receiver waits for a packet may be needed.
        let repairs = (simulation.history as f64 * simulation.code.overhead()).ceil() as usize;
        let config = DecoderConfig {
            equations: repairs.clamp(1, 4_096),
            payload_max: simulation.symbol,
            terms_max: simulation.code.terms_max(),
        };
        let needs_names = simulation.code.scheme() == Scheme::Sliding && simulation.naming != Naming::None;
        Self { needs_names, decoder: Decoder::new(config), kept: Kept::new(simulation), terms: Vec::new() }
    }

    fn on_source(&mut self, id: SymbolId, bytes: &[u8], lost: bool) {
        let history = self.kept.states.len() as u64;
        self.kept.newest = id.0;
        let place = (id.0 % history) as usize;
        self.kept.states[place] = match (lost, self.needs_names) {
            (true, _) => State::Missing,
            (false, false) => State::Known,
            (false, true) => State::Unnamed,
        };
        if !lost {
            self.kept.symbol_mut(place).copy_from_slice(bytes);
        }
        self.decoder.expire_before(SymbolId((id.0 + 1).saturating_sub(history)));
    }

    /// Takes names: the positions of the named packets become known if they arrived.
    fn on_names(&mut self, places: impl Iterator<Item = u64>) {
        for id in places.map(SymbolId) {
            if let Some(place) = self.kept.place(id)
                && self.kept.states[place] == State::Unnamed
            {
                self.kept.states[place] = State::Known;
                self.decoder.handle_source(&mut self.kept, id);
            }
        }
    }

    fn on_repair(&mut self, repair: &Repair<'_, SymbolId>) {
        self.terms.clear();
        let pairs = repair.terms();
        self.terms.extend(pairs.map(|(&id, coefficient)| Term { id, coefficient }));
        // `Kept` counts the symbols that it led to.
        let _ = self.decoder.handle_repair(&mut self.kept, &self.terms, repair.payload);
    }
}

/// State of a packet at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    /// It arrived, and no repair has named its position.
    Unnamed,
    Known,
}

struct Kept {
    /// States of the newest packets, each at its position modulo the history.
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
            states: vec![State::Missing; simulation.history],
            symbols: vec![0; simulation.history * simulation.symbol],
            length: simulation.symbol,
            expected: vec![0; simulation.symbol],
            newest: 0,
            packets: simulation.packets,
            delays: vec![0; simulation.history],
            wrong: 0,
        }
    }

    fn place(&self, id: SymbolId) -> Option<usize> {
        let history = self.states.len() as u64;
        (id.0 <= self.newest && self.newest - id.0 < history).then_some((id.0 % history) as usize)
    }

    fn symbol_mut(&mut self, place: usize) -> &mut [u8] {
        &mut self.symbols[place * self.length..][..self.length]
    }
}

impl SymbolStore for Kept {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        let place = self.place(id).filter(|&place| self.states[place] == State::Known)?;
        Some(&self.symbols[place * self.length..][..self.length])
    }

    fn on_recovered(&mut self, id: SymbolId, bytes: &[u8]) -> bool {
        let Some(place) = self.place(id) else { return false };
        write_symbol(id, &mut self.expected);
        if bytes != self.expected {
            self.wrong += 1;
            return false;
        }
        // A packet that only lacked a name was not lost.
        let lost = std::mem::replace(&mut self.states[place], State::Known) == State::Missing;
        self.symbol_mut(place).copy_from_slice(bytes);
        if lost && id.0 < self.packets {
            self.delays[(self.newest - id.0) as usize] += 1;
        }
        true
    }
}
