//! Members that acknowledge nothing, though the others see them alive, while messages come slowly.

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
