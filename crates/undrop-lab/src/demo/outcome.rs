//! The measured values of the demo, and whether losses were masked.

use netlab::traffic::{Message, Sample, TcpReport};
use serde::Serialize;

use super::changes::Changes;

/// Largest share of lost packets that may stay lost …
const RESIDUAL_SHARE_MAX: f64 = 0.01;
/// … or the largest number, where few packets were lost.
const RESIDUAL_COUNT_MAX: u64 = 3;
/// Least gain of gateways in goodput …
const GAIN_MIN: f64 = 10.0;
/// … or the least part of the data's share of the link: half of it, so that a busy machine does not fail a
/// code that works.
const SHARE_MIN: f64 = 0.5;

/// Width of the windows of goodput over time, in microseconds.
const COURSE_US: u64 = 500_000;

/// The whole demo.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// The settings.
    pub(super) setup: Setup,
    /// No loss, no gateways.
    pub(super) lossless: ActOutcome,
    /// Loss, no gateways.
    pub(super) alone: ActOutcome,
    /// Loss, with gateways.
    pub(super) masked: ActOutcome,
    /// The acts whose loss changes; null if they were left out.
    pub(super) changes: Option<Changes>,
    /// The verdict, of the first three acts.
    pub(super) verdict: Verdict,
}

/// The settings.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    /// Congestion control of the hosts.
    pub(super) congestion: String,
    /// Loss model of the second and third act, as on the command line.
    pub(super) loss: String,
    /// The share of packets it loses.
    pub(super) loss_rate: f64,
    /// Rate of the link, in bit/s.
    pub(super) rate_bps: u64,
    /// One-way delay of the link, in microseconds.
    pub(super) delay_us: u64,
    /// Length of a bulk transfer, in seconds.
    pub(super) bulk_s: f64,
    /// The gateways' code, in words.
    pub(super) code: String,
    /// Random seed of the losses.
    pub(super) seed: u64,
}

/// The measured values of one act.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ActOutcome {
    /// The bulk transfer.
    pub(super) bulk: Bulk,
    /// The message stream.
    pub(super) messages: Messages,
    /// Both directions of the link over the whole act.
    pub(super) link: LinkLosses,
    /// Counts of the gateways, if there were any.
    pub(super) gateways: Option<Gateways>,
}

/// A bulk TCP transfer.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Bulk {
    /// Payload received per second in the second half of the transfer, after slow start.
    pub(super) goodput_mbps: f64,
    /// The same over the whole transfer, slow start included.
    pub(super) goodput_with_start_mbps: f64,
    /// Payload received, in bytes.
    pub(super) received_bytes: u64,
    /// Segments that TCP retransmitted.
    pub(super) retransmits: u64,
    /// Payload received per second over time: seconds since the start, and Mbit/s of the half second until
    /// then.
    #[serde(skip)]
    pub(super) course: Vec<(f64, f64)>,
}

/// A message stream over TCP; times in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Messages {
    /// Messages sent.
    pub(super) sent: usize,
    /// Messages that did not arrive.
    pub(super) missing: usize,
    /// Median latency.
    pub(super) p50_ms: f64,
    /// 99th percentile.
    pub(super) p99_ms: f64,
    /// Largest.
    pub(super) max_ms: f64,
    /// Latency of each message in order; null if it did not arrive.
    pub(super) latencies_ms: Vec<Option<f64>>,
}

/// Losses of the emulated link in both directions, repairs included.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct LinkLosses {
    /// Packets offered.
    pub(super) packets: u64,
    /// Lost by the loss model.
    pub(super) lost: u64,
    /// Dropped because the queue before the link was full: congestion.
    pub(super) queue_drops: u64,
}

/// Counts of the gateways, both directions.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Gateways {
    /// Packets protected.
    pub(super) source_packets: u64,
    /// Of these, packets that the link did not deliver.
    pub(super) lost: u64,
    /// Of these, dropped because the queue before the link was full.
    pub(super) queue_drops: u64,
    /// Of the lost, recovered from repairs and given to their hosts.
    pub(super) recovered: u64,
    /// Repair packets sent.
    pub(super) repair_packets: u64,
    /// Repair bytes per hundred bytes of data in the direction of the transfer.
    pub(super) overhead_percent: f64,
}

impl Gateways {
    /// Returns the packets that stayed lost.
    pub(super) fn residual(&self) -> u64 {
        self.lost.saturating_sub(self.recovered)
    }

    /// Returns the packets lost by the link itself, after its queue.
    pub(super) fn lost_on_link(&self) -> u64 {
        self.lost.saturating_sub(self.queue_drops)
    }

