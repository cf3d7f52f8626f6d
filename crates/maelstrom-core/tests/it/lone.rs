//! A lone flow on a link that plainly loses packets and repairs alike, as a session begins. The example
//! `lone_flow` runs many more of these sessions.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "tests and an example use a part of it each")]

use std::cell::RefCell;
use std::rc::Rc;

use crate::pair::{A, B, Pair, config, udp};
use loss::LossModel;
use maelstrom_core::counters::Withheld;
use maelstrom_core::{Config, Schedule};

/// Number of packets of the flow in each session.
pub const PACKETS: u32 = 1_500;

/// Sessions of one kind.
#[derive(Clone, Debug)]
pub struct Kind {
    pub schedule: Schedule,
    /// Losses of packets and of repairs, in the order in which they pass the link.
    pub link: LossModel,
    /// Packets in each second.
    pub rate: u64,
}

/// Packets of one session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub lost: u64,
    pub recovered: u64,
    /// Not injected because more packets are missing than the link explains.
    pub withheld: u64,
}

/// The codes.
pub fn schedules() -> [Schedule; 4] {
    let window = |rate: &str| Schedule::Sliding { rate: rate.parse().unwrap(), window: 256, density: 15 };
    [Schedule::Auto, window("1/8"), window("3/8"), Schedule::layered()]
}

/// The links, with single losses and with bursts.
pub fn links() -> Vec<LossModel> {
    let losses = [0.01, 0.02, 0.04];
    let bursts = losses.map(|loss| LossModel::markov(loss, 5.0).unwrap());
    losses.into_iter().map(LossModel::Uniform).chain(bursts).collect()
}

impl Kind {
    /// Runs one session of a lone flow. Before it begins, the gateways have been idle for up to 20 s.
    pub fn run(&self, seed: u64) -> Counts {
        let mut pair =
            Pair::up([A, B].map(|side| Config { schedule: self.schedule.clone(), ..config(side) }));
        pair.delay_us = 5_000;
        let link = Rc::new(RefCell::new(self.link.seeded(seed)));
        let same = Rc::clone(&link);
        pair.lose_datagram = Box::new(move || same.borrow_mut().lose());
        pair.advance([0, 300_000, 3_000_000, 20_000_000][seed as usize % 4]);
        let mut counts = Counts::default();
        for n in 0..PACKETS {
            let is_lost = link.borrow_mut().lose();
            counts.lost += u64::from(is_lost);
            let content = [&n.to_be_bytes()[..], &[7; 200]].concat();
            pair.send(A, &udp(A, n as u16, &content), is_lost);
            pair.advance(1_000_000 / self.rate);
        }
        pair.advance(1_000_000);
        counts.recovered = pair.recovered[B].len() as u64;
        let count = |reason| pair.status(B, |peer| peer.withheld.count(reason));
        counts.withheld = count(Withheld::LossyFlow) + count(Withheld::Unexplained);
        counts
    }
}

