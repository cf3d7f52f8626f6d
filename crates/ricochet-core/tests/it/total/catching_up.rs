//! Members that miss many messages, which nothing but the order brings back.

use ricochet_core::order::{OrderNews, TotalConfig};
use ricochet_core::{NodeId, StreamKey};

use super::room::{GROUP, Item, Room};

const SECOND_US: u64 = 1_000_000;

/// Asserts that a member has delivered as many messages of sender 9, each by its number.
fn assert_in_order(room: &Room, at: usize, count: u32) {
    let expected = (0..count).map(|seq| Item::Message(u64::from(seq), 9, seq));
    let delivered = room.delivered(at);
    assert_eq!(delivered.len(), count as usize, "member {at}");
    assert!(delivered.into_iter().eq(expected), "member {at}");
}

#[test]
fn a_member_that_was_cut_off_catches_up_in_waves() {
    let mut room = Room::new(4, |config| config);
    let away = (room.sequencer() + 1) % 4;
    room.side[away] = 1;
    for seq in 0..1_000 {
        room.say_all(9, seq);
        room.run_for(1_000);
    }
    room.side[away] = 0;
    room.say_all(9, 1_000);
    room.run_for(2 * SECOND_US);
    (0..4).for_each(|at| assert_in_order(&room, at, 1_001));
    let wanted = room.totals[away].counts().wanted;
    assert!((1_000..1_100).contains(&wanted), "each is requested once: {wanted}");
}

#[test]
fn a_message_that_is_sent_again_keeps_the_time_of_its_sender() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    room.say(9, 0, [sequencer]);
    room.run_for(SECOND_US);
    // The room compares the time of each message that is delivered.
    (0..4).for_each(|at| assert_in_order(&room, at, 1));
    assert!(room.totals[sequencer].counts().copied > 0);
}

#[test]
fn a_member_that_was_cut_off_catches_up_while_messages_go_on() {
    let mut room = Room::new(4, |config| config);
    let away = (room.sequencer() + 1) % 4;
    room.side[away] = 1;
    for seq in 0..3_000 {
        room.say_all(9, seq);
        room.run_for(1_000);
        if seq == 1_500 {
            room.side[away] = 0;
        }
    }
    room.run_for(10_000);
    (0..4).for_each(|at| assert_in_order(&room, at, 3_000));
    assert_eq!(room.totals[away].counts().epochs, 1, "nobody was put out");
}

#[test]
fn a_sequencer_that_lacks_many_messages_soon_has_them() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    let rest: Vec<usize> = (0..4).filter(|&at| at != sequencer).collect();
    for seq in 0..400 {
        room.say(9, seq, [sequencer, rest[2]]);
    }
    room.run_for(3_000);
    room.down.insert(sequencer);
    room.update_views();
    room.run_for(3 * SECOND_US);
    rest.iter().for_each(|&at| assert_in_order(&room, at, 400));
}

/// Member that keeps messages that all have.
const KEEPER: usize = 3;
/// Member that misses 500 messages.
const AWAY: usize = 0;

/// Four members, of which one misses messages that only another one keeps.
fn with_one_away(safe: bool) -> Room {
    let keeps = [0, 0, 0, 1_024];
    let mut keeps = keeps.into_iter();
    let mut room = Room::new(4, |config| TotalConfig { keep: keeps.next().unwrap(), safe, ..config });
    (0..100).for_each(|seq| room.say_all(9, seq));
    room.run_for(SECOND_US);
    room.side[AWAY] = 1;
    room.update_views();
    for seq in 100..600 {
        room.say(9, seq, 1..4);
        room.run_for(1_000);
    }
    room
}

/// Lets the member return, and stops as soon as it knows the numbers of the messages.
fn return_to(room: &mut Room) {
    room.side[AWAY] = 0;
    room.update_views();
    while room.totals[AWAY].status().next < 600 {
        room.run_for(1_000);
    }
}

