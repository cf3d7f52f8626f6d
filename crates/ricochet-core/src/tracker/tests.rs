use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;

use super::*;
use crate::ids::{GroupId, NodeId};

fn key(sender: u32) -> StreamKey {
    StreamKey { sender: NodeId(sender), group: GroupId(7) }
}

fn tracker(config: TrackerConfig) -> Tracker<u64> {
    Tracker::new(config).unwrap()
}

fn missing(tracker: &Tracker<u64>, key: StreamKey) -> Vec<(u32, u32)> {
    tracker.missing(key).map(|interval| (interval.first.to_wire(), interval.last.to_wire())).collect()
}

#[test]
fn a_gap_is_one_interval_and_parts_keep_its_mark() {
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), 1_000, 0);
    assert_eq!(tracker.on_received(5, key(1), 1_009, 5).discovered, 8);
    assert_eq!(tracker.on_received(6, key(1), 1_004, 6).what, Arrival::Missed(5));
    assert_eq!(missing(&tracker, key(1)), [(1_001, 1_003), (1_005, 1_008)]);
    assert!(tracker.missing(key(1)).all(|interval| interval.mark == 5));
    let at = tracker.missing(key(1)).next().unwrap().last;
    assert!(tracker.mark(key(1), at, 99));
    assert_eq!(tracker.on_received(7, key(1), 1_002, 7).what, Arrival::Missed(99));
    assert_eq!(tracker.on_named(7, key(1), 1_008, 7).what, Mention::Missing(5));
    assert_eq!(tracker.on_named(7, key(1), 1_009, 7).what, Mention::Held);
    assert!(!tracker.mark(key(1), at.minus(1), 0), "the packet has come");
}

#[test]
fn missing_packets_of_a_young_stream_count_as_discovered() {
    let mut tracker = tracker(TrackerConfig::default());
    assert_eq!(tracker.on_received(0, key(1), 5, 0).discovered, 5);
    assert_eq!(tracker.on_named(0, key(2), 5, 0).discovered, 6);
    assert_eq!(tracker.on_received(0, key(3), 5_000, 0).discovered, 0);
    assert_eq!(missing(&tracker, key(2)), [(0, 5)]);
}

#[test]
fn sequence_numbers_wrap() {
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), u32::MAX - 1, 0);
    assert_eq!(tracker.on_received(1, key(1), 2, 1).discovered, 3);
    assert_eq!(tracker.on_received(2, key(1), u32::MAX, 2).what, Arrival::Missed(1));
    assert_eq!(tracker.on_received(2, key(1), 0, 2).what, Arrival::Missed(1));
    assert_eq!(tracker.on_received(2, key(1), u32::MAX - 1, 2).what, Arrival::Duplicate);
    assert_eq!(missing(&tracker, key(1)), [(1, 1)]);
}

