//! Why a rate is not another one.

/// Loss against which the ends of flights are protected as long as that of the link is not known. A slow
/// start that ends at a loss ends far too low, and a new link has seen no other packets.
const UNKNOWN_LOSS: f64 = 0.05;

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
    /// Share of the packets that repairs may recover, where the link is known to lose `loss` of them.
    pub(crate) fn loss_to_repair(self, loss: f64) -> f64 {
        match self {
            Self::Useless => 0.0,
            Self::Unknown => loss.max(UNKNOWN_LOSS),
            _ => loss,
        }
    }

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
