//! The codec against an independent simulation of layered interleaving, and against the closed forms of
//! Maelstrom §4.4.
#![allow(missing_docs)]

use crate::common::Loss;
use fec::simulate::{Report, Simulation, simulate};
use fec::{LayeredConfig, ReedSolomonConfig, RepairRate, Sending, SlidingConfig, analysis};
use std::collections::{BTreeMap, BTreeSet};

/// Layered interleaving as the paper describes it, over packet numbers alone: no bytes, no fields, no code of
/// the crate.
struct Naive {
    r: usize,
    interleaves: Vec<usize>,
    delayed: bool,
    window: u64,
    bins: BTreeMap<(usize, usize), Vec<u64>>,
    held: BTreeMap<(usize, usize), Vec<u64>>,
    fired: BTreeSet<(usize, usize)>,
    missing: BTreeSet<u64>,
    /// For each repair that arrived, the packets in it that are still missing.
    equations: Vec<BTreeSet<u64>>,
    delays: BTreeMap<u64, u64>,
}

impl Naive {
    fn new(r: usize, interleaves: &[u16], delayed: bool, window: u64) -> Self {
        Self {
            r,
            interleaves: interleaves.iter().map(|&i| usize::from(i)).collect(),
            delayed,
            window,
            bins: BTreeMap::new(),
            held: BTreeMap::new(),
            fired: BTreeSet::new(),
            missing: BTreeSet::new(),
            equations: Vec::new(),
            delays: BTreeMap::new(),
        }
    }

    /// Returns the size at which a bin fires, from the text of §4.3.1, which counts bins from 1.
    fn size(&self, layer: usize, bin: usize) -> usize {
        let (r, i, x) = (self.r, self.interleaves[layer], bin + 1);
        if self.fired.contains(&(layer, bin)) {
            return r;
        }
        if i < r {
            return x * r / i;
        }
        (1..=r).find(|size| (x - size) % r == 0).unwrap()
    }

    /// Returns the repairs that leave with packet `n`, in order.
    fn send(&mut self, n: u64) -> Vec<Vec<u64>> {
        let mut repairs = Vec::new();
        for layer in 0..self.interleaves.len() {
            let key = (layer, n as usize % self.interleaves[layer]);
            repairs.extend(self.held.remove(&key));
            self.bins.entry(key).or_default().push(n);
            if self.bins[&key].len() < self.size(layer, key.1) {
                continue;
            }
            let full = self.bins.remove(&key).unwrap();
            self.fired.insert(key);
            if self.delayed && self.interleaves[layer] > 1 {
                self.held.insert(key, full);
            } else {
                repairs.push(full);
            }
        }
        repairs
    }

    /// Takes a repair that arrives after packet `now`.
    fn receive(&mut self, now: u64, repair: &[u64]) {
        let unknown: BTreeSet<u64> = repair.iter().copied().filter(|n| self.missing.contains(n)).collect();
        // A packet that left the history is neither known nor waited for.
        if unknown.is_empty() || repair.iter().any(|n| n + self.window <= now) {
            return;
        }
        self.equations.push(unknown);
        self.peel(now);
        for n in self.eliminate() {
            self.recover(now, n);
        }
        self.peel(now);
    }

    /// Solves equations with one unknown until there is none.
    fn peel(&mut self, now: u64) {
        while let Some(single) = self.equations.iter().find(|equation| equation.len() == 1) {
            let n = *single.first().unwrap();
            self.recover(now, n);
        }
    }

    fn recover(&mut self, now: u64, n: u64) {
        assert!(self.missing.remove(&n));
        self.delays.insert(n, now - n);
        for equation in &mut self.equations {
            equation.remove(&n);
        }
        self.equations.retain(|equation| !equation.is_empty());
    }

    /// Solves all equations by elimination.
    fn eliminate(&self) -> Vec<u64> {
        let mut rows = self.equations.clone();
        let unknowns: BTreeSet<u64> = rows.iter().flatten().copied().collect();
        let mut done = 0;
        for n in unknowns {
            let Some(pivot) = (done..rows.len()).find(|&row| rows[row].contains(&n)) else { continue };
            rows.swap(done, pivot);
            let pivot = rows[done].clone();
            for (at, row) in rows.iter_mut().enumerate() {
                if at != done && row.contains(&n) {
                    *row = &*row ^ &pivot;
                }
            }
            done += 1;
        }
        rows.iter().filter(|row| row.len() == 1).map(|row| *row.first().unwrap()).collect()
    }

