//! Members that return after more epochs than logs keep beginnings of.

use ricochet_core::NodeId;
use ricochet_core::order::{OrderNews, TotalConfig};

use super::room::{Item, Room};

const SECOND_US: u64 = 1_000_000;
/// Epochs that pass while a member is away. Logs keep the beginnings of 64.
const EPOCHS: u64 = 70;

/// Lets epochs begin at members of which one is the sequencer.
fn pass_epochs(room: &mut Room, members: &[usize]) {
    let sequencer = members.iter().copied().find(|&at| room.totals[at].is_sequencer());
    let sequencer = sequencer.expect("one of them is the sequencer");
    let others: Vec<NodeId> =
        members.iter().filter(|&&at| at != sequencer).map(|&at| NodeId(at as u32)).collect();
    let epochs = |room: &Room| room.totals[sequencer].counts().epochs;
    let until = epochs(room) + EPOCHS;
    while epochs(room) < until {
        // One of them is missed for a moment, and answers all the same.
        for view in [&others[1..], &others[..]] {
            let now_us = room.now_us;
            room.totals[sequencer].change_view(now_us, view.iter().copied());
            room.flush(sequencer);
            room.run_for(200_000);
        }
    }
}

/// Lets all members see each other, and sends a last message.
fn come_together(room: &mut Room, seq: u32) {
    room.side = vec![0; 5];
    room.update_views();
    room.run_for(5 * SECOND_US);
    room.say_all(9, seq);
    room.run_for(SECOND_US);
}

fn messages(seqs: std::ops::Range<u32>) -> Vec<Item> {
    seqs.map(|seq| Item::Message(seq.into(), 9, seq)).collect()
}

#[test]
fn a_member_that_returns_after_many_epochs_continues_where_it_was() {
    for safe in [false, true] {
        let mut room = Room::new(5, |config| TotalConfig { safe, ..config });
        (0..10).for_each(|seq| room.say(9, seq, 0..5));
        room.run_for(SECOND_US);
        room.side[4] = 1;
        room.update_views();
        room.run_for(SECOND_US);
        pass_epochs(&mut room, &[0, 1, 2, 3]);
        (10..15).for_each(|seq| room.say(9, seq, 0..4));
        room.run_for(SECOND_US);
        come_together(&mut room, 15);
        for at in 0..5 {
            let seen = (room.broken(at), room.delivered(at));
            assert_eq!(seen, (vec![], messages(0..16)), "member {at}, safe: {safe}");
        }
    }
}

/// Lets a sequencer and a friend deliver two messages alone, and the other three go on without them. If
/// `is_early`, these deliver messages before the epochs whose beginnings they keep.
fn two_parts(is_early: bool) -> Room {
    let mut room = Room::new(5, |config| config);
    assert_eq!(room.sequencer(), 0);
    (0..10).for_each(|seq| room.say(9, seq, 0..5));
    room.run_for(SECOND_US);
    room.side = vec![1, 1, 0, 0, 0];
    (0..2).for_each(|seq| room.say(0, seq, [0, 1]));
    room.run_for(SECOND_US);
    assert_eq!(room.delivered(1)[10..], [Item::Message(10, 0, 0), Item::Message(11, 0, 1)]);
    room.update_views();
    room.run_for(SECOND_US);
    let say = |room: &mut Room| {
        (10..15).for_each(|seq| room.say(9, seq, 2..5));
        room.run_for(SECOND_US);
    };
    if is_early {
        say(&mut room);
    }
    pass_epochs(&mut room, &[2, 3, 4]);
    if !is_early {
        say(&mut room);
    }
    (0..2).for_each(|seq| room.say(0, seq, 2..5));
    come_together(&mut room, 15);
    room
}

#[test]
fn a_member_that_returns_after_many_epochs_is_told_from_where_on_it_may_differ() {
    for (is_early, continues) in [(false, 10), (true, 12)] {
        let room = two_parts(is_early);
        for at in [0, 1] {
            assert_eq!(room.broken(at), [OrderNews::Broken { from: 10, delivered: 12, continues }]);
            let agreed = room.delivered(at).split_off(12);
            let first = agreed.first().copied();
            assert_eq!(first, Some(Item::Message(continues, 9, continues as u32)), "early: {is_early}");
        }
        (2..5).for_each(|at| assert_eq!(room.broken(at), []));
    }
}
