//! Health, windows and events in the status of a gateway.

use maelstrom_core::observe::{
    Concern, Condition, Event, EventKind, Fates, Level, Observer, SPANS_S, Site, Step, Verdict, Window,
};
use serde::{Deserialize, Serialize};

use super::{PeerStatus, RackStatus, percent};

/// Maximum number of events in a status.
const EVENTS_SHOWN: usize = 64;

/// Health of a gateway, or of one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthStatus {
    /// `protected`, `degraded` or `down`.
    pub state: String,
    /// Reasons why it is not `protected`.
    pub reasons: Vec<ReasonStatus>,
    /// The verdict on one line, such as `protected, 1.9 % lost, all recovered, +2.5 ms`.
    pub text: String,
}

/// A reason why a gateway or a peer is not fully protected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonStatus {
    /// Its id in snake case.
    pub id: String,
    /// Label of the peer that it concerns; null if it concerns the gateway.
    pub peer: Option<String>,
    /// The reason as a sentence.
    pub text: String,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStatus {
    /// Number of events before it, since the start of the gateway.
    pub number: u64,
    /// Milliseconds since it was noticed.
    pub ago_ms: u64,
    /// Its kind in snake case.
    pub id: String,
    /// `info` or `warning`.
    pub level: String,
    /// Label of the peer that it concerns; null if it concerns the gateway.
    pub peer: Option<String>,
    /// The event as a sentence.
    pub text: String,
    /// Its remedy; null if it needs none.
    pub remedy: Option<String>,
}

/// Counts of a peer in the last seconds, minutes or hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowStatus {
    /// Length of the window in seconds.
    pub span_s: u64,
    /// Part of it that is known, in milliseconds: less after the start of the gateway.
    pub covered_ms: u64,
    /// Packets protected, a second.
    pub sent_packets_per_s: f64,
    /// Bits of these packets, a second.
    pub sent_bits_per_s: f64,
    /// Bits of repairs sent, a second.
    pub repair_bits_per_s: f64,
    /// Protected packets that arrived, a second.
    pub received_packets_per_s: f64,
    /// Bits of these packets, a second.
    pub received_bits_per_s: f64,
    /// Repair bytes per hundred source bytes.
    pub overhead_percent: f64,
    /// Repairs of this gateway that did not arrive, per hundred sent.
    pub repairs_lost_percent: f64,
    /// Packets that arrive here.
    pub here: FateStatus,
    /// Packets that leave, as the peer reports them.
    pub there: FateStatus,
    /// Milliseconds in which recovery paused here while packets or repairs arrived.
    #[serde(default)]
    pub paused_ms: u64,
    /// Median delay of recovered packets in microseconds; null if none was recovered.
    pub recovery_delay_us: Option<u64>,
}

/// Counts of a peer in a minute of the last hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MinuteStatus {
    /// Milliseconds since its end.
    pub ago_ms: u64,
    /// Its counts.
    #[serde(flatten)]
    pub window: WindowStatus,
}

/// Fates of packets of one direction in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FateStatus {
    /// Packets whose fate is settled.
    pub packets: u64,
    /// Packets lost on the link.
    pub lost: u64,
    /// Lost packets that were recovered.
    pub recovered: u64,
    /// Lost packets that were left to their senders, because a full queue had dropped them.
    pub left: u64,
    /// Lost packets that should have been recovered and were not.
    pub residual: u64,
    /// Lost packets per hundred packets.
    pub loss_percent: f64,
    /// Packets that stay lost, without those left to their senders, per hundred packets.
    pub residual_percent: f64,
}

/// WAN interfaces of peers in passive mode that are gone, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostWans<'a> {
    pub(crate) names: Vec<&'a str>,
    pub(crate) others: usize,
}

impl LostWans<'_> {
    fn are_all(&self) -> bool {
        !self.names.is_empty() && self.others == 0
    }

    /// Returns the reason why they degrade the gateway, if they do.
    fn reason(&self) -> Option<ReasonStatus> {
        let text = match &*self.names {
            [] => return None,
            [name] => format!("the WAN interface {name} is gone, and with it the tap"),
            names => format!("the WAN interfaces {} are gone, and with them the taps", names.join(" and ")),
        };
        Some(ReasonStatus { id: "no_tap".to_owned(), peer: None, text })
    }
}

/// The way of recovered packets into the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Injection<'a> {
    /// The one that the configuration wants.
    AsWanted,
    /// The TUN device, because the WAN interface is impossible for this reason.
    ByTun(&'a str),
    /// None, for this reason.
    Impossible(&'a str),
}

impl Injection<'_> {
    /// Returns the reason why it degrades the gateway, if it does.
    fn reason(self) -> Option<ReasonStatus> {
        let (id, text) = match self {
            Self::AsWanted => return None,
            Self::ByTun(reason) => (
                "injection_by_tun",
                format!(
                    "recovered packets enter by the TUN device, so that firewall rules for the WAN interface do not \
                     apply to them: {reason}"
                ),
            ),
            Self::Impossible(reason) => {
                ("no_injection", format!("recovered packets cannot be injected: {reason}"))
            }
        };
        Some(ReasonStatus { id: id.to_owned(), peer: None, text })
    }
}

