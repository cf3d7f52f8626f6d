//! Identifiers of nodes and groups, and the dense indices that stand for them within a node.

use std::fmt;

/// Identifies one life of a node. A node draws another identifier at each start, so that sequence numbers of
/// an earlier life are never taken for those of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Identifies a group: a hash of its name, wide enough that no two names of a cluster collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl GroupId {
    /// Returns the identifier of the group that applications call `name`: its XXH3-64 (`docs/wire.md`).
    pub fn of_name(name: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }

    /// Returns the short form that recipes carry.
    pub fn tag(self) -> GroupTag {
        GroupTag(self.0 as u32)
    }

    /// Returns the bits that the short form leaves out.
    pub(crate) fn rest(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The low 32 bits of a [`GroupId`], enough to tell the groups of one node apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupTag(pub u32);

/// Identifies a stream: the packets of one sender to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The sender.
    pub sender: NodeId,
    /// The group.
    pub group: GroupId,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// Returns the index of position `at`.
            ///
            /// # Panics
            /// If `at` does not fit 32 bits.
            pub fn new(at: usize) -> Self {
                Self(u32::try_from(at).expect("an index has 32 bits"))
            }

            /// Returns the position, from 0.
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index! {
    /// Index of one of this node's groups in [`Groups`](crate::Groups).
    GroupIndex
}
index! {
    /// Index of one of this node's regions in [`Regions`](crate::Regions).
    RegionIndex
}
