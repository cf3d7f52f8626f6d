//! Total order under faults: random runs with crashes, partitions, stopped nodes and clocks that lie, and a
//! checker of what each member delivers.

mod check;
mod split;
mod world;

use std::fmt;

use loss::LossModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use simnet::virtual_net::Conditions;

pub use check::Violation;
pub use split::{SplitOutcome, SplitScenario};
pub use world::{Item, World};

/// Time for which the run goes on after the last fault, in microseconds.
const END_US: u64 = 30_000_000;
/// Time in which the members find each other, in microseconds.
const BEGINNING_US: u64 = 2_000_000;

/// A fault at a time.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A node stops for good.
    Crash(usize),
    /// A node leaves the group.
    Leave(usize),
    /// A node is added.
    Join,
    /// Nodes are on two sides, by the bits of the number.
    Partition(u64),
    /// All nodes are on one side again.
    Heal,
    /// A node stops for some time, and then processes what has come.
    Stop(usize, u64),
    /// An application reads nothing for some time, and its node holds back what comes. Its timers go on.
    Block(usize, u64),
    /// The clock of a node jumps ahead.
    Jump(usize, u64),
}

/// A random run, given by its seed.
#[derive(Clone, Debug)]
pub struct TotalScenario {
    /// The random seed.
    pub seed: u64,
    /// Number of nodes at the beginning.
    pub nodes: usize,
    /// Whether members deliver safely.
    pub safe: bool,
    /// Conditions of the network.
    pub conditions: Conditions,
    /// Number of messages.
    pub messages: usize,
    /// Mean time between two messages.
    pub interval_us: u64,
    /// Length of the longest message.
    pub size_max: usize,
    /// Faults, by the number of messages sent before them.
    pub faults: Vec<(usize, Fault)>,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalOutcome {
    /// Messages delivered by all members together.
    pub delivered: usize,
    /// Positions reported as lost by all members together.
    pub lost: usize,
    /// Times that a member learned that it had delivered otherwise.
    pub broken: usize,
    /// Epochs that the members have gone through.
    pub epochs: u64,
    /// Whether the members could go on at the end.
    pub is_alive: bool,
}

impl fmt::Display for TotalOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delivered, lost, broken, epochs, is_alive } = self;
        let alive = if *is_alive { "goes on" } else { "has no majority" };
        write!(f, "{delivered} delivered, {lost} lost, {broken} broken, {epochs} epochs, {alive}")
    }
}

impl TotalScenario {
    /// Returns the scenario of a seed. Every third seed delivers safely, and every other third has no
    /// partitions.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = ChaCha8Rng::seed_from_u64(seed ^ 0x0074_6f74_616c);
        let mut draw = |bound: usize| below(&mut dice, bound);
        let nodes = 1 + draw(7);
        let delay_us = 20 + draw(500) as u64;
        let loss = [0.0, 0.005, 0.02][draw(3)];
        let conditions = Conditions {
            loss: vec![LossModel::Uniform(loss), LossModel::Uniform(loss)],
            delay_us,
            jitter_us: [0, delay_us, 3 * delay_us][draw(3)],
            repeat: [0.0, 0.01][draw(2)],
        };
        let messages = 150 + draw(250);
        let interval_us = [300, 3_000, 20_000][draw(3)];
        let size_max = [8, 200, 4_000][draw(3)];
        let partitions = seed % 3 != 1;
        let mut faults: Vec<_> =
            (0..draw(7)).map(|_| (draw(messages), Fault::draw(&mut draw, partitions))).collect();
        faults.sort_by_key(|&(at, _)| at);
        Self {
            seed,
            nodes,
            safe: seed.is_multiple_of(3),
            conditions,
            messages,
            interval_us,
            size_max,
            faults,
        }
    }

    /// Returns whether all nodes can always reach each other, and none stops or holds back packets.
    pub fn is_connected(&self) -> bool {
        let apart = |(_, fault): &(usize, Fault)| {
            matches!(fault, Fault::Partition(_) | Fault::Stop(..) | Fault::Block(..))
        };
        !self.faults.iter().any(apart)
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn run(&self) -> Result<TotalOutcome, Violation> {
        let mut dice = ChaCha8Rng::seed_from_u64(self.seed ^ 0x7472_6166);
        let mut world = World::new(self.conditions.clone(), self.seed, self.safe);
        // Two orders would be begun if the members were apart at first, which is not shown here.
        (0..self.nodes).for_each(|_| world.join(self.nodes / 2 + 1));
        world.update_views(&mut dice, 1);
        world.run_for(BEGINNING_US);
        for number in 0..self.messages {
            for &(_, fault) in self.faults.iter().filter(|&&(at, _)| at == number) {
                world.apply(fault, &mut dice);
            }
            let up = world.running();
            let Some(&from) = up.get(below(&mut dice, up.len().max(1))) else { break };
            world.multicast(from, below(&mut dice, self.size_max + 1));
            world.run_for(1 + below(&mut dice, 2 * self.interval_us as usize) as u64);
        }
        // All faults end.
        world.apply(Fault::Heal, &mut dice);
        world.set_conditions(Conditions { loss: Vec::new(), ..self.conditions.clone() });
        world.update_views(&mut dice, 1);
        world.run_for(END_US);
        check::check(self, &world)
    }
}

impl Fault {
    fn draw(draw: &mut impl FnMut(usize) -> usize, partitions: bool) -> Self {
        match draw(if partitions { 10 } else { 6 }) {
            0 | 1 => Self::Crash(draw(64)),
            2 => Self::Leave(draw(64)),
            3 | 4 => Self::Join,
            5 => Self::Jump(draw(64), draw(5_000_000) as u64),
            6 => {
                let (which, time_us) = (draw(64), 50_000 + draw(3_000_000) as u64);
                if draw(2) == 0 { Self::Stop(which, time_us) } else { Self::Block(which, time_us) }
            }
            7 => Self::Heal,
            _ => Self::Partition(draw(1 << 20) as u64),
        }
    }
}

/// Returns a random number below a bound.
fn below(dice: &mut ChaCha8Rng, bound: usize) -> usize {
    ((u128::from(dice.next_u64()) * bound as u128) >> 64) as usize
}