#[test]
fn the_first_packets_of_a_stream_seen_from_its_start_are_missing_and_those_of_an_older_one_are_not() {
    let mut tracker = tracker(TrackerConfig { lookback: 16, ..TrackerConfig::default() });
    tracker.on_received(0, key(1), 3, 0);
    assert_eq!(missing(&tracker, key(1)), [(0, 2)]);

    tracker.on_received(0, key(2), 400, 0);
    assert_eq!(missing(&tracker, key(2)), []);
    assert_eq!(tracker.on_received(1, key(2), 399, 1).what, Arrival::New, "overtaken by the first one seen");
    assert_eq!(tracker.on_received(1, key(2), 399, 1).what, Arrival::Duplicate);
    assert_eq!(tracker.on_named(1, key(2), 390, 1).what, Mention::TooOld);
    assert_eq!(tracker.on_received(1, key(2), 383, 1).what, Arrival::TooOld);
    assert_eq!(tracker.given_up().iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn a_name_makes_a_packet_known_before_anything_of_its_stream_came() {
    let mut tracker = tracker(TrackerConfig::default());
    let found = tracker.on_named(3, key(1), 900, 3);
    assert_eq!((found.what, found.discovered), (Mention::Missing(3), 1));
    assert_eq!(tracker.on_received(4, key(1), 900, 4).what, Arrival::Missed(3));
}

#[test]
fn a_leap_gives_up_packets_that_are_too_far_behind() {
    let mut tracker = tracker(TrackerConfig { lag_max: 100, ..TrackerConfig::default() });
    tracker.on_received(0, key(1), 1_000, 0);
    tracker.on_received(0, key(1), 1_010, 0);
    assert_eq!(tracker.on_received(0, key(1), 1_000_000, 0).what, Arrival::Doubtful);
    tracker.concede(key(1), Some(Seq::first_seen(1_000_000)));
    let found = tracker.on_received(0, key(1), 1_000_000, 0);
    assert_eq!(found.discovered, 99);
    assert_eq!(missing(&tracker, key(1)), [(999_901, 999_999)]);
    assert_eq!(tracker.given_up().count(GivenUp::Behind), 9 + (999_900 - 1_010));
    assert_eq!(tracker.on_received(0, key(1), 1_005, 0).what, Arrival::TooOld);
    let lost: Vec<_> = std::iter::from_fn(|| tracker.pop_lost()).map(|lost| lost.first.to_wire()).collect();
    assert_eq!(lost, [1_001, 1_011]);
}

#[test]
fn a_full_stream_gives_up_its_first_gap_and_a_full_pool_the_oldest_of_all() {
    let mut tracker = tracker(TrackerConfig {
        intervals_max: 4,
        stream_intervals_max: 3,
        lookback: 0,
        ..TrackerConfig::default()
    });
    for seq in [100, 102, 104, 106, 108] {
        tracker.on_received(0, key(1), seq, 0);
        tracker.concede(key(1), None);
    }
    assert_eq!(missing(&tracker, key(1)), [(103, 103), (105, 105), (107, 107)]);
    assert_eq!(tracker.given_up().count(GivenUp::StreamFull), 1);
    tracker.on_received(0, key(2), 100, 0);
    tracker.on_received(0, key(2), 105, 0);
    tracker.on_received(0, key(2), 107, 0);
    assert_eq!(missing(&tracker, key(1)), [(105, 105), (107, 107)]);
    assert_eq!(tracker.given_up().count(GivenUp::PoolFull), 1);
    tracker.give_up(key(1), Seq(u64::MAX));
    assert_eq!(tracker.given_up().count(GivenUp::Unanswered), 2);
    assert_eq!(tracker.on_received(0, key(1), 109, 0).what, Arrival::New);
}

#[test]
fn a_stream_makes_room_only_after_a_long_silence() {
    let config = TrackerConfig { streams_max: 2, idle_us_min: 1_000, ..TrackerConfig::default() };
    let mut tracker = tracker(config);
    tracker.on_received(0, key(1), 100, 0);
    tracker.on_received(0, key(1), 102, 0);
    tracker.on_received(500, key(2), 100, 0);
    assert_eq!(tracker.on_received(999, key(3), 100, 0).what, Arrival::NoRoom);
    assert_eq!(tracker.on_received(1_000, key(3), 100, 0).what, Arrival::New);
    assert_eq!(tracker.on_named(1_400, key(1), 102, 0).what, Mention::NoRoom);
    assert_eq!((tracker.given_up().count(GivenUp::Idle), tracker.refused(), tracker.streams()), (1, 2, 2));
    tracker.forget(|key| key.sender == NodeId(3));
    assert_eq!(tracker.streams(), 1);
    assert_eq!(tracker.on_received(1_500, key(4), 100, 0).what, Arrival::New);
}

#[test]
fn one_wrong_number_puts_no_stream_out_of_reach() {
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), 1_000, 0);
    for far in 1..200u32 {
        let found = tracker.on_named(0, key(1), 1_000 + far * 10_000_000, 0);
        assert_eq!((found.what, found.discovered), (Mention::Doubtful, 0));
    }
    assert_eq!(tracker.on_received(0, key(1), 1_001, 0).what, Arrival::New);
    // Until a packet has come, a name may be anywhere.
    tracker.on_named(0, key(2), 3_000_000_000, 0);
    assert_eq!(tracker.on_received(0, key(2), 7, 0).what, Arrival::New);
    assert_eq!(missing(&tracker, key(2)), [(0, 6)]);
    // After a long partition the sender itself confirms its position.
    tracker.concede(key(1), None);
    assert_eq!(tracker.on_named(0, key(1), 90_000_000, 0).what, Mention::Doubtful);
    assert_eq!(
        tracker.on_named(0, key(1), 90_000_000, 0).what,
        Mention::Doubtful,
        "however often it is told"
    );
    let asked = tracker.on_asked(key(1)).unwrap();
    assert_eq!(tracker.on_answer(key(1), Some(90_000_001), asked), Judgment::Ahead);
    assert_eq!(tracker.on_named(5, key(1), 90_000_001, 5).what, Mention::Missing(5));
}

/// Returns the judgment of an answer to a question that is asked now.
fn answered(tracker: &mut Tracker<u64>, newest: Option<u32>) -> Judgment {
    let asked = tracker.on_asked(key(1)).unwrap();
    tracker.on_answer(key(1), newest, asked)
}

