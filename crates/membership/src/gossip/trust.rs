//! Trust in other nodes: this node believes of them only what they have proven themselves
//! ([`Proofs`](crate::proofs::Proofs)).
//!
//! - A message counts only if its source has proven that it lives at the address that the message came from.
//! - News of a node that has not proven itself here leads to a question to its address, and to nothing else.
//!   News of a life that begins later than tomorrow is refused.
//! - News that a proven node is down, which may be forged, leads to a question too. The news counts if no
//!   answer comes. Suspicions count at once, since a live node refutes them.

use std::net::SocketAddr;

use foca::{Identity as _, Member, State};

use super::Gossip;
use crate::counters::Dropped;
use crate::output::Output;
use crate::proofs::{Due, Proven};
use crate::wire::swim::{Identity, SwimView};
use crate::wire::{Datagram, IdentityAnswer, IdentityQuestion};

impl Gossip {
    /// Returns the address of the node that has answered last, once.
    pub(crate) fn take_proven(&mut self) -> Option<SocketAddr> {
        self.just_proven.take()
    }

    /// Asks which node lives at an address, unless that is known.
    pub(crate) fn ask(&mut self, now_us: u64, address: SocketAddr) {
        if self.proofs.at(address).is_none() && address != self.foca.identity().address {
            self.proofs.ask(now_us, address);
        }
    }

    /// Checks that the source of a message has proven its identity. If it has not, the message waits for
    /// that.
    pub(super) fn check_source(
        &mut self,
        now_us: u64,
        source: &Identity,
        datagram: &[u8],
    ) -> Result<(), Dropped> {
        if self.proofs.is_proven(source.address, source.id, source.life) {
            return Ok(());
        }
        self.proofs.ask_and_hold(now_us, source.address, datagram);
        Err(Dropped::Unproven)
    }

    /// Copies a message without the updates that are not believed. Returns false if it has none of these.
    pub(super) fn filter(&mut self, now_us: u64, message: &SwimView<'_>, filtered: &mut Vec<u8>) -> bool {
        let own = self.foca.identity().address;
        let Self { proofs, foca, exchange, down, config, .. } = self;
        let latest = proofs.latest_life(now_us);
        let mut futures = 0;
        let without = message.write_filtered(filtered, |update| {
            let Identity { address, id, life } = *update.id();
            if address == own {
                return true;
            }
            if life > latest {
                futures += 1;
                return false;
            }
            let is_down = update.state() == State::Down;
            match proofs.at(address) {
                Some(known) if known == (Proven { id, life }) => {
                    if is_down && !down.contains_key(&address) {
                        proofs.ask_whether_gone(now_us, address, update.incarnation());
                    }
                    !is_down
                }
                Some(known) if is_down || (life, id) <= (known.life, known.id) => false,
                None if is_down || foca.iter_membership_state().len() >= config.members_max => false,
                _ => {
                    proofs.ask_named(now_us, address);
                    false
                }
            }
        });
        exchange.counts.dropped.add_times(Dropped::Future, futures);
        exchange.counts.dropped.add_times(Dropped::Hearsay, without as u64 - futures);
        without > 0
    }

    /// Answers a question which node this is. Whoever asks is unknown until it has answered the same
    /// question.
    pub(super) fn handle_identity_question(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        question: &IdentityQuestion,
        out: &mut impl Output,
    ) {
        let me = *self.foca.identity();
        if from == me.address {
            return self.exchange.counts.dropped.add(Dropped::Own);
        }
        self.exchange.answer_identity(from, question.token, me.id, me.life, out);
        if question.id != me.id && !self.proofs.is_proven(from, question.id, question.life) {
            self.proofs.ask_once(now_us, from);
        }
    }

    /// Takes the answer of a node: it lives at this address.
    pub(super) fn handle_identity_answer(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        answer: &IdentityAnswer,
        out: &mut impl Output,
    ) {
        let node = Proven { id: answer.id, life: answer.life };
        let held = match self.proofs.on_answer(from, answer.token, node) {
            Ok(held) => held,
            Err(reason) => return self.exchange.counts.dropped.add(reason),
        };
        self.just_proven = Some(from);
        let identity = Identity { address: from, id: node.id, life: node.life };
        let known = self.foca.iter_membership_state().find(|member| member.id().address == from).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.id().win_addr_conflict(&identity)) {
            self.replace(now_us, known, out);
        }
        if known.is_none_or(|known| *known.id() != identity) {
            if !self.make_room(1) {
                self.proofs.forget(from);
                return self.exchange.counts.dropped.add(Dropped::MembersFull);
            }
            let news = [Member::alive(identity)];
            self.drive(now_us, out, |foca, events| foca.apply_many(news.into_iter(), true, events));
            self.sweep_proofs();
        }
        self.exchange.on_identity(now_us, answer, None);
        let Some(held) = held else { return };
        if let Ok(Datagram::Swim(message)) = Datagram::read(&held)
            && let Err(reason) = self.handle_swim(now_us, from, &message, &held, out)
        {
            self.exchange.counts.dropped.add(reason);
        }
    }

    /// Forgets a life at an address where an earlier one has proven itself: a clock was set back.
    fn replace(&mut self, now_us: u64, known: &Member<Identity>, out: &mut impl Output) {
        let news = [Member::new(*known.id(), known.incarnation(), State::Down)];
        self.drive(now_us, out, |foca, events| foca.apply_many(news.into_iter(), false, events));
        self.forget(known.id().address);
    }

    /// Sends the questions that are due, and takes nodes for gone that are said to be and have not answered.
    pub(super) fn ask_due(&mut self, now_us: u64, out: &mut impl Output) {
        for address in self.exchange.poll_verifications(now_us) {
            self.proofs.ask(now_us, address);
        }
        if self.proofs.poll_timeout().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let Due { questions, gone } = self.proofs.poll(now_us);
        let me = *self.foca.identity();
        for (address, token) in questions {
            let question = IdentityQuestion { token, id: me.id, life: me.life };
            self.exchange.send(address, &question.to_wire(), out);
        }
        for (address, incarnation) in gone {
            let Some(Proven { id, life }) = self.proofs.at(address) else { continue };
            let news = [Member::new(Identity { address, id, life }, incarnation, State::Down)];
            self.drive(now_us, out, |foca, events| foca.apply_many(news.into_iter(), true, events));
        }
    }

    fn sweep_proofs(&mut self) {
        let Self { proofs, foca, config, .. } = self;
        let known =
            |address: &SocketAddr| foca.iter_membership_state().any(|member| member.id().address == *address);
        proofs.sweep(2 * config.members_max, known);
    }
}
