use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ricochet_core::NodeId;
use ricochet_core::counters::GivenUp;
use ricochet_core::message::How;

use super::*;
use crate::pool::Pool;

fn queue(capacity: usize, policy: Policy) -> (Arc<Queue>, Arc<Gate>) {
    let gate = Arc::new(Gate::new(Waker::new().unwrap()));
    (Queue::new(capacity, policy, Arc::clone(&gate)), gate)
}

fn message(seq: u32) -> Message {
    Message {
        group: "g".into(),
        sender: NodeId(1),
        seq,
        how: How::Multicast,
        missed_us: None,
        payload: Pool::new(1, 8).copy(b"x"),
    }
}

fn lost(seq: u32) -> Lost {
    Lost { group: "g".into(), sender: NodeId(1), first: seq, last: seq, reason: GivenUp::Unanswered }
}

fn drained(queue: &Queue) -> Vec<i64> {
    std::iter::from_fn(|| queue.try_pop().ok())
        .map(|event| match event {
            Event::Message(message) => i64::from(message.seq()),
            Event::Lost(lost) => -i64::from(lost.first),
        })
        .collect()
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn a_full_queue_drops_by_its_policy_and_counts() {
    for (policy, left) in [(Policy::DropOldest, [7, 8, 9]), (Policy::DropNewest, [0, 1, 2])] {
        let (queue, gate) = queue(3, policy);
        (0..10).for_each(|seq| queue.push(message(seq)));
        assert!(gate.is_open());
        assert_eq!(queue.counts().dropped, 7);
        assert_eq!(drained(&queue), left);
    }
}

#[test]
fn a_blocking_queue_shuts_the_gate_until_a_quarter_is_free() {
    let (queue, gate) = queue(4, Policy::Block);
    (0..6).for_each(|seq| queue.push(message(seq)));
    assert!(!gate.is_open_or_wake());
    assert!(queue.try_pop().is_ok() && queue.try_pop().is_ok());
    assert!(!gate.is_open(), "still as many as its capacity");
    assert!(queue.try_pop().is_ok());
    assert!(gate.is_open());
    assert!(readable(gate.waker().as_fd()), "who waited is woken");
    assert_eq!(drained(&queue), [3, 4, 5]);
    assert_eq!((queue.counts().dropped, queue.counts().blocked), (0, 1));
}

#[test]
fn a_queue_that_is_closed_shuts_no_gate_and_gives_what_it_has() {
    let (queue, gate) = queue(2, Policy::Block);
    (0..3).for_each(|seq| queue.push(message(seq)));
    queue.close(RecvError::Closed);
    assert!(gate.is_open());
    queue.push(message(9));
    assert_eq!(drained(&queue), [0, 1, 2]);
    assert_eq!(queue.try_pop().unwrap_err(), TryRecvError::Closed);
    assert_eq!(queue.pop_wait().unwrap_err(), RecvError::Closed);
    assert_eq!(queue.pop_timeout(Duration::ZERO).unwrap_err(), RecvTimeoutError::Closed);
}

#[test]
fn losses_keep_their_place_and_their_number_is_bounded() {
    let (queue, _) = queue(8, Policy::DropOldest);
    queue.push(message(1));
    queue.push_lost(lost(2));
    queue.push(message(3));
    assert_eq!(drained(&queue), [1, -2, 3]);
    (0..2 * LOST_MAX as u32).for_each(|seq| queue.push_lost(lost(seq)));
    queue.push(message(4));
    assert_eq!(queue.counts().reports_dropped, LOST_MAX as u64);
    assert_eq!(queue.counts().lost, 2 * LOST_MAX as u64 + 1);
    assert_eq!(drained(&queue).len(), LOST_MAX + 1);
}

#[test]
fn the_descriptor_tells_of_what_comes_after_the_queue_was_empty() {
    let (queue, _) = queue(8, Policy::DropOldest);
    queue.push(message(1));
    let fd = queue.ready().unwrap();
    assert!(readable(fd), "something waits already");
    assert_eq!(drained(&queue), [1]);
    assert!(!readable(fd));
    queue.push(message(2));
    queue.push(message(3));
    assert!(readable(fd));
    assert!(queue.try_pop().is_ok());
    assert!(readable(fd), "until it was seen empty");
    assert_eq!(drained(&queue), [3]);
    assert!(!readable(fd));
    queue.close(RecvError::Closed);
    assert!(readable(fd));
}

#[test]
fn who_waits_is_woken() {
    let (queue, _) = queue(8, Policy::DropOldest);
    assert_eq!(queue.pop_timeout(Duration::from_millis(1)).unwrap_err(), RecvTimeoutError::Timeout);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.pop_wait().is_ok());
        queue.push(message(1));
        assert!(waiting.join().unwrap());
    });
}
