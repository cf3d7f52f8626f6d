//! The fuzz targets as functions of a string of bytes, for the fuzzer and for the replay of its corpus.
#![allow(dead_code, unreachable_pub, missing_docs)]

use fec::{
    Decoder, DecoderConfig, LayeredConfig, LayeredEncoder, Outcome, Repair, Sending, SymbolHandle, SymbolId,
    SymbolRing, SymbolStore, Term, gf256,
};
use std::collections::{BTreeMap, VecDeque};

/// Reads numbers off the front of the input, and 0 beyond its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the true bytes of a symbol. Some end in zeros, some are empty.
fn truth(id: SymbolId) -> Vec<u8> {
    (0..id.0 % 7).map(|k| (id.0 * 37 + k * 11) as u8 & !(0xFF * u8::from(id.0 % 5 == 4))).collect()
}

/// An owner that keeps every symbol and detects wrong ones.
#[derive(Default)]
struct Owner {
    kept: BTreeMap<SymbolId, Vec<u8>>,
    rejected: u64,
}

impl SymbolStore for Owner {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.kept.get(&id).map(Vec::as_slice)
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        assert!(!self.kept.contains_key(&id), "{id:?} recovered although known");
        let own = truth(id);
        let right = symbol.len() >= own.len()
            && symbol[..own.len()] == own[..]
            && symbol[own.len()..].iter().all(|&byte| byte == 0);
        if right {
            self.kept.insert(id, symbol.to_vec());
        } else {
            self.rejected += 1;
        }
        right
    }
}

/// Sources, true and forged repairs, expiry, in any order.
pub fn decoder(data: &[u8]) {
    let mut input = Input(data);
    let config = DecoderConfig {
        equations: 1 + input.below(12),
        payload_max: 1 + input.below(12),
        terms_max: 1 + input.below(12),
    };
    let mut decoder = Decoder::new(config);
    let mut owner = Owner::default();
    let mut forged = false;
    while !input.is_empty() {
        match input.byte() % 8 {
            0 | 1 => {
                let id = SymbolId(u64::from(input.byte() % 64));
                owner.kept.entry(id).or_insert_with(|| truth(id));
                decoder.handle_source(&mut owner, id);
                assert!(!decoder.waits_for(id));
            }
            2 => {
                let id = SymbolId(u64::from(input.byte() % 64));
                decoder.expire_before(id);
                assert!((0..id.0).all(|older| !decoder.waits_for(SymbolId(older))));
            }
            // The owner forgets a symbol.
            3 => drop(owner.kept.remove(&SymbolId(u64::from(input.byte() % 64)))),
            4 => {
                forged = true;
                let (terms, mut payload) = repair(&mut input);
                let length = input.below(16);
                payload.resize(length, input.byte());
                let _ = decoder.handle_repair(&mut owner, &terms, &payload);
            }
            _ => {
                let (terms, payload) = repair(&mut input);
                let outcome = decoder.handle_repair(&mut owner, &terms, &payload);
                let fits =
                    (1..=config.terms_max).contains(&terms.len()) && payload.len() <= config.payload_max;
                assert!(forged || fits != matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
            }
        }
        assert!(decoder.equations() <= config.equations);
        assert!(decoder.pending() >= decoder.equations(), "equations are independent");
        assert_eq!(decoder.equations() == 0, decoder.pending() == 0);
    }
    let counters = decoder.counters();
    assert_eq!(counters.symbols_rejected, owner.rejected);
    if !forged {
        assert_eq!(
            (counters.symbols_rejected, counters.equations_inconsistent),
            (0, 0),
            "true repairs agree"
        );
    }
}

/// Reads a correct repair.
fn repair(input: &mut Input<'_>) -> (Vec<Term>, Vec<u8>) {
    let shape = input.byte();
    let mut terms = Vec::new();
    for _ in 0..shape % 14 {
        let id = SymbolId(u64::from(input.byte() % 64));
        terms.push(Term { id, coefficient: if shape >= 128 { input.byte() } else { 1 } });
    }
    let length = terms.iter().map(|term| truth(term.id).len()).max().unwrap_or(0);
    let mut payload = vec![0; length];
    for term in &terms {
        let symbol = truth(term.id);
        payload.iter_mut().zip(symbol).for_each(|(sum, byte)| *sum ^= gf256::product(term.coefficient, byte));
    }
    (terms, payload)
}

/// Any configuration, any packets, any clock.
pub fn layered(data: &[u8]) {
    let mut input = Input(data);
    let config = LayeredConfig {
        r: input.byte(),
        sending: if input.byte() % 2 == 0 { Sending::Immediate } else { Sending::Delayed },
        deadline_us: Some(u64::from(input.u16())).filter(|&us| us != 1),
        symbol_max: input.below(40),
        interleaves: (0..input.below(20)).map(|_| u16::from(input.byte())).collect(),
    };
    let Ok(mut encoder) = LayeredEncoder::<u64>::new(&config) else {
        assert!(config.check().is_err(), "so few bytes never exceed the memory limit");
        return;
    };
    let layers = config.interleaves.len();
    let mut symbols: Vec<Vec<u8>> = Vec::new();
    let mut sent = vec![0usize; layers];
    let mut now_us = 0;
    while !input.is_empty() {
        let step = input.byte();
        now_us += u64::from(input.u16());
        let mut due = Vec::new();
        let mut emit = |repair: Repair<'_, u64>| {
            due.push((repair.row, repair.packets.to_vec(), repair.payload.to_vec()));
        };
        match step % 8 {
            0 => encoder.fire_due(now_us, &mut emit),
            1 if step > 200 => encoder.flush(&mut emit),
            _ => {
                let symbol: Vec<u8> = (0..input.below(48)).map(|k| step.wrapping_add(k as u8)).collect();
                let (head, tail) = symbol.split_at(symbol.len() / 2);
                let taken = encoder.push(now_us, symbols.len() as u64, &[head, tail], &mut emit);
                assert_eq!(taken.is_ok(), symbol.len() <= config.symbol_max);
                if taken.is_ok() {
                    symbols.push(symbol);
                }
            }
        }
        for (layer, names, payload) in due {
            sent[layer] += names.len();
            check(&config, &symbols, &names, &payload);
        }
        if step % 8 == 0 {
            assert!(encoder.next_deadline_us().is_none_or(|due_us| due_us > now_us));
        }
    }
    encoder.flush(&mut |repair| {
        sent[repair.row] += repair.packets.len();
        check(&config, &symbols, repair.packets, repair.payload);
    });
    assert!(sent.iter().all(|&count| count == symbols.len()), "every packet once in every layer");
    assert_eq!(encoder.next_deadline_us(), None);
}

