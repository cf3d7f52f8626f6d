use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::ids::{GroupId, NodeId};
use crate::tracker::{Tracker, TrackerConfig};

const KEY: StreamKey = StreamKey { sender: NodeId(1), group: GroupId(7) };

/// A tracker and the reassembly behind it, connected as in a node.
struct Rig {
    tracker: Tracker<()>,
    fragments: Fragments,
    /// Messages by the number of their first packet.
    got: HashMap<u32, Vec<u8>>,
    lost: Vec<(u32, u32, GivenUp)>,
    now_us: u64,
}

impl Rig {
    fn new(config: FragmentsConfig) -> Self {
        Self {
            tracker: Tracker::new(TrackerConfig { lookback: 1_000, ..TrackerConfig::default() }).unwrap(),
            fragments: Fragments::new(config).unwrap(),
            got: HashMap::new(),
            lost: Vec::new(),
            now_us: 0,
        }
    }

    /// Takes the fragment at `index` of a message whose first packet is `first`.
    fn take(&mut self, first: u32, message: &[u8], index: u16, size: u16) {
        let mut payload = vec![0; message.len() + 8];
        let length = Fragment::of(message, index, size).unwrap().write(&mut payload);
        self.take_raw(first + u32::from(index), &payload[..length]);
    }

    fn take_raw(&mut self, number: u32, payload: &[u8]) {
        let found = self.tracker.on_received(self.now_us, KEY, number, ());
        self.report_lost();
        if !found.what.is_new() {
            return;
        }
        let StreamKey { sender, group } = KEY;
        let (front, how) = (self.tracker.front(KEY), How::Multicast);
        let packet = Message {
            sender,
            group,
            seq: found.seq,
            payload,
            joint: false,
            packets: 1,
            how,
            missed_us: None,
            front,
            past_us: None,
            sent: None,
            enveloped: false,
        };
        let Self { fragments, got, lost, .. } = self;
        if let Progress::Whole(slot) = fragments.take(self.now_us, &packet, &mut |report| note(report, lost))
        {
            let message = fragments.message(slot, front);
            let twice = got.insert(message.seq.to_wire(), message.payload.to_vec());
            assert!(twice.is_none(), "delivered twice");
            fragments.on_delivered(slot);
        }
    }

    fn give_up(&mut self, number: u32) {
        self.tracker.give_up(KEY, Seq::first_seen(number));
        self.report_lost();
    }

    fn report_lost(&mut self) {
        let Self { tracker, fragments, lost, now_us, .. } = self;
        while let Some(report) = tracker.pop_lost() {
            fragments.on_lost(*now_us, &report, &mut |report| note(report, lost));
        }
    }

    fn wait(&mut self, by_us: u64) {
        self.now_us += by_us;
        let Self { fragments, lost, now_us, .. } = self;
        fragments.expire(*now_us, |_, _| false, &mut |report| note(report, lost));
    }
}

fn note(report: &Lost, lost: &mut Vec<(u32, u32, GivenUp)>) {
    lost.push((report.first.to_wire(), report.last.to_wire(), report.reason));
}

fn message(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + salt) as u8).collect()
}

#[test]
fn a_message_is_complete_when_its_last_missing_fragment_comes() {
    let mut rig = Rig::new(FragmentsConfig::default());
    let large = message(2_550, 1);
    for index in [2, 0, 1] {
        assert!(rig.got.is_empty());
        rig.take(0, &large, index, 1_000);
    }
    assert_eq!(rig.got[&0], large);
    assert_eq!(
        (rig.fragments.bytes, rig.fragments.known().count(), rig.fragments.counts().messages),
        (0, 0, 1)
    );
}

#[test]
fn a_message_is_lost_once_and_later_fragments_of_it_are_dropped() {
    let mut rig = Rig::new(FragmentsConfig::default());
    let large = message(6_000, 1);
    for index in [0, 3] {
        rig.take(0, &large, index, 1_000);
    }
    rig.give_up(1);
    assert_eq!(rig.lost, [(0, 5, GivenUp::Unanswered)]);
    rig.take(0, &large, 4, 1_000);
    rig.take(0, &large, 5, 1_000);
    rig.take_raw(7, &[]);
    rig.give_up(6);
    assert_eq!(rig.lost[1..], [(7, 7, GivenUp::Unfit), (6, 6, GivenUp::Unanswered)], "other packets alone");
    let counts = *rig.fragments.counts();
    assert_eq!((counts.lost, counts.vain, rig.got.len()), (1, 2, 0));
    assert_eq!(rig.fragments.bytes, 0);
}

