//! Lists of groups, from those who have them to those who lack them.
//!
//! A list is told from others of the same node by its version. Three ways lead to it:
//! - A *rumour* (`rumours.rs`): who changes its list tells a few others what has changed, and who hears it for the first
//!   time tells it on.
//! - A *question* (`asks.rs`, `answers.rs`): who knows of a version that it lacks asks for it, and gets the steps
//!   that lead there or else the whole list in parts.
//! - A *digest*: now and then two nodes compare what they hold, so that what was lost is found.

mod answers;
mod asks;
mod config;
mod fetch;
mod list;
mod rumours;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;
use ricochet_core::{GroupId, NodeId};

use crate::Output;
use crate::allowance::Allowance;
use crate::counters::{Counts, Dropped};
use crate::directory::{Directory, Entry};
use crate::wire::{
    DATAGRAM_MAX, DIGEST_ENTRIES_MAX, Datagram, Known, StepsView, WHERE_HEADER, WHO_MAX, WhoView, list_check,
    write_digest, write_where,
};
pub(crate) use asks::Lack;
pub use config::ListsConfig;
pub(crate) use list::List;
use rumours::Rumour;

/// This node's own list, the directory of the others', and the talk by which they come to be the same everywhere.
#[derive(Debug)]
pub(crate) struct Exchange {
    config: ListsConfig,
    own_id: NodeId,
    own: List,
    /// What our list shall be next.
    unpublished: Option<Arc<[GroupId]>>,
    published_us: Option<u64>,
    pub(crate) directory: Directory,
    /// Whose lists have changed lately, in order of their ids.
    rumours: BTreeMap<NodeId, Rumour>,
    next_rumour_us: u64,
    /// Lists that were asked for, by the time at which the answer is overdue.
    asked: BTreeSet<(u64, NodeId)>,
    /// Lists that are still to be asked for, by the time from which they may be.
    waiting: BTreeSet<(u64, NodeId)>,
    /// When to compare with somebody; none as long as this node has never been driven.
    next_digest_us: Option<u64>,
    /// The member from which on a digest tells what we hold.
    digest_from: NodeId,
    /// Nodes that a member spoke of lately, and that are no members here.
    pub(crate) strangers: Vec<NodeId>,
    /// What all peers together may have of us.
    allowance: Allowance,
    rng: ChaCha8Rng,
    pub(crate) counts: Counts,
    scratch: Box<[u8; DATAGRAM_MAX]>,
}

impl Exchange {
    pub(crate) fn new(own_id: NodeId, config: ListsConfig, rng: ChaCha8Rng) -> Self {
        Self {
            own_id,
            own: List::empty(1),
            unpublished: None,
            published_us: None,
            directory: Directory::new(config.total_groups_max),
            rumours: BTreeMap::new(),
            next_rumour_us: 0,
            asked: BTreeSet::new(),
            waiting: BTreeSet::new(),
            next_digest_us: None,
            digest_from: NodeId(0),
            strangers: Vec::new(),
            allowance: Allowance::new(config.bytes_per_second_all),
            rng,
            counts: Counts::default(),
            scratch: Box::new([0; DATAGRAM_MAX]),
            config,
        }
    }

    pub(crate) fn own(&self) -> &List {
        &self.own
    }

