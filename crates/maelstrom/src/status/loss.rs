//! Losses and delays in the status of a gateway.

use hdrhistogram::Histogram;
use maelstrom_core::observe::{delay_bound_us, delay_counts};
use maelstrom_core::wire::LossReport;
use serde::{Deserialize, Serialize};

use super::percent;

/// Losses in one direction of the link since the session began. Only source packets whose fate is settled
/// count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossStatus {
    /// Number of packets.
    pub packets: u64,
    /// Packets lost on the link.
    pub lost: u64,
    /// Lost packets that were recovered.
    pub recovered: u64,
    /// Packets that did not arrive and were recovered but withheld, because they may have taken another path.
    #[serde(default)]
    pub withheld: u64,
    /// Lost packets that were solved, but left to their senders because a full queue had dropped them.
    #[serde(default)]
    pub left: u64,
    /// Lost packets that were not recovered: not solved, withheld, or left.
    pub residual: u64,
    /// Lost packets per hundred packets.
    pub loss_percent: f64,
    /// Lost packets that were not recovered, per hundred packets.
    pub residual_percent: f64,
    /// Number of repairs that arrived.
    pub repairs_received: u64,
    /// Lengths of runs of consecutive lost packets.
    pub burst_histogram: Vec<BurstStatus>,
}

/// Number of bursts with a length in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurstStatus {
    /// Shortest length in packets.
    pub from: u64,
    /// Longest length in packets; null for the last range, which has no end.
    pub to: Option<u64>,
    /// Number of bursts.
    pub count: u64,
}

/// A distribution of delays in microseconds; all zero if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayStatus {
    /// Number of delays.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// Number of recovered packets with a delay in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayRangeStatus {
    /// Longest delay in microseconds; null for the last range, which has no end.
    pub to_us: Option<u64>,
    /// Number of packets.
    pub count: u64,
}

impl DelayStatus {
    pub(super) fn of(delays: &Histogram<u64>) -> Self {
        Self {
            count: delays.len(),
            p50: delays.value_at_quantile(0.5),
            p99: delays.value_at_quantile(0.99),
            max: delays.max(),
        }
    }
}

impl DelayRangeStatus {
    /// The ranges of a distribution.
    pub(super) fn of(delays: &Histogram<u64>) -> Vec<Self> {
        let counts = delay_counts(delays);
        let range =
            |(bucket, &count): (usize, &u32)| Self { to_us: delay_bound_us(bucket), count: count.into() };
        counts.iter().enumerate().map(range).collect()
    }
}

impl LossStatus {
    /// The counts and percentages of a loss report.
    pub fn of(report: &LossReport) -> Self {
        let last = report.bursts.len() - 1;
        let bucket = |(index, &count): (usize, &u64)| BurstStatus {
            from: if index == 0 { 1 } else { (1 << (index - 1)) + 1 },
            to: (index < last).then_some(1 << index),
            count,
        };
        let residual = report.lost - report.recovered;
        Self {
            packets: report.named,
            lost: report.lost,
            recovered: report.recovered,
            withheld: report.withheld,
            left: report.left,
            residual,
            loss_percent: percent(report.lost, report.named),
            residual_percent: percent(residual, report.named),
            repairs_received: report.repairs,
            burst_histogram: report.bursts.iter().enumerate().map(bucket).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buckets_of_the_burst_histogram_join_without_gap() {
        let mut report =
            LossReport { named: 1000, lost: 10, recovered: 9, repairs: 3, ..LossReport::default() };
        for length in 1..=1200_u64 {
            let bucket = &LossStatus::of(&report).burst_histogram[LossReport::burst_bucket(length)];
            assert!(
                bucket.from <= length && bucket.to.is_none_or(|to| length <= to),
                "{length} in {bucket:?}"
            );
        }
        report.bursts[2] = 4;
        let loss = LossStatus::of(&report);
        assert_eq!(loss.burst_histogram[2], BurstStatus { from: 3, to: Some(4), count: 4 });
        assert_eq!((loss.residual, loss.loss_percent, loss.residual_percent), (1, 1.0, 0.1));
        let withheld = LossReport { recovered: 1, withheld: 9, ..report };
        assert_eq!(LossStatus::of(&withheld).residual, 9, "what is withheld stays lost");
    }

    #[test]
    fn percentages_of_nothing_are_zero() {
        assert_eq!(LossStatus::of(&LossReport::default()).loss_percent, 0.0);
    }
}
