use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::ids::{GroupId, NodeId};
use crate::message::How;
use crate::tracker::{Tracker, TrackerConfig};

const KEY: StreamKey = StreamKey { sender: NodeId(1), group: GroupId(7) };

/// A tracker and the stage behind it, connected as in a node.
struct Rig {
    tracker: Tracker<()>,
    fifo: Fifo,
    /// All releases: stream, first and last packet, and the reason if these are lost.
    released: Vec<(StreamKey, Seq, Seq, Option<GivenUp>)>,
    /// Packets that the tracker found new, and those that it awaited at some time.
    came: HashSet<(StreamKey, u64)>,
    awaited: HashSet<(StreamKey, u64)>,
}

impl Rig {
    fn new(fifo: FifoConfig, tracker: TrackerConfig) -> Self {
        Self {
            tracker: Tracker::new(tracker).unwrap(),
            fifo: Fifo::new(fifo).unwrap(),
            released: vec![],
            came: HashSet::new(),
            awaited: HashSet::new(),
        }
    }

    fn take(&mut self, now_us: u64, key: StreamKey, number: u32) {
        let found = self.tracker.on_received(now_us, key, number, ());
        self.report_lost(now_us, found.what.is_new().then_some(key));
        self.awaited.extend(
            self.tracker
                .missing(key)
                .flat_map(|interval| (interval.first.0..=interval.last.0).map(move |seq| (key, seq))),
        );
        if !found.what.is_new() {
            return;
        }
        self.came.insert((key, found.seq.0));
        let payload = number.to_be_bytes();
        let message = Message {
            joint: false,
            sender: key.sender,
            group: key.group,
            seq: found.seq,
            payload: &payload,
            packets: 1,
            how: How::Multicast,
            missed_us: None,
            front: self.tracker.front(key),
            past_us: None,
            sent: None,
            enveloped: false,
        };
        self.fifo.handle_message(now_us, &message, &mut |item| note(item, &mut self.released));
    }

    fn give_up(&mut self, now_us: u64, key: StreamKey, number: u32) {
        let through = Seq::from_wire(number, self.tracker.highest(key).unwrap());
        self.tracker.give_up(key, through);
        self.report_lost(now_us, None);
    }

    fn report_lost(&mut self, now_us: u64, pending: Option<StreamKey>) {
        let Self { tracker, fifo, released, .. } = self;
        tracker.lost().for_each(|report| fifo.on_lost(now_us, report, &mut |item| note(item, released)));
        while let Some(report) = tracker.pop_lost() {
            if Some(report.key) != pending {
                let front = tracker.front(report.key);
                fifo.on_settled(report.key, front, &mut |item| note(item, released));
            }
        }
    }

    fn wait(&mut self, now_us: u64) {
        self.fifo.handle_timeout(now_us, &mut |item| note(item, &mut self.released));
    }

    /// Returns the numbers of the messages released.
    fn got(&self) -> Vec<u32> {
        self.released.iter().filter(|item| item.3.is_none()).map(|item| item.1.to_wire()).collect()
    }

    /// Returns the losses reported.
    fn lost(&self) -> Vec<(u32, u32)> {
        let lost = self.released.iter().filter(|item| item.3.is_some());
        lost.map(|item| (item.1.to_wire(), item.2.to_wire())).collect()
    }
}

fn note(item: Released<'_>, released: &mut Vec<(StreamKey, Seq, Seq, Option<GivenUp>)>) {
    released.push(match item {
        Released::Message(message) => {
            assert_eq!(message.payload, message.seq.to_wire().to_be_bytes(), "a payload keeps its message");
            let key = StreamKey { sender: message.sender, group: message.group };
            (key, message.seq, message.seq, None)
        }
        Released::Lost(lost) => (lost.key, lost.first, lost.last, Some(lost.reason)),
    });
}

fn rig() -> Rig {
    Rig::new(FifoConfig::default(), TrackerConfig::default())
}