    fn run(mut self, packets: u64, mut lose: impl FnMut() -> bool) -> (u64, BTreeMap<u64, u64>) {
        let mut lost = 0;
        for n in 0..packets + self.window {
            if lose() {
                lost += u64::from(n < packets);
                self.missing.insert(n);
            }
            let gone = (n + 1).saturating_sub(self.window);
            self.missing = self.missing.split_off(&gone);
            self.equations.retain(|equation| *equation.first().unwrap() >= gone);
            for repair in self.send(n) {
                if !lose() {
                    self.receive(n, &repair);
                }
            }
        }
        self.delays.retain(|&n, _| n < packets);
        (lost, self.delays)
    }
}

fn run(code: &LayeredConfig, packets: u64, mut loss: Loss) -> Report {
    let simulation = Simulation { code: code.clone().into(), packets, ..Simulation::default() };
    let report = simulate(&simulation, |_| loss.lose()).unwrap();
    assert_eq!(report.wrong, 0);
    report
}

fn layered(r: u8, interleaves: &[u16], sending: Sending) -> LayeredConfig {
    LayeredConfig { r, interleaves: interleaves.to_vec(), sending, ..LayeredConfig::default() }
}

/// The results must be equal: the same packets, with the same delays.
fn assert_like_naive(code: &LayeredConfig, loss: &Loss) {
    let packets = 100_000;
    let report = run(code, packets, loss.clone());
    let naive = Naive::new(usize::from(code.r), &code.interleaves, code.sending == Sending::Delayed, 1_024);
    let mut again = loss.clone();
    let (lost, delays) = naive.run(packets, || again.lose());
    assert!(lost > 500, "{lost}");
    assert_eq!(report.lost, lost);
    let mut histogram = vec![0; report.delays.len()];
    delays.values().for_each(|&delay| histogram[delay as usize] += 1);
    assert_eq!(report.recovered, delays.len() as u64, "{code:?}");
    assert_eq!(report.delays, histogram, "{code:?}");
}

#[test]
fn bursts_are_recovered_as_in_an_independent_simulation() {
    for interleaves in [[1, 11, 19], [1, 19, 41]] {
        for burst in [10, 20, 25, 40] {
            let loss = Loss::new(0.01, burst, 7 + u64::from(burst));
            assert_like_naive(&layered(8, &interleaves, Sending::Immediate), &loss);
        }
    }
}

#[test]
fn delayed_sending_recovers_as_in_an_independent_simulation() {
    for burst in [1, 10, 20] {
        assert_like_naive(&layered(8, &[1, 11, 19], Sending::Delayed), &Loss::new(0.01, burst, 3));
    }
}

#[test]
fn other_rates_recover_as_in_an_independent_simulation() {
    for (r, interleaves) in
        [(1, &[1, 5][..]), (2, &[3, 4]), (5, &[1, 4, 8]), (8, &[1, 10, 20]), (20, &[1]), (7, &[6, 13])]
    {
        assert_like_naive(&layered(r, interleaves, Sending::Immediate), &Loss::new(0.05, 1, 5));
    }
}

#[test]
fn overhead_is_c_over_r_from_the_start() {
    let simulation = Simulation { packets: 1_000, history: 1, ..Simulation::default() };
    let report = simulate(&simulation, |_| false).unwrap();
    let expected = simulation.code.overhead() * 1_001.0;
    assert!((report.repairs_sent as f64 - expected).abs() < 12.0, "{} for {expected}", report.repairs_sent);
}

#[test]
fn layered_form_is_a_lower_bound_and_close_at_low_loss() {
    for (r, interleaves) in [(8, &[1, 11, 19][..]), (7, &[1, 11]), (8, &[13]), (5, &[3, 7, 11])] {
        for p in [0.002, 0.01, 0.05, 0.1] {
            let form = analysis::layered_uniform(p, r, interleaves.len());
            let report = run(&layered(r, interleaves, Sending::Immediate), 400_000, Loss::new(p, 1, 11));
            let share = report.recovered_share();
            let deviation = (form * (1.0 - form) / report.lost as f64).sqrt();
            assert!(
                share > form - 4.0 * deviation - 1e-4,
                "r {r} I {interleaves:?} p {p}: {share} below {form}"
            );
            if p <= 0.01 {
                assert!(share < form + 0.01, "r {r} I {interleaves:?} p {p}: {share} far above {form}");
            }
        }
    }
}

