//! The questions and answers by which nodes prove which life they are, for providers that send none.

use std::net::SocketAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::GroupId;

use crate::counters::{Counts, Dropped};
use crate::exchange::Member;
use crate::me::{ConfigError, Me};
use crate::output::Output;
use crate::proofs::{Proofs, Proven};
use crate::view::View;
use crate::wire::swim::canonical;
use crate::wire::{Datagram, IdentityAnswer, IdentityQuestion};

/// A provider, with the exchange of proofs where the provider has none. A node with a cluster key takes
/// nothing from an address before the node there has proven its life.
pub struct Proving {
    provider: Box<dyn View + Send>,
    me: Me,
    proofs: Proofs,
    /// The node that has answered last, until the driver fetches it.
    just_proven: Option<SocketAddr>,
    counts: Counts,
    left: bool,
}

impl Proving {
    /// Adds the exchange to a provider. All random decisions follow from `random_seed`.
    ///
    /// # Errors
    /// [`ConfigError`]: no node can have this identity.
    pub fn new(me: Me, provider: Box<dyn View + Send>, random_seed: u64) -> Result<Self, ConfigError> {
        let me = me.check()?;
        let proofs = Proofs::new(me.life, ChaCha8Rng::seed_from_u64(random_seed));
        Ok(Self { provider, me, proofs, just_proven: None, counts: Counts::default(), left: false })
    }

    /// Sends the questions that are due. No node counts as gone here because it does not answer.
    fn ask_due(&mut self, now_us: u64, out: &mut dyn Output) {
        if self.proofs.poll_timeout().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        for (address, token) in self.proofs.poll(now_us).questions {
            let question = IdentityQuestion { token, id: self.me.id, life: self.me.life };
            self.send(address, &question.to_wire(), out);
        }
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8], out: &mut dyn Output) {
        self.counts.sent += 1;
        self.counts.sent_bytes += datagram.len() as u64;
        out.send(to, datagram);
    }

    /// Answers a question or takes an answer. Returns whether the datagram was one of them.
    fn handle_proof(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output) -> bool {
        match Datagram::read(datagram) {
            Ok(Datagram::IdentityQuestion(_) | Datagram::IdentityAnswer(_)) if from == self.me.address => {
                self.counts.dropped.add(Dropped::Own);
            }
            Ok(Datagram::IdentityQuestion(question)) => {
                let Me { id, life, .. } = self.me;
                // The lists of groups go another way, so that the answer names none.
                let answer = IdentityAnswer { token: question.token, id, life, version: 0, check: 0 };
                self.send(from, &answer.to_wire(), out);
            }
            Ok(Datagram::IdentityAnswer(answer)) => {
                let node = Proven { id: answer.id, life: answer.life };
                match self.proofs.on_answer(from, answer.token, node) {
                    // The driver remembers it.
                    Ok(_) => {
                        self.proofs.forget(from);
                        self.just_proven = Some(from);
                    }
                    Err(reason) => self.counts.dropped.add(reason),
                }
            }
            Ok(_) => return false,
            Err(reason) => {
                self.counts.malformed.add(reason);
                return false;
            }
        }
        self.ask_due(now_us, out);
        true
    }
}

impl View for Proving {
    fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output) {
        if self.left {
            return;
        }
        let from = canonical(from);
        if !self.provider.proves_lives() {
            self.proofs.on_time(now_us);
            self.counts.received += 1;
            if self.handle_proof(now_us, from, datagram, out) {
                return;
            }
        }
        self.provider.handle_datagram(now_us, from, datagram, out);
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output) {
        if self.left {
            return;
        }
        self.ask_due(now_us, out);
        if self.provider.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            self.provider.handle_timeout(now_us, out);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        if self.left {
            return None;
        }
        [self.proofs.poll_timeout(), self.provider.poll_timeout()].into_iter().flatten().min()
    }

    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output) {
        if !self.left {
            self.provider.set_groups(now_us, groups, out);
        }
    }

    fn leave(&mut self, now_us: u64, out: &mut dyn Output) {
        if !std::mem::replace(&mut self.left, true) {
            self.provider.leave(now_us, out);
        }
    }

    fn version(&self) -> u64 {
        self.provider.version()
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        self.provider.members()
    }

    fn ask(&mut self, now_us: u64, address: SocketAddr) {
        if self.left {
            return;
        }
        if self.provider.proves_lives() {
            self.provider.ask(now_us, address);
        } else if address != self.me.address {
            self.proofs.ask(now_us, address);
        }
    }

    fn take_proven(&mut self) -> Option<SocketAddr> {
        if self.provider.proves_lives() { self.provider.take_proven() } else { self.just_proven.take() }
    }

    fn proves_lives(&self) -> bool {
        true
    }

    fn counts(&self) -> Counts {
        if self.provider.proves_lives() { self.provider.counts() } else { self.counts }
    }

    fn memory_bytes(&self) -> usize {
        self.proofs.memory_bytes() + self.provider.memory_bytes()
    }
}
