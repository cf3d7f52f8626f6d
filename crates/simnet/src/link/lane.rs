//! Packets in flight that do not overtake each other: a ring of bytes and a ring of times, both allocated
//! once.

use std::collections::VecDeque;

/// A packet at the far end.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'p> {
    /// The packet, from its IP header on.
    pub packet: &'p [u8],
    /// The link flipped a bit, so the packet's checksums must not be trusted.
    pub corrupted: bool,
}

/// Minimum length of an IP packet, which bounds the number of packets in the storage.
const PACKET_BYTES_MIN: usize = 20;

#[derive(Debug)]
pub(super) struct Lane {
    /// Every packet is contiguous; one that does not fit before the end begins at 0.
    bytes: Box<[u8]>,
    packets: VecDeque<Stored>,
    packets_max: usize,
    write: usize,
    last_due_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    due_ns: u64,
    start: usize,
    length: u16,
    corrupted: bool,
}

impl Lane {
    /// Allocates `bytes` bytes; the kernel provides the memory at its first use.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let packets_max = bytes / PACKET_BYTES_MIN;
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            packets: VecDeque::with_capacity(packets_max),
            packets_max,
            write: 0,
            last_due_ns: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Stores a packet, due no earlier than the one before it; returns `false` if it does not fit.
    pub(super) fn push(&mut self, due_ns: u64, packet: &[u8], corrupted: bool) -> bool {
        let Ok(length) = u16::try_from(packet.len()) else { return false };
        let Some(start) = self.place(room(packet.len())) else { return false };
        self.bytes[start..start + packet.len()].copy_from_slice(packet);
        self.write = start + room(packet.len());
        self.last_due_ns = self.last_due_ns.max(due_ns);
        self.packets.push_back(Stored { due_ns: self.last_due_ns, start, length, corrupted });
        true
    }

    /// Returns the position at which a packet of that length fits. The write position never reaches the
    /// oldest packet, so that equal positions mean an empty lane.
    fn place(&mut self, length: usize) -> Option<usize> {
        if self.packets.len() == self.packets_max {
            return None;
        }
        let Some(oldest) = self.packets.front().map(|packet| packet.start) else {
            return (length <= self.bytes.len()).then_some(0);
        };
        if self.write > oldest {
            if length <= self.bytes.len() - self.write {
                return Some(self.write);
            }
            return (length < oldest).then_some(0);
        }
        (length < oldest - self.write).then_some(self.write)
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.packets.front().map(|packet| packet.due_ns)
    }

    /// Removes the oldest packet if it is due; its bytes stay valid until the next `push`.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Arrival<'_>> {
        let packet = self.packets.pop_front_if(|packet| packet.due_ns <= now_ns)?;
        let bytes = &self.bytes[packet.start..packet.start + usize::from(packet.length)];
        Some(Arrival { packet: bytes, corrupted: packet.corrupted })
    }
}

/// Returns the space of a packet. Even an empty packet takes a byte, so that the write position moves.
fn room(length: usize) -> usize {
    length.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loss::chance::Dice;

    #[test]
    fn packets_of_all_lengths_survive_many_rounds_of_the_ring() {
        let (mut lane, mut dice) = (Lane::with_capacity(10_000), Dice::new(1));
        let mut expected = VecDeque::new();
        let (mut refused, mut next) = (0, 0_u8);
        for step in 0..50_000 {
            if dice.below(5) < 3 {
                let length = usize::try_from(dice.below(2_000)).unwrap();
                next = next.wrapping_add(1);
                if lane.push(step, &vec![next; length], false) {
                    expected.push_back((next, length));
                } else {
                    refused += 1;
                    let stored: usize = expected.iter().map(|(_, length)| length).sum();
                    assert!(
                        stored + 2 * length + 2 > 10_000 - 2_000,
                        "refused {length} bytes with {stored} stored"
                    );
                }
            } else if let Some(arrival) = lane.pop_due(u64::MAX) {
                let (byte, length) = expected.pop_front().unwrap();
                assert_eq!(arrival.packet.len(), length);
                assert!(arrival.packet.iter().all(|&b| b == byte));
            }
            assert_eq!(lane.len(), expected.len());
        }
        assert!(refused > 100, "the ring was never full: {refused}");
    }

    #[test]
    fn times_never_decrease_and_packets_never_leave_early() {
        let mut lane = Lane::with_capacity(1_000);
        assert!(lane.push(50, &[1], false));
        assert!(lane.push(40, &[2], false));
        assert!(lane.pop_due(49).is_none());
        assert_eq!(lane.pop_due(50).unwrap().packet, [1]);
        assert_eq!(lane.next_due_ns(), Some(50));
        assert_eq!(lane.pop_due(50).unwrap().packet, [2]);
        assert!(lane.pop_due(u64::MAX).is_none());
    }

    #[test]
    fn the_number_of_packets_is_bounded_too() {
        let mut lane = Lane::with_capacity(200);
        let stored = (0..1_000).filter(|_| lane.push(0, &[], false)).count();
        assert_eq!(stored, 10);
    }

    #[test]
    fn a_full_lane_has_not_reallocated() {
        let mut lane = Lane::with_capacity(100_000);
        let (bytes, packets) = (lane.bytes.as_ptr(), lane.packets.capacity());
        for round in 0..10 {
            while lane.push(round, &[1; 20], false) {}
            assert_eq!((lane.bytes.as_ptr(), lane.packets.capacity()), (bytes, packets));
            (0..3_000).for_each(|_| assert!(lane.pop_due(u64::MAX).is_some()));
        }
    }
}
