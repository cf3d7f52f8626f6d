//! Protection while a queue of the path stands full: one packet in [`PART`] is named, and none is repaired.
//!
//! Behind a full queue repairs recover next to nothing, and each of them displaces a packet. The egress then
//! names a *sample* of the packets, which both gateways find by the hash of the packet. The names show the
//! far ingress the losses and the delay of the path, and cost less than a thousandth of the bytes. The
//! controller decides when (`controller/thin.rs`), and the far gateway must know that packets outside of the
//! sample have no names ([`Sharing`](crate::sharing::Sharing)).

use crate::identity::PacketHash;
use crate::wire::{Entry, NAMES_APART_MAX};

/// One packet in this number is in the sample.
pub const PART: u64 = 16;
/// Number of packets, in the sample or not, between two datagrams of names.
const PACKETS_MIN: u64 = 256;
/// Shortest time between them.
const WAIT_MIN_US: u64 = 50_000;
/// Longest wait of a packet for its name.
const WAIT_MAX_US: u64 = 1_000_000;

/// Whether a packet with this hash is in the sample.
pub(crate) fn is_sampled(hash: PacketHash) -> bool {
    // Names are the low half of the hash.
    (hash.0 >> 32).is_multiple_of(PART)
}

/// The names of an egress that thins its protection.
#[derive(Debug)]
pub(crate) struct Thinning {
    is_on: bool,
    /// Packets that wait for a datagram of names, in order of the stream.
    waiting: Vec<Entry>,
    /// Time since which the first of them waits.
    since_us: u64,
    /// Packets since the last datagram of names.
    passed: u64,
}

impl Default for Thinning {
    fn default() -> Self {
        Self { is_on: false, waiting: Vec::with_capacity(NAMES_APART_MAX), since_us: 0, passed: 0 }
    }
}

impl Thinning {
    /// Whether protection is thinned at present.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Begins or ends. Packets that wait for their names when it ends get them at once.
    pub(crate) fn set(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Forgets the packets that wait.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.passed = 0;
    }

    /// Notes a packet, in the sample or not.
    pub(crate) fn on_packet(&mut self) {
        self.passed += 1;
    }

    /// Adds a packet of the sample.
    pub(crate) fn push(&mut self, now_us: u64, entry: Entry) {
        if self.waiting.is_empty() {
            self.since_us = now_us;
        }
        if self.waiting.len() < NAMES_APART_MAX {
            self.waiting.push(entry);
        }
    }

    /// Time at which the next datagram of names leaves, if no packet follows.
    pub(crate) fn due_us(&self) -> Option<u64> {
        let wait_us = match self.waiting.len() {
            0 => return None,
            NAMES_APART_MAX => 0,
            _ if !self.is_on => 0,
            _ if self.passed >= PACKETS_MIN => WAIT_MIN_US,
            _ => WAIT_MAX_US,
        };
        Some(self.since_us + wait_us)
    }

    /// Returns the packets of the datagram of names that is due.
    pub(crate) fn take_due(&mut self, now_us: u64, take: impl FnOnce(&[Entry])) {
        if self.due_us().is_some_and(|due_us| due_us <= now_us) {
            take(&self.waiting);
            self.clear();
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Name;
    use crate::packet::MutableFields;
    use foundation::Seq;

    /// Times at which names leave, and their number, of a second of packets at an interval.
    fn names(every_us: u64) -> Vec<(u64, usize)> {
        let (mut thinning, mut sent) = (Thinning::default(), Vec::new());
        thinning.set(true);
        for n in 0..1_000_000 / every_us {
            let now_us = n * every_us;
            thinning.on_packet();
            if n % PART == 0 {
                let fields = MutableFields::default();
                thinning.push(now_us, Entry { seq: Seq(n / PART), name: Name(n as u32), fields });
            }
            thinning.take_due(now_us, |entries| sent.push((now_us, entries.len())));
        }
        sent
    }

    #[test]
    fn names_are_a_small_part_of_the_packets_at_any_pace() {
        let fast = names(5);
        assert!(fast.iter().all(|&(_, count)| count == NAMES_APART_MAX) && fast.len() == 60, "{fast:?}");
        let usual = names(100);
        assert!(usual.len() == 19 && usual.iter().all(|&(_, count)| count >= 31), "{usual:?}");
        assert_eq!(names(1_000).len(), 3);
        assert_eq!(names(10_000), [], "the first names leave after a second");
    }

    #[test]
    fn the_end_names_what_waits_at_once() {
        let mut thinning = Thinning::default();
        thinning.set(true);
        thinning.push(7, Entry { seq: Seq(3), name: Name(3), fields: MutableFields::default() });
        assert_eq!(thinning.due_us(), Some(7 + WAIT_MAX_US));
        thinning.set(false);
        assert_eq!(thinning.due_us(), Some(7));
        let mut taken = 0;
        thinning.take_due(7, |entries| taken = entries.len());
        assert_eq!((taken, thinning.due_us()), (1, None));
    }

    #[test]
    fn the_sample_is_one_packet_in_sixteen() {
        let count =
            (0..16_000_u64).filter(|n| is_sampled(PacketHash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).count();
        assert!((900..1_100).contains(&count), "{count}");
    }
}
