//! Numbers whose message no member holds, when members disagree about them.

use ricochet_core::order::OrderNews;

use super::room::{Item, Room};

const SECOND_US: u64 = 1_000_000;

#[test]
fn a_member_that_has_declared_a_message_lost_alone_is_told_that_the_others_deliver_it() {
    let mut room = Room::new(4, |config| config);
    let first = room.sequencer();
    let rest: Vec<usize> = (0..4).filter(|&at| at != first).collect();
    // Only the sequencer has the second message, and its number comes to all.
    room.say_all(9, 0);
    room.say(9, 1, [first]);
    room.say_all(rest[0], 0);
    room.run_for(5_000);
    room.down.insert(first);
    room.update_views();
    let amended = |room: &Room| rest.iter().copied().find(|&at| room.totals[at].counts().amended > 0);
    let until_us = room.now_us + SECOND_US;
    while amended(&room).is_none() && room.now_us < until_us {
        room.run_for(100);
    }
    // The next sequencer is cut off before the others hear that the message is lost.
    let sequencer = amended(&room).expect("all others have denied it");
    room.side[sequencer] = 1;
    let others: Vec<usize> = rest.iter().copied().filter(|&at| at != sequencer).collect();
    room.update_views();
    room.say(9, 1, others.iter().copied());
    room.run_for(2 * SECOND_US);
    let agreed = [Item::Message(0, 9, 0), Item::Message(1, 9, 1), Item::Message(2, rest[0] as u32, 0)];
    others.iter().for_each(|&at| assert_eq!(room.delivered(at), agreed));
    let alone = [agreed[0], Item::Lost(1, 9, 1, 1), agreed[2]];
    assert_eq!(room.delivered(sequencer), alone);
    room.side[sequencer] = 0;
    room.update_views();
    room.say_all(9, 2);
    room.run_for(2 * SECOND_US);
    let broken = OrderNews::Broken { from: 1, delivered: 3, continues: 1 };
    assert_eq!(room.broken(sequencer), [broken]);
    assert_eq!(room.delivered(sequencer)[3..], room.delivered(others[0])[1..]);
    others.iter().for_each(|&at| assert_eq!(room.broken(at), []));
}
