//! What a layered code recovers, and how late, from a given sequence of losses.
//!
//! Runs the real encoder and decoder over symbols of a few bytes. Nothing is random and there is no clock: the caller
//! says what is lost, and time is counted in source packets.

use crate::{
    ConfigError, Decoder, DecoderConfig, LayeredConfig, LayeredEncoder, Repair, SymbolId, Term, Window,
};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The code. Its deadline and `symbol_max` do not matter here.
    pub code: LayeredConfig,
    /// Source packets whose fate is reported. As many as the window holds follow them, so that the last have
    /// their chance too.
    pub packets: u64,
    /// Source packets the receiver keeps, and for how many it waits for a lost one.
    pub window: usize,
}

impl Default for Simulation {
    /// The default code over 100,000 packets, with the paper's window of 1,024 (Maelstrom §4.7).
    fn default() -> Self {
        Self { code: LayeredConfig::default(), packets: 100_000, window: 1_024 }
    }
}

/// A packet on its way, in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// A source packet.
    Source(SymbolId),
    /// A repair packet of the layer at this position of the configuration.
    Repair(usize),
}

/// What became of the packets.
#[derive(Debug, Clone, PartialEq, Eq)]
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
/// If the window is empty.
pub fn simulate(
    simulation: &Simulation,
    mut lose: impl FnMut(Packet) -> bool,
) -> Result<Report, ConfigError> {
    let code = LayeredConfig { symbol_max: SYMBOL, deadline_us: None, ..simulation.code.clone() };
    let mut encoder = LayeredEncoder::new(&code)?;
    let mut receiver = Receiver::new(simulation);
    let mut report = Report {
        sent: simulation.packets,
        lost: 0,
        recovered: 0,
        repairs_sent: 0,
        repairs_lost: 0,
        wrong: 0,
        delays: Vec::new(),
    };
    for n in 0..simulation.packets + simulation.window as u64 {
        let id = SymbolId(n);
        let lost = lose(Packet::Source(id));
        report.lost += u64::from(lost && n < simulation.packets);
        receiver.source(id, lost);
        let mut emit = |repair: Repair<'_, SymbolId>| {
            report.repairs_sent += 1;
            if lose(Packet::Repair(repair.layer)) {
                report.repairs_lost += 1;
            } else {
                receiver.repair(&repair);
            }
        };
        encoder.push(0, id, &[&symbol(id)], &mut emit).expect("the symbol is as long as announced");
    }
    let kept = receiver.kept;
    report.recovered = kept.delays.iter().sum();
    report.wrong = kept.wrong;
    report.delays = kept.delays;
    Ok(report)
}

/// Bytes of a simulated symbol.
const SYMBOL: usize = 8;

/// Bytes that no sum of a few others equals by chance.
fn symbol(id: SymbolId) -> [u8; SYMBOL] {
    // splitmix64
    let mut x = id.0.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (x ^ (x >> 31)).to_le_bytes()
}

struct Receiver {
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
            payload_max: SYMBOL,
            terms_max: usize::from(simulation.code.r),
        };
        Self { decoder: Decoder::new(config), kept: Kept::new(simulation), terms: Vec::new() }
    }

    fn source(&mut self, id: SymbolId, lost: bool) {
        let window = self.kept.symbols.len() as u64;
        self.kept.newest = id.0;
        self.kept.symbols[(id.0 % window) as usize] = (!lost).then(|| symbol(id));
        self.decoder.expire_before(SymbolId((id.0 + 1).saturating_sub(window)));
    }

    fn repair(&mut self, repair: &Repair<'_, SymbolId>) {
        self.terms.clear();
        self.terms.extend(repair.names.iter().map(|&id| Term::xor(id)));
        // What it led to is counted where the symbols go.
        let _ = self.decoder.repair(&mut self.kept, &self.terms, repair.payload);
    }
}

struct Kept {
    /// The newest packets, each at its position modulo the window; `None` where it is missing.
    symbols: Vec<Option<[u8; SYMBOL]>>,
    newest: u64,
    packets: u64,
    delays: Vec<u64>,
    wrong: u64,
}

impl Kept {
    fn new(simulation: &Simulation) -> Self {
        Self {
            symbols: vec![None; simulation.window],
            newest: 0,
            packets: simulation.packets,
            delays: vec![0; simulation.window],
            wrong: 0,
        }
    }

    fn place(&self, id: SymbolId) -> Option<usize> {
        let window = self.symbols.len() as u64;
        (id.0 <= self.newest && self.newest - id.0 < window).then_some((id.0 % window) as usize)
    }
}

impl Window for Kept {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.symbols[self.place(id)?].as_ref().map(|symbol| &symbol[..])
    }

    fn recovered(&mut self, id: SymbolId, bytes: &[u8]) -> bool {
        let Some(place) = self.place(id) else { return false };
        if bytes != symbol(id) {
            self.wrong += 1;
            return false;
        }
        self.symbols[place] = Some(symbol(id));
        if id.0 < self.packets {
            self.delays[(self.newest - id.0) as usize] += 1;
        }
        true
    }
}