    /// Returns the packets that stayed lost, except those that found the queue full. By these a link signals
    /// its rate to TCP; they come in bursts of hundreds, for which repairs are not meant.
    pub(super) fn unmasked(&self) -> u64 {
        self.residual().saturating_sub(self.queue_drops).min(self.lost_on_link())
    }
}

/// Whether losses were masked, and why not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// Whether losses were masked.
    pub(super) masked: bool,
    /// Goodput that repairs leave to data: lossless goodput / (1 + overhead).
    pub(super) share_mbps: f64,
    /// The reasons if they were not.
    pub(super) failures: Vec<String>,
}

impl Bulk {
    pub(super) fn of(report: &TcpReport) -> Self {
        Self {
            goodput_mbps: report.forward.second_half_bps() / 1e6,
            goodput_with_start_mbps: report.forward.goodput_bps() / 1e6,
            received_bytes: report.forward.received_bytes(),
            retransmits: report.retransmits,
            course: course(&report.forward.samples),
        }
    }
}

/// Returns the goodput in windows of [`COURSE_US`]: the end of each in seconds, and Mbit/s.
fn course(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut last = Sample { elapsed_us: 0, received_bytes: 0 };
    let mut course = Vec::new();
    for &sample in samples {
        let elapsed_us = sample.elapsed_us - last.elapsed_us;
        // Samples are 100 ms apart, not to the microsecond.
        if elapsed_us + COURSE_US / 10 >= COURSE_US {
            let bits = 8.0 * (sample.received_bytes - last.received_bytes) as f64;
            course.push((sample.elapsed_us as f64 / 1e6, bits / elapsed_us as f64));
            last = sample;
        }
    }
    course
}

impl Messages {
    pub(super) fn of(messages: &[Message]) -> Self {
        let millis = |latency_us: u64| latency_us as f64 / 1e3;
        let latencies_ms: Vec<Option<f64>> = messages.iter().map(|m| m.latency_us.map(millis)).collect();
        let mut sorted: Vec<f64> = latencies_ms.iter().flatten().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self {
            sent: messages.len(),
            missing: messages.len() - sorted.len(),
            p50_ms: quantile(&sorted, 0.5),
            p99_ms: quantile(&sorted, 0.99),
            max_ms: quantile(&sorted, 1.0),
            latencies_ms,
        }
    }
}

/// Returns the smallest value that this share of all values does not exceed; 0 if there are none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

impl Verdict {
    /// Compares the masked act with TCP without loss and TCP without gateways.
    pub(super) fn of(lossless: &ActOutcome, alone: &ActOutcome, masked: &ActOutcome) -> Self {
        let gateways = masked.gateways.unwrap_or_default();
        let share_mbps = lossless.bulk.goodput_mbps / (1.0 + gateways.overhead_percent / 100.0);
        let failures = [
            no_traffic_seen(&gateways),
            too_much_lost(&gateways),
            too_slow(masked.bulk.goodput_mbps, alone.bulk.goodput_mbps, share_mbps),
            messages_missing(&masked.messages),
        ];
        let failures: Vec<String> = failures.into_iter().flatten().collect();
        Self { masked: failures.is_empty(), share_mbps, failures }
    }
}

fn no_traffic_seen(gateways: &Gateways) -> Option<String> {
    (gateways.source_packets == 0)
        .then(|| "the gateways saw none of the hosts' packets, so they protected nothing".to_owned())
}

fn too_much_lost(gateways: &Gateways) -> Option<String> {
    let lost = gateways.lost_on_link();
    let allowed = (lost as f64 * RESIDUAL_SHARE_MAX) as u64;
    (gateways.unmasked() > allowed.max(RESIDUAL_COUNT_MAX)).then(|| {
        format!(
            "{} of {lost} packets lost on the link were not recovered; at most {:.0} % should stay lost",
            gateways.unmasked(),
            RESIDUAL_SHARE_MAX * 100.0
        )
    })
}

fn too_slow(masked_mbps: f64, alone_mbps: f64, share_mbps: f64) -> Option<String> {
    let is_slow = masked_mbps < GAIN_MIN * alone_mbps && masked_mbps < SHARE_MIN * share_mbps;
    is_slow.then(|| {
        format!(
            "TCP carried {masked_mbps:.1} Mbit/s with gateways and {alone_mbps:.1} Mbit/s without; expected {GAIN_MIN} \
             times as much, or half of the {share_mbps:.0} Mbit/s that the repairs leave to data"
        )
    })
}

