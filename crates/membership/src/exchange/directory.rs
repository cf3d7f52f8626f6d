//! The lists of all nodes: this node's own, and those of the known members by id and by address.

use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use ricochet_core::{GroupId, NodeId};

use super::allowance::Allowance;
use super::list::List;
use super::wanted::Wanted;
use crate::counters::Dropped;

/// Another node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identifier of the node, constant throughout its life.
    pub id: NodeId,
    /// Address of its own socket, which it sends from and receives unicast datagrams at.
    pub address: SocketAddr,
    /// The groups that it is in, in ascending order; empty until they are known.
    pub groups: Arc<[GroupId]>,
}

/// A member and the state of its list.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) member: Member,
    pub(super) list: List,
    /// A version newer than `list` that is known to exist.
    pub(super) wanted: Option<Wanted>,
    /// Time at which the member is asked whether the list held is its own, if that is not known.
    pub(super) verify_us: Option<u64>,
    /// Version of the list held when the member last stated an earlier one.
    pub(super) contradicted: Option<u32>,
    /// Versions and checks of lists that were not the member's own. Others may still pass them on.
    pub(super) refuted: [Option<(u32, u32)>; 4],
    /// Bytes of lists that this node may send to the member.
    pub(super) allowance: Allowance,
}

/// This node's list and all other members.
#[derive(Debug)]
pub(crate) struct Directory {
    own_id: NodeId,
    own: List,
    /// In order of their ids. Boxed, since an insertion or removal moves all entries behind it.
    #[expect(clippy::vec_box)]
    entries: Vec<Box<Entry>>,
    by_address: HashMap<SocketAddr, NodeId>,
    /// Number of groups in all members' lists.
    total_groups: usize,
    total_groups_max: usize,
    version: u64,
}

impl Directory {
    pub(super) fn new(own_id: NodeId, total_groups_max: usize) -> Self {
        Self {
            own_id,
            own: List::empty(1),
            entries: Vec::new(),
            by_address: HashMap::new(),
            total_groups: 0,
            total_groups_max,
            version: 0,
        }
    }

    pub(super) fn own_id(&self) -> NodeId {
        self.own_id
    }

    pub(super) fn own(&self) -> &List {
        &self.own
    }

    /// Makes `groups` the next version of this node's own list.
    pub(super) fn advance_own(&mut self, groups: Arc<[GroupId]>) {
        self.own.advance(groups);
    }

    /// Returns a number that rises with each change of the members.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.entries.iter().map(|entry| &entry.member)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(Box::as_ref)
    }

    /// Returns the member at a place from 0 to [`len`](Self::len) - 1.
    pub(crate) fn at(&self, place: usize) -> &Member {
        &self.entries[place].member
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Entry> {
        self.place(id).ok().map(|at| self.entries[at].as_ref())
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Entry> {
        self.place(id).ok().map(|at| self.entries[at].as_mut())
    }

    /// Returns the list held of a member, or this node's own.
    pub(super) fn list(&self, id: NodeId) -> Option<&List> {
        match self.get(id) {
            Some(entry) => Some(&entry.list),
            None => (id == self.own_id).then_some(&self.own),
        }
    }

    pub(crate) fn id_at(&self, address: SocketAddr) -> Option<NodeId> {
        self.by_address.get(&address).copied()
    }

    fn place(&self, id: NodeId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.member.id)
    }

    /// Adds a member whose id and address are both unknown.
    pub(super) fn admit(&mut self, id: NodeId, address: SocketAddr, allowance: Allowance) {
        let Err(place) = self.place(id) else { return };
        let list = List::empty(0);
        let member = Member { id, address, groups: list.groups.clone() };
        let entry = Entry {
            member,
            list,
            wanted: None,
            verify_us: None,
            contradicted: None,
            refuted: [None; 4],
            allowance,
        };
        self.entries.insert(place, Box::new(entry));
        self.by_address.insert(address, id);
        self.version += 1;
    }

    /// Removes a member and returns its entry.
    pub(super) fn dismiss(&mut self, id: NodeId) -> Option<Entry> {
        let entry = *self.entries.remove(self.place(id).ok()?);
        self.by_address.remove(&entry.member.address);
        self.total_groups -= entry.member.groups.len();
        self.version += 1;
        Some(entry)
    }

    /// Changes a member's list by `change`, which changes nothing where it returns a reason.
    pub(super) fn change(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut List) -> Result<(), Dropped>,
    ) -> Result<(), Dropped> {
        let entry = self.place(id).map(|at| self.entries[at].as_mut()).map_err(|_| Dropped::Unknown)?;
        change(&mut entry.list)?;
        self.total_groups -= entry.member.groups.len();
        entry.member.groups = entry.list.groups.clone();
        self.total_groups += entry.member.groups.len();
        self.version += 1;
        Ok(())
    }

    /// Returns whether there is room for `groups` groups in a member's list.
    pub(super) fn has_room(&self, entry: &Entry, groups: usize) -> bool {
        self.total_groups - entry.member.groups.len() + groups <= self.total_groups_max
    }

    /// Returns the bytes of memory held, except for the slack of the tables.
    pub(super) fn memory_bytes(&self) -> usize {
        let held =
            |entry: &Entry| entry.list.memory_bytes() + entry.wanted.as_ref().map_or(0, Wanted::memory_bytes);
        let entries = self.entries.len() * (size_of::<Entry>() + 64);
        self.own.memory_bytes() + entries + self.entries().map(held).sum::<usize>()
    }
}
