//! Requested packets that are in flight, and how long answers take.

use std::collections::VecDeque;

use crate::buffer::PacketKey;
use crate::ids::NodeId;

/// Longest time to wait for an answer, in microseconds, whatever the last answers took.
const PATIENCE_US_MAX: u64 = 500_000;
/// Number of remembered answers whose request is uncertain. A newer one takes the place of an older one.
const UNCERTAIN_MAX: usize = 512;

/// The requests for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requested {
    /// Time of the first request.
    pub(super) first_us: u64,
    /// Time of the last request.
    pub(super) last_us: u64,
    /// Node that the last request went to.
    pub(super) holder: NodeId,
}

/// Packets in flight, by the time of their request.
///
/// Answers to many requests queue, at the latest where they are received, and the last of them comes long
/// after the first. So each answer is a sample of the time that answers take, and every packet in flight is
/// awaited by the latest estimate.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Shortest time to wait for an answer.
    patience_us_min: u64,
    packets_max: u32,
    packets: u32,
    /// Time of a request, and the number of its packets still in flight; in order of time.
    turns: VecDeque<(u64, u32)>,
    /// Smoothed time from a request to its answer.
    round_trip_us: Option<u64>,
    /// Packets that came after several requests, and the time since the first of these.
    uncertain: Box<[Option<(PacketKey, u64)>]>,
}

impl InFlight {
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

    /// Stops counting packets whose answer has been awaited for long enough.
    pub(super) fn expire(&mut self, now_us: u64) {
        let patience_us = self.patience_us();
        while let Some((_, left)) = self.turns.pop_front_if(|(at_us, _)| *at_us + patience_us <= now_us) {
            self.packets -= left;
        }
    }

    /// Returns the number of packets that may be requested, once those that waited too long have
    /// [expired](Self::expire).
    pub(super) fn room(&self) -> u32 {
        self.packets_max.saturating_sub(self.packets)
    }

    /// Notes that packets were requested. Those of one moment share an entry, and moments are as far apart as
    /// turns.
    pub(super) fn on_requested(&mut self, now_us: u64, packets: u32) {
        self.packets += packets;
        match self.turns.back_mut() {
            Some((at_us, left)) if *at_us >= now_us => *left += packets,
            _ => self.turns.push_back((now_us, packets)),
        }
    }

    /// Notes that a requested packet came.
    pub(super) fn on_answer(&mut self, now_us: u64, key: PacketKey, requested: Requested) {
        if let Ok(at) = self.turns.binary_search_by_key(&requested.last_us, |&(at_us, _)| at_us) {
            let left = &mut self.turns[at].1;
            if *left > 0 {
                *left -= 1;
                self.packets -= 1;
            }
        }
        if requested.first_us == requested.last_us {
            return self.add_sample(now_us.saturating_sub(requested.first_us));
        }
        // Which request was answered is unknown (RFC 6298 §3). If it was the last one, answers are quick. If
        // it was an earlier one, a second answer follows and shows it.
        self.uncertain[place(key)] = Some((key, now_us.saturating_sub(requested.first_us)));
        let since_last_us = now_us.saturating_sub(requested.last_us);
        if self.round_trip_us.is_some_and(|smoothed_us| since_last_us < smoothed_us) {
            self.add_sample(since_last_us);
        }
    }

    /// Notes that a node does not hold packets that were requested of it.
    pub(super) fn on_denied(&mut self, requested: Requested, packets: u64) {
        if let Ok(at) = self.turns.binary_search_by_key(&requested.last_us, |&(at_us, _)| at_us) {
            let left = &mut self.turns[at].1;
            let denied = u32::try_from(packets).unwrap_or(u32::MAX).min(*left);
            *left -= denied;
            self.packets -= denied;
        }
    }

    /// Notes that a requested packet came that had come before. If it was requested several times, the later
    /// requests were too early.
    pub(super) fn on_duplicate_answer(&mut self, key: PacketKey) {
        if let Some((_, took_us)) = self.uncertain[place(key)].take_if(|(other, _)| *other == key) {
            // Two samples, to outweigh the one taken when the first answer came.
            self.add_sample(took_us);
            self.add_sample(took_us);
        }
    }