#[test]
fn the_first_packet_of_a_stream_seen_from_its_start_is_awaited() {
    let mut rig = rig();
    rig.take(0, KEY, 2);
    rig.take(0, KEY, 1);
    rig.wait(1_000_000_000);
    assert_eq!((&rig.got()[..], rig.fifo.held()), (&[][..], 2), "no timeout ends the wait");
    rig.take(0, KEY, 0);
    assert_eq!((&rig.got()[..], rig.fifo.held()), (&[0, 1, 2][..], 0));
    assert_eq!(rig.fifo.counts().waited, 2);
}

#[test]
fn the_first_messages_of_an_older_stream_are_held_a_moment() {
    let mut rig = rig();
    rig.take(0, KEY, 1_002);
    rig.take(500, KEY, 1_000);
    rig.take(600, KEY, 1_003);
    assert_eq!((&rig.got()[..], rig.fifo.poll_timeout()), (&[][..], Some(2_000)));
    rig.wait(1_999);
    assert!(rig.got().is_empty());
    rig.wait(2_000);
    assert_eq!((&rig.got()[..], rig.fifo.poll_timeout()), (&[1_000, 1_002, 1_003][..], None));
    rig.take(2_001, KEY, 1_001);
    rig.take(2_002, KEY, 1_004);
    assert_eq!(rig.got(), [1_000, 1_002, 1_003, 1_004]);
    assert_eq!(
        (rig.fifo.counts().late, &rig.lost()[..]),
        (1, &[][..]),
        "a packet that was not awaited is not lost"
    );
}

#[test]
fn a_subscription_that_begins_later_waits_for_the_same_packets_as_its_node() {
    let mut rig = rig();
    rig.take(0, KEY, 0);
    rig.take(0, KEY, 1);
    rig.fifo = Fifo::new(FifoConfig::default()).unwrap();
    rig.released.clear();
    rig.take(0, KEY, 3);
    rig.take(0, KEY, 4);
    assert!(rig.got().is_empty());
    rig.take(0, KEY, 2);
    rig.take(0, KEY, 5);
    assert_eq!(rig.got(), [2, 3, 4, 5]);
}

#[test]
fn a_loss_is_reported_in_its_place() {
    let mut rig = rig();
    for number in [0, 3, 4, 7] {
        rig.take(0, KEY, number);
    }
    let Rig { tracker, fifo, .. } = &mut rig;
    tracker.give_up(KEY, tracker.highest(KEY).unwrap());
    let mut order = Vec::new();
    let mut note = |item: Released<'_>| match item {
        Released::Message(message) => order.push(i64::from(message.seq.to_wire())),
        Released::Lost(report) => order.push(-i64::from(report.first.to_wire())),
    };
    let reports: Vec<Lost> = std::iter::from_fn(|| tracker.pop_lost()).collect();
    reports.iter().for_each(|report| fifo.on_lost(0, report, &mut note));
    fifo.on_settled(KEY, tracker.front(KEY), &mut note);
    assert_eq!(order, [-1, 3, 4, -5, 7]);
}

#[test]
fn a_full_stage_continues_in_order_and_reports_skipped_packets() {
    let mut rig = Rig::new(FifoConfig { messages_max: 3, ..FifoConfig::default() }, TrackerConfig::default());
    for number in [0, 2, 3, 5] {
        rig.take(0, KEY, number);
    }
    assert_eq!(rig.got(), [0]);
    rig.take(0, KEY, 6);
    assert_eq!((&rig.got()[..], &rig.lost()[..]), (&[0, 2, 3][..], &[(1, 1)][..]));
    rig.take(0, KEY, 1);
    assert_eq!(rig.fifo.counts().late, 1);
    rig.give_up(0, KEY, 4);
    assert_eq!((&rig.got()[..], &rig.lost()[..]), (&[0, 2, 3, 5, 6][..], &[(1, 1), (4, 4)][..]));
    let counts = *rig.fifo.counts();
    assert_eq!((counts.skipped, counts.crowded, counts.released, counts.waited), (1, 1, 5, 4));
}

