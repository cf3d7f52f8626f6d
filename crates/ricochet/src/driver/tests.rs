use std::net::SocketAddr;
use std::sync::Mutex;

use allocation_counter::measure;
use netlab::Namespace;
use ricochet_core::wire::{Data, Extras, Nak, Range};
use ricochet_core::{GroupId, StreamKey};
use testkit::wait_until;

use super::*;
use crate::error::TryRecvError;
use crate::joining::JoinOptions;
use crate::key::ClusterKey;
use crate::message::Event;
use crate::node::Node;
use crate::sender::Outbound;
use crate::view::{Member, Output, View};

/// Number of messages in one run.
const MESSAGES: u32 = 300;

/// Creates hosts at one bridge.
fn hosts<const N: usize>() -> ([Namespace; N], Namespace) {
    let switch = Namespace::create("switch").unwrap();
    switch.add_bridge("br0", 1500).unwrap();
    let hosts = std::array::from_fn(|at| {
        let (host, port) = (Namespace::create("host").unwrap(), format!("port{at}"));
        host.add_veth("eth0", &switch, &port, 1500).unwrap();
        switch.set_bridge(&port, "br0").unwrap();
        host.add_address("eth0", format!("10.9.0.{}/24", at + 1).parse().unwrap()).unwrap();
        host
    });
    (hosts, switch)
}

/// Maximum number of runs after the first ones in which buffers grow.
const GROWTHS_MAX: usize = 4;

/// Drops one data packet in seven.
fn lossy() -> impl FnMut(&[u8]) -> bool + Send {
    let mut seen = 0;
    move |datagram| {
        seen += u32::from(datagram[0] == 0xb1);
        datagram[0] == 0xb1 && seen % 7 == 0
    }
}

/// Allocations of a round: for packets and timers, and for the membership.
#[derive(Default)]
struct Allocated {
    packets: u64,
    membership: u64,
}

impl Driver {
    /// Runs one round of the node's thread, without sleep.
    fn run_round(&mut self, allocated: &mut Allocated) {
        allocated.packets += measure(|| {
            self.handle_packets().unwrap();
        })
        .count_total;
        allocated.membership += measure(|| {
            self.handle_membership();
        })
        .count_total;
        allocated.packets += measure(|| self.handle_timers()).count_total;
        std::thread::yield_now();
    }
}

#[test]
fn the_thread_of_the_node_allocates_nothing_for_packets_losses_and_timers() {
    if !netlab::privilege::namespaces_or_skip("allocations of the node's thread") {
        return;
    }
    let ([here, sending, repairing], _switch) = hosts();
    let builder = || Node::builder("eth0").key(ClusterKey::new([5; 32]));
    let first = sending.run(|| builder().start()).unwrap();
    let seeded = || builder().seed(first.address().to_string());
    let helper = repairing.run(|| seeded().start()).unwrap();
    let (mut driver, _) = here.run(|| seeded().lose(lossy()).prepare()).unwrap();
    let shared = Arc::clone(&driver.shared);
    // How many slots are in use at a time depends on the machine.
    for ring in [&shared.ring, &shared.repairs, &shared.requests, &shared.membership_ring] {
        ring.lock().unwrap().allocate();
    }
    if let Some(drain) = &mut driver.drain {
        let Drain { fresh, deferred, repairs, requests, membership, .. } = drain;
        [fresh, deferred, repairs, requests, membership].into_iter().for_each(crate::ring::Ring::allocate);
    }
    let handle = shared.join(&["g"], &JoinOptions::default()).unwrap();
    let _of_helper = helper.join("g").unwrap();
    let mut warming = Allocated::default();
    while first.members("g") < 2 || helper.members("g") < 1 || shared.members(GroupId::of_name("g")) < 1 {
        driver.run_round(&mut warming);
    }
    // Returns whether the members stayed the same: a new plan allocates.
    let mut run = |rounds: u32, allocated: &mut Allocated| {
        let (version, mut got) = (driver.membership.version, 0);
        for number in 0..MESSAGES {
            // A message that leaves no room for another in its packet.
            first.send("g", &[number as u8; 1_000]).unwrap();
            (0..rounds).for_each(|_| driver.run_round(allocated));
            got += drained(&handle.queue);
        }
        while got < MESSAGES {
            driver.run_round(allocated);
            got += drained(&handle.queue);
        }
        driver.membership.version == version
    };
    // Buffers are allocated when first needed. The first runs need all at once, so
    // that later runs never need more.
    (0..8).for_each(|_| {
        run(0, &mut warming);
    });
    (0..4).for_each(|_| {
        run(1, &mut warming);
    });
    // On a busy machine more packets may wait at once than in any run before, and a buffer grows. It doubles,
    // so this happens a few times at most, where an allocation for each packet would happen in each run.
    let (mut quiet, mut membership, mut growths) = (0, 0, Vec::new());
    while quiet < 8 {
        let mut allocated = Allocated::default();
        if run(1, &mut allocated) {
            if allocated.packets == 0 {
                quiet += 1;
            } else {
                growths.push(allocated.packets);
                quiet = 0;
            }
            assert!(growths.len() <= GROWTHS_MAX, "{growths:?} allocations for {MESSAGES} messages each");
        }
        membership += allocated.membership;
    }
    println!("the membership allocated {membership} times meanwhile");
    let status = shared.status();
    assert!(status.counts["repaired"] + status.counts["requested"] > 500, "{status:#?}");
    assert!(status.counts["repairs_sent"] > 100 && status.counts["repairs"] > 100, "{status:#?}");
}

