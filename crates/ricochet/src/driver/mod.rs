//! The node's thread.
//!
//! Each round takes these steps in this order: 1. drain the sockets into the rings, 2. process a batch of
//! datagrams (`batches.rs`), 3. serve the membership, 4. apply changes of groups and view, and handle timers,
//! 5. answer status requests, 6. sleep until the next timer if there is nothing left to do.

mod batches;
mod greetings;
mod names;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hashbrown::HashSet;
use membership::Membership;
use netio::multicast::Outbox;
use netio::poll::{Interest, Poller};
use ricochet_core::NodeId;

pub(crate) use batches::Batches;
pub(crate) use greetings::GreetingsDriver;
pub(crate) use names::NamesDriver;

use crate::clock;
use crate::control::StatusServer;
use crate::course::Course;
use crate::drain::Drain;
use crate::greetings::{FIRST_BYTE, GREETING_MAX, Greeting};
use crate::key::Seal;
use crate::member_file::MemberFileWatch;
use crate::members::left_for_good;
use crate::news_log::{Changed, LossLog};
use crate::patterns::wire::NamesDatagram;
use crate::planning::Planning;
use crate::published::PublishedMember;
use crate::rekey::KeyFile;
use crate::shared::{Batch, Core, Shared};
use crate::slow_readers::SlowReaders;
use crate::watch::Watch;

/// Number of the membership's datagrams processed in a round.
const BATCH: usize = 32;
/// Time for which changes of groups are gathered, because each change makes a new plan and empties the bins.
const GROUPS_US: u64 = 2_000;
/// Time for which changes of the view are gathered.
const VIEW_US: u64 = 5_000;
/// Interval at which some of the members that this node makes repairs for become others, in large groups.
const TURN_US: u64 = 10_000_000;
const WAKER: u64 = 16;
/// Maximum number of members that a node that leaves tells itself. The others learn only that it is gone.
const FAREWELLS_MAX: usize = 1_024;

pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    /// `None` if a thread of its own drains the sockets.
    pub(crate) drain: Option<Drain>,
    pub(crate) membership: MembershipDriver,
    pub(crate) batches: Batches,
    pub(crate) greetings: GreetingsDriver,
    pub(crate) names: NamesDriver,
    pub(crate) watch: Watch,
    pub(crate) key_file: KeyFile,
    pub(crate) member_file: MemberFileWatch,
    pub(crate) slow_readers: SlowReaders,
    pub(crate) loss_log: LossLog,
    pub(crate) course: Course,
    pub(crate) control: Option<StatusServer>,
}

/// The membership and its state towards the core.
pub(crate) struct MembershipDriver {
    pub(crate) provider: Membership,
    pub(crate) output: MembershipOutput,
    /// Version of the members that the core knows.
    pub(crate) version: u64,
    /// Time since which that version has been out of date.
    pub(crate) changed_us: Option<u64>,
    /// Time of the last turn of the partners.
    pub(crate) turned_us: u64,
    pub(crate) planning: Planning,
    pub(crate) batch: Batch,
    /// Nodes that have said that they leave, and are members still.
    pub(crate) farewells: HashSet<NodeId>,
    /// Number of times that the registry was found lost or reached.
    pub(crate) registry_changes: u64,
}

/// Sends the membership's datagrams.
pub(crate) struct MembershipOutput {
    pub(crate) outbox: Outbox,
    pub(crate) seal: Option<Seal>,
}

impl membership::Output for MembershipOutput {
    fn send(&mut self, to: std::net::SocketAddr, datagram: &[u8]) {
        match &self.seal {
            Some(seal) => self.outbox.push(to, &[datagram, &seal.trailer(Some(to), datagram)]),
            None => self.outbox.push(to, &[datagram]),
        }
    }
}

