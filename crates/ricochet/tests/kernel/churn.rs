//! A cluster in trouble: a node dies without a word, another comes, a third is cut off for ten seconds; all under traffic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::common::{LONG, Lan, number};
use ricochet::{Event, Node, NodeId, Subscription};

/// Between two messages of a node.
const PACE: Duration = Duration::from_millis(20);
/// For how long a node is cut off.
const APART: Duration = Duration::from_secs(10);

/// What a node's subscription gave out, by sender: how often each message came, and what was reported lost.
#[derive(Default)]
struct Taken {
    messages: BTreeMap<(NodeId, u32), u32>,
    lost: BTreeMap<(NodeId, u32), String>,
}

/// A node, what it sends and what it gets.
struct Member {
    node: Node,
    subscription: Subscription,
    /// Messages sent so far.
    sent: AtomicU32,
    quiet: AtomicBool,
    taken: Mutex<Taken>,
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
            taken: Mutex::default(),
        }
    }

    /// What it took to get what it had missed.
    fn tell(&self) {
        let status = self.node.status();
        let of = |name| status.counts[name];
        println!(
            "who was cut off asked for {} packets in {} requests, got {} and {} twice; its ring dropped {}",
            of("asked"),
            of("requests_sent"),
            of("requested"),
            of("duplicates"),
            status.ring.dropped
        );
    }

    fn talk(&self) {
        while !self.quiet.load(Ordering::SeqCst) {
            let number = self.sent.load(Ordering::SeqCst);
            if self.node.send("g", &number.to_be_bytes()).is_err() {
                return;
            }
            self.sent.store(number + 1, Ordering::SeqCst);
            thread::sleep(PACE);
        }
    }

    /// Takes all that comes, until the node is closed.
    fn listen(&self) {
        while let Ok(event) = self.subscription.recv_event() {
            let mut taken = self.taken.lock().unwrap();
            match event {
                Event::Message(message) => {
                    assert_eq!(number(&message), message.seq());
                    *taken.messages.entry((message.sender(), message.seq())).or_insert(0) += 1;
                }
                Event::Lost(lost) => {
                    for seq in lost.range() {
                        taken.lost.insert((lost.sender(), seq), lost.reason().to_string());
                    }
                }
            }
        }
    }

    fn knows(&self, others: usize) -> bool {
        self.node.wait_for_members("g", others, LONG)
    }

    /// How many of another's messages `range` have come.
    fn got(&self, from: &Self, range: std::ops::Range<u32>) -> usize {
        let taken = self.taken.lock().unwrap();
        taken.messages.range((from.node.id(), range.start)..(from.node.id(), range.end)).count()
    }

    fn report(&self) -> String {
        let lost = format!("lost {:?}", self.taken.lock().unwrap().lost);
        format!("{lost}, {:#?}", self.node.status())
    }

    fn sent(&self) -> u32 {
        self.sent.load(Ordering::SeqCst)
    }
}

#[test]
fn deaths_births_and_partitions_cost_no_message_that_could_be_delivered() {
    let Some(lan) = Lan::build("a cluster in trouble", 5) else { return };
    let first = Member::start(&lan, 0, None);
    let [dying, cut_off, steady] = [1, 2, 3].map(|host| Member::start(&lan, host, Some(&first)));
    let born = OnceLock::new();
    let founders = [&first, &cut_off, &steady, &dying];
    assert!(founders.iter().all(|member| member.knows(3)));
    thread::scope(|scope| {
        let begin = |member| {
            scope.spawn(move || Member::talk(member));
            scope.spawn(move || Member::listen(member));
        };
        founders.into_iter().for_each(begin);
        thread::sleep(Duration::from_secs(1));

        // Its farewell reaches nobody: it dies without a word.
        let last_words = dying.sent();
        lan.switch.set_down("port2").unwrap();
        dying.node.close();

        let born: &Member = born.get_or_init(|| Member::start(&lan, 4, Some(&first)));
        begin(born);
        let living = [&first, &cut_off, &steady, born];
        assert!(living.iter().all(|member| member.knows(3)));
        let known_since = living.map(Member::sent);

        lan.switch.set_down("port3").unwrap();
        thread::sleep(APART);
        lan.switch.set_up("port3").unwrap();
        thread::sleep(Duration::from_secs(2));
        living.iter().for_each(|member| member.quiet.store(true, Ordering::SeqCst));

        let mut owed = Vec::new();
        for (from, since) in living.into_iter().zip(known_since) {
            let others = living.into_iter().filter(|member| !std::ptr::eq(*member, from));
            // Who was there from the beginning has a claim to all.
            owed.extend(others.map(|to| (to, from, if std::ptr::eq(to, born) { since } else { 0 })));
        }
        let claims = |(to, from, since): &(&Member, &Member, u32)| {
            (to.got(from, *since..from.sent()), from.sent() - since)
        };
        for _ in 0..150 {
            if owed.iter().map(claims).all(|(got, due)| got == due as usize) {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        cut_off.tell();
        for (to, name) in living.into_iter().zip(["the first", "the cut off", "the steady", "the born"]) {
            let of_it = owed.iter().filter(|claim| std::ptr::eq(claim.0, to)).map(claims);
            let (got, due) = of_it.fold((0, 0), |sum, (got, due)| (sum.0 + got, sum.1 + due));
            println!("{name} got {got} of {due}, and {} of the dead", to.got(&dying, 0..last_words));
        }
        living.iter().for_each(|member| member.node.close());
        for claim @ (to, from, _) in &owed {
            let (got, due) = claims(claim);
            assert_eq!(got, due as usize, "{:?} of {:?}: {}", to.node, from.node, to.report());
        }
        for to in &living[..3] {
            assert_eq!(to.got(&dying, 0..last_words), last_words as usize, "of the dead: {}", to.report());
        }
        for to in living {
            let taken = to.taken.lock().unwrap();
            assert!(taken.messages.values().all(|&times| times == 1), "delivered twice");
        }
    });
}
