//! Groups with more senders than a member remembers.

use std::collections::BTreeSet;

use super::room::{Item, Room};

const SECOND_US: u64 = 1_000_000;
/// Number of senders that send once: more than a member remembers.
const PASSING: usize = 4_200;

#[test]
fn a_sender_among_many_is_delivered_once() {
    let mut room = Room::new(3, |config| config);
    let mut sent = 0;
    // The two that go on have the lowest identifiers.
    for passing in 10..10 + PASSING {
        room.say_all(passing, 0);
        if passing % 50 == 0 {
            [3, 4].into_iter().for_each(|steady| room.say_all(steady, sent));
            sent += 1;
            room.run_for(5_000);
        }
    }
    room.run_for(SECOND_US);
    let whole = room.delivered(0);
    let messages: BTreeSet<(u32, u32)> = whole
        .iter()
        .map(|item| match *item {
            Item::Message(_, sender, seq) => (sender, seq),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(messages.len(), whole.len(), "a message came twice");
    assert_eq!(whole.len(), PASSING + 2 * sent as usize);
    (1..3).for_each(|at| assert_eq!(room.delivered(at), whole));
}
