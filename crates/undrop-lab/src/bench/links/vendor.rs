//! A controller like that of SD-WAN vendors: a table of loss thresholds, looked up once a second.
//!
//! It runs in this program. Each second it reads from the status of both gateways how many packets of the
//! last second were lost, writes the code of the threshold into the configuration file of the sender's side,
//! and makes the gateway reload it. A vendor's device does the same by itself. Packets that wait for a
//! repair when the code changes are not protected.

use anyhow::Context as _;
use maelstrom::status::Status;
use serde::Deserialize;
use stage::gateways::GatewayPair;

/// Interval between two looks at the table, in microseconds.
const INTERVAL_US: u64 = 1_000_000;

/// A row of the table.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Threshold {
    /// Loss from which on the row holds, in percent.
    pub(super) from_percent: f64,
    /// Lines of the section `[code]`.
    pub(super) code: String,
}

/// The controller of a pair of gateways.
pub(super) struct TableController<'a> {
    thresholds: &'a [Threshold],
    next_us: u64,
    sides: [Side; 2],
}

/// Present row of the gateway of one side, and the counts of its packets at the far gateway.
#[derive(Clone, Copy, Default)]
struct Side {
    row: usize,
    packets: u64,
    lost: u64,
}

impl<'a> TableController<'a> {
    /// Returns a controller whose gateways run the first row.
    pub(super) fn new(thresholds: &'a [Threshold]) -> Self {
        Self { thresholds, next_us: INTERVAL_US, sides: [Side::default(); 2] }
    }

    /// Looks at the table if it is time. The time is that of the traffic, which [`Self::restart`] begins
    /// again.
    ///
    /// # Errors
    /// If a gateway does not answer, or cannot be asked to reload its file.
    pub(super) fn tick(&mut self, elapsed_us: u64, pair: &mut GatewayPair) -> anyhow::Result<()> {
        if self.is_due(elapsed_us) {
            self.change(pair).context("changing the code by the table of thresholds")?;
        }
        Ok(())
    }

    /// Begins the time again for other traffic. The gateways keep their rows, and the counts go on.
    pub(super) fn restart(&mut self) {
        self.next_us = INTERVAL_US;
    }

    fn is_due(&mut self, elapsed_us: u64) -> bool {
        let is_due = elapsed_us >= self.next_us;
        if is_due {
            self.next_us = elapsed_us + INTERVAL_US;
        }
        is_due
    }

    fn change(&mut self, pair: &mut GatewayPair) -> anyhow::Result<()> {
        for side in 0..2 {
            let far = pair.status(1 - side)?;
            if let Some(row) = self.look(side, &far)? {
                pair.reload_with_code(side, &self.thresholds[row].code)?;
            }
        }
        Ok(())
    }

    /// Returns the row that the gateway of a side changes to, if it changes.
    fn look(&mut self, side: usize, far: &Status) -> anyhow::Result<Option<usize>> {
        let peer = far.peers.first().context("expected a gateway with a peer, saw none")?;
        let loss = &peer.ingress.loss;
        let state = &mut self.sides[side];
        let packets = loss.packets.saturating_sub(state.packets);
        let lost = loss.lost.saturating_sub(state.lost);
        (state.packets, state.lost) = (loss.packets, loss.lost);
        if packets == 0 {
            return Ok(None);
        }
        let row = row(self.thresholds, lost as f64 * 100.0 / packets as f64);
        Ok((std::mem::replace(&mut state.row, row) != row).then_some(row))
    }
}

/// Returns the last row whose threshold is reached.
fn row(thresholds: &[Threshold], percent: f64) -> usize {
    thresholds.partition_point(|threshold| threshold.from_percent <= percent).max(1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds() -> Vec<Threshold> {
        let row = |from_percent| Threshold { from_percent, code: format!("from {from_percent}") };
        [0.0, 0.1, 1.0, 3.0, 5.0].map(row).to_vec()
    }

    #[test]
    fn the_last_threshold_that_is_reached_holds() {
        for (percent, expected) in [(0.0, 0), (0.09, 0), (0.1, 1), (2.9, 2), (4.0, 3), (60.0, 4)] {
            assert_eq!(row(&thresholds(), percent), expected, "{percent}");
        }
    }

    /// Status of a far gateway that has counted these packets, and these lost ones.
    fn far(counts: (u64, u64)) -> Status {
        let mut status = Status::default();
        let peer = serde_json::json!({
            "address": "10.0.0.1:1", "up": true, "last_heard_ms": null, "sessions": 1, "networks": [],
            "name": null, "egress": serde_json::to_value(maelstrom::status::EgressStatus::default()).unwrap(),
            "ingress": serde_json::to_value(maelstrom::status::IngressStatus::default()).unwrap(),
            "far": serde_json::to_value(maelstrom::status::LossStatus::default()).unwrap(),
        });
        let mut peer: maelstrom::status::PeerStatus = serde_json::from_value(peer).unwrap();
        (peer.ingress.loss.packets, peer.ingress.loss.lost) = counts;
        status.peers.push(peer);
        status
    }

    #[test]
    fn a_measured_run_begins_with_the_row_that_was_learnt_and_a_clock_of_its_own() {
        let thresholds = thresholds();
        let mut table = TableController::new(&thresholds);
        let due = |table: &mut TableController<'_>, ms: u64| table.is_due(1_000 * ms);
        let of_learning: Vec<u64> = (0..=150).map(|at| 100 * at).filter(|&ms| due(&mut table, ms)).collect();
        assert_eq!((of_learning.len(), of_learning[0]), (15, 1_000));
        assert_eq!(table.look(0, &far((10_000, 200))).unwrap(), Some(2));
        table.restart();
        let of_run: Vec<u64> = (0..=20).map(|at| 100 * at).filter(|&ms| due(&mut table, ms)).collect();
        assert_eq!(of_run, [1_000, 2_000]);
        assert_eq!(table.look(0, &far((11_000, 220))).unwrap(), None, "the same loss, and the row is kept");
        assert_eq!(table.look(0, &far((12_000, 220))).unwrap(), Some(0), "the counts go on");
    }

    #[test]
    fn the_loss_of_the_last_interval_decides_and_only_changes_are_made() {
        let thresholds = thresholds();
        let mut table = TableController::new(&thresholds);
        let mut counts = (0, 0);
        let mut after = |packets: u64, lost: u64| {
            counts = (counts.0 + packets, counts.1 + lost);
            table.look(0, &far(counts)).unwrap()
        };
        assert_eq!(after(1_000, 0), None);
        assert_eq!(after(1_000, 20), Some(2));
        assert_eq!(after(1_000, 20), None, "the same row again");
        assert_eq!(after(0, 0), None, "nothing is known of an interval without packets");
        assert_eq!(after(10_000, 10), Some(1));
    }
}