impl Default for HealthStatus {
    fn default() -> Self {
        Self::of(&Verdict::default(), "")
    }
}

impl HealthStatus {
    /// The health of a peer with this label.
    pub(crate) fn of(verdict: &Verdict, peer: &str) -> Self {
        let reason = |concern: &Concern| ReasonStatus {
            id: concern.id().to_owned(),
            peer: Some(peer.to_owned()),
            text: verdict.sentence(*concern),
        };
        Self {
            state: verdict.condition.id().to_owned(),
            reasons: verdict.concerns.iter().map(reason).collect(),
            text: verdict.to_string(),
        }
    }

    /// The health of a gateway with these peers. Without a tap nothing is protected; without a way into the
    /// kernel nothing is recovered. A rack may have parts that nobody protects, and routes to peers in tunnel
    /// mode may be missing: `unrouted` says why.
    pub(crate) fn of_gateway(
        peers: &[&Self],
        lost: &LostWans<'_>,
        injection: Injection<'_>,
        rack: Option<&RackStatus>,
        unrouted: &[String],
    ) -> Self {
        Self::of_all(peers, lost, injection).with_rack(rack).with_routes(unrouted)
    }

    fn with_rack(self, rack: Option<&RackStatus>) -> Self {
        let unprotected: Vec<&str> = rack.into_iter().flat_map(RackStatus::unprotected).collect();
        if unprotected.is_empty() {
            return self;
        }
        self.degraded_by(
            "part_unprotected",
            format!("no gateway of the rack protects {}", unprotected.join(", ")),
        )
    }

    fn with_routes(self, unrouted: &[String]) -> Self {
        let text = |fault: &String| format!("packets to a peer may not take the tunnel: {fault}");
        unrouted.iter().fold(self, |health, fault| health.degraded_by("no_route", text(fault)))
    }

    fn degraded_by(mut self, id: &str, text: String) -> Self {
        if self.is_protected() {
            let text = self.text.strip_prefix(&self.state).unwrap_or_default().to_owned();
            self.state = Condition::Degraded.id().to_owned();
            self.text = format!("{}{text}", self.state);
        }
        self.reasons.push(ReasonStatus { id: id.to_owned(), peer: None, text });
        self
    }

    fn of_all(peers: &[&Self], lost: &LostWans<'_>, injection: Injection<'_>) -> Self {
        let mut reasons = Vec::from_iter(lost.reason());
        reasons.extend(injection.reason());
        reasons.extend(peers.iter().flat_map(|peer| peer.reasons.clone()));
        let is = |peer: &Self, condition: Condition| peer.state == condition.id();
        let condition = if lost.are_all() || peers.iter().all(|peer| is(peer, Condition::Down)) {
            Condition::Down
        } else if reasons.is_empty() {
            Condition::Protected
        } else {
            Condition::Degraded
        };
        let (state, count) = (condition.id().to_owned(), peers.len());
        let protected = peers.iter().filter(|peer| is(peer, Condition::Protected)).count();
        let text = format!("{state}, {protected} of {count} peers protected");
        Self { state, reasons, text }
    }

    /// The reasons that concern a gateway itself, and none of its peers.
    pub fn own_reasons(&self) -> impl Iterator<Item = &ReasonStatus> {
        self.reasons.iter().filter(|reason| reason.peer.is_none())
    }

    /// The verdict about a gateway itself for the service manager, if it has reasons of its own.
    pub(crate) fn own_verdict(&self) -> Option<String> {
        let reasons: Vec<&str> = self.own_reasons().map(|reason| reason.text.as_str()).collect();
        (!reasons.is_empty()).then(|| format!("gateway {}: {}", self.state, reasons.join(", ")))
    }

    /// Whether packets are protected in both directions, and all that should be recovered is.
    pub fn is_protected(&self) -> bool {
        self.state == Condition::Protected.id()
    }

    /// Whether nothing is protected.
    pub fn is_down(&self) -> bool {
        self.state == Condition::Down.id()
    }
}

impl PeerStatus {
    /// Adds what the observer knows about this peer, given by its number in the configuration.
    pub(crate) fn observed_by(&mut self, observer: &Observer, index: usize) {
        self.health = HealthStatus::of(&observer.verdict(index), &self.label());
        let windows = SPANS_S.iter().zip(observer.windows(index));
        self.windows = windows.map(|(&span_s, window)| WindowStatus::of(span_s, &window)).collect();
    }
}

