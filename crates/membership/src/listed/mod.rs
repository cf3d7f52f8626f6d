//! Membership from a file: the file names the addresses, presence datagrams tell which nodes live there.

mod file;

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::{GroupId, NodeId};

use crate::counters::Dropped;
use crate::exchange::{Exchange, ListsConfig};
use crate::me::{ConfigError, Me, in_range};
use crate::output::Output;
use crate::wire::swim::canonical;
use crate::wire::{Datagram, Presence};
pub use file::{FileError, LISTED_MAX, ListedMember, MemberFile};

/// Times of membership from a file.
#[derive(Clone, Copy, Debug)]
pub struct StaticConfig {
    /// Interval between presence datagrams to each other node.
    pub presence_period_us: u64,
    /// Time without a presence datagram after which a node leaves the view.
    pub silence_us: u64,
    /// Bounds and times of the exchange of lists.
    pub lists: ListsConfig,
}

impl Default for StaticConfig {
    fn default() -> Self {
        Self { presence_period_us: 1_000_000, silence_us: 5_000_000, lists: ListsConfig::default() }
    }
}

/// Minimum interval between presence datagrams that answer one address.
const ANSWER_PERIOD_US: u64 = 50_000;

/// Number of periods in which a new node contacts silent addresses four times instead of once.
const EAGER_PERIODS: u8 = 3;

/// An address of the file.
#[derive(Debug)]
struct Listed {
    address: SocketAddr,
    /// Groups according to the file: right if the presence datagram has their check.
    groups: Arc<[GroupId]>,
    /// Life and number of the last presence datagram that was accepted.
    last_presence: Option<(u64, u32)>,
    /// The node that lives there, and the time until which it is considered alive.
    live: Option<(NodeId, u64)>,
    answered_us: Option<u64>,
}

/// A node that knows the addresses of all others from a file.
#[derive(Debug)]
pub struct Static {
    config: StaticConfig,
    me: Me,
    listed: Vec<Listed>,
    by_address: HashMap<SocketAddr, usize>,
    exchange: Exchange,
    /// Number of the next presence datagram.
    number: u32,
    next_presence_us: u64,
    /// Time at which silent addresses are contacted again within a period.
    next_eager_us: Option<u64>,
    /// Number of periods in which this is still done.
    eager_periods: u8,
    left: bool,
}

