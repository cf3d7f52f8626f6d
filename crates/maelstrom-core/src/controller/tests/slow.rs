//! Slow traffic, and packets that the far gateway holds.

use super::*;

/// TCP retransmits at the earliest when a packet behind the missing one has come, and the far gateway may
/// hold those.
#[test]
fn packets_that_the_far_gateway_holds_have_more_time() {
    let settled = |hold_us, late_us| {
        let mut link = Link::new(Targets { late_us, ..Targets::default() });
        link.situation = Situation { rtt_us: Some(20_000), hold_us, per_second: 2_000, ..link.situation };
        let decision = link.seconds(120, 50, 1, 10);
        (link.controller.plan().late_us, decision.rate)
    };
    let (at_once, held, stated) = (settled(0, None), settled(40_000, None), settled(40_000, Some(5_000)));
    assert_eq!([at_once.0, held.0, stated.0], [5_000, 40_000, 5_000]);
    assert!(held.1.as_f64() <= at_once.1.as_f64() / 2.0, "{} and {}", held.1, at_once.1);
    assert_eq!(stated.1, at_once.1);
}

#[test]
fn slow_traffic_has_windows_that_cost_less_and_is_not_called_short_of_time() {
    let settled = |per_second, products| {
        let mut link = Link::new(Targets::default());
        link.situation = Situation { rtt_us: Some(20_000), per_second, ..link.situation };
        link.controller.set_products(products);
        let decision = link.seconds(20, 20, 2, 10);
        (decision.window * decision.rate.repairs() as u16 / decision.rate.sources() as u16, decision.is_short)
    };
    let (slow, fast) = (settled(2_000, 512), settled(60_000, 512));
    assert!(slow.0 <= 48 && !slow.1 && fast.0 > 48 && !fast.1, "{slow:?} {fast:?}");
    assert!(settled(60_000, 20).1, "the processor has no time");
}
