//! Directions of a link between two namespaces.

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the first namespace to the second.
    AToB,
    /// From the second to the first.
    BToA,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::AToB, Self::BToA];

    /// Returns the name for logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::AToB => "a_to_b",
            Self::BToA => "b_to_a",
        }
    }

    /// Returns the direction of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::BOTH.into_iter().find(|direction| direction.name() == name)
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::AToB => 0,
            Self::BToA => 1,
        }
    }
}
