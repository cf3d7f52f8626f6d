//! The promises of members of a total order, one case at a time.

use ricochet_core::order::OrderNews;

use super::room::{HOP_US, Item, Room};

const SECOND_US: u64 = 1_000_000;

/// Returns the members but some.
fn others(room: &Room, but: &[usize]) -> Vec<usize> {
    (0..room.totals.len()).filter(|at| !but.contains(at)).collect()
}

#[test]
fn members_deliver_what_came_in_different_orders_in_the_same_order() {
    let mut room = Room::new(4, |config| config);
    for seq in 0..50 {
        room.say(0, seq, [0, 1, 3, 2]);
        room.say(1, seq, [3, 2, 1, 0]);
        room.run_for(300);
    }
    room.run_for(SECOND_US);
    let first = room.delivered(0);
    assert_eq!(first.len(), 100);
    (1..4).for_each(|at| assert_eq!(room.delivered(at), first));
    let of_one = first.iter().filter_map(|item| match item {
        Item::Message(_, 1, seq) => Some(*seq),
        _ => None,
    });
    assert!(of_one.eq(0..50), "each sender's messages are in its order");
}

#[test]
fn order_costs_one_hop_and_safe_delivery_one_more() {
    for (safe, hops) in [(false, 1), (true, 2)] {
        let mut room = Room::new(5, |config| ricochet_core::order::TotalConfig { safe, ..config });
        let sequencer = room.sequencer();
        let from_us = room.now_us;
        room.say_all(sequencer, 0);
        room.run_for(SECOND_US);
        for at in others(&room, &[sequencer]) {
            assert_eq!(room.times_us[at].last().map(|at_us| at_us - from_us), Some(hops * HOP_US));
        }
    }
}

#[test]
fn messages_that_come_together_share_a_packet_of_numbers() {
    let mut room = Room::new(3, |config| config);
    let (sequencer, before) = (room.sequencer(), room.sent.len());
    for at in others(&room, &[sequencer]) {
        (0..200).for_each(|seq| room.say(sequencer, seq, [at]));
    }
    let after = room.sent.len();
    assert_eq!(before, after, "only the sequencer numbers");
    room.say(sequencer, 0, [sequencer]);
    assert_eq!(room.sent.len(), after + 1);
    assert!(room.sent[after].1.len() < 70, "{}", room.sent[after].1.len());
}

#[test]
fn when_the_sequencer_dies_the_others_go_on_with_the_next_number() {
    let mut room = Room::new(5, |config| config);
    let sequencer = room.sequencer();
    (0..10).for_each(|seq| room.say_all(1, seq));
    room.run_for(20_000);
    room.down.insert(sequencer);
    (10..20).for_each(|seq| room.say_all(1, seq));
    room.update_views();
    room.run_for(SECOND_US);
    let expected: Vec<Item> = (0..20).map(|at| Item::Message(at, 1, at as u32)).collect();
    for at in others(&room, &[sequencer]) {
        assert_eq!(room.delivered(at), expected);
        assert_eq!(room.broken(at), []);
    }
}

#[test]
fn a_sequencer_that_dies_unnoticed_is_replaced_once_messages_wait() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    room.down.insert(sequencer);
    room.say_all(1, 0);
    room.run_for(2 * SECOND_US);
    for at in others(&room, &[sequencer]) {
        assert_eq!(room.delivered(at), [Item::Message(0, 1, 0)], "no view has changed");
    }
}

#[test]
fn a_minority_learns_that_its_numbers_are_void_before_it_delivers_anything_else() {
    let mut room = Room::new(5, |config| config);
    let sequencer = room.sequencer();
    let friend = others(&room, &[sequencer])[0];
    (0..5).for_each(|seq| room.say_all(3, seq));
    room.run_for(100_000);
    room.side[sequencer] = 1;
    room.side[friend] = 1;
    (0..3).for_each(|seq| room.say_all(sequencer, seq));
    room.run_for(SECOND_US);
    (5..8).for_each(|seq| room.say_all(3, seq));
    // The minority has heard nobody for a second, and stops.
    (3..6).for_each(|seq| room.say_all(sequencer, seq));
    room.update_views();
    room.run_for(2 * SECOND_US);
    assert_eq!(room.delivered(friend).len(), 8, "five together, three of the minority");
    room.side = vec![0; 5];
    room.update_views();
    // The messages of the minority come to the others late, and those of the others to the minority.
    (0..6).for_each(|seq| room.say_all(sequencer, seq));
    (5..8).for_each(|seq| room.say_all(3, seq));
    room.run_for(3 * SECOND_US);
    for at in [sequencer, friend] {
        let items = &room.items[at];
        let broken = Item::News(OrderNews::Broken { from: 5, delivered: 8, continues: 5 });
        let place = items.iter().position(|item| *item == broken);
        let place = place.unwrap_or_else(|| panic!("{at}: {items:?}"));
        assert_eq!(items[place + 1], Item::Message(5, 3, 5), "the agreed number 5 follows");
        assert_eq!(room.broken(at).len(), 1);
    }
    let majority = others(&room, &[sequencer, friend]);
    let whole = room.delivered(majority[0]);
    assert_eq!(whole.len(), 14);
    for &at in &majority {
        assert_eq!((room.delivered(at), room.broken(at)), (whole.clone(), vec![]));
    }
    let tail = |at: usize| room.delivered(at).split_off(8);
    assert_eq!((tail(sequencer), tail(friend)), (whole[5..].to_vec(), whole[5..].to_vec()));
}