#[test]
fn bursty_form_is_a_lower_bound_where_no_repair_is_lost_with_its_packets() {
    for (interleaves, burst) in [([1, 11, 19], 10), ([1, 11, 19], 15), ([1, 19, 41], 10), ([1, 19, 41], 30)] {
        let rate = 0.002;
        let form = analysis::layered_bursty(rate, 8, &interleaves, burst);
        // The form counts bursts in source packets and takes losses outside the burst as independent, so only
        // sources are lost in bursts.
        let simulation = Simulation {
            code: layered(8, &interleaves, Sending::Delayed).into(),
            packets: 1_000_000,
            ..Simulation::default()
        };
        let mut loss = Loss::new(rate, burst, 23);
        let report =
            simulate(&simulation, |packet| matches!(packet, fec::simulate::Packet::Source(_)) && loss.lose())
                .unwrap();
        let share = report.recovered_share();
        println!("I {interleaves:?} burst {burst}: form {form}, simulated {share}");
        // Bursts are recovered as a whole or not at all, so about ten in a thousand bursts decide the last
        // digits.
        assert!(share > form - 0.02, "I {interleaves:?} burst {burst}: {share} below {form}");
    }
}

#[test]
fn reed_solomon_form_matches_the_simulation() {
    for (p, r, c, interleave) in
        [(0.01, 8, 3u8, 1), (0.05, 7, 2, 1), (0.1, 7, 2, 5), (0.2, 8, 3, 1), (0.1, 4, 1, 3), (0.15, 20, 6, 2)]
    {
        let form = analysis::reed_solomon(p, r, usize::from(c));
        for sending in [Sending::Immediate, Sending::Delayed] {
            let code = ReedSolomonConfig { r, c, interleave, sending, ..ReedSolomonConfig::default() };
            let mut loss = Loss::new(p, 1, 31);
            let simulation = Simulation { code: code.into(), packets: 300_000, ..Simulation::default() };
            let report = simulate(&simulation, |_| loss.lose()).unwrap();
            assert_eq!(report.wrong, 0);
            let share = report.recovered_share();
            // Losses of one block share their fate, which multiplies the variance by up to c + 1.
            let deviation = (f64::from(c + 1) * form * (1.0 - form) / report.lost as f64).sqrt();
            assert!(
                (share - form).abs() < 4.0 * deviation + 1e-4,
                "p {p} ({r},{c}) x{interleave} {sending:?}: {share} against {form}"
            );
            assert!((report.overhead() - f64::from(c) / f64::from(r)).abs() < 1e-3);
        }
    }
}

#[test]
fn the_next_repair_of_a_window_recovers_a_single_loss() {
    let sliding = |repairs, sources| {
        let rate = RepairRate::new(repairs, sources).unwrap();
        let code = SlidingConfig { rate, window: 100, ..SlidingConfig::default() };
        Simulation { code: code.into(), packets: 50_000, ..Simulation::default() }
    };
    for (repairs, sources, delay_max) in [(1, 1, 0), (3, 8, 2), (1, 8, 7), (1, 50, 49)] {
        let every_101 = |packet| matches!(packet, fec::simulate::Packet::Source(id) if id.0 % 101 == 50);
        let report = simulate(&sliding(repairs, sources), every_101).unwrap();
        assert_eq!((report.recovered, report.wrong), (report.lost, 0));
        assert_eq!(report.delay_max(), Some(delay_max), "{repairs}/{sources}");
    }
}

#[test]
fn reports_of_several_runs_add_up() {
    let run = |seed| {
        let simulation = Simulation { packets: 5_000, ..Simulation::default() };
        let mut loss = Loss::new(0.05, 12, seed);
        simulate(&simulation, |_| loss.lose()).unwrap()
    };
    let (one, other) = (run(1), run(2));
    let mut sum = one.clone();
    sum.add(&other);
    assert_eq!((sum.lost, sum.recovered), (one.lost + other.lost, one.recovered + other.recovered));
    assert_eq!(sum.delays.iter().sum::<u64>(), sum.recovered);
    let gone = one.lost + other.lost - sum.recovered;
    assert!(gone > 0 && (sum.residual_loss() - gone as f64 / 10_000.0).abs() < 1e-12);
}

#[test]
fn closed_forms_are_exact_at_their_limits() {
    for c in 1..4 {
        assert_eq!(analysis::layered_uniform(0.0, 8, c), 1.0);
        assert_eq!(analysis::layered_uniform(1.0, 8, c), 0.0);
        assert_eq!(analysis::reed_solomon(0.0, 8, c), 1.0);
        assert_eq!(analysis::reed_solomon(1.0, 8, c), 0.0);
    }
    // One layer equals a (r, 1) Reed–Solomon code.
    assert!((analysis::layered_uniform(0.03, 9, 1) - analysis::reed_solomon(0.03, 9, 1)).abs() < 1e-12);
}
