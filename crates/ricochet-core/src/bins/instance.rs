//! The state of a lane's instances.

use super::density::Density;
use super::sums::SumSlot;
use super::waits::Gain;

/// The part of an instance that decides whether a packet enters, kept small since most packets look at
/// nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    /// Number of levels that a group needs for its packets to enter.
    pub(super) level: u32,
    /// Packets of its region in this turn, whether or not they entered.
    pub(super) ticks: u32,
    /// Value of `ticks` that ends the turn, so that a level whose groups fall silent does not block the lane.
    pub(super) last: u32,
}

/// One of the staggered instances of a lane, with the bin that it fills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    /// Current turn; `None` if the turn was skipped for want of a sum.
    pub(super) turn: Option<u32>,
    /// Packets in the bin.
    pub(super) count: u8,
    /// Number of packets at which the bin fires.
    pub(super) size: u8,
    pub(super) sum: Option<SumSlot>,
    /// Time at which it began, and the number of times that its wait is halved.
    pub(super) begun_us: u64,
    pub(super) halvings: u8,
    pub(super) gain: Gain,
    pub(super) density: Density,
    /// With [`Content::Auto`](super::Content::Auto), the smoothed length of its symbols, and whether its last
    /// repair was a digest.
    pub(super) length: u16,
    pub(super) digest: bool,
}
