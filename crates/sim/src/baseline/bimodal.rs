//! Bimodal Multicast: Birman, Hayden, Ozkasap, Xiao, Budiu and Minsky, ACM Transactions on Computer Systems
//! 17(2), 1999.
//!
//! Every 100 ms, a member sends a random other member a digest of the packets that it has received. A member
//! that finds a packet missing requests it from the digest's sender, which retransmits it to that member
//! alone. Losses are found in no other way. Here packets are kept forever and a round has no limit of
//! packets, which favours the protocol.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{DATA, Name, Out, Protocol, Seat, Target, datagram, read};
use loss::chance::Dice;

const DIGEST: u8 = 1;
const SOLICIT: u8 = 2;
const AGAIN: u8 = 3;

/// Packets that a member has of a source.
#[derive(Debug, Default)]
struct Stream {
    /// First sequence number that it knows nothing of.
    next: u32,
    /// Missing packets before that.
    missing: BTreeSet<u32>,
}

/// A member of a group.
#[derive(Debug)]
pub struct Bimodal {
    seat: Seat,
    round_us: u64,
    due_us: u64,
    dice: Dice,
    streams: BTreeMap<u32, Stream>,
}

impl Bimodal {
    /// Makes a member with `round_us` between two rounds, which are 100,000 in the paper.
    pub fn new(round_us: u64, seat: Seat) -> Self {
        let mut dice = Dice::new(seat.seed);
        let due_us = 1 + dice.below(round_us);
        Self { seat, round_us, due_us, dice, streams: BTreeMap::new() }
    }

    fn has(&self, (source, seq): Name) -> bool {
        self.streams.get(&source).is_some_and(|stream| seq < stream.next && !stream.missing.contains(&seq))
    }

    /// Records that all packets before `end` exist.
    fn extend(&mut self, source: u32, end: u32) {
        let stream = self.streams.entry(source).or_default();
        stream.missing.extend(stream.next..end);
        stream.next = stream.next.max(end);
    }

    fn take(&mut self, name: Name) -> bool {
        let is_new = !self.has(name);
        self.extend(name.0, name.1 + 1);
        self.streams.entry(name.0).or_default().missing.remove(&name.1);
        is_new
    }

    /// Builds a digest: for each source its number, the first unknown packet, the number of missing ones, and
    /// these.
    fn digest(&self) -> Vec<u8> {
        let mut bytes = datagram(DIGEST, (0, 0));
        for (&source, stream) in &self.streams {
            for number in [source, stream.next, stream.missing.len() as u32].iter().chain(&stream.missing) {
                bytes.extend(number.to_be_bytes());
            }
        }
        bytes
    }

    /// Requests from the digest's sender all packets that it has and this member lacks.
    fn compare(&mut self, from: u32, body: &[u8], out: &mut Out) {
        let mut numbers = body.as_chunks::<4>().0.iter().map(|&bytes| u32::from_be_bytes(bytes));
        while let (Some(source), Some(end), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) {
            let lacks: BTreeSet<u32> = numbers.by_ref().take(count as usize).collect();
            if source == self.seat.number {
                continue;
            }
            self.extend(source, end);
            let missing = self.streams.get(&source).map(|stream| &stream.missing);
            for &seq in missing.into_iter().flatten().filter(|&&seq| seq < end && !lacks.contains(&seq)) {
                out.found.push((source, seq));
                out.sent.push((Target::Member(from), datagram(SOLICIT, (source, seq))));
            }
        }
    }
}

impl Protocol for Bimodal {
    fn send(&mut self, _now_us: u64, out: &mut Out) {
        let own = self.streams.entry(self.seat.number).or_default();
        out.sent.push((Target::Group, datagram(DATA, (self.seat.number, own.next))));
        own.next += 1;
    }

    fn handle(&mut self, _now_us: u64, from: u32, bytes: &[u8], out: &mut Out) {
        match read(bytes) {
            Some((DATA, name, _)) => drop(self.take(name)),
            Some((AGAIN, name, _)) if self.take(name) => out.back.push(name),
            Some((SOLICIT, name, _)) if self.has(name) => {
                out.sent.push((Target::Member(from), datagram(AGAIN, name)));
            }
            Some((DIGEST, _, body)) => self.compare(from, body, out),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut Out) {
        if now_us < self.due_us {
            return;
        }
        self.due_us = now_us + self.round_us;
        let others = self.seat.members.saturating_sub(1);
        if others > 0 && !self.streams.is_empty() {
            let other = self.dice.below(u64::from(others)) as u32;
            let peer = other + u32::from(other >= self.seat.number);
            out.sent.push((Target::Member(peer), self.digest()));
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        Some(self.due_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::world::{WorldConfig, run};
    use loss::LossModel;

    fn receive(member: &mut Bimodal, bytes: &[u8]) -> Out {
        let mut out = Out::default();
        member.handle(0, 0, bytes, &mut out);
        out
    }

    #[test]
    fn a_digest_is_answered_by_requests_for_packets_that_its_sender_has() {
        let seat = |number| Seat { number, members: 3, seed: u64::from(number) };
        let [mut holder, mut one] = [0, 1].map(|number| Bimodal::new(100_000, seat(number)));
        for seq in [0, 1, 3] {
            receive(&mut holder, &datagram(DATA, (2, seq)));
        }
        receive(&mut one, &datagram(DATA, (2, 0)));
        let mut out = Out::default();
        holder.handle_timeout(holder.poll_timeout().unwrap(), &mut out);
        let requests = receive(&mut one, &out.sent[0].1);
        assert_eq!(requests.found, [(2, 1), (2, 3)], "the digest's sender lacks packet 2 too");
        let again = receive(&mut holder, &requests.sent[0].1);
        assert_eq!(again.sent, [(Target::Member(0), datagram(AGAIN, (2, 1)))]);
        assert_eq!(receive(&mut one, &again.sent[0].1).back, [(2, 1)]);
        assert!(receive(&mut one, &again.sent[0].1).back.is_empty(), "once");
    }

    #[test]
    fn all_packets_are_recovered_within_a_few_rounds() {
        let config = WorldConfig {
            grouping: vec![vec![0]; 10],
            packets_per_second: 100.0,
            in_turn: false,
            loss: LossModel::Uniform(0.05),
            delay_us: 50,
            measured_us: 10_000_000,
            after_us: 5_000_000,
            seed: 3,
        };
        let run = run(&config, |seat| Bimodal::new(100_000, seat));
        assert!(run.fates.len() > 300);
        let waits: Vec<u64> = run
            .fates
            .iter()
            .map(|fate| fate.back_us.expect("every packet is recovered") - fate.missed_us)
            .collect();
        let mean_us = waits.iter().sum::<u64>() / waits.len() as u64;
        // A member receives a digest every 100 ms on average, at any time.
        assert!((80_000..160_000).contains(&mean_us), "{mean_us}");
    }
}
