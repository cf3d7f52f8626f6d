//! Time of the kernels, and of encoding and decoding per source packet. `encoders` has all codes and kernels.
#![allow(missing_docs, unreachable_pub)]

mod stream;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fec::gf256::Kernel;
use fec::{Decoder, DecoderConfig, Outcome, SymbolId, SymbolStore, Term};
use std::hint::black_box;
use stream::{Decoding, Encoding, PACKET};

fn kernels(criterion: &mut Criterion) {
    let sources: Vec<Vec<u8>> = (1..=8).map(|n| vec![n; PACKET]).collect();
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let mut sum = vec![0; PACKET];
    for kernel in Kernel::available() {
        let mut group = criterion.benchmark_group(format!("kernel {}", kernel.name()));
        group.throughput(Throughput::Bytes(PACKET as u64));
        group.bench_function("xor_into", |b| {
            b.iter(|| kernel.xor_into(black_box(&mut sum), black_box(sources[0])));
        });
        group.bench_function("mul_add", |b| {
            b.iter(|| kernel.mul_add(black_box(&mut sum), 7, black_box(sources[0])));
        });
        group.bench_function("mul", |b| b.iter(|| kernel.mul(black_box(&mut sum), 7)));
        group.bench_function("count", |b| b.iter(|| kernel.count(black_box(sources[0]))));
        group.throughput(Throughput::Bytes(8 * PACKET as u64));
        group.bench_function("xor_many of 8", |b| {
            b.iter(|| kernel.xor_many(black_box(&mut sum), black_box(&sources)));
        });
        group.finish();
    }
}

fn encode(criterion: &mut Criterion) {
    let mut encoding = Encoding::new();
    criterion
        .bench_function("encode (8; 1,11,19), per packet of 1,300 bytes", |b| b.iter(|| encoding.step()));
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode (8; 1,11,19), per packet of 1,300 bytes");
    for percent in [0, 1, 5] {
        let mut decoding = Decoding::new(percent);
        group.bench_function(BenchmarkId::from_parameter(format!("{percent} % lost")), |b| {
            b.iter(|| decoding.step());
        });
    }
    group.finish();
}

/// An owner that knows no symbol and rejects every one.
struct Nobody;

impl SymbolStore for Nobody {
    fn known(&self, _: SymbolId) -> Option<&[u8]> {
        None
    }

    fn on_recovered(&mut self, _: SymbolId, _: &[u8]) -> bool {
        false
    }
}

/// The most expensive call: a repair that is reduced by each of 255 dense equations, and reduces each of
/// them.
fn worst(criterion: &mut Criterion) {
    let config = DecoderConfig { payload_max: PACKET, terms_max: 512, ..DecoderConfig::default() };
    let unknowns = config.equations as u64;
    let equation = |n: u64| -> Vec<Term> {
        let own = Term::xor(SymbolId(n));
        let shared =
            (unknowns..unknowns + 200).map(|id| Term { id: SymbolId(id), coefficient: (n + id) as u8 | 2 });
        std::iter::once(own).chain(shared).collect()
    };
    let last: Vec<Term> = (0..unknowns - 1)
        .chain(unknowns..unknowns + 200)
        .map(|id| Term { id: SymbolId(id), coefficient: (id * 7) as u8 | 4 })
        .collect();
    let full = || {
        let mut decoder = Decoder::new(config);
        for n in 0..unknowns - 1 {
            assert_eq!(decoder.handle_repair(&mut Nobody, &equation(n), &[n as u8; PACKET]), Outcome::Stored);
        }
        decoder
    };
    criterion.bench_function("decode, worst repair with 255 dense equations", |b| {
        b.iter_batched_ref(
            full,
            |decoder| assert_eq!(decoder.handle_repair(&mut Nobody, &last, &[1; PACKET]), Outcome::Stored),
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, kernels, encode, decode, worst);
criterion_main!(benches);
