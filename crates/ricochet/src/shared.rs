//! What the node's thread and the application's threads share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use hashbrown::HashSet;
use ricochet_core::wire::{Kind, Peek};
use ricochet_core::{GroupConfig, GroupId, Groups, Node as CoreNode, NodeId, View};

use crate::clock;
use crate::config::Config;
use crate::error::RecvError;
use crate::gate::Gate;
use crate::ip_groups::IpGroups;
use crate::outward::Outward;
use crate::ring::{Ring, Slot};
use crate::status::Published;
use crate::wake::Waker;

/// The core and all that it talks to: one lock, held for one packet sent or for a batch received.
pub(crate) struct Core {
    pub(crate) node: CoreNode,
    pub(crate) out: Outward,
    /// Groups joined and left since the core was told.
    pub(crate) changes: Changes,
}

/// Changes of this node's own groups: told to the core together, for each new plan empties its bins.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) since_us: Option<u64>,
    /// Groups that were joined and the core does not know of yet.
    pub(crate) joined: HashSet<GroupId>,
    /// Groups that were left and the core still knows of.
    pub(crate) left: HashSet<GroupId>,
}

/// Shared by all handles and threads of one node.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) address: std::net::SocketAddr,
    core: Mutex<Core>,
    /// Application threads that wait for the core: the node's thread lets them in between two batches.
    waiting: AtomicUsize,
    /// The groups of this node, for the filter.
    pub(crate) joined: RwLock<HashSet<GroupId>>,
    /// Taken before the core by who needs both. Who holds it is the only one who joins or leaves.
    pub(crate) ip_groups: Mutex<IpGroups>,
    pub(crate) ring: Mutex<Ring>,
    /// Datagrams of the membership: never held up by a subscription that blocks.
    pub(crate) letters: Mutex<Ring>,
    pub(crate) gate: Arc<Gate>,
    /// The number of the interface at the moment.
    pub(crate) interface: AtomicU32,
    pub(crate) waker: Waker,
    /// When the node's thread wakes by itself; 0 while it is awake.
    pub(crate) sleeps_until_us: AtomicU64,
    pub(crate) closing: AtomicBool,
    failed: OnceLock<String>,
    /// What the threads know and status tells.
    pub(crate) published: Mutex<Published>,
    pub(crate) peers_changed: Condvar,
    pub(crate) started_us: u64,
}

/// Why the core cannot be had.
#[derive(Clone, Debug)]
pub(crate) enum Gone {
    /// The node was closed.
    Closed,
    /// The node's thread, or one that sent, has panicked.
    Failed(String),
}

/// What a [`Shared`] is made of.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) interface: u32,
    pub(crate) core: Core,
    pub(crate) ip_groups: IpGroups,
    pub(crate) ring: Ring,
    pub(crate) letters: Ring,
    pub(crate) waker: Waker,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { config, id, address, interface, core, ip_groups, ring, letters, waker } = parts;
        Arc::new(Self {
            config,
            id,
            address,
            core: Mutex::new(core),
            waiting: AtomicUsize::new(0),
            joined: RwLock::new(HashSet::new()),
            ip_groups: Mutex::new(ip_groups),
            ring: Mutex::new(ring),
            letters: Mutex::new(letters),
            gate: Arc::new(Gate::new(waker.clone())),
            interface: AtomicU32::new(interface),
            waker,
            sleeps_until_us: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            failed: OnceLock::new(),
            published: Mutex::new(Published::default()),
            peers_changed: Condvar::new(),
            started_us: clock::now_us(),
        })
    }

    /// The core, for an application's thread. Whoever has it goes before the end of the node, or is told of it.
    pub(crate) fn core(&self) -> Result<MutexGuard<'_, Core>, Gone> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let failure = || self.failed().unwrap_or_else(|| "a thread panicked within the core".to_owned());
        match core {
            // Looked at with the core held: `end` takes it after these were set.
            Ok(_) if self.failed.get().is_some() => Err(Gone::Failed(failure())),
            Ok(_) if self.closing.load(Ordering::SeqCst) => Err(Gone::Closed),
            Ok(core) => Ok(core),
            Err(_) => Err(Gone::Failed(failure())),
        }
    }

    /// The core, in whatever state: for ends and for counters.
    pub(crate) fn core_at_last(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The core, for the node's thread.
    pub(crate) fn core_of_node(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|_| panic!("another thread panicked within the core"))
    }

    /// Lets waiting applications have the core before the node's thread takes it again.
    pub(crate) fn let_others_in(&self) {
        const YIELDS_MAX: usize = 64;
        for _ in 0..YIELDS_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Why the node has failed, if it has.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.get().cloned()
    }

    /// The node's thread ends: what waits is told why.
    pub(crate) fn end(&self, failed: Option<String>) {
        let reason = match failed {
            Some(why) => {
                let _ = self.failed.set(why.clone());
                RecvError::Failed(why)
            }
            None => RecvError::Closed,
        };
        self.closing.store(true, Ordering::SeqCst);
        self.core_at_last().out.takers.iter().flatten().for_each(|taker| taker.queue.close(reason.clone()));
        // Who waits for members has looked whether the node ends, or will be told.
        drop(self.published.lock().unwrap_or_else(PoisonError::into_inner));
        self.peers_changed.notify_all();
    }

    /// Closes the sockets once the threads have ended: subscriptions and senders may be held for longer, and must not keep
    /// the port.
    pub(crate) fn close_sockets(&self) {
        self.ip_groups.lock().unwrap_or_else(PoisonError::into_inner).close();
        self.core_at_last().out.close();
    }

    /// Wakes the node's thread if it would else sleep beyond a time. Called with the core held, so that the thread is not
    /// just about to fall asleep.
    pub(crate) fn wake_before(&self, due_us: u64) {
        if due_us < self.sleeps_until_us.load(Ordering::SeqCst) {
            self.sleeps_until_us.store(0, Ordering::SeqCst);
            self.waker.wake();
        }
    }
}

