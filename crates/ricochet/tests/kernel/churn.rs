//! A cluster under churn and traffic: one node crashes, another starts, a third is cut off for ten seconds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::common::{LONG, Lan, number};
use ricochet::{Event, Node, NodeId, Subscription};

/// Interval between messages of a node.
const PACE: Duration = Duration::from_millis(20);
/// Time for which a node is cut off.
const APART: Duration = Duration::from_secs(10);

/// Events of a node's subscription.
#[derive(Default)]
struct Received {
    /// Number of deliveries of each message, by sender and sequence number.
    messages: BTreeMap<(NodeId, u32), u32>,
    /// Reason of each loss report, by sender and sequence number.
    lost: BTreeMap<(NodeId, u32), String>,
}

/// A node, the messages that it sends and those that it receives.
struct Member {
    node: Node,
    subscription: Subscription,
    /// Number of messages sent.
    sent: AtomicU32,
    quiet: AtomicBool,
    received: Mutex<Received>,
}

impl Member {
    fn start(lan: &Lan, host: usize, seed: Option<&Self>) -> Self {
        let mut builder = Node::builder("eth0").queue(65_536).give_up_after(Duration::from_secs(60));
        if let Some(seed) = seed {
            builder = builder.seed(seed.node.address().to_string());
        }
        let node = lan.hosts[host].run(|| builder.start()).unwrap();
        let subscription = node.join("g").unwrap();
        Self {
            node,
            subscription,
            sent: AtomicU32::new(0),
            quiet: AtomicBool::new(false),
            received: Mutex::default(),
        }
    }

    /// Prints the cost of recovery.
    fn print_cost(&self) {
        let status = self.node.status();
        let of = |name| status.counts[name];
        println!(
            "the node cut off requested {} packets in {} requests, received {} and {} twice; its ring dropped {}",
            of("asked"),
            of("requests_sent"),
            of("requested"),
            of("duplicates"),
            status.ring.dropped
        );
    }

    fn send(&self) {
        while !self.quiet.load(Ordering::SeqCst) {
            let number = self.sent.load(Ordering::SeqCst);
            if self.node.send("g", &number.to_be_bytes()).is_err() {
                return;
            }
            self.sent.store(number + 1, Ordering::SeqCst);
            thread::sleep(PACE);
        }
    }

    /// Receives all events until the node is closed.
    fn receive(&self) {
        while let Ok(event) = self.subscription.recv_event() {
            let mut received = self.received.lock().unwrap();
            match event {
                Event::Message(message) => {
                    assert_eq!(number(&message), message.seq());
                    *received.messages.entry((message.sender(), message.seq())).or_insert(0) += 1;
                }
                Event::Lost(lost) => {
                    for seq in lost.range() {
                        received.lost.insert((lost.sender(), seq), lost.reason().to_string());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn knows(&self, others: usize) -> bool {
        self.node.wait_for_members("g", others, LONG)
    }

    /// Returns the number of messages received from another member within a range.
    fn got(&self, from: &Self, range: std::ops::Range<u32>) -> usize {
        let received = self.received.lock().unwrap();
        received.messages.range((from.node.id(), range.start)..(from.node.id(), range.end)).count()
    }

    fn report(&self) -> String {
        let lost = format!("lost {:?}", self.received.lock().unwrap().lost);
        format!("{lost}, {:#?}", self.node.status())
    }

    fn sent(&self) -> u32 {
        self.sent.load(Ordering::SeqCst)
    }
}

#[test]
fn crashes_starts_and_partitions_cost_no_message_that_could_be_delivered() {
    let Some(lan) = Lan::build("a cluster under churn", 5) else { return };
    let first = Member::start(&lan, 0, None);
    let [crashing, cut_off, steady] = [1, 2, 3].map(|host| Member::start(&lan, host, Some(&first)));
    let started = OnceLock::new();
    let founders = [&first, &cut_off, &steady, &crashing];
    assert!(founders.iter().all(|member| member.knows(3)));
    thread::scope(|scope| {
        let begin = |member| {
            scope.spawn(move || Member::send(member));
            scope.spawn(move || Member::receive(member));
        };
        founders.into_iter().for_each(begin);
        thread::sleep(Duration::from_secs(1));

        // No node receives the announcement that it leaves, so this is a crash.
        let sent_by_crashed = crashing.sent();
        lan.switch.set_down("port2").unwrap();
        crashing.node.close();

        let started: &Member = started.get_or_init(|| Member::start(&lan, 4, Some(&first)));
        begin(started);
        let live = [&first, &cut_off, &steady, started];
        assert!(live.iter().all(|member| member.knows(3)));
        let known_since = live.map(Member::sent);
        // A node awaits the messages of a stream from the first one on that it hears.
        let others = || live.iter().filter(|member| !std::ptr::eq(**member, started));
        while !others().all(|from| started.got(from, 0..u32::MAX) > 0) {
            thread::sleep(PACE);
        }

        lan.switch.set_down("port3").unwrap();
        thread::sleep(APART);
        lan.switch.set_up("port3").unwrap();
        thread::sleep(Duration::from_secs(2));
        live.iter().for_each(|member| member.quiet.store(true, Ordering::SeqCst));

        let mut owed = Vec::new();
        for (from, since) in live.into_iter().zip(known_since) {
            let others = live.into_iter().filter(|member| !std::ptr::eq(*member, from));
            // All messages are owed to the nodes that were there from the beginning.
            owed.extend(others.map(|to| (to, from, if std::ptr::eq(to, started) { since } else { 0 })));
        }
        let progress = |(to, from, since): &(&Member, &Member, u32)| {
            (to.got(from, *since..from.sent()), from.sent() - since)
        };
        for _ in 0..150 {
            if owed.iter().map(progress).all(|(got, due)| got == due as usize) {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        cut_off.print_cost();
        for (to, name) in live.into_iter().zip(["first", "cut off", "steady", "started"]) {
            let of_it = owed.iter().filter(|claim| std::ptr::eq(claim.0, to)).map(progress);
            let (got, due) = of_it.fold((0, 0), |sum, (got, due)| (sum.0 + got, sum.1 + due));
            let of_crashed = to.got(&crashing, 0..sent_by_crashed);
            println!("{name}: received {got} of {due}, and {of_crashed} of the crashed node");
        }
        let reports = live.map(Member::report);
        live.iter().for_each(|member| member.node.close());
        for claim @ (to, from, _) in &owed {
            let (got, due) = progress(claim);
            let report = live.iter().zip(&reports).find(|(member, _)| std::ptr::eq(**member, *to));
            assert_eq!(got, due as usize, "{:?} of {:?}: {}", to.node, from.node, report.unwrap().1);
        }
        for to in &live[..3] {
            let got = to.got(&crashing, 0..sent_by_crashed);
            assert_eq!(got, sent_by_crashed as usize, "of the crashed node: {}", to.report());
        }
        for to in live {
            let received = to.received.lock().unwrap();
            assert!(received.messages.values().all(|&times| times == 1), "delivered twice");
        }
    });
}