    /// A number from 0 up to `bound`.
    pub(crate) fn draw(&mut self, bound: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn send(&mut self, to: SocketAddr, datagram: &[u8], out: &mut impl Output) {
        self.counts.sent += 1;
        self.counts.sent_bytes += datagram.len() as u64;
        out.send(to, datagram);
    }

    /// Takes in a member whose list is then asked for; it is neither here by its id nor by its address.
    pub(crate) fn admit(&mut self, now_us: u64, id: NodeId, address: SocketAddr) {
        let allowance = Allowance::new(self.config.bytes_per_second_peer);
        self.directory.admit(id, address, allowance);
        self.told(now_us, id, 0, address);
    }

    /// Lets a member go, with all that is known of it.
    pub(crate) fn dismiss(&mut self, id: NodeId) {
        self.rumours.remove(&id);
        let Some(entry) = self.directory.dismiss(id) else { return };
        if let Some(lack) = entry.lack {
            self.forget(lack.due_us, id);
        }
    }

    /// What this node's list shall be from now on. Told at once, or together with what follows shortly after another
    /// change.
    pub(crate) fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut impl Output) {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() > self.config.groups_max {
            let beyond = groups.len() - self.config.groups_max;
            self.counts.dropped.add_times(Dropped::GroupsMax, beyond as u64);
            groups.truncate(self.config.groups_max);
        }
        self.unpublished = (*groups != *self.own.groups).then(|| groups.into());
        self.publish(now_us, out);
    }

    fn publish_at_us(&self) -> Option<u64> {
        self.unpublished.as_ref()?;
        Some(self.published_us.map_or(0, |last_us| last_us + self.config.rumour_period_us))
    }

    fn publish(&mut self, now_us: u64, out: &mut impl Output) {
        if self.publish_at_us().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let Some(groups) = self.unpublished.take() else { return };
        self.published_us = Some(now_us);
        self.own.advance(groups);
        self.spread(now_us, self.own_id, self.own.version, 0);
        self.rumour_round(now_us, out);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let asks = self.next_ask_us();
        let due = [self.publish_at_us(), self.rumour_due_us(), asks, self.next_digest_us];
        due.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        self.publish(now_us, out);
        if self.rumour_due_us().is_some_and(|due_us| due_us <= now_us) {
            self.rumour_round(now_us, out);
        }
        self.ask_due(now_us, out);
        if self.next_digest_us.is_none_or(|due_us| due_us <= now_us) {
            let period_us = self.config.digest_period_us;
            self.next_digest_us = Some(now_us + period_us * 3 / 4 + self.draw(period_us / 2));
            self.compare(out);
        }
    }

    /// Takes any datagram about lists; of others it knows nothing.
    pub(crate) fn handle_datagram(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        datagram: &Datagram<'_>,
        out: &mut impl Output,
    ) {
        let Some(sender) = self.directory.id_at(from) else {
            self.counts.dropped.add(Dropped::Stranger);
            return;
        };
        match datagram {
            Datagram::Digest(digest) => self.handle_digest(now_us, from, digest, out),
            Datagram::Steps(steps) => self.handle_steps(now_us, from, *steps),
            Datagram::Wants(wants) => self.handle_wants(now_us, sender, from, *wants, out),
            Datagram::Chunk(chunk) => self.handle_chunk(now_us, from, chunk, out),
            Datagram::Who(who) => self.answer_who(from, *who, out),
            Datagram::Swim(_) | Datagram::Hello(_) | Datagram::Where(_) => {}
        }
        // An ask that became due by this is sent without waiting for a timer.
        self.ask_due(now_us, out);
    }

    /// Tells somebody, by chance, what is held here, and asks what is newer there.
    fn compare(&mut self, out: &mut impl Output) {
        let members = self.directory.len();
        if members == 0 {
            return;
        }
        let place = self.draw(members as u64) as usize;
        let to = self.directory.at(place).peer.address;
        let known = |entry: &Entry| Known { id: entry.peer.id, version: entry.list.version };
        let mut entries = Vec::with_capacity(DIGEST_ENTRIES_MAX);
        entries.push(Known { id: self.own_id, version: self.own.version });
        let from = self.digest_from;
        let behind = self.directory.entries().filter(|entry| entry.peer.id >= from);
        let before = self.directory.entries().filter(|entry| entry.peer.id < from);
        entries.extend(behind.chain(before).take(DIGEST_ENTRIES_MAX - 1).map(known));
        // Where not all had room, the next digest begins behind the last one that had.
        let last = entries.last().map_or(NodeId(0), |entry| entry.id);
        self.digest_from = NodeId(last.0.wrapping_add(1));
        let length = write_digest(&entries, true, &mut self.scratch[..]);
        self.send_scratch(to, length, out);
    }

