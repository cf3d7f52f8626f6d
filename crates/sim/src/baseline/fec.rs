//! FEC by the sender: after every r packets to a group, a sender sends c repairs. Any r of these r + c
//! packets recover the others (Ricochet §2, Huitema 1996).
//!
//! The code is ideal and free of cost here; only the timing of repairs matters. There are no requests.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{DATA, Name, Out, Protocol, Seat, Target, datagram, read};

const REPAIR: u8 = 1;

/// Size of a block and its number of repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FecConfig {
    /// Number of packets.
    pub r: u32,
    /// Number of repairs.
    pub c: u32,
}

/// State of a block. Closed blocks hold nothing.
#[derive(Debug, Default)]
struct Block {
    data: BTreeSet<u32>,
    repairs: u32,
    is_whole: bool,
}

/// A member of a group.
#[derive(Debug)]
pub struct SenderFec {
    config: FecConfig,
    seat: Seat,
    sent: u32,
    next: BTreeMap<u32, u32>,
    /// Blocks by source and number in its stream.
    blocks: BTreeMap<Name, Block>,
}

impl SenderFec {
    /// Makes a member.
    pub fn new(config: FecConfig, seat: Seat) -> Self {
        Self { config, seat, sent: 0, next: BTreeMap::new(), blocks: BTreeMap::new() }
    }

    /// Records that packets before `end` exist.
    fn learn(&mut self, source: u32, end: u32, arrived: Option<u32>, out: &mut Out) {
        let next = self.next.entry(source).or_default();
        out.found.extend((*next..end).filter(|&seq| Some(seq) != arrived).map(|seq| (source, seq)));
        *next = end.max(*next);
    }

    /// Recovers a block that has r of its packets.
    fn solve(&mut self, source: u32, number: u32, out: &mut Out) {
        let r = self.config.r;
        let Some(block) = self.blocks.get_mut(&(source, number)) else { return };
        if !block.is_whole && block.data.len() as u32 + block.repairs >= r {
            let missing = (number * r..(number + 1) * r).filter(|seq| !block.data.contains(seq));
            out.back.extend(missing.map(|seq| (source, seq)));
            *block = Block { is_whole: true, ..Block::default() };
        }
    }
}

impl Protocol for SenderFec {
    fn send(&mut self, _now_us: u64, out: &mut Out) {
        let FecConfig { r, c } = self.config;
        out.sent.push((Target::Group, datagram(DATA, (self.seat.number, self.sent))));
        self.sent += 1;
        if self.sent.is_multiple_of(r) {
            let repair = datagram(REPAIR, (self.seat.number, self.sent - r));
            out.sent.extend((0..c).map(|_| (Target::Group, repair.clone())));
        }
    }

    fn handle(&mut self, _now_us: u64, _from: u32, bytes: &[u8], out: &mut Out) {
        let Some((kind, (source, seq), _)) = read(bytes) else { return };
        let number = seq / self.config.r;
        let block = self.blocks.entry((source, number)).or_default();
        if kind == DATA {
            if !block.is_whole {
                block.data.insert(seq);
            }
            self.learn(source, seq + 1, Some(seq), out);
        } else {
            block.repairs += 1;
            self.learn(source, (number + 1) * self.config.r, None, out);
        }
        self.solve(source, number, out);
    }

    fn handle_timeout(&mut self, _now_us: u64, _out: &mut Out) {}

    fn poll_timeout(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::world::{WorldConfig, run};
    use loss::LossModel;

    fn receive(member: &mut SenderFec, bytes: &[u8]) -> Out {
        let mut out = Out::default();
        member.handle(0, 0, bytes, &mut out);
        out
    }

    #[test]
    fn c_repairs_follow_r_packets_and_any_r_of_all_suffice() {
        let config = FecConfig { r: 4, c: 2 };
        let seat = |number| Seat { number, members: 2, seed: 0 };
        let (mut sender, mut receiver) = (SenderFec::new(config, seat(0)), SenderFec::new(config, seat(1)));
        let mut sent = Out::default();
        (0..4).for_each(|_| sender.send(0, &mut sent));
        let bytes: Vec<_> = sent.sent.into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(bytes.len(), 6, "two repairs, after the fourth packet");
        receive(&mut receiver, &bytes[0]);
        assert_eq!(receive(&mut receiver, &bytes[2]).found, [(0, 1)]);
        let first = receive(&mut receiver, &bytes[4]);
        assert_eq!((first.found, first.back), (vec![(0, 3)], vec![]), "three of six must not suffice");
        assert_eq!(receive(&mut receiver, &bytes[5]).back, [(0, 1), (0, 3)]);
    }

    #[test]
    fn without_a_full_block_nothing_is_recovered() {
        let config = FecConfig { r: 4, c: 2 };
        let mut receiver = SenderFec::new(config, Seat { number: 1, members: 2, seed: 0 });
        for seq in [0, 2, 3] {
            assert!(receive(&mut receiver, &datagram(DATA, (0, seq))).back.is_empty());
        }
    }
    #[test]
    fn in_a_large_group_losses_are_recovered_with_their_block() {
        let config = WorldConfig {
            grouping: vec![vec![0]; 10],
            packets_per_second: 100.0,
            in_turn: true,
            loss: LossModel::Uniform(0.01),
            delay_us: 50,
            measured_us: 40_000_000,
            after_us: 5_000_000,
            seed: 3,
        };
        let run = run(&config, |seat| SenderFec::new(FecConfig { r: 8, c: 2 }, seat));
        let [data, repairs] = run.arrived;
        // Nine others receive each packet; two repairs follow every eight.
        assert!((39_500..40_700).contains(&(data + run.fates.len() as u64)), "{data}");
        assert!((0.24..0.26).contains(&(repairs as f64 / data as f64)), "{repairs}");
        let waits: Vec<u64> =
            run.fates.iter().filter_map(|fate| Some(fate.back_us? - fate.missed_us)).collect();
        // Three losses in ten packets are rare at 1 %.
        assert!(run.fates.len() > 250 && waits.len() * 100 >= run.fates.len() * 98, "{}", waits.len());
        // A member sends every 100 ms: its repairs follow its eighth packet, 0 to 700 ms after the lost one.
        let mean_us = waits.iter().sum::<u64>() / waits.len() as u64;
        assert!((300_000..400_000).contains(&mean_us), "{mean_us}");
        let latest_us = waits.iter().max();
        assert!(latest_us.is_some_and(|&us| (690_000..=710_000).contains(&us)), "{latest_us:?}");
    }
}
