//! Controllers that begin amid a session, of which the peer has counted packets.

use super::*;

/// Days without losses would hide for a minute that the link has become bad.
fn assert_that_only_later_losses_count(begin: impl FnOnce(&mut Controller, &Link)) {
    let mut link = Link::new(Targets::default());
    link.seconds(10, 20, 1, 10);
    let clean = 2_000_000_000;
    link.windows.on_arrived(clean);
    link.runs.on_arrived(clean);
    link.loss.named += clean;
    let mut next = Controller::new(Targets::default());
    begin(&mut next, &link);
    link.controller = next;
    let begun = link.seconds(4, 0, 0, 10);
    assert_eq!((begun.rate, begun.limit), (LADDER[0], Limit::Lowest), "{begun}");
    for round in 0..5 {
        // A burst of 30 packets, and nothing for three seconds.
        link.tenth(PACE, 30, 10);
        let decision = link.seconds(3, 0, 0, 10);
        assert!(decision.rate >= rate("1/20"), "round {round}: {decision}");
    }
}

#[test]
fn what_a_session_counted_before_a_reload_to_the_default_code_is_no_news() {
    assert_that_only_later_losses_count(|next, link| next.begin_within(link.situation));
}

#[test]
fn what_a_session_counted_before_an_upgrade_without_knowledge_is_no_news() {
    assert_that_only_later_losses_count(|next, link| {
        assert!(!next.recall(link.now_us, &[], &link.report()));
    });
}
