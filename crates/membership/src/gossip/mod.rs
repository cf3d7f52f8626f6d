//! Membership by gossip: the library `foca` (SWIM) finds out which nodes live,
//! [`Exchange`] which groups they are in.
//!
//! The path of a datagram: [`Gossip::handle_datagram`] → `wire/` → the library → `events.rs` (its datagrams,
//! timers and notifications) → [`Gossip::reconcile`], if the library's members have changed.

mod config;
mod events;
mod rejoin;
mod timers;
mod trust;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use foca::{Foca, NoCustomBroadcast, Timer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::{GroupId, NodeId};

use crate::counters::Dropped;
use crate::exchange::Exchange;
use crate::me::{ConfigError, Me};
use crate::output::Output;
use crate::proofs::Proofs;
use crate::wire::swim::{Identity, SwimCodec, SwimView, canonical, is_sendable};
use crate::wire::{AddressReplyView, DATAGRAM_MAX, Datagram, HEADER, Kind, write_address_request};
pub use config::GossipConfig;
use events::{Down, Events, Notifications};
use rejoin::{Rejoin, Revival};
use timers::Timers;

/// Minimum interval between requests for the addresses of unknown nodes.
const ADDRESS_REQUEST_PERIOD_US: u64 = 200_000;
/// Distance of this node's own lives from the latest that others accept, in microseconds: their clocks may be
/// behind by that much.
const CLOCK_SLACK_US: u64 = 3_600_000_000;
/// Maximum number of rounds in which a node that leaves tells other members.
const FAREWELLS_MAX: usize = 16;
/// Number of members that this node contacts at once when it rejoins.
const REJOIN_FANOUT: usize = 2;

/// A node that finds the others through a seed address, and notices when one dies.
pub struct Gossip {
    config: GossipConfig,
    seeds: Vec<SocketAddr>,
    foca: Foca<Identity, SwimCodec, ChaCha8Rng, NoCustomBroadcast>,
    timers: Timers,
    down: Down,
    exchange: Exchange,
    /// Whether another node knows this one.
    connected: bool,
    next_announce_us: u64,
    /// Index of the seed address that is tried next.
    next_seed: usize,
    /// Nodes whose addresses were requested.
    requested_nodes: Vec<NodeId>,
    next_address_request_us: u64,
    rejoin: Rejoin,
    revival: Revival,
    proofs: Proofs,
    /// The node that has answered last, until the driver fetches it.
    just_proven: Option<SocketAddr>,
    left: bool,
    /// Buffer in which a datagram is assembled.
    scratch: Vec<u8>,
}

impl Gossip {
    /// Creates a node that knows no other, only the seed addresses, which may include its own. All random
    /// decisions follow from `random_seed`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        config: GossipConfig,
        me: Me,
        seeds: &[SocketAddr],
        random_seed: u64,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let me = me.check()?;
        let mut others = Vec::with_capacity(seeds.len());
        for &seed in seeds {
            let address = canonical(seed);
            if !is_sendable(address) {
                return Err(ConfigError::Seed(seed));
            }
            if address != me.address && !others.contains(&address) {
                others.push(address);
            }
        }
        let identity = Identity { address: me.address, id: me.id, life: me.life };
        let rng = |stream| {
            let mut rng = ChaCha8Rng::seed_from_u64(random_seed);
            rng.set_stream(stream);
            rng
        };
        let mut exchange = Exchange::new(me.id, config.lists, rng(1));
        let next_seed = exchange.draw(others.len().max(1) as u64) as usize;
        Ok(Self {
            foca: Foca::new(identity, config.foca(), rng(0), SwimCodec),
            seeds: others,
            timers: Timers::default(),
            down: BTreeMap::new(),
            exchange,
            connected: false,
            next_announce_us: 0,
            next_seed,
            requested_nodes: Vec::new(),
            next_address_request_us: 0,
            rejoin: Rejoin::default(),
            revival: Revival::default(),
            proofs: Proofs::new(me.life, rng(2)),
            just_proven: None,
            left: false,
            scratch: Vec::new(),
            config,
        })
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// See [`Membership`](crate::Membership::handle_datagram).
    pub fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut impl Output) {
        if self.left {
            return;
        }
        let from = canonical(from);
        self.proofs.on_time(now_us);
        self.exchange.counts.received += 1;
        match Datagram::read(datagram) {
            Ok(Datagram::Swim(message)) => {
                if let Err(reason) = self.handle_swim(now_us, from, &message, datagram, out) {
                    self.exchange.counts.dropped.add(reason);
                }
                self.rejoin_if_due(now_us, out);
            }
            Ok(Datagram::Presence(_)) => self.exchange.counts.dropped.add(Dropped::Unused),
            Ok(Datagram::AddressReply(reply)) => self.handle_address_reply(now_us, from, reply),
            Ok(Datagram::IdentityQuestion(question)) => {
                self.handle_identity_question(now_us, from, &question, out);
            }
            Ok(Datagram::IdentityAnswer(answer)) => self.handle_identity_answer(now_us, from, &answer, out),
            Ok(datagram) => {
                self.exchange.handle_datagram(now_us, from, &datagram, out);
                self.request_addresses(now_us, from, out);
            }
            Err(reason) => self.exchange.counts.malformed.add(reason),
        }
        self.ask_due(now_us, out);
    }

