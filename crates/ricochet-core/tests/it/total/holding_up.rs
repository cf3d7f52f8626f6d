//! Members that acknowledge nothing, though the others see them alive, while messages come slowly; and
//! members that hold back the packets that come, because an application reads nothing.

use ricochet_core::order::{OrderNews, TotalConfig};

use super::room::{Item, Room};

/// Numbers that may be unacknowledged. The members keep many more messages than that.
const WINDOW: u32 = 64;
/// Interval between messages.
const INTERVAL_US: u64 = 10_000;

/// Makes members of which the last one acknowledges nothing, and sends until no further number may be given.
fn with_full_window(count: usize) -> Room {
    let mut room = Room::new(count, |config| TotalConfig { window: WINDOW.into(), ..config });
    assert_eq!(room.sequencer(), 0);
    room.down.insert(count - 1);
    send(&mut room, 0..WINDOW);
    for at in 0..count - 1 {
        assert_eq!(room.delivered(at).len(), WINDOW as usize, "member {at}");
    }
    room
}

fn send(room: &mut Room, seqs: std::ops::Range<u32>) {
    for seq in seqs {
        room.say_all(1, seq);
        room.run_for(INTERVAL_US);
    }
}

/// Returns the number of attempts of all members to become the sequencer.
fn campaigns(room: &Room) -> u64 {
    room.totals.iter().map(|total| total.counts().campaigns).sum()
}

#[test]
fn a_member_that_acknowledges_nothing_is_put_out_in_time_however_slowly_messages_come() {
    let mut room = with_full_window(3);
    let before = campaigns(&room);
    let all = WINDOW + 250;
    send(&mut room, WINDOW..all);
    for at in 0..2 {
        assert_eq!(room.totals[at].status().members, 2, "member {at}");
        assert_eq!(room.delivered(at).len(), all as usize, "member {at} goes on within 2.5 s");
        let is_stalled = room.items[at].contains(&Item::News(OrderNews::Stalled));
        assert!(!is_stalled, "member {at}: a majority was heard all the time");
    }
    let campaigns = campaigns(&room) - before;
    assert!(campaigns <= 2, "the sequencer puts it out, rather than another one: {campaigns} attempts");
}

#[test]
fn a_sequencer_that_dies_while_a_member_holds_up_the_others_is_replaced_as_soon_as_any() {
    let mut room = with_full_window(5);
    room.down.insert(0);
    let (before, all) = (campaigns(&room), WINDOW + 300);
    send(&mut room, WINDOW..WINDOW + 50);
    assert_eq!(room.sequencer(), 1, "no view has changed");
    send(&mut room, WINDOW + 50..all);
    for at in 1..4 {
        assert_eq!(room.totals[at].status().members, 3, "member {at}");
        assert_eq!(room.delivered(at).len(), all as usize, "member {at} goes on");
    }
    let campaigns = campaigns(&room) - before;
    assert!(campaigns <= 3, "{campaigns} attempts");
}

#[test]
fn a_member_that_holds_back_packets_lets_the_others_go_on_and_follows_later() {
    let mut room = Room::new(3, |config| config);
    assert_eq!(room.sequencer(), 0);
    let before = campaigns(&room);
    room.hold_back(2);
    // It has the messages, and not their numbers.
    send(&mut room, 0..300);
    for at in 0..2 {
        assert_eq!(room.delivered(at).len(), 300, "member {at}");
    }
    assert_eq!((room.delivered(2).len(), room.sequencer(), campaigns(&room) - before), (0, 0, 0));
    room.go_on(2);
    assert_eq!(room.delivered(2), room.delivered(0));
    room.run_for(1_000_000);
    assert_eq!(campaigns(&room), before);
    assert!(!room.items[2].contains(&Item::News(OrderNews::Stalled)));
}

#[test]
fn a_sequencer_that_holds_back_packets_puts_nobody_out() {
    let mut room = Room::new(3, |config| TotalConfig { window: WINDOW.into(), ..config });
    assert_eq!(room.sequencer(), 0);
    let before = campaigns(&room);
    // Only the sequencer has the messages, so that the others wait for nothing but those.
    (0..WINDOW + 20).for_each(|seq| room.say(0, seq, [0]));
    room.hold_back(0);
    room.run_for(10_000_000);
    assert_eq!((room.delivered(0).len(), room.delivered(1).len()), (WINDOW as usize, 0));
    room.go_on(0);
    room.run_for(3_000_000);
    for at in 0..3 {
        assert_eq!(room.delivered(at).len(), WINDOW as usize + 20, "member {at}");
        assert_eq!(room.totals[at].status().members, 3, "member {at}");
    }
    assert_eq!(campaigns(&room), before);
}

#[test]
fn a_sequencer_numbers_nothing_before_it_has_processed_what_it_holds_back() {
    let mut room = Room::new(3, |config| config);
    assert_eq!(room.sequencer(), 0);
    room.hold_back(0);
    room.say(1, 0, [1, 2]);
    room.run_for(2_000_000);
    assert_eq!(room.delivered(1).len(), 1, "the others have elected another one");
    // It takes the message before the packets of the election, which came later.
    room.say(1, 0, [0]);
    assert!(room.delivered(0).is_empty());
    room.go_on(0);
    room.run_for(1_000_000);
    assert_eq!(room.delivered(0), room.delivered(1));
    assert!(room.broken(0).is_empty());
}

#[test]
fn a_member_that_knows_the_sequencer_dead_waits_for_the_packets_that_it_holds_back() {
    let mut room = Room::new(3, |config| config);
    room.hold_back(1);
    room.down.insert(0);
    room.update_views();
    room.run_for(100_000);
    assert_eq!(room.totals[1].counts().campaigns, 0);
    // The other one asks for the promise that is needed.
    room.run_for(1_000_000);
    assert_eq!(room.totals[2].counts().campaigns, 1);
    room.go_on(1);
    room.say_all(1, 0);
    room.run_for(1_000_000);
    assert_eq!(room.delivered(2).len(), 1);
    assert_eq!(room.delivered(1), room.delivered(2));
    assert_eq!([1, 2].map(|at| room.totals[at].counts().campaigns), [0, 1]);
}

#[test]
fn a_node_that_holds_back_packets_begins_no_order_of_its_own() {
    let mut room = Room::new(0, |config| config);
    (0..2).for_each(|_| room.add(|config| config));
    room.hold_back(1);
    room.update_views();
    room.run_for(3_000_000);
    assert_eq!(room.totals[1].counts().campaigns, 0);
    room.go_on(1);
    room.run_for(1_000_000);
    assert!((0..2).all(|at| room.totals[at].status().members == 2));
}
