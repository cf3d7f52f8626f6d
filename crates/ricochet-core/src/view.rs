//! Views: which nodes are in which groups, as reported by the membership.

use std::sync::Arc;

use crate::ids::{GroupId, NodeId};

/// A node and all groups that it is in, whether or not this node is in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    id: NodeId,
    /// Sorted, each once. Views that know the same list share it.
    groups: Arc<[GroupId]>,
}

impl Member {
    /// Makes a member of `groups`, which may be given in any order and repeatedly.
    pub fn new(id: NodeId, groups: impl Into<Vec<GroupId>>) -> Self {
        let mut groups = groups.into();
        groups.sort_unstable();
        groups.dedup();
        Self { id, groups: groups.into() }
    }

    /// Makes a member with a list of groups that is shared, unless it has to be sorted.
    pub fn shared(id: NodeId, groups: &Arc<[GroupId]>) -> Self {
        if groups.is_sorted_by(|one, next| one < next) {
            return Self { id, groups: Arc::clone(groups) };
        }
        Self::new(id, groups.to_vec())
    }

    /// Returns the node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns its groups, in order.
    pub fn groups(&self) -> &[GroupId] {
        &self.groups
    }
}

/// The members that this node knows of. A view may be partial or stale; then fewer repairs are sent, or some
/// go to the wrong nodes, and nothing else happens (Ricochet §4.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Sorted by identifier, each once.
    members: Vec<Member>,
}

impl View {
    /// Makes a view of these members. If several have the same identifier, the last counts.
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let mut members: Vec<Member> = members.into_iter().collect();
        // In reverse order and sorted stably, the last of equals comes first and is kept.
        members.reverse();
        members.sort_by_key(Member::id);
        members.dedup_by_key(|member| member.id);
        Self { members }
    }

    /// Adds a member. If it replaces an entry with the same identifier, returns that entry.
    pub fn set(&mut self, member: Member) -> Option<Member> {
        match self.place(member.id) {
            Ok(at) => Some(std::mem::replace(&mut self.members[at], member)),
            Err(at) => {
                self.members.insert(at, member);
                None
            }
        }
    }

    /// Removes a member, and returns its entry.
    pub fn remove(&mut self, id: NodeId) -> Option<Member> {
        self.place(id).ok().map(|at| self.members.remove(at))
    }

    /// Returns the entry of a node.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        self.place(id).ok().map(|at| &self.members[at])
    }

    /// Returns all members, in order of their identifiers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the nodes whose groups differ between two views, with both lists, in order of their ids. A
    /// node that a view lacks has no groups there.
    pub(crate) fn changes<'a>(&'a self, next: &'a Self) -> Vec<(NodeId, &'a [GroupId], &'a [GroupId])> {
        let (mut old, mut new) = (self.members.iter().peekable(), next.members.iter().peekable());
        let mut changes = Vec::new();
        loop {
            let ids = [old.peek().map(|member| member.id), new.peek().map(|member| member.id)];
            let Some(id) = ids.into_iter().flatten().min() else { return changes };
            let before = old.next_if(|member| member.id == id).map_or(&[][..], |member| member.groups());
            let after = new.next_if(|member| member.id == id).map_or(&[][..], |member| member.groups());
            if !std::ptr::eq(before, after) && before != after {
                changes.push((id, before, after));
            }
        }
    }

    fn place(&self, id: NodeId) -> Result<usize, usize> {
        self.members.binary_search_by_key(&id, Member::id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u32, groups: &[u64]) -> Member {
        Member::new(NodeId(id), groups.iter().map(|&group| GroupId(group)).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_entry_of_a_member_counts() {
        let mut view = View::new([member(2, &[1]), member(1, &[3, 1, 3]), member(2, &[9])]);
        assert_eq!(view.members(), [member(1, &[1, 3]), member(2, &[9])]);
        assert_eq!(view.set(member(2, &[])), Some(member(2, &[9])));
        assert_eq!(view.set(member(0, &[4])), None);
        assert_eq!(view.remove(NodeId(1)), Some(member(1, &[1, 3])));
        assert_eq!(view.remove(NodeId(1)), None);
        assert_eq!(view, View::new([member(0, &[4]), member(2, &[])]));
        assert_eq!(view.member(NodeId(0)), Some(&member(0, &[4])));
    }

    #[test]
    fn lists_are_shared_and_changes_are_found() {
        let list: Arc<[GroupId]> = [1, 2].map(GroupId).into();
        let unsorted: Arc<[GroupId]> = [2, 1, 2].map(GroupId).into();
        assert_eq!(Member::shared(NodeId(1), &list), Member::shared(NodeId(1), &unsorted));
        assert!(std::ptr::eq(Member::shared(NodeId(1), &list).groups(), &*list));
        let view = View::new([member(1, &[1]), member(2, &[2]), member(3, &[3]), member(5, &[])]);
        let next = View::new([member(0, &[4]), member(2, &[2]), member(3, &[3, 4]), member(6, &[])]);
        let changes: Vec<_> = view
            .changes(&next)
            .into_iter()
            .map(|(id, before, after)| (id.0, before.len(), after.len()))
            .collect();
        assert_eq!(changes, [(0, 0, 1), (1, 1, 0), (3, 1, 2)]);
        assert_eq!(view.changes(&view.clone()), []);
    }
}