    fn handle_swim(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        message: &SwimView<'_>,
        datagram: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Dropped> {
        if from == self.foca.identity().address {
            return Err(Dropped::Own);
        }
        if message.source.address != from {
            return Err(Dropped::Spoofed);
        }
        self.check_source(now_us, &message.source, datagram)?;
        let me = self.foca.identity();
        if message.to.address == me.address && foca::Identity::win_addr_conflict(&message.to, me) {
            self.rejoin.on_rival(now_us, message.to.life);
        }
        let mut filtered = Vec::new();
        let bytes =
            if self.filter(now_us, message, &mut filtered) { filtered.as_slice() } else { message.message };
        self.drive(now_us, out, |foca, events| foca.handle_data(bytes, events));
        Ok(())
    }

    /// Makes room for `more` members by forgetting nodes that are down, those declared down longest ago
    /// first. Returns whether there is room.
    fn make_room(&mut self, more: usize) -> bool {
        let known = self.foca.iter_membership_state().len();
        let beyond = (known + more).saturating_sub(self.config.members_max);
        if beyond == 0 {
            return true;
        }
        let mut down: Vec<_> =
            self.down.iter().map(|(&address, &(forget_us, _))| (forget_us, address)).collect();
        down.sort_unstable();
        for &(_, address) in down.iter().take(beyond) {
            self.forget(address);
        }
        down.len() >= beyond
    }

    /// Forgets a node that is down.
    fn forget(&mut self, address: SocketAddr) {
        struct Ignore;
        impl foca::Runtime<Identity> for Ignore {
            fn notify(&mut self, _: foca::Notification<'_, Identity>) {}
            fn send_to(&mut self, _: Identity, _: &[u8]) {}
            fn submit_after(&mut self, _: Timer<Identity>, _: std::time::Duration) {}
        }
        let Some((_, identity)) = self.down.remove(&address) else { return };
        // The library only takes the identity off a list.
        let _ = self.foca.handle_timer(Timer::RemoveDown(identity), Ignore);
    }

    /// See [`Membership`](crate::Membership::poll_timeout).
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.left {
            return None;
        }
        let announce = (!self.seeds.is_empty() || !self.connected).then_some(self.next_announce_us);
        let forget = self.down.values().map(|&(forget_us, _)| forget_us).min();
        let due = [
            self.timers.next_due_us(),
            announce,
            forget,
            self.rejoin.due_us(),
            self.revival.due_us(),
            self.proofs.poll_timeout(),
            self.exchange.poll_timeout(),
        ];
        due.into_iter().flatten().min()
    }

    /// See [`Membership`](crate::Membership::handle_timeout).
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        if self.left {
            return;
        }
        self.proofs.on_time(now_us);
        self.timers.put_off_if_late(now_us);
        // The loop ends: every timer set within it is due later than now.
        while let Some(timer) = self.timers.take_due(now_us) {
            self.drive(now_us, out, |foca, events| foca.handle_timer(timer, events));
        }
        let forgotten: Vec<SocketAddr> = (self.down.iter())
            .filter(|&(_, &(forget_us, _))| forget_us <= now_us)
            .map(|(&address, _)| address)
            .collect();
        for address in forgotten {
            self.forget(address);
        }
        self.rejoin_if_due(now_us, out);
        self.revive_if_due(now_us, out);
        self.announce_if_due(now_us, out);
        self.ask_due(now_us, out);
        self.exchange.handle_timeout(now_us, out);
    }

