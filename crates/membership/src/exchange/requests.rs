//! Requests for lists that are known to exist, and reassembly of the parts that come.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ricochet_core::NodeId;

use super::config::ListsConfig;
use super::directory::Directory;
use super::fetch::{Fetch, Progress};
use super::wanted::Wanted;
use crate::counters::Dropped;
use crate::wire::{ChunkView, ListRequest};

/// Number of unanswered requests after which a list waits, so that others get their turn.
const TRIES_MAX: u8 = 4;
/// Length of that wait.
const REST_US: u64 = 1_000_000;
/// Delay before the predecessor of a step is requested: the step may have overtaken it.
const OVERTAKEN_US: u64 = 30_000;

/// A request and its destination.
pub(super) type Addressed = (SocketAddr, ListRequest);

/// Result of taking a part of a list.
#[derive(Debug)]
pub(super) enum Taken {
    /// More parts are on their way.
    Partial,
    /// All requested parts are here; this requests the next ones.
    Request(Addressed),
    /// The list is complete and has replaced an older version; 0 if there was none.
    Complete { version: u32, replaced: u32 },
}

/// The schedule of requests. Every wanted list is either outstanding or waiting.
#[derive(Debug)]
pub(super) struct Requests {
    config: ListsConfig,
    /// Requested lists, by the time at which the reply is overdue.
    outstanding: BTreeSet<(u64, NodeId)>,
    /// Lists still to request, by the earliest time to do so.
    waiting: BTreeSet<(u64, NodeId)>,
}