#[test]
fn an_answer_takes_back_false_numbers_and_leaves_true_ones() {
    let mut tracker = tracker(TrackerConfig::default());
    for seq in [0, 1, 2, 4] {
        tracker.on_received(0, key(1), seq, 0);
    }
    tracker.on_named(0, key(1), 60_000, 1);
    tracker.on_received(0, key(1), 50_000, 2);
    assert_eq!(answered(&mut tracker, Some(5)), Judgment::Retracted);
    assert_eq!(missing(&tracker, key(1)), [(3, 3), (5, 5)]);
    assert_eq!(tracker.highest(key(1)).map(Seq::to_wire), Some(5));
    assert_eq!(tracker.on_received(0, key(1), 6, 3).what, Arrival::New);
    assert_eq!(tracker.on_received(0, key(1), 4, 3).what, Arrival::Duplicate);
    assert_eq!(tracker.given_up().iter().map(|(_, count)| count).sum::<u64>(), 0);
    assert_eq!(answered(&mut tracker, Some(6)), Judgment::Agrees);
}

#[test]
fn an_answer_that_a_later_packet_contradicts_takes_nothing_back() {
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), 0, 0);
    tracker.on_named(0, key(1), 100, 0);
    let asked = tracker.on_asked(key(1)).unwrap();
    tracker.on_received(1, key(1), 1, 1);
    assert_eq!(tracker.on_answer(key(1), Some(0), asked), Judgment::Unclear);
    assert_eq!(tracker.on_received(2, key(1), 1, 2).what, Arrival::Duplicate, "it is delivered once");
}

#[test]
fn a_stream_that_began_with_a_lie_begins_again() {
    for newest in [None, Some(3), Some(4_000_000)] {
        let mut tracker = tracker(TrackerConfig::default());
        tracker.on_received(0, key(1), 3_000_000_000, 0);
        assert_eq!(tracker.take_begun(), Some(key(1)));
        assert_eq!(answered(&mut tracker, newest), Judgment::FalseStart);
        assert_eq!(tracker.on_received(1, key(1), newest.unwrap_or(0) + 1, 1).what, Arrival::New);
    }
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), 3_000, 0);
    assert_eq!(answered(&mut tracker, Some(3_004)), Judgment::Agrees, "a node that joins late");
}

#[test]
fn gaps_that_no_sender_has_confirmed_push_out_no_others() {
    let config = TrackerConfig { stream_intervals_max: 4, ..TrackerConfig::default() };
    let mut tracker = tracker(config);
    tracker.on_received(0, key(1), 0, 0);
    for far in 1..100u64 {
        tracker.on_named(0, key(1), 1_000 * far as u32, far);
    }
    assert_eq!(tracker.given_up().count(GivenUp::StreamFull), 0);
    assert_eq!(answered(&mut tracker, Some(0)), Judgment::Retracted);
    assert_eq!((tracker.owed(), tracker.on_received(1, key(1), 1, 1).what), (0, Arrival::New));
}

#[test]
fn made_up_streams_push_out_neither_real_streams_nor_their_missing_packets() {
    let mut tracker =
        tracker(TrackerConfig { streams_max: 64, intervals_max: 64, ..TrackerConfig::default() });
    for sender in 0..40 {
        tracker.on_received(0, key(sender), 0, 0);
        tracker.on_received(0, key(sender), 2, 0);
    }
    for made_up in 1_000..9_000 {
        tracker.on_named(1, key(made_up), 0, 1);
    }
    for sender in 0..40 {
        assert_eq!(missing(&tracker, key(sender)), [(1, 1)]);
        assert_eq!(tracker.on_received(2, key(sender), 3, 2).what, Arrival::New);
    }
    assert_eq!(
        tracker.on_received(2, key(41), 0, 2).what,
        Arrival::New,
        "there is room for a stream that is heard"
    );
}

#[test]
fn packets_before_the_first_one_seen_are_not_awaited() {
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), 1_000, 0);
    assert_eq!((tracker.owed(), tracker.intervals()), (0, 1));
    tracker.on_received(0, key(1), 1_002, 0);
    assert_eq!(tracker.owed(), 1);
    tracker.on_received(0, key(1), 1_001, 0);
    assert_eq!(tracker.owed(), 0);
}

#[test]
fn a_part_of_an_interval_can_be_marked_alone() {
    let mut tracker = tracker(TrackerConfig::default());
    tracker.on_received(0, key(1), 100, 0);
    tracker.on_received(0, key(1), 200, 0);
    let first = tracker.missing(key(1)).next().unwrap().first;
    tracker.mark_first(key(1), first, 10, 7);
    let marks: Vec<_> =
        tracker.missing(key(1)).map(|part| (part.first.to_wire(), part.last.to_wire(), part.mark)).collect();
    assert_eq!(marks, [(101, 110, 7), (111, 199, 0)]);
}

