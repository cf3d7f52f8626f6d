//! A group that is cut into parts, again and again: at most one part goes on.

use std::collections::{BTreeMap, BTreeSet};

use loss::LossModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use simnet::virtual_net::Conditions;

use super::check::{Violation, check};
use super::world::{Item, World};
use super::{BEGINNING_US, END_US, Fault, TotalOutcome, TotalScenario, below};

/// Mean time between two messages, in microseconds.
const INTERVAL_US: u64 = 5_000;
/// Time after a cut in which all parts but one stop: 0.2 s by the clock of a sequencer that may run at half
/// the speed, and some time for what it has numbered.
const STOP_US: u64 = 2_000_000;
/// Time for which the parts are watched then.
const WATCH_US: u64 = 2_000_000;

/// A random run with partitions, given by its seed: three to seven members, and up to three cuts into two or
/// three parts. In each part members send.
#[derive(Clone, Debug)]
pub struct SplitScenario {
    scenario: TotalScenario,
    /// For each cut, the part of each node.
    cuts: Vec<Vec<u8>>,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitOutcome {
    /// Number of cuts.
    pub cuts: usize,
    /// Number of cuts after which one part went on.
    pub went_on: usize,
    /// Messages that the members have delivered in the end.
    pub total: TotalOutcome,
}

impl SplitScenario {
    /// Returns the scenario of a seed. Every other one delivers safely.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x0073_706c_6974);
        let mut draw = |bound: usize| below(&mut dice, bound);
        let (nodes, delay_us) = (3 + draw(5), 20 + draw(500) as u64);
        let loss = [0.0, 0.005, 0.02][draw(3)];
        let loss = vec![LossModel::Uniform(loss), LossModel::Uniform(loss)];
        let conditions = Conditions { loss, delay_us, jitter_us: [0, delay_us][draw(2)], repeat: 0.0 };
        let parts = 2 + draw(2);
        let cuts = (0..=draw(3)).map(|_| (0..nodes).map(|_| draw(parts) as u8).collect()).collect();
        let scenario = TotalScenario {
            seed,
            nodes,
            safe: seed.is_multiple_of(2),
            conditions,
            messages: 0,
            interval_us: INTERVAL_US,
            size_max: [8, 200][draw(2)],
            faults: vec![(0, Fault::Partition(0))],
        };
        Self { scenario, cuts }
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn run(&self) -> Result<SplitOutcome, Violation> {
        let TotalScenario { seed, nodes, safe, ref conditions, .. } = self.scenario;
        let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x7472_6166);
        let mut world = World::new(conditions.clone(), seed, safe);
        (0..nodes).for_each(|_| world.join(nodes / 2 + 1));
        world.update_views(&mut dice, 1);
        world.run_for(BEGINNING_US);
        self.send(&mut world, &mut dice, 500_000);
        let mut went_on = 0;
        for cut in &self.cuts {
            cut.iter().enumerate().for_each(|(at, &part)| world.set_side(at, part));
            // A failure detector may also overlook it.
            if below(&mut dice, 5) > 0 {
                world.update_views(&mut dice, 1_500_000);
            }
            self.send(&mut world, &mut dice, STOP_US);
            let before: Vec<usize> = (0..nodes).map(|at| delivered(&world, at)).collect();
            self.send(&mut world, &mut dice, WATCH_US);
            let grows = (0..nodes).filter(|&at| delivered(&world, at) > before[at]);
            let parts: BTreeMap<u8, usize> = grows.map(|at| (cut[at], at)).collect();
            let several: BTreeSet<u8> = cut.iter().copied().collect();
            if let [one, other, ..] = parts.values().copied().collect::<Vec<_>>()[..] {
                return Err(Violation::TwoSides { one, other });
            }
            went_on += usize::from(parts.len() == 1 && several.len() > 1);
        }
        (0..nodes).for_each(|at| world.set_side(at, 0));
        world.set_conditions(Conditions { loss: Vec::new(), ..conditions.clone() });
        world.update_views(&mut dice, 1);
        world.run_for(END_US);
        Ok(SplitOutcome { cuts: self.cuts.len(), went_on, total: check(&self.scenario, &world)? })
    }

    fn send(&self, world: &mut World, dice: &mut ChaCha8Rng, time_us: u64) {
        let mut left_us = time_us;
        while left_us > 0 {
            let from = below(dice, self.scenario.nodes);
            world.multicast(from, below(dice, self.scenario.size_max + 1));
            let pause_us = (1 + below(dice, 2 * INTERVAL_US as usize) as u64).min(left_us);
            world.run_for(pause_us);
            left_us -= pause_us;
        }
    }
}

/// Returns the number of messages that a member has delivered.
fn delivered(world: &World, at: usize) -> usize {
    world.trace(at).iter().filter(|item| matches!(item, Item::Message(..))).count()
}