/// Returns a node without threads.
fn at_rest() -> Driver {
    Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true).prepare().unwrap().0
}

#[test]
fn a_message_that_found_the_core_busy_leaves_with_the_batch() {
    let Driver { shared, mut batches, mut membership, .. } = at_rest();
    shared.ring.lock().unwrap().push(shared.address, None, None, b"no packet");
    let core = shared.core_for_node();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| shared.send(&Outbound::plain(GroupId(1), b"x"), None));
        assert_eq!(sending.join().unwrap(), Ok(0));
    });
    assert!(shared.outgoing.is_fresh(), "this thread has the core");
    drop(core);
    batches.process(&shared, &mut membership);
    assert_eq!((shared.outgoing.is_fresh(), shared.outgoing.len()), (false, 0));
}

#[test]
fn packets_are_delivered_before_requests_are_answered() {
    let mut driver = at_rest();
    let shared = Arc::clone(&driver.shared);
    let handle = shared.join(&["g"], &JoinOptions::default()).unwrap();
    while shared.core_for_node().node.groups().is_empty() {
        driver.handle_timers();
        std::thread::yield_now();
    }
    let key = StreamKey { sender: NodeId(77), group: GroupId::of_name("g") };
    let StreamKey { sender, group } = key;
    let (seq, extras, payload) = (0, Extras::NONE, &b"x"[..]);
    let (expires, fragment, joint) = (false, false, false);
    let data = Data { sender, group, seq, sender_seq: 0, expires, fragment, joint, extras, payload };
    let nak = Nak { from: NodeId(78), ranges: &[Range { key, first: seq, count: 1 }] };
    let mut bytes = [0; 100];
    let length = data.write(&mut bytes);
    shared.ring.lock().unwrap().push(shared.address, None, None, &bytes[..length]);
    let length = nak.write(&mut bytes);
    shared.requests.lock().unwrap().push(shared.address, None, None, &bytes[..length]);
    driver.batches.process(&shared, &mut driver.membership);
    assert_eq!(drained(&handle.queue), 1);
    assert_eq!(shared.status().counts["answered"], 1, "the packet was there before its request");
}

/// Takes the members from a list that the test changes.
struct Crowd {
    list: Arc<Mutex<Vec<Member>>>,
    members: Vec<Member>,
    version: u64,
}

impl View for Crowd {
    fn handle_datagram(&mut self, _: u64, _: SocketAddr, _: &[u8], _: &mut dyn Output) {}

    fn handle_timeout(&mut self, _: u64, _: &mut dyn Output) {
        let list = self.list.lock().unwrap();
        self.version += u64::from(*list != self.members);
        self.members.clone_from(&list);
    }

    fn poll_timeout(&self) -> Option<u64> {
        Some(0)
    }

    fn set_groups(&mut self, _: u64, _: &[GroupId], _: &mut dyn Output) {}

    fn leave(&mut self, _: u64, _: &mut dyn Output) {}

    fn version(&self) -> u64 {
        self.version
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        Box::new(self.members.iter())
    }
}

#[test]
fn plans_of_large_views_are_made_aside_and_the_last_view_counts() {
    let names: Vec<String> = (0..64).map(|number| format!("g{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut groups: Vec<GroupId> = names.iter().map(|name| GroupId::of_name(name)).collect();
    groups.sort_unstable();
    let groups: Arc<[GroupId]> = groups.into();
    let member = |number: u16| Member {
        id: NodeId(1_000 + u32::from(number)),
        address: ([127, 0, 0, 1], 20_000 + number).into(),
        groups: Arc::clone(&groups),
    };
    let list = Arc::new(Mutex::new((0..60).map(member).collect::<Vec<_>>()));
    let crowd = Crowd { list: Arc::clone(&list), members: Vec::new(), version: 0 };
    let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
    let (mut driver, _) = builder.view(|_| Ok(Box::new(crowd))).prepare().unwrap();
    let _handle = driver.shared.join(&names, &JoinOptions::default()).unwrap();
    let run_until = |driver: &mut Driver, members: usize| {
        wait_until("the plan has as many members", || {
            driver.run_round(&mut Allocated::default());
            let core = driver.shared.core_for_node();
            let regions = core.node.bins().regions();
            regions.iter().map(|region| regions.members(region).len()).sum::<usize>() == members
        });
    };
    run_until(&mut driver, 60);
    assert_eq!(driver.membership.planning.adopted, 0, "groups that the node joins take effect at once");
    for members in (40..60).rev() {
        list.lock().unwrap().truncate(members);
        (0..members % 4).for_each(|_| driver.run_round(&mut Allocated::default()));
    }
    run_until(&mut driver, 40);
    let adopted = driver.membership.planning.adopted;
    assert!((1..=20).contains(&adopted), "{adopted}");
    // A small plan is made at once.
    list.lock().unwrap().truncate(3);
    run_until(&mut driver, 3);
}

/// Empties the queue and returns the number of messages.
fn drained(queue: &crate::queue::Queue) -> u32 {
    let mut messages = 0;
    loop {
        match queue.try_pop() {
            Ok(Event::Message(_)) => messages += 1,
            Ok(Event::Lost(lost)) => panic!("{lost:?}"),
            Err(TryRecvError::Empty) => return messages,
            Err(error) => panic!("{error}"),
            Ok(other) => panic!("{other:?}"),
        }
    }
}
