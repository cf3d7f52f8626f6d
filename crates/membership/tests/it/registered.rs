//! A registry in virtual time: nodes register with leases, and the registry fails, comes back, and forgets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use membership::conformance::{Cluster, address, check};
use membership::counters::Dropped;
use membership::{Me, Member, News, Output, OwnNews, Registered, Registration, View};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::{GroupId, NodeId};

use crate::common::SECOND_US;

const LEASE_US: u64 = 6 * SECOND_US;
const KEEP_ALIVE_US: u64 = 2 * SECOND_US;
const LOOK_US: u64 = 50_000;

/// Entries with the ends of their leases, and all changes since the registry began.
#[derive(Default)]
struct Store {
    entries: BTreeMap<SocketAddr, (Registration, u64)>,
    changes: Vec<News>,
    is_away: bool,
    /// Rises when all connections are cut.
    epoch: u64,
    /// Changes before this one are forgotten.
    compacted: usize,
}

impl Store {
    fn put(&mut self, now_us: u64, registration: Registration) {
        let until_us = now_us + LEASE_US;
        let before = self.entries.insert(registration.address, (registration.clone(), until_us));
        if before.is_none_or(|(before, _)| before != registration) {
            self.changes.push(News::Set(registration));
        }
    }

    fn remove(&mut self, address: SocketAddr) {
        if self.entries.remove(&address).is_some() {
            self.changes.push(News::Gone(address));
        }
    }

    fn expire(&mut self, now_us: u64) {
        let expired = self.entries.iter().filter(|(_, (_, until_us))| *until_us <= now_us);
        let expired: Vec<SocketAddr> = expired.map(|(&address, _)| address).collect();
        expired.into_iter().for_each(|address| self.remove(address));
    }
}

/// A node whose driver is a part of the test.
struct Simulated {
    view: Registered,
    store: Rc<RefCell<Store>>,
    /// Epoch of the connection and the next change, if there is one.
    connection: Option<(u64, usize)>,
    next_look_us: u64,
    next_keep_alive_us: u64,
    left: bool,
}

impl Simulated {
    fn look(&mut self, now_us: u64) {
        let mut store = self.store.borrow_mut();
        if store.is_away {
            if self.connection.take().is_some() {
                self.view.handle_news(now_us, [News::Away]);
            }
            return;
        }
        let end = store.changes.len();
        match self.connection.replace((store.epoch, end)) {
            Some((epoch, next)) if epoch == store.epoch && next >= store.compacted => {
                self.view.handle_news(now_us, store.changes[next..].to_vec());
            }
            _ => {
                let all = store.entries.values().map(|(entry, _)| entry.clone()).collect();
                self.view.handle_news(now_us, [News::All(all)]);
            }
        }
        let is_missing = self.view.take_own_news() == Some(OwnNews::Missing);
        if is_missing || now_us >= self.next_keep_alive_us {
            self.next_keep_alive_us = now_us + KEEP_ALIVE_US;
            store.put(now_us, self.view.registration());
        }
    }
}

impl View for Simulated {
    fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output) {
        self.view.handle_datagram(now_us, from, datagram, out);
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output) {
        if self.left {
            return;
        }
        if now_us >= self.next_look_us {
            self.next_look_us = now_us + LOOK_US;
            self.look(now_us);
        }
        self.view.handle_timeout(now_us, out);
    }

    fn poll_timeout(&self) -> Option<u64> {
        let due = [Some(self.next_look_us), self.view.poll_timeout()];
        due.into_iter().flatten().min().filter(|_| !self.left)
    }

    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output) {
        self.view.set_groups(now_us, groups, out);
        self.next_keep_alive_us = now_us;
    }

    fn leave(&mut self, now_us: u64, out: &mut dyn Output) {
        self.left = true;
        let mut store = self.store.borrow_mut();
        if !store.is_away {
            store.remove(self.view.registration().address);
        }
        self.view.leave(now_us, out);
    }

    fn version(&self) -> u64 {
        self.view.version()
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        self.view.members()
    }
}

/// Nodes with a registry that is away from time to time.
struct OfRegistry {
    store: Rc<RefCell<Store>>,
    rng: ChaCha8Rng,
    /// Whether the registry fails at all.
    fails: bool,
    next_fault_us: u64,
}

impl OfRegistry {
    fn new(seed: u64, fails: bool) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { store: Rc::default(), rng, fails, next_fault_us: 12 * SECOND_US }
    }
}

