//! The advice as a JSON document.

use serde::Serialize;

use super::latest::Bursts;
use super::{Advice, Trial, settings};

/// Schema of the document.
const SCHEMA: &str = "undrop.gateway.advise/1";

/// Every code on the recorded losses of each peer, and the proposals.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// Name and version of this schema.
    schema: &'static str,
    /// The peers, in the order of the configuration.
    peers: Vec<PeerAdvice>,
}

/// Every code on the losses of packets from one peer.
#[derive(Debug, Serialize)]
struct PeerAdvice {
    /// Label of the peer.
    peer: String,
    /// Packets, from the latest on, on whose losses each code ran. Those of bursts that are left out are not
    /// in it.
    packets: u64,
    /// Share of packets that may stay lost or come too late.
    target: f64,
    /// Repairs for each packet that the peer sends at present.
    rate_in_force: String,
    /// Number of packets that these repairs reach back; 0 if the code has no window, or it is not known.
    window_in_force: u16,
    /// Number of stripes of this window, of which a repair contains one.
    stripes_in_force: u8,
    /// Whether it is known when a recovered packet is too late. Without a deadline, nothing counts as late.
    has_deadline: bool,
    /// Whether packets come so far apart that most repairs leave out of turn, after a silence: sooner than
    /// the delays of the codes say, and at the cost of more bytes.
    is_sparse: bool,
    /// The codes; none while nothing was lost.
    codes: Vec<TriedCode>,
    /// The best of them.
    proposals: Proposals,
    /// The latest losses that no window recovers.
    bursts_no_window_recovers: Hopeless,
    /// The latest losses that none of the codes recovers as a whole. The figures of the codes leave them out.
    bursts_left_out: Hopeless,
}

/// One code on the losses.
#[derive(Debug, Serialize)]
struct TriedCode {
    /// The code in words.
    code: String,
    /// Lines of the configuration that choose it.
    settings: Vec<String>,
    /// Share of packets that stay lost.
    residual: f64,
    /// Share of packets that are recovered too late.
    late: f64,
    /// Delay of recovered packets, in packets; null if none was recovered.
    delay_packets: Option<DelayQuantiles>,
    /// Bytes on the wire of a repair of packets of the stated size.
    repair_bytes: u64,
    /// Repair bytes per hundred bytes of packets.
    overhead_percent: f64,
    /// Processor time to encode and to decode a packet, in nanoseconds.
    ns_per_packet: u64,
}

/// Quantiles of a delay.
#[derive(Debug, Serialize)]
struct DelayQuantiles {
    /// The median.
    p50: u64,
    /// The 99th percentile.
    p99: u64,
}

/// The best codes; null while there is none.
#[derive(Debug, Serialize)]
struct Proposals {
    /// The one with the fewest bytes.
    fewest_bytes: Option<TriedCode>,
    /// The one with the shortest delay.
    shortest_delay: Option<TriedCode>,
    /// The one with the least processor time.
    least_processor_time: Option<TriedCode>,
}

/// Bursts that are too long.
#[derive(Debug, Serialize)]
struct Hopeless {
    /// Number of these bursts.
    bursts: u64,
    /// Lost packets in them.
    packets: u64,
}

impl Document {
    pub(super) fn of(advice: &[Advice<'_>]) -> Self {
        Self { schema: SCHEMA, peers: advice.iter().map(PeerAdvice::of).collect() }
    }
}

impl PeerAdvice {
    fn of(advice: &Advice<'_>) -> Self {
        let [fewest_bytes, shortest_delay, least_processor_time] =
            advice.proposals().map(|(_, trial)| trial.map(TriedCode::of));
        Self {
            peer: advice.peer.label(),
            packets: advice.latest.recorded,
            target: advice.target,
            rate_in_force: advice.peer.rate.clone(),
            window_in_force: advice.peer.window,
            stripes_in_force: advice.peer.stripes,
            has_deadline: advice.has_deadline(),
            is_sparse: advice.is_sparse(),
            codes: advice.trials.iter().map(TriedCode::of).collect(),
            proposals: Proposals { fewest_bytes, shortest_delay, least_processor_time },
            bursts_no_window_recovers: Hopeless::of(advice.latest.hopeless),
            bursts_left_out: Hopeless::of(advice.latest.outages),
        }
    }
}

impl Hopeless {
    fn of(bursts: Bursts) -> Self {
        Self { bursts: bursts.count, packets: bursts.packets }
    }
}

impl TriedCode {
    fn of(trial: &Trial) -> Self {
        let quantiles = |[p50, p99]: [usize; 2]| DelayQuantiles { p50: p50 as u64, p99: p99 as u64 };
        Self {
            code: trial.schedule.to_string(),
            settings: settings(&trial.schedule),
            residual: trial.residual,
            late: trial.late,
            delay_packets: trial.delays.map(quantiles),
            repair_bytes: trial.repair as u64,
            overhead_percent: 100.0 * trial.overhead,
            ns_per_packet: trial.ns,
        }
    }
}
