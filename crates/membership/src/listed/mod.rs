//! Membership from a file: the addresses are known, and who lives there is learnt from their Hellos.

mod file;

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::{GroupId, NodeId};

use crate::Output;
use crate::counters::Dropped;
use crate::exchange::{Exchange, ListsConfig};
use crate::me::{ConfigError, Me, in_range};
use crate::wire::swim::canonical;
use crate::wire::{Datagram, Hello};
pub use file::{FileError, LISTED_MAX, ListedMember, MemberFile};

/// How membership from a file behaves.
#[derive(Clone, Copy, Debug)]
pub struct StaticConfig {
    /// Each node says Hello to each other this often.
    pub hello_period_us: u64,
    /// Who is silent for so long leaves the view.
    pub silence_us: u64,
    /// What is known of groups, and how it travels.
    pub lists: ListsConfig,
}

impl Default for StaticConfig {
    fn default() -> Self {
        Self { hello_period_us: 1_000_000, silence_us: 5_000_000, lists: ListsConfig::default() }
    }
}

/// A Hello that answers one is sent at most so often to one address.
const ANSWER_PERIOD_US: u64 = 50_000;

/// Periods in which a new node asks for those who do not answer four times.
const EAGER_PERIODS: u8 = 3;

/// An address of the file.
#[derive(Debug)]
struct Listed {
    address: SocketAddr,
    /// The groups that the file says it is in: right as long as its Hello has their check.
    groups: Arc<[GroupId]>,
    /// Life and number of the last Hello that was believed.
    heard: Option<(u64, u32)>,
    /// Who lives there, and until when that is believed.
    living: Option<(NodeId, u64)>,
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
    /// Of our next Hello.
    number: u32,
    next_hello_us: u64,
    /// When those who are silent are asked again, within a period.
    next_eager_us: Option<u64>,
    /// Periods in which this is still done.
    eager_periods: u8,
    left: bool,
}

impl Static {
    /// A node among the members of `file`, in which it may stand itself. `chance` decides all that is left to chance.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: StaticConfig, me: Me, file: &MemberFile, chance: u64) -> Result<Self, ConfigError> {
        let me = me.check()?;
        in_range("hello_period_us", config.hello_period_us, 10_000..=600_000_000, "10 ms to 10 minutes")?;
        let twice_us = 2 * config.hello_period_us;
        in_range("silence_us", config.silence_us, twice_us..=3_600_000_000, "two periods to an hour")?;
        config.lists.check()?;
        let others = file.members().iter().filter(|member| member.address != me.address);
        let listed: Vec<Listed> = others
            .map(|member| Listed {
                address: member.address,
                groups: member.group_ids().into(),
                heard: None,
                living: None,
                answered_us: None,
            })
            .collect();
        let by_address = listed.iter().enumerate().map(|(at, listed)| (listed.address, at)).collect();
        Ok(Self {
            me,
            listed,
            by_address,
            exchange: Exchange::new(me.id, config.lists, ChaCha8Rng::seed_from_u64(chance)),
            number: 0,
            next_hello_us: 0,
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
            Ok(Datagram::Hello(hello)) => {
                if let Err(reason) = self.handle_hello(now_us, from, &hello, out) {
                    self.exchange.counts.dropped.add(reason);
                }
            }
            Ok(Datagram::Swim(_) | Datagram::Where(_)) => self.exchange.counts.dropped.add(Dropped::Unused),
            Ok(datagram) => self.exchange.handle_datagram(now_us, from, &datagram, out),
            Err(reason) => self.exchange.counts.malformed.add(reason),
        }
    }