#[test]
fn configurations_out_of_range_are_refused() {
    let good = TrackerConfig::default();
    for (bad, text) in [
        (TrackerConfig { streams_max: 0, ..good }, "streams_max: expected 1 to 1048576, saw 0"),
        (TrackerConfig { intervals_max: 0, ..good }, "intervals_max: expected 1 to 2097152, saw 0"),
        (
            TrackerConfig { stream_intervals_max: 0, ..good },
            "stream_intervals_max: expected 1 to 65536, saw 0",
        ),
        (TrackerConfig { lag_max: 1 << 31, ..good }, "lag_max: expected 1 to 1073741824, saw 2147483648"),
        (TrackerConfig { lookback: 1 << 17, ..good }, "lookback: expected at most 65536, saw 131072"),
    ] {
        assert_eq!(Tracker::<u64>::new(bad).unwrap_err().to_string(), text);
    }
}

/// One step of a trace: a stream, how far from the newest, whether it is only named.
fn traces(reach: i64) -> impl Strategy<Value = (u32, Vec<(u32, i64, bool)>)> {
    // Starts near the wrap, near zero and in between.
    let start = prop_oneof![u32::MAX - 200..=u32::MAX, 0..200u32, any::<u32>()];
    (start, prop::collection::vec((0..3u32, -reach..reach / 3, prop::bool::weighted(0.3)), 1..300))
}

/// Expected state of a stream.
#[derive(Default)]
struct Model {
    newest: i64,
    came: HashSet<i64>,
    missing: BTreeSet<i64>,
}

proptest! {
    #[test]
    fn with_enough_room_it_knows_exactly_which_packets_came_and_which_are_missing((start, steps) in traces(60)) {
        // Each step may make a gap.
        let config = TrackerConfig { lookback: 0, stream_intervals_max: 300, ..TrackerConfig::default() };
        let mut tracker = tracker(config);
        let mut models: BTreeMap<u32, Model> = BTreeMap::new();
        for (sender, step, only_named) in steps {
            let wire = |at: i64| start.wrapping_add(at as u32);
            let fresh = !models.contains_key(&sender);
            let model = models.entry(sender).or_insert_with(|| Model { newest: -1, ..Model::default() });
            let at = if fresh { 0 } else { (model.newest + step).max(0) };
            let new: Vec<i64> = (model.newest + 1..=at).collect();
            model.newest = model.newest.max(at);
            model.missing.extend(&new);
            if only_named {
                let found = tracker.on_named(0, key(sender), wire(at), 0);
                prop_assert_eq!(found.seq.to_wire(), wire(at));
                prop_assert_eq!(found.what == Mention::Held, model.came.contains(&at));
                prop_assert_eq!(found.what == Mention::Missing(0), model.missing.contains(&at));
                prop_assert_eq!(found.discovered, new.len() as u64);
            } else {
                let found = tracker.on_received(0, key(sender), wire(at), 0);
                prop_assert_eq!(found.what.is_new(), model.came.insert(at));
                prop_assert_eq!(found.what == Arrival::Missed(0), model.missing.remove(&at) && new.is_empty());
                prop_assert_eq!(found.discovered, new.len().saturating_sub(1) as u64);
            }
            let seen: BTreeSet<u32> = tracker.missing(key(sender))
                .flat_map(|interval| (interval.first.0..=interval.last.0).map(|seq| seq as u32)).collect();
            prop_assert_eq!(seen, model.missing.iter().map(|&at| wire(at)).collect::<BTreeSet<_>>());
        }
        prop_assert_eq!(tracker.given_up(), &GivenUpCounts::default());
    }

    #[test]
    fn without_room_it_is_bounded_reports_nothing_twice_and_accounts_for_every_packet(
        (start, steps) in traces(400),
        (intervals_max, stream_intervals_max, lag_max, lookback) in (1usize..6, 1u32..5, 1u32..300, 0u32..40),
    ) {
        let config = TrackerConfig {
            // Room for all streams, or those known by name alone would push each other out.
            streams_max: 12, intervals_max, stream_intervals_max, lag_max, lookback, idle_us_min: u64::MAX,
        };
        let mut tracker = tracker(config);
        let mut newest: BTreeMap<u32, i64> = BTreeMap::new();
        let mut came: HashSet<(u32, u64)> = HashSet::new();
        let (mut discovered, mut filled) = (0, 0);
        for (sender, step, only_named) in steps {
            let at = newest.get(&sender).map_or(0, |newest| newest + step);
            let wire = start.wrapping_add(at as u32);
            let before = tracker.highest(key(sender));
            tracker.concede(key(sender), None);
            let seq = if only_named {
                let found = tracker.on_named(0, key(sender), wire, 0);
                if let Mention::Held = found.what {
                    prop_assert!(came.contains(&(sender, found.seq.0)));
                }
                found.seq
            } else {
                let found = tracker.on_received(0, key(sender), wire, 0);
                if found.what.is_new() {
                    prop_assert!(came.insert((sender, found.seq.0)), "new twice");
                    filled += 1;
                }
                if let Arrival::Duplicate = found.what {
                    prop_assert!(came.contains(&(sender, found.seq.0)));
                }
                found.seq
            };
            prop_assert_eq!(seq.to_wire(), wire);
            if let Some(highest) = tracker.highest(key(sender)) {
                newest.entry(sender).and_modify(|newest| *newest = at.max(*newest)).or_insert(at);
                // A stream begins where it is seen first, or at its own beginning if that is near.
                let first = if wire < lookback { Seq::first_seen(0) } else { Seq::first_seen(wire) };
                discovered += highest.0 - before.map_or(first.0 - 1, |before| before.0);
            } else {
                prop_assert!(false, "there is room for all streams");
            }
            prop_assert!(tracker.intervals() <= intervals_max);
            for sender in 0..3 {
                prop_assert!(tracker.missing(key(sender)).count() <= stream_intervals_max as usize);
                let ends: Vec<_> = tracker.missing(key(sender)).flat_map(|i| [i.first.0 * 2, i.last.0 * 2 + 1]).collect();
                prop_assert!(ends.is_sorted_by(|a, b| a < b), "in order, apart");
            }
        }
        // Every packet that exists came, is missing or was given up. Packets before the first one seen of an
        // older stream are accepted in addition.
        let waiting: u64 = tracker.oldest().map(|(_, interval)| interval.last.0 - interval.first.0 + 1).sum();
        let lost: u64 = tracker.given_up().iter().map(|(_, count)| count).sum();
        let before_first = if start < lookback { 0 } else {
            came.iter().filter(|(_, seq)| *seq < Seq::first_seen(start).0).count() as u64
        };
        prop_assert_eq!(discovered, filled - before_first + waiting + lost);
        let reported: u64 = std::iter::from_fn(|| tracker.pop_lost()).map(|lost| lost.last.0 - lost.first.0 + 1).sum();
        prop_assert_eq!(reported, lost);
    }
}

