//! The node's thread.
//!
//! One round, always in this order: 1. drain the sockets into the rings, 2. process a batch of packets, 3. the membership,
//! 4. groups and view, timers, 5. status, 6. sleep until something is due, if nothing is left to do.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use membership::Membership;
use netio::multicast::Outbox;
use netio::poll::{Interest, Poller};
use ricochet_core::GroupId;

use crate::clock;
use crate::drain::Drain;
use crate::key::Seal;
use crate::shared::{Batch, Core, Shared};
use crate::status::PublishedPeer;
use crate::watch::Watch;

/// Packets processed before others may have the core.
const BATCH: usize = 32;
/// Changes of groups are gathered for so long, since each makes a new plan and empties the bins.
const GROUPS_US: u64 = 2_000;
/// The same of changes of the view.
const VIEW_US: u64 = 5_000;
const WAKER: u64 = 16;

pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    /// None if a thread of its own drains.
    pub(crate) drain: Option<Drain>,
    pub(crate) members: Members,
    pub(crate) batch: Batch,
    pub(crate) watch: Watch,
    pub(crate) behind: Behind,
    pub(crate) control: Option<crate::control::Serving>,
}

/// Packets that came while a subscription made the node wait, and are not processed yet.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    shut: bool,
    packets: usize,
}

/// The membership, and its letters.
pub(crate) struct Members {
    pub(crate) membership: Membership,
    pub(crate) post: Post,
    /// The version of the peers that core and book know.
    pub(crate) version: u64,
    /// Since when they are out of date.
    pub(crate) changed_us: Option<u64>,
    pub(crate) batch: Batch,
}

/// Sends the membership's datagrams.
pub(crate) struct Post {
    pub(crate) outbox: Outbox,
    pub(crate) seal: Option<Seal>,
}

impl membership::Output for Post {
    fn send(&mut self, to: std::net::SocketAddr, datagram: &[u8]) {
        match &self.seal {
            Some(seal) => self.outbox.push(to, &[datagram, &seal.trailer(datagram)]),
            None => self.outbox.push(to, &[datagram]),
        }
    }
}

