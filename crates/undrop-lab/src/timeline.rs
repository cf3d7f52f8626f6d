//! Counts of a link and its gateways over time, in the direction from site A to site B.

use maelstrom::status::{PeerStatus, Status};
use netlab::Direction;
use netlab::emulator::Emulator;
use netlab::traffic::Progress;
use serde::Serialize;
use stage::gateways::GatewayPair;

/// Counts up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Moment {
    /// Microseconds since the traffic began.
    pub(crate) at_us: u64,
    /// Payload that hosts have received, in bytes.
    pub(crate) received_bytes: u64,
    /// Packets that reached the link.
    pub(crate) offered: u64,
    /// Of these, lost by the loss model.
    pub(crate) link_lost: u64,
    /// Of these, dropped because the queue before the link was full.
    pub(crate) queue_full: u64,
    /// Packets that the gateway of site A protected, and their bytes.
    pub(crate) source_packets: u64,
    pub(crate) source_bytes: u64,
    /// Repairs that it sent, and their bytes.
    pub(crate) repair_packets: u64,
    pub(crate) repair_bytes: u64,
    /// Packets whose fate the gateway of site B knows.
    pub(crate) settled: u64,
    /// Of these, packets that stayed lost.
    pub(crate) stayed_lost: u64,
    /// Time at which the gateway missed the latest of those that were not solved.
    pub(crate) missed_us: Option<u64>,
}

impl Moment {
    /// Returns the present counts.
    pub(crate) fn of(progress: Progress, link: &Emulator, statuses: Option<&[Status; 2]>) -> Self {
        let counters = link.counters(Direction::AToB);
        let mut moment = Self {
            at_us: progress.elapsed_us,
            received_bytes: progress.received_bytes,
            offered: counters.link.offered_packets,
            link_lost: counters.link.lost,
            queue_full: counters.link.queue_full + counters.link.overflow + counters.device_drops,
            ..Self::default()
        };
        let peers = statuses.and_then(|[a, b]| Some((a.peers.first()?, b.peers.first()?)));
        if let Some((PeerStatus { egress, .. }, PeerStatus { ingress, .. })) = peers {
            (moment.source_packets, moment.source_bytes) = (egress.source_packets, egress.source_bytes);
            (moment.repair_packets, moment.repair_bytes) = (egress.repair_packets, egress.repair_bytes);
            (moment.settled, moment.stayed_lost) = (ingress.loss.packets, ingress.loss.residual);
            let age_us = ingress.last_missed_ms.map(|ms| ms * 1_000);
            moment.missed_us = age_us.and_then(|us| progress.elapsed_us.checked_sub(us));
        }
        moment
    }

    /// Returns the counts between an earlier moment and this one.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            at_us: self.at_us.saturating_sub(earlier.at_us),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            offered: self.offered.saturating_sub(earlier.offered),
            link_lost: self.link_lost.saturating_sub(earlier.link_lost),
            queue_full: self.queue_full.saturating_sub(earlier.queue_full),
            source_packets: self.source_packets.saturating_sub(earlier.source_packets),
            source_bytes: self.source_bytes.saturating_sub(earlier.source_bytes),
            repair_packets: self.repair_packets.saturating_sub(earlier.repair_packets),
            repair_bytes: self.repair_bytes.saturating_sub(earlier.repair_bytes),
            settled: self.settled.saturating_sub(earlier.settled),
            stayed_lost: self.stayed_lost.saturating_sub(earlier.stayed_lost),
            missed_us: self.missed_us,
        }
    }

    /// Returns the repair bytes per byte of source packets.
    pub(crate) fn overhead(&self) -> f64 {
        ratio(self.repair_bytes, self.source_bytes)
    }

    /// Returns the packets that did not reach site B, counted where they are lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.link_lost + self.queue_full
    }
}

/// Returns a quotient, or 0 if nothing was counted.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Records moments at regular intervals.
pub(crate) struct Recorder<'a> {
    link: &'a Emulator,
    every_us: u64,
    next_us: u64,
    moments: Vec<Moment>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(link: &'a Emulator, every_us: u64) -> Self {
        Self { link, every_us, next_us: 0, moments: Vec::new() }
    }

    /// Records a moment if it is time. A gateway that does not answer leaves a gap.
    ///
    /// Returns the statuses if they were read.
    pub(crate) fn tick(&mut self, progress: Progress, pair: Option<&GatewayPair>) -> Option<[Status; 2]> {
        if progress.elapsed_us < self.next_us {
            return None;
        }
        self.next_us = progress.elapsed_us + self.every_us / 2;
        self.next_us = self.next_us.next_multiple_of(self.every_us);
        let statuses = pair.map(|pair| Some([pair.status(0).ok()?, pair.status(1).ok()?]));
        if let Some(None) = statuses {
            return None;
        }
        let statuses = statuses.flatten();
        self.moments.push(Moment::of(progress, self.link, statuses.as_ref()));
        statuses
    }

    /// Returns the moments, in ascending order.
    pub(crate) fn finish(self) -> Vec<Moment> {
        self.moments
    }
}

/// Returns the last moment at or before a time, or else the first.
pub(crate) fn at(moments: &[Moment], at_us: u64) -> Moment {
    let after = moments.partition_point(|moment| moment.at_us <= at_us);
    moments.get(after.max(1) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_between_two_moments_are_differences() {
        let early =
            Moment { at_us: 1_000, offered: 10, repair_bytes: 100, source_bytes: 1_000, ..Moment::default() };
        let late =
            Moment { at_us: 3_000, offered: 25, repair_bytes: 160, source_bytes: 1_500, ..Moment::default() };
        let between = late.since(&early);
        assert_eq!((between.at_us, between.offered, between.repair_bytes), (2_000, 15, 60));
        assert!((between.overhead() - 0.12).abs() < 1e-9);
        assert_eq!(Moment::default().overhead(), 0.0);
    }

    #[test]
    fn a_time_has_the_last_moment_before_it() {
        let moments = [100, 200, 300].map(|at_us| Moment { at_us, ..Moment::default() });
        for (at_us, found) in [(0, 100), (100, 100), (250, 200), (9_999, 300)] {
            assert_eq!(at(&moments, at_us).at_us, found, "{at_us}");
        }
        assert_eq!(at(&[], 5), Moment::default());
    }
}