    fn handle_digest(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        digest: &crate::wire::DigestView<'_>,
        out: &mut impl Output,
    ) {
        let mut newer_here = Vec::new();
        self.strangers.clear();
        for known in digest.entries() {
            let held = match self.directory.get(known.id) {
                Some(entry) => entry.list.version,
                None if known.id == self.own_id => self.own.version,
                None => {
                    self.counts.dropped.add(Dropped::Unknown);
                    if self.strangers.len() < WHO_MAX {
                        self.strangers.push(known.id);
                    }
                    continue;
                }
            };
            if known.version > held && known.id != self.own_id {
                self.told(now_us, known.id, known.version, from);
            } else if held > known.version && digest.answer {
                newer_here.push(Known { version: held, ..known });
            }
        }
        if !newer_here.is_empty() {
            let length = write_digest(&newer_here, false, &mut self.scratch[..]);
            self.send_scratch(from, length, out);
        }
    }

    fn handle_steps(&mut self, now_us: u64, from: SocketAddr, steps: StepsView<'_>) {
        for step in steps.steps() {
            if let Err(reason) = self.take_step(now_us, from, &step) {
                self.counts.dropped.add(reason);
            }
        }
    }

    fn take_step(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        step: &crate::wire::StepView<'_>,
    ) -> Result<(), Dropped> {
        let entry = self.directory.get(step.id).ok_or(Dropped::Unknown)?;
        let held = entry.list.version;
        if step.version <= held {
            return Err(Dropped::Stale);
        }
        if held == 0 || step.version - held > 1 {
            self.told(now_us, step.id, step.version, from);
            return Ok(());
        }
        if !self.directory.has_room(entry, entry.peer.groups.len() + step.added().len()) {
            return Err(Dropped::TotalFull);
        }
        let groups_max = self.config.groups_max;
        let applied = self.directory.change(step.id, |list| list.apply(step, groups_max));
        if applied == Err(Dropped::Unsound) {
            // Somebody else made another list of this name: the whole one decides.
            self.told(now_us, step.id, step.version, from);
        }
        applied?;
        self.counts.steps += 1;
        self.settle(now_us, step.id);
        let delay_us = self.draw(self.config.rumour_period_us / 4);
        self.spread(now_us, step.id, step.version, delay_us);
        Ok(())
    }

    /// A node told in person which list it has; `guess` is what it may be.
    pub(crate) fn hear(
        &mut self,
        now_us: u64,
        id: NodeId,
        version: u32,
        check: u32,
        guess: Option<&Arc<[GroupId]>>,
    ) {
        let Some(entry) = self.directory.get(id) else { return };
        if version <= entry.list.version {
            return;
        }
        let address = entry.peer.address;
        let right =
            guess.filter(|guess| list_check(guess) == check && self.directory.has_room(entry, guess.len()));
        let Some(groups) = right.cloned() else {
            self.told(now_us, id, version, address);
            return;
        };
        let replaced = self.directory.change(id, |list| {
            list.replace(version, check, groups);
            Ok(())
        });
        if replaced.is_ok() {
            self.settle(now_us, id);
        }
    }

    /// Tells where members are.
    fn answer_who(&mut self, from: SocketAddr, who: WhoView<'_>, out: &mut impl Output) {
        let places = who.ids().filter_map(|id| Some((id, self.directory.get(id)?.peer.address)));
        let length = write_where(places, &mut self.scratch[..]);
        if length > WHERE_HEADER {
            self.send_scratch(from, length, out);
        }
    }

    fn send_scratch(&mut self, to: SocketAddr, length: usize, out: &mut impl Output) {
        self.counts.sent += 1;
        self.counts.sent_bytes += length as u64;
        out.send(to, &self.scratch[..length]);
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let sets = (self.asked.len() + self.waiting.len() + self.rumours.len()) * 32;
        self.directory.memory_bytes() + self.own.memory_bytes() + sets + DATAGRAM_MAX
    }
}
