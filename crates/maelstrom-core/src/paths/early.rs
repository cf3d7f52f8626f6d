//! Repairs that came by a faster path than the packets that they contain. Without a wait, packets that are
//! still in flight would count as lost.

use std::collections::VecDeque;

use foundation::Seq;

/// Maximum number of repairs that wait: those of a quarter of a second at a rate of 1/8 and 16,000 packets a
/// second.
const EARLY_MAX: usize = 512;

/// Repairs that wait for packets of another path, in order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Early {
    slots: VecDeque<Slot>,
    /// Buffers that are not in use.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Slot {
    due_us: u64,
    /// Newest packet in the repair.
    last: Seq,
    number: u32,
    body: Vec<u8>,
}

impl Early {
    /// Keeps a repair until its newest packet has arrived, at the latest until `due_us`. `number`: of its
    /// datagram.
    pub(crate) fn push(&mut self, due_us: u64, last: Seq, number: u32, body: &[u8]) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(body);
        self.slots.push_back(Slot { due_us, last, number, body: buffer });
    }

    /// Time at which the first repair is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.due_us)
    }

    /// Moves the first repair into `body` if it is due, all packets up to its newest have been sent by
    /// what has arrived (`newest`), or too many wait; returns the number of its datagram.
    pub(crate) fn pop(&mut self, now_us: u64, newest: Seq, body: &mut Vec<u8>) -> Option<u32> {
        let is_full = self.slots.len() > EARLY_MAX;
        let slot = self.slots.pop_front_if(|slot| is_full || slot.due_us <= now_us || slot.last <= newest)?;
        self.spare.push(std::mem::replace(body, slot.body));
        Some(slot.number)
    }

    /// Drops all of them.
    pub(crate) fn clear(&mut self) {
        self.spare.extend(self.slots.drain(..).map(|slot| slot.body));
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bodies = self.slots.iter().map(|slot| slot.body.capacity());
        bodies.chain(self.spare.iter().map(Vec::capacity)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_waits_for_its_newest_packet_or_its_time() {
        let (mut early, mut body) = (Early::default(), Vec::new());
        for (due_us, last) in [(900, 5), (1_000, 9), (1_100, 20)] {
            early.push(due_us, Seq(last), last as u32, &[last as u8]);
        }
        assert_eq!(early.pop(500, Seq(4), &mut body), None);
        assert_eq!((early.pop(500, Seq(9), &mut body), &body[..]), (Some(5), &[5][..]));
        assert_eq!((early.pop(500, Seq(9), &mut body), &body[..]), (Some(9), &[9][..]));
        assert_eq!(early.pop(500, Seq(9), &mut body), None);
        assert_eq!((early.pop(early.due_us().unwrap(), Seq(9), &mut body), &body[..]), (Some(20), &[20][..]));
        assert_eq!((early.due_us(), early.pop(u64::MAX, Seq(9), &mut body)), (None, None));
    }

    #[test]
    fn few_repairs_wait() {
        let (mut early, mut body) = (Early::default(), Vec::new());
        for n in 0..2 * EARLY_MAX as u64 {
            early.push(1_000, Seq(n + 100), n as u32, b"repair");
            while early.pop(0, Seq(0), &mut body).is_some() {}
            assert!(early.slots.len() <= EARLY_MAX);
        }
        assert_eq!(early.pop(1_000, Seq(0), &mut body), Some(EARLY_MAX as u32));
        early.clear();
        assert_eq!(early.due_us(), None);
    }
}
