//! The status of a running gateway: one JSON document over the control socket.
//!
//! The document is [`Status`], field by field. Fields are added but never renamed, because monitoring systems
//! read them.

mod answer;
mod cause;
mod class;
mod congestion;
mod counters;
mod gateway;
mod health;
mod keys;
mod loss;
mod multicast;
mod rack;
mod requests;
mod split;
mod tunnel;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ipnet::IpNet;

use maelstrom_core::counters::Reason;
use serde::{Deserialize, Serialize};

pub use answer::{DOCUMENT_BYTES_MAX, StatusError, read};
pub(crate) use answer::{ask, document};
pub(crate) use cause::narrow_path;
pub use cause::{CauseStatus, PathStatus};
pub use class::ClassStatus;
pub(crate) use class::class;
pub use congestion::CongestionStatus;
pub use counters::{Counter, CounterCounts, reasons};
pub use gateway::{GatewayStatus, InterfaceStatus, PauseStatus};
pub use health::{EventStatus, FateStatus, HealthStatus, MinuteStatus, ReasonStatus, WindowStatus};
pub(crate) use health::{Injection, LostWans};
pub use keys::KeyStatus;
pub use loss::{BurstStatus, DelayRangeStatus, DelayStatus, LossStatus};
pub use multicast::{MulticastStatus, WantedStatus};
pub use rack::{MemberStatus, PartStatus, RackStatus};
pub use requests::RequestStatus;
pub use split::{FarSiteStatus, SplitStatus};
pub use tunnel::{PathDirection, ResequenceStatus, TunnelPath, TunnelStatus};

/// Schema of the document, with its version: it rises when a field is removed or gets another meaning.
pub const SCHEMA: &str = "undrop.gateway.status/1";

/// Counts by reason, whose names are stable and in snake case. [`reasons`] has their texts.
pub type Counts = BTreeMap<String, u64>;

/// State of a gateway. Counts begin at its start, unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Name and version of this schema.
    #[serde(default)]
    pub schema: String,
    /// Whether all peers are protected, and why not.
    #[serde(default)]
    pub health: HealthStatus,
    /// The process.
    pub gateway: GatewayStatus,
    /// Pauses of recovery toward all peers.
    #[serde(default)]
    pub pauses: PauseStatus,
    /// The far gateways, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// The classes, in the order of the configuration.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
    /// Outgoing packets that got no repair, by reason.
    pub not_protected: Counts,
    /// Packets for peers in tunnel mode that were dropped, by reason.
    #[serde(default)]
    pub not_tunnelled: Counts,
    /// Datagrams on the repair channel that were refused, by reason.
    pub rejected: Counts,
    /// All other drops and events, by reason.
    pub counters: Counts,
    /// TCP connections that end at this gateway; null if the configuration asks for none.
    #[serde(default)]
    pub split: Option<SplitStatus>,
    /// The rack of this gateway; null if it is in none.
    #[serde(default)]
    pub rack: Option<RackStatus>,
    /// IP groups that cross tunnels, in the order of the configuration.
    #[serde(default)]
    pub multicast: Vec<MulticastStatus>,
    /// IP groups that far sites want; empty if this site has none that cross.
    #[serde(default)]
    pub wanted_groups: Vec<WantedStatus>,
    /// Memory held for packets and repairs, in bytes.
    pub memory_bytes: u64,
    /// The latest events, oldest first.
    #[serde(default)]
    pub events: Vec<EventStatus>,
}