impl Driver {
    /// Runs until the node is closed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut poller = self.new_poller()?;
        while !self.shared.closing.load(Ordering::SeqCst) {
            let mut busy = self.handle_packets()?;
            busy |= self.handle_membership();
            self.handle_timers();
            self.names.handle_timeout(clock::now_us(), &self.shared, &mut self.membership);
            if let Some(control) = &self.control {
                control.answer(&self.shared);
            }
            if busy {
                self.shared.yield_core();
            } else {
                self.sleep(&mut poller)?;
            }
        }
        // Members in total order learn at once that this one is gone.
        let mut core = self.shared.core_for_node();
        core.out.now_us = clock::now_us();
        core.leave_totals();
        self.shared.release(core);
        self.membership.leave(self.shared.id);
        Ok(())
    }

    /// Moves packets from the sockets to the core. Returns whether more wait.
    fn handle_packets(&mut self) -> io::Result<bool> {
        let drained = match &mut self.drain {
            Some(drain) => drain.drain(&self.shared)?,
            None => false,
        };
        Ok(drained | self.batches.process(&self.shared, &mut self.membership))
    }

    /// Creates a poller of all descriptors that wake this thread.
    fn new_poller(&self) -> io::Result<Poller> {
        let poller = Poller::new()?;
        netio::poll::precise_timeouts()?;
        poller.add(self.shared.sleep.waker(), WAKER, Interest::Readable)?;
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

    /// Moves a batch of datagrams to the membership and handles its timers. Returns whether more wait.
    fn handle_membership(&mut self) -> bool {
        let Self { shared, membership, greetings, names, .. } = self;
        let more = {
            let mut ring = shared.membership_ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.give_back(&mut membership.batch.done);
            ring.take(BATCH, &mut membership.batch.waiting);
            !ring.is_empty()
        };
        let now_us = clock::now_us();
        while let Some(slot) = membership.batch.waiting.pop_front() {
            if NamesDatagram::is_one(slot.datagram()) {
                names.handle(&slot, shared, membership);
                membership.batch.done.push(slot);
                continue;
            }
            let MembershipDriver { provider, output, batch, farewells, .. } = membership;
            if slot.datagram().first() == Some(&FIRST_BYTE) {
                if let Some(leaving) = greetings.handle(now_us, &slot, shared, output) {
                    farewells.insert(leaving);
                }
                batch.done.push(slot);
                continue;
            }
            provider.handle_datagram(now_us, slot.from(), slot.datagram(), output);
            if let (Some(address), Some(stamp)) = (provider.take_proven(), slot.stamp()) {
                shared.windows.lock().unwrap_or_else(PoisonError::into_inner).admit(address, stamp);
            }
            batch.done.push(slot);
        }
        let MembershipDriver { provider, output, .. } = membership;
        let strangers = shared.windows.lock().unwrap_or_else(PoisonError::into_inner).take_strangers();
        strangers.into_iter().for_each(|address| provider.ask(now_us, address));
        if provider.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            provider.handle_timeout(now_us, output);
        }
        output.outbox.flush();
        shared.published.lock().unwrap_or_else(PoisonError::into_inner).membership = provider.counts();
        if membership.provider.version() != membership.version {
            membership.changed_us.get_or_insert(now_us);
        }
        more
    }

    fn handle_timers(&mut self) {
        let mut core = self.shared.core_for_node();
        let now_us = clock::now_us();
        if self.membership.regroup_due_us(&core).is_some_and(|due_us| due_us <= now_us) {
            self.membership.regroup(now_us, &mut core, &self.shared);
        }
        let MembershipDriver { planning, provider, .. } = &mut self.membership;
        planning.adopt(&mut core, || provider.view(), self.shared.sleep.waker());
        self.membership.tell_registry(&mut core, &self.shared);
        self.greetings.set_members(now_us, &self.membership);
        self.greetings.handle_timeout(now_us, &mut core, &self.shared, &mut self.membership.output);
        core.hold_losses(now_us, self.batches.holds_packets());
        core.handle_timeout(now_us);
        self.slow_readers.handle_timeout(now_us, &core.out, &self.shared.backpressure);
        self.loss_log.handle_timeout(now_us, &mut core.out);
        self.course.handle_timeout(now_us, &core, &self.shared);
        let more = core.pass_on(now_us, &self.shared.outgoing);
        self.shared.release(core);
        if more {
            self.shared.pass_on();
        }
        self.watch.handle_timeout(now_us, &self.shared);
        self.key_file.handle_timeout(now_us, &self.shared);
        self.member_file.handle_timeout(now_us, &mut self.membership, &self.shared);
    }

    fn sleep(&mut self, poller: &mut Poller) -> io::Result<()> {
        let until_us = {
            let core = self.shared.core_for_node();
            let due = [
                core.poll_timeout(),
                self.membership.provider.poll_timeout(),
                self.membership.regroup_due_us(&core),
                Some(self.watch.poll_timeout()),
                self.key_file.poll_timeout(),
                self.member_file.poll_timeout(),
                self.shared.outgoing.due_us(),
                self.slow_readers.poll_timeout(&self.shared.backpressure),
                self.loss_log.poll_timeout(&core.out),
                self.greetings.greetings.poll_timeout(),
                self.names.poll_timeout(),
                Some(self.course.poll_timeout()),
            ];
            let until_us = due.into_iter().flatten().min().unwrap_or(u64::MAX);
            self.shared.sleep.announce(until_us);
            until_us
        };
        // The draining thread may have filled the rings before it could see that this thread sleeps.
        let mut woken = false;
        let idle = self.drain.is_some() || self.rings_are_empty();
        let now_us = clock::now_us();
        if idle && until_us > now_us && !self.shared.closing.load(Ordering::SeqCst) {
            if let Some(drain) = &mut self.drain {
                drain.watch_group(poller)?;
            }
            let timeout = (until_us != u64::MAX).then(|| Duration::from_micros(until_us - now_us));
            woken = poller.wait(timeout)?.any(|ready| ready.token == WAKER);
        }
        self.shared.sleep.on_awake(woken);
        Ok(())
    }

    fn rings_are_empty(&self) -> bool {
        let empty = |ring: &std::sync::Mutex<crate::ring::Ring>| {
            ring.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        };
        let shared = &self.shared;
        !shared.outgoing.is_fresh()
            && shared.transmitter.is_empty()
            && ((empty(&shared.ring) && empty(&shared.repairs)) || shared.backpressure.is_active())
            && empty(&shared.requests)
            && empty(&shared.membership_ring)
    }
}

