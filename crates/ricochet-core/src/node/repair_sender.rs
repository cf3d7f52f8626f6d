//! The way of a repair from the bins to its targets.

use super::counts::NodeCounts;
use crate::bins::Outgoing;
use crate::feedback::Tally;
use crate::ids::NodeId;
use crate::message::{Output, To};
use crate::wire::Repair;

/// Sends the repairs that bins emit, and counts them.
pub(super) struct RepairSender<'a, O> {
    pub(super) me: NodeId,
    /// Buffer for the datagram.
    pub(super) scratch: &'a mut [u8],
    pub(super) counts: &'a mut NodeCounts,
    pub(super) tally: &'a mut Tally,
    pub(super) out: &'a mut O,
}

impl<O: Output> RepairSender<'_, O> {
    /// Sends a repair to each of its targets.
    pub(super) fn send(&mut self, repair: &Outgoing<'_>) {
        let datagram = Repair { from: self.me, names: repair.names, symbol: repair.symbol };
        let length = datagram.write(self.scratch);
        for &target in repair.targets {
            self.out.send(To::Node(target), &self.scratch[..length]);
            self.counts.repairs_sent += 1;
            self.tally.on_repair_sent(target, length);
        }
    }
}