/// Asserts that the other members have delivered everything, and that the one that was away knows what it
/// has missed.
fn assert_told(room: &Room, others: impl IntoIterator<Item = usize>, count: u32) {
    for at in others {
        assert_in_order(room, at, count);
        assert_eq!(room.broken(at), [], "member {at}");
    }
    assert_eq!(room.broken(AWAY), []);
    let missed = room.items[AWAY].iter().filter_map(|item| match item {
        Item::News(OrderNews::Missed { from, continues }) => Some(*from..*continues),
        _ => None,
    });
    let missed: Vec<u64> = missed.flatten().collect();
    let delivered = room.delivered(AWAY).into_iter().map(|item| match item {
        Item::Message(number, 9, seq) if number == u64::from(seq) => number,
        other => panic!("{other:?}"),
    });
    let mut all: Vec<u64> = delivered.chain(missed.iter().copied()).collect();
    assert!(missed.len() >= 400, "{}", missed.len());
    all.sort_unstable();
    assert!(all.into_iter().eq(0..u64::from(count)), "each number comes or is told, once");
}

#[test]
fn a_member_is_told_what_nobody_keeps_any_more() {
    for safe in [false, true] {
        let mut room = with_one_away(safe);
        return_to(&mut room);
        room.down.insert(KEEPER);
        room.update_views();
        for seq in 600..650 {
            room.say_all(9, seq);
            room.run_for(20_000);
        }
        room.run_for(SECOND_US);
        assert_told(&room, 1..3, 650);
    }
}

#[test]
fn a_sequencer_that_lacks_what_nobody_keeps_declares_nothing_lost_that_others_have_delivered() {
    for safe in [false, true] {
        let mut room = with_one_away(safe);
        room.totals[KEEPER].leave();
        room.flush(KEEPER);
        room.run_for(5_000);
        room.down.insert(KEEPER);
        return_to(&mut room);
        // The others' sequencer dies before the member has asked for what it lacks.
        let sequencer = room.sequencer();
        room.down.insert(sequencer);
        room.update_views();
        for seq in 600..650 {
            room.say_all(9, seq);
            room.run_for(20_000);
        }
        room.run_for(SECOND_US);
        assert_eq!(room.sequencer(), AWAY);
        assert_told(&room, (1..3).filter(|&at| at != sequencer), 650);
    }
}

#[test]
fn a_message_that_is_forgotten_while_a_majority_is_awaited_comes_again() {
    let mut room = Room::new(5, |config| TotalConfig { safe: true, ..config });
    let other = (room.sequencer() + 1) % 5;
    (0..5).for_each(|seq| room.say_all(9, seq));
    // The numbers have come, and the acknowledgements of the others have not.
    room.run_for(1_000);
    assert_eq!((room.totals[other].status().held, room.delivered(other).len()), (5, 0));
    room.totals[other].on_restart(StreamKey { sender: NodeId(9), group: GROUP });
    room.run_for(SECOND_US);
    (0..5).for_each(|at| assert_in_order(&room, at, 5));
}

/// In safe order members forget what all hold, before each of them knows that a majority does.
#[test]
fn a_member_that_has_acknowledged_messages_delivers_them_though_the_others_forget_them() {
    let mut room = Room::new(5, |config| TotalConfig { safe: true, keep: 0, ..config });
    let sequencer = room.sequencer();
    let late = (0..5).find(|&at| at != sequencer).unwrap();
    (0..5).for_each(|seq| room.say_all(9, seq));
    // It has acknowledged the messages, and stands still while the others learn that all have.
    room.run_for(1_000);
    assert_eq!((room.totals[late].status().held, room.delivered(late).len()), (5, 0));
    room.down.insert(late);
    room.run_for(10_000);
    // They learn it with the next number.
    room.say_all(9, 5);
    room.run_for(100_000);
    let others: Vec<usize> = (0..5).filter(|&at| at != late && at != sequencer).collect();
    for &at in &others {
        assert_eq!(room.totals[at].status().held, 1, "member {at} has forgotten the others");
    }
    room.down.insert(sequencer);
    room.down.remove(&late);
    room.update_views();
    room.run_for(SECOND_US);
    (6..10).for_each(|seq| room.say_all(9, seq));
    room.run_for(SECOND_US);
    assert_ne!(room.sequencer(), sequencer);
    others.iter().chain([&late]).for_each(|&at| assert_in_order(&room, at, 10));
    let is_told =
        |item: &Item| matches!(item, Item::News(OrderNews::Missed { .. } | OrderNews::Broken { .. }));
    assert!(!room.items[late].iter().any(is_told), "{:?}", room.items[late]);
}