#[test]
fn the_stream_that_has_waited_longest_makes_room_for_others() {
    let other = StreamKey { sender: NodeId(2), ..KEY };
    let mut rig = Rig::new(FifoConfig { messages_max: 2, ..FifoConfig::default() }, TrackerConfig::default());
    rig.take(0, other, 1);
    rig.take(0, KEY, 1);
    rig.take(0, KEY, 3);
    assert_eq!((&rig.got()[..], &rig.lost()[..]), (&[1][..], &[(0, 0)][..]), "of the other stream");
    rig.take(0, KEY, 0);
    rig.take(0, KEY, 2);
    assert_eq!(rig.got(), [1, 0, 1, 2, 3]);
}

#[test]
fn bytes_are_bounded_and_a_message_that_never_fits_passes() {
    let config = FifoConfig { bytes_max: 1 << 16, ..FifoConfig::default() };
    let mut fifo = Fifo::new(config).unwrap();
    let mut lengths = Vec::new();
    let awaited = Seq::first_seen(0);
    let large = vec![7; 100_000];
    for (number, length) in (1u32..).zip([1_000usize, 60_000, 30_000, 100_000, 1]) {
        let message = Message {
            joint: false,
            sender: KEY.sender,
            group: KEY.group,
            seq: Seq::first_seen(number * 2),
            payload: &large[..length],
            packets: 1,
            how: How::Multicast,
            missed_us: None,
            front: Front { settled: awaited, awaited },
            past_us: None,
            sent: None,
            enveloped: false,
        };
        fifo.handle_message(0, &message, &mut |released| {
            if let Released::Message(message) = released {
                lengths.push(message.payload.len());
            }
        });
        assert!(fifo.memory_bytes() <= 2 << 16, "{}", fifo.memory_bytes());
    }
    assert_eq!(lengths, [1_000, 60_000, 30_000, 100_000]);
    assert_eq!(fifo.counts().skipped, 2 + 1 + 1 + 1);
}

#[test]
fn streams_are_bounded_and_the_quietest_makes_room() {
    let mut rig = Rig::new(FifoConfig { streams_max: 2, ..FifoConfig::default() }, TrackerConfig::default());
    let key = |sender| StreamKey { sender: NodeId(sender), ..KEY };
    rig.take(0, key(1), 1);
    rig.take(0, key(2), 0);
    rig.take(0, key(1), 2);
    rig.take(0, key(3), 0);
    rig.take(0, key(4), 0);
    assert_eq!((&rig.got()[..], &rig.lost()[..]), (&[0, 0, 1, 2, 0][..], &[(0, 0)][..]));
    rig.take(0, key(5), 9);
    rig.fifo.forget(|key| key.sender == NodeId(5));
    assert_eq!((rig.fifo.held(), rig.fifo.counts().forgotten), (0, 1));
}

#[test]
fn no_stream_that_the_node_knows_is_forgotten() {
    assert_eq!(FifoConfig::default().streams_max, TrackerConfig::default().streams_max);
}

#[test]
fn configurations_out_of_range_are_refused() {
    let good = FifoConfig::default();
    for (bad, text) in [
        (FifoConfig { messages_max: 0, ..good }, "messages_max: expected 1 to 1048576, saw 0"),
        (FifoConfig { bytes_max: 1_000, ..good }, "bytes_max: expected at least 65536, saw 1000"),
        (FifoConfig { streams_max: 0, ..good }, "streams_max: expected 1 to 1048576, saw 0"),
    ] {
        assert_eq!(Fifo::new(bad).unwrap_err().to_string(), text);
    }
}

/// Steps of a trace: one of two senders, one of its packets, and whether all packets before that are given up
/// instead.
fn steps() -> impl Strategy<Value = Vec<(u32, u32, bool)>> {
    prop::collection::vec((0u32..2, 0u32..60, prop::bool::weighted(0.05)), 1..250)
}