fn messages_missing(messages: &Messages) -> Option<String> {
    let unseen = messages.missing > 0 || messages.sent == 0;
    unseen.then(|| format!("{} of {} messages did not arrive", messages.missing, messages.sent))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An act with a goodput and one message latency per message.
    pub(in super::super) fn act(
        goodput_mbps: f64,
        latencies_ms: &[f64],
        gateways: Option<Gateways>,
    ) -> ActOutcome {
        let message = |latency: &f64| Message { sent_us: 0, latency_us: Some((latency * 1e3) as u64) };
        let messages: Vec<Message> = latencies_ms.iter().map(message).collect();
        ActOutcome {
            bulk: Bulk { goodput_mbps, ..Bulk::default() },
            messages: Messages::of(&messages),
            gateways,
            ..ActOutcome::default()
        }
    }

    pub(in super::super) fn gateways(lost: u64, recovered: u64) -> Gateways {
        Gateways {
            source_packets: 100 * lost + 100,
            lost,
            queue_drops: 0,
            recovered,
            repair_packets: 38 * lost,
            overhead_percent: 38.0,
        }
    }

    fn judge(alone_mbps: f64, masked_mbps: f64, gateways: Gateways) -> Verdict {
        let lossless = act(960.0, &[50.0], None);
        Verdict::of(&lossless, &act(alone_mbps, &[50.0], None), &act(masked_mbps, &[50.0], Some(gateways)))
    }

    #[test]
    fn masked_losses_are_a_success() {
        let verdict = judge(4.6, 674.0, gateways(10_000, 9_998));
        assert!(verdict.masked && verdict.failures.is_empty(), "{verdict:?}");
        assert!((verdict.share_mbps - 960.0 / 1.38).abs() < 1e-9);
    }

    #[test]
    fn a_busy_machine_is_no_failure() {
        assert!(judge(4.6, 47.0, gateways(1000, 1000)).masked, "ten times as much");
        assert!(judge(900.0, 350.0, gateways(1000, 1000)).masked, "half of data's share");
        assert!(judge(4.6, 674.0, gateways(50, 47)).masked, "a handful of packets");
    }

    #[test]
    fn packets_that_found_the_queue_full_may_stay_lost() {
        let full = |queue_drops| Gateways { queue_drops, ..gateways(9_000, 6_000) };
        assert!(judge(4.6, 674.0, full(3_000)).masked);
        let verdict = judge(4.6, 674.0, full(1_000));
        assert!(verdict.failures[0].starts_with("2000 of 8000 packets"), "{verdict:?}");
    }

    #[test]
    fn every_failure_is_named() {
        let slow = judge(4.6, 45.0, gateways(1000, 1000));
        assert!(!slow.masked && slow.failures[0].contains("45.0 Mbit/s"), "{slow:?}");
        let lossy = judge(4.6, 674.0, gateways(1000, 989));
        assert!(!lossy.masked && lossy.failures[0].starts_with("11 of 1000 packets"), "{lossy:?}");
        let blind = judge(4.6, 674.0, Gateways::default());
        assert!(!blind.masked && blind.failures[0].contains("saw none"), "{blind:?}");
        let mut silent = act(674.0, &[50.0], Some(gateways(10, 10)));
        silent.messages.missing = 1;
        let silent = Verdict::of(&act(960.0, &[50.0], None), &act(4.6, &[50.0], None), &silent);
        assert_eq!(silent.failures, ["1 of 1 messages did not arrive"]);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 100.0);
        assert_eq!(quantile(&values, 0.99), 198.0);
        assert_eq!(quantile(&values, 1.0), 200.0);
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn goodput_over_time_is_that_of_half_seconds() {
        let sample = |elapsed_us, received_bytes| Sample { elapsed_us, received_bytes };
        let samples = [
            (99_000, 0),
            (201_000, 0),
            (302_000, 5_000),
            (499_000, 10_000),
            (700_000, 20_000),
            (1_001_000, 41_375),
        ];
        let samples = samples.map(|(elapsed_us, received_bytes)| sample(elapsed_us, received_bytes));
        let course = course(&samples);
        assert_eq!(course.len(), 2);
        assert!((course[0].1 - 0.160_32).abs() < 1e-4 && (course[1].1 - 0.5).abs() < 1e-9, "{course:?}");
    }

    #[test]
    fn messages_that_did_not_arrive_are_counted_and_kept_in_their_place() {
        let message = |latency_us| Message { sent_us: 0, latency_us };
        let messages = Messages::of(&[message(Some(50_000)), message(None), message(Some(70_500))]);
        assert_eq!((messages.sent, messages.missing), (3, 1));
        assert_eq!(messages.latencies_ms, [Some(50.0), None, Some(70.5)]);
        assert_eq!((messages.p50_ms, messages.max_ms), (50.0, 70.5));
    }
}
