//! Encoder, decoder and ring do not allocate after construction.
#![allow(missing_docs)]

use crate::common::{Loss, Random};
use fec::{
    Code, Decoder, DecoderConfig, Encoder, LayeredConfig, LayeredEncoder, ReedSolomonConfig, Repair, Sending,
    SlidingConfig, SymbolHandle, SymbolId, SymbolRing, SymbolStore, Term,
};

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

/// Keeps the last symbols in a ring.
struct Owner {
    ring: SymbolRing,
    handles: Vec<Option<(SymbolId, SymbolHandle)>>,
    recovered: u64,
}

impl Owner {
    fn new(window: usize) -> Self {
        Self { ring: SymbolRing::new(window, window * 512), handles: vec![None; window], recovered: 0 }
    }

    fn keep(&mut self, id: SymbolId, symbol: &[u8]) {
        let place = id.0 as usize % self.handles.len();
        self.handles[place] = self.ring.push(&[symbol]).map(|handle| (id, handle));
    }
}

impl SymbolStore for Owner {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        let (held, handle) = self.handles[id.0 as usize % self.handles.len()]?;
        if held == id { self.ring.get(handle) } else { None }
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        self.keep(id, symbol);
        self.recovered += 1;
        true
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0u8; 100]))), 1);
}

#[test]
fn coding_does_not_allocate() {
    let config = LayeredConfig { sending: Sending::Delayed, symbol_max: 512, ..LayeredConfig::default() };
    let mut encoder = LayeredEncoder::new(&config).unwrap();
    // With few equations, some are evicted.
    let mut decoder = Decoder::new(DecoderConfig { equations: 6, payload_max: 512, terms_max: 8 });
    let mut owner = Owner::new(512);
    let mut loss = Loss::new(0.05, 12, 9);
    let mut random = Random(3);
    let mut terms = Vec::with_capacity(8);
    let source = [7; 512];
    fec::gf256::xor_into(&mut [0], &[1]);

    let made = allocations(|| {
        for n in 0..20_000u64 {
            let symbol = &source[..random.below(513) as usize];
            let id = SymbolId(n);
            if !loss.lose() {
                owner.keep(id, symbol);
                decoder.handle_source(&mut owner, id);
            }
            let mut emit = |repair: Repair<'_, SymbolId>| {
                if loss.lose() {
                    return;
                }
                terms.clear();
                // These are not the factors of the payload: solved symbols are wrong, but there are many to
                // solve.
                let factor = |k: usize| if n % 1_000 < 500 { 1 } else { k as u8 + 1 };
                terms.extend((0..).zip(repair.packets).map(|(k, &id)| Term { id, coefficient: factor(k) }));
                let _ = decoder.handle_repair(&mut owner, &terms, repair.payload);
            };
            encoder.push(n * 500, id, &[symbol], &mut emit).unwrap();
            encoder.fire_due(n * 500, &mut emit);
            decoder.expire_before(SymbolId(n.saturating_sub(400)));
        }
        encoder.flush(&mut |_| {});
    });
    assert_eq!(made, 0);
    let counters = decoder.counters();
    assert!(owner.recovered > 100 && counters.stored > 100, "{counters:?}");
    assert!(counters.equations_evicted > 0 && counters.equations_expired > 0, "{counters:?}");
}

#[test]
fn no_code_allocates_while_it_runs() {
    let reed_solomon = ReedSolomonConfig {
        interleave: 5,
        sending: Sending::Delayed,
        symbol_max: 512,
        ..ReedSolomonConfig::default()
    };
    let sliding = SlidingConfig { window: 64, density: 11, symbol_max: 512, ..SlidingConfig::default() };
    let codes: [Code; 4] = [
        ReedSolomonConfig { symbol_max: 512, ..ReedSolomonConfig::default() }.into(),
        reed_solomon.into(),
        SlidingConfig { density: fec::DENSITY_FULL, ..sliding.clone() }.into(),
        sliding.into(),
    ];
    for code in codes {
        let mut encoder = Encoder::new(&code).unwrap();
        let mut decoder = Decoder::new(DecoderConfig { equations: 24, payload_max: 512, terms_max: 64 });
        let mut owner = Owner::new(512);
        let (mut loss, mut random) = (Loss::new(0.08, 12, 9), Random(3));
        let mut terms = Vec::with_capacity(64);
        let source = [7; 512];
        fec::gf256::mul_add(&mut [0], 3, &[1]);

        let made = allocations(|| {
            for n in 0..20_000u64 {
                let (symbol, id) = (&source[..random.below(513) as usize], SymbolId(n));
                if !loss.lose() {
                    owner.keep(id, symbol);
                    decoder.handle_source(&mut owner, id);
                }
                let mut emit = |repair: Repair<'_, SymbolId>| {
                    if !loss.lose() {
                        terms.clear();
                        let pairs = repair.packets.iter().zip(repair.coefficients);
                        terms.extend(pairs.map(|(&id, &coefficient)| Term { id, coefficient }));
                        let _ = decoder.handle_repair(&mut owner, &terms, repair.payload);
                    }
                };
                // The stream pauses from time to time.
                let now_us = n * 10 + n / 100 * 50_000;
                encoder.fire_due(now_us, &mut emit);
                encoder.push(now_us, id, &[symbol], &mut emit).unwrap();
                decoder.expire_before(SymbolId(n.saturating_sub(400)));
            }
            encoder.flush(&mut |_| {});
        });
        assert_eq!(made, 0, "{code:?}");
        let counters = decoder.counters();
        assert!(owner.recovered > 50 && counters.stored > 100, "{code:?}: {counters:?}");
    }
}