#[test]
fn a_minority_that_delivers_safely_delivers_nothing_alone() {
    let mut room = Room::new(5, |config| ricochet_core::order::TotalConfig { safe: true, ..config });
    let sequencer = room.sequencer();
    let friend = others(&room, &[sequencer])[0];
    room.side[sequencer] = 1;
    room.side[friend] = 1;
    room.say_all(sequencer, 0);
    room.run_for(2 * SECOND_US);
    assert!(room.delivered(sequencer).is_empty() && room.delivered(friend).is_empty());
    room.say_all(3, 0);
    room.update_views();
    room.run_for(2 * SECOND_US);
    room.side = vec![0; 5];
    room.update_views();
    room.say_all(sequencer, 0);
    room.say_all(3, 0);
    room.run_for(3 * SECOND_US);
    let whole = room.delivered(3);
    assert_eq!(whole.len(), 2);
    (0..5).for_each(|at| assert_eq!((room.delivered(at), room.broken(at)), (whole.clone(), vec![])));
}

#[test]
fn a_sequencer_that_delivers_safely_is_told_that_no_majority_hears_it() {
    let mut room = Room::new(3, |config| ricochet_core::order::TotalConfig { safe: true, ..config });
    assert_eq!(room.sequencer(), 0);
    // No view changes. The message has its number, and nobody acknowledges it.
    room.down.extend([1, 2]);
    room.say(0, 0, [0]);
    room.run_for(SECOND_US);
    assert!(!room.items[0].contains(&Item::News(OrderNews::Stalled)), "it may take a while");
    room.run_for(9 * SECOND_US);
    assert_eq!(room.items[0].last(), Some(&Item::News(OrderNews::Stalled)));
    assert!(room.totals[0].status().stalled && room.delivered(0).is_empty());
    room.down.clear();
    room.say(0, 0, [1, 2]);
    room.run_for(2 * SECOND_US);
    assert_eq!(room.delivered(0), [Item::Message(0, 0, 0)]);
    assert_eq!(room.items[0].last(), Some(&Item::News(OrderNews::Resumed)));
}

#[test]
fn nodes_that_wait_for_others_to_begin_an_order_are_told_once_messages_wait() {
    let mut room = Room::new(2, |config| ricochet_core::order::TotalConfig { founders: 3, ..config });
    room.run_for(60 * SECOND_US);
    assert_eq!(room.items[0], [], "nothing waits");
    room.say_all(0, 0);
    room.run_for(10 * SECOND_US);
    for at in 0..2 {
        assert_eq!(room.items[at], [Item::News(OrderNews::Stalled)], "member {at}");
    }
    room.add(|config| ricochet_core::order::TotalConfig { founders: 3, ..config });
    room.update_views();
    room.run_for(3 * SECOND_US);
    for at in 0..2 {
        assert_eq!(room.delivered(at), [Item::Message(0, 0, 0)], "member {at}");
        assert!(room.items[at].contains(&Item::News(OrderNews::Resumed)), "member {at}");
    }
}

#[test]
fn a_sequencer_that_stood_still_finds_its_epoch_over() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    room.down.insert(sequencer);
    room.say_all(1, 0);
    room.run_for(2 * SECOND_US);
    room.down.remove(&sequencer);
    let messages = [(1, 0), (2, 0), (sequencer, 0)];
    messages.into_iter().for_each(|(sender, seq)| room.say_all(sender, seq));
    room.run_for(2 * SECOND_US);
    let whole = room.delivered(1);
    assert_eq!(whole.len(), 3);
    assert_eq!(whole[0], Item::Message(0, 1, 0));
    for at in others(&room, &[sequencer]) {
        assert_eq!((room.delivered(at), room.broken(at)), (whole.clone(), vec![]));
    }
    // It may have numbered a message of its own epoch before it heard of the other one.
    let own = room.delivered(sequencer);
    let agreed = match room.broken(sequencer)[..] {
        [] => own,
        [OrderNews::Broken { from: 0, delivered, .. }] => own[delivered as usize..].to_vec(),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(agreed, whole);
}

