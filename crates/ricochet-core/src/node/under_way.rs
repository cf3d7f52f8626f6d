//! What was asked for and has neither come nor been waited for long enough, and how long answers take.

use std::collections::VecDeque;

use crate::buffer::PacketKey;
use crate::ids::NodeId;

/// No answer is waited for longer, in microseconds, whatever the last ones took.
const PATIENCE_US_MAX: u64 = 500_000;
/// Answers whose request is uncertain that are remembered; a newer one takes the place of an older.
const UNCERTAIN_MAX: usize = 512;

/// When a packet was asked for, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// Who was asked last.
    pub(super) whom: NodeId,
}

/// Packets under way, by when they were asked for.
///
/// Answers to many requests queue, at the latest where they are taken in, and the last of them comes long after the
/// first. So their time is measured by each of them, and what was asked for is awaited by how long they take *now*.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// An answer is waited for so long at the least.
    patience_us_min: u64,
    packets_max: u32,
    packets: u32,
    /// When, and how many of these are left; in order of time.
    turns: VecDeque<(u64, u32)>,
    /// Smoothed time from a request to its answer.
    round_trip_us: Option<u64>,
    /// Packets that came after several requests, and how long after the first.
    uncertain: Box<[Option<(PacketKey, u64)>]>,
}

impl UnderWay {
    pub(super) fn new(patience_us_min: u64, packets_max: u32) -> Self {
        Self {
            patience_us_min,
            packets_max,
            packets: 0,
            turns: VecDeque::new(),
            round_trip_us: None,
            uncertain: vec![None; UNCERTAIN_MAX].into_boxed_slice(),
        }
    }

    /// How many packets may be asked for now.
    pub(super) fn room(&mut self, now_us: u64) -> u32 {
        let patience_us = self.patience_us();
        while let Some((_, left)) = self.turns.pop_front_if(|(at_us, _)| *at_us + patience_us <= now_us) {
            self.packets -= left;
        }
        self.packets_max.saturating_sub(self.packets)
    }

    /// Packets are asked for. Those of one moment count as one entry, and moments are as far apart as turns.
    pub(super) fn add(&mut self, now_us: u64, packets: u32) {
        self.packets += packets;
        match self.turns.back_mut() {
            Some((at_us, left)) if *at_us >= now_us => *left += packets,
            _ => self.turns.push_back((now_us, packets)),
        }
    }

    /// A packet came that was asked for.
    pub(super) fn came(&mut self, now_us: u64, key: PacketKey, asked: Asked) {
        if let Ok(at) = self.turns.binary_search_by_key(&asked.last_us, |&(at_us, _)| at_us) {
            let left = &mut self.turns[at].1;
            if *left > 0 {
                *left -= 1;
                self.packets -= 1;
            }
        }
        if asked.first_us == asked.last_us {
            return self.measured(now_us.saturating_sub(asked.first_us));
        }
        // Which request was answered is unknown (RFC 6298 §3). If it was the last one, answers are quick; if not, there is
        // another answer to come, by which it will be known.
        self.uncertain[place(key)] = Some((key, now_us.saturating_sub(asked.first_us)));
        let since_last_us = now_us.saturating_sub(asked.last_us);
        if self.round_trip_us.is_some_and(|smoothed_us| since_last_us < smoothed_us) {
            self.measured(since_last_us);
        }
    }

    /// A packet came on request that had come before. If it was asked for several times, that was too soon.
    pub(super) fn came_again(&mut self, key: PacketKey) {
        if let Some((_, took_us)) = self.uncertain[place(key)].take_if(|(other, _)| *other == key) {
            // Twice, for it makes up for what it was taken for when it came.
            self.measured(took_us);
            self.measured(took_us);
        }
    }

    fn measured(&mut self, sample_us: u64) {
        // RFC 6298 §2.3: an eighth of each sample.
        let smoothed_us =
            self.round_trip_us.map_or(sample_us, |smoothed_us| (7 * smoothed_us + sample_us) / 8);
        self.round_trip_us = Some(smoothed_us);
    }

    pub(super) fn round_trip_us(&self) -> Option<u64> {
        self.round_trip_us
    }

    /// How long an answer is waited for before another holder is asked.
    pub(super) fn patience_us(&self) -> u64 {
        let round_trip_us = self.round_trip_us.unwrap_or(self.patience_us_min);
        (2 * round_trip_us).min(PATIENCE_US_MAX).max(self.patience_us_min)
    }
}

/// Packets of one stream that follow each other have places of their own.
fn place(key: PacketKey) -> usize {
    let stream =
        key.stream.sender.0.wrapping_mul(0x9e37_79b9) ^ (key.stream.group.0 as u32).wrapping_mul(0x85eb_ca6b);
    key.seq.wrapping_add(stream >> 16) as usize % UNCERTAIN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, StreamKey};

    fn key(seq: u32) -> PacketKey {
        PacketKey { stream: StreamKey { sender: NodeId(1), group: GroupId(7) }, seq }
    }

    fn again(first_us: u64, last_us: u64) -> Asked {
        Asked { first_us, last_us, whom: NodeId(2) }
    }

    fn once(at_us: u64) -> Asked {
        again(at_us, at_us)
    }

    #[test]
    fn there_is_room_again_when_packets_have_come_or_were_waited_for_long_enough() {
        let mut under_way = UnderWay::new(2_000, 100);
        under_way.add(0, 60);
        under_way.add(1_000, 40);
        assert_eq!(under_way.room(1_000), 0);
        (0..10).for_each(|seq| under_way.came(1_500, key(seq), once(1_000)));
        assert_eq!(under_way.room(1_500), 10);
        under_way.came(1_500, key(10), once(500));
        assert_eq!(under_way.room(1_500), 10, "not asked for then");
        let patience_us = under_way.patience_us();
        assert_eq!(under_way.room(patience_us), 70);
        assert_eq!(under_way.room(1_000 + patience_us), 100);
        under_way.came(90_000, key(11), once(1_000));
        assert_eq!(under_way.room(90_000), 100, "no longer awaited");
    }

    #[test]
    fn answers_that_queue_are_awaited_by_how_long_they_take_now() {
        let mut under_way = UnderWay::new(2_000, 1_000);
        under_way.add(0, 1_000);
        for seq in 0..1_000u32 {
            let now_us = 200 + u64::from(seq) * 50;
            assert!(now_us < under_way.patience_us(), "packet {seq} would be asked for again");
            under_way.came(now_us, key(seq), once(0));
        }
    }

    #[test]
    fn requests_that_are_lost_do_not_make_answers_seem_slow() {
        let mut under_way = UnderWay::new(2_000, 1_000);
        (0..100).for_each(|seq| under_way.came(200, key(seq), once(0)));
        // The first two were lost, the third was answered after 0.2 ms.
        (0..100).for_each(|seq| under_way.came(4_200, key(seq), again(0, 4_000)));
        assert_eq!(under_way.patience_us(), 2_000);
    }

    #[test]
    fn answers_to_several_requests_show_that_these_were_made_too_soon() {
        let mut under_way = UnderWay::new(2_000, 1_000);
        (0..100).for_each(|seq| under_way.came(200, key(seq), once(0)));
        for seq in 0..40 {
            under_way.came(20_000, key(seq), again(0, 18_000));
            under_way.came_again(key(seq));
        }
        assert!((25_000..=40_000).contains(&under_way.patience_us()), "{}", under_way.patience_us());
        // A copy that the network made of the only answer says nothing.
        let before_us = under_way.patience_us();
        under_way.came_again(key(500));
        assert_eq!(under_way.patience_us(), before_us);
    }
}