/// Seeds of sessions, by code, link and rate, in which a lone flow was set aside by a test that limited the
/// number of missing packets to a multiple of the packets for each repair.
type Seeds = [(usize, &'static str, u64, &'static [u64])];
#[rustfmt::skip]
const SEEDS: &Seeds = &[
    (0, "uniform:0.01", 20, &[95, 137, 149, 155]),
    (0, "uniform:0.01", 200, &[87]),
    (0, "uniform:0.02", 20, &[48, 123]),
    (0, "uniform:0.02", 200, &[60, 103, 135, 175]),
    (0, "uniform:0.04", 20, &[58, 69, 73, 83, 120, 122, 139, 181]),
    (0, "uniform:0.04", 200, &[19, 35, 55, 59, 75, 77, 87, 126]),
    (0, "uniform:0.04", 2000, &[59]),
    (0, "markov:0.01:5", 200, &[63]),
    (0, "markov:0.02:5", 200, &[15, 171]),
    (0, "markov:0.02:5", 2000, &[131]),
    (0, "markov:0.04:5", 200, &[15, 31, 143, 150, 171]),
    (0, "markov:0.04:5", 2000, &[15]),
    (1, "uniform:0.01", 200, &[54]),
    (1, "uniform:0.02", 20, &[18, 19, 29, 36, 99, 162, 175, 191]),
    (1, "uniform:0.02", 200, &[67, 74, 91, 103, 174]),
    (1, "uniform:0.04", 20, &[59, 166, 168]),
    (1, "uniform:0.04", 200, &[7, 26, 47, 59, 71, 74, 87, 95]),
    (1, "uniform:0.04", 2000, &[59, 83]),
    (1, "markov:0.01:5", 200, &[91]),
    (1, "markov:0.02:5", 200, &[31, 124]),
    (1, "markov:0.02:5", 2000, &[131]),
    (1, "markov:0.04:5", 200, &[10, 31, 75, 80, 143]),
    (1, "markov:0.04:5", 2000, &[15]),
    (2, "uniform:0.01", 20, &[121]),
    (2, "uniform:0.01", 200, &[63, 129]),
    (2, "uniform:0.01", 2000, &[15, 42, 164]),
    (2, "uniform:0.02", 20, &[43, 108]),
    (2, "uniform:0.02", 200, &[68, 115, 160, 190, 197]),
    (2, "uniform:0.02", 2000, &[178]),
    (2, "uniform:0.04", 20, &[23, 109, 131, 135]),
    (2, "uniform:0.04", 200, &[47, 75, 87, 99, 103, 119, 129, 155]),
    (2, "uniform:0.04", 2000, &[8, 59, 79, 152]),
    (2, "markov:0.04:5", 200, &[75]),
    (3, "uniform:0.01", 20, &[74, 106]),
    (3, "uniform:0.01", 200, &[99, 129]),
    (3, "uniform:0.01", 2000, &[6, 87, 182]),
    (3, "uniform:0.02", 20, &[41, 63, 71, 134]),
    (3, "uniform:0.02", 200, &[15, 45, 83, 181]),
    (3, "uniform:0.02", 2000, &[59, 81, 101]),
    (3, "uniform:0.04", 20, &[67, 138, 141]),
    (3, "uniform:0.04", 200, &[11, 55, 83, 139, 159, 164, 199]),
    (3, "uniform:0.04", 2000, &[43, 79, 98, 119, 139]),
    (3, "markov:0.01:5", 20, &[77, 84, 125, 191]),
    (3, "markov:0.01:5", 200, &[88]),
    (3, "markov:0.01:5", 2000, &[75]),
    (3, "markov:0.02:5", 20, &[48, 55, 84, 147]),
    (3, "markov:0.02:5", 200, &[7, 31, 88, 99, 105, 131]),
    (3, "markov:0.02:5", 2000, &[80]),
    (3, "markov:0.04:5", 20, &[0, 10, 23, 43, 72, 99, 105, 106]),
    (3, "markov:0.04:5", 200, &[1, 27, 75, 79, 99, 143, 150, 193]),
    (3, "markov:0.04:5", 2000, &[56, 75, 171, 174]),
];

#[test]
fn a_lone_flow_is_protected_throughout() {
    let (mut sessions, mut sum) = (0, Counts::default());
    for &(code, link, rate, seeds) in SEEDS {
        let kind = Kind { schedule: schedules()[code].clone(), link: link.parse().unwrap(), rate };
        for &seed in seeds {
            let counts = kind.run(seed);
            assert_eq!(counts.withheld, 0, "{kind:?}, seed {seed}: {counts:?}");
            sum.lost += counts.lost;
            sum.recovered += counts.recovered;
            sessions += 1;
        }
    }
    assert!(sessions >= 100 && 10 * sum.recovered >= 8 * sum.lost, "{sessions} sessions, {sum:?}");
}
