//! Asking for lists that are known to exist, and putting their parts together.

use std::net::SocketAddr;

use ricochet_core::NodeId;

use super::Exchange;
use super::fetch::{Fetch, Progress};
use crate::Output;
use crate::counters::Dropped;
use crate::wire::{ChunkView, WANTS_MAX, Want, write_wants};

/// Unanswered questions after which a list waits, so that others get their turn.
const TRIES_MAX: u8 = 4;
/// How long it then waits.
const REST_US: u64 = 1_000_000;
/// A step that came ahead of its predecessor is given this long, before the predecessor is asked for.
const OVERTAKEN_US: u64 = 30_000;

/// What is known of a list that is not here.
#[derive(Debug)]
pub(crate) struct Lack {
    /// The newest version that anybody spoke of; 0 for any.
    version: u32,
    /// Who spoke of it.
    by: SocketAddr,
    /// When something is to be done: its key in [`Exchange::asked`] or [`Exchange::waiting`].
    pub(super) due_us: u64,
    /// Questions since the last answer.
    tries: u8,
    fetch: Option<Box<Fetch>>,
}

impl Lack {
    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.fetch.as_ref().map_or(0, |fetch| size_of::<Fetch>() + fetch.memory_bytes())
    }
}

impl Exchange {
    /// Somebody holds `version` of a member's list, or knows of it.
    pub(super) fn told(&mut self, now_us: u64, id: NodeId, version: u32, by: SocketAddr) {
        let Some(entry) = self.directory.get_mut(id) else { return };
        // A list that is not known at all is asked for at once; of a change the missing step may be on its way.
        let due_us = if entry.list.version == 0 { now_us } else { now_us + OVERTAKEN_US };
        let Some(lack) = &mut entry.lack else {
            entry.lack = Some(Lack { version, by, due_us, tries: 0, fetch: None });
            self.waiting.insert((due_us, id));
            return;
        };
        if version > lack.version {
            (lack.version, lack.by) = (version, by);
        }
        if self.waiting.remove(&(lack.due_us, id)) {
            lack.due_us = lack.due_us.min(due_us);
            self.waiting.insert((lack.due_us, id));
        }
    }

    /// The list of `id` has changed here: what was lacking may be here now.
    pub(super) fn settle(&mut self, now_us: u64, id: NodeId) {
        let Some(entry) = self.directory.get_mut(id) else { return };
        let held = entry.list.version;
        let Some(lack) = &mut entry.lack else { return };
        let due_us = lack.due_us;
        if lack.version <= held {
            entry.lack = None;
            self.forget(due_us, id);
            return;
        }
        if lack.fetch.as_ref().is_some_and(|fetch| fetch.version > held) {
            return;
        }
        lack.fetch = None;
        (lack.due_us, lack.tries) = (now_us + OVERTAKEN_US, 0);
        self.forget(due_us, id);
        self.waiting.insert((now_us + OVERTAKEN_US, id));
    }

    /// Takes a member off both lists of what is due.
    pub(super) fn forget(&mut self, due_us: u64, id: NodeId) {
        self.asked.remove(&(due_us, id));
        self.waiting.remove(&(due_us, id));
    }

    pub(super) fn next_ask_us(&self) -> Option<u64> {
        let asked = self.asked.first().map(|&(due_us, _)| due_us);
        let room = self.asked.len() < self.config.fetches_max;
        let waiting = self.waiting.first().filter(|_| room).map(|&(due_us, _)| due_us);
        [asked, waiting].into_iter().flatten().min()
    }

    /// Asks again for what did not come, and for more as far as there is room.
    pub(super) fn ask_due(&mut self, now_us: u64, out: &mut impl Output) {
        let mut questions = Vec::new();
        while let Some(&(due_us, id)) = self.asked.first().filter(|&&(due_us, _)| due_us <= now_us) {
            self.forget(due_us, id);
            let Some(lack) = self.directory.get_mut(id).and_then(|entry| entry.lack.as_mut()) else {
                continue;
            };
            if lack.tries < TRIES_MAX {
                questions.extend(self.question(now_us, id));
                continue;
            }
            lack.tries = 0;
            lack.fetch = None;
            lack.due_us = now_us + REST_US;
            self.waiting.insert((now_us + REST_US, id));
        }
        while self.asked.len() < self.config.fetches_max {
            let Some(&(due_us, id)) = self.waiting.first().filter(|&&(due_us, _)| due_us <= now_us) else {
                break;
            };
            self.forget(due_us, id);
            questions.extend(self.question(now_us, id));
        }
        self.send_questions(questions, out);
    }

