//! Figures of a run.

use ricochet_core::bins::BinsCounts;
use ricochet_core::message::How;
use serde::Serialize;

use crate::cluster::{Cluster, Wire};
use crate::ledger::{Fate, Ledger};

/// Time of recoveries in milliseconds, from the moment at which the packet would have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    /// Computes them from latencies in microseconds, which are sorted in place.
    pub fn of(latencies_us: &mut [u64]) -> Self {
        latencies_us.sort_unstable();
        let Some(&max) = latencies_us.last() else { return Self::default() };
        let rank =
            |share: f64| latencies_us[((latencies_us.len() as f64 * share).ceil() as usize).max(1) - 1];
        let mean_us = latencies_us.iter().sum::<u64>() as f64 / latencies_us.len() as f64;
        let ms = |us: u64| us as f64 / 1e3;
        Self { mean: mean_us / 1e3, p50: ms(rank(0.5)), p99: ms(rank(0.99)), max: ms(max) }
    }
}

/// Figures of a run. A loss is one packet at one receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Packets sent in the measured time.
    pub messages: u64,
    /// Packets expected at receivers: each message counts once per member except its sender.
    pub expected: u64,
    /// Expected packets that the network dropped.
    pub lost: u64,
    /// Share of lost packets that were recovered.
    pub recovered_percent: f64,
    /// Lost packets recovered by repairs.
    pub repaired: u64,
    /// Lost packets recovered on request.
    pub requested: u64,
    /// Time of recoveries.
    pub latency_ms: Latency,
    /// Share of repairs among all arrived data and repair packets (Ricochet §5.2).
    pub overhead_percent: f64,
    /// Bytes of all datagrams except data packets, relative to the bytes of data packets.
    pub overhead_bytes_percent: f64,
    /// Symbols added to sums per packet that entered the bins.
    pub xors_per_packet: f64,
    /// Expected packets that were never delivered.
    pub undelivered: u64,
    /// Packets that were delivered twice: always 0 in virtual time, where a duplicate stops the run.
    pub duplicates: u64,
    /// Data packets that reached a node again and were dropped there.
    pub received_again: u64,
    /// Processor time of the nodes per arrived data packet, including repairs and timers; 0 if not measured.
    pub cpu_us_per_packet: f64,
    /// Bytes of frames per message. A frame counts once at its sender and once at each receiver.
    pub wire_bytes_per_message: f64,
    /// Frames per message, counted in the same way.
    pub wire_frames_per_message: f64,
    /// Datagrams sent, multicast ones counted once: data, retransmissions, repairs, requests, heartbeats.
    pub datagrams: [u64; 5],
    /// All latencies in microseconds, sorted.
    #[serde(skip)]
    pub latencies_us: Vec<u64>,
}

/// Data from which figures are computed.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// All packets and their fates.
    pub ledger: &'a Ledger,
    /// Counters of datagrams by the low half of their first byte (`docs/wire.md`).
    pub wires: &'a [Wire; 16],
    /// Sum of the counters of all nodes' repair bins.
    pub bins: BinsCounts,
    /// Data packets that reached a node again and were dropped there.
    pub received_again: u64,
    /// Packets that were delivered twice.
    pub duplicates: u64,
    /// Processor time in nanoseconds, if measured.
    pub cpu_ns: Option<f64>,
}

impl Figures {
    /// Collects the data of a cluster up to now.
    pub fn of(cluster: &Cluster) -> Self {
        let bins = cluster.lives().iter().map(|life| *life.node.bins().counts());
        let bins = bins.fold(BinsCounts::default(), |sum, counts| BinsCounts {
            additions: sum.additions + counts.additions,
            packets: sum.packets + counts.packets,
            ..sum
        });
        Self::compute(&Account {
            ledger: cluster.ledger(),
            wires: cluster.wires(),
            bins,
            received_again: cluster.lives().iter().map(|life| life.node.counts().duplicates).sum(),
            duplicates: 0,
            cpu_ns: cluster.cpu_ns(),
        })
    }

    /// Computes the figures of any run.
    pub fn compute(account: &Account<'_>) -> Self {
        let mut figures = Self::default();
        figures.count_packets(account.ledger);
        // Without losses, the share is 100 %.
        let back = figures.repaired + figures.requested;
        figures.recovered_percent = if figures.lost == 0 { 100.0 } else { percent(back, figures.lost) };
        figures.latency_ms = Latency::of(&mut figures.latencies_us);
        figures.count_wires(account.wires);
        let data = account.wires[1].arrived.max(1);
        figures.cpu_us_per_packet = account.cpu_ns.map_or(0.0, |ns| ns / 1e3 / data as f64);
        figures.xors_per_packet = ratio(account.bins.additions, account.bins.packets);
        figures.received_again = account.received_again;
        figures.duplicates = account.duplicates;
        figures
    }

    fn count_packets(&mut self, ledger: &Ledger) {
        for sent in ledger.sent().iter().filter(|sent| sent.counted) {
            self.messages += 1;
            for (_, entry) in ledger.entries(sent) {
                if matches!(entry.fate, Fate::Own | Fate::Excused) {
                    continue;
                }
                self.expected += 1;
                let missed_us = match (entry.fate, entry.missed_us) {
                    (Fate::Delivered(How::Multicast), _) => None,
                    (_, missed_us) => missed_us,
                };
                self.lost += u64::from(missed_us.is_some());
                match (entry.fate, missed_us) {
                    (Fate::Delivered(how), Some(missed_us)) => {
                        self.repaired += u64::from(how == How::Repaired);
                        self.requested += u64::from(how == How::Requested);
                        self.latencies_us.push(entry.settled_us.saturating_sub(missed_us));
                    }
                    (Fate::Open | Fate::Lost, _) => self.undelivered += 1,
                    _ => {}
                }
            }
        }
    }

    fn count_wires(&mut self, wires: &[Wire; 16]) {
        let [_, data, retransmissions, repairs, requests, heartbeats, ..] = *wires;
        self.overhead_percent = percent(repairs.arrived, repairs.arrived + data.arrived);
        let bytes: u64 = wires.iter().map(|wire| wire.bytes).sum();
        self.overhead_bytes_percent = percent(bytes - data.bytes, data.bytes);
        // The bytes are those of all messages, so uncounted messages are included.
        self.wire_bytes_per_message = ratio(bytes, data.sent);
        let frames: u64 = wires.iter().map(|wire| wire.sent + wire.copies).sum();
        self.wire_frames_per_message = ratio(frames, data.sent);
        self.datagrams = [data, retransmissions, repairs, requests, heartbeats].map(|wire| wire.sent);
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * ratio(part, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let latency = Latency::of(&mut (1..=200).rev().map(|n| n * 1_000).collect::<Vec<_>>());
        assert_eq!(latency, Latency { mean: 100.5, p50: 100.0, p99: 198.0, max: 200.0 });
        assert_eq!(Latency::of(&mut []), Latency::default());
        assert_eq!(Latency::of(&mut [7_000]), Latency { mean: 7.0, p50: 7.0, p99: 7.0, max: 7.0 });
    }
}
