//! The groups that this node is in.

use hashbrown::HashMap;
use thiserror::Error;

use crate::ids::{GroupId, GroupIndex, GroupTag};

/// Most groups of one node.
pub const GROUPS_MAX: usize = 1 << 16;

/// A group and how much repair it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group.
    pub id: GroupId,
    /// Rate of fire: repairs that each data packet of the group enters, on average, at each receiver (Ricochet §4).
    /// 0 sends none. All groups share the other half of the rate, r.
    pub c: u8,
}

/// What is wrong with a list of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupsError {
    /// The same group twice.
    #[error("groups: expected each once, saw {0} twice")]
    Repeated(GroupId),
    /// Two groups whose short forms are the same: a recipe could not tell them apart.
    #[error("groups: expected distinct low 32 bits, saw {0} and {1}; rename one of them")]
    Indistinct(GroupId, GroupId),
    /// More than [`GROUPS_MAX`].
    #[error("groups: expected at most {GROUPS_MAX}, saw {0}")]
    TooMany(usize),
}

/// The groups that this node is in, in order of their ids.
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
    /// Keyed by tag alone, which is unique here: one table serves ids and recipes.
    by_tag: HashMap<GroupTag, GroupIndex>,
}

impl Groups {
    /// Puts groups in order.
    ///
    /// # Errors
    /// [`GroupsError`], naming the first group that cannot be taken.
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

    /// How many.
    pub fn len(&self) -> usize {
        self.configs.len()
    }

    /// Whether this node is in no group.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    /// All of them, in order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (GroupIndex, GroupConfig)> + '_ {
        self.configs.iter().enumerate().map(|(at, &group)| (GroupIndex::new(at), group))
    }

    /// The place of a group, if this node is in it.
    #[inline]
    pub fn index(&self, id: GroupId) -> Option<GroupIndex> {
        self.by_tag(id.tag()).filter(|&index| self.id(index) == id)
    }

    /// The place of the one group with this short form.
    #[inline]
    pub fn by_tag(&self, tag: GroupTag) -> Option<GroupIndex> {
        self.by_tag.get(&tag).copied()
    }

    /// The group at a place.
    ///
    /// # Panics
    /// If the index is not of these groups.
    #[inline]
    pub fn id(&self, index: GroupIndex) -> GroupId {
        self.configs[index.at()].id
    }

    /// How many repairs each packet of a group enters.
    ///
    /// # Panics
    /// If the index is not of these groups.
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
    fn a_stranger_with_the_tag_of_a_group_is_not_that_group() {
        let groups = groups(&[5]).unwrap();
        assert_eq!(groups.index(GroupId(1 << 32 | 5)), None);
        assert_eq!(groups.by_tag(GroupTag(5)), groups.index(GroupId(5)));
    }
}