impl Cluster for OfRegistry {
    fn start(&mut self, now_us: u64, _: usize, me: Me, _: u64) -> Box<dyn View> {
        Box::new(Simulated {
            view: Registered::new(me, LEASE_US).unwrap(),
            store: Rc::clone(&self.store),
            connection: None,
            next_look_us: now_us,
            next_keep_alive_us: now_us,
            left: false,
        })
    }

    fn settles_us(&self) -> u64 {
        400 * SECOND_US
    }

    fn advance(&mut self, now_us: u64) {
        let mut store = self.store.borrow_mut();
        if self.fails && now_us >= self.next_fault_us {
            self.next_fault_us = now_us + (3 + self.rng.next_u64() % 12) * SECOND_US;
            if store.is_away {
                // New leases begin, as those of etcd do when it has a new leader.
                store.entries.values_mut().for_each(|(_, until_us)| *until_us = now_us + LEASE_US);
                store.epoch += 1;
                store.compacted = store.changes.len();
                if self.rng.next_u64().is_multiple_of(3) {
                    store.entries.clear();
                }
            }
            store.is_away = !store.is_away;
        }
        if !store.is_away {
            store.expire(now_us);
        }
    }
}

#[test]
fn a_registry_keeps_what_a_view_promises() {
    (0..10).for_each(|seed| check(&mut OfRegistry::new(seed, false), seed));
}

/// Members stay while the registry is away, when it has lost all entries, and when it fails again at once:
/// the versions do not even rise.
#[test]
fn a_registry_that_fails_and_forgets_keeps_what_a_view_promises() {
    (0..30).for_each(|seed| check(&mut OfRegistry::new(seed, true), seed));
}

const GRACE_US: u64 = 10 * SECOND_US;

fn view() -> Registered {
    Registered::new(Me { id: NodeId(1), address: address(0), life: 50 }, GRACE_US).unwrap()
}

fn entry(place: usize, id: u32, life: u64) -> Registration {
    Registration { address: address(place), id: NodeId(id), life, groups: [GroupId(3), GroupId(7)].into() }
}

fn ids(view: &Registered) -> Vec<u32> {
    view.members().map(|member| member.id.0).collect()
}

struct Nowhere;

impl Output for Nowhere {
    fn send(&mut self, to: SocketAddr, _: &[u8]) {
        panic!("expected no datagram, saw one to {to}");
    }
}

#[test]
fn nodes_that_the_registry_lacks_when_it_is_back_have_time_to_register_again() {
    let mut view = view();
    view.handle_news(0, [News::All(vec![view.registration(), entry(1, 2, 60), entry(2, 3, 60)])]);
    assert_eq!(view.poll_timeout(), None);
    view.handle_news(SECOND_US, [News::Away, News::All(vec![])]);
    assert_eq!((view.poll_timeout(), ids(&view)), (Some(SECOND_US + GRACE_US), vec![2, 3]));
    // It fails again: the time does not go on until it is back.
    view.handle_news(2 * SECOND_US, [News::Away]);
    view.handle_timeout(100 * SECOND_US, &mut Nowhere);
    assert_eq!((view.poll_timeout(), ids(&view)), (None, vec![2, 3]));
    view.handle_news(100 * SECOND_US, [News::All(vec![]), News::Set(entry(2, 3, 60))]);
    let version = view.version();
    // A list in between does not prolong the time.
    view.handle_news(105 * SECOND_US, [News::All(vec![entry(2, 3, 60)])]);
    view.handle_timeout(110 * SECOND_US - 1, &mut Nowhere);
    assert_eq!((view.version(), ids(&view)), (version, vec![2, 3]));
    view.handle_timeout(110 * SECOND_US, &mut Nowhere);
    assert_eq!((view.version(), ids(&view), view.poll_timeout()), (version + 1, vec![3], None));
    view.handle_news(111 * SECOND_US, [News::Gone(address(2))]);
    assert_eq!(ids(&view), [0; 0]);
}