/// One far gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The operator's name for the peer.
    pub name: Option<String>,
    /// Address of its end of the repair channel. While none is known, its IP address is the unspecified one.
    pub address: SocketAddr,
    /// Name and port that are looked up for the address, or `any` if the peer itself shows it; null if the
    /// file states the address.
    #[serde(default)]
    pub host: Option<String>,
    /// Whether there is a session, and authentic datagrams have arrived lately in both directions.
    pub up: bool,
    /// Why the repair channel does not work; null if it does.
    #[serde(default)]
    pub trouble: Option<CauseStatus>,
    /// Datagrams from the peer's address that were sealed with another key.
    #[serde(default)]
    pub wrong_key: u64,
    /// The key that is shared with the peer, and its change.
    #[serde(default)]
    pub keys: KeyStatus,
    /// Round-trip time to the peer without queues, in microseconds: the shortest of the last minute or two;
    /// of several paths, on that of the packets.
    #[serde(default)]
    pub rtt_us: Option<u64>,
    /// Milliseconds since the peer was last heard; null if never.
    pub last_heard_ms: Option<u64>,
    /// Number of sessions with the peer.
    pub sessions: u64,
    /// Number of times that a session was renewed while it was in use.
    #[serde(default)]
    pub renewals: u64,
    /// Number of changes of its address.
    #[serde(default)]
    pub moves: u64,
    /// Networks of the far site.
    pub networks: Vec<IpNet>,
    /// Networks of this site as the peer's configuration names them; empty while there is no session.
    #[serde(default)]
    pub networks_named_there: Vec<IpNet>,
    /// Differences between the configurations of both ends and the routes of this machine.
    #[serde(default)]
    pub differences: Vec<String>,
    /// Their kinds in snake case, in the same order.
    #[serde(default)]
    pub difference_ids: Vec<String>,
    /// Traffic to the peer's site.
    pub egress: EgressStatus,
    /// Traffic from the peer's site.
    pub ingress: IngressStatus,
    /// Losses of our packets, as the peer reports them.
    pub far: LossStatus,
    /// The path of our packets, as the peer reports it.
    #[serde(default)]
    pub far_path: PathStatus,
    /// Whether the peer is protected, and why not.
    #[serde(default)]
    pub health: HealthStatus,
    /// Counts of the last 10 s, 5 min and hour.
    #[serde(default)]
    pub windows: Vec<WindowStatus>,
}

/// Traffic from this site to the peer's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EgressStatus {
    /// Flows that are protected at present, per hundred. Below 100 a gateway lacks processor time.
    #[serde(default)]
    pub flows_protected_percent: f64,
    /// The code of repairs at present, such as `sliding (1024; 1/8, 2 stripes)`: 1,024 packets in a window,
    /// and one repair for eight packets, each of every second packet.
    #[serde(default)]
    pub code: String,
    /// Longest burst of packets and repairs that this code recovers; no window recovers a longer one.
    #[serde(default)]
    pub longest_burst: u64,
    /// Longest burst that any code within reach recovers: more than `longest_burst` only if the gateway
    /// chooses the rate, and then at the highest rate and with the longest window that were allowed.
    #[serde(default)]
    pub longest_burst_within_reach: u64,
    /// Reason for the rate of this code; null unless the gateway chooses it.
    #[serde(default)]
    pub choice: Option<String>,
    /// Id of that reason: `unknown`, `needed`, `lowest`, `mtu`, `highest`, `bandwidth`, `hopeless` or
    /// `useless`.
    #[serde(default)]
    pub choice_id: Option<String>,
    /// Repairs of this code for each packet.
    #[serde(default)]
    pub repairs_per_packet: f64,
    /// Number of packets from the first to the last that a repair of this code covers.
    #[serde(default)]
    pub span: u64,
    /// Packets protected.
    pub source_packets: u64,
    /// Their bytes.
    pub source_bytes: u64,
    /// Of these packets, those longer than `packet_max`, whose repairs may have to be cut in two.
    #[serde(default)]
    pub long_packets: u64,
    /// Repairs sent, each in one datagram or in two.
    #[serde(default)]
    pub repairs: u64,
    /// Of these, those sent because packets could not wait for others: after a silence, or for a deadline.
    #[serde(default)]
    pub repairs_out_of_turn: u64,
    /// Repair datagrams sent.
    pub repair_packets: u64,
    /// Their bytes on the link, IP and UDP headers included.
    pub repair_bytes: u64,
    /// Repair bytes per hundred source bytes.
    pub overhead_percent: f64,
    /// Repairs too large for the WAN MTU, sent as two datagrams.
    pub repairs_cut_in_two: u64,
    /// Packets that travel inside datagrams; null if the kernel forwards them beside the repairs.
    #[serde(default)]
    pub tunnel: Option<TunnelStatus>,
    /// Repairs and datagrams not sent, by reason.
    pub unsent: Counts,
    /// Repairs, names, answers and requests that `max_repair_rate` or `overhead_max` refused, by kind.
    #[serde(default)]
    pub refused_by_caps: Counts,
    /// Requests of the peer for packets that its repairs do not bring back in time.
    #[serde(default)]
    pub requests: u64,
    /// Packets sent again for requests of the peer. They count among the repairs too.
    #[serde(default)]
    pub answers: u64,
    /// Packets requested and not sent again, by reason.
    #[serde(default)]
    pub unanswered: Counts,
    /// MTU of the path to the peer in bytes, as far as it is known.
    #[serde(default)]
    pub path_mtu: u64,
    /// Longest packet in bytes whose repairs cross this path in one piece, whatever the rate of the code.
    #[serde(default)]
    pub packet_max: u64,
    /// Cause and remedy if the path carries less than configured; null if it does not.
    #[serde(default)]
    pub narrow_path: Option<CauseStatus>,
}

