//! The knowledge of the link that goes to the next process.

use super::*;

#[test]
fn the_next_process_goes_on_with_the_rate_and_forgets_losses_when_the_first_would_have() {
    let mut link = Link::new(Targets::default());
    link.seconds(5, 0, 0, 0);
    let worse = link.seconds(10, 20, 1, 10);
    assert!(worse.rate > LADDER[0]);
    link.hand_over();
    assert_eq!(link.controller.decision().rate, worse.rate, "at once");
    assert_eq!(link.seconds(50, 0, 0, 0).rate, worse.rate);
    assert_eq!(link.seconds(12, 0, 0, 0).rate, LADDER[0]);
    // Losses of long ago are in the counts of each report, and are no news.
    link.hand_over();
    assert_eq!(link.controller.decision().rate, LADDER[0]);
    assert_eq!(link.tenth(0, 0, 0).rate, LADDER[0]);
    // A link that gets worse in the moment of the hand-over.
    assert!(link.tenth(20, 1, 10).rate >= rate("1/12"));
}

#[test]
fn numbers_of_another_form_are_not_understood_and_change_nothing() {
    let mut link = Link::new(Targets::default());
    link.seconds(20, 20, 1, 10);
    let (numbers, report) = (link.controller.memory(), link.report());
    let recall = |numbers: &[u64]| {
        let mut next = Controller::new(Targets::default());
        let is_understood = next.recall(link.now_us, numbers, &report);
        assert!(is_understood || next.decision().limit == Limit::Unknown);
        next.decide(link.now_us + SECOND, link.situation);
        is_understood
    };
    assert!(recall(&numbers));
    assert!((0..numbers.len()).all(|at| !recall(&numbers[..at])));
    for (at, value) in [(0, 2), (1, 3), (2, u64::MAX), (2, LADDER.len() as u64), (6, 11), (7, 1 << 40)] {
        let mut changed = numbers.clone();
        changed[at] = value;
        let expected = at == 7;
        assert_eq!(recall(&changed), expected, "{value} at {at}");
    }
    assert!(!recall(&[numbers.clone(), vec![0]].concat()));
    for at in 0..numbers.len() {
        let mut changed = numbers.clone();
        changed[at] = u64::MAX;
        recall(&changed);
    }
}