impl EventStatus {
    /// The latest events, oldest first. `label`: the operator's name of a peer.
    pub(crate) fn latest(now_us: u64, observer: &Observer, label: impl Fn(Site) -> String) -> Vec<Self> {
        let from = observer.journal().count().saturating_sub(EVENTS_SHOWN as u64);
        Self::since(from, now_us, observer, label)
    }

    /// All events that are kept, oldest first.
    pub(crate) fn kept(now_us: u64, observer: &Observer, label: impl Fn(Site) -> String) -> Vec<Self> {
        Self::since(0, now_us, observer, label)
    }

    fn since(number: u64, now_us: u64, observer: &Observer, label: impl Fn(Site) -> String) -> Vec<Self> {
        let events = observer.journal().since(number);
        events.map(|event| Self::of(now_us, event, event.peer.map(&label))).collect()
    }

    fn of(now_us: u64, event: &Event, peer: Option<String>) -> Self {
        let kind: &EventKind = &event.kind;
        Self {
            number: event.number,
            ago_ms: now_us.saturating_sub(event.at_us) / 1_000,
            id: kind.id().to_owned(),
            level: match kind.level() {
                Level::Info => "info".to_owned(),
                Level::Warning => "warning".to_owned(),
            },
            peer,
            text: kind.to_string(),
            remedy: kind.remedy().map(str::to_owned),
        }
    }
}

impl WindowStatus {
    /// The rates and shares of a window of `span_s` seconds.
    pub(crate) fn of(span_s: u64, window: &Window) -> Self {
        let counts = &window.counts;
        let per_second = |count: u64| match window.covered_us {
            0 => 0.0,
            covered_us => count as f64 * 1e6 / covered_us as f64,
        };
        let repairs_lost = counts.repairs.saturating_sub(counts.there.repairs);
        Self {
            span_s,
            covered_ms: window.covered_us / 1_000,
            sent_packets_per_s: per_second(counts.sent_packets),
            sent_bits_per_s: 8.0 * per_second(counts.sent_bytes),
            repair_bits_per_s: 8.0 * per_second(counts.repair_bytes),
            received_packets_per_s: per_second(counts.received_packets),
            received_bits_per_s: 8.0 * per_second(counts.received_bytes),
            overhead_percent: percent(counts.repair_bytes, counts.sent_bytes),
            repairs_lost_percent: percent(repairs_lost, counts.repairs),
            here: FateStatus::of(&counts.here),
            there: FateStatus::of(&counts.there),
            paused_ms: counts.paused_us / 1_000,
            recovery_delay_us: counts.delay_us(),
        }
    }
}

impl MinuteStatus {
    pub(crate) fn of(step: &Step) -> Self {
        let window = Window { covered_us: step.length_us, counts: step.counts };
        Self { ago_ms: step.ago_us / 1_000, window: WindowStatus::of(60, &window) }
    }
}

impl FateStatus {
    fn of(fates: &Fates) -> Self {
        let (packets, residual) = (fates.packets, fates.residual());
        Self {
            packets,
            lost: fates.lost,
            recovered: fates.recovered,
            left: fates.left,
            residual,
            loss_percent: percent(fates.lost, packets),
            residual_percent: percent(residual, packets),
        }
    }
}

#[cfg(test)]
mod tests {
    use maelstrom_core::{Finding, Findings};

    use super::*;
    use crate::status::PartStatus;

    fn peer(condition: Condition, concerns: &[Concern]) -> HealthStatus {
        let verdict = Verdict { condition, concerns: concerns.to_vec(), ..Verdict::default() };
        HealthStatus::of(&verdict, "osaka")
    }

