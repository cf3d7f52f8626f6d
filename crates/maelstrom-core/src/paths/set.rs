//! Paths by their numbers, and how they share the datagrams.

use std::net::SocketAddr;

use crate::config::Whereabouts;

/// Maximum number of paths to a peer.
pub const PATHS_MAX: usize = 8;

/// How several paths to a peer share the datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathUse {
    /// All of them take the first path that lives.
    #[default]
    Failover,
    /// All of them take every path that lives; the first copy that arrives counts.
    Duplicate,
    /// Packets take the first path that lives as far as it carries them, and then the others. Repairs take
    /// the second as far as it carries them, and then the first.
    Spread,
}

impl PathUse {
    /// All uses.
    pub const ALL: [Self; 3] = [Self::Failover, Self::Duplicate, Self::Spread];

    /// The word in files and status.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failover => "failover",
            Self::Duplicate => "duplicate",
            Self::Spread => "spread",
        }
    }
}

/// A further path to a peer: beside that from `listen` to the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Number of the socket from which datagrams leave and to which they come; 0 is that of `listen`. A
    /// reload must not change it: a path from another number is another path.
    pub door: usize,
    /// Address of the peer on this path; with the unspecified IP address, it is not known yet.
    pub address: SocketAddr,
    /// Source of this address.
    pub whereabouts: Whereabouts,
}

impl PathConfig {
    /// Whether both are the same path, wherever the peer shows to be on it.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { door, address, whereabouts } = *self;
        (door, whereabouts) == (other.door, other.whereabouts)
            && (self.may_move() || address == other.address)
    }

    /// Whether the peer's own datagrams may show another address.
    pub(crate) fn may_move(&self) -> bool {
        self.whereabouts != Whereabouts::Stated
    }
}

/// Content of a datagram, as far as it decides on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Packets of a tunnel.
    Packets,
    /// A repair, or names.
    Repair,
    /// Anything else.
    Control,
}

/// Numbers of paths to a peer. The first path, number 0, is that from `listen` to the peer's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSet(u8);

impl PathSet {
    /// No path.
    pub const NONE: Self = Self(0);
    /// The first path alone.
    pub const FIRST: Self = Self(1);

    /// One path.
    ///
    /// # Panics
    /// If there is no such path.
    pub fn one(path: usize) -> Self {
        assert!(path < PATHS_MAX, "a peer has at most {PATHS_MAX} paths");
        Self(1 << path)
    }

    /// The first `count` paths.
    pub fn all(count: usize) -> Self {
        (0..count).fold(Self::NONE, Self::with)
    }

    /// These paths and another one.
    #[must_use]
    pub fn with(self, path: usize) -> Self {
        Self(self.0 | Self::one(path).0)
    }

    /// Whether there is no path.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of paths.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether a path is among them.
    pub fn contains(self, path: usize) -> bool {
        path < PATHS_MAX && self.0 & 1 << path != 0
    }

    /// The numbers, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..PATHS_MAX).filter(move |&path| self.contains(path))
    }

    /// The path at place `at` in the order of the numbers, or else the first.
    pub(super) fn single(self, at: usize) -> Self {
        self.iter().nth(at).or(self.iter().next()).map_or(Self::NONE, Self::one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_paths_put_into_it() {
        let set = PathSet::one(5).with(2);
        assert_eq!((set.iter().collect::<Vec<_>>(), set.len()), (vec![2, 5], 2));
        assert!(set.contains(5) && !set.contains(0) && !set.contains(PATHS_MAX));
        assert_eq!([0, 1, 2].map(|at| set.single(at)), [2, 5, 2].map(PathSet::one));
        assert_eq!(PathSet::NONE.single(0), PathSet::NONE);
        assert_eq!((PathSet::all(1), PathSet::all(PATHS_MAX).len()), (PathSet::FIRST, PATHS_MAX));
    }
}