    fn handle_hello(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        hello: &Hello,
        out: &mut impl Output,
    ) -> Result<(), Dropped> {
        if from == self.me.address {
            return Err(Dropped::Own);
        }
        let at = self.by_address.get(&from).copied().ok_or(Dropped::Stranger)?;
        let elsewhere =
            |peer: NodeId| self.exchange.directory.get(peer).is_some_and(|it| it.peer.address != from);
        if hello.id == self.me.id || elsewhere(hello.id) {
            return Err(Dropped::Twin);
        }
        let listed = &mut self.listed[at];
        let newer = listed.heard.is_none_or(|heard| heard < (hello.life, hello.number));
        // Once nobody lives there, an earlier life is one whose clock was set back, and not the past come again.
        let clock_set_back =
            listed.living.is_none() && listed.heard.is_some_and(|(life, _)| hello.life < life);
        if !newer && !clock_set_back {
            return Err(Dropped::Stale);
        }
        listed.heard = Some((hello.life, hello.number));
        let before = listed.living.take().map(|(id, _)| id);
        if let Some(gone) = before.filter(|&id| id != hello.id || hello.leaving) {
            self.exchange.dismiss(gone);
        }
        if hello.leaving {
            return Ok(());
        }
        listed.living = Some((hello.id, now_us + self.config.silence_us));
        if before != Some(hello.id) {
            self.exchange.admit(now_us, hello.id, from);
        }
        let guess = Some(&self.listed[at].groups);
        self.exchange.hear(now_us, hello.id, hello.version, hello.check, guess);
        let listed = &mut self.listed[at];
        let due = listed.answered_us.is_none_or(|last_us| now_us >= last_us + ANSWER_PERIOD_US);
        if hello.answer && due {
            listed.answered_us = Some(now_us);
            self.say_hello(at, false, out);
        }
        Ok(())
    }

    /// Says Hello to one address, asking for one in return if nobody is known there.
    fn say_hello(&mut self, at: usize, leaving: bool, out: &mut impl Output) {
        let own = self.exchange.own();
        let hello = Hello {
            id: self.me.id,
            life: self.me.life,
            number: self.number,
            version: own.version,
            check: own.check,
            leaving,
            answer: !leaving && self.listed[at].living.is_none(),
        };
        self.number = self.number.wrapping_add(1);
        self.exchange.send(self.listed[at].address, &hello.to_wire(), out);
    }

    fn say_hello_to_all(&mut self, leaving: bool, out: &mut impl Output) {
        for at in 0..self.listed.len() {
            self.say_hello(at, leaving, out);
        }
    }

    /// While a node is new, whoever did not answer is asked sooner than in the next period.
    fn say_hello_to_silent(&mut self, out: &mut impl Output) {
        for at in 0..self.listed.len() {
            if self.listed[at].living.is_none() {
                self.say_hello(at, false, out);
            }
        }
    }

    /// See [`Membership`](crate::Membership::poll_timeout).
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.left {
            return None;
        }
        let silent =
            self.listed.iter().filter_map(|listed| listed.living).map(|(_, until_us)| until_us).min();
        let due = [Some(self.next_hello_us), self.next_eager_us, silent, self.exchange.poll_timeout()];
        due.into_iter().flatten().min()
    }

    /// See [`Membership`](crate::Membership::handle_timeout).
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        if self.left {
            return;
        }
        for listed in &mut self.listed {
            if let Some((id, _)) = listed.living.take_if(|(_, until_us)| *until_us <= now_us) {
                self.exchange.dismiss(id);
            }
        }
        if now_us >= self.next_hello_us {
            // A little uneven, so that a cluster that started at once does not speak at once for ever.
            let period_us = self.config.hello_period_us;
            self.next_hello_us = now_us + period_us * 7 / 8 + self.exchange.draw(period_us / 4);
            self.say_hello_to_all(false, out);
            if self.eager_periods > 0 {
                self.eager_periods -= 1;
                self.next_eager_us = Some(now_us + period_us / 4);
            }
        } else if self.next_eager_us.is_some_and(|due_us| due_us <= now_us) {
            let next_us = now_us + self.config.hello_period_us / 4;
            self.next_eager_us = (next_us < self.next_hello_us).then_some(next_us);
            self.say_hello_to_silent(out);
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
            // Three times, since one may be lost.
            (0..3).for_each(|_| self.say_hello_to_all(true, out));
        }
    }

    /// Bytes of memory held, roughly.
    pub fn memory_bytes(&self) -> usize {
        let groups: usize = self.listed.iter().map(|listed| listed.groups.len()).sum();
        self.exchange.memory_bytes() + self.listed.len() * (size_of::<Listed>() + 64) + groups * 8
    }
}
