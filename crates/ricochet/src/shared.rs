//! State that the node's thread and the application's threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashSet;
use ricochet_core::message::Origin;
use ricochet_core::wire::Kind;
use ricochet_core::{GroupConfig, GroupId, Groups, Node as CoreNode, NodeId, View};

use crate::backpressure::Backpressure;
use crate::clock;
use crate::config::Config;
use crate::error::RecvError;
use crate::ip_groups::IpGroups;
use crate::joining::SubscriptionHandle;
use crate::key::KeyRing;
use crate::outgoing::Outgoing;
use crate::outward::Outward;
use crate::patterns::{Names, Patterns};
use crate::planning::Planning;
use crate::published::Published;
use crate::registry::Link;
use crate::replay::Windows;
use crate::ring::{Ring, Slot};
use crate::sightings::Sightings;
use crate::sleep::Sleep;
use crate::tasks::CoreGuard;
use crate::transmitter::Transmitter;
use crate::wake::Waker;

/// The core and its output. One lock protects both; it is held while a batch of packets passes the core, and
/// not while they are sealed or sent.
pub(crate) struct Core {
    pub(crate) node: CoreNode,
    pub(crate) out: Outward,
    /// Changes of this node's groups that the core does not know yet.
    pub(crate) changes: Changes,
}

/// Changes of this node's own groups. The core gets them together, because each new plan empties its bins.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Time of the first change.
    pub(crate) since_us: Option<u64>,
    /// Groups that the node joined and the core does not know yet.
    pub(crate) joined: HashSet<GroupId>,
    /// Groups that the node left and the core still has.
    pub(crate) left: HashSet<GroupId>,
}

/// State shared by all handles and threads of one node.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) address: std::net::SocketAddr,
    /// Count of forks in the process that started the node.
    pub(crate) forks: u64,
    core: Mutex<Core>,
    /// Number of application threads that wait for the core. The node's thread yields
    /// to them between two batches.
    waiting: AtomicUsize,
    /// The groups of this node, for the filter.
    pub(crate) joined: RwLock<HashSet<GroupId>>,
    /// Locked before the core where both are needed. Its holder alone joins or leaves groups.
    pub(crate) ip_groups: Mutex<IpGroups>,
    /// Packets between the sockets and the core.
    pub(crate) ring: Mutex<Ring>,
    /// Notified when the ring has room again, for a draining thread.
    pub(crate) ring_has_room: Condvar,
    /// Repairs, which yield to packets.
    pub(crate) repairs: Mutex<Ring>,
    /// Requests and questions, which backpressure does not delay: they deliver nothing to subscriptions.
    pub(crate) requests: Mutex<Ring>,
    /// Datagrams of the membership, which backpressure does not delay.
    pub(crate) membership_ring: Mutex<Ring>,
    /// The counters of the datagrams that came, with a cluster key.
    pub(crate) windows: Mutex<Windows>,
    /// The cluster keys, if there are any.
    pub(crate) keys: Option<Arc<KeyRing>>,
    /// Messages on their way to the core.
    pub(crate) outgoing: Outgoing,
    /// Datagrams on their way from the core to the socket.
    pub(crate) transmitter: Transmitter,
    pub(crate) backpressure: Arc<Backpressure>,
    /// Members whose multicast this node hears.
    pub(crate) sightings: Mutex<Sightings>,
    /// Index of the interface in use.
    pub(crate) interface: AtomicU32,
    pub(crate) sleep: Sleep,
    pub(crate) closing: AtomicBool,
    failed: OnceLock<String>,
    /// State of the node's threads for the status.
    pub(crate) published: Mutex<Published>,
    pub(crate) members_changed: Condvar,
    pub(crate) started_us: u64,
    /// Subscription to the group of replies to this node's requests.
    pub(crate) inbox: Mutex<Option<SubscriptionHandle>>,
    /// Names of the groups that this node has joined or sends to.
    pub(crate) names: Mutex<Names>,
    pub(crate) patterns: Mutex<Patterns>,
    /// Number of the next request.
    pub(crate) next_request: AtomicU64,
    /// State of the registry that the members come from, if they come from one.
    pub(crate) registry: Option<Arc<Link>>,
}

