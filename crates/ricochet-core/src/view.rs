//! Who is in which group, as membership tells it.

use crate::ids::{GroupId, NodeId};

/// A node and the groups it is in, ours or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    id: NodeId,
    /// In order, each once.
    groups: Box<[GroupId]>,
}

impl Member {
    /// A member of `groups`, which may come in any order and repeat.
    pub fn new(id: NodeId, groups: impl Into<Vec<GroupId>>) -> Self {
        let mut groups = groups.into();
        groups.sort_unstable();
        groups.dedup();
        Self { id, groups: groups.into_boxed_slice() }
    }

    /// The node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its groups, in order.
    pub fn groups(&self) -> &[GroupId] {
        &self.groups
    }
}

/// The members that this node knows of. May be partial or stale: then repairs are fewer or go astray, and nothing
/// else happens (Ricochet §4.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// In order of their ids, each once.
    members: Vec<Member>,
}

impl View {
    /// A view of these members; of several with one id the last counts.
    pub fn new(members: impl IntoIterator<Item = Member>) -> Self {
        let mut members: Vec<Member> = members.into_iter().collect();
        // Reversed and sorted stably, the last of equals stands first, and stays.
        members.reverse();
        members.sort_by_key(Member::id);
        members.dedup_by_key(|member| member.id);
        Self { members }
    }

    /// Adds a member, or puts it in the place of an earlier entry with its id, which is returned.
    pub fn set(&mut self, member: Member) -> Option<Member> {
        match self.place(member.id) {
            Ok(at) => Some(std::mem::replace(&mut self.members[at], member)),
            Err(at) => {
                self.members.insert(at, member);
                None
            }
        }
    }

    /// Takes a member out.
    pub fn remove(&mut self, id: NodeId) -> Option<Member> {
        self.place(id).ok().map(|at| self.members.remove(at))
    }

    /// The entry of a node.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        self.place(id).ok().map(|at| &self.members[at])
    }

    /// All members, in order of their ids.
    pub fn members(&self) -> &[Member] {
        &self.members
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
    fn the_last_word_on_a_member_counts() {
        let mut view = View::new([member(2, &[1]), member(1, &[3, 1, 3]), member(2, &[9])]);
        assert_eq!(view.members(), [member(1, &[1, 3]), member(2, &[9])]);
        assert_eq!(view.set(member(2, &[])), Some(member(2, &[9])));
        assert_eq!(view.set(member(0, &[4])), None);
        assert_eq!(view.remove(NodeId(1)), Some(member(1, &[1, 3])));
        assert_eq!(view.remove(NodeId(1)), None);
        assert_eq!(view, View::new([member(0, &[4]), member(2, &[])]));
        assert_eq!(view.member(NodeId(0)), Some(&member(0, &[4])));
    }
}
