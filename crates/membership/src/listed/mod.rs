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
use crate::proofs::{Due, Proofs, Proven};
use crate::wire::swim::canonical;
use crate::wire::{Datagram, IdentityAnswer, IdentityQuestion, Presence};
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
    /// Number of the last presence datagram that was accepted.
    last_presence: Option<u32>,
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
    proofs: Proofs,
    /// The node that has answered last, until the driver fetches it.
    just_proven: Option<SocketAddr>,
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
        let rng = |stream| {
            let mut rng = ChaCha8Rng::seed_from_u64(random_seed);
            rng.set_stream(stream);
            rng
        };
        let mut made = Self {
            me,
            listed: Vec::new(),
            by_address: HashMap::new(),
            exchange: Exchange::new(me.id, config.lists, rng(0)),
            proofs: Proofs::new(me.life, rng(1)),
            just_proven: None,
            number: 0,
            next_presence_us: 0,
            next_eager_us: None,
            eager_periods: EAGER_PERIODS,
            left: false,
            config,
        };
        made.change_file(0, file);
        Ok(made)
    }

    /// Continues with the members of another file. Nodes at addresses that it does not list are members no
    /// more; those at addresses that are new to it are contacted at once.
    pub fn change_file(&mut self, now_us: u64, file: &MemberFile) {
        let mut before: HashMap<SocketAddr, Listed> =
            self.listed.drain(..).map(|listed| (listed.address, listed)).collect();
        for member in file.members().iter().filter(|member| member.address != self.me.address) {
            let ListedMember { address, .. } = *member;
            let known = before.remove(&address);
            let (last_presence, live, answered_us) = known
                .map_or((None, None, None), |known| (known.last_presence, known.live, known.answered_us));
            let groups = member.group_ids().into();
            self.listed.push(Listed { address, groups, last_presence, live, answered_us });
        }
        for gone in before.into_values() {
            gone.live.into_iter().for_each(|(id, _)| self.exchange.dismiss(id));
            self.proofs.forget(gone.address);
        }
        self.by_address = self.listed.iter().enumerate().map(|(at, listed)| (listed.address, at)).collect();
        self.eager_periods = EAGER_PERIODS;
        self.next_presence_us = now_us;
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
            Ok(Datagram::Presence(presence)) => {
                if let Err(reason) = self.handle_presence(now_us, from, &presence, out) {
                    self.exchange.counts.dropped.add(reason);
                }
            }
            Ok(Datagram::Swim(_) | Datagram::AddressReply(_)) => {
                self.exchange.counts.dropped.add(Dropped::Unused);
            }
            Ok(Datagram::IdentityQuestion(question)) => {
                self.handle_identity_question(now_us, from, &question, out);
            }
            Ok(Datagram::IdentityAnswer(answer)) => {
                if let Err(reason) = self.handle_identity_answer(now_us, from, &answer) {
                    self.exchange.counts.dropped.add(reason);
                }
            }
            Ok(datagram) => self.exchange.handle_datagram(now_us, from, &datagram, out),
            Err(reason) => self.exchange.counts.malformed.add(reason),
        }
        self.ask_due(now_us, out);
    }

    /// Returns the address of the node that has answered last, once.
    pub(crate) fn take_proven(&mut self) -> Option<SocketAddr> {
        self.just_proven.take()
    }

    /// Asks which node lives at a listed address, unless that is known.
    pub(crate) fn ask(&mut self, now_us: u64, address: SocketAddr) {
        if self.by_address.contains_key(&address) && self.proofs.at(address).is_none() {
            self.proofs.ask(now_us, address);
        }
    }

    /// Answers a question which node this is. Whoever asks is unknown until it has answered the same
    /// question.
    fn handle_identity_question(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        question: &IdentityQuestion,
        out: &mut impl Output,
    ) {
        if !self.by_address.contains_key(&from) {
            return self.exchange.counts.dropped.add(Dropped::NotMember);
        }
        self.exchange.answer_identity(from, question.token, self.me.id, self.me.life, out);
        if !self.proofs.is_proven(from, question.id, question.life) {
            self.proofs.ask_once(now_us, from);
        }
    }

    /// Takes the answer of a node: it lives at this address.
    fn handle_identity_answer(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        answer: &IdentityAnswer,
    ) -> Result<(), Dropped> {
        let at = self.by_address.get(&from).copied().ok_or(Dropped::NotMember)?;
        if answer.id == self.me.id || self.lives_elsewhere(answer.id, from) {
            return Err(Dropped::DuplicateId);
        }
        let node = Proven { id: answer.id, life: answer.life };
        self.proofs.on_answer(from, answer.token, node)?;
        self.just_proven = Some(from);
        // The numbers of presence datagrams count from here on, whatever was forged.
        self.listed[at].last_presence = None;
        self.on_alive(now_us, at, answer.id);
        let guess = Some(&self.listed[at].groups);
        self.exchange.on_identity(now_us, answer, guess);
        Ok(())
    }

    fn lives_elsewhere(&self, id: NodeId, address: SocketAddr) -> bool {
        self.exchange.directory.get(id).is_some_and(|entry| entry.member.address != address)
    }

    /// Notes that a node lives at an address, in place of any other.
    fn on_alive(&mut self, now_us: u64, at: usize, id: NodeId) {
        let until_us = now_us + self.config.silence_us;
        let before = self.listed[at].live.replace((id, until_us)).map(|(id, _)| id);
        if before == Some(id) {
            return;
        }
        before.into_iter().for_each(|gone| self.exchange.dismiss(gone));
        self.exchange.admit(now_us, id, self.listed[at].address);
    }

    /// Sends the questions that are due, and takes nodes for gone that are said to leave and have not
    /// answered.
    fn ask_due(&mut self, now_us: u64, out: &mut impl Output) {
        for address in self.exchange.poll_verifications(now_us) {
            self.proofs.ask(now_us, address);
        }
        if self.proofs.poll_timeout().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let Due { questions, gone } = self.proofs.poll(now_us);
        for (address, token) in questions {
            let question = IdentityQuestion { token, id: self.me.id, life: self.me.life };
            self.exchange.send(address, &question.to_wire(), out);
        }
        for (address, _) in gone {
            self.proofs.forget(address);
            let Some(&at) = self.by_address.get(&address) else { continue };
            if let Some((id, _)) = self.listed[at].live.take() {
                self.exchange.dismiss(id);
            }
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
        if presence.id == self.me.id || self.lives_elsewhere(presence.id, from) {
            return Err(Dropped::DuplicateId);
        }
        if !self.proofs.is_proven(from, presence.id, presence.life) {
            if !presence.leaving {
                self.proofs.ask(now_us, from);
            }
            return Err(Dropped::Unproven);
        }
        let listed = &mut self.listed[at];
        if listed.last_presence.is_some_and(|last| last >= presence.number) {
            // A forged number may be ahead of the true ones. Before the node counts as silent, it is asked.
            if listed.live.is_none_or(|(_, until_us)| until_us < now_us + self.config.silence_us / 2) {
                self.proofs.ask(now_us, from);
            }
            return Err(Dropped::Stale);
        }
        listed.last_presence = Some(presence.number);
        if presence.leaving {
            self.proofs.ask_whether_gone(now_us, from, 0);
            return Ok(());
        }
        self.on_alive(now_us, at, presence.id);
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
        let exchange = self.exchange.poll_timeout();
        let due =
            [Some(self.next_presence_us), self.next_eager_us, silent, self.proofs.poll_timeout(), exchange];
        due.into_iter().flatten().min()
    }

    /// See [`Membership`](crate::Membership::handle_timeout).
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        if self.left {
            return;
        }
        self.proofs.on_time(now_us);
        for listed in &mut self.listed {
            if let Some((id, _)) = listed.live.take_if(|(_, until_us)| *until_us <= now_us) {
                self.exchange.dismiss(id);
                // Whoever lives there next must answer first.
                self.proofs.forget(listed.address);
            }
        }
        self.ask_due(now_us, out);
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
        self.exchange.memory_bytes()
            + self.proofs.memory_bytes()
            + self.listed.len() * (size_of::<Listed>() + 64)
            + groups * 8
    }
}
