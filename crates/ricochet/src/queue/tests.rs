use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ricochet_core::counters::GivenUp;
use ricochet_core::{HistoryNews, NodeId};

use ricochet_core::order::OrderNews;

use super::inner::{LOST_MAX, MEMBERS_DUE};
use super::*;
use crate::message::{History, Member, MemberChange, MemberNews, OrderChange, RegistryNews, numbered};

fn queue(capacity: usize, policy: Policy) -> (Arc<Queue>, Arc<Backpressure>) {
    let backpressure = Arc::new(Backpressure::new(Waker::new().unwrap()));
    (Queue::new(bounds(capacity), policy, Arc::clone(&backpressure)), backpressure)
}

fn bounds(messages: usize) -> Bounds {
    Bounds { messages, bytes: 1 << 20 }
}

fn past(seq: u32) -> Message {
    Message { is_past: true, ..numbered(seq) }
}

fn lost(seq: u32) -> Lost {
    Lost { group: "g".into(), sender: NodeId(1), first: seq, last: seq, reason: GivenUp::Unanswered }
}

fn drained(queue: &Queue) -> Vec<i64> {
    std::iter::from_fn(|| queue.try_pop().ok())
        .map(|event| match event {
            Event::Message(message) => i64::from(message.seq()),
            Event::Lost(lost) => -i64::from(lost.first),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn a_full_queue_drops_by_its_policy_and_counts() {
    for (policy, left) in [(Policy::DropOldest, [7, 8, 9]), (Policy::DropNewest, [0, 1, 2])] {
        let (queue, backpressure) = queue(3, policy);
        (0..10).for_each(|seq| queue.push(numbered(seq)));
        assert!(!backpressure.is_active());
        assert_eq!(queue.counts().dropped, 7);
        assert_eq!(messages_of(&queue), left);
    }
}

/// Returns the numbers of the messages in a queue, without the reports.
fn messages_of(queue: &Queue) -> Vec<u32> {
    let events = std::iter::from_fn(|| queue.try_pop().ok());
    events
        .filter_map(|event| if let Event::Message(message) = event { Some(message.seq) } else { None })
        .collect()
}

#[test]
fn each_message_that_a_full_queue_drops_is_reported_in_its_place() {
    let cases =
        [(Policy::DropOldest, 2, 1_000), (Policy::DropNewest, 2, 1_000), (Policy::DropOldest, 100, 5_000)];
    for (policy, senders, count) in cases {
        let (queue, backpressure) = queue(4, policy);
        let mut seen = Vec::new();
        for seq in 0..count {
            // The senders take turns, and the messages of every other one have two packets.
            let sender = NodeId(1 + seq % senders);
            let packets = 1 + seq % 2;
            queue.push(Message { sender, packets, seq: seq / senders * packets, ..numbered(0) });
            if seq % 100 == 99 {
                seen.extend((0..3).filter_map(|_| queue.try_pop().ok()));
            }
        }
        seen.extend(std::iter::from_fn(|| queue.try_pop().ok()));
        let mut next = vec![0; senders as usize];
        for event in seen {
            let (sender, first, last) = match event {
                Event::Message(message) => (message.sender, message.seq, message.seq + message.packets - 1),
                Event::Lost(lost) => {
                    assert_eq!(lost.reason, GivenUp::Unread);
                    (lost.sender, lost.first, lost.last)
                }
                other => panic!("{other:?}"),
            };
            let next = &mut next[sender.0 as usize - 1];
            assert_eq!(first, *next, "{policy:?}: neither a gap nor a double of {sender}");
            *next = last + 1;
        }
        assert!(
            next.iter().zip([1, 2].iter().cycle()).all(|(next, packets)| *next == count / senders * packets)
        );
        assert!(queue.counts().dropped > 900 && queue.counts().reports_dropped == 0);
        assert_eq!(queue.take_overrun(), queue.counts().dropped);
        assert_eq!(queue.take_overrun(), 0, "all were logged");
        assert!(backpressure.take_overrun() && !backpressure.take_overrun());
    }
}

#[test]
fn reports_of_dropped_messages_leave_room_for_other_news() {
    for (policy, senders) in
        [(Policy::DropOldest, 100), (Policy::DropNewest, 100), (Policy::DropOldest, 3_000)]
    {
        let (queue, _) = queue(4, policy);
        let pushed = 4 + 2 * senders;
        for seq in 0..pushed {
            queue.push(Message { sender: NodeId(seq % senders), seq: seq / senders, ..numbered(0) });
        }
        let counts = queue.counts();
        assert_eq!(counts.dropped, u64::from(2 * senders));
        assert_eq!(counts.reports_dropped > 0, senders as usize > LOST_MAX, "{policy:?} {senders}");
        // As many reports of the network's losses as there may be of the reader's.
        (0..LOST_MAX as u32).for_each(|seq| queue.push_lost(lost(seq)).wake());
        assert_eq!(queue.counts().reports_dropped, counts.reports_dropped);
        queue.push_lost(lost(0)).wake();
        assert_eq!(queue.counts().reports_dropped, counts.reports_dropped + 1);
        let reports = drained(&queue).len() - 4;
        assert_eq!(reports, (senders as usize).min(LOST_MAX) + LOST_MAX);
        queue.push_news(Event::History(History { group: "g".into(), news: HistoryNews::Ends })).wake();
        assert!(matches!(queue.try_pop(), Ok(Event::History(_))), "there is room again");
    }
}

#[test]
fn a_blocking_queue_exerts_backpressure_until_a_quarter_is_free() {
    let (queue, backpressure) = queue(4, Policy::Block);
    (0..6).for_each(|seq| queue.push(numbered(seq)));
    assert!(backpressure.arm_if_active());
    assert!(queue.try_pop().is_ok() && queue.try_pop().is_ok());
    assert!(backpressure.is_active(), "the queue is still full");
    assert!(queue.try_pop().is_ok());
    assert!(!backpressure.is_active());
    assert!(readable(backpressure.waker().as_fd()), "the node is woken");
    assert_eq!(drained(&queue), [3, 4, 5]);
    assert_eq!((queue.counts().dropped, queue.counts().blocked), (0, 1));
}

#[test]
fn a_closed_queue_exerts_no_backpressure_and_still_gives_its_messages() {
    let (queue, backpressure) = queue(2, Policy::Block);
    (0..3).for_each(|seq| queue.push(numbered(seq)));
    queue.close(RecvError::Closed).wake();
    assert!(!backpressure.is_active());
    queue.push(numbered(9));
    assert_eq!(drained(&queue), [0, 1, 2]);
    assert_eq!(queue.try_pop().unwrap_err(), TryRecvError::Closed);
    assert_eq!(queue.pop_wait().unwrap_err(), RecvError::Closed);
    assert_eq!(queue.pop_timeout(Duration::ZERO).unwrap_err(), RecvTimeoutError::Closed);
}

#[test]
fn loss_reports_keep_their_place_and_are_bounded() {
    let (queue, _) = queue(8, Policy::DropOldest);
    queue.push(numbered(1));
    queue.push_lost(lost(2)).wake();
    queue.push(numbered(3));
    assert_eq!(drained(&queue), [1, -2, 3]);
    (0..2 * LOST_MAX as u32).for_each(|seq| queue.push_lost(lost(seq)).wake());
    queue.push(numbered(4));
    assert_eq!(queue.counts().reports_dropped, LOST_MAX as u64);
    assert_eq!(queue.counts().lost, 2 * LOST_MAX as u64 + 1);
    assert_eq!(drained(&queue).len(), LOST_MAX + 1);
}

fn order(news: OrderNews) -> Event {
    Event::Order(OrderChange { group: "g".into(), news })
}

/// Returns the news about total order in a queue, in their order.
fn order_of(queue: &Queue) -> Vec<OrderNews> {
    let events = std::iter::from_fn(|| queue.try_pop().ok());
    events
        .filter_map(|event| if let Event::Order(change) = event { Some(change.news) } else { None })
        .collect()
}

#[test]
fn losses_do_not_push_out_the_news_that_messages_were_not_agreed_on() {
    let (queue, _) = queue(8, Policy::DropOldest);
    (0..2 * LOST_MAX as u32).for_each(|seq| queue.push_lost(lost(seq)).wake());
    let broken = OrderNews::Broken { from: 1, delivered: 3, continues: 1 };
    queue.push_news(order(broken)).wake();
    queue.push_lost(lost(0)).wake();
    assert_eq!(
        queue.counts().reports_dropped,
        LOST_MAX as u64 + 1,
        "reports have as much room as without the news"
    );
    assert_eq!(order_of(&queue), [broken]);
    queue.push_lost(lost(0)).wake();
    assert_eq!(drained(&queue), [0], "there is room again");
}

#[test]
fn of_the_news_about_total_order_the_newest_losses_are_kept() {
    let (queue, _) = queue(8, Policy::DropOldest);
    let missed = |from: u64| OrderNews::Missed { from, continues: from + 1 };
    (0..3).for_each(|from| queue.push_news(order(missed(from))).wake());
    for _ in 0..ORDER_MAX {
        queue.push_news(order(OrderNews::Stalled)).wake();
        queue.push_news(order(OrderNews::Resumed)).wake();
    }
    assert_eq!(queue.counts().reports_dropped, ORDER_MAX as u64 + 3);
    (3..ORDER_MAX as u64 + 2).for_each(|from| queue.push_news(order(missed(from))).wake());
    queue.push_news(order(OrderNews::Stalled)).wake();
    let kept = order_of(&queue);
    assert!(kept.iter().copied().eq((2..ORDER_MAX as u64 + 2).map(missed)), "{kept:?}");
}

fn news(group: &Arc<str>, id: u32, change: MemberChange) -> Event {
    let member = Member { id: NodeId(id), address: ([10, 0, 0, 1], 7_900).into() };
    Event::Member(MemberNews { group: Arc::clone(group), member, change })
}

/// Returns the news about members in a queue: group, node, and change. Other events are left out.
fn members_of(queue: &Queue) -> Vec<(String, u32, MemberChange)> {
    let events = std::iter::from_fn(|| queue.try_pop().ok());
    let news = events.filter_map(|event| if let Event::Member(news) = event { Some(news) } else { None });
    news.map(|news| (news.group.to_string(), news.member.id.0, news.change)).collect()
}

#[test]
fn each_member_of_each_group_is_told_also_beside_many_losses() {
    let (queue, _) = queue(8, Policy::DropOldest);
    (0..LOST_MAX as u32).for_each(|seq| queue.push_lost(lost(seq)).wake());
    let groups: Vec<Arc<str>> = (0..50).map(|number| format!("g{number}").into()).collect();
    let mut expected = Vec::new();
    for (group, id) in groups.iter().flat_map(|group| (0..100).map(move |id| (group, id))) {
        queue.push_news(news(group, id, MemberChange::Joined)).wake();
        expected.push((group.to_string(), id, MemberChange::Joined));
    }
    assert_eq!(queue.counts().reports_dropped, 0);
    queue.push_lost(lost(0)).wake();
    assert_eq!(queue.counts().reports_dropped, 1, "losses have as much room as without the news");
    assert_eq!(members_of(&queue), expected);
}

#[test]
fn of_the_news_about_members_that_nobody_reads_the_newest_about_each_stay() {
    let (queue, _) = queue(8, Policy::DropOldest);
    let group: Arc<str> = "g".into();
    queue.push(numbered(7));
    for round in 0..1_000 {
        let change = if round % 2 == 0 { MemberChange::Joined } else { MemberChange::Failed };
        (0..10).for_each(|id| queue.push_news(news(&group, id, change)).wake());
    }
    let registry = RegistryNews { kind: "etcd", error: None };
    queue.push_news(Event::Registry(registry)).wake();
    assert!(matches!(queue.try_pop(), Ok(Event::Message(_))), "each event keeps its place");
    let kept = members_of(&queue);
    let count = kept.len() as u64;
    assert!(count <= MEMBERS_DUE as u64 && count + queue.counts().reports_dropped == 10_000, "{count}");
    let newest: Vec<_> = (0..10).map(|id| ("g".to_owned(), id, MemberChange::Failed)).collect();
    assert_eq!(kept[kept.len() - 10..], newest);
    queue.push_news(news(&group, 0, MemberChange::Joined)).wake();
    assert_eq!(members_of(&queue).len(), 1, "there is room again");
}

#[test]
fn the_descriptor_is_readable_once_a_message_follows_an_empty_queue() {
    let (queue, _) = queue(8, Policy::DropOldest);
    queue.push(numbered(1));
    let fd = queue.ready().unwrap();
    assert!(readable(fd), "a message waits already");
    assert_eq!(drained(&queue), [1]);
    assert!(!readable(fd));
    queue.push(numbered(2));
    queue.push(numbered(3));
    assert!(readable(fd));
    assert!(queue.try_pop().is_ok());
    assert!(readable(fd), "until a reader finds the queue empty");
    assert_eq!(drained(&queue), [3]);
    assert!(!readable(fd));
    queue.make_ready();
    assert!(readable(fd), "a reader keeps a message back");
    assert!(drained(&queue).is_empty());
    assert!(!readable(fd));
    queue.close(RecvError::Closed).wake();
    assert!(readable(fd));
}

#[test]
fn a_waiting_reader_is_woken() {
    let (queue, _) = queue(8, Policy::DropOldest);
    assert_eq!(queue.pop_timeout(Duration::from_millis(1)).unwrap_err(), RecvTimeoutError::Timeout);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.pop_wait().is_ok());
        queue.push(numbered(1));
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn bytes_bound_a_queue_as_messages_do() {
    let pool = crate::pool::Pool::new(1, 100);
    let long = |seq| Message { payload: pool.copy(&[7; 100]), ..numbered(seq) };
    for (policy, left) in [(Policy::DropOldest, [7, 8, 9]), (Policy::DropNewest, [0, 1, 2])] {
        let backpressure = Arc::new(Backpressure::new(Waker::new().unwrap()));
        let queue = Queue::new(Bounds { messages: 100, bytes: 399 }, policy, backpressure);
        (0..10).for_each(|seq| queue.push(long(seq)));
        assert_eq!((queue.counts().dropped, queue.bytes()), (7, 300));
        assert_eq!(messages_of(&queue), left);
        assert_eq!(queue.bytes(), 0);
    }
    let backpressure = Arc::new(Backpressure::new(Waker::new().unwrap()));
    let queue = Queue::new(Bounds { messages: 100, bytes: 99 }, Policy::Block, Arc::clone(&backpressure));
    queue.push(long(0));
    assert!(backpressure.is_active(), "one message may be longer than the bound");
    assert_eq!(messages_of(&queue), [0]);
    assert!(!backpressure.is_active());
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_task_that_waits_is_woken_once_by_an_event_and_by_the_end() {
    let (queue, _) = queue(8, Policy::DropOldest);
    let wakes = Arc::new(Wakes::default());
    let task = TaskWaker::from(Arc::clone(&wakes));
    let woken = || wakes.0.load(std::sync::atomic::Ordering::Relaxed);
    queue.push(numbered(0));
    assert!(matches!(queue.poll_pop(&task), Poll::Ready(Ok(Event::Message(_)))));
    assert!(queue.poll_pop(&task).is_pending() && queue.poll_pop(&task).is_pending());
    assert_eq!(woken(), 0);
    queue.push_all([1, 2].map(|number| Event::Message(numbered(number))).into_iter()).wake();
    queue.push_lost(lost(3)).wake();
    assert_eq!(woken(), 1, "a task that was woken looks for all");
    assert_eq!(drained(&queue), [1, 2, -3]);
    assert!(queue.poll_pop(&task).is_pending());
    queue.close(RecvError::Closed).wake();
    assert_eq!(woken(), 2);
    assert!(matches!(queue.poll_pop(&task), Poll::Ready(Err(RecvError::Closed))));
}

#[test]
fn too_many_tasks_wake_one_another_rather_than_fill_memory() {
    let (queue, _) = queue(8, Policy::DropOldest);
    let all: Vec<_> = (0..=TASKS_MAX).map(|_| Arc::new(Wakes::default())).collect();
    for wakes in &all {
        assert!(queue.poll_pop(&TaskWaker::from(Arc::clone(wakes))).is_pending());
    }
    let woken = all.iter().filter(|wakes| wakes.0.load(std::sync::atomic::Ordering::Relaxed) == 1).count();
    assert_eq!(woken, TASKS_MAX);
}

#[test]
fn messages_of_the_present_leave_room_for_those_of_the_past() {
    for policy in [Policy::DropOldest, Policy::DropNewest, Policy::Block] {
        let (queue, _) = queue(4, policy);
        (0..4).for_each(|seq| queue.push(numbered(seq)));
        assert!(queue.has_room_for_past(32), "a packet with several messages comes whole");
        (10..13).for_each(|seq| queue.push(past(seq)));
        assert!(queue.has_room_for_past(1) && !queue.has_room_for_past(2));
        queue.push(past(13));
        assert!(!queue.has_room_for_past(1), "the past is bounded too");
        assert_eq!((messages_of(&queue).len(), queue.counts().dropped), (8, 0));
    }
}

#[test]
fn a_message_that_does_not_fit_stays_in_its_place() {
    let (queue, _) = queue(4, Policy::Block);
    let now = Some(Duration::ZERO);
    let ready = queue.ready().unwrap();
    assert_eq!(queue.pop_fitting(0, now).unwrap_err(), RecvIntoError::Timeout);
    assert!(!readable(ready));
    queue.push(numbered(0));
    queue.push_lost(lost(1)).wake();
    queue.push(numbered(2));
    for _ in 0..3 {
        let error = queue.pop_fitting(0, None).unwrap_err();
        assert_eq!(error, RecvIntoError::TooSmall { length: 1, room: 0 });
        assert!(readable(ready));
    }
    assert_eq!((queue.len(), queue.bytes()), (2, 2));
    let seq = |event| match event {
        Ok(Event::Message(message)) => message.seq,
        other => panic!("{other:?}"),
    };
    assert_eq!(seq(queue.pop_fitting(1, None)), 0);
    // A report fits any buffer.
    assert!(matches!(queue.pop_fitting(0, None), Ok(Event::Lost(_))));
    assert_eq!(seq(queue.pop_fitting(1, now)), 2);
    assert_eq!(queue.pop_fitting(1, now).unwrap_err(), RecvIntoError::Timeout);
    assert!(!readable(ready), "the descriptor waits for the next event");
    queue.push(numbered(3));
    assert!(readable(ready));
    queue.close(RecvError::Closed).wake();
    assert_eq!(seq(queue.pop_fitting(9, None)), 3);
    assert_eq!(queue.pop_fitting(9, None).unwrap_err(), RecvIntoError::Closed);
}

#[test]
fn own_messages_in_total_order_are_all_kept_and_their_sender_waits() {
    let (queue, backpressure) = queue(3, Policy::Block);
    let own = |seq: u32| Message { is_own: true, number: Some(seq.into()), ..numbered(seq) };
    queue.push(own(0));
    assert!(!queue.holds_up_own());
    (1..5).for_each(|seq| queue.push(own(seq)));
    assert!(queue.holds_up_own() && backpressure.is_active());
    // A reader of messages of others may send one for each that it takes, although the queue is full.
    (5..8).for_each(|seq| queue.push(numbered(seq)));
    assert!(queue.holds_up_own());
    assert!(queue.try_pop().is_ok());
    assert!(!queue.holds_up_own());
    queue.push(own(8));
    assert!(queue.holds_up_own());
    assert!(!readable(backpressure.waker().as_fd()));
    assert_eq!(drained(&queue), (1..9).collect::<Vec<_>>());
    assert!(readable(backpressure.waker().as_fd()), "the node passes on what waits");
    assert!(!queue.holds_up_own());
    assert_eq!(queue.counts().dropped, 0);
    // Without a number they are dropped, as no member waits for the others.
    (0..5).for_each(|seq| queue.push(Message { number: None, ..own(seq) }));
    assert_eq!(queue.counts().dropped, 2);
}
