//! Membership by gossip: who lives is found out by the library `foca` (SWIM), which groups they are in by
//! [`Exchange`].
//!
//! The path of a datagram: [`Gossip::handle_datagram`] → `wire/` → the library → `events.rs` (what it sends and sets) →
//! [`Gossip::reconcile`], if it knows of other members than before.

mod config;
mod events;
mod rejoin;
mod timers;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use foca::{Foca, NoCustomBroadcast, Timer};
use hashbrown::HashSet;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::{GroupId, NodeId};

use crate::Output;
use crate::counters::Dropped;
use crate::exchange::Exchange;
use crate::me::{ConfigError, Me};
use crate::wire::swim::{Identity, SwimCodec, SwimView, canonical, is_sendable};
use crate::wire::{DATAGRAM_MAX, Datagram, HEADER, Kind, WhereView, write_who};
pub use config::GossipConfig;
use events::{Dead, Events, News};
use rejoin::{Rejoin, Reviving};
use timers::Timers;

/// Members are asked for others no more often than this.
const WHO_PERIOD_US: u64 = 200_000;

/// A node that finds the others by asking one of them, and notices who dies.
pub struct Gossip {
    config: GossipConfig,
    seeds: Vec<SocketAddr>,
    foca: Foca<Identity, SwimCodec, ChaCha8Rng, NoCustomBroadcast>,
    timers: Timers,
    dead: Dead,
    exchange: Exchange,
    /// Somebody knows this node.
    connected: bool,
    next_seed_us: u64,
    /// Place of the seed that is asked next.
    seed: usize,
    /// Nodes whose addresses were asked for.
    strangers: Vec<NodeId>,
    next_who_us: u64,
    rejoin: Rejoin,
    reviving: Reviving,
    left: bool,
    /// A datagram in the making.
    scratch: Vec<u8>,
}

