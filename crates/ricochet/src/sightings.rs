//! Members whose multicast this node hears, beside their calls (`greetings/`).
//!
//! A node that is overloaded loses most of what arrives, and with it calls. A member that takes it for deaf
//! sends it copies, which are still more work. Any packet of its multicast shows that nothing filters it. A
//! node whose readers leave no room reads no multicast at all, and says nothing of what it hears.

use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;

use crate::addresses::GroupAddresses;

/// Number of datagrams of one read that are noted, and beyond them one in how many: under load those of a
/// member that is heard at all are many.
const NOTED: usize = 8;
const SAMPLED: u32 = 4;
/// Age up to which a datagram tells of the present, in microseconds.
const LATELY_US: u64 = 2_000_000;
/// Interval between looks for what is older, while there is no room.
const PURGE_US: u64 = 500_000;
/// Maximum number of pairs of a member and an address that are kept.
const KEPT_MAX: usize = 8_192;
/// Time without a look at the multicast after which the node does not know what it hears, in microseconds.
const BLIND_US: u64 = 100_000;

/// The latest multicast of each member, by its address and that of the group.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    seen: HashMap<(SocketAddr, IpAddr), u64>,
    next_purge_us: u64,
    /// Since when multicast waits in the kernel, because there is no room for it.
    held_us: Option<u64>,
}

/// Chooses datagrams to note.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    count: u32,
    chosen: Vec<(SocketAddr, IpAddr)>,
}

impl Sample {
    /// Takes a datagram of a member that was sent to a group.
    pub(crate) fn take(&mut self, from: SocketAddr, group: IpAddr) {
        self.count = self.count.wrapping_add(1);
        if self.chosen.len() < NOTED || self.count.is_multiple_of(SAMPLED) {
            self.chosen.push((from, group));
        }
    }

    /// Whether there is something to note.
    pub(crate) fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }
}

impl Sightings {
    /// Notes the datagrams that were chosen.
    pub(crate) fn note(&mut self, now_us: u64, sample: &mut Sample) {
        if self.seen.len() + sample.chosen.len() > KEPT_MAX && now_us >= self.next_purge_us {
            self.next_purge_us = now_us + PURGE_US;
            self.seen.retain(|_, at_us| now_us < *at_us + LATELY_US);
        }
        for seen in sample.chosen.drain(..) {
            if self.seen.len() < KEPT_MAX || self.seen.contains_key(&seen) {
                self.seen.insert(seen, now_us);
            }
        }
    }

    /// Notes whether multicast waits in the kernel from now on, because there is no room for it.
    pub(crate) fn set_held(&mut self, now_us: u64, is_held: bool) {
        self.held_us = is_held.then_some(now_us);
    }

    /// The bits of the multicast addresses at which a member was heard lately. `None` while multicast waits
    /// in the kernel: that nothing was heard says nothing of filters.
    pub(crate) fn of(&self, now_us: u64, from: SocketAddr, addresses: &GroupAddresses) -> Option<u64> {
        let is_blind = self.held_us.is_some_and(|held_us| now_us >= held_us + BLIND_US);
        (!is_blind).then(|| self.heard(now_us, from, addresses))
    }

    fn heard(&self, now_us: u64, from: SocketAddr, addresses: &GroupAddresses) -> u64 {
        let is_recent =
            |at: &SocketAddr| self.seen.get(&(from, at.ip())).is_some_and(|at_us| now_us < at_us + LATELY_US);
        let heard = addresses.addresses().enumerate().filter(|(_, at)| is_recent(at));
        heard.fold(0, |bits, (number, _)| bits | 1 << number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_heard_for_a_while_and_at_the_addresses_of_their_packets() {
        let addresses = GroupAddresses::new(None, false, 64, 7_911);
        let member = |number: u8| SocketAddr::from(([10, 0, 0, number], 7_900));
        let (mut sightings, mut sample) = (Sightings::default(), Sample::default());
        let first = addresses.at(9).unwrap().ip();
        assert!(sample.is_empty());
        sample.take(member(1), first);
        sightings.note(5_000, &mut sample);
        assert!(sample.is_empty());
        (0..400).for_each(|_| sample.take(member(1), first));
        assert!((100..=110).contains(&sample.chosen.len()), "{}", sample.chosen.len());
        sightings.note(5_000, &mut sample);
        let heard = |sightings: &Sightings, now_us| sightings.of(now_us, member(1), &addresses);
        let others = sightings.of(5_000, member(2), &addresses);
        assert_eq!((heard(&sightings, 5_000), others), (Some(1 << 9), Some(0)));
        let at_last = [5_000 + LATELY_US - 1, 5_000 + LATELY_US].map(|at| heard(&sightings, at));
        assert_eq!(at_last, [Some(1 << 9), Some(0)]);
        // While nothing is read, silence says nothing.
        sightings.set_held(5_000, true);
        assert_eq!(heard(&sightings, 5_000 + BLIND_US - 1), Some(1 << 9));
        assert_eq!([5_000 + BLIND_US, 5_000 + LATELY_US].map(|at| heard(&sightings, at)), [None; 2]);
        sightings.set_held(6_000, false);
        assert_eq!(heard(&sightings, 5_000 + BLIND_US), Some(1 << 9));
        // A flood of addresses takes no memory, and the next ones find room later.
        for number in 0..100_000_u32 {
            let from = SocketAddr::from((std::net::Ipv4Addr::from(number), 1));
            sample.take(from, first);
            sightings.note(6_000, &mut sample);
        }
        assert!(sightings.seen.len() <= KEPT_MAX);
        sample.take(member(1), addresses.at(0).unwrap().ip());
        sightings.note(6_000 + LATELY_US, &mut sample);
        assert_eq!(heard(&sightings, 6_000 + LATELY_US), Some(1));
    }
}
