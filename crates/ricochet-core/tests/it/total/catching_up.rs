//! Members that miss many messages, which nothing but the order brings back.

use super::room::{Item, Room};

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