#[test]
fn nodes_that_a_registry_removes_after_a_stall_have_time_to_register_again() {
    let mut view = view();
    view.handle_news(0, [News::All(vec![entry(1, 2, 60), entry(2, 3, 60), entry(3, 4, 60)])]);
    view.handle_news(1, [News::Gone(address(3))]);
    assert_eq!(ids(&view), [2, 3], "it answers, and is believed");
    view.on_stall(SECOND_US);
    let version = view.version();
    view.handle_news(2 * SECOND_US, [News::Gone(address(1)), News::Gone(address(2))]);
    view.handle_news(3 * SECOND_US, [News::Set(entry(1, 2, 60))]);
    view.handle_timeout(12 * SECOND_US - 1, &mut Nowhere);
    assert_eq!((ids(&view), view.version()), (vec![2, 3], version));
    view.handle_timeout(12 * SECOND_US, &mut Nowhere);
    assert_eq!((ids(&view), view.poll_timeout()), (vec![2], None));
    view.handle_news(13 * SECOND_US, [News::Gone(address(1))]);
    assert_eq!(ids(&view), [0; 0], "the doubt is over");
}

#[test]
fn the_driver_learns_what_became_of_the_own_entry() {
    let mut view = view();
    view.handle_news(0, [News::All(vec![entry(1, 2, 60)])]);
    assert_eq!(view.take_own_news(), Some(OwnNews::Missing));
    assert_eq!(view.take_own_news(), None);
    view.handle_news(1, [News::Set(view.registration())]);
    assert_eq!(view.take_own_news(), Some(OwnNews::Stored));
    view.handle_news(2, [News::Set(entry(0, 9, 40))]);
    assert_eq!(view.take_own_news(), Some(OwnNews::Missing), "an earlier life is overwritten");
    view.handle_news(3, [News::Gone(address(0))]);
    assert_eq!(view.take_own_news(), Some(OwnNews::Missing));
    view.handle_news(4, [News::Set(entry(0, 9, 70))]);
    assert_eq!(view.take_own_news(), Some(OwnNews::Taken(NodeId(9))));
    view.handle_news(5, [News::All(vec![view.registration(), entry(1, 2, 60)])]);
    assert_eq!(view.take_own_news(), Some(OwnNews::Stored), "also in a list");
    assert_eq!(ids(&view), [2]);
}

#[test]
fn entries_that_no_node_can_have_are_dropped_and_counted() {
    let mut view = view();
    let unsorted = Registration { groups: [GroupId(7), GroupId(3)].into(), ..entry(1, 2, 60) };
    let nowhere = Registration { address: "0.0.0.0:7".parse().unwrap(), ..entry(1, 2, 60) };
    let many = Registration { groups: (0..65_537).map(GroupId).collect(), ..entry(1, 2, 60) };
    let wrong = [
        (entry(1, 1, 60), Dropped::DuplicateId),
        (entry(1, 2, u64::MAX), Dropped::Future),
        (unsorted, Dropped::CheckMismatch),
        (nowhere, Dropped::NotMember),
        (Registration { address: "[fd00::1]:7".parse().unwrap(), ..entry(1, 2, 60) }, Dropped::NotMember),
        (many, Dropped::GroupsMax),
    ];
    for (entry, reason) in wrong {
        let before = view.counts().dropped.count(reason);
        view.handle_news(0, [News::Set(entry)]);
        assert_eq!((view.counts().dropped.count(reason), ids(&view)), (before + 1, vec![]), "{reason}");
    }
    // Of two entries with one id, the later life counts, also when it goes.
    view.handle_news(0, [News::Set(entry(1, 2, 60)), News::Set(entry(2, 2, 70)), News::Set(entry(3, 2, 65))]);
    assert_eq!(view.members().map(|member| member.address).collect::<Vec<_>>(), [address(2)]);
    view.handle_news(0, [News::Gone(address(2))]);
    assert_eq!(view.members().map(|member| member.address).collect::<Vec<_>>(), [address(3)]);
}

#[test]
fn a_registry_with_too_many_entries_costs_no_more_memory() {
    let mut view = view();
    let at = |number: u32| SocketAddr::from(((number + 1).to_be_bytes(), 7901));
    let entry =
        |number| Registration { address: at(number), id: NodeId(number + 100), life: 9, groups: [].into() };
    view.handle_news(0, (0..5_000).map(|number| News::Set(entry(number))));
    assert_eq!(view.members().count(), membership::REGISTERED_MAX);
    assert_eq!(view.counts().dropped.count(Dropped::MembersFull), 5_000 - membership::REGISTERED_MAX as u64);
    view.handle_news(0, (0..5_000).map(|number| News::Gone(at(number))));
    assert_eq!((view.members().count(), view.memory_bytes()), (0, 0));
}