    /// Becomes an identity of a later life, if others have declared this node down.
    fn rejoin_if_due(&mut self, now_us: u64, out: &mut impl Output) {
        let me = *self.foca.identity();
        let latest = self.proofs.latest_life(now_us) - CLOCK_SLACK_US;
        let Some(life) = self.rejoin.poll(now_us, me.life, latest) else { return };
        let again = Identity { life, ..me };
        self.exchange.counts.rejoined += 1;
        self.connected = false;
        if again == me {
            // Others would refuse a later life. They will eventually forget that this node is down.
            self.drive(now_us, out, |foca, _| foca.reuse_down_identity());
        } else {
            self.drive(now_us, out, |foca, events| foca.change_identity(again, events));
        }
        for _ in 0..REJOIN_FANOUT.min(self.exchange.directory.len()) {
            self.announce_to_any_member(now_us, out);
        }
    }

    /// Contacts some of the nodes that are down, if one of them is back.
    fn revive_if_due(&mut self, now_us: u64, out: &mut impl Output) {
        if !self.revival.poll(now_us, self.down.len()) {
            return;
        }
        let down: Vec<SocketAddr> = self.down.keys().copied().collect();
        for _ in 0..Revival::FANOUT.min(down.len()) {
            let place = self.exchange.draw(down.len() as u64) as usize;
            self.announce(now_us, down[place], out);
        }
    }

    /// Announces this node to a seed address that is no member's, since the node there may belong to
    /// another partition; and to any member as long as no other node knows this one. Repeats,
    /// because a datagram may be lost.
    fn announce_if_due(&mut self, now_us: u64, out: &mut impl Output) {
        if now_us < self.next_announce_us {
            return;
        }
        let period_us = if self.connected { self.config.seed_check_us } else { self.config.seed_retry_us };
        self.next_announce_us = now_us + period_us * 3 / 4 + self.exchange.draw(period_us / 2);
        if !self.connected && self.exchange.directory.len() > 0 {
            self.announce_to_any_member(now_us, out);
        }
        for _ in 0..self.seeds.len() {
            let address = self.seeds[self.next_seed];
            self.next_seed = (self.next_seed + 1) % self.seeds.len();
            if !self.connected || self.exchange.directory.id_at(address).is_none() {
                self.announce(now_us, address, out);
                return;
            }
        }
    }

    fn announce_to_any_member(&mut self, now_us: u64, out: &mut impl Output) {
        let members = self.exchange.directory.len() as u64;
        let place = self.exchange.draw(members) as usize;
        self.announce(now_us, self.exchange.directory.at(place).address, out);
    }

    /// Requests the addresses of the unknown nodes that a member has just named.
    fn request_addresses(&mut self, now_us: u64, from: SocketAddr, out: &mut impl Output) {
        let unknown = std::mem::take(&mut self.exchange.unknown_nodes);
        if unknown.is_empty() || now_us < self.next_address_request_us {
            return;
        }
        self.next_address_request_us = now_us + ADDRESS_REQUEST_PERIOD_US;
        let mut request = [0; DATAGRAM_MAX];
        let length = write_address_request(&unknown, &mut request);
        self.requested_nodes = unknown;
        self.exchange.send(from, &request[..length], out);
    }

    /// Asks at the addresses in a reply. The nodes there become members once they answer.
    fn handle_address_reply(&mut self, now_us: u64, from: SocketAddr, reply: AddressReplyView<'_>) {
        if self.exchange.directory.id_at(from).is_none() {
            self.exchange.counts.dropped.add(Dropped::NotMember);
            return;
        }
        for (id, address) in reply.nodes() {
            let Some(at) = self.requested_nodes.iter().position(|&requested| requested == id) else {
                self.exchange.counts.dropped.add(Dropped::Unrequested);
                continue;
            };
            self.requested_nodes.swap_remove(at);
            if self.exchange.directory.get(id).is_none() && address != self.foca.identity().address {
                self.proofs.ask_once(now_us, address);
            }
        }
    }

