//! A stream of packets with its repairs, generated once and decoded repeatedly at increasing positions.
#![allow(dead_code)]

use fec::{Decoder, DecoderConfig, LayeredConfig, LayeredEncoder, Outcome, SymbolId, SymbolStore, Term};
use std::hint::black_box;

/// Length of a packet in bytes, as with a LAN MTU of 1,300.
pub const PACKET: usize = 1_300;
/// Number of packets in the stream, after which it repeats.
pub const PACKETS: u64 = 2_048;
/// Number of packets that the receiver keeps.
const WINDOW: u64 = 1_024;

fn mixed(n: u64) -> u64 {
    testkit::Random(n).draw()
}

/// The packets, random bytes.
pub fn packets() -> Vec<Vec<u8>> {
    (0..PACKETS).map(|n| (0..PACKET as u64).map(|k| mixed(n * 4_096 + k) as u8).collect()).collect()
}

/// The code measured: (8; 1,11,19).
pub fn code() -> LayeredConfig {
    LayeredConfig { symbol_max: PACKET, ..LayeredConfig::default() }
}

/// An encoder and what it encodes.
pub struct Encoding {
    encoder: LayeredEncoder<u64>,
    packets: Vec<Vec<u8>>,
    next: u64,
}

impl Encoding {
    pub fn new() -> Self {
        Self { encoder: LayeredEncoder::new(&code()).expect("a good code"), packets: packets(), next: 0 }
    }

    /// Encodes one packet; packets follow every 10 µs.
    pub fn step(&mut self) {
        let n = self.next;
        self.next += 1;
        let mut emit = |repair: fec::Repair<'_, u64>| {
            black_box(repair.payload.as_ptr());
        };
        let packet = &self.packets[(n % PACKETS) as usize];
        self.encoder.push(n * 10, n, &[packet], &mut emit).expect("a packet of the announced length");
        if self.encoder.next_deadline_us().is_some_and(|due_us| due_us <= n * 10) {
            self.encoder.fire_due(n * 10, &mut emit);
        }
    }
}

/// A decoder and its input.
pub struct Decoding {
    decoder: Decoder,
    store: Store,
    lost: Vec<bool>,
    /// For each packet, the repairs that follow it and arrive, with terms as distances back from it.
    repairs: Vec<Vec<(Vec<u64>, Vec<u8>)>>,
    terms: Vec<Term>,
    next: u64,
}

/// The bytes of all packets, and which of them the receiver knows.
struct Store {
    packets: Vec<Vec<u8>>,
    held: Vec<u64>,
    recovered: u64,
}

impl SymbolStore for Store {
    #[inline]
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        let place = (id.0 % PACKETS) as usize;
        (self.held[place] == id.0).then(|| &self.packets[place][..])
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let place = (id.0 % PACKETS) as usize;
        assert!(symbol == self.packets[place], "wrong symbol");
        self.held[place] = id.0;
        self.recovered += 1;
        true
    }
}

impl Decoding {
    /// Loses `percent` of sources and repairs, independently.
    pub fn new(percent: u64) -> Self {
        let packets = packets();
        let mut encoder = LayeredEncoder::new(&code()).expect("a good code");
        let lost = |n: u64| mixed(n ^ 0xFEC) % 1_000 < percent * 10;
        let mut repairs = Vec::new();
        // The first round fills the bins and is discarded, so that the following one can repeat.
        for n in 0..2 * PACKETS {
            let mut arrived = Vec::new();
            let mut emit = |repair: fec::Repair<'_, u64>| {
                if !lost(u64::MAX - n * 8 - arrived.len() as u64) {
                    let distances = repair.packets.iter().map(|name| n - name).collect();
                    arrived.push((distances, repair.payload.to_vec()));
                }
            };
            let packet = &packets[(n % PACKETS) as usize];
            encoder.push(0, n, &[packet], &mut emit).expect("a packet of the announced length");
            if n >= PACKETS {
                repairs.push(arrived);
            }
        }
        Self {
            decoder: Decoder::new(DecoderConfig { payload_max: PACKET, ..DecoderConfig::default() }),
            store: Store { packets, held: (0..PACKETS).collect(), recovered: 0 },
            lost: (0..PACKETS).map(lost).collect(),
            repairs,
            terms: Vec::with_capacity(8),
            next: PACKETS,
        }
    }

    /// Takes one packet, unless it is lost, and the repairs that follow it.
    pub fn step(&mut self) {
        let id = SymbolId(self.next);
        self.next += 1;
        let place = (id.0 % PACKETS) as usize;
        if !self.lost[place] {
            self.store.held[place] = id.0;
            self.decoder.handle_source(&mut self.store, id);
        }
        for (distances, payload) in &self.repairs[place] {
            self.terms.clear();
            self.terms.extend(distances.iter().map(|distance| Term::xor(SymbolId(id.0 - distance))));
            let outcome = self.decoder.handle_repair(&mut self.store, &self.terms, payload);
            assert!(!matches!(outcome, Outcome::Refused(_)));
        }
        self.decoder.expire_before(SymbolId(id.0 - WINDOW));
    }

    /// Number of packets recovered.
    pub fn recovered(&self) -> u64 {
        self.store.recovered
    }
}
