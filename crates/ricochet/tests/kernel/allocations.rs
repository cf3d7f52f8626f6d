//! Sending and receiving do not allocate once a node has warmed up.

use crate::common::{Lan, join_all};

/// Number of messages in one run: less than the pool of payloads holds.
const MESSAGES: u32 = 200;

#[test]
fn an_application_sends_and_receives_without_allocating() {
    let Some(lan) = Lan::build("allocations", 2) else { return };
    let nodes = lan.start(|_, builder| builder.max_delay(None));
    let subscriptions = join_all(&nodes, "g");
    let sender = nodes[0].sender("g").unwrap();
    let run = || {
        for number in 0..MESSAGES {
            sender.send(&number.to_be_bytes()).unwrap();
            subscriptions[1].recv().unwrap();
        }
    };
    (0..5).for_each(|_| run());
    let made = nodes[1].status().payloads_made;
    assert_eq!(allocation_counter::measure(run).count_total, 0, "on the application's thread");
    assert_eq!(nodes[1].status().payloads_made, made, "payload buffers are reused");
}
