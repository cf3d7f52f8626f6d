//! The groups that this node is in.

use hashbrown::HashMap;
use thiserror::Error;

use crate::ids::{GroupId, GroupIndex, GroupTag};

/// Maximum number of groups of one node.
pub const GROUPS_MAX: usize = 1 << 16;
/// Maximum number of groups that a node sends to while it runs. It forgets none, because receivers may
/// remember the numbers of its packets. A group that it has left takes about 200 bytes.
pub const SENT_GROUPS_MAX: usize = 1 << 20;

/// A group, and how much repair traffic it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group.
    pub id: GroupId,
    /// Rate of fire: average number of repairs that each data packet of the group enters at each receiver
    /// (Ricochet §4). 0 sends no repairs. The other half of the rate, r, is common to all groups.
    pub c: u8,
}

/// Errors in a list of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupsError {
    /// A group occurs twice.
    #[error("groups: expected each once, saw {0} twice")]
    Repeated(GroupId),
    /// Two groups have the same short form, so that a recipe could not tell them apart.
    #[error("groups: expected distinct low 32 bits, saw {0} and {1}; rename one of them")]
    Indistinct(GroupId, GroupId),
    /// There are more than [`GROUPS_MAX`] groups.
    #[error("groups: expected at most {GROUPS_MAX}, saw {0}")]
    TooMany(usize),
}

/// The groups that this node is in, in order of their identifiers.
///
/// ```
/// use ricochet_core::{GroupConfig, GroupId, Groups};
/// let groups = Groups::new([7, 3].map(|id| GroupConfig { id: GroupId(id), c: 5 }))?;
/// assert_eq!(groups.id(groups.index(GroupId(7)).unwrap()), GroupId(7));
/// assert_eq!(groups.index(GroupId(4)), None);
/// # Ok::<(), ricochet_core::GroupsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Groups {
    configs: Box<[GroupConfig]>,
    /// Keyed by tag alone, which is unique within a node, so that one table serves identifiers and recipes.
    by_tag: HashMap<GroupTag, GroupIndex>,
}

impl Groups {
    /// Sorts a list of groups.
    ///
    /// # Errors
    /// [`GroupsError`], naming the first group that cannot be accepted.
    pub fn new(groups: impl Into<Vec<GroupConfig>>) -> Result<Self, GroupsError> {
        let mut configs = groups.into();
        if configs.len() > GROUPS_MAX {
            return Err(GroupsError::TooMany(configs.len()));
        }
        configs.sort_unstable_by_key(|group| group.id);
        let mut by_tag = HashMap::with_capacity(configs.len());
        for (at, group) in configs.iter().enumerate() {
            let Some(other) = by_tag.insert(group.id.tag(), GroupIndex::new(at)) else { continue };
            let other: GroupId = configs[other.at()].id;
            return Err(if other == group.id {
                GroupsError::Repeated(other)
            } else {
                GroupsError::Indistinct(other, group.id)
            });
        }
        Ok(Self { configs: configs.into_boxed_slice(), by_tag })
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.configs.len()
    }

    /// Returns whether this node is in no group.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    /// Returns the groups in order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (GroupIndex, GroupConfig)> + '_ {
        self.configs.iter().enumerate().map(|(at, &group)| (GroupIndex::new(at), group))
    }

    /// Returns the index of a group, if this node is in it.
    #[inline]
    pub fn index(&self, id: GroupId) -> Option<GroupIndex> {
        self.by_tag(id.tag()).filter(|&index| self.id(index) == id)
    }

    /// Returns the index of the group with this short form, if this node is in it.
    #[inline]
    pub fn by_tag(&self, tag: GroupTag) -> Option<GroupIndex> {
        self.by_tag.get(&tag).copied()
    }

    /// Returns the group at an index.
    ///
    /// # Panics
    /// If the index does not belong to these groups.
    #[inline]
    pub fn id(&self, index: GroupIndex) -> GroupId {
        self.configs[index.at()].id
    }

    /// Returns the number of repairs that each packet of a group enters.
    ///
    /// # Panics
    /// If the index does not belong to these groups.
    pub fn c(&self, index: GroupIndex) -> u8 {
        self.configs[index.at()].c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(ids: &[u64]) -> Result<Groups, GroupsError> {
        Groups::new(ids.iter().map(|&id| GroupConfig { id: GroupId(id), c: 1 }).collect::<Vec<_>>())
    }

    #[test]
    fn groups_that_recipes_could_not_tell_apart_are_refused() {
        assert_eq!(
            groups(&[5, 1 << 32 | 5]).unwrap_err(),
            GroupsError::Indistinct(GroupId(5), GroupId(1 << 32 | 5))
        );
        assert_eq!(groups(&[5, 6, 5]).unwrap_err(), GroupsError::Repeated(GroupId(5)));
        assert!(groups(&[]).unwrap().is_empty());
    }

    #[test]
    fn another_group_with_the_same_tag_is_not_found() {
        let groups = groups(&[5]).unwrap();
        assert_eq!(groups.index(GroupId(1 << 32 | 5)), None);
        assert_eq!(groups.by_tag(GroupTag(5)), groups.index(GroupId(5)));
    }
}
