//! Members that leave, die, or join again while epochs begin.

use ricochet_core::NodeId;
use ricochet_core::order::TotalConfig;

use super::room::{HOP_US, Item, Room};

const SECOND_US: u64 = 1_000_000;
/// Kind of the packet with a promise.
const PROMISE: u8 = 3;
/// Kind of the packet with a proposal.
const BEGIN: u8 = 4;

/// Five members that deliver safely. The first is the sequencer.
fn safe_room() -> Room {
    let room = Room::new(5, |config| TotalConfig { safe: true, ..config });
    assert_eq!(room.sequencer(), 0);
    room
}

/// Tells a member who lives.
fn change_view(room: &mut Room, at: usize, members: &[u32]) {
    let now_us = room.now_us;
    room.totals[at].change_view(now_us, members.iter().copied().map(NodeId));
    room.flush(at);
}

/// Lets the time pass until a member sends a packet of a kind.
fn run_until_sent(room: &mut Room, at: usize, kind: u8) {
    let (before, until_us) = (room.sent.len(), room.now_us + SECOND_US);
    while !room.sent[before..].iter().any(|(from, packet)| (*from, packet[0]) == (at, kind)) {
        assert!(room.now_us < until_us, "member {at} sends no packet of kind {kind}");
        room.run_for(100);
    }
}

/// Lets a member leave, and stops it.
fn leave(room: &mut Room, at: usize) {
    room.totals[at].leave();
    room.flush(at);
    room.down.insert(at);
}

/// Makes an attempt of the sequencer whose proposal only the members 0 and 1 hear, and cuts these off from
/// the others, of which member 2 begins an attempt of its own.
fn two_attempts() -> Room {
    let mut room = safe_room();
    change_view(&mut room, 0, &[1, 2, 3]);
    run_until_sent(&mut room, 0, BEGIN);
    room.side = vec![0, 0, 1, 1, 1];
    room.say_all(0, 0);
    room.say_all(2, 0);
    change_view(&mut room, 2, &[3, 4]);
    room
}

/// Lets the members that are left come together, and asserts that they have delivered two messages in the
/// same order, and never otherwise.
fn assert_one_order(mut room: Room) {
    room.side = vec![0; 5];
    room.update_views();
    room.run_for(3 * SECOND_US);
    room.say_all(0, 0);
    room.say_all(1, 0);
    room.say_all(2, 0);
    room.run_for(3 * SECOND_US);
    let whole = room.delivered(2);
    assert_eq!(whole.len(), 3);
    (0..4).for_each(|at| assert_eq!((room.delivered(at), room.broken(at)), (whole.clone(), vec![]), "{at}"));
}

#[test]
fn a_leaver_that_took_part_in_a_later_epoch_counts_for_the_earlier_one() {
    let mut room = safe_room();
    // Three members go on; the sequencer and member 2 notice nothing.
    room.side = vec![0, 1, 0, 1, 1];
    room.say_all(0, 0);
    room.run_for(10 * HOP_US);
    room.say_all(1, 0);
    room.run_for(2 * SECOND_US);
    assert_eq!((room.delivered(0), room.delivered(1)), (vec![], vec![Item::Message(0, 1, 0)]));
    // The first that these hear of the others is that one of them leaves.
    room.side = vec![0; 5];
    leave(&mut room, 4);
    room.run_for(10 * HOP_US);
    assert_ne!(room.delivered(0).first(), Some(&Item::Message(0, 0, 0)));
    assert_one_order(room);
}

#[test]
fn a_leaver_that_agreed_to_a_later_proposal_counts_for_the_earlier_one() {
    let mut room = two_attempts();
    room.run_for(20 * HOP_US);
    assert_eq!(room.delivered(2), [Item::Message(0, 2, 0)]);
    room.side = vec![0; 5];
    leave(&mut room, 4);
    room.run_for(10 * HOP_US);
    assert_one_order(room);
}

#[test]
fn a_member_that_has_promised_and_not_agreed_leaves_without_telling() {
    let mut room = two_attempts();
    run_until_sent(&mut room, 4, PROMISE);
    room.run_for(HOP_US);
    // The proposal does not reach it.
    room.side[4] = 0;
    leave(&mut room, 4);
    room.run_for(10 * HOP_US);
    assert_one_order(room);
}

#[test]
fn a_candidate_that_leaves_before_its_proposal_tells_the_others() {
    let mut room = Room::new(2, |config| config);
    let sequencer = room.sequencer();
    let other = 1 - sequencer;
    // The sequencer waits for a promise of a member that does not hear it.
    room.side[other] = 1;
    room.add(|config| config);
    let joiner = [NodeId(other as u32), NodeId(2)];
    let now_us = room.now_us;
    room.totals[sequencer].change_view(now_us, joiner);
    room.totals[2].change_view(now_us, [NodeId(sequencer as u32)]);
    room.flush(2);
    run_until_sent(&mut room, sequencer, 2);
    room.side[other] = 0;
    leave(&mut room, sequencer);
    room.run_for(100_000);
    room.say_all(other, 0);
    room.run_for(2 * SECOND_US);
    assert_eq!(room.delivered(other), [Item::Message(0, other as u32, 0)]);
}

