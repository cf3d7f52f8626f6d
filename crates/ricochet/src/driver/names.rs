//! Names of groups: asks other nodes for those that match this node's patterns, and answers their questions.

use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use ricochet_core::NodeId;

use super::{MembershipDriver, MembershipOutput};
use crate::group_name::check_group_name;
use crate::patterns::matches;
use crate::patterns::wire::{Answer, NamesDatagram, PARTS_MAX, Question, answers};
use crate::ring::Slot;
use crate::shared::Shared;

/// Shortest interval between two questions to a node, in microseconds.
const AGAIN_US: u64 = 250_000;
/// Part of that interval for each node and pattern beyond a few, so that many cost no more.
const EACH_US: u64 = 2_000;
/// Maximum number of names that wait to be joined.
const FOUND_MAX: usize = 4_096;

/// State of the questions to a node about a pattern.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    number: u32,
    /// Version of the names of which all parts came.
    version: u64,
    /// Parts that came of the last answer, and their version.
    came: u64,
    coming: u64,
}

/// The names of groups, as the node's thread deals with them.
#[derive(Debug, Default)]
pub(crate) struct NamesDriver {
    asked: HashMap<(NodeId, u32), Asked>,
    found: Vec<(u32, Arc<str>)>,
    next_number: u32,
    next_us: u64,
    /// Version of this node's own names that were compared with the patterns, for each pattern.
    compared: HashMap<u32, u64>,
}

impl NamesDriver {
    /// Handles a question, or an answer.
    pub(super) fn handle(&mut self, slot: &Slot, shared: &Shared, membership: &mut MembershipDriver) {
        let MembershipDriver { provider, output, .. } = membership;
        let is_member = |from| provider.address(from) == Some(slot.from());
        match NamesDatagram::read(slot.datagram()) {
            Ok(NamesDatagram::Question(question)) if is_member(question.from) => {
                let names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = question.version != names.version();
                let matching = if is_new { names.matching(question.pattern) } else { Vec::new() };
                let datagrams = answers(shared.id, &question, names.version(), &matching);
                drop(names);
                for datagram in datagrams {
                    membership::Output::send(output, slot.from(), &datagram);
                }
            }
            Ok(NamesDatagram::Answer(answer)) if is_member(answer.from) => self.on_answer(shared, &answer),
            _ => {}
        }
    }

    fn on_answer(&mut self, shared: &Shared, answer: &Answer<'_>) {
        let is_asked = |((node, _), asked): &(&(NodeId, u32), &mut Asked)| {
            *node == answer.from && asked.number == answer.number
        };
        let Some((&(_, id), asked)) = self.asked.iter_mut().find(is_asked) else { return };
        if answer.parts == 0 {
            return;
        }
        if asked.coming != answer.version {
            (asked.coming, asked.came) = (answer.version, 0);
        }
        asked.came |= 1 << answer.part;
        let all = u64::MAX >> (64 - u32::from(answer.parts));
        let patterns = shared.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        let text = patterns.texts().find(|(other, _)| *other == id).map(|(_, text)| text);
        drop(patterns);
        let Some(text) = text else { return };
        for name in answer.names().filter(|name| check_group_name(name).is_ok() && matches(&text, name)) {
            if self.found.len() >= FOUND_MAX {
                // The rest comes with the next answer.
                return asked.came = 0;
            }
            self.found.push((id, name.into()));
        }
        if asked.came == all {
            asked.version = answer.version;
            if usize::from(answer.parts) == PARTS_MAX {
                let (pattern, member) = (&*text, answer.from);
                tracing::warn!(pattern, %member, "a member may have more names that match than its answer holds");
            }
        }
    }

    /// Asks the nodes that are due, and joins the groups that were found.
    pub(super) fn handle_timeout(&mut self, now_us: u64, shared: &Shared, membership: &mut MembershipDriver) {
        let patterns: Vec<(u32, Arc<str>)> =
            shared.patterns.lock().unwrap_or_else(PoisonError::into_inner).texts().collect();
        if patterns.is_empty() {
            self.asked.clear();
            self.compared.clear();
            self.next_us = u64::MAX;
            return self.found.clear();
        }
        self.compare_own(shared, &patterns);
        for (id, name) in std::mem::take(&mut self.found) {
            shared.on_found(id, &name);
        }
        let is_new = self.next_us == u64::MAX;
        if !is_new && now_us < self.next_us {
            return;
        }
        let MembershipDriver { provider, output, .. } = membership;
        let members: Vec<_> = provider.members().map(|member| (member.id, member.address)).collect();
        self.asked.retain(|(node, id), _| {
            members.binary_search_by_key(node, |&(member, _)| member).is_ok()
                && patterns.iter().any(|(other, _)| other == id)
        });
        for &(node, address) in &members {
            for (id, pattern) in &patterns {
                self.ask(shared.id, (node, *id), address, pattern, output);
            }
        }
        output.outbox.flush();
        self.next_us = now_us + AGAIN_US.max(EACH_US * (members.len() * patterns.len()) as u64);
    }

    fn ask(
        &mut self,
        me: NodeId,
        key: (NodeId, u32),
        address: std::net::SocketAddr,
        pattern: &str,
        output: &mut MembershipOutput,
    ) {
        let asked = self.asked.entry(key).or_default();
        self.next_number = self.next_number.wrapping_add(1);
        asked.number = self.next_number;
        let question = Question { from: me, number: asked.number, version: asked.version, pattern };
        membership::Output::send(output, address, &question.to_wire());
    }

    /// Looks for matching names among this node's own.
    fn compare_own(&mut self, shared: &Shared, patterns: &[(u32, Arc<str>)]) {
        let names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, pattern) in patterns {
            if self.compared.insert(*id, names.version()) != Some(names.version()) {
                self.found.extend(names.matching(pattern).into_iter().map(|name| (*id, name)));
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        Some(self.next_us).filter(|&due_us| due_us != u64::MAX)
    }
}
