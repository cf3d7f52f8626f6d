//! The members that are known, by id and by address, and what is known of their groups.

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use ricochet_core::{GroupId, NodeId};

use crate::allowance::Allowance;
use crate::counters::Dropped;
use crate::exchange::{Lack, List};

/// Another node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name, the same all its life.
    pub id: NodeId,
    /// Its own socket, where it sends from and takes what is for it alone.
    pub address: SocketAddr,
    /// The groups it is in, in order; none as long as they are not known.
    pub groups: Arc<[GroupId]>,
}

/// A member, and how far its list has come.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) peer: Peer,
    pub(crate) list: List,
    /// A version that is newer than `list` is known to exist.
    pub(crate) lack: Option<Lack>,
    /// Bytes of lists that it may have of us.
    pub(crate) allowance: Allowance,
}

/// All other members.
#[derive(Debug)]
pub(crate) struct Directory {
    /// In order of their ids. Boxed, since a member that comes or goes moves all behind it.
    #[expect(clippy::vec_box)]
    entries: Vec<Box<Entry>>,
    by_address: HashMap<SocketAddr, NodeId>,
    /// Groups in all lists.
    total_groups: usize,
    total_groups_max: usize,
    version: u64,
}

impl Directory {
    pub(crate) fn new(total_groups_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            by_address: HashMap::new(),
            total_groups: 0,
            total_groups_max,
            version: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.entries.iter().map(|entry| &entry.peer)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(Box::as_ref)
    }

    /// The member at a place, from 0 below [`len`](Self::len).
    pub(crate) fn at(&self, place: usize) -> &Entry {
        &self.entries[place]
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Entry> {
        self.place(id).ok().map(|at| self.entries[at].as_ref())
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Entry> {
        self.place(id).ok().map(|at| self.entries[at].as_mut())
    }

    pub(crate) fn id_at(&self, address: SocketAddr) -> Option<NodeId> {
        self.by_address.get(&address).copied()
    }

    fn place(&self, id: NodeId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.peer.id)
    }

    /// Takes in a member that is not here, neither by its id nor by its address.
    pub(crate) fn admit(&mut self, id: NodeId, address: SocketAddr, allowance: Allowance) {
        let Err(place) = self.place(id) else { return };
        let list = List::empty(0);
        let peer = Peer { id, address, groups: list.groups.clone() };
        self.entries.insert(place, Box::new(Entry { peer, list, lack: None, allowance }));
        self.by_address.insert(address, id);
        self.version += 1;
    }

    /// Lets a member go.
    pub(crate) fn dismiss(&mut self, id: NodeId) -> Option<Entry> {
        let entry = *self.entries.remove(self.place(id).ok()?);
        self.by_address.remove(&entry.peer.address);
        self.total_groups -= entry.peer.groups.len();
        self.version += 1;
        Some(entry)
    }

    /// Changes a member's list by `change`, which says what was wrong where it changed nothing.
    pub(crate) fn change(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut List) -> Result<(), Dropped>,
    ) -> Result<(), Dropped> {
        let entry = self.place(id).map(|at| self.entries[at].as_mut()).map_err(|_| Dropped::Unknown)?;
        change(&mut entry.list)?;
        self.total_groups -= entry.peer.groups.len();
        entry.peer.groups = entry.list.groups.clone();
        self.total_groups += entry.peer.groups.len();
        self.version += 1;
        Ok(())
    }

    /// Whether a member's list may have `groups` groups.
    pub(crate) fn has_room(&self, entry: &Entry, groups: usize) -> bool {
        self.total_groups - entry.peer.groups.len() + groups <= self.total_groups_max
    }

    /// Bytes of memory held, the tables' own slack aside.
    pub(crate) fn memory_bytes(&self) -> usize {
        let held =
            |entry: &Entry| entry.list.memory_bytes() + entry.lack.as_ref().map_or(0, Lack::memory_bytes);
        self.entries.len() * (size_of::<Entry>() + 64) + self.entries().map(held).sum::<usize>()
    }
}