#[test]
fn a_member_that_dies_after_its_promise_is_put_out() {
    let mut room = Room::new(4, |config| config);
    assert_eq!(room.sequencer(), 0);
    // The promise of member 3, which stands still, is awaited.
    room.down.insert(3);
    change_view(&mut room, 0, &[2, 3]);
    room.run_for(20 * HOP_US);
    room.down.insert(2);
    change_view(&mut room, 0, &[1, 3]);
    room.run_for(100 * HOP_US);
    room.down.remove(&3);
    room.run_for(SECOND_US);
    room.say_all(1, 0);
    room.run_for(SECOND_US);
    for at in [0, 1, 3] {
        assert_eq!((room.totals[at].status().members, room.delivered(at).len()), (3, 1), "member {at}");
    }
    assert!(room.totals[0].counts().campaigns <= 3, "{:?}", room.totals[0].counts());
}

#[test]
fn a_joiner_that_dies_before_its_epoch_begins_is_put_out() {
    let mut room = Room::new(3, |config| config);
    assert_eq!(room.sequencer(), 0);
    room.add(|config| config);
    room.update_views();
    run_until_sent(&mut room, 0, BEGIN);
    room.down.insert(3);
    change_view(&mut room, 0, &[1, 2]);
    room.run_for(SECOND_US);
    room.say_all(1, 0);
    room.run_for(SECOND_US);
    for at in 0..3 {
        assert_eq!((room.totals[at].status().members, room.delivered(at).len()), (3, 1), "member {at}");
    }
}

/// Lets a member leave and join again.
fn leave_and_join(room: &mut Room, at: usize) {
    room.totals[at].leave();
    room.flush(at);
    room.join_again(at, |config| TotalConfig { safe: true, ..config });
}

#[test]
fn a_member_that_leaves_and_joins_again_keeps_its_promise() {
    let mut room = Room::new(3, |config| TotalConfig { safe: true, ..config });
    assert_eq!(room.sequencer(), 0);
    (0..10).for_each(|seq| room.say_all(9, seq));
    room.run_for(SECOND_US);
    // Member 1 has the promise of member 2, and is cut off before its proposal is heard.
    room.side = vec![1, 0, 0];
    change_view(&mut room, 1, &[2]);
    run_until_sent(&mut room, 1, BEGIN);
    room.side = vec![0, 1, 0];
    leave_and_join(&mut room, 2);
    room.update_views();
    room.run_for(SECOND_US);
    (10..20).for_each(|seq| room.say(9, seq, [0, 2]));
    room.run_for(SECOND_US);
    assert_eq!(room.delivered(0).len(), 10, "the proposal leaves out what follows");
    // The others hear it in the end.
    let is_proposal = |(from, packet): &&(usize, Vec<u8>)| (*from, packet[0]) == (1, BEGIN);
    let proposal = room.sent.iter().rfind(is_proposal).map(|(_, packet)| packet.clone());
    let proposal = proposal.expect("member 1 has sent it");
    room.side = vec![0; 3];
    [0, 2].into_iter().for_each(|at| room.forge(1, at, &proposal));
    room.update_views();
    room.run_for(5 * SECOND_US);
    (10..20).for_each(|seq| room.say_all(9, seq));
    room.run_for(SECOND_US);
    let whole: Vec<Item> = (0..20).map(|seq| Item::Message(seq.into(), 9, seq)).collect();
    (0..2).for_each(|at| assert_eq!(room.delivered(at), whole, "member {at}"));
    assert_eq!(room.delivered(2)[10..], whole[10..]);
    (0..3).for_each(|at| assert_eq!(room.broken(at), [], "member {at}"));
}

#[test]
fn a_member_that_has_promised_to_an_epoch_that_never_begins_can_join_again() {
    let mut room = safe_room();
    room.side = vec![0, 1, 1, 0, 0];
    change_view(&mut room, 1, &[2]);
    run_until_sent(&mut room, 2, PROMISE);
    room.down.insert(1);
    room.side = vec![0; 5];
    leave_and_join(&mut room, 2);
    // The others notice nothing of all this.
    change_view(&mut room, 2, &[0, 1, 3, 4]);
    room.run_for(SECOND_US);
    room.say_all(9, 0);
    room.run_for(SECOND_US);
    for at in [0, 2, 3, 4] {
        assert_eq!(room.delivered(at), [Item::Message(0, 9, 0)], "member {at}");
    }
}