impl Shared {
    pub(crate) fn publish_windows(&self, windows: crate::course::Published) {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).windows = Some(windows);
    }
}

/// Reason why the core is not available.
#[derive(Clone, Debug)]
pub(crate) enum Gone {
    /// The node was closed.
    Closed,
    /// The node's thread, or one that sent, has panicked, or the process was forked.
    Failed(String),
}

/// Parts of a [`Shared`].
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) interface: u32,
    pub(crate) forks: u64,
    pub(crate) core: Core,
    pub(crate) outgoing: Outgoing,
    pub(crate) transmitter: Transmitter,
    pub(crate) ip_groups: IpGroups,
    pub(crate) ring: Ring,
    pub(crate) repairs: Ring,
    pub(crate) requests: Ring,
    pub(crate) membership_ring: Ring,
    pub(crate) keys: Option<Arc<KeyRing>>,
    pub(crate) waker: Waker,
    /// Random number of the first request.
    pub(crate) first_request: u64,
    pub(crate) registry: Option<Arc<Link>>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { config, id, address, interface, core, ip_groups, keys, waker, first_request, .. } = parts;
        let Parts { ring, repairs, requests, membership_ring, outgoing, transmitter, registry, .. } = parts;
        Arc::new(Self {
            config,
            id,
            address,
            forks: parts.forks,
            core: Mutex::new(core),
            outgoing,
            transmitter,
            waiting: AtomicUsize::new(0),
            joined: RwLock::new(HashSet::new()),
            ip_groups: Mutex::new(ip_groups),
            ring: Mutex::new(ring),
            ring_has_room: Condvar::new(),
            repairs: Mutex::new(repairs),
            requests: Mutex::new(requests),
            membership_ring: Mutex::new(membership_ring),
            windows: Mutex::default(),
            keys,
            sightings: Mutex::default(),
            backpressure: Arc::new(Backpressure::new(waker.clone())),
            interface: AtomicU32::new(interface),
            sleep: Sleep::new(waker),
            closing: AtomicBool::new(false),
            failed: OnceLock::new(),
            published: Mutex::new(Published::default()),
            members_changed: Condvar::new(),
            started_us: clock::now_us(),
            inbox: Mutex::default(),
            names: Mutex::default(),
            patterns: Mutex::default(),
            next_request: AtomicU64::new(first_request),
            registry,
        })
    }

    /// Locks the core for an application's thread, unless the node has ended.
    pub(crate) fn core(&self) -> Result<CoreGuard<'_>, Gone> {
        self.check_process()?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let failure = || self.failed().unwrap_or_else(|| "a thread panicked within the core".to_owned());
        match core {
            // Checked while the core is locked: `end` sets both before it locks the core.
            Ok(_) if self.failed.get().is_some() => Err(Gone::Failed(failure())),
            Ok(_) if self.closing.load(Ordering::SeqCst) => Err(Gone::Closed),
            Ok(core) => Ok(CoreGuard::new(core)),
            Err(_) => Err(Gone::Failed(failure())),
        }
    }

    /// Locks the core for an application's thread, unless another thread has it or the node has ended.
    pub(crate) fn core_if_free(&self) -> Option<CoreGuard<'_>> {
        self.check_process().ok()?;
        let core = CoreGuard::new(self.core.try_lock().ok()?);
        self.ended().is_none().then_some(core)
    }

    /// Returns why the node has ended, if it has.
    pub(crate) fn ended(&self) -> Option<Gone> {
        if let Err(forked) = self.check_process() {
            return Some(forked.into());
        }
        if let Some(why) = self.failed.get() {
            return Some(Gone::Failed(why.clone()));
        }
        self.closing.load(Ordering::SeqCst).then_some(Gone::Closed)
    }

    /// Locks the core even if poisoned, for shutdown and statistics.
    pub(crate) fn core_ignoring_poison(&self) -> CoreGuard<'_> {
        CoreGuard::new(self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the core for the node's thread.
    ///
    /// # Panics
    /// If another thread panicked while it held the lock.
    pub(crate) fn core_for_node(&self) -> CoreGuard<'_> {
        let core = self.core.lock();
        CoreGuard::new(core.unwrap_or_else(|_| panic!("another thread panicked within the core")))
    }

    /// Releases the core, sends what it has put out, and wakes tasks.
    pub(crate) fn release(&self, mut core: CoreGuard<'_>) {
        core.flush_totals();
        self.transmitter.hand_over(&mut core.out.datagrams);
        let tasks = core.unlock();
        if self.transmitter.send() {
            self.sleep.wake_before(1);
        }
        tasks.wake();
    }

    /// Lets waiting application threads lock the core before the node's thread locks it again.
    pub(crate) fn yield_core(&self) {
        const YIELDS_MAX: usize = 64;
        for _ in 0..YIELDS_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Returns the reason why the node has failed, if it has.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    /// Marks the node as ended, and ends all waits. `failed` is the reason, if a thread has failed.
    pub(crate) fn end(&self, failed: Option<String>) {
        let reason = match failed {
            Some(why) => {
                let _ = self.failed.set(why.clone());
                RecvError::Failed(why)
            }
            None => RecvError::Closed,
        };
        self.closing.store(true, Ordering::SeqCst);
        let core = self.core_ignoring_poison();
        let queues = core.out.consumers.iter().flatten().map(|consumer| &consumer.queue);
        let queues = queues.chain(core.out.requests.values());
        queues.for_each(|queue| core.out.tasks.borrow_mut().add(queue.close(reason.clone())));
        drop(core);
        // A thread that waits for members has either seen `closing`, or waits already and gets this
        // notification.
        drop(self.published.lock().unwrap_or_else(PoisonError::into_inner));
        self.members_changed.notify_all();
        self.ring_has_room.notify_all();
        self.outgoing.wake_all();
        let held = Arc::clone(&self.core_ignoring_poison().out.held);
        held.on_change().wake();
    }

    /// Waits until the members that this node has sent to are known to hear its multicast, or to be deaf.
    /// Those found deaf have some time to request what they missed.
    pub(crate) fn wait_for_tests(&self, timeout: Duration) {
        /// Time for which a member may request what it missed, in microseconds.
        const REQUESTS_US: u64 = 500_000;
        let sent_to = self.core_ignoring_poison().out.sent_to;
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |published: &mut Published| {
            (published.is_testing || published.tested != sent_to) && self.ended().is_none()
        };
        // The node's thread looks at least when its announcement is due.
        let waited = self.members_changed.wait_timeout_while(published, timeout, is_open);
        let deaf_us = waited.unwrap_or_else(PoisonError::into_inner).0.deaf_us;
        let until_us = deaf_us.map_or(0, |deaf_us| deaf_us + REQUESTS_US);
        std::thread::sleep(Duration::from_micros(until_us.saturating_sub(clock::now_us())));
    }

    /// Closes the sockets once the threads have ended. Subscriptions and senders may live
    /// longer, and must not keep the port.
    pub(crate) fn close_sockets(&self) {
        self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner).close();
        self.transmitter.close();
    }
}