impl Driver {
    /// Runs until the node is closed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut poller = self.poller()?;
        while !self.shared.closing.load(Ordering::SeqCst) {
            let mut busy = self.packets()?;
            busy |= self.membership();
            self.timers();
            if let Some(control) = &self.control {
                control.answer(&self.shared);
            }
            if busy {
                self.shared.let_others_in();
            } else {
                self.sleep(&mut poller)?;
            }
        }
        self.farewell();
        Ok(())
    }

    /// From the sockets to the core; returns whether more wait.
    fn packets(&mut self) -> io::Result<bool> {
        let drained = match &mut self.drain {
            Some(drain) => drain.drain(&self.shared)?,
            None => false,
        };
        Ok(drained | self.process())
    }

    /// What wakes this thread.
    fn poller(&self) -> io::Result<Poller> {
        let poller = Poller::new()?;
        netio::poll::precise_timeouts()?;
        poller.add(&self.shared.waker, WAKER, Interest::Readable)?;
        if let Some(drain) = &self.drain {
            for (token, descriptor) in drain.descriptors().enumerate() {
                poller.add(&descriptor, token as u64, Interest::Readable)?;
            }
        }
        if let Some(control) = &self.control {
            poller.add(control, WAKER + 1, Interest::Readable)?;
        }
        Ok(poller)
    }

    /// Takes packets from the ring to the core; returns whether more wait that may be taken now.
    fn process(&mut self) -> bool {
        let Self { shared, batch, members, behind, .. } = self;
        if !shared.gate.is_open_or_wake() {
            behind.shut = true;
            return false;
        }
        let wanted = BATCH - batch.waiting.len().min(BATCH);
        let mut more = {
            let mut ring = shared.ring.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::take(&mut behind.shut) {
                behind.packets = ring.len() + batch.waiting.len();
            }
            ring.take(wanted, &mut batch.waiting);
            !ring.is_empty()
        };
        if batch.waiting.is_empty() {
            behind.packets = 0;
            return false;
        }
        let mut core = shared.core_of_node();
        let now_us = clock::now_us();
        while let Some(slot) = batch.waiting.pop_front() {
            if core.is_of_new_group(slot.datagram()) {
                members.regroup(now_us, &mut core, shared);
            }
            core.handle(now_us, &slot);
            batch.done.push(slot);
            behind.packets = behind.packets.saturating_sub(1);
            // Asked so that whoever makes room wakes this thread: the rest of the batch waits for it.
            if !shared.gate.is_open_or_wake() {
                behind.shut = true;
                more = false;
                break;
            }
        }
        core.out.flush();
        drop(core);
        shared.ring.lock().unwrap_or_else(PoisonError::into_inner).give_back(&mut batch.done);
        more
    }

    /// Hands letters to the membership; returns whether more wait.
    fn membership(&mut self) -> bool {
        let Self { shared, members, .. } = self;
        let Members { membership, post, batch, .. } = members;
        let more = {
            let mut letters = shared.letters.lock().unwrap_or_else(PoisonError::into_inner);
            letters.give_back(&mut batch.done);
            letters.take(BATCH, &mut batch.waiting);
            !letters.is_empty()
        };
        let now_us = clock::now_us();
        for slot in batch.waiting.drain(..) {
            membership.handle_datagram(now_us, slot.from(), slot.datagram(), post);
            batch.done.push(slot);
        }
        if membership.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            membership.handle_timeout(now_us, post);
        }
        post.outbox.flush();
        shared.published.lock().unwrap_or_else(PoisonError::into_inner).membership = *membership.counts();
        if members.membership.version() != members.version {
            members.changed_us.get_or_insert(now_us);
        }
        more
    }

    fn timers(&mut self) {
        let mut core = self.shared.core_of_node();
        let now_us = clock::now_us();
        if self.members.regroup_due_us(&core).is_some_and(|due_us| due_us <= now_us) {
            self.members.regroup(now_us, &mut core, &self.shared);
        }
        core.node.hold_losses(self.behind.shut || self.behind.packets > 0);
        core.handle_timeout(now_us);
        core.out.flush();
        drop(core);
        self.watch.look(now_us, &self.shared);
    }

    fn sleep(&mut self, poller: &mut Poller) -> io::Result<()> {
        let until_us = {
            let core = self.shared.core_of_node();
            let due = [
                core.poll_timeout(),
                self.members.membership.poll_timeout(),
                self.members.regroup_due_us(&core),
                Some(self.watch.next_look_us()),
            ];
            let until_us = due.into_iter().flatten().min().unwrap_or(u64::MAX);
            self.shared.sleeps_until_us.store(until_us.max(1), Ordering::SeqCst);
            until_us
        };
        // What another thread put into the rings before it could see that this one sleeps.
        let idle = self.drain.is_some() || self.rings_are_empty();
        let now_us = clock::now_us();
        if idle && until_us > now_us && !self.shared.closing.load(Ordering::SeqCst) {
            let timeout = (until_us != u64::MAX).then(|| Duration::from_micros(until_us - now_us));
            let woken = poller.wait(timeout)?.any(|ready| ready.token == WAKER);
            if woken {
                self.shared.waker.clear();
            }
        }
        self.shared.sleeps_until_us.store(0, Ordering::SeqCst);
        Ok(())
    }

    fn rings_are_empty(&self) -> bool {
        let empty = |ring: &std::sync::Mutex<crate::ring::Ring>| {
            ring.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        };
        (empty(&self.shared.ring) || !self.shared.gate.is_open()) && empty(&self.shared.letters)
    }

    fn farewell(&mut self) {
        let Members { membership, post, .. } = &mut self.members;
        membership.leave(clock::now_us(), post);
        post.outbox.flush();
    }
}

impl Members {
    fn regroup_due_us(&self, core: &Core) -> Option<u64> {
        let groups = core.changes.since_us.map(|since_us| since_us + GROUPS_US);
        let view = self.changed_us.map(|since_us| since_us + VIEW_US);
        [groups, view].into_iter().flatten().min()
    }

    /// Tells the core what groups and neighbours there are, and the neighbours what groups.
    fn regroup(&mut self, now_us: u64, core: &mut Core, shared: &Shared) {
        let Self { membership, post, version, changed_us, .. } = self;
        if core.changes.since_us.is_some() {
            let mut groups: Vec<GroupId> = core.out.groups.keys().copied().collect();
            groups.sort_unstable();
            membership.set_groups(now_us, &groups, post);
            post.outbox.flush();
        }
        if *version != membership.version() {
            *version = membership.version();
            core.out.book.rewrite(membership.members());
            let peers = membership.members().map(|peer| PublishedPeer {
                id: peer.id,
                address: peer.address,
                groups: Arc::clone(&peer.groups),
            });
            shared.published.lock().unwrap_or_else(PoisonError::into_inner).peers = peers.collect();
            shared.peers_changed.notify_all();
        }
        *changed_us = None;
        core.regroup(now_us, &membership.view());
    }
}

#[cfg(test)]
mod tests;