impl Requests {
    pub(super) fn new(config: ListsConfig) -> Self {
        Self { config, outstanding: BTreeSet::new(), waiting: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.outstanding.len() + self.waiting.len()
    }

    /// Notes that the node at `reporter` holds `version` of a member's list, or knows of it.
    pub(super) fn on_version_reported(
        &mut self,
        now_us: u64,
        directory: &mut Directory,
        id: NodeId,
        version: u32,
        reporter: SocketAddr,
    ) {
        let Some(entry) = directory.get_mut(id) else { return };
        // A list that is wholly unknown is requested at once. Of a known list, the
        // missing step may be on its way.
        let due_us = if entry.list.version == 0 { now_us } else { now_us + OVERTAKEN_US };
        let Some(wanted) = &mut entry.wanted else {
            entry.wanted = Some(Wanted { version, reporter, due_us, tries: 0, fetch: None });
            self.waiting.insert((due_us, id));
            return;
        };
        if version > wanted.version {
            (wanted.version, wanted.reporter) = (version, reporter);
        }
        if self.waiting.remove(&(wanted.due_us, id)) {
            wanted.due_us = wanted.due_us.min(due_us);
            self.waiting.insert((wanted.due_us, id));
        }
    }

    /// Notes that the list held of a member has changed, possibly to the wanted version.
    pub(super) fn on_list_changed(&mut self, now_us: u64, directory: &mut Directory, id: NodeId) {
        let Some(entry) = directory.get_mut(id) else { return };
        let held = entry.list.version;
        let Some(wanted) = &mut entry.wanted else { return };
        let due_us = wanted.due_us;
        if wanted.version <= held {
            entry.wanted = None;
            self.cancel(due_us, id);
            return;
        }
        if wanted.fetch.as_ref().is_some_and(|fetch| fetch.version > held) {
            return;
        }
        wanted.fetch = None;
        (wanted.due_us, wanted.tries) = (now_us + OVERTAKEN_US, 0);
        self.cancel(due_us, id);
        self.waiting.insert((now_us + OVERTAKEN_US, id));
    }

    /// Notes that a member is gone.
    pub(super) fn on_dismissed(&mut self, id: NodeId, wanted: Option<&Wanted>) {
        if let Some(wanted) = wanted {
            self.cancel(wanted.due_us, id);
        }
    }

    fn cancel(&mut self, due_us: u64, id: NodeId) {
        self.outstanding.remove(&(due_us, id));
        self.waiting.remove(&(due_us, id));
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let outstanding = self.outstanding.first().map(|&(due_us, _)| due_us);
        let room = self.outstanding.len() < self.config.fetches_max;
        let waiting = self.waiting.first().filter(|_| room).map(|&(due_us, _)| due_us);
        [outstanding, waiting].into_iter().flatten().min()
    }

    /// Returns the requests that are due: repeats of overdue ones, and new ones as far as there is room.
    pub(super) fn poll_requests(&mut self, now_us: u64, directory: &mut Directory) -> Vec<Addressed> {
        let mut requests = Vec::new();
        while let Some(&(due_us, id)) = self.outstanding.first().filter(|&&(due_us, _)| due_us <= now_us) {
            self.cancel(due_us, id);
            let Some(wanted) = directory.get_mut(id).and_then(|entry| entry.wanted.as_mut()) else {
                continue;
            };
            if wanted.tries < TRIES_MAX {
                requests.extend(self.request(now_us, directory, id));
                continue;
            }
            // A version that no node sends may be made up, so any version will do. If one is held, summaries
            // find a newer one.
            (wanted.tries, wanted.version) = (0, 0);
            wanted.fetch = None;
            wanted.due_us = now_us + REST_US;
            if directory.get(id).is_some_and(|entry| entry.list.version > 0) {
                directory.get_mut(id).into_iter().for_each(|entry| entry.wanted = None);
                continue;
            }
            self.waiting.insert((now_us + REST_US, id));
        }
        while self.outstanding.len() < self.config.fetches_max {
            let Some(&(due_us, id)) = self.waiting.first().filter(|&&(due_us, _)| due_us <= now_us) else {
                break;
            };
            self.cancel(due_us, id);
            requests.extend(self.request(now_us, directory, id));
        }
        requests
    }

    /// Returns a request for the missing parts of one list, and notes when its reply is overdue.
    fn request(&mut self, now_us: u64, directory: &mut Directory, id: NodeId) -> Option<Addressed> {
        let entry = directory.get_mut(id)?;
        let wanted = entry.wanted.as_mut()?;
        let (version, (first, mask)) = match &wanted.fetch {
            Some(fetch) => (fetch.version, fetch.missing()),
            None => (wanted.version, (0, u8::MAX)),
        };
        // Requests alternate between the node that reported the version, which spreads the
        // load, and the list's own node.
        let to = if wanted.tries % 2 == 0 { wanted.reporter } else { entry.member.address };
        wanted.due_us = now_us + (self.config.request_timeout_us << wanted.tries.min(TRIES_MAX));
        wanted.tries += 1;
        self.outstanding.insert((wanted.due_us, id));
        Some((to, ListRequest { id, have: entry.list.version, version, first, mask }))
    }

    /// Takes a part of a list.
    pub(super) fn handle_chunk(
        &mut self,
        now_us: u64,
        directory: &mut Directory,
        from: SocketAddr,
        chunk: &ChunkView<'_>,
    ) -> Result<Taken, Dropped> {
        if chunk.total > self.config.groups_max {
            return Err(Dropped::GroupsMax);
        }
        let entry = directory.get(chunk.id).ok_or(Dropped::Unknown)?;
        if chunk.version <= entry.list.version {
            return Err(Dropped::Stale);
        }
        if !directory.has_room(entry, chunk.total) {
            return Err(Dropped::TotalFull);
        }
        let wanted = directory.get_mut(chunk.id).and_then(|entry| entry.wanted.as_mut());
        let wanted = wanted.ok_or(Dropped::Unrequested)?;
        let due_us = wanted.due_us;
        if !self.outstanding.contains(&(due_us, chunk.id)) {
            return Err(Dropped::Unrequested);
        }
        match &wanted.fetch {
            Some(fetch) if fetch.version > chunk.version => return Err(Dropped::Stale),
            Some(fetch) if fetch.fits(chunk) => {}
            Some(fetch) if fetch.version == chunk.version => return Err(Dropped::CheckMismatch),
            _ => wanted.fetch = Some(Box::new(Fetch::new(chunk))),
        }
        let fetch = wanted.fetch.as_mut().ok_or(Dropped::Unrequested)?;
        let progress = fetch.put(chunk);
        if progress == Progress::Nothing {
            return Err(Dropped::Stale);
        }
        wanted.tries = 0;
        wanted.due_us = now_us + self.config.request_timeout_us;
        self.outstanding.remove(&(due_us, chunk.id));
        self.outstanding.insert((wanted.due_us, chunk.id));
        match progress {
            Progress::Nothing | Progress::Partial => Ok(Taken::Partial),
            Progress::RequestMore => {
                wanted.reporter = from;
                self.outstanding.remove(&(now_us + self.config.request_timeout_us, chunk.id));
                Ok(self.request(now_us, directory, chunk.id).map_or(Taken::Partial, Taken::Request))
            }
            Progress::Complete => self.adopt(now_us, directory, chunk.id),
        }
    }

    /// Makes a complete list the one held of its member.
    fn adopt(&mut self, now_us: u64, directory: &mut Directory, id: NodeId) -> Result<Taken, Dropped> {
        let entry = directory.get_mut(id).ok_or(Dropped::Unknown)?;
        let replaced = entry.list.version;
        let fetch = entry.wanted.as_mut().and_then(|wanted| wanted.fetch.take());
        let Some((version, check, groups)) = fetch.ok_or(Dropped::Unrequested)?.finish() else {
            entry.wanted.iter_mut().for_each(|wanted| wanted.tries = 1);
            return Err(Dropped::CheckMismatch);
        };
        directory.change(id, |list| {
            list.replace(version, check, groups.into());
            Ok(())
        })?;
        self.on_list_changed(now_us, directory, id);
        Ok(Taken::Complete { version, replaced })
    }
}