impl Core {
    /// A datagram from the ring.
    pub(crate) fn handle(&mut self, now_us: u64, slot: &Slot) {
        let (datagram, from) = (slot.datagram(), slot.from());
        self.out.now_us = now_us;
        match Peek::read(datagram) {
            Ok(Peek { kind: Kind::Nak, .. }) => self.out.reply_to = Some(from),
            Ok(Peek { kind: Kind::Data, sender, .. }) => self.out.book.heard(sender, from),
            _ => {}
        }
        self.node.handle_datagram(now_us, datagram, &mut self.out);
        self.out.reply_to = None;
    }

    /// Whether a datagram is of a group that was joined so lately that the core does not know of it.
    pub(crate) fn is_of_new_group(&self, datagram: &[u8]) -> bool {
        if self.changes.joined.is_empty() {
            return false;
        }
        let packet = Peek::read(datagram).ok().and_then(|peek| peek.packet);
        packet.is_some_and(|(group, _)| self.changes.joined.contains(&group))
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now_us: u64) {
        self.out.now_us = now_us;
        if self.node.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            self.node.handle_timeout(now_us, &mut self.out);
        }
        self.out.settle_due();
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        [self.node.poll_timeout(), self.out.fifo_due_us].into_iter().flatten().min()
    }

    /// Goes on with this node's groups as they are now, and with these neighbours.
    pub(crate) fn regroup(&mut self, now_us: u64, view: &View) {
        self.out.now_us = now_us;
        if self.changes.since_us.is_none() {
            return self.node.change_view(view, &mut self.out);
        }
        let Changes { left, .. } = std::mem::take(&mut self.changes);
        let joined = &self.out.groups;
        for fifo in self.out.takers.iter_mut().flatten().filter_map(|taker| taker.fifo.as_mut()) {
            fifo.forget(|key| left.contains(&key.group) || !joined.contains_key(&key.group));
        }
        // Of a group that was left and joined again the core is to forget all that was.
        if left.iter().any(|id| joined.contains_key(id)) {
            let groups = self.groups_of_core(|id| !left.contains(id));
            self.node.change_groups(groups, view, &mut self.out);
        }
        let groups = self.groups_of_core(|_| true);
        self.node.change_groups(groups, view, &mut self.out);
        for (&id, joined) in &self.out.groups {
            self.node.set_lifetime(id, joined.lifetime_us);
        }
    }

    fn groups_of_core(&self, wanted: impl Fn(&GroupId) -> bool) -> Groups {
        let joined = self.out.groups.iter().filter(|(id, _)| wanted(id));
        let configs: Vec<_> = joined.map(|(&id, joined)| GroupConfig { id, c: joined.c }).collect();
        // Each was held against the others when it was joined.
        Groups::new(configs).expect("the groups of a node are distinct")
    }
}

/// Packets that the node's thread has taken from the ring.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) waiting: VecDeque<Slot>,
    pub(crate) done: Vec<Slot>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{JoinError, SendError};
    use crate::joining::JoinOptions;
    use crate::node::Node;
    use crate::start::prepare;

    #[test]
    fn who_waits_for_the_core_while_the_node_ends_is_told() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = prepare(builder).unwrap();
        let shared = &driver.shared;
        std::thread::scope(|scope| {
            let core = shared.core_of_node();
            let joining = scope.spawn(|| shared.join(&["g"], &JoinOptions::default()).map(drop));
            let sending = scope.spawn(|| shared.send(GroupId(1), b"x", false, false));
            while shared.waiting.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            // The node's thread, which ends, has the core before them, and closes the queues that there are.
            shared.closing.store(true, Ordering::SeqCst);
            drop(core);
            assert!(matches!(joining.join().unwrap(), Err(JoinError::Closed)));
            assert_eq!(sending.join().unwrap(), Err(SendError::Closed));
        });
        assert_eq!(shared.ip_groups.lock().unwrap().len(), 0);
    }
}
