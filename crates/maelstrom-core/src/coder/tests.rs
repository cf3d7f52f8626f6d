use fec::{Code, STRIPES_MAX, SlidingConfig};
use foundation::Seq;
use proptest::prelude::*;

use super::{CodedRepair, Coder};
use crate::forecast::AUTO_STRIPES_MAX;
use crate::identity::{Name, PacketHash};
use crate::packet::{MutableFields, Packet};
use crate::symbol::Symbol;
use crate::wire::{Entry, Lag, Recipe, RecipeView, TERMS_MAX};

const RATES: [&str; 10] = ["1/40", "1/16", "1/8", "3/16", "1/4", "5/16", "3/8", "1/2", "1/1", "2/1"];

/// A step in the life of a stream.
#[derive(Clone, Debug)]
enum Step {
    Packets(u16),
    Rate(&'static str),
    Window(u16, u8),
    RepairLoss(f64),
    Extra,
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stripes = prop_oneof![1..=AUTO_STRIPES_MAX, 1..=STRIPES_MAX];
    let step = prop_oneof![
        4 => (1u16..300).prop_map(Step::Packets),
        2 => proptest::sample::select(RATES.to_vec()).prop_map(Step::Rate),
        2 => (1u16..=1_024, stripes).prop_map(|(window, stripes)| Step::Window(window, stripes)),
        1 => (0.0..0.9).prop_map(Step::RepairLoss),
        1 => Just(Step::Extra),
        1 => Just(Step::Flush),
    ];
    proptest::collection::vec(step, 1..40)
}

fn coder(rate: &str, window: u16, stripes: u8) -> Coder {
    let config = SlidingConfig { rate: rate.parse().unwrap(), window, stripes, ..SlidingConfig::default() };
    Coder::new(Code::from(config), 1_024, 20_000, false)
}

/// A UDP packet of 40 bytes.
fn packet() -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[..4].copy_from_slice(&[0x45, 0, 0, 40]);
    bytes[8..10].copy_from_slice(&[64, 17]);
    bytes[25] = 20;
    bytes
}

/// Writes a repair as it travels, and reads it.
fn check(repair: &CodedRepair<'_>) {
    let mut body = vec![0; repair.recipe.wire_len()];
    assert_eq!(repair.recipe.write(Lag::of(0), &mut body), body.len());
    let Recipe::Window { window, .. } = &repair.recipe else { return };
    body.extend_from_slice(repair.symbol);
    let (first, last) = (window[0].seq, window[window.len() - 1].seq);
    let view = RecipeView::read(&body, first).unwrap();
    assert_eq!((view.first(), view.last()), (first, last));
    let named: Vec<Seq> = view.entries().map(|entry| entry.seq).collect();
    assert!(named.len() <= TERMS_MAX && named.is_sorted_by(|a, b| a < b), "{named:?}");
    assert!(named.iter().all(|seq| (first..=last).contains(seq)), "{named:?} of {first:?} to {last:?}");
}

/// Sends packets, and checks every repair of them. Returns the number of repairs.
fn push(coder: &mut Coder, next: &mut u64, packets: u16) -> usize {
    push_and(coder, next, packets, &mut |_| ())
}

/// As [`push`], and hands on each repair.
fn push_and(
    coder: &mut Coder,
    next: &mut u64,
    packets: u16,
    note: &mut dyn FnMut(&CodedRepair<'_>),
) -> usize {
    let (bytes, fields) = (packet(), MutableFields::default());
    let packet = Packet::new_checked(&bytes).unwrap();
    let mut repairs = 0;
    for _ in 0..packets {
        let entry = Entry { seq: Seq(*next), name: Name(0), fields };
        let symbol = Symbol::new(&packet, PacketHash(0), fields);
        let mut emit = |repair: &CodedRepair<'_>| {
            check(repair);
            note(repair);
            repairs += 1;
        };
        coder.push(*next * 10, entry, &symbol, &mut emit).unwrap();
        *next += 1;
    }
    repairs
}

#[test]
fn repairs_of_stripes_name_only_packets_of_their_windows() {
    for rate in RATES {
        for stripes in 1..=STRIPES_MAX {
            let mut coder = coder(rate, 1_024, stripes);
            assert!(push(&mut coder, &mut 0, 3_000) >= 75, "{rate}");
        }
    }
}

#[test]
fn repairs_that_name_all_their_packets_reach_from_one_to_the_next_also_after_the_rate_falls() {
    let reload = |coder: &mut Coder| {
        let rate = "1/40".parse().unwrap();
        let config = SlidingConfig { rate, window: 512, stripes: 1, ..SlidingConfig::default() };
        coder.reconfigure(Code::from(config), 1_024, 20_000, Seq(0));
    };
    let choose = |coder: &mut Coder| coder.set_rate("1/40".parse().unwrap());
    for fall in [&choose as &dyn Fn(&mut Coder), &reload] {
        let mut coder = coder("1/24", 512, 1);
        let mut next = 0;
        push(&mut coder, &mut next, 600);
        coder.set_repair_loss(0.5, 24);
        assert!(coder.alone().is_some());
        push(&mut coder, &mut next, 200);
        fall(&mut coder);
        let from = next;
        let mut covered = vec![false; 400];
        let mut note = |repair: &CodedRepair<'_>| {
            let Recipe::Window { window, .. } = &repair.recipe else { return };
            for entry in window.iter().filter(|entry| entry.seq.0 >= from) {
                covered[(entry.seq.0 - from) as usize] = true;
            }
        };
        push_and(&mut coder, &mut next, 400, &mut note);
        let last = covered.iter().rposition(|is_covered| *is_covered).unwrap();
        assert!(last > 300 && covered[..last].iter().all(|is_covered| *is_covered), "{covered:?}");
    }
}

proptest! {
    #[test]
    fn repairs_name_only_packets_of_their_windows_whatever_changes(steps in steps()) {
        let mut coder = coder("1/8", 512, 1);
        let mut next = 0;
        for step in steps {
            match step {
                Step::Packets(packets) => drop(push(&mut coder, &mut next, packets)),
                Step::Rate(rate) => coder.set_rate(rate.parse().unwrap()),
                Step::Window(packets, stripes) => coder.set_window(packets, stripes),
                Step::RepairLoss(loss) => coder.set_repair_loss(loss, 24),
                Step::Extra => coder.fire_extra(&mut |repair| check(repair)),
                Step::Flush => coder.flush(true, &mut |repair| check(repair)),
            }
        }
    }
}
