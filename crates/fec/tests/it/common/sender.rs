//! A sender of packets and repairs of any code, and a receiver that loses the packets a test names.

use super::Kept;
use fec::{
    Code, Decoder, DecoderConfig, Encoder, Repair, Scheme, SlidingEncoder, SymbolId, SymbolStore, Term,
    coding_coefficients, gf256,
};

/// A repair that was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub row: usize,
    /// Seed of a sliding window's coefficients.
    pub seed: u16,
    /// Packets in the sum.
    pub packets: Vec<u64>,
    pub stripes: usize,
    pub coefficients: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Sent {
    /// Checks that the payload is the sum of the packets times their coefficients.
    pub fn check_sum(&self) {
        let mut sum = vec![0; 16];
        let mut length = 0;
        for (&packet, &coefficient) in self.packets.iter().zip(&self.coefficients) {
            let symbol = symbol(packet);
            gf256::mul_add(&mut sum, coefficient, &symbol);
            length = length.max(if coefficient == 0 { 0 } else { symbol.len() });
        }
        assert_eq!(self.payload, sum[..length]);
    }
}

pub struct Sender {
    is_sliding: bool,
    pub encoder: Encoder<u64>,
    next: u64,
}

/// Returns the symbol of a packet; lengths differ.
pub fn symbol(n: u64) -> Vec<u8> {
    (0..1 + n * 5 % 11).map(|k| (n * 73 + k * 29 + n / 7) as u8).collect()
}

impl Sender {
    pub fn new(code: impl Into<Code>) -> Self {
        let code = code.into();
        let is_sliding = code.scheme() == Scheme::Sliding;
        Self { is_sliding, encoder: Encoder::new(&code).unwrap(), next: 0 }
    }

    pub fn push(&mut self, now_us: u64) -> Vec<Sent> {
        let (mut sent, symbol) = (Vec::new(), symbol(self.next));
        let (head, tail) = symbol.split_at(symbol.len() / 3);
        self.encoder
            .push(now_us, self.next, &[head, tail], &mut |repair| sent.push(keep(repair, self.is_sliding)))
            .unwrap();
        self.next += 1;
        sent
    }

    pub fn many(&mut self, packets: u64) -> Vec<Sent> {
        (0..packets).flat_map(|_| self.push(0)).collect()
    }

    pub fn due(&mut self, now_us: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.encoder.fire_due(now_us, &mut |repair| sent.push(keep(repair, self.is_sliding)));
        sent
    }

    pub fn flush(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.encoder.flush(&mut |repair| sent.push(keep(repair, self.is_sliding)));
        sent
    }

    /// Returns the encoder of a sliding window.
    pub fn sliding(&mut self) -> &mut SlidingEncoder<u64> {
        let Encoder::Sliding(encoder) = &mut self.encoder else { panic!("not a sliding window") };
        encoder
    }
}

/// A sliding window's receiver computes the coefficients from seed, density and count.
fn check_coefficients(repair: &Repair<'_, u64>) {
    let mut again = vec![0; repair.packets.len().div_ceil(repair.stripes)];
    coding_coefficients(repair.draw.seed, repair.draw.density, &mut again);
    assert_eq!(repair.coefficients, again);
}

fn keep(repair: Repair<'_, u64>, is_sliding: bool) -> Sent {
    if is_sliding {
        check_coefficients(&repair);
    }
    Sent {
        row: repair.row,
        seed: repair.draw.seed,
        packets: repair.terms().map(|(&packet, _)| packet).collect(),
        stripes: repair.stripes,
        coefficients: repair.coefficients.to_vec(),
        payload: repair.payload.to_vec(),
    }
}

/// Receives all packets but `lost`, then the repairs in order; returns the recovered packets, after checking
/// every byte.
pub fn recover<'a>(sent: impl IntoIterator<Item = &'a Sent>, packets: u64, lost: &[u64]) -> Vec<u64> {
    let mut kept = Kept::default();
    (0..packets).filter(|n| !lost.contains(n)).for_each(|n| drop(kept.0.insert(SymbolId(n), symbol(n))));
    let mut decoder = Decoder::new(DecoderConfig { equations: 512, payload_max: 16, terms_max: 1_024 });
    for sent in sent {
        let terms: Vec<Term> = (sent.packets.iter().zip(&sent.coefficients))
            .map(|(&n, &coefficient)| Term { id: SymbolId(n), coefficient })
            .collect();
        let _ = decoder.handle_repair(&mut kept, &terms, &sent.payload);
    }
    let back: Vec<u64> = lost.iter().copied().filter(|&n| kept.known(SymbolId(n)).is_some()).collect();
    for &n in &back {
        let (known, exact) = (kept.known(SymbolId(n)).unwrap(), symbol(n));
        assert_eq!(known[..exact.len()], exact, "packet {n}");
        assert!(known[exact.len()..].iter().all(|&byte| byte == 0));
    }
    back
}
