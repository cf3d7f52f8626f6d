//! Our code against another implementation of RFC 8681, the crate `cu-fec`: both have the same coefficients,
//! and each decodes the other's repairs.
#![allow(missing_docs)]

use crate::common::{Kept, Loss};
use cu_fec::{
    DensityThreshold, EncodingSymbolId, Field, RepairParameters, RepairPayloadId, RlcConfig, RlcDecoder,
    RlcEncoder, generate_coding_coefficients,
};
use fec::{
    Decoder, DecoderConfig, Repair, RepairRate, SlidingConfig, SlidingEncoder, SymbolId, SymbolStore, Term,
    coding_coefficients,
};

/// Length of every symbol in bytes; theirs must be equal.
const SYMBOL: usize = 40;
/// Number of packets in a repair.
const WINDOW: usize = 32;
/// Number of packets that a decoder keeps.
const KEPT: usize = 96;
const PACKETS: u64 = 3_000;
/// Number of packets sent before losses end, so that repairs follow the last loss.
const LOSSY: u64 = PACKETS - WINDOW as u64;
/// One repair for every two packets.
const PACKETS_PER_REPAIR: u64 = 2;
/// Densities: all coefficients nonzero, and half of them.
const DENSITIES: [u8; 2] = [15, 7];

/// Returns a symbol that differs from all others and from sums of a few others.
fn symbol(n: u64) -> [u8; SYMBOL] {
    let mut random = crate::common::Random(n);
    std::array::from_fn(|_| random.draw() as u8)
}

/// Losses of 10 % of all packets, singly and in bursts of five.
fn losses() -> [Loss; 2] {
    [Loss::new(0.1, 1, 1), Loss::new(0.1, 5, 2)]
}

/// Their configuration, for an encoder's window or a decoder's history of this many packets.
fn config(packets: usize) -> RlcConfig {
    RlcConfig::new(SYMBOL, packets, Field::Gf256).unwrap()
}

fn threshold(density: u8) -> DensityThreshold {
    DensityThreshold::new(density).unwrap()
}

#[test]
fn coefficients_are_those_of_the_other_implementation() {
    for density in 0..=15 {
        // The steps of a prime give seeds with few and with many bits. Our generator draws sixteen numbers at
        // a time.
        for seed in (0..=u16::MAX).step_by(251) {
            for length in [1, 15, 16, 17, 100, 256, 1_024] {
                let (mut ours, mut theirs) = (vec![0; length], vec![0; length]);
                coding_coefficients(seed, density, &mut ours);
                generate_coding_coefficients(Field::Gf256, seed, threshold(density), &mut theirs);
                assert_eq!(ours, theirs, "seed {seed}, density {density}, {length} coefficients");
            }
        }
    }
}

#[test]
fn we_decode_what_they_encode() {
    for density in DENSITIES {
        for mut loss in losses() {
            let mut encoder = RlcEncoder::<SYMBOL, WINDOW>::new(config(WINDOW), 0.into()).unwrap();
            let mut kept = Kept::default();
            let mut decoder =
                Decoder::new(DecoderConfig { equations: KEPT, payload_max: SYMBOL, terms_max: WINDOW });
            let mut lost = Vec::new();
            for n in 0..PACKETS {
                encoder.push_source(&symbol(n)).unwrap();
                if n < LOSSY && loss.lose() {
                    lost.push(n);
                } else {
                    kept.0.insert(SymbolId(n), symbol(n).to_vec());
                    decoder.handle_source(&mut kept, SymbolId(n));
                }
                decoder.expire_before(SymbolId((n + 1).saturating_sub(KEPT as u64)));
                if n % PACKETS_PER_REPAIR == 1 && (n >= LOSSY || !loss.lose()) {
                    let mut repair = [0; SYMBOL];
                    let key = RepairParameters::new((n as u16).wrapping_mul(977), threshold(density));
                    let id = encoder.encode_repair(key, &mut repair).unwrap();
                    let _ = decoder.handle_repair(&mut kept, &terms(id), &repair);
                }
            }
            assert!(lost.len() > 200, "{} lost", lost.len());
            lost.retain(|&n| kept.known(SymbolId(n)).is_none());
            assert_eq!(lost, [0u64; 0], "density {density}");
            assert!(kept.0.iter().all(|(id, bytes)| *bytes == symbol(id.0)));
        }
    }
}

/// Returns the terms of their repair.
fn terms(id: RepairPayloadId) -> Vec<Term> {
    let mut coefficients = vec![0; id.source_symbols().into()];
    coding_coefficients(id.repair_key(), id.density().get(), &mut coefficients);
    let first = u64::from(id.first_source_esi().get());
    (coefficients.iter().zip(first..))
        .map(|(&coefficient, n)| Term { id: SymbolId(n), coefficient })
        .collect()
}

#[test]
fn they_decode_what_we_encode() {
    for density in DENSITIES {
        for mut loss in losses() {
            let ours = SlidingConfig {
                rate: RepairRate::new(1, PACKETS_PER_REPAIR as u32).unwrap(),
                stripes: 1,
                window: WINDOW as u16,
                density,
                seed: 40_000,
                deadline_us: None,
                symbol_max: SYMBOL,
            };
            let mut encoder = SlidingEncoder::new(&ours).unwrap();
            let mut decoder = RlcDecoder::<SYMBOL, KEPT, KEPT>::new(config(KEPT), KEPT).unwrap();
            let (mut lost, mut back) = (0, 0);
            for n in 0..PACKETS as u32 {
                let bytes = symbol(n.into());
                if u64::from(n) < LOSSY && loss.lose() {
                    lost += 1;
                } else {
                    back += decoder.receive_source(n.into(), &bytes).unwrap().recovered();
                }
                let mut emit = |repair: Repair<'_, u32>| {
                    if u64::from(n) >= LOSSY || !loss.lose() {
                        let length = repair.packets.len() as u16;
                        let first = EncodingSymbolId::new(repair.packets[0]);
                        let id = RepairPayloadId::new(repair.draw.seed, threshold(density), length, first);
                        back += decoder.receive_repair(id.unwrap(), repair.payload).unwrap().recovered();
                    }
                };
                encoder.push(0, n, &[&bytes], &mut emit).unwrap();
                for (id, known) in decoder.known_symbols() {
                    assert_eq!(known, symbol(id.get().into()), "packet {id}");
                }
            }
            assert!(lost > 200, "{lost} lost");
            assert_eq!(back, lost, "density {density}");
        }
    }
}