impl Core {
    /// Takes a datagram from the ring.
    pub(crate) fn handle_datagram(&mut self, now_us: u64, slot: &Slot) {
        let (datagram, from) = (slot.datagram(), slot.from());
        self.out.now_us = now_us;
        let origin = slot.peek().map_or(Origin::Stranger, |peek| {
            // The answer to a stranger goes where its request came from, and is short.
            let is_answered = matches!(peek.kind, Kind::Nak | Kind::Question);
            self.out.reply_to = is_answered.then_some(from);
            self.out.addresses.origin(now_us, &peek, from)
        });
        self.node.handle_datagram(now_us, origin, datagram, &mut self.out);
        self.out.reply_to = None;
        self.end_catch_ups(now_us);
    }

    /// Returns whether a datagram belongs to a group that the node has joined and the core does not know yet.
    pub(crate) fn is_of_new_group(&self, slot: &Slot) -> bool {
        if self.changes.joined.is_empty() {
            return false;
        }
        slot.peek()
            .and_then(|peek| peek.packet)
            .is_some_and(|(group, _)| self.changes.joined.contains(&group))
    }

    /// Handles all timers that are due.
    pub(crate) fn handle_timeout(&mut self, now_us: u64) {
        self.out.now_us = now_us;
        if self.node.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            self.node.handle_timeout(now_us, &mut self.out);
            self.end_catch_ups(now_us);
        }
        self.out.handle_timeout();
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        [self.node.poll_timeout(), self.out.fifo_due_us, self.out.totals.due_us()].into_iter().flatten().min()
    }

    /// Applies the changes of this node's groups and a view. If the groups stay, the plan for a large view is
    /// made aside.
    pub(crate) fn regroup(&mut self, now_us: u64, view: &View, planning: &mut Planning, waker: &Waker) {
        self.out.now_us = now_us;
        if self.changes.since_us.is_none() {
            if planning.begin(&self.node, view, waker) {
                self.node.learn_view(view);
            } else {
                self.node.change_view(view, &mut self.out);
            }
            return self.out.totals.change_view(now_us, view);
        }
        let Changes { left, .. } = std::mem::take(&mut self.changes);
        let joined = &self.out.groups;
        for fifo in self.out.consumers.iter_mut().flatten().filter_map(|consumer| consumer.fifo.as_mut()) {
            fifo.forget(|key| left.contains(&key.group) || !joined.contains_key(&key.group));
        }
        // The core forgets the history of a group that the node left and joined again.
        if left.iter().any(|id| joined.contains_key(id)) {
            let groups = self.groups_of_core(|id| !left.contains(id));
            self.node.change_groups(groups, view, &mut self.out);
        }
        let groups = self.groups_of_core(|_| true);
        self.node.change_groups(groups, view, &mut self.out);
        self.begin_catch_ups(now_us);
        for (&id, joined) in &self.out.groups {
            self.node.set_lifetime(id, joined.lifetime_us);
        }
        self.out.totals.change_view(now_us, view);
    }

    fn groups_of_core(&self, wanted: impl Fn(&GroupId) -> bool) -> Groups {
        let joined = self.out.groups.iter().filter(|(id, _)| wanted(id));
        let configs: Vec<_> = joined.map(|(&id, joined)| GroupConfig { id, c: joined.c }).collect();
        // Each group was checked against the others when the node joined it.
        Groups::new(configs).expect("the groups of a node are distinct")
    }
}