#[test]
fn of_two_members_the_sequencer_goes_on_alone_and_the_other_is_told_that_it_cannot() {
    let mut room = Room::new(2, |config| config);
    let sequencer = room.sequencer();
    let other = 1 - sequencer;
    room.side[other] = 1;
    room.update_views();
    room.run_for(SECOND_US);
    room.say_all(sequencer, 0);
    room.say_all(other, 0);
    room.run_for(5 * SECOND_US);
    assert_eq!(room.delivered(sequencer), [Item::Message(0, sequencer as u32, 0)]);
    assert_eq!(room.delivered(other), []);
    assert_eq!(room.items[other].last(), Some(&Item::News(OrderNews::Stalled)));
}

#[test]
fn of_two_members_either_goes_on_when_the_other_leaves() {
    for leaver in [0, 1] {
        let mut room = Room::new(2, |config| config);
        room.totals[leaver].leave();
        room.flush(leaver);
        room.run_for(100_000);
        room.down.insert(leaver);
        let other = 1 - leaver;
        room.say_all(other, 0);
        room.run_for(2 * SECOND_US);
        assert_eq!(room.delivered(other), [Item::Message(0, other as u32, 0)], "{leaver} left");
    }
}

#[test]
fn a_member_that_is_alone_keeps_its_own_order() {
    let mut room = Room::new(1, |config| config);
    (0..5).for_each(|seq| room.say_all(0, seq));
    assert_eq!(room.delivered(0).len(), 5);
}

#[test]
fn a_joiner_begins_with_its_epoch_and_the_others_notice_nothing() {
    let mut room = Room::new(3, |config| config);
    (0..5).for_each(|seq| room.say_all(1, seq));
    room.run_for(100_000);
    room.add(|config| config);
    room.update_views();
    room.run_for(SECOND_US);
    (5..10).for_each(|seq| room.say_all(1, seq));
    room.run_for(SECOND_US);
    assert_eq!(room.items[3][0], Item::News(OrderNews::Begins { number: 5 }));
    assert_eq!(room.delivered(3), room.delivered(0)[5..]);
    (0..3).for_each(|at| assert_eq!((room.delivered(at).len(), room.broken(at)), (10, vec![])));
}

#[test]
fn a_message_that_no_member_holds_is_lost_for_all_at_the_same_place() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    let rest = others(&room, &[sequencer]);
    // Only the sequencer has the second message, and its number comes to all.
    room.say_all(9, 0);
    room.say(9, 1, [sequencer]);
    room.say_all(rest[0], 0);
    room.run_for(5_000);
    room.down.insert(sequencer);
    room.update_views();
    room.run_for(3 * SECOND_US);
    let expected = [Item::Message(0, 9, 0), Item::Lost(1, 9, 1, 1), Item::Message(2, rest[0] as u32, 0)];
    for &at in &rest {
        assert_eq!(room.delivered(at), expected);
    }
    // When it comes late, it is too late for all.
    room.say(9, 1, rest.iter().copied());
    room.run_for(SECOND_US);
    rest.iter().for_each(|&at| assert_eq!(room.delivered(at), expected));
}

#[test]
fn a_member_that_lacks_a_message_gets_it_from_another_one() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    let rest = others(&room, &[sequencer]);
    room.say(9, 0, [sequencer]);
    room.run_for(SECOND_US);
    for at in 0..4 {
        assert_eq!(room.delivered(at), [Item::Message(0, 9, 0)]);
    }
    // A new sequencer that lacks a message asks the members that have it.
    room.say(9, 1, [sequencer, rest[2]]);
    room.run_for(3_000);
    room.down.insert(sequencer);
    room.update_views();
    room.run_for(2 * SECOND_US);
    for &at in &rest {
        assert_eq!(room.delivered(at), [Item::Message(0, 9, 0), Item::Message(1, 9, 1)]);
    }
}