/// Traffic from the peer's site to this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IngressStatus {
    /// Protected packets that arrived without recovery.
    pub source_packets: u64,
    /// Their bytes.
    pub source_bytes: u64,
    /// Packets from the peer's networks that the far gateway does not protect.
    #[serde(default)]
    pub foreign_packets: u64,
    /// Recovered packets that were injected into the kernel.
    pub injected_packets: u64,
    /// Of these, TCP segments that got the newest timestamp of their connection, because their receiver would
    /// have discarded them with their own.
    #[serde(default)]
    pub raised_timestamps: u64,
    /// Packets that arrived after they, or equal packets, had been recovered. It falls if one turns out to be
    /// a packet of its own.
    pub after_recovery: u64,
    /// Highest value of `after_recovery` so far.
    #[serde(default)]
    pub duplicates: u64,
    /// Packets that arrived after equal ones had been recovered but withheld.
    #[serde(default)]
    pub after_withholding: u64,
    /// Recovered packets that were not injected, mostly because they may have taken another path, by reason.
    #[serde(default)]
    pub withheld: Counts,
    /// Congestion on the way of these packets.
    #[serde(default)]
    pub congestion: CongestionStatus,
    /// The path of these packets.
    #[serde(default)]
    pub path: PathStatus,
    /// Packets that arrived after a repair had named them.
    pub late: u64,
    /// Packets that had arrived but that a sliding window recovered, because no repair that names them had
    /// arrived.
    pub recognised: u64,
    /// Recovered packets that could not be injected, by reason. They count as lost.
    #[serde(default)]
    pub refused_injections: Counts,
    /// Recovered packets for which the outgoing queue had no room.
    pub undelivered: u64,
    /// Repairs that recovered no packet at once, by reason.
    pub unused_repairs: Counts,
    /// Packets requested from the peer.
    #[serde(default)]
    pub requests: RequestStatus,
    /// Packets of a tunnel that are put in order; null unless `resequence_ms` asks for it.
    #[serde(default)]
    pub resequence: Option<ResequenceStatus>,
    /// Whether recovery pauses because packets may have arrived unseen. It continues with a repair of later
    /// packets.
    #[serde(default)]
    pub paused: bool,
    /// Number of flows of which nothing is recovered for a moment, because the tap could not cut a packet of
    /// them.
    #[serde(default)]
    pub paused_flows: u64,
    /// Losses found at this gateway.
    pub loss: LossStatus,
    /// Age of the latest packet of this session that stayed lost; null if none did.
    #[serde(default)]
    pub last_missed_ms: Option<u64>,
    /// Repairs for each packet that the peer sends, such as `1/16`; null before its first report.
    #[serde(default)]
    pub far_rate: Option<String>,
    /// Packets in a repair of the peer; null unless its code is a sliding window.
    #[serde(default)]
    pub far_window: Option<u16>,
    /// Present wait of a repair for packets that it may have overtaken, in microseconds.
    #[serde(default)]
    pub repair_wait_us: u64,
    /// Delay of recovered packets behind their neighbours, in microseconds.
    pub recovery_delay_us: DelayStatus,
    /// The same by ranges.
    #[serde(default)]
    pub recovery_delays: Vec<DelayRangeStatus>,
}

