//! Repairs that do not help, and what only looks like it.

use super::*;

/// Losses of before a rise are settled later, and say nothing of the new rate.
#[test]
fn packets_that_were_sent_before_a_rise_do_not_make_its_repairs_useless() {
    let mut link = Link::new(Targets::default());
    link.situation.per_second = 2_000;
    link.seconds(70, 0, 0, 0);
    assert_eq!(link.controller.decision().rate, LADDER[0]);
    let risen = link.tenth(20, 1, 0);
    assert!(risen.rate > rate("1/12"), "{risen}");
    // The far gateway settles packets after 1.1 s.
    let before: Vec<_> = (0..24).map(|_| link.tenth(20, 1, 0)).collect();
    assert!(before.iter().all(|decision| decision.limit != Limit::Useless), "{before:?}");
    assert_eq!(link.seconds(1, 20, 1, 0).limit, Limit::Useless, "but the packets after it do");
}

#[test]
fn repairs_that_do_not_help_are_reduced_for_a_while() {
    let mut link = Link::new(Targets::default());
    let before = link.seconds(1, 25, 1, 2);
    assert!(before.rate > LADDER[0]);
    let decision = link.seconds(2, 25, 1, 2);
    assert_eq!((decision.rate, decision.limit), (LADDER[0], Limit::Useless));
    assert_eq!(link.seconds(7, 25, 1, 2).limit, Limit::Useless);
    assert_eq!(link.seconds(4, 25, 1, 10).limit, Limit::Needed);
}

#[test]
fn losses_that_the_operator_allows_are_no_sign_of_useless_repairs() {
    let mut link = Link::new(Targets { residual: 0.1, ..Targets::default() });
    link.seconds(2, 0, 0, 0);
    // Of 14 %, less than half comes back, and less than a tenth of all packets stays lost.
    for second in 0..20 {
        let decision = link.tenth(7, 1, 4);
        assert_ne!(link.seconds(1, 7, 1, 4).limit, Limit::Useless, "after {second} s: {decision}");
    }
}

/// A far gateway that is short of time, and gives up what it has not seen.
#[test]
fn losses_while_the_far_gateway_recovers_nothing_are_no_sign_of_useless_repairs() {
    let mut link = Link::new(Targets::default());
    let before = link.seconds(3, 25, 1, 10);
    link.is_recovering = false;
    for tenth in 0..50 {
        let decision = link.tenth(25, 1, 0);
        assert!(decision.limit != Limit::Useless && decision.rate >= before.rate, "after {tenth} tenths");
    }
    // Losses until then are settled later.
    link.is_recovering = true;
    for tenth in 0..10 {
        assert_ne!(link.tenth(25, 1, 0).limit, Limit::Useless, "{tenth} tenths after that");
    }
    assert_eq!(link.seconds(3, 25, 1, 0).limit, Limit::Useless);
    // Where packets are rewritten on the way, nothing is recovered for good.
    let mut link = Link::new(Targets::default());
    link.seconds(3, 25, 1, 10);
    link.is_recovering = false;
    link.findings.set(Finding::Rewritten, true);
    assert_eq!(link.seconds(5, 25, 1, 0).limit, Limit::Useless);
}

/// Some packets take another way to the far site, so that all of them look lost, and are solved.
#[test]
fn repairs_of_packets_that_are_withheld_because_the_path_differs_are_useless() {
    let mut link = Link::new(Targets::default());
    let before = link.seconds(3, 10, 1, 10);
    assert!(before.rate > LADDER[0], "{before}");
    (link.is_withholding, link.is_recovering) = (true, false);
    link.findings.set(Finding::PartlyElsewhere, true);
    let decision = link.seconds(5, 10, 1, 0);
    assert_eq!((decision.rate, decision.limit), (LADDER[0], Limit::Useless), "{decision}");
    // Where only some flows differ, repairs serve the others.
    let mut link = Link::new(Targets::default());
    link.seconds(3, 10, 1, 10);
    link.is_withholding = true;
    link.findings.set(Finding::OpeningRewritten, true);
    for tenth in 0..50 {
        let decision = link.tenth(10, 1, 0);
        assert_ne!(decision.limit, Limit::Useless, "after {tenth} tenths: {decision}");
    }
}

#[test]
fn losses_of_a_full_queue_are_no_sign_of_useless_repairs() {
    let mut link = Link::new(Targets::default());
    link.is_congested = true;
    let before = link.seconds(3, 25, 1, 10);
    assert!(before.rate > LADDER[0], "{before}");
    link.is_left = true;
    for tenth in 0..20 {
        let decision = link.tenth(3, 1, 0);
        assert_ne!(decision.limit, Limit::Useless, "after {tenth} tenths: {decision}");
    }
}

#[test]
fn a_rest_ends_when_the_link_loses_packets_and_no_queue_stands_full() {
    for is_standing in [false, true] {
        let mut link = Link::new(Targets::default());
        link.seconds(10, 20, 1, 10);
        // A queue that overflows for a moment.
        link.seconds(1, 2, 1, 0);
        assert_eq!(link.controller.decision().limit, Limit::Useless);
        link.is_standing = is_standing;
        let later = link.seconds(2, 20, 1, 10);
        assert_eq!(later.limit == Limit::Useless, is_standing, "{later}");
    }
}
