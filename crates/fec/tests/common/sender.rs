//! A sender of packets and repairs of any code, and a receiver that loses what it is told.

use super::Kept;
use fec::{
    Code, CodedRepair, Decoder, DecoderConfig, Draw, Encoder, SlidingEncoder, SymbolId, Term, Window,
    coding_coefficients,
};

/// A repair that has left.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    pub row: usize,
    /// Of a sliding window's coefficients.
    pub seed: u16,
    pub names: Vec<u64>,
    pub coefficients: Vec<u8>,
    pub payload: Vec<u8>,
}

pub struct Sender {
    pub encoder: Encoder<u64>,
    next: u64,
}

/// The symbol of a packet; lengths differ.
pub fn symbol(n: u64) -> Vec<u8> {
    (0..1 + n * 5 % 11).map(|k| (n * 73 + k * 29 + n / 7) as u8).collect()
}

impl Sender {
    pub fn new(code: impl Into<Code>) -> Self {
        Self { encoder: Encoder::new(&code.into()).unwrap(), next: 0 }
    }

    pub fn push(&mut self, now_us: u64) -> Vec<Sent> {
        let (mut sent, symbol) = (Vec::new(), symbol(self.next));
        let (head, tail) = symbol.split_at(symbol.len() / 3);
        self.encoder.push(now_us, self.next, &[head, tail], &mut |repair| sent.push(keep(repair))).unwrap();
        self.next += 1;
        sent
    }

    pub fn many(&mut self, packets: u64) -> Vec<Sent> {
        (0..packets).flat_map(|_| self.push(0)).collect()
    }

    pub fn due(&mut self, now_us: u64) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.encoder.fire_due(now_us, &mut |repair| sent.push(keep(repair)));
        sent
    }

    pub fn flush(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.encoder.flush(&mut |repair| sent.push(keep(repair)));
        sent
    }

    /// What only a sliding window has.
    pub fn sliding(&mut self) -> &mut SlidingEncoder<u64> {
        let Encoder::Sliding(encoder) = &mut self.encoder else { panic!("not a sliding window") };
        encoder
    }
}

fn keep(repair: CodedRepair<'_, u64>) -> Sent {
    if let Some(Draw { seed, density }) = repair.draw {
        let mut again = vec![0; repair.names.len()];
        coding_coefficients(seed, density, &mut again);
        assert_eq!(
            repair.coefficients, again,
            "a receiver knows the coefficients by seed, density and count"
        );
    }
    Sent {
        row: repair.row,
        seed: repair.draw.map_or(0, |draw| draw.seed),
        names: repair.names.to_vec(),
        coefficients: repair.coefficients.to_vec(),
        payload: repair.payload.to_vec(),
    }
}

/// Loses what `lost` says and takes what repairs arrive in order; the packets brought back, of which every byte is checked.
pub fn recover<'a>(sent: impl IntoIterator<Item = &'a Sent>, packets: u64, lost: &[u64]) -> Vec<u64> {
    let mut kept = Kept::default();
    (0..packets).filter(|n| !lost.contains(n)).for_each(|n| drop(kept.0.insert(SymbolId(n), symbol(n))));
    let mut decoder = Decoder::new(DecoderConfig { equations: 512, payload_max: 16, terms_max: 1_024 });
    for sent in sent {
        let terms: Vec<Term> = (sent.names.iter().zip(&sent.coefficients))
            .map(|(&n, &coefficient)| Term { id: SymbolId(n), coefficient })
            .collect();
        let _ = decoder.repair(&mut kept, &terms, &sent.payload);
    }
    let back: Vec<u64> = lost.iter().copied().filter(|&n| kept.known(SymbolId(n)).is_some()).collect();
    for &n in &back {
        let (known, exact) = (kept.known(SymbolId(n)).unwrap(), symbol(n));
        assert_eq!(known[..exact.len()], exact, "packet {n}");
        assert!(known[exact.len()..].iter().all(|&byte| byte == 0));
    }
    back
}