#[test]
fn packets_before_the_first_one_seen_are_given_up_if_they_were_meant_for_this_node() {
    let mut tracker = tracker(TrackerConfig { lookback: 16, ..TrackerConfig::default() });
    let ranges = |tracker: &mut Tracker<u64>| -> Vec<(u32, u32)> {
        let lost = std::iter::from_fn(|| tracker.pop_lost());
        lost.map(|lost| (lost.first.to_wire(), lost.last.to_wire())).collect()
    };
    tracker.on_received(0, key(1), 400, 0);
    tracker.on_received(0, key(1), 390, 0);
    assert_eq!(tracker.give_up_before_start(key(1), 400), Some(Seq::first_seen(400)));
    assert_eq!(ranges(&mut tracker), [], "nothing before it was meant for this node");
    for _ in 0..2 {
        assert_eq!(tracker.give_up_before_start(key(1), 100), Some(Seq::first_seen(400)));
    }
    assert_eq!(ranges(&mut tracker), [(100, 383), (384, 389), (391, 399)], "once");
    assert_eq!(tracker.given_up().count(GivenUp::Behind), 299);
    assert_eq!(tracker.on_received(1, key(1), 399, 1).what, Arrival::TooOld);
    // The first packets of a stream seen from its start are awaited.
    tracker.on_received(0, key(2), 9, 0);
    assert_eq!(tracker.give_up_before_start(key(2), 0), Some(Seq::first_seen(9)));
    assert_eq!((missing(&tracker, key(2)), ranges(&mut tracker)), (vec![(0, 8)], vec![]));
    assert_eq!(tracker.give_up_before_start(key(3), 0), None);
    // Of a stream that begins where history says, nothing before is owed.
    tracker.begin(0, key(4), 1_020);
    assert_eq!(tracker.give_up_before_start(key(4), 1_000), Some(Seq::first_seen(1_020)));
    assert_eq!(ranges(&mut tracker), []);
}
