//! Windows that tell new datagrams from repeated ones, by the counter in the trailer (RFC 4303 §3.4.3).

use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::filter::Via;
use crate::key::Stamp;

/// Number of counters that a window remembers, in words of 64 bits. Datagrams of one node may overtake each
/// other by that much within one socket.
const WORDS: usize = 32;
const BITS: u64 = WORDS as u64 * 64;
/// Maximum number of nodes with windows.
const NODES_MAX: usize = 8_192;
/// Maximum number of addresses kept of which the membership is to ask who lives there.
const STRANGERS_MAX: usize = 64;

/// The counters seen of one node through one socket.
#[derive(Clone, Debug)]
struct Window {
    highest: u64,
    /// Bit n % `BITS`: counter n came. Valid for the last `BITS` counters.
    seen: Box<[u64; WORDS]>,
}

impl Window {
    /// Returns a window that continues behind a counter: all before it are refused, whether they came or not.
    fn new(highest: u64) -> Self {
        Self { highest, seen: Box::new([u64::MAX; WORDS]) }
    }

    /// Notes a counter; returns false if it came before or is too old.
    fn accept(&mut self, counter: u64) -> bool {
        if counter + BITS <= self.highest {
            return false;
        }
        if counter > self.highest {
            let steps = (counter - self.highest).min(BITS);
            for skipped in 0..steps {
                let (word, bit) = place(counter - skipped);
                self.seen[word] &= !bit;
            }
            self.highest = counter;
        }
        let (word, bit) = place(counter);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

fn place(counter: u64) -> (usize, u64) {
    let at = counter % BITS;
    ((at / 64) as usize, 1 << (at % 64))
}

/// Judgment of an authentic datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It came for the first time.
    Fresh,
    /// It came before, or is too old to tell.
    Replayed,
    /// The node at its source address has not proven which life it is. It may be a recording.
    Unproven,
}

#[derive(Clone, Debug)]
struct Known {
    stamp: Stamp,
    group: Window,
    own: Window,
}

/// The windows of all nodes that have proven that they live at their addresses.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    by_address: HashMap<SocketAddr, Known>,
    /// Source addresses of authentic datagrams of unproven nodes.
    strangers: Vec<SocketAddr>,
}

impl Windows {
    /// Judges an authentic datagram.
    pub(crate) fn judge(&mut self, from: SocketAddr, via: Via, stamp: Stamp) -> Verdict {
        let Some(known) = self.by_address.get_mut(&from).filter(|known| known.stamp.is_same_life(stamp))
        else {
            return Verdict::Unproven;
        };
        let window = match via {
            Via::Group => &mut known.group,
            Via::Own => &mut known.own,
        };
        if window.accept(stamp.counter) { Verdict::Fresh } else { Verdict::Replayed }
    }

    /// Notes an unproven node, for the membership to ask.
    pub(crate) fn on_stranger(&mut self, from: SocketAddr) {
        if self.strangers.len() < STRANGERS_MAX && !self.strangers.contains(&from) {
            self.strangers.push(from);
        }
    }

    /// Returns the unproven nodes noted since the last call.
    pub(crate) fn take_strangers(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.strangers)
    }

    /// Notes that a node has proven that it lives at an address, by a datagram with this stamp. Everything
    /// that it sent before that is refused from now on.
    pub(crate) fn admit(&mut self, from: SocketAddr, stamp: Stamp) {
        if self.by_address.get(&from).is_some_and(|known| known.stamp.is_same_life(stamp)) {
            return;
        }
        if self.by_address.len() >= NODES_MAX
            && let Some(other) = self.by_address.keys().next().copied()
        {
            self.by_address.remove(&other);
        }
        let window = Window::new(stamp.counter);
        self.by_address.insert(from, Known { stamp, group: window.clone(), own: window });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ricochet_core::NodeId;

    use super::*;

    fn stamp(start: u64, counter: u64) -> Stamp {
        Stamp { sender: NodeId(7), start, counter }
    }

    #[test]
    fn each_counter_is_accepted_once_in_any_order_within_the_window() {
        let mut random = testkit::Random(5);
        let mut window = Window::new(0);
        let mut seen = HashSet::from([0]);
        for step in 0..20_000u64 {
            let counter = (step / 2 + random.below(300)).saturating_sub(random.below(400));
            let is_old = counter + BITS <= window.highest;
            assert_eq!(window.accept(counter), !is_old && seen.insert(counter), "{counter}");
        }
        assert!(window.accept(1 << 40));
        assert!(!window.accept(1 << 40) && !window.accept(9_999));
        assert!(window.accept((1 << 40) - BITS + 1) && !window.accept((1 << 40) - BITS));
    }

    #[test]
    fn only_the_proven_life_at_an_address_is_fresh_and_only_once_for_each_socket() {
        let [one, two] = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let mut windows = Windows::default();
        assert_eq!(windows.judge(one, Via::Own, stamp(5, 10_000)), Verdict::Unproven);
        windows.admit(one, stamp(5, 10_000));
        assert_eq!(windows.judge(one, Via::Group, stamp(5, 10_001)), Verdict::Fresh);
        assert_eq!(windows.judge(one, Via::Group, stamp(5, 10_001)), Verdict::Replayed);
        assert_eq!(windows.judge(one, Via::Own, stamp(5, 10_002)), Verdict::Fresh);
        assert_eq!(windows.judge(one, Via::Own, stamp(5, 7_000)), Verdict::Replayed, "recorded long ago");
        windows.admit(one, stamp(5, 1));
        assert_eq!(windows.judge(one, Via::Own, stamp(5, 10_002)), Verdict::Replayed, "it is proven again");
        assert_eq!(windows.judge(one, Via::Own, stamp(4, 10_003)), Verdict::Unproven, "an earlier life");
        assert_eq!(windows.judge(two, Via::Own, stamp(5, 10_003)), Verdict::Unproven, "another address");
        windows.admit(one, stamp(6, 0));
        assert_eq!(windows.judge(one, Via::Own, stamp(5, 10_004)), Verdict::Unproven, "the life before");
        assert_eq!(windows.judge(one, Via::Own, stamp(6, 1)), Verdict::Fresh);
        (0..100).for_each(|_| windows.on_stranger(two));
        assert_eq!((windows.take_strangers(), windows.take_strangers()), (vec![two], vec![]));
    }
}
