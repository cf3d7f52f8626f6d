//! Nodes whose membership comes from the application.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use testkit::wait_until;

use crate::common::{LONG, alone, join_all, meet, numbers};
use ricochet::view::{GroupId, Me, Member, News, Output, Registered, Registration, View};
use ricochet::{Builder, ClusterKey, Node};

type Store = Arc<Mutex<BTreeMap<SocketAddr, Registration>>>;

/// A provider that has the other nodes from a store of this process.
struct OfStore {
    view: Registered,
    store: Store,
    next_look_us: u64,
}

impl OfStore {
    fn make(store: &Store, me: Me) -> Box<dyn View + Send> {
        let view = Registered::new(me, 0).unwrap();
        store.lock().unwrap().insert(me.address, view.registration());
        Box::new(Self { view, store: Arc::clone(store), next_look_us: 0 })
    }
}

impl View for OfStore {
    fn handle_datagram(&mut self, _: u64, from: SocketAddr, _: &[u8], _: &mut dyn Output) {
        panic!("expected that the node answers the questions of others, saw a datagram of {from}");
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output) {
        self.next_look_us = now_us + 20_000;
        let all = self.store.lock().unwrap().values().cloned().collect();
        self.view.handle_news(now_us, [News::All(all)]);
        self.view.handle_timeout(now_us, out);
    }

    fn poll_timeout(&self) -> Option<u64> {
        Some(self.next_look_us)
    }

    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output) {
        self.view.set_groups(now_us, groups, out);
        let registration = self.view.registration();
        self.store.lock().unwrap().insert(registration.address, registration);
    }

    fn leave(&mut self, now_us: u64, out: &mut dyn Output) {
        self.store.lock().unwrap().remove(&self.view.registration().address);
        self.view.leave(now_us, out);
    }

    fn version(&self) -> u64 {
        self.view.version()
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        self.view.members()
    }
}

fn here() -> Builder {
    Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true)
}

fn messages_arrive(configure: impl Fn(Builder) -> Builder) {
    let store = Store::default();
    let start = || {
        let store = Arc::clone(&store);
        configure(here()).view(move |me| Ok(OfStore::make(&store, me))).start().unwrap()
    };
    let mut nodes = vec![start(), start(), start()];
    let subscriptions = join_all(&nodes, "g");
    for (at, sender) in nodes.iter().enumerate() {
        sender.send("g", &(at as u32).to_be_bytes()).unwrap();
        for (other, node) in nodes.iter().enumerate().filter(|&(other, _)| other != at) {
            assert_eq!(numbers(node, &subscriptions[other], 1), [at as u32]);
        }
    }
    // A node that is closed leaves, and a new one at another port comes.
    drop(nodes.pop());
    wait_until("a node has left", || nodes.iter().all(|node| node.members("g") == 1));
    nodes.push(start());
    let _joined = nodes[2].join("g").unwrap();
    meet(&nodes, "g");
}

#[test]
fn the_members_can_come_from_the_application() {
    messages_arrive(|builder| builder);
}

#[test]
fn nodes_whose_provider_sends_nothing_prove_their_lives_under_a_cluster_key() {
    let key = ClusterKey::new([7; 32]);
    messages_arrive(|builder| builder.key(key.clone()));
}

/// The store never takes a node for failed, and nobody is left behind for a minute.
#[test]
fn messages_go_on_while_a_reader_is_silent_and_a_member_still() {
    const MESSAGES: u32 = 2_000;
    let store = Store::default();
    let is_cut_off = Arc::new(AtomicBool::new(false));
    let start = |at: u32| {
        let (store, is_cut_off) = (Arc::clone(&store), Arc::clone(&is_cut_off));
        let lose = move |_: &[u8]| at == 2 && is_cut_off.load(Ordering::SeqCst);
        let builder = here().silence(Duration::from_secs(60)).queue(4_096).lose(lose);
        builder.view(move |me| Ok(OfStore::make(&store, me))).start().unwrap()
    };
    let nodes = [start(0), start(1), start(2)];
    let subscriptions = join_all(&nodes, "g");
    // The sender does not run ahead of a reader that has never reported.
    nodes[0].sender("g").unwrap().send_held(&alone(0), 2, Duration::from_secs(60)).unwrap();
    assert_eq!(numbers(&nodes[2], &subscriptions[2], 1), [0]);
    is_cut_off.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..MESSAGES).for_each(|number| assert!(nodes[0].send("g", &alone(number)).is_ok())));
        let got = numbers(&nodes[1], &subscriptions[1], MESSAGES as usize);
        assert_eq!(got.len(), MESSAGES as usize);
    });
    let flow = nodes[0].status().flow;
    assert_eq!((flow.left_behind, nodes[0].members("g")), (0, 2), "{flow:?}");
    // All that it has missed is kept for it.
    is_cut_off.store(false, Ordering::SeqCst);
    let mut missed = numbers(&nodes[2], &subscriptions[2], MESSAGES as usize - 1);
    missed.sort_unstable();
    assert!(missed.into_iter().eq(1..MESSAGES));
}

#[test]
fn a_provider_that_fails_or_is_one_of_two_ends_the_start() {
    let failed = here().view(|_| Err("no room in the registry".into())).start().unwrap_err().to_string();
    assert_eq!(failed, "membership: no room in the registry");
    let store = Store::default();
    let make = move |me: Me| Ok(OfStore::make(&store, me));
    let both = here().seed("127.0.0.1:7900").view(make).start().unwrap_err().to_string();
    assert!(both.contains("saw a view of the program and `membership.seeds`"), "{both}");
    assert!(here().start().unwrap().wait_for_members("g", 0, LONG));
}