    /// Announces this node to an address and requests members. Id and life of the node there do not matter.
    fn announce(&mut self, now_us: u64, address: SocketAddr, out: &mut impl Output) {
        let to = Identity { address, id: NodeId(0), life: 0 };
        self.drive(now_us, out, |foca, events| foca.announce(to, events));
    }

    /// See [`Membership`](crate::Membership::set_groups).
    pub fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut impl Output) {
        if !self.left {
            self.exchange.set_groups(now_us, groups, out);
        }
    }

    /// See [`Membership`](crate::Membership::leave).
    pub fn leave(&mut self, now_us: u64, out: &mut impl Output) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        self.drive(now_us, out, |foca, events| foca.leave_cluster(events));
        // Repeated to other members: each asks this node once more before it believes the news, and passes it
        // on only then.
        for _ in 0..(self.exchange.directory.len() / self.config.probe_helpers).clamp(1, FAREWELLS_MAX) {
            self.drive(now_us, out, |foca, events| foca.gossip(events));
        }
    }

    /// Calls the library and acts on its notifications.
    fn drive<O: Output>(
        &mut self,
        now_us: u64,
        out: &mut O,
        act: impl FnOnce(
            &mut Foca<Identity, SwimCodec, ChaCha8Rng, NoCustomBroadcast>,
            &mut Events<'_, O>,
        ) -> Result<(), foca::Error>,
    ) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&Kind::Swim.to_wire());
        let mut events = Events {
            now_us,
            own: self.foca.identity().address,
            timers: &mut self.timers,
            down: &mut self.down,
            counts: &mut self.exchange.counts,
            scratch: &mut self.scratch,
            out,
            notifications: Notifications::default(),
        };
        let result = act(&mut self.foca, &mut events);
        let noted = events.notifications;
        if result.is_err() {
            self.exchange.counts.dropped.add(Dropped::Swim);
        }
        debug_assert!(self.scratch.len() >= HEADER);
        if self.left {
            return;
        }
        self.connected = noted.connected.unwrap_or(self.connected);
        if noted.members_changed {
            self.reconcile(now_us);
        }
        if noted.revived {
            self.revival.on_revived(now_us);
        }
        if noted.declared_down {
            self.rejoin.on_declared_down(now_us);
        }
    }

    /// Makes the directory agree with the failure detector's members.
    fn reconcile(&mut self, now_us: u64) {
        let own = self.foca.identity();
        let mut members: BTreeMap<NodeId, Identity> = BTreeMap::new();
        let mut duplicates = 0;
        for member in self.foca.iter_members().map(foca::Member::id) {
            if member.address == own.address {
                continue;
            }
            let other = members.get(&member.id).copied();
            duplicates += u64::from(other.is_some() || member.id == own.id);
            // Of two nodes with one id only one can be a member: any one, but always the same.
            let first = other.is_none_or(|other| (other.life, other.address) < (member.life, member.address));
            if first && member.id != own.id {
                members.insert(member.id, *member);
            }
        }
        self.exchange.counts.dropped.add_times(Dropped::DuplicateId, duplicates);
        let gone: Vec<NodeId> = (self.exchange.directory.members())
            .filter(|known| members.get(&known.id).is_none_or(|member| member.address != known.address))
            .map(|known| known.id)
            .collect();
        for id in gone {
            self.exchange.dismiss(id);
        }
        for member in members.values() {
            if self.exchange.directory.get(member.id).is_none() {
                self.exchange.admit(now_us, member.id, member.address);
            }
        }
    }

    /// Returns roughly the bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let known = self.foca.iter_membership_state().len() + self.foca.updates_backlog();
        let member = size_of::<foca::Member<Identity>>() + 32;
        let down = self.down.len() * 2 * size_of::<Identity>();
        self.exchange.memory_bytes()
            + known * member
            + down
            + self.timers.len() * 128
            + self.proofs.memory_bytes()
    }
}