proptest! {
    #[test]
    fn messages_come_out_in_order_without_those_that_are_lost(
        first in prop_oneof![Just(0u32), 64..200u32, 64..u32::MAX - 100],
        steps in steps(),
        messages_max in prop_oneof![1usize..8, Just(1_000)],
    ) {
        let config = FifoConfig { messages_max, settle_us: 20, ..FifoConfig::default() };
        let mut rig = Rig::new(config, TrackerConfig::default());
        let streams = [0, 1].map(|sender| StreamKey { sender: NodeId(sender), ..KEY });
        for (now_us, &(sender, number, gives_up)) in (0..).zip(&steps) {
            let (key, number) = (streams[sender as usize], first.wrapping_add(number));
            rig.wait(now_us);
            if gives_up && rig.tracker.highest(key).is_some() {
                rig.give_up(now_us, key, number);
            } else {
                rig.take(now_us, key, number);
            }
            prop_assert!(rig.fifo.held() <= messages_max);
        }
        // At the end all missing packets are given up, and a last packet comes.
        for (key, now_us) in streams.into_iter().zip(1_000..) {
            rig.take(now_us, key, first.wrapping_add(60));
            rig.wait(now_us + 20);
            rig.give_up(now_us + 20, key, first.wrapping_add(60));
        }
        prop_assert_eq!(rig.fifo.held(), 0);
        let mut skipped = 0;
        for key in streams {
            let items: Vec<_> = rig.released.iter().filter(|item| item.0 == key).collect();
            prop_assert!(items.is_sorted_by(|a, b| a.2 < b.1), "in order and disjoint: {:?}", items);
            let released: Vec<u64> = items.iter().filter(|item| item.3.is_none()).map(|item| item.1.0).collect();
            prop_assert!(released.iter().all(|seq| rig.came.contains(&(key, *seq))), "nothing made up");
            skipped += items.iter().filter(|item| item.3 == Some(GivenUp::Skipped)).map(|item| item.2.0 - item.1.0 + 1).sum::<u64>();
            // Only packets that precede the first one seen of the stream, and were not awaited, are left out
            // silently.
            let begin = Seq::first_seen(first).0;
            for pair in items.windows(2) {
                let silent = pair[0].2.0 + 1..pair[1].1.0;
                prop_assert!(silent.is_empty() || (first >= 64 && silent.end <= begin + 60), "{:?} {:?}", silent, items);
                prop_assert!(silent.clone().all(|seq| !rig.awaited.contains(&(key, seq))), "{:?} {:?}", silent, items);
            }
        }
        let counts = rig.fifo.counts();
        prop_assert_eq!(counts.skipped, skipped);
        prop_assert_eq!(counts.released + counts.late, rig.came.len() as u64);
        if messages_max == 1_000 {
            prop_assert_eq!((counts.skipped, counts.crowded), (0, 0));
            // Only packets that were not awaited can come too late.
            prop_assert!(first >= 64 || counts.late == 0);
        }
    }
}

#[test]
fn a_loss_before_the_first_message_released_is_reported_when_it_is_known() {
    let mut rig = Rig::new(FifoConfig { settle_us: 0, ..FifoConfig::default() }, TrackerConfig::default());
    rig.take(0, KEY, 500);
    rig.tracker.give_up_before_start(KEY, 100);
    rig.report_lost(0, None);
    rig.take(1, KEY, 501);
    let numbers = |&(_, first, last, reason): &(_, Seq, Seq, Option<GivenUp>)| {
        (first.to_wire(), last.to_wire(), reason)
    };
    let behind = Some(GivenUp::Behind);
    let expected = [(500, 500, None), (100, 435, behind), (436, 499, behind), (501, 501, None)];
    assert_eq!(rig.released.iter().map(numbers).collect::<Vec<_>>(), expected);
}
