//! What the demo measured, and whether it shows that losses were masked.

use netlab::traffic::{Message, TcpReport};
use serde::Serialize;

/// Lost packets that may stay lost before masking counts as failed: this share of them, …
const RESIDUAL_SHARE_MAX: f64 = 0.01;
/// … or so many, where few were lost in all.
const RESIDUAL_COUNT_MAX: u64 = 3;
/// Goodput with gateways is enough at so many times that without them …
const GAIN_MIN: f64 = 10.0;
/// … or at this part of data's share of the link. Half: a busy machine must not fail a code that works.
const SHARE_MIN: f64 = 0.5;

/// The whole demo.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// What was asked for.
    pub(super) setup: Setup,
    /// No loss, no gateways.
    pub(super) lossless: ActOutcome,
    /// Loss, no gateways.
    pub(super) alone: ActOutcome,
    /// Loss, with gateways.
    pub(super) masked: ActOutcome,
    /// What it shows.
    pub(super) verdict: Verdict,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    /// Congestion control of the hosts.
    pub(super) congestion: String,
    /// The loss model of the second and third act, as it is written on the command line.
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
    /// Seed of the losses.
    pub(super) seed: u64,
}

/// What one act measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ActOutcome {
    /// The bulk transfer.
    pub(super) bulk: Bulk,
    /// The message stream.
    pub(super) messages: Messages,
    /// Both directions of the link over the whole act.
    pub(super) link: LinkLosses,
    /// What the gateways did; none where there were none.
    pub(super) gateways: Option<Gateways>,
}

/// A bulk TCP transfer.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Bulk {
    /// Payload received per second in the second half of the transfer, when TCP has found its pace.
    pub(super) goodput_mbps: f64,
    /// The same over the whole transfer, slow start included.
    pub(super) goodput_with_start_mbps: f64,
    /// Payload received, in bytes.
    pub(super) received_bytes: u64,
    /// Segments that TCP sent again.
    pub(super) retransmits: u64,
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
    /// Of each message, in order; null: it did not arrive.
    pub(super) latencies_ms: Vec<Option<f64>>,
}

/// What the emulated link did not carry, both directions, repairs included.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct LinkLosses {
    /// Packets offered.
    pub(super) packets: u64,
    /// Lost by the loss model.
    pub(super) lost: u64,
    /// Dropped because the queue before the link was full: congestion.
    pub(super) queue_drops: u64,
}

/// What the gateways did, both directions.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Gateways {
    /// Packets protected.
    pub(super) source_packets: u64,
    /// Of these, not arrived over the link by themselves.
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
    /// Packets that stayed lost.
    pub(super) fn residual(&self) -> u64 {
        self.lost.saturating_sub(self.recovered)
    }

    /// Packets lost by the link itself, after its queue.
    pub(super) fn lost_on_link(&self) -> u64 {
        self.lost.saturating_sub(self.queue_drops)
    }

    /// Packets that stayed lost, but for as many as found the queue full: that is how a link tells TCP its rate, and
    /// comes in bursts of hundreds that no repair is meant to mend.
    pub(super) fn unmasked(&self) -> u64 {
        self.residual().saturating_sub(self.queue_drops).min(self.lost_on_link())
    }
}

/// What the demo shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// Whether losses were masked.
    pub(super) masked: bool,
    /// Goodput that is left to data once the repairs have taken theirs: lossless goodput / (1 + overhead).
    pub(super) share_mbps: f64,
    /// Why not, if not.
    pub(super) failures: Vec<String>,
}

impl Bulk {
    pub(super) fn of(report: &TcpReport) -> Self {
        Self {
            goodput_mbps: report.forward.second_half_bps() / 1e6,
            goodput_with_start_mbps: report.forward.goodput_bps() / 1e6,
            received_bytes: report.forward.received_bytes(),
            retransmits: report.retransmits,
        }
    }
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

/// The smallest value that this share of all values does not exceed; 0 if there are none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

impl Verdict {
    /// Judges the masked act by what TCP did without loss and without gateways.
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
    fn packets_that_found_the_queue_full_need_not_come_back() {
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
    fn messages_that_did_not_arrive_are_counted_and_kept_in_their_place() {
        let message = |latency_us| Message { sent_us: 0, latency_us };
        let messages = Messages::of(&[message(Some(50_000)), message(None), message(Some(70_500))]);
        assert_eq!((messages.sent, messages.missing), (3, 1));
        assert_eq!(messages.latencies_ms, [Some(50.0), None, Some(70.5)]);
        assert_eq!((messages.p50_ms, messages.max_ms), (50.0, 70.5));
    }
}