    fn add_sample(&mut self, sample_us: u64) {
        // RFC 6298 §2.3: an eighth of each sample.
        let smoothed_us =
            self.round_trip_us.map_or(sample_us, |smoothed_us| (7 * smoothed_us + sample_us) / 8);
        self.round_trip_us = Some(smoothed_us);
    }

    pub(super) fn round_trip_us(&self) -> Option<u64> {
        self.round_trip_us
    }

    /// Returns how long to wait for an answer before another holder is asked.
    pub(super) fn patience_us(&self) -> u64 {
        let round_trip_us = self.round_trip_us.unwrap_or(self.patience_us_min);
        (2 * round_trip_us).min(PATIENCE_US_MAX).max(self.patience_us_min)
    }
}

/// Returns the index of a packet in `uncertain`. Consecutive packets of one stream have different indices.
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

    fn again(first_us: u64, last_us: u64) -> Requested {
        Requested { first_us, last_us, holder: NodeId(2) }
    }

    fn once(at_us: u64) -> Requested {
        again(at_us, at_us)
    }

    fn room(in_flight: &mut InFlight, now_us: u64) -> u32 {
        in_flight.expire(now_us);
        in_flight.room()
    }

    #[test]
    fn packets_that_came_or_waited_long_enough_make_room() {
        let mut in_flight = InFlight::new(2_000, 100);
        in_flight.on_requested(0, 60);
        in_flight.on_requested(1_000, 40);
        assert_eq!(room(&mut in_flight, 1_000), 0);
        (0..10).for_each(|seq| in_flight.on_answer(1_500, key(seq), once(1_000)));
        assert_eq!(room(&mut in_flight, 1_500), 10);
        in_flight.on_answer(1_500, key(10), once(500));
        assert_eq!(room(&mut in_flight, 1_500), 10, "not requested at that time");
        let patience_us = in_flight.patience_us();
        assert_eq!(room(&mut in_flight, patience_us), 70);
        assert_eq!(room(&mut in_flight, 1_000 + patience_us), 100);
        in_flight.on_answer(90_000, key(11), once(1_000));
        assert_eq!(room(&mut in_flight, 90_000), 100, "already expired");
    }

    #[test]
    fn answers_that_queue_are_awaited_by_the_latest_estimate() {
        let mut in_flight = InFlight::new(2_000, 1_000);
        in_flight.on_requested(0, 1_000);
        for seq in 0..1_000u32 {
            let now_us = 200 + u64::from(seq) * 50;
            assert!(now_us < in_flight.patience_us(), "packet {seq} would be requested again");
            in_flight.on_answer(now_us, key(seq), once(0));
        }
    }

    #[test]
    fn requests_that_are_lost_do_not_make_answers_seem_slow() {
        let mut in_flight = InFlight::new(2_000, 1_000);
        (0..100).for_each(|seq| in_flight.on_answer(200, key(seq), once(0)));
        // The first two requests were lost; the third was answered after 0.2 ms.
        (0..100).for_each(|seq| in_flight.on_answer(4_200, key(seq), again(0, 4_000)));
        assert_eq!(in_flight.patience_us(), 2_000);
    }

    #[test]
    fn several_answers_to_several_requests_show_that_the_requests_were_too_early() {
        let mut in_flight = InFlight::new(2_000, 1_000);
        (0..100).for_each(|seq| in_flight.on_answer(200, key(seq), once(0)));
        for seq in 0..40 {
            in_flight.on_answer(20_000, key(seq), again(0, 18_000));
            in_flight.on_duplicate_answer(key(seq));
        }
        assert!((25_000..=40_000).contains(&in_flight.patience_us()), "{}", in_flight.patience_us());
        // A copy that the network made of the only answer says nothing.
        let before_us = in_flight.patience_us();
        in_flight.on_duplicate_answer(key(500));
        assert_eq!(in_flight.patience_us(), before_us);
    }
}