/// Packets that the node's thread has taken from the ring.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) waiting: VecDeque<Slot>,
    /// Slots of processed packets, which go back to the ring.
    pub(crate) done: Vec<Slot>,
}

#[cfg(test)]
mod tests {
    use ricochet_core::Seq;
    use ricochet_core::message::{Message as CoreMessage, Output as _};

    use super::*;
    use crate::error::{JoinError, SendError};
    use crate::joining::{Entrant, JoinOptions};
    use crate::node::Node;
    use crate::past::Start;
    use crate::sender::Outbound;

    #[test]
    fn a_thread_that_waits_for_the_core_while_the_node_ends_gets_an_error() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = &driver.shared;
        std::thread::scope(|scope| {
            let core = shared.core_for_node();
            let joining = scope.spawn(|| shared.join(&["g"], &JoinOptions::default()).map(drop));
            while shared.waiting.load(Ordering::Relaxed) < 1 {
                std::thread::yield_now();
            }
            // The node's thread, which ends, locks the core before them and closes all queues.
            shared.closing.store(true, Ordering::SeqCst);
            drop(core);
            assert!(matches!(joining.join().unwrap(), Err(JoinError::Closed)));
            let sent = shared.send(&Outbound::plain(GroupId(1), b"x"), None);
            assert_eq!(sent, Err(SendError::Closed));
        });
        assert_eq!(shared.ip_groups.lock().unwrap().len(), 0);
    }

    /// A task that notes whether the locks of the node are free when it is woken.
    struct Looker {
        shared: Arc<Shared>,
        were_free: Mutex<Vec<bool>>,
    }

    impl std::task::Wake for Looker {
        fn wake(self: Arc<Self>) {
            let is_free = self.shared.core.try_lock().is_ok() && self.shared.ip_groups.try_lock().is_ok();
            self.were_free.lock().unwrap().push(is_free);
        }
    }

    #[test]
    fn tasks_are_woken_when_the_core_is_free() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let shared = Arc::clone(&driver.shared);
        let handle = shared.join(&["g"], &JoinOptions::default()).unwrap();
        let looker = Arc::new(Looker { shared: Arc::clone(&shared), were_free: Mutex::default() });
        let task = std::task::Waker::from(Arc::clone(&looker));
        let outbound = Outbound::plain(GroupId::of_name("g"), b"x");
        let woken = || std::mem::take(&mut *looker.were_free.lock().unwrap());
        // A message comes.
        assert!(handle.queue.poll_pop(&task).is_pending());
        let mut core = shared.core_for_node();
        core.out.deliver(&CoreMessage::new(NodeId(9), outbound.group, Seq::first_seen(0), b"x"));
        shared.release(core);
        assert_eq!(woken(), [true]);
        assert!(handle.queue.poll_pop(&task).is_ready());
        // A subscription that waits joins another group, and gets what the node keeps of it.
        let kept = shared.join(&["kept"], &JoinOptions::default()).unwrap();
        assert!(handle.queue.poll_pop(&task).is_pending());
        let options = JoinOptions { from: Start::Last(1), ..JoinOptions::default() };
        let group = (GroupId::of_name("kept"), Arc::from("kept"));
        shared.enter(Entrant::Known(handle.consumer, &handle.queue), &[group], &options).unwrap();
        assert_eq!(woken(), [true]);
        while handle.queue.try_pop().is_ok() {}
        shared.leave(&kept);
        // Members report what they hold.
        let wait = shared.wait_for_holders(&outbound, 0, 1).unwrap();
        assert!(wait.poll(&task).is_pending());
        let mut core = shared.core_for_node();
        core.out.on_held(outbound.group, 0);
        shared.release(core);
        assert_eq!(woken(), [true]);
        // There is room for further messages.
        let mut core = shared.core_for_node();
        while shared.poll_send(&outbound, &task).is_ok() {}
        core.pass_on(clock::now_us(), &shared.outgoing);
        shared.release(core);
        assert_eq!(woken(), [true]);
        // The node ends.
        assert!(handle.queue.poll_pop(&task).is_pending() && wait.poll(&task).is_pending());
        shared.end(None);
        assert_eq!(woken(), [true; 2]);
    }

    #[test]
    fn a_wait_until_messages_are_sent_ends_with_the_node() {
        for failed in [None, Some("a fault".to_owned())] {
            let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
            let (driver, _) = builder.prepare().unwrap();
            let shared = &driver.shared;
            std::thread::scope(|scope| {
                // The message waits, because another thread has the core.
                let core = shared.core_for_node();
                let sending = scope.spawn(|| shared.send(&Outbound::plain(GroupId(1), b"x"), None));
                assert_eq!(sending.join().unwrap(), Ok(0));
                drop(core);
                let start_us = clock::now_us();
                let waiting = scope.spawn(|| shared.wait_until_sent(Duration::from_secs(60)));
                std::thread::sleep(Duration::from_millis(20));
                shared.end(failed.clone());
                assert_eq!(waiting.join().unwrap(), 1);
                assert!(clock::now_us() - start_us < 30_000_000);
            });
            assert_eq!(
                shared.ended().map(SendError::from),
                Some(failed.map_or(SendError::Closed, SendError::Failed))
            );
        }
    }
}