impl Gossip {
    /// A node that knows nobody but the addresses of `seeds`, its own among them or not. `chance` decides all that is
    /// left to chance.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: GossipConfig, me: Me, seeds: &[SocketAddr], chance: u64) -> Result<Self, ConfigError> {
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
            let mut rng = ChaCha8Rng::seed_from_u64(chance);
            rng.set_stream(stream);
            rng
        };
        let mut exchange = Exchange::new(me.id, config.lists, rng(1));
        let seed = exchange.draw(others.len().max(1) as u64) as usize;
        Ok(Self {
            foca: Foca::new(identity, config.foca(), rng(0), SwimCodec),
            seeds: others,
            timers: Timers::default(),
            dead: BTreeMap::new(),
            exchange,
            connected: false,
            next_seed_us: 0,
            seed,
            strangers: Vec::new(),
            next_who_us: 0,
            rejoin: Rejoin::default(),
            reviving: Reviving::default(),
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
        self.exchange.counts.received += 1;
        match Datagram::read(datagram) {
            Ok(Datagram::Swim(message)) => {
                if let Err(reason) = self.handle_swim(now_us, from, &message, out) {
                    self.exchange.counts.dropped.add(reason);
                }
                self.rejoin_if_due(now_us, out);
            }
            Ok(Datagram::Hello(_)) => self.exchange.counts.dropped.add(Dropped::Unused),
            Ok(Datagram::Where(places)) => self.handle_where(now_us, from, places, out),
            Ok(datagram) => {
                self.exchange.handle_datagram(now_us, from, &datagram, out);
                self.ask_who(now_us, from, out);
            }
            Err(reason) => self.exchange.counts.malformed.add(reason),
        }
    }

    fn handle_swim(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        message: &SwimView<'_>,
        out: &mut impl Output,
    ) -> Result<(), Dropped> {
        if from == self.foca.identity().address {
            return Err(Dropped::Own);
        }
        if message.source.address != from {
            return Err(Dropped::Spoofed);
        }
        let me = self.foca.identity();
        if message.to.address == me.address && foca::Identity::win_addr_conflict(&message.to, me) {
            self.rejoin.outlive(now_us, message.to.life);
        }
        let mut filtered = Vec::new();
        let bytes = if self.has_room(message.updates() + 1) {
            message.message
        } else {
            self.filter(message, &mut filtered)?;
            filtered.as_slice()
        };
        self.drive(now_us, out, |foca, events| foca.handle_data(bytes, events));
        Ok(())
    }

    /// Whether so many members more could be remembered. The longest dead are forgotten for them.
    fn has_room(&mut self, more: usize) -> bool {
        let known = self.foca.iter_membership_state().len();
        let beyond = (known + more).saturating_sub(self.config.members_max);
        if beyond == 0 {
            return true;
        }
        let mut dead: Vec<_> =
            self.dead.iter().map(|(&address, &(forget_us, _))| (forget_us, address)).collect();
        dead.sort_unstable();
        for &(_, address) in dead.iter().take(beyond) {
            self.forget(address);
        }
        dead.len() >= beyond
    }

    fn forget(&mut self, address: SocketAddr) {
        let Some((_, identity)) = self.dead.remove(&address) else { return };
        struct Deaf;
        impl foca::Runtime<Identity> for Deaf {
            fn notify(&mut self, _: foca::Notification<'_, Identity>) {}
            fn send_to(&mut self, _: Identity, _: &[u8]) {}
            fn submit_after(&mut self, _: Timer<Identity>, _: std::time::Duration) {}
        }
        // Does nothing but take the identity off a list.
        let _ = self.foca.handle_timer(Timer::RemoveDown(identity), Deaf);
    }

    /// Leaves out of a message those members for whom there is no room.
    fn filter(&mut self, message: &SwimView<'_>, filtered: &mut Vec<u8>) -> Result<(), Dropped> {
        let known = self.foca.iter_membership_state().map(|member| member.id().address);
        let known: HashSet<SocketAddr> = known.collect();
        if !known.contains(&message.source.address) {
            return Err(Dropped::MembersFull);
        }
        let without = message.write_filtered(filtered, |identity| known.contains(&identity.address));
        self.exchange.counts.dropped.add_times(Dropped::MembersFull, without as u64);
        Ok(())
    }

    /// See [`Membership`](crate::Membership::poll_timeout).
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.left {
            return None;
        }
        let seed = (!self.seeds.is_empty() || !self.connected).then_some(self.next_seed_us);
        let forget = self.dead.values().map(|&(forget_us, _)| forget_us).min();
        let due = [
            self.timers.next_due_us(),
            seed,
            forget,
            self.rejoin.due_us(),
            self.reviving.due_us(),
            self.exchange.poll_timeout(),
        ];
        due.into_iter().flatten().min()
    }

    /// See [`Membership`](crate::Membership::handle_timeout).
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        if self.left {
            return;
        }
        // Every timer that is set in here is due later than now.
        while let Some(timer) = self.timers.take_due(now_us) {
            self.drive(now_us, out, |foca, events| foca.handle_timer(timer, events));
        }
        let long_dead: Vec<SocketAddr> = (self.dead.iter())
            .filter(|&(_, &(forget_us, _))| forget_us <= now_us)
            .map(|(&address, _)| address)
            .collect();
        for address in long_dead {
            self.forget(address);
        }
        self.rejoin_if_due(now_us, out);
        self.revive_if_due(now_us, out);
        self.reach_out(now_us, out);
        self.exchange.handle_timeout(now_us, out);
    }

    /// Asks for members: a seed that is none, since it may belong to another part of a cluster that has fallen apart; and
    /// as long as nobody knows this node, anybody. One datagram may be lost, so this is done again and again.
    fn reach_out(&mut self, now_us: u64, out: &mut impl Output) {
        if now_us < self.next_seed_us {
            return;
        }
        let period_us = if self.connected { self.config.seed_check_us } else { self.config.seed_retry_us };
        self.next_seed_us = now_us + period_us * 3 / 4 + self.exchange.draw(period_us / 2);
        let members = self.exchange.directory.len() as u64;
        if !self.connected && members > 0 {
            let place = self.exchange.draw(members) as usize;
            self.announce(now_us, self.exchange.directory.at(place).peer.address, out);
        }
        for _ in 0..self.seeds.len() {
            let address = self.seeds[self.seed];
            self.seed = (self.seed + 1) % self.seeds.len();
            if !self.connected || self.exchange.directory.id_at(address).is_none() {
                self.announce(now_us, address, out);
                return;
            }
        }
    }

    /// Asks a member that spoke of others who are none here where these are.
    fn ask_who(&mut self, now_us: u64, from: SocketAddr, out: &mut impl Output) {
        let strangers = std::mem::take(&mut self.exchange.strangers);
        if strangers.is_empty() || now_us < self.next_who_us {
            return;
        }
        self.next_who_us = now_us + WHO_PERIOD_US;
        let mut question = [0; DATAGRAM_MAX];
        let length = write_who(&strangers, &mut question);
        self.strangers = strangers;
        self.exchange.send(from, &question[..length], out);
    }

    /// Asks those who are said to be there: they are believed once they answer themselves.
    fn handle_where(&mut self, now_us: u64, from: SocketAddr, places: WhereView<'_>, out: &mut impl Output) {
        if self.exchange.directory.id_at(from).is_none() {
            self.exchange.counts.dropped.add(Dropped::Stranger);
            return;
        }
        for (id, address) in places.places() {
            let Some(at) = self.strangers.iter().position(|&stranger| stranger == id) else {
                self.exchange.counts.dropped.add(Dropped::Unasked);
                continue;
            };
            self.strangers.swap_remove(at);
            if self.exchange.directory.get(id).is_none() && address != self.foca.identity().address {
                self.announce(now_us, address, out);
            }
        }
    }

    /// Asks a node for members. Only the address counts: who lives there is not known, or may have changed.
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
        // To some others, since one of the first datagrams may be lost.
        self.drive(now_us, out, |foca, events| foca.gossip(events));
    }

    /// Lets the library do something, and does what it wants.
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
            dead: &mut self.dead,
            counts: &mut self.exchange.counts,
            scratch: &mut self.scratch,
            out,
            news: News::default(),
        };
        let result = act(&mut self.foca, &mut events);
        let news = events.news;
        if result.is_err() {
            self.exchange.counts.dropped.add(Dropped::Swim);
        }
        debug_assert!(self.scratch.len() >= HEADER);
        if self.left {
            return;
        }
        self.connected = news.connected.unwrap_or(self.connected);
        if news.members_changed {
            self.reconcile(now_us);
        }
        if news.back_from_the_dead {
            self.reviving.begin(now_us);
        }
        if news.we_are_dead {
            self.rejoin.want(now_us);
        }
    }

    /// Brings the directory to what the failure detector knows.
    fn reconcile(&mut self, now_us: u64) {
        let own = self.foca.identity();
        let mut members: BTreeMap<NodeId, Identity> = BTreeMap::new();
        let mut twins = 0;
        for member in self.foca.iter_members().map(foca::Member::id) {
            if member.address == own.address {
                continue;
            }
            let twin = members.get(&member.id).copied();
            twins += u64::from(twin.is_some() || member.id == own.id);
            // Of two with one id one can be served; whichever, but always the same.
            let first = twin.is_none_or(|twin| (twin.life, twin.address) < (member.life, member.address));
            if first && member.id != own.id {
                members.insert(member.id, *member);
            }
        }
        self.exchange.counts.dropped.add_times(Dropped::Twin, twins);
        let gone: Vec<NodeId> = (self.exchange.directory.peers())
            .filter(|peer| members.get(&peer.id).is_none_or(|member| member.address != peer.address))
            .map(|peer| peer.id)
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

    /// Bytes of memory held, roughly.
    pub fn memory_bytes(&self) -> usize {
        let known = self.foca.iter_membership_state().len() + self.foca.updates_backlog();
        let member = size_of::<foca::Member<Identity>>() + 32;
        let dead = self.dead.len() * 2 * size_of::<Identity>();
        self.exchange.memory_bytes() + known * member + dead + self.timers.len() * 128
    }
}
