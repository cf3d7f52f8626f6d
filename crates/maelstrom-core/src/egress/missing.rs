//! Repairs that do not arrive at the far end: those that the link loses, and those that a cap refuses.

use fec::names;

use super::Egress;

impl Egress {
    /// Tells the encoder the share of repairs that do not arrive. Those that a cap refuses are missing at the
    /// far end like those that the link loses.
    pub(super) fn adapt_to_missing_repairs(&mut self) {
        let refused = self.sender.caps.refusal().map_or(0.0, |refusal| refusal.share);
        let missing = 1.0 - (1.0 - self.repair_loss) * (1.0 - refused);
        self.coder.set_repair_loss(missing, names::per_repair(self.floor.rate()));
    }

    /// Raises the floor while repairs name all their packets, which makes them longer at the lowest rates.
    pub(super) fn follow_lone_repairs(&mut self, now_us: u64) {
        if self.floor.set_alone(self.coder.alone().is_some()) {
            self.on_floor(now_us);
            // There is room for another number of names.
            self.adapt_to_missing_repairs();
        }
    }
}