    #[test]
    fn a_gateway_is_as_healthy_as_its_peers_its_tap_and_its_injection() {
        let good = || peer(Condition::Protected, &[]);
        let poor = || peer(Condition::Degraded, &[Concern::ResidualIn]);
        let down = || peer(Condition::Down, &[Concern::PeerDown]);
        let (open, closed) = (Injection::AsWanted, Injection::Impossible("wan0 is down"));
        let lost = |names: &[&'static str], others| LostWans { names: names.to_vec(), others };
        for (peers, lost, injection, state, reasons) in [
            (vec![good(), good()], lost(&[], 1), open, "protected", &[][..]),
            (vec![good(), poor()], lost(&[], 1), open, "degraded", &["residual_in"]),
            (vec![good(), down()], lost(&[], 1), open, "degraded", &["peer_down"]),
            (vec![down(), down()], lost(&[], 1), open, "down", &["peer_down", "peer_down"]),
            (vec![down(), poor()], lost(&[], 1), open, "degraded", &["peer_down", "residual_in"]),
            (vec![good()], lost(&[], 1), Injection::ByTun("no CAP_BPF"), "degraded", &["injection_by_tun"]),
            (vec![good()], lost(&[], 1), closed, "degraded", &["no_injection"]),
            (vec![good()], lost(&["wan0"], 1), open, "degraded", &["no_tap"]),
            (vec![good()], lost(&["wan0"], 0), closed, "down", &["no_tap", "no_injection"]),
        ] {
            let peers: Vec<&HealthStatus> = peers.iter().collect();
            let health = HealthStatus::of_all(&peers, &lost, injection);
            assert_eq!(health.state, state, "{health:?}");
            let ids: Vec<&str> = health.reasons.iter().map(|reason| reason.id.as_str()).collect();
            assert_eq!(ids, reasons);
        }
        let none = LostWans::default();
        let health = HealthStatus::of_all(&[&good(), &down()], &none, open);
        assert_eq!(health.own_verdict(), None, "the reasons of peers are told with them");
        assert_eq!(health.text, "degraded, 1 of 2 peers protected");
        let health = HealthStatus::of_all(&[&good()], &none, closed);
        assert_eq!(health.reasons[0].text, "recovered packets cannot be injected: wan0 is down");
        let health = HealthStatus::of_all(&[&good()], &lost(&["wan0", "wan2"], 1), open);
        assert_eq!(
            health.reasons[0].text,
            "the WAN interfaces wan0 and wan2 are gone, and with them the taps"
        );
    }

    #[test]
    fn the_reason_of_a_peer_names_its_cause() {
        let mut findings = Findings::NONE;
        findings.set(Finding::Rewritten, true);
        let verdict = Verdict {
            condition: Condition::Degraded,
            concerns: vec![Concern::PathIn],
            findings: [findings, Findings::NONE],
            ..Verdict::default()
        };
        let health = HealthStatus::of(&verdict, "osaka");
        let text = "the path from the peer differs from the configuration: packets are rewritten on the way";
        assert_eq!(health.reasons[0].text, text);
    }

    #[test]
    fn a_part_that_no_gateway_of_the_rack_protects_degrades_it() {
        let part = |name: &str, protected_by: &[&str]| PartStatus {
            name: name.to_owned(),
            protected_by: protected_by.iter().map(|&member| member.to_owned()).collect(),
            ..PartStatus::default()
        };
        let good = peer(Condition::Protected, &[]);
        let of = |parts: Vec<PartStatus>| {
            let rack = RackStatus { parts, ..RackStatus::default() };
            HealthStatus::of_all(&[&good], &LostWans::default(), Injection::AsWanted).with_rack(Some(&rack))
        };
        assert!(of(vec![part("east-1", &["east-2"])]).is_protected());
        let poor = of(vec![part("east-1", &["east-2"]), part("east-2", &[])]);
        assert_eq!(poor.text, "degraded, 1 of 1 peers protected");
        assert_eq!(poor.reasons[0].text, "no gateway of the rack protects east-2");
        let down =
            HealthStatus::of_all(&[&peer(Condition::Down, &[])], &LostWans::default(), Injection::AsWanted);
        let rack = RackStatus { parts: vec![part("east-1", &[])], ..RackStatus::default() };
        assert!(down.with_rack(Some(&rack)).is_down());
    }

    #[test]
    fn a_route_that_is_missing_degrades_a_gateway() {
        let good = HealthStatus::of_all(
            &[&peer(Condition::Protected, &[])],
            &LostWans::default(),
            Injection::AsWanted,
        );
        assert!(good.clone().with_routes(&[]).is_protected());
        let poor = good.with_routes(&["undrop1 is down".to_owned()]);
        assert_eq!((&*poor.state, &*poor.reasons[0].id), ("degraded", "no_route"));
        assert_eq!(poor.reasons[0].text, "packets to a peer may not take the tunnel: undrop1 is down");
        let verdict = "gateway degraded: packets to a peer may not take the tunnel: undrop1 is down";
        assert_eq!(poor.own_verdict().as_deref(), Some(verdict));
    }

    #[test]
    fn rates_are_those_of_the_time_that_a_window_covers() {
        let mut window = Window { covered_us: 4_000_000, ..Window::default() };
        (window.counts.sent_packets, window.counts.sent_bytes) = (400, 1_000);
        (window.counts.repairs, window.counts.repair_bytes) = (50, 125);
        window.counts.there.repairs = 49;
        let status = WindowStatus::of(10, &window);
        assert_eq!((status.sent_packets_per_s, status.sent_bits_per_s), (100.0, 2_000.0));
        assert_eq!((status.overhead_percent, status.repairs_lost_percent), (12.5, 2.0));
        assert_eq!(WindowStatus::of(10, &Window::default()).sent_packets_per_s, 0.0);
    }
}