impl Static {
    /// Creates a node among the members of `file`, which may list the node itself. All random decisions
    /// follow from `random_seed`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        config: StaticConfig,
        me: Me,
        file: &MemberFile,
        random_seed: u64,
    ) -> Result<Self, ConfigError> {
        let me = me.check()?;
        let period_us = config.presence_period_us;
        in_range("presence_period_us", period_us, 10_000..=600_000_000, "10 ms to 10 minutes")?;
        let twice_us = 2 * period_us;
        in_range("silence_us", config.silence_us, twice_us..=3_600_000_000, "two periods to an hour")?;
        config.lists.check()?;
        let others = file.members().iter().filter(|member| member.address != me.address);
        let listed: Vec<Listed> = others
            .map(|member| Listed {
                address: member.address,
                groups: member.group_ids().into(),
                last_presence: None,
                live: None,
                answered_us: None,
            })
            .collect();
        let by_address = listed.iter().enumerate().map(|(at, listed)| (listed.address, at)).collect();
        Ok(Self {
            me,
            listed,
            by_address,
            exchange: Exchange::new(me.id, config.lists, ChaCha8Rng::seed_from_u64(random_seed)),
            number: 0,
            next_presence_us: 0,
            next_eager_us: None,
            eager_periods: EAGER_PERIODS,
            left: false,
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
            Ok(Datagram::Presence(presence)) => {
                if let Err(reason) = self.handle_presence(now_us, from, &presence, out) {
                    self.exchange.counts.dropped.add(reason);
                }
            }
            Ok(Datagram::Swim(_) | Datagram::AddressReply(_)) => {
                self.exchange.counts.dropped.add(Dropped::Unused);
            }
            Ok(datagram) => self.exchange.handle_datagram(now_us, from, &datagram, out),
            Err(reason) => self.exchange.counts.malformed.add(reason),
        }
    }

    fn handle_presence(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        presence: &Presence,
        out: &mut impl Output,
    ) -> Result<(), Dropped> {
        if from == self.me.address {
            return Err(Dropped::Own);
        }
        let at = self.by_address.get(&from).copied().ok_or(Dropped::NotMember)?;
        let elsewhere =
            |id: NodeId| self.exchange.directory.get(id).is_some_and(|entry| entry.member.address != from);
        if presence.id == self.me.id || elsewhere(presence.id) {
            return Err(Dropped::DuplicateId);
        }
        let listed = &mut self.listed[at];
        let newer = listed.last_presence.is_none_or(|last| last < (presence.life, presence.number));
        // If no node lives there, an earlier life is that of a node whose clock was set back, not a replay.
        let clock_set_back =
            listed.live.is_none() && listed.last_presence.is_some_and(|(life, _)| presence.life < life);
        if !newer && !clock_set_back {
            return Err(Dropped::Stale);
        }
        listed.last_presence = Some((presence.life, presence.number));
        let before = listed.live.take().map(|(id, _)| id);
        if let Some(gone) = before.filter(|&id| id != presence.id || presence.leaving) {
            self.exchange.dismiss(gone);
        }
        if presence.leaving {
            return Ok(());
        }
        listed.live = Some((presence.id, now_us + self.config.silence_us));
        if before != Some(presence.id) {
            self.exchange.admit(now_us, presence.id, from);
        }
        let guess = Some(&self.listed[at].groups);
        self.exchange.on_presence(now_us, presence.id, presence.version, presence.check, guess);
        let listed = &mut self.listed[at];
        let due = listed.answered_us.is_none_or(|last_us| now_us >= last_us + ANSWER_PERIOD_US);
        if presence.answer && due {
            listed.answered_us = Some(now_us);
            self.send_presence(at, false, out);
        }
        Ok(())
    }

    /// Sends a presence datagram to one address. Asks for one in return if no node is known there.
    fn send_presence(&mut self, at: usize, leaving: bool, out: &mut impl Output) {
        let own = self.exchange.own();
        let presence = Presence {
            id: self.me.id,
            life: self.me.life,
            number: self.number,
            version: own.version,
            check: own.check,
            leaving,
            answer: !leaving && self.listed[at].live.is_none(),
        };
        self.number = self.number.wrapping_add(1);
        self.exchange.send(self.listed[at].address, &presence.to_wire(), out);
    }

    fn send_presence_to_all(&mut self, leaving: bool, out: &mut impl Output) {
        for at in 0..self.listed.len() {
            self.send_presence(at, leaving, out);
        }
    }

    fn send_presence_to_silent(&mut self, out: &mut impl Output) {
        for at in 0..self.listed.len() {
            if self.listed[at].live.is_none() {
                self.send_presence(at, false, out);
            }
        }
    }

    /// See [`Membership`](crate::Membership::poll_timeout).
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.left {
            return None;
        }
        let silent = self.listed.iter().filter_map(|listed| listed.live).map(|(_, until_us)| until_us).min();
        let due = [Some(self.next_presence_us), self.next_eager_us, silent, self.exchange.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// See [`Membership`](crate::Membership::handle_timeout).
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        if self.left {
            return;
        }
        for listed in &mut self.listed {
            if let Some((id, _)) = listed.live.take_if(|(_, until_us)| *until_us <= now_us) {
                self.exchange.dismiss(id);
            }
        }
        if now_us >= self.next_presence_us {
            // Random, so that nodes that started at the same time do not send at the same time for ever.
            let period_us = self.config.presence_period_us;
            self.next_presence_us = now_us + period_us * 7 / 8 + self.exchange.draw(period_us / 4);
            self.send_presence_to_all(false, out);
            if self.eager_periods > 0 {
                self.eager_periods -= 1;
                self.next_eager_us = Some(now_us + period_us / 4);
            }
        } else if self.next_eager_us.is_some_and(|due_us| due_us <= now_us) {
            let next_us = now_us + self.config.presence_period_us / 4;
            self.next_eager_us = (next_us < self.next_presence_us).then_some(next_us);
            self.send_presence_to_silent(out);
        }
        self.exchange.handle_timeout(now_us, out);
    }

    /// See [`Membership`](crate::Membership::set_groups).
    pub fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut impl Output) {
        if !self.left {
            self.exchange.set_groups(now_us, groups, out);
        }
    }

    /// See [`Membership`](crate::Membership::leave).
    pub fn leave(&mut self, _now_us: u64, out: &mut impl Output) {
        if !std::mem::replace(&mut self.left, true) {
            // Three times, since a datagram may be lost.
            (0..3).for_each(|_| self.send_presence_to_all(true, out));
        }
    }

    /// Returns roughly the bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let groups: usize = self.listed.iter().map(|listed| listed.groups.len()).sum();
        self.exchange.memory_bytes() + self.listed.len() * (size_of::<Listed>() + 64) + groups * 8
    }
}
