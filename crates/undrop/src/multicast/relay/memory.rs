//! Memory of datagrams: tells further copies of one datagram from a datagram that is the same again.
//!
//! Two relays that hear the same program carry each of its datagrams twice. Copies have the same source and
//! bytes, and so have the datagrams of a program that repeats itself. Therefore each way by which a datagram
//! comes (a relay, or this host) is counted by itself: the n-th copy by one way is a further copy of the n-th
//! by another.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;

/// Time after which a datagram is forgotten: as long as Ricochet takes to recover one.
const MEMORY_MS: u64 = 10_000;
/// Maximum number of datagrams of one generation. There are two.
const DATAGRAMS_MAX: usize = 1 << 16;
/// Maximum number of ways whose copies of one datagram are counted. Copies by others are further ones.
const WAYS: usize = 4;

/// A way by which a datagram comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A program at an interface of this host.
    Here,
    /// A relay, by the identifier of its node.
    Relay(u32),
}

/// Source and bytes of a datagram to a group, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64);

/// Datagrams of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Memory {
    hasher: RandomState,
    fresh: HashMap<Identity, Copies>,
    stale: HashMap<Identity, Copies>,
    /// Time at which the fresh ones became the stale ones.
    turned_ms: u64,
}

/// Copies of datagrams of one identity.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    /// Number of different datagrams.
    datagrams: u64,
    last_ms: u64,
    /// Each with the number of its copies, and the time of the last one.
    ways: [Option<(Way, u64, u64)>; WAYS],
}

impl Memory {
    pub(super) fn identity(&self, group: usize, source: SocketAddr, payload: &[u8]) -> Identity {
        Identity(self.hasher.hash_one((group, source, payload)))
    }

    /// Notes a copy. Returns whether it is the first of its datagram.
    pub(super) fn is_first(&mut self, now_ms: u64, identity: Identity, way: Way) -> bool {
        if now_ms.saturating_sub(self.turned_ms) >= MEMORY_MS || self.fresh.len() >= DATAGRAMS_MAX {
            self.stale = std::mem::take(&mut self.fresh);
            self.turned_ms = now_ms;
        }
        let stale = &mut self.stale;
        let copies =
            self.fresh.entry(identity).or_insert_with(|| stale.remove(&identity).unwrap_or_default());
        if now_ms.saturating_sub(copies.last_ms) >= MEMORY_MS {
            *copies = Copies::default();
        }
        copies.last_ms = now_ms;
        copies.add(now_ms, way)
    }
}

impl Copies {
    fn add(&mut self, now_ms: u64, way: Way) -> bool {
        let known = self.ways.iter().position(|entry| entry.is_some_and(|(other, ..)| other == way));
        // A relay that was started again is another way, and the former one is silent.
        let is_free = |entry: &Option<(Way, u64, u64)>| {
            entry.is_none_or(|(.., last_ms)| now_ms.saturating_sub(last_ms) >= MEMORY_MS)
        };
        let Some(at) = known.or_else(|| self.ways.iter().position(is_free)) else { return false };
        // A way that is new brings the newest datagram first.
        let count = self.ways[at].filter(|_| known.is_some()).map(|(_, count, _)| count);
        let before = count.unwrap_or(self.datagrams.saturating_sub(1));
        self.ways[at] = Some((way, before + 1, now_ms));
        let is_first = before + 1 > self.datagrams;
        self.datagrams = self.datagrams.max(before + 1);
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Way = Way::Relay(1);
    const B: Way = Way::Relay(2);

    fn memory() -> (Memory, Identity) {
        let memory = Memory::default();
        let identity = memory.identity(0, "10.0.0.1:5000".parse().unwrap(), b"alive");
        (memory, identity)
    }

    #[test]
    fn a_program_that_repeats_itself_is_heard_each_time() {
        let (mut memory, alive) = memory();
        assert!((0..1_000).all(|at| memory.is_first(at * 20, alive, A)));
    }

    #[test]
    fn of_two_relays_one_copy_counts_in_any_order() {
        let (mut memory, alive) = memory();
        let mut random = testkit::Random(7);
        let (mut by_a, mut by_b, mut firsts) = (0_u64, 0_u64, 0);
        while by_a + by_b < 2_000 {
            // Neither is more than a few datagrams ahead.
            let takes_a =
                by_a < 1_000 && (by_b == 1_000 || (random.chance(0.5) && by_a < by_b + 5) || by_b > by_a + 5);
            *if takes_a { &mut by_a } else { &mut by_b } += 1;
            let is_first = memory.is_first(by_a + by_b, alive, if takes_a { A } else { B });
            assert!(by_a + by_b > 1 || is_first);
            firsts += u64::from(is_first);
        }
        // The second relay may be new when the first is some datagrams ahead: these count as missed by it.
        assert!((1_000..=1_005).contains(&firsts), "{firsts}");
    }

    #[test]
    fn a_relay_that_continues_alone_loses_one_datagram_at_most() {
        let (mut memory, alive) = memory();
        assert!((0..100).all(|at| memory.is_first(at, alive, A)));
        let heard = (100..200).filter(|&at| memory.is_first(at, alive, B)).count();
        assert_eq!(heard, 99, "its first may be a copy of the last");
    }

    #[test]
    fn relays_that_are_started_again_and_again_are_heard() {
        let (mut memory, alive) = memory();
        for life in 0..20_u64 {
            let heard = (0..30)
                .filter(|at| memory.is_first((life * 30 + at) * 1_000, alive, Way::Relay(life as u32)));
            let heard = heard.count();
            // The first of a life may be a copy of the last one before, and too many lives at once are not
            // told apart.
            assert!(heard >= 18, "{heard} of 30 in life {life}");
        }
    }

    #[test]
    fn what_this_host_heard_is_not_first_by_a_relay() {
        let (mut memory, alive) = memory();
        assert!(memory.is_first(0, alive, Way::Here));
        assert!(!memory.is_first(1, alive, A));
        let other = memory.identity(1, "10.0.0.1:5000".parse().unwrap(), b"alive");
        assert!(memory.is_first(2, other, A), "another group");
        let other = memory.identity(0, "10.0.0.1:5001".parse().unwrap(), b"alive");
        assert!(memory.is_first(2, other, A), "another source");
        assert!(memory.is_first(2 + MEMORY_MS, alive, A), "forgotten");
    }

    #[test]
    fn memory_is_bounded_and_keeps_the_newest() {
        let mut memory = Memory::default();
        let source = "10.0.0.1:5000".parse().unwrap();
        let name = |memory: &Memory, at: u32| memory.identity(0, source, &at.to_be_bytes());
        for at in 0..200_000 {
            let identity = name(&memory, at);
            assert!(memory.is_first(0, identity, A));
        }
        assert!(memory.fresh.len() + memory.stale.len() <= 2 * DATAGRAMS_MAX);
        let newest = name(&memory, 199_999 - 60_000);
        assert!(!memory.is_first(0, newest, B));
        for way in 0..100 {
            assert!(!memory.is_first(0, newest, Way::Relay(way + 100)));
        }
    }
}
