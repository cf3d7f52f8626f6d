//! The symbol ring against an unbounded queue.
#![allow(missing_docs)]

use fec::SymbolRing;
use proptest::prelude::*;

proptest! {
    #[test]
    fn keeps_the_newest_that_fit(
        symbols in 1..12usize,
        bytes in 1..200usize,
        pushes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..100),
    ) {
        let mut ring = SymbolRing::new(symbols, bytes);
        let mut pushed = Vec::new();
        for symbol in pushes {
            let (head, tail) = symbol.split_at(symbol.len() / 2);
            let before = ring.len();
            match ring.push(&[head, tail]) {
                Some(handle) => pushed.push((handle, symbol)),
                None => {
                    prop_assert!(symbol.len() > bytes);
                    prop_assert_eq!(ring.len(), before);
                }
            }
            // The ring keeps the newest symbols, unchanged; dropped symbols stay dropped.
            let kept: Vec<_> = pushed.iter().filter(|(handle, _)| ring.get(*handle).is_some()).collect();
            prop_assert_eq!(kept.len(), ring.len());
            prop_assert!(ring.len() <= symbols);
            prop_assert!(kept.iter().all(|(handle, symbol)| ring.get(*handle) == Some(&symbol[..])));
            prop_assert!(pushed.ends_with(&kept.iter().map(|&entry| entry.clone()).collect::<Vec<_>>()));
            prop_assert_eq!(ring.symbol_bytes(), kept.iter().map(|(_, symbol)| symbol.len()).sum::<usize>());
            prop_assert_eq!(ring.oldest(), kept.first().map(|(handle, _)| *handle));
            prop_assert_eq!(ring.evicted() as usize + ring.len(), pushed.len());
        }
    }

    #[test]
    fn wastes_less_than_one_symbol_at_the_end_of_its_bytes(
        bytes in 100..400usize,
        lengths in proptest::collection::vec(1..=20usize, 100),
    ) {
        let mut ring = SymbolRing::new(1_000, bytes);
        let mut evicted = false;
        for length in lengths {
            ring.push(&[&vec![0; length]]).unwrap();
            evicted |= ring.evicted() > 0;
            prop_assert!(!evicted || ring.symbol_bytes() > bytes - 40, "{} of {bytes}", ring.symbol_bytes());
        }
    }
}

#[test]
#[should_panic(expected = "a symbol ring needs room")]
fn a_ring_without_room_is_a_fault_of_the_caller() {
    SymbolRing::new(0, 100);
}