#[test]
fn a_message_whose_beginning_was_lost_before_the_rest_came_is_not_begun() {
    let mut rig = Rig::new(FragmentsConfig::default());
    let large = message(6_000, 1);
    rig.take_raw(0, &[]);
    rig.tracker.on_named(0, KEY, 2, ());
    rig.give_up(2);
    rig.take(1, &large, 3, 1_000);
    rig.take(1, &large, 5, 1_000);
    rig.give_up(5);
    rig.take(1, &large, 4, 1_000);
    assert_eq!(rig.lost, [(0, 0, GivenUp::Unfit), (1, 2, GivenUp::Unanswered)]);
    assert_eq!((rig.fragments.counts().vain, rig.fragments.bytes), (2, 0));
    rig.wait(100_000_000);
    assert_eq!((rig.lost.len(), rig.fragments.known().count()), (2, 0));
}

#[test]
fn a_claimed_length_allocates_no_more_than_the_bounds_allow() {
    let config = FragmentsConfig { message_max: 10_000, bytes_max: 25_000, ..FragmentsConfig::default() };
    let mut rig = Rig::new(config);
    rig.take_raw(0, &[255, 255, 255, 255, 0, 0, 255, 255, 1]);
    let huge = Fragment { total: 1 << 31, index: 0, size: u16::MAX, bytes: &[0; 65_535] };
    let mut payload = vec![0; 70_000];
    let length = huge.write(&mut payload);
    rig.take_raw(1, &payload[..length]);
    assert_eq!(rig.lost, [(0, 0, GivenUp::Unfit), (1, 32_769, GivenUp::Unfit)]);
    assert_eq!(rig.fragments.memory_bytes(), 0);
    for first in (100..150).step_by(10) {
        rig.take(first, &message(10_000, 0), 0, 1_000);
        assert!(rig.fragments.memory_bytes() <= 25_000);
    }
    assert_eq!(rig.fragments.counts().crowded, 3);
    assert_eq!(
        rig.lost[2..].iter().map(|lost| (lost.0, lost.1)).collect::<Vec<_>>(),
        [(100, 109), (110, 119), (120, 129)]
    );
    rig.wait(15_000_000);
    assert_eq!((rig.fragments.counts().aged, rig.fragments.bytes), (2, 0));
    assert!(rig.fragments.memory_bytes() <= 25_000);
}

#[test]
fn the_age_of_a_message_is_the_time_since_its_last_fragment() {
    let age_us = FragmentsConfig::default().age_us_max;
    let mut rig = Rig::new(FragmentsConfig::default());
    let large = message(6_000, 1);
    for index in 0..4 {
        rig.take(0, &large, index, 1_000);
        rig.wait(age_us - 1);
    }
    rig.take(100, &message(3_000, 0), 0, 1_000);
    assert_eq!(rig.lost, []);
    rig.wait(1);
    assert_eq!(rig.lost, [(0, 5, GivenUp::Aged)], "the one that has waited longest alone");
    rig.wait(age_us);
    assert_eq!(rig.lost[1..], [(100, 102, GivenUp::Aged)]);
}

#[test]
fn a_message_whose_packets_are_awaited_has_no_age() {
    let age_us = FragmentsConfig::default().age_us_max;
    let mut rig = Rig::new(FragmentsConfig::default());
    rig.take(0, &message(6_000, 1), 0, 1_000);
    rig.take(10, &message(6_000, 2), 0, 1_000);
    rig.now_us += 2 * age_us;
    let Rig { fragments, lost, now_us, .. } = &mut rig;
    let is_awaited = |key, last: Seq| key == KEY && last.to_wire() == 15;
    fragments.expire(*now_us, is_awaited, &mut |report| note(report, lost));
    assert_eq!(*lost, [(0, 5, GivenUp::Aged)]);
    assert_eq!(fragments.next_due_us(), Some(*now_us + age_us), "both are looked at again");
}

#[test]
fn the_number_of_messages_is_bounded() {
    let mut rig = Rig::new(FragmentsConfig { messages_max: 2, ..FragmentsConfig::default() });
    for first in [0, 10, 20, 30] {
        rig.take(first, &message(3_000, 0), 0, 1_000);
        assert!(rig.fragments.known().count() <= 2);
    }
    assert_eq!(rig.lost, [(0, 2, GivenUp::Crowded), (10, 12, GivenUp::Crowded)]);
}

#[test]
fn fragments_that_do_not_agree_spoil_their_message() {
    let mut rig = Rig::new(FragmentsConfig::default());
    rig.take(0, &message(3_000, 0), 0, 1_000);
    rig.take(0, &message(2_000, 0), 1, 1_000);
    rig.take(0, &message(3_000, 0), 2, 1_000);
    assert_eq!((&rig.lost[..], rig.got.len()), (&[(0, 2, GivenUp::Unfit)][..], 0));
    assert_eq!(rig.fragments.counts().unfit.count(Unfit::Differs), 1);
}

