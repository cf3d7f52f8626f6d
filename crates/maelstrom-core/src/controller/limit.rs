//! Why a rate is not another one.

/// Reason why the rate is not lower, or not higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nothing is known of the link.
    Unknown,
    /// No lower rate suffices.
    Needed,
    /// It is the lowest rate.
    Lowest,
    /// Repairs at lower rates do not fit the path.
    Mtu,
    /// The operator allows no higher rate.
    Highest,
    /// The operator allows no more bytes.
    Bandwidth,
    /// No rate recovers most of the losses.
    Hopeless,
    /// Repairs have not helped, so that the rate rests at the floor.
    Useless,
}

impl Limit {
    /// Returns its name: stable, in snake case.
    pub fn id(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Needed => "needed",
            Self::Lowest => "lowest",
            Self::Mtu => "mtu",
            Self::Highest => "highest",
            Self::Bandwidth => "bandwidth",
            Self::Hopeless => "hopeless",
            Self::Useless => "useless",
        }
    }
}
