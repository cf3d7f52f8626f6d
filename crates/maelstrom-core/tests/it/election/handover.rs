//! Members that hand over to another process.

use super::*;

#[test]
fn a_member_hands_over_to_another_process_and_the_others_notice_nothing() {
    let mut lan = Lan::settled();
    for member in [0, 1, 2, 2, 1, 0] {
        let before = lan.events.len();
        lan.hand_over(member);
        lan.advance_with(SECOND_US, |lan| {
            for part in 0..3 {
                assert_eq!(lan.protectors(part), [part], "at {}", lan.now_us);
            }
        });
        let of_others = lan.events[before..].iter().filter(|(_, one, _)| *one != member);
        assert_eq!(of_others.count(), 0, "{:?}", &lan.events[before..]);
    }
    // A deputy keeps what it has taken, and the owner gets it back.
    let deputy = lan.rack(0).config().parts[0].order[1];
    lan.kill(0);
    lan.advance(SECOND_US);
    lan.hand_over(deputy);
    lan.advance_with(SECOND_US, |lan| assert_eq!(lan.protectors(0), [deputy]));
    lan.start(0);
    lan.advance_with(SECOND_US, |lan| assert!(!lan.protectors(0).is_empty()));
    assert_eq!(lan.protectors(0), [0]);
}

#[test]
fn a_hand_over_that_fails_leaves_the_member_at_work() {
    let mut lan = Lan::settled();
    let (deputy, third) = (lan.rack(0).config().parts[0].order[1], lan.rack(0).config().parts[0].order[2]);
    let process = lan.processes[deputy].as_mut().unwrap();
    let held = process.rack.begin_handover();
    assert_eq!(held, process.rack.config().parts[deputy].networks);
    let (config, left) = (process.rack.config().clone(), process.rack.hand_over());
    lan.kill(0);
    lan.advance(SECOND_US);
    assert!(lan.protectors(0).is_empty(), "nothing is taken meanwhile");
    // The other process has worked for a while.
    let mut other = Rack::resume(lan.now_us, config, [99; 32], &left);
    for turn in 0..100 {
        let standing = Standing { is_ready: true, is_protected: true };
        other.handle_timeout(lan.now_us + turn * 100_000, |_| standing);
        while let Some((to, datagram)) = other.poll_datagram() {
            if to == at(third) {
                lan.inject(deputy, third, &datagram);
            }
        }
    }
    lan.processes[deputy].as_mut().unwrap().rack.take_back();
    lan.advance(SECOND_US);
    assert_eq!((lan.protectors(0), lan.protectors(deputy)), (vec![deputy], vec![deputy]));
    assert_eq!(
        lan.count(third, |event| !matches!(
            event,
            RackEvent::Gone(0) | RackEvent::Present(_) | RackEvent::Taken(_)
        )),
        0
    );
}

#[test]
fn a_record_of_a_member_counts_for_nothing_after_a_hand_over_too() {
    let mut lan = Lan::settled();
    // It starts twice, so that there are earlier tokens of it.
    for _ in 0..2 {
        lan.kill(1);
        lan.start(1);
        lan.advance(20 * SECOND_US);
    }
    lan.kill(1);
    lan.advance(SECOND_US);
    lan.hand_over(0);
    lan.advance(SECOND_US);
    let record: Vec<_> = lan.sent.iter().filter(|(from, to, _)| (*from, *to) == (1, 0)).cloned().collect();
    for (from, to, datagram) in &record {
        lan.inject(*from, *to, datagram);
        assert!(!lan.rack(0).is_present(1));
    }
    assert!(lan.rack(0).unheeded().count(Unheeded::Replayed) > 100);
}

#[test]
fn a_mark_is_of_one_member_of_one_rack() {
    let mark = config(0, 3, one_each).mark();
    assert_eq!(RackConfig { key: PeerKey::new([1; 32]), ..config(0, 3, one_each) }.mark(), mark);
    let by_hash = |names: &[&str]| by_hash(names, &[&["10.82.0.0/16".parse().unwrap()]]);
    for other in [config(1, 3, one_each), config(0, 2, one_each), config(0, 3, by_hash)] {
        assert_ne!(other.mark(), mark);
    }
}