#[test]
fn fragments_that_fit_no_message_are_refused_by_reason() {
    for (payload, reason) in [
        (&[0, 0, 0, 5, 0, 0, 0][..], Unfit::TooShort),
        (&[0, 0, 0, 0, 0, 0, 0, 1], Unfit::Length),
        (&[0, 0, 0, 5, 0, 0, 0, 0], Unfit::Length),
        (&[0, 0, 0, 5, 0, 0, 0, 3, 1, 2], Unfit::Length),
        (&[0, 0, 0, 5, 0, 1, 0, 3, 1, 2, 3], Unfit::Length),
        (&[0, 0, 0, 5, 0, 2, 0, 3], Unfit::Length),
    ] {
        assert_eq!(Fragment::read(payload), Err(reason));
    }
    assert!(Fragment::read(&[0, 0, 0, 5, 0, 1, 0, 3, 1, 2]).is_ok());
}

#[test]
fn configurations_out_of_range_are_refused() {
    let good = FragmentsConfig::default();
    for (bad, text) in [
        (
            FragmentsConfig { message_max: 1 << 25, ..good },
            "fragments.message_max: expected at most 16777216, saw 33554432",
        ),
        (
            FragmentsConfig { bytes_max: 5, ..good },
            "fragments.bytes_max: expected at least fragments.message_max, 1048576, saw 5",
        ),
        (FragmentsConfig { messages_max: 0, ..good }, "fragments.messages_max: expected 1 to 65536, saw 0"),
    ] {
        assert_eq!(Fragments::new(bad).unwrap_err().to_string(), text);
    }
}

proptest! {
    /// Each message of a stream is delivered unchanged or reported lost once, whatever the order of arrival.
    #[test]
    fn messages_come_out_as_they_were_sent_or_are_lost_once(
        lengths in prop::collection::vec(0usize..900, 1..12),
        arrivals in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::weighted(0.03)), 1..200),
        bytes_max in prop_oneof![Just(900usize), Just(2_000), Just(1 << 20)],
    ) {
        let config = FragmentsConfig { message_max: 900, bytes_max, ..FragmentsConfig::default() };
        let mut rig = Rig::new(config);
        let size = 100u16;
        let mut packets = Vec::new();
        let mut sent: HashMap<u32, Vec<u8>> = HashMap::new();
        for (salt, &length) in lengths.iter().enumerate() {
            let (whole, first) = (message(length.max(1), salt), packets.len() as u32);
            for index in 0..whole.len().div_ceil(usize::from(size)) {
                packets.push((first, index as u16));
            }
            sent.insert(first, whole);
        }
        for (which, gives_up) in arrivals {
            let (first, index) = packets[which.index(packets.len())];
            if gives_up {
                rig.give_up(first);
            } else {
                rig.take(first, &sent[&first], index, size);
            }
        }
        rig.tracker.on_named(0, KEY, packets.len() as u32 - 1, ());
        rig.give_up(packets.len() as u32 - 1);
        rig.wait(15_000_000);
        prop_assert_eq!(rig.fragments.bytes, 0);
        for (first, whole) in &sent {
            let reports = rig.lost.iter().filter(|lost| (lost.0..=lost.1).contains(first)).count();
            match rig.got.get(first) {
                Some(got) => prop_assert!(got == whole && reports == 0),
                None => prop_assert_eq!(reports, 1, "{:?}", rig.lost),
            }
        }
        // No part of a message is reported apart from the whole, unless its beginning was lost before the
        // rest came.
        let mut spans: Vec<_> = rig.lost.iter().map(|lost| (lost.0, lost.1)).collect();
        spans.sort_unstable();
        prop_assert!(spans.is_sorted_by(|a, b| a.1 < b.0), "{:?}", spans);
    }

    #[test]
    fn no_fragment_breaks_the_bounds(
        packets in prop::collection::vec((0u32..40, any::<[u8; 3]>(), 0usize..9), 1..200),
    ) {
        let config = FragmentsConfig { message_max: 500, bytes_max: 1_000, messages_max: 5, ..FragmentsConfig::default() };
        let mut rig = Rig::new(config);
        for (number, [total, index, size], length) in packets {
            let head = [0, 0, total % 4, total, 0, index % 8, 0, size % 8];
            let payload: Vec<u8> = head.into_iter().chain((0..length).map(|at| at as u8)).collect();
            rig.take_raw(number, &payload);
            prop_assert!(rig.fragments.memory_bytes() <= 2_000 && rig.fragments.known().count() <= 5);
            prop_assert!(rig.fragments.bytes <= 1_000);
        }
    }
}