    /// Asks for what is lacking of one list now; the answer is overdue some time later.
    fn question(&mut self, now_us: u64, id: NodeId) -> Option<(SocketAddr, Want)> {
        let entry = self.directory.get_mut(id)?;
        let lack = entry.lack.as_mut()?;
        let (version, (first, mask)) = match &lack.fetch {
            Some(fetch) => (fetch.version, fetch.wanted()),
            None => (lack.version, (0, u8::MAX)),
        };
        // The list of a node is asked of who spoke of it, which spreads the work, and in between of the node itself.
        let to = if lack.tries % 2 == 0 { lack.by } else { entry.peer.address };
        lack.due_us = now_us + (self.config.ask_timeout_us << lack.tries.min(TRIES_MAX));
        lack.tries += 1;
        self.asked.insert((lack.due_us, id));
        Some((to, Want { id, have: entry.list.version, version, first, mask }))
    }

    /// Questions to one node travel together.
    fn send_questions(&mut self, mut questions: Vec<(SocketAddr, Want)>, out: &mut impl Output) {
        questions.sort_by_key(|&(to, want)| (to, want.id));
        for same in questions.chunk_by(|a, b| a.0 == b.0) {
            let wants: Vec<Want> = same.iter().map(|&(_, want)| want).collect();
            for wants in wants.chunks(WANTS_MAX) {
                let length = write_wants(wants, &mut self.scratch[..]);
                self.send_scratch(same[0].0, length, out);
            }
        }
    }

    pub(super) fn handle_chunk(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        chunk: &ChunkView<'_>,
        out: &mut impl Output,
    ) {
        match self.take_chunk(now_us, from, chunk) {
            Ok(Some(question)) => self.send_questions(vec![question], out),
            Ok(None) => {}
            Err(reason) => self.counts.dropped.add(reason),
        }
    }

    /// Takes a part of a list; returns what to ask next, if this was the last part that was on its way.
    fn take_chunk(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        chunk: &ChunkView<'_>,
    ) -> Result<Option<(SocketAddr, Want)>, Dropped> {
        if chunk.total > self.config.groups_max {
            return Err(Dropped::GroupsMax);
        }
        let entry = self.directory.get(chunk.id).ok_or(Dropped::Unknown)?;
        if chunk.version <= entry.list.version {
            return Err(Dropped::Stale);
        }
        if !self.directory.has_room(entry, chunk.total) {
            return Err(Dropped::TotalFull);
        }
        let lack = self.directory.get_mut(chunk.id).and_then(|entry| entry.lack.as_mut());
        let lack = lack.ok_or(Dropped::Unasked)?;
        let due_us = lack.due_us;
        if !self.asked.contains(&(due_us, chunk.id)) {
            return Err(Dropped::Unasked);
        }
        match &lack.fetch {
            Some(fetch) if fetch.version > chunk.version => return Err(Dropped::Stale),
            Some(fetch) if fetch.fits(chunk) => {}
            Some(fetch) if fetch.version == chunk.version => return Err(Dropped::Unsound),
            _ => lack.fetch = Some(Box::new(Fetch::new(chunk))),
        }
        let fetch = lack.fetch.as_mut().ok_or(Dropped::Unasked)?;
        let progress = fetch.put(chunk);
        if progress == Progress::None {
            return Err(Dropped::Stale);
        }
        lack.tries = 0;
        lack.due_us = now_us + self.config.ask_timeout_us;
        self.asked.remove(&(due_us, chunk.id));
        self.asked.insert((lack.due_us, chunk.id));
        match progress {
            Progress::None | Progress::Some => Ok(None),
            Progress::AskOn => {
                lack.by = from;
                self.asked.remove(&(now_us + self.config.ask_timeout_us, chunk.id));
                Ok(self.question(now_us, chunk.id))
            }
            Progress::Whole => self.adopt(now_us, chunk.id).map(|()| None),
        }
    }

    /// A list is whole.
    fn adopt(&mut self, now_us: u64, id: NodeId) -> Result<(), Dropped> {
        let Some(entry) = self.directory.get_mut(id) else { return Err(Dropped::Unknown) };
        let before = entry.list.version;
        let fetch = entry.lack.as_mut().and_then(|lack| lack.fetch.take()).ok_or(Dropped::Unasked)?;
        let Some((version, check, groups)) = fetch.finish() else {
            entry.lack.iter_mut().for_each(|lack| lack.tries = 1);
            return Err(Dropped::Unsound);
        };
        self.directory.change(id, |list| {
            list.replace(version, check, groups.into());
            Ok(())
        })?;
        self.counts.lists += 1;
        self.settle(now_us, id);
        if before != 0 {
            // A change too great for a step: that there is one is news to others too.
            let delay_us = self.draw(self.config.rumour_period_us / 4);
            self.spread(now_us, id, version, delay_us);
        }
        Ok(())
    }
}
