//! The state of a peer, for an operator.

use std::borrow::Cow;
use std::net::IpAddr;

use fec::Code;
use hdrhistogram::Histogram;
use ipnet::IpNet;

use crate::channel::Trouble;
use crate::config::PeerConfig;
use crate::congestion::CongestionState;
use crate::controller::Decision;
use crate::counters::WithheldCounts;
use crate::findings::Findings;
use crate::ingress::IngressCounts;
use crate::keys::KeyState;
use crate::paths::PathStatus;
use crate::record::Record;
use crate::resequence::ResequenceState;
use crate::sender::EgressCounts;
use crate::share::Share;
use crate::wire::{LossReport, Report};

/// Present state of one peer.
pub struct PeerStatus<'a> {
    /// Its configuration.
    pub config: &'a PeerConfig,
    /// Whether there is a session, and sealed datagrams have arrived lately in both directions.
    pub is_up: bool,
    /// MTU of the path to the peer in bytes, as far as it is known.
    pub path_mtu: usize,
    /// The same, once it is known to be smaller than the configured one.
    pub narrower_mtu: Option<usize>,
    /// Longest packet whose repairs cross this path in one piece, whatever the rate of the code.
    pub packet_max: usize,
    /// Why the repair channel does not work; `None` if it does.
    pub trouble: Option<Trouble>,
    /// Number of Hellos from the peer's address that were sealed with another key.
    pub wrong_key: u64,
    /// Progress of a change of the key.
    pub keys: KeyState,
    /// Differences from the configuration on the path of its packets.
    pub findings: Findings,
    /// Whether our ingress injects packets that it recovers, as far as the path is concerned.
    pub is_recovering: bool,
    /// Counts of solved packets that were not injected, by reason.
    pub withheld: &'a WithheldCounts,
    /// Knowledge of our ingress about the queue on the way, and its treatment of losses there.
    pub congestion: CongestionState,
    /// Time when it was last heard.
    pub last_heard_us: Option<u64>,
    /// Round-trip time to it without queues, in microseconds: the shortest of the last minute or two. Of
    /// several paths, it is that of the packets.
    pub rtt_us: Option<u64>,
    /// Number of sessions begun.
    pub sessions: u64,
    /// Number of renewals of a session.
    pub renewals: u64,
    /// Number of multiplications on the curve of ephemeral keys, by far the most expensive work of a session.
    pub multiplications: u64,
    /// Number of changes of its address.
    pub moves: u64,
    /// State of each path to it, the first first; empty if there is one alone.
    pub paths: Vec<PathStatus>,
    /// Packets from it that are held so that hosts get them in order; `None` if they are handed on as they
    /// come.
    pub resequence: Option<ResequenceState>,
    /// Flows toward it that are protected at present.
    pub share: Share,
    /// The code of the repairs to it at present.
    pub code: Cow<'a, Code>,
    /// The choice of this code and its reason, if the gateway chooses it.
    pub decision: Option<&'a Decision>,
    /// Counts of our egress towards it.
    pub egress: &'a EgressCounts,
    /// Counts of our ingress from it.
    pub ingress: &'a IngressCounts,
    /// Losses that our ingress found since the gateway's start.
    pub report: LossReport,
    /// Time at which the latest packet of this session that stayed lost was missed.
    pub missed_us: Option<u64>,
    /// Bursts and gaps that our ingress found.
    pub record: &'a Record,
    /// Packets per second that arrive from its site, while there is traffic.
    pub per_second: u64,
    /// Its last report on our packets and datagrams.
    pub far: &'a Report,
    /// Networks of this site as the peer's configuration names them; empty while there is no session.
    pub watched: &'a [IpNet],
    /// Source of the latest packet that was not protected because it lies outside of `watched`.
    pub unwatched_source: Option<IpAddr>,
    /// Whether recovery pauses because packets may have arrived unseen.
    pub is_paused: bool,
    /// Number of flows of which nothing is recovered, because packets of them may have arrived unseen.
    pub doubtful_flows: usize,
    /// Present time that a repair waits for packets it misses, in microseconds.
    pub wait_us: u64,
    /// Histogram of the delay of recovered packets behind their neighbours in the stream, in microseconds.
    pub delays_us: &'a Histogram<u64>,
}
