//! Messages from before a subscription, between real nodes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LONG, Lan, join_all, loss, next, number, numbers};
use ricochet::{Event, HistoryNews, JoinOptions, Start, Subscription};

fn last(count: u64) -> JoinOptions {
    JoinOptions { from: Start::Last(count), ..JoinOptions::default() }
}

/// Returns the first event, which tells of the history.
fn begin(subscription: &Subscription) -> (u64, bool) {
    match subscription.recv_event_timeout(LONG).unwrap() {
        Event::History(history) => match history.news() {
            HistoryNews::Begins { messages, is_complete } => (messages, is_complete),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A node joins while messages go on: it gets the past in order, then all that follow, and nothing twice. A
/// second subscription of the same node gets the past from the node itself.
#[test]
fn a_late_joiner_has_the_past_and_misses_nothing_of_the_present() {
    const BEFORE: u32 = 3_000;
    let Some(lan) = Lan::build("a node that joins late", 3) else { return };
    let nodes = lan.start(|at, builder| builder.lose(loss(2, at as u64)));
    let members = join_all(&nodes[..2], "g");
    let sender = nodes[0].sender("g").unwrap();
    for number in 0..BEFORE {
        sender.send(&number.to_be_bytes()).unwrap();
        if number >= 500 {
            // The queue of the reader stays short.
            next(&nodes[1], &members[1]);
        }
    }
    let done = AtomicBool::new(false);
    let late = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut number = BEFORE;
            while !done.load(Ordering::SeqCst) {
                sender.send(&number.to_be_bytes()).unwrap();
                number += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            number
        });
        let late = nodes[2].join_with("g", &last(2_000)).unwrap();
        let (messages, is_complete) = begin(&late);
        assert!(messages >= 2_000 && is_complete, "{messages}");
        let past = numbers(&nodes[2], &late, messages as usize);
        let first = past[0];
        assert_eq!(past, (first..first + past.len() as u32).collect::<Vec<_>>(), "in order");
        let mut all = past;
        all.extend(numbers(&nodes[2], &late, 200));
        done.store(true, Ordering::SeqCst);
        let end = sending.join().unwrap();
        all.extend(numbers(&nodes[2], &late, (end - first) as usize - all.len()));
        all.sort_unstable();
        assert_eq!(all, (first..end).collect::<Vec<_>>(), "nothing is missing and nothing comes twice");
        late
    });
    assert_eq!(late.counts().lost, 0);
    let second = nodes[2].join_with("g", &last(5)).unwrap();
    assert_eq!(begin(&second), (5, true));
    let five: Vec<_> = (0..5).map(|_| next(&nodes[2], &second)).collect();
    assert!(five.iter().all(ricochet::Message::is_past));
    let five: Vec<u32> = five.iter().map(number).collect();
    assert!(five.is_sorted_by(|a, b| a + 1 == *b), "{five:?}");
    sender.send(&u32::MAX.to_be_bytes()).unwrap();
    let message = next(&nodes[2], &second);
    assert_eq!((number(&message), message.is_past()), (u32::MAX, false));
    assert!(nodes[1].wait_for_members("g", 2, LONG), "the others know the new member");
}