impl PeerStatus {
    /// The status of a peer, from the core's view of it and the operator's name for it.
    pub fn of(name: Option<String>, peer: &maelstrom_core::PeerStatus<'_>, now_us: u64) -> Self {
        let (ingress, delays) = (peer.ingress, peer.delays_us);
        Self {
            name,
            address: peer.config.address,
            host: None,
            up: peer.is_up,
            trouble: peer.trouble.map(CauseStatus::from),
            wrong_key: peer.wrong_key,
            keys: KeyStatus::of(peer.keys),
            rtt_us: peer.rtt_us,
            last_heard_ms: peer.last_heard_us.map(|heard| now_us.saturating_sub(heard) / 1000),
            sessions: peer.sessions,
            renewals: peer.renewals,
            moves: peer.moves,
            networks: peer.config.networks.clone(),
            networks_named_there: peer.watched.to_vec(),
            differences: Vec::new(),
            difference_ids: Vec::new(),
            egress: EgressStatus::of(peer),
            ingress: IngressStatus {
                source_packets: ingress.source_packets,
                source_bytes: ingress.source_bytes,
                foreign_packets: ingress.foreign_packets,
                injected_packets: ingress.recovered_packets,
                raised_timestamps: ingress.raised_timestamps,
                after_recovery: ingress.after_recovery,
                duplicates: ingress.duplicates,
                after_withholding: ingress.after_withholding,
                withheld: counts(peer.withheld.iter()),
                congestion: CongestionStatus::of(peer),
                path: PathStatus::of(peer.findings, peer.is_recovering),
                late: ingress.late,
                recognised: ingress.recognised,
                refused_injections: counts(ingress.uninjected.iter()),
                undelivered: ingress.undelivered,
                unused_repairs: counts(ingress.unused.iter()),
                requests: RequestStatus::of(&ingress.requests),
                resequence: peer.resequence.map(ResequenceStatus::from),
                paused: peer.is_paused,
                paused_flows: peer.doubtful_flows as u64,
                loss: LossStatus::of(&peer.report),
                last_missed_ms: peer.missed_us.map(|missed| now_us.saturating_sub(missed) / 1000),
                far_rate: peer.far.silence_ms.map(|_| peer.far.plan.rate.to_string()),
                far_window: Some(peer.far.plan.window).filter(|&window| window > 0),
                repair_wait_us: peer.wait_us,
                recovery_delay_us: DelayStatus::of(delays),
                recovery_delays: DelayRangeStatus::of(delays),
            },
            far: LossStatus::of(&peer.far.loss),
            far_path: PathStatus::of_far(peer.far),
            health: HealthStatus::default(),
            windows: Vec::new(),
        }
    }

    /// The peer in logs and tables: its name, or else its address as the file states it.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.stated())
    }

    /// The address as the file states it.
    pub fn stated(&self) -> String {
        self.host.clone().unwrap_or_else(|| self.address.to_string())
    }
}

impl EgressStatus {
    fn of(peer: &maelstrom_core::PeerStatus<'_>) -> Self {
        let egress = peer.egress;
        let longest_burst = peer.code.longest_burst() as u64;
        let within_reach = peer.decision.map_or(0, |decision| u64::from(decision.longest_burst));
        Self {
            flows_protected_percent: peer.share.fraction() * 100.0,
            code: peer.code.to_string(),
            longest_burst,
            longest_burst_within_reach: longest_burst.max(within_reach),
            choice: peer.decision.map(ToString::to_string),
            choice_id: peer.decision.map(|decision| decision.limit.id().to_owned()),
            repairs_per_packet: peer.code.overhead(),
            span: peer.code.span() as u64,
            source_packets: egress.source_packets,
            source_bytes: egress.source_bytes,
            long_packets: egress.long_packets,
            repairs: egress.repairs,
            repairs_out_of_turn: egress.repairs_out_of_turn,
            repair_packets: egress.repair_packets,
            repair_bytes: egress.repair_bytes,
            overhead_percent: percent(egress.repair_bytes, egress.source_bytes),
            repairs_cut_in_two: egress.cut_in_two,
            tunnel: TunnelStatus::of(peer),
            unsent: counts(egress.unsent.iter()),
            refused_by_caps: counts(egress.refused.iter()),
            requests: egress.requests,
            answers: egress.answers,
            unanswered: counts(egress.unanswered.iter()),
            path_mtu: peer.path_mtu as u64,
            packet_max: peer.packet_max as u64,
            narrow_path: peer.narrower_mtu.map(narrow_path),
        }
    }
}

/// Collects counts by the names of their reasons.
pub fn counts<R: Reason>(reasons: impl Iterator<Item = (R, u64)>) -> Counts {
    reasons.map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_conversion_to_json_and_back() {
        let status = Status { memory_bytes: 7, ..Status::default() };
        let json = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }

    #[test]
    fn an_absent_socket_and_a_foreign_answer_have_different_errors() {
        let path = std::env::temp_dir().join(format!("undrop-status-{}.sock", std::process::id()));
        assert!(matches!(read(&path), Err(StatusError::Absent { .. })));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, b"hello").unwrap();
        });
        assert!(matches!(read(&path), Err(StatusError::Foreign { .. })));
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_gateway_that_does_not_answer_is_named_as_such() {
        let path = std::env::temp_dir().join(format!("undrop-silent-{}.sock", std::process::id()));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let Err(StatusError::Unreadable { source, .. }) = read(&path) else { panic!("no error") };
        assert_eq!(source.to_string(), "expected an answer within 5 s, saw none");
        std::fs::remove_file(&path).unwrap();
    }
}
