//! Exchange of the lists of groups between the nodes that have them and those that lack them.
//!
//! Versions order the lists of one node. A list reaches other nodes in three ways:
//! - *Updates* (`updates.rs`): a node that changes its list sends the change to a few members; each node that
//!   learns of it sends it on, as SWIM disseminates its updates.
//! - *Requests* (`requests.rs`, `replies.rs`): a node that knows of a version it lacks requests it. The reply
//!   is the steps that lead there, or else the whole list in parts (`fetch.rs`).
//! - *Summaries*: from time to time two nodes compare the versions they hold, which finds whatever was lost.

mod allowance;
mod config;
mod directory;
mod fetch;
mod list;
mod replies;
mod requests;
mod updates;
mod verify;
mod wanted;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;
use ricochet_core::{GroupId, NodeId};

use crate::counters::{Counts, Dropped};
use crate::output::Output;
use crate::wire::{
    ADDRESS_REPLY_HEADER, ADDRESSES_MAX, AddressRequestView, ChunkView, DATAGRAM_MAX, Datagram, Held,
    IdentityAnswer, LIST_REQUESTS_MAX, ListRequest, ListRequestsView, SUMMARY_ENTRIES_MAX, StepView,
    StepsView, SummaryView, list_check, write_address_reply, write_list_requests, write_summary,
};
use allowance::Allowance;
pub use config::ListsConfig;
pub use directory::Member;
use directory::{Directory, Entry};
use list::List;
use replies::Replies;
use requests::{Addressed, Requests, Taken};
use updates::Updates;

/// The directory of all lists, and the protocol that makes them the same at all nodes.
#[derive(Debug)]
pub(crate) struct Exchange {
    config: ListsConfig,
    /// Groups of this node's next version, which waits for `published_us` to be long enough ago.
    unpublished: Option<Arc<[GroupId]>>,
    published_us: Option<u64>,
    pub(crate) directory: Directory,
    updates: Updates,
    requests: Requests,
    replies: Replies,
    /// Time of the next comparison with a member; `None` before the first timeout.
    next_summary_us: Option<u64>,
    /// Id at which the next summary begins.
    summary_from: NodeId,
    /// Members to ask whether the list held is their own, by time.
    to_verify: BTreeSet<(u64, NodeId)>,
    /// Nodes that a member named recently, and that are not members here.
    pub(crate) unknown_nodes: Vec<NodeId>,
    rng: ChaCha8Rng,
    pub(crate) counts: Counts,
}

impl Exchange {
    pub(crate) fn new(own_id: NodeId, config: ListsConfig, rng: ChaCha8Rng) -> Self {
        Self {
            unpublished: None,
            published_us: None,
            directory: Directory::new(own_id, config.total_groups_max),
            updates: Updates::new(config),
            requests: Requests::new(config),
            replies: Replies::new(config),
            next_summary_us: None,
            summary_from: NodeId(0),
            to_verify: BTreeSet::new(),
            unknown_nodes: Vec::new(),
            rng,
            counts: Counts::default(),
            config,
        }
    }

    /// Returns this node's own list.
    pub(crate) fn own(&self) -> &List {
        self.directory.own()
    }

    /// Draws a number from 0 to `bound` - 1.
    pub(crate) fn draw(&mut self, bound: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Sends a datagram and counts it.
    pub(crate) fn send(&mut self, to: SocketAddr, datagram: &[u8], out: &mut impl Output) {
        send(&mut self.counts, to, datagram, out);
    }

    /// Adds a member whose id and address are both unknown, and requests its list.
    pub(crate) fn admit(&mut self, now_us: u64, id: NodeId, address: SocketAddr) {
        let allowance = Allowance::new(self.config.bytes_per_second_member);
        self.directory.admit(id, address, allowance);
        self.requests.on_version_reported(now_us, &mut self.directory, id, 0, address);
    }

    /// Removes a member and all that is known of it.
    pub(crate) fn dismiss(&mut self, id: NodeId) {
        self.updates.remove(id);
        let Some(entry) = self.directory.dismiss(id) else { return };
        entry.verify_us.map(|due_us| self.to_verify.remove(&(due_us, id)));
        self.requests.on_dismissed(id, entry.wanted.as_ref());
    }

    /// Sets this node's own groups. The change is sent at once, or, shortly after another change, together
    /// with those that follow.
    pub(crate) fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut impl Output) {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() > self.config.groups_max {
            let beyond = groups.len() - self.config.groups_max;
            self.counts.dropped.add_times(Dropped::GroupsMax, beyond as u64);
            groups.truncate(self.config.groups_max);
        }
        self.unpublished = (*groups != *self.own().groups).then(|| groups.into());
        self.publish_if_due(now_us, out);
    }