impl MembershipDriver {
    pub(crate) fn new(provider: Membership, output: MembershipOutput) -> Self {
        Self {
            provider,
            output,
            version: u64::MAX,
            changed_us: None,
            turned_us: 0,
            planning: Planning::default(),
            batch: Batch::default(),
            farewells: HashSet::new(),
            registry_changes: 0,
        }
    }

    fn regroup_due_us(&self, core: &Core) -> Option<u64> {
        let groups = core.changes.since_us.map(|since_us| since_us + GROUPS_US);
        let view = self.changed_us.map(|since_us| since_us + VIEW_US);
        [groups, view, self.turn_due_us(core)].into_iter().flatten().min()
    }

    fn turn_due_us(&self, core: &Core) -> Option<u64> {
        core.node.has_partners().then(|| self.turned_us + TURN_US)
    }

    /// Tells subscriptions whether the registry of the members is reached.
    fn tell_registry(&mut self, core: &mut Core, shared: &Shared) {
        let Some(link) = &shared.registry else { return };
        if std::mem::replace(&mut self.registry_changes, link.changes()) != self.registry_changes
            && let Some(news) = link.news()
        {
            core.out.tell_registry(&news);
        }
    }

    /// Applies changes: this node's groups go to the core and to the membership,
    /// the other members to the core.
    fn regroup(&mut self, now_us: u64, core: &mut Core, shared: &Shared) {
        if self.turn_due_us(core).is_some_and(|due_us| due_us <= now_us) {
            self.turned_us = now_us;
            core.node.turn_partners();
        }
        let Self { provider, output, version, changed_us, farewells, planning, .. } = self;
        if core.changes.since_us.is_some() {
            provider.set_groups(now_us, &core.announced_groups(), output);
            output.outbox.flush();
        }
        if *version != provider.version() {
            *version = provider.version();
            core.out.addresses.set_members(provider.members());
            let members = provider.members().map(|member| PublishedMember {
                id: member.id,
                address: member.address,
                groups: Arc::clone(&member.groups),
            });
            let members: Vec<PublishedMember> = members.collect();
            let mut published = shared.published.lock().unwrap_or_else(PoisonError::into_inner);
            core.out.tell_members(&published.members, &members, farewells);
            Changed::between(&published.members, &members, farewells).log();
            let left = left_for_good(&published.members, &members, farewells);
            left.into_iter().for_each(|id| core.node.on_left(id));
            farewells.retain(|&id| members.binary_search_by_key(&id, |member| member.id).is_ok());
            published.members = members;
            drop(published);
            shared.members_changed.notify_all();
        }
        *changed_us = None;
        core.regroup(now_us, &provider.view(), planning, shared.sleep.waker());
    }

    /// Announces that this node leaves, to its members and to the membership.
    fn leave(&mut self, me: NodeId) {
        let mut bytes = [0; GREETING_MAX];
        let length = Greeting::Farewell { from: me }.write(&mut bytes);
        let addresses: Vec<_> = self.provider.members().map(|member| member.address).collect();
        for &address in addresses.iter().take(FAREWELLS_MAX) {
            membership::Output::send(&mut self.output, address, &bytes[..length]);
        }
        self.provider.leave(clock::now_us(), &mut self.output);
        self.output.outbox.flush();
    }
}

#[cfg(test)]
mod tests;
