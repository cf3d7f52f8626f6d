//! Targets of the operator, and facts that an egress sees.

use fec::RepairRate;

use crate::caps::Refusal;
use crate::deadlines::Deadlines;

/// Targets and limits that an operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Share of packets that may stay lost.
    pub residual: f64,
    /// Time after which a recovered packet is of no use; `None` for a quarter of the round trip, from which
    /// on TCP retransmits, or for the time for which the far gateway holds the packets behind it, if that is
    /// longer.
    pub late_us: Option<u64>,
    /// Highest rate.
    pub rate_max: RepairRate,
    /// Highest bit rate of everything that is sent besides Hellos, reports and announcements.
    pub repair_bps_max: Option<u64>,
    /// Highest number of repairs, names and answers for each packet. Without it, repairs out of turn and
    /// answers have budgets of their own beside `rate_max`.
    pub overhead_max: Option<RepairRate>,
}

impl Targets {
    /// Share of packets that may stay lost by default.
    pub const RESIDUAL: f64 = 1e-5;
    /// Highest rate by default.
    pub const RATE_MAX: RepairRate = RepairRate::THREE_EIGHTHS;
}

impl Default for Targets {
    fn default() -> Self {
        Self {
            residual: Self::RESIDUAL,
            late_us: None,
            rate_max: Self::RATE_MAX,
            repair_bps_max: None,
            overhead_max: None,
        }
    }
}

/// Facts that the egress knows by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Situation {
    /// Lowest rate whose repairs fit the path.
    pub floor: Option<RepairRate>,
    /// Round trip to the peer, once it is known.
    pub rtt_us: Option<u64>,
    /// Time for which the far gateway holds packets behind one that is missing.
    pub hold_us: u64,
    /// Packets per second.
    pub per_second: u64,
    /// Length of a repair on the link in bytes.
    pub repair_bytes: u64,
    /// Share of repairs that the link loses.
    pub repair_loss: f64,
    /// Deadlines of classes of packets.
    pub deadlines: Deadlines,
    /// Output that the caps of the operator refused lately.
    pub refusal: Option<Refusal>,
}