    fn publish_at_us(&self) -> Option<u64> {
        self.unpublished.as_ref()?;
        Some(self.published_us.map_or(0, |last_us| last_us + self.config.update_period_us))
    }

    fn publish_if_due(&mut self, now_us: u64, out: &mut impl Output) {
        if self.publish_at_us().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let Some(groups) = self.unpublished.take() else { return };
        self.published_us = Some(now_us);
        self.directory.advance_own(groups);
        self.updates.add(now_us, self.directory.own_id(), self.own().version, 0);
        self.send_updates(now_us, out);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let requests = self.requests.poll_timeout();
        let verify = self.to_verify.first().map(|&(due_us, _)| due_us);
        let due = [self.publish_at_us(), self.updates.poll_timeout(), requests, self.next_summary_us, verify];
        due.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        self.publish_if_due(now_us, out);
        if self.updates.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            self.send_updates(now_us, out);
        }
        self.send_due_requests(now_us, out);
        if self.next_summary_us.is_none_or(|due_us| due_us <= now_us) {
            let period_us = self.config.summary_period_us;
            self.next_summary_us = Some(now_us + period_us * 3 / 4 + self.draw(period_us / 2));
            self.send_summary(out);
        }
    }

    /// Sends all updates to some members drawn at random.
    fn send_updates(&mut self, now_us: u64, out: &mut impl Output) {
        let targets = self.draw_members(self.config.update_fanout);
        self.updates.on_round(now_us, !targets.is_empty());
        if targets.is_empty() {
            return;
        }
        let (datagrams, written) = self.updates.write(&self.directory);
        for to in targets {
            for datagram in &datagrams {
                self.send(to, datagram, out);
            }
        }
        self.updates.on_sent(&written);
    }

    /// Draws up to `count` different members and returns their addresses.
    fn draw_members(&mut self, count: usize) -> Vec<SocketAddr> {
        let members = self.directory.len();
        let mut places: Vec<usize> = Vec::with_capacity(count);
        // Floyd's algorithm: all members are equally likely.
        for last in members.saturating_sub(count)..members {
            let candidate = self.draw(last as u64 + 1) as usize;
            places.push(if places.contains(&candidate) { last } else { candidate });
        }
        places.into_iter().map(|place| self.directory.at(place).address).collect()
    }

    /// Sends the versions held here to a member drawn at random, and asks it for newer ones.
    fn send_summary(&mut self, out: &mut impl Output) {
        let members = self.directory.len();
        if members == 0 {
            return;
        }
        let place = self.draw(members as u64) as usize;
        let to = self.directory.at(place).address;
        let held = |entry: &Entry| Held { id: entry.member.id, version: entry.list.version };
        let mut entries = Vec::with_capacity(SUMMARY_ENTRIES_MAX);
        entries.push(Held { id: self.directory.own_id(), version: self.own().version });
        let from = self.summary_from;
        let behind = self.directory.entries().filter(|entry| entry.member.id >= from);
        let before = self.directory.entries().filter(|entry| entry.member.id < from);
        entries.extend(behind.chain(before).take(SUMMARY_ENTRIES_MAX - 1).map(held));
        // If not all members fit, the next summary begins behind the last one that did.
        let last = entries.last().map_or(NodeId(0), |entry| entry.id);
        self.summary_from = NodeId(last.0.wrapping_add(1));
        let mut datagram = [0; DATAGRAM_MAX];
        let length = write_summary(&entries, true, &mut datagram);
        self.send(to, &datagram[..length], out);
    }

    fn send_due_requests(&mut self, now_us: u64, out: &mut impl Output) {
        let requests = self.requests.poll_requests(now_us, &mut self.directory);
        self.send_requests(requests, out);
    }

    /// Sends requests, those to one node together.
    fn send_requests(&mut self, mut requests: Vec<Addressed>, out: &mut impl Output) {
        requests.sort_by_key(|&(to, request)| (to, request.id));
        for same in requests.chunk_by(|a, b| a.0 == b.0) {
            let requests: Vec<ListRequest> = same.iter().map(|&(_, request)| request).collect();
            for requests in requests.chunks(LIST_REQUESTS_MAX) {
                let mut datagram = [0; DATAGRAM_MAX];
                let length = write_list_requests(requests, &mut datagram);
                self.send(same[0].0, &datagram[..length], out);
            }
        }
    }

    /// Takes a datagram about lists; ignores all others.
    pub(crate) fn handle_datagram(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        datagram: &Datagram<'_>,
        out: &mut impl Output,
    ) {
        let Some(sender) = self.directory.id_at(from) else {
            self.counts.dropped.add(Dropped::NotMember);
            return;
        };
        match datagram {
            Datagram::Summary(summary) => self.handle_summary(now_us, from, summary, out),
            Datagram::Steps(steps) => self.handle_steps(now_us, from, *steps),
            Datagram::ListRequests(requests) => self.handle_requests(now_us, sender, from, *requests, out),
            Datagram::Chunk(chunk) => self.handle_chunk(now_us, from, chunk, out),
            Datagram::AddressRequest(request) => self.handle_address_request(from, *request, out),
            Datagram::Swim(_)
            | Datagram::Presence(_)
            | Datagram::AddressReply(_)
            | Datagram::IdentityQuestion(_)
            | Datagram::IdentityAnswer(_) => {}
        }
        // A request that this made due is sent without waiting for a timer.
        self.send_due_requests(now_us, out);
    }

    fn handle_summary(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        summary: &SummaryView<'_>,
        out: &mut impl Output,
    ) {
        let mut newer_here = Vec::new();
        self.unknown_nodes.clear();
        for entry in summary.entries() {
            let Some(version) = self.directory.list(entry.id).map(|list| list.version) else {
                self.counts.dropped.add(Dropped::Unknown);
                if self.unknown_nodes.len() < ADDRESSES_MAX {
                    self.unknown_nodes.push(entry.id);
                }
                continue;
            };
            if entry.version > version && entry.id != self.directory.own_id() {
                self.on_version_reported(now_us, entry.id, entry.version, from);
            } else if version > entry.version && summary.answer {
                newer_here.push(Held { version, ..entry });
            }
        }
        if !newer_here.is_empty() {
            let mut datagram = [0; DATAGRAM_MAX];
            let length = write_summary(&newer_here, false, &mut datagram);
            self.send(from, &datagram[..length], out);
        }
    }

    fn on_version_reported(&mut self, now_us: u64, id: NodeId, version: u32, reporter: SocketAddr) {
        self.requests.on_version_reported(now_us, &mut self.directory, id, version, reporter);
    }

    fn handle_steps(&mut self, now_us: u64, from: SocketAddr, steps: StepsView<'_>) {
        for step in steps.steps() {
            if let Err(reason) = self.handle_step(now_us, from, &step) {
                self.counts.dropped.add(reason);
            }
        }
    }

    fn handle_step(&mut self, now_us: u64, from: SocketAddr, step: &StepView<'_>) -> Result<(), Dropped> {
        let entry = self.directory.get(step.id).ok_or(Dropped::Unknown)?;
        let held = entry.list.version;
        if step.version <= held {
            return Err(Dropped::Stale);
        }
        if entry.refuted.contains(&Some((step.version, step.check))) {
            return Err(Dropped::Hearsay);
        }
        if held == 0 || step.version - held > 1 {
            self.on_version_reported(now_us, step.id, step.version, from);
            return Ok(());
        }
        if !self.directory.has_room(entry, entry.member.groups.len() + step.added().len()) {
            return Err(Dropped::TotalFull);
        }
        let groups_max = self.config.groups_max;
        let applied = self.directory.change(step.id, |list| list.apply(step, groups_max));
        if applied == Err(Dropped::CheckMismatch) {
            // A forger has made another list of this version: the whole list decides.
            self.on_version_reported(now_us, step.id, step.version, from);
        }
        applied?;
        self.counts.steps += 1;
        self.requests.on_list_changed(now_us, &mut self.directory, step.id);
        let delay_us = self.draw(self.config.update_period_us / 4);
        self.updates.add(now_us, step.id, step.version, delay_us);
        self.verify_soon(now_us, step.id);
        Ok(())
    }

    fn handle_requests(
        &mut self,
        now_us: u64,
        sender: NodeId,
        from: SocketAddr,
        requests: ListRequestsView<'_>,
        out: &mut impl Output,
    ) {
        let Self { replies, directory, counts, .. } = self;
        for request in requests.requests() {
            let send = |datagram: &[u8]| send(counts, from, datagram, out);
            if let Err(reason) = replies.reply(now_us, directory, sender, request, send) {
                counts.dropped.add(reason);
            }
        }
    }

    fn handle_chunk(&mut self, now_us: u64, from: SocketAddr, chunk: &ChunkView<'_>, out: &mut impl Output) {
        let refuted = self.directory.get(chunk.id).map(|entry| entry.refuted).unwrap_or_default();
        if refuted.contains(&Some((chunk.version, chunk.check))) {
            return self.counts.dropped.add(Dropped::Hearsay);
        }
        match self.requests.handle_chunk(now_us, &mut self.directory, from, chunk) {
            Ok(Taken::Partial) => {}
            Ok(Taken::Request(request)) => self.send_requests(vec![request], out),
            Ok(Taken::Complete { version, replaced }) => {
                self.counts.lists += 1;
                self.verify_soon(now_us, chunk.id);
                if replaced != 0 {
                    // The change was too large for a step: other nodes do not know of the new version yet.
                    let delay_us = self.draw(self.config.update_period_us / 4);
                    self.updates.add(now_us, chunk.id, version, delay_us);
                }
            }
            Err(reason) => self.counts.dropped.add(reason),
        }
    }

    /// Replies with the addresses of members.
    fn handle_address_request(
        &mut self,
        from: SocketAddr,
        request: AddressRequestView<'_>,
        out: &mut impl Output,
    ) {
        let nodes = request.ids().filter_map(|id| Some((id, self.directory.get(id)?.member.address)));
        let mut datagram = [0; DATAGRAM_MAX];
        let length = write_address_reply(nodes, &mut datagram);
        if length > ADDRESS_REPLY_HEADER {
            self.send(from, &datagram[..length], out);
        }
    }

    /// Notes the version of a member's list, as the member itself reported it. `guess` is
    /// adopted if the check matches.
    pub(crate) fn on_presence(
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
        let address = entry.member.address;
        let right =
            guess.filter(|guess| list_check(guess) == check && self.directory.has_room(entry, guess.len()));
        let Some(groups) = right.cloned() else {
            self.on_version_reported(now_us, id, version, address);
            return;
        };
        let replaced = self.directory.change(id, |list| {
            list.replace(version, check, groups);
            Ok(())
        });
        if replaced.is_ok() {
            self.requests.on_list_changed(now_us, &mut self.directory, id);
        }
    }

    /// Answers a question which node this is, with the version of its list.
    pub(crate) fn answer_identity(
        &mut self,
        to: SocketAddr,
        token: u64,
        id: NodeId,
        life: u64,
        out: &mut impl Output,
    ) {
        let List { version, check, .. } = *self.own();
        self.send(to, &IdentityAnswer { token, id, life, version, check }.to_wire(), out);
    }

    /// Returns the bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.directory.memory_bytes() + (self.requests.len() + self.updates.len()) * 32
    }
}

fn send(counts: &mut Counts, to: SocketAddr, datagram: &[u8], out: &mut impl Output) {
    counts.sent += 1;
    counts.sent_bytes += datagram.len() as u64;
    out.send(to, datagram);
}
