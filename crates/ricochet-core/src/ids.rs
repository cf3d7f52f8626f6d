//! The names of nodes and groups, and the dense indices that stand for them inside.

use std::fmt;

/// Names one life of a node: drawn anew at each start, so that sequence numbers of an earlier life are never taken for
/// those of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Names a group: a hash of what the application calls it, wide enough that no two names meet in one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

impl GroupId {
    /// The group that applications call `name`: XXH3-64 of it (`docs/wire.md`).
    pub fn of_name(name: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }

    /// The short form that recipes carry.
    pub fn tag(self) -> GroupTag {
        GroupTag(self.0 as u32)
    }

    /// What the short form leaves out.
    pub(crate) fn rest(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The low 32 bits of a [`GroupId`]: enough to tell the groups of one node apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupTag(pub u32);

/// Names a stream: what one sender sends to one group.
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
            /// The index of position `at`.
            ///
            /// # Panics
            /// If `at` is beyond 32 bits: no view holds so much.
            pub fn new(at: usize) -> Self {
                Self(u32::try_from(at).expect("an index has 32 bits"))
            }

            /// The position, from 0.
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index! {
    /// One of this node's groups, by its place in [`Groups`](crate::Groups).
    GroupIndex
}
index! {
    /// One of this node's regions, by its place in [`Regions`](crate::Regions).
    RegionIndex
}