fn check(config: &LayeredConfig, symbols: &[Vec<u8>], names: &[u64], payload: &[u8]) {
    assert!((1..=usize::from(config.r)).contains(&names.len()));
    assert!(names.is_sorted());
    let mut sum = vec![0; names.iter().map(|&name| symbols[name as usize].len()).max().unwrap_or(0)];
    for &name in names {
        sum.iter_mut().zip(&symbols[name as usize]).for_each(|(sum, byte)| *sum ^= byte);
    }
    assert_eq!(payload, sum);
}

/// The ring against an unbounded queue.
pub fn ring(data: &[u8]) {
    let mut input = Input(data);
    let (symbols, bytes) = (1 + input.below(12), 1 + input.below(200));
    let mut ring = SymbolRing::new(symbols, bytes);
    let mut queue: VecDeque<(SymbolHandle, Vec<u8>)> = VecDeque::new();
    let mut gone: Vec<SymbolHandle> = Vec::new();
    while !input.is_empty() {
        let symbol = vec![input.byte(); input.below(80)];
        let (head, tail) = symbol.split_at(symbol.len() / 3);
        let Some(handle) = ring.push(&[head, tail]) else {
            assert!(symbol.len() > bytes);
            continue;
        };
        queue.push_back((handle, symbol));
        while queue.len() > ring.len() {
            gone.extend(queue.pop_front().map(|(handle, _)| handle));
        }
        assert!(!queue.is_empty() && queue.len() <= symbols);
        assert!(queue.iter().all(|(handle, symbol)| ring.get(*handle) == Some(&symbol[..])));
        assert!(gone.iter().all(|&handle| ring.get(handle).is_none()));
    }
}