#[test]
fn numbers_of_others_than_the_sequencer_are_refused() {
    let mut room = Room::new(4, |config| config);
    let sequencer = room.sequencer();
    let [liar, victim] = others(&room, &[sequencer])[..2] else { panic!("there are three") };
    room.say(9, 0, [victim]);
    room.say(9, 0, [sequencer]);
    let (_, numbers) = room.sent.last().cloned().expect("it numbers the message");
    // The packet has not come yet. A liar sends it as its own.
    room.forge(liar, victim, &numbers);
    assert_eq!(room.delivered(victim), []);
    assert_eq!(room.totals[victim].counts().unauthorized, 1);
    room.run_for(SECOND_US);
    assert_eq!(room.delivered(victim), [Item::Message(0, 9, 0)]);
}

#[test]
fn an_epoch_of_a_stranger_and_one_that_leaps_are_refused() {
    let mut room = Room::new(3, |config| config);
    // A request for promises: kind, flags, order, and epoch.
    let sequencer = room.sequencer();
    let order = room.sent.iter().find(|(at, _)| *at == sequencer).map(|(_, packet)| packet[2..10].to_vec());
    let prepare = |order: &[u8], count: u32, from: u32| {
        [&[2, 0][..], order, &count.to_be_bytes(), &from.to_be_bytes()].concat()
    };
    let orders = room.sent.iter().rev().map(|(_, packet)| packet[2..10].to_vec());
    let order = orders.chain(order).find(|order| *order != [0; 8]).expect("there is an order");
    let before = room.totals[1].status().epoch;
    room.forge(77, 1, &prepare(&order, 50, 77));
    room.forge(2, 1, &prepare(&order, u32::MAX, 2));
    room.forge(2, 1, &prepare(&order, 60, 0));
    assert_eq!(room.totals[1].counts().unauthorized, 2);
    room.say_all(0, 0);
    room.run_for(SECOND_US);
    assert_eq!(room.totals[1].status().epoch, before, "nothing has changed");
    assert_eq!(room.delivered(1).len(), 1);
}

#[test]
fn members_that_wait_for_numbers_hold_a_bounded_number_of_messages() {
    let mut room = Room::new(3, |config| ricochet_core::order::TotalConfig { messages_max: 100, ..config });
    room.side = vec![0, 1, 2];
    room.update_views();
    room.run_for(SECOND_US);
    for seq in 0..5_000 {
        room.say(9, seq, [0, 1, 2]);
    }
    // This sender begins when there is no room.
    for seq in 0..10 {
        room.say(8, seq, [0, 1, 2]);
    }
    (0..3).for_each(|at| assert!(room.totals[at].status().held <= 100));
    room.side = vec![0; 3];
    room.update_views();
    room.run_for(3 * SECOND_US);
    room.say_all(9, 5_000);
    room.say_all(8, 10);
    room.run_for(3 * SECOND_US);
    let whole = room.delivered(0);
    for (sender, expected) in [(9, 5_001), (8, 11)] {
        let of_sender = |item: &Item| match *item {
            Item::Message(_, from, _) => u64::from(from == sender),
            Item::Lost(_, from, _, count) => {
                if from == sender {
                    count
                } else {
                    0
                }
            }
            Item::News(_) => 0,
        };
        let all: u64 = whole.iter().map(of_sender).sum();
        assert_eq!(all, expected, "each message of {sender} is delivered or reported");
    }
    (1..3).for_each(|at| assert_eq!(room.delivered(at), whole));
}

#[test]
fn two_orders_that_were_begun_apart_become_one() {
    let mut room = Room::new(0, |config| config);
    (0..4).for_each(|_| room.add(|config| config));
    room.side = vec![0, 0, 1, 1];
    room.update_views();
    room.run_for(SECOND_US);
    (0..3).for_each(|seq| room.say_all(0, seq));
    (0..2).for_each(|seq| room.say_all(2, seq));
    room.run_for(SECOND_US);
    room.side = vec![0; 4];
    room.update_views();
    room.say_all(0, 3);
    room.say_all(2, 2);
    room.run_for(10 * SECOND_US);
    room.say_all(1, 0);
    room.run_for(2 * SECOND_US);
    let ends: Vec<_> = (0..4).map(|at| room.delivered(at).last().copied()).collect();
    assert!(ends.iter().all(|end| *end == ends[0] && end.is_some()), "{ends:?}");
    assert_eq!((0..4).filter(|&at| !room.broken(at).is_empty()).count(), 2, "those of one order");
}

#[test]
fn an_idle_order_sends_nothing() {
    let mut room = Room::new(4, |config| config);
    (0..4).for_each(|seq| room.say_all(seq as usize, 0));
    room.run_for(2 * SECOND_US);
    let before = room.sent.len();
    room.run_for(60 * SECOND_US);
    assert_eq!(room.sent.len(), before);
    assert!((0..4).all(|at| room.totals[at].poll_timeout().is_none()));
}
