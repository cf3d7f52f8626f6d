//! The metrics of a gateway, as Prometheus reads them, from its status.
//!
//! Names follow Prometheus' conventions: `undrop_gateway_`, the thing counted, the unit, and `_total` for
//! counts. `direction` is `in` for packets from the peer's site and `out` for packets to it.

mod multicast;
mod paths;
mod rack;
mod split;

use std::collections::BTreeSet;

use daemon::openmetrics::{Exposition, Kind};

use crate::status::{ClassStatus, Counts, PeerStatus, Status};

/// Conditions of a peer and of a gateway.
const CONDITIONS: [&str; 3] = ["protected", "degraded", "down"];

/// A family of one sample for each peer: its name, type, help, and the value.
type OfPeer = (&'static str, Kind, &'static str, fn(&PeerStatus) -> Option<f64>);
/// A family of one sample for each peer and direction.
type OfDirection = (&'static str, &'static str, fn(&PeerStatus) -> [u64; 2]);
/// A family of one count for each class.
type OfClass = (&'static str, &'static str, fn(&ClassStatus) -> u64);
/// A family of counts by reason.
type OfReason = (&'static str, &'static str, fn(&PeerStatus) -> &Counts);

const OF_PEERS: [OfPeer; 30] = [
    ("undrop_gateway_peer_up", Kind::Gauge, "Whether the repair channel works in both directions.", |peer| {
        Some(f64::from(u8::from(peer.up)))
    }),
    (
        "undrop_gateway_round_trip_seconds",
        Kind::Gauge,
        "Round-trip time to the peer without queues.",
        |peer| peer.rtt_us.map(|us| us as f64 / 1e6),
    ),
    ("undrop_gateway_sessions", Kind::Counter, "Sessions with the peer.", |peer| Some(peer.sessions as f64)),
    ("undrop_gateway_session_renewals", Kind::Counter, "Renewals of a session in use.", |peer| {
        Some(peer.renewals as f64)
    }),
    ("undrop_gateway_peer_moves", Kind::Counter, "Changes of the peer's address.", |peer| {
        Some(peer.moves as f64)
    }),
    (
        "undrop_gateway_wrong_key_datagrams",
        Kind::Counter,
        "Datagrams from the peer's address that were sealed with another key.",
        |peer| Some(peer.wrong_key as f64),
    ),
    (
        "undrop_gateway_repair_bytes",
        Kind::Counter,
        "Bytes of repairs sent, outer headers included.",
        |peer| Some(peer.egress.repair_bytes as f64),
    ),
    (
        "undrop_gateway_repairs_out_of_turn",
        Kind::Counter,
        "Repairs sent because packets could not wait for others: after a silence, or for a deadline.",
        |peer| Some(peer.egress.repairs_out_of_turn as f64),
    ),
    (
        "undrop_gateway_repairs_arrived_there",
        Kind::Counter,
        "Repairs of this session that arrived at the peer, as it reports.",
        |peer| Some(peer.far.repairs_received as f64),
    ),
    (
        "undrop_gateway_repairs_lost_ratio",
        Kind::Gauge,
        "Share of the repairs sent in the last 10 s that did not arrive.",
        |peer| peer.windows.first().map(|window| window.repairs_lost_percent / 100.0),
    ),
    (
        "undrop_gateway_code_repairs_per_packet",
        Kind::Gauge,
        "Rate of the code in force: repairs for each packet.",
        |peer| Some(peer.egress.repairs_per_packet),
    ),
    (
        "undrop_gateway_code_span_packets",
        Kind::Gauge,
        "Window of the code in force: packets that a repair reaches back.",
        |peer| Some(peer.egress.span as f64),
    ),
    (
        "undrop_gateway_answered_packets",
        Kind::Counter,
        "Requested packets that the peer sent again, and that came.",
        |peer| Some(peer.ingress.requests.answered as f64),
    ),
    (
        "undrop_gateway_sent_again_packets",
        Kind::Counter,
        "Packets sent again because the peer requested them.",
        |peer| Some(peer.egress.answers as f64),
    ),
    ("undrop_gateway_repairs_fragmented", Kind::Counter, "Repairs cut in two because of the MTU.", |peer| {
        Some(peer.egress.repairs_cut_in_two as f64)
    }),
    (
        "undrop_gateway_long_packets",
        Kind::Counter,
        "Packets whose repairs may be too long for the path.",
        |peer| Some(peer.egress.long_packets as f64),
    ),
    (
        "undrop_gateway_raised_timestamps",
        Kind::Counter,
        "Recovered TCP segments that got the timestamp of a newer one.",
        |peer| Some(peer.ingress.raised_timestamps as f64),
    ),
    (
        "undrop_gateway_overhead_ratio",
        Kind::Gauge,
        "Repair bytes for each byte of protected packets, in the last 10 s.",
        |peer| peer.windows.first().map(|window| window.overhead_percent / 100.0),
    ),
    (
        "undrop_gateway_protected_flows_ratio",
        Kind::Gauge,
        "Share of flows that both gateways have time to protect.",
        |peer| Some(peer.egress.flows_protected_percent / 100.0),
    ),
    (
        "undrop_gateway_duplicate_packets",
        Kind::Counter,
        "Packets that arrived after they had been recovered.",
        |peer| Some(peer.ingress.duplicates.max(peer.ingress.after_recovery) as f64),
    ),
    ("undrop_gateway_path_mtu_bytes", Kind::Gauge, "MTU of the path to the peer.", |peer| {
        Some(peer.egress.path_mtu as f64)
    }),
    ("undrop_gateway_requested_packets", Kind::Counter, "Packets requested from the peer.", |peer| {
        Some(peer.ingress.requests.packets as f64)
    }),
    ("undrop_gateway_tunnel_packets", Kind::Counter, "Packets that left inside datagrams.", |peer| {
        peer.egress.tunnel.as_ref().map(|tunnel| tunnel.packets as f64)
    }),
    ("undrop_gateway_tunnel_datagrams", Kind::Counter, "Datagrams that carried them.", |peer| {
        peer.egress.tunnel.as_ref().map(|tunnel| tunnel.datagrams as f64)
    }),
    (
        "undrop_gateway_tunnel_bytes",
        Kind::Counter,
        "Bytes of these datagrams, outer headers included.",
        |peer| peer.egress.tunnel.as_ref().map(|tunnel| tunnel.bytes as f64),
    ),
    (
        "undrop_gateway_held_packets",
        Kind::Counter,
        "Packets of a tunnel held for those in front of them.",
        |peer| peer.ingress.resequence.map(|order| order.held as f64),
    ),
    (
        "undrop_gateway_held_in_vain",
        Kind::Counter,
        "Of these, packets handed on because the time was up, or for lack of room.",
        |peer| peer.ingress.resequence.map(|order| (order.by_time + order.by_room) as f64),
    ),
    (
        "undrop_gateway_disordered_packets",
        Kind::Counter,
        "Packets handed on after packets behind them.",
        |peer| peer.ingress.resequence.map(|order| order.late as f64),
    ),
    (
        "undrop_gateway_path_marks",
        Kind::Counter,
        "Packets of a tunnel that got the congestion mark of their datagram.",
        |peer| peer.egress.tunnel.as_ref().map(|_| peer.ingress.congestion.path_marked as f64),
    ),
    (
        "undrop_gateway_path_marks_dropped",
        Kind::Counter,
        "Packets of a tunnel dropped because their datagram was marked and they must not be.",
        |peer| peer.egress.tunnel.as_ref().map(|_| peer.ingress.congestion.path_dropped as f64),
    ),
];

const OF_DIRECTIONS: [OfDirection; 7] = [
    ("undrop_gateway_packets", "Protected packets that arrived without recovery, or left.", |peer| {
        [peer.ingress.source_packets, peer.egress.source_packets]
    }),
    ("undrop_gateway_packet_bytes", "Bytes of these packets.", |peer| {
        [peer.ingress.source_bytes, peer.egress.source_bytes]
    }),
    ("undrop_gateway_repairs", "Repairs that arrived, or were sent.", |peer| {
        [peer.ingress.loss.repairs_received, peer.egress.repairs]
    }),
    ("undrop_gateway_packets_settled", "Packets whose fate is known.", |peer| {
        [peer.ingress.loss.packets, peer.far.packets]
    }),
    ("undrop_gateway_packets_lost", "Packets lost on the link.", |peer| {
        [peer.ingress.loss.lost, peer.far.lost]
    }),
    ("undrop_gateway_packets_recovered", "Lost packets that were recovered.", |peer| {
        [peer.ingress.loss.recovered, peer.far.recovered]
    }),
    (
        "undrop_gateway_packets_left",
        "Lost packets left to their senders, because a queue was full.",
        |peer| [peer.ingress.loss.left, peer.far.left],
    ),
];

const OF_REASONS: [OfReason; 5] = [
    ("undrop_gateway_withheld_packets", "Recovered packets that were not injected, by reason.", |peer| {
        &peer.ingress.withheld
    }),
    (
        "undrop_gateway_uninjected_packets",
        "Recovered packets that the kernel did not get, by reason.",
        |peer| &peer.ingress.refused_injections,
    ),
    ("undrop_gateway_unused_repairs", "Repairs that recovered nothing on arrival, by reason.", |peer| {
        &peer.ingress.unused_repairs
    }),
    ("undrop_gateway_unsent_repairs", "Repairs not sent, by reason.", |peer| &peer.egress.unsent),
    ("undrop_gateway_capped_repairs", "Output that a cap of the operator refused, by kind.", |peer| {
        &peer.egress.refused_by_caps
    }),
];

const OF_CLASSES: [OfClass; 5] = [
    ("undrop_gateway_class_packets", "Packets of a class that left for a peer's site.", |class| {
        class.packets
    }),
    ("undrop_gateway_class_packet_bytes", "Bytes of these packets.", |class| class.bytes),
    ("undrop_gateway_class_protected_packets", "Packets of a class that were protected.", |class| {
        class.protected
    }),
    ("undrop_gateway_class_repairs", "Repairs that left because of a packet of a class.", |class| {
        class.repairs
    }),
    ("undrop_gateway_class_recovered_packets", "Packets of a class that were recovered here.", |class| {
        class.recovered
    }),
];

/// Returns the metrics as text in the OpenMetrics format.
pub fn render(status: &Status) -> String {
    let mut out = Exposition::default();
    of_gateway(&mut out, status);
    let labels: Vec<String> = status.peers.iter().map(PeerStatus::label).collect();
    let peers: Vec<(&str, &PeerStatus)> = labels.iter().map(String::as_str).zip(&status.peers).collect();
    of_health(&mut out, status, &peers);
    for (name, kind, help, value) in OF_PEERS {
        let mut family = out.family(name, kind, help);
        for (label, peer) in &peers {
            if let Some(value) = value(peer) {
                family.sample(&[("peer", label)], value);
            }
        }
    }
    for (name, help, values) in OF_DIRECTIONS {
        let mut family = out.family(name, Kind::Counter, help);
        for (label, peer) in &peers {
            for (direction, value) in ["in", "out"].into_iter().zip(values(peer)) {
                family.sample(&[("peer", label), ("direction", direction)], value as f64);
            }
        }
    }
    for (name, help, counts) in OF_REASONS {
        let mut family = out.family(name, Kind::Counter, help);
        for (label, peer) in &peers {
            for (reason, &count) in counts(peer) {
                family.sample(&[("peer", label), ("reason", reason)], count as f64);
            }
        }
    }
    choices(&mut out, &peers);
    delays(&mut out, &peers);
    if let Some(split) = &status.split {
        split::append(&mut out, split);
    }
    if let Some(rack) = &status.rack {
        rack::append(&mut out, rack);
    }
    multicast::append(&mut out, status);
    paths::write(&mut out, &peers);
    out.finish()
}

fn of_gateway(out: &mut Exposition, status: &Status) {
    let gateway = &status.gateway;
    let facts = [
        ("version", gateway.version.as_str()),
        ("wan", &gateway.wan),
        ("tap", &gateway.tap),
        ("injection", &gateway.injection),
        ("mtu", &gateway.mtu),
    ];
    out.family("undrop_gateway", Kind::Info, "The gateway, its interface, its tap and its way of injection.")
        .sample(&facts, 1.0);
    let name = "undrop_gateway_interface";
    let mut family = out.family(name, Kind::Info, "Interfaces toward long-haul links, with their taps.");
    for one in &gateway.interfaces {
        let facts = [("interface", &*one.name), ("tap", &*one.tap), ("injection", &*one.injection)];
        family.sample(&facts, 1.0);
    }
    out.family("undrop_gateway_uptime_seconds", Kind::Gauge, "Time since the start of the gateway.")
        .sample(&[], gateway.uptime_s as f64);
    out.family("undrop_gateway_memory_bytes", Kind::Gauge, "Memory held for packets and repairs.")
        .sample(&[], status.memory_bytes as f64);
    out.family("undrop_gateway_paused", Kind::Gauge, "Whether recovery pauses.")
        .sample(&[], f64::from(u8::from(status.pauses.reason.is_some())));
    out.family("undrop_gateway_paused_seconds", Kind::Counter, "Length of all pauses of recovery.")
        .sample(&[], status.pauses.total_ms as f64 / 1e3);
    for (name, help, counts) in [
        ("undrop_gateway_pauses", "Pauses of recovery, by reason.", &status.pauses.by_reason),
        (
            "undrop_gateway_unprotected_packets",
            "Packets that got no repair, by reason.",
            &status.not_protected,
        ),
        (
            "undrop_gateway_untunnelled_packets",
            "Packets for peers in tunnel mode that were dropped, by reason.",
            &status.not_tunnelled,
        ),
        (
            "undrop_gateway_rejected_datagrams",
            "Datagrams refused on the repair channel, by reason.",
            &status.rejected,
        ),
        ("undrop_gateway_drops", "Other drops and events, by reason.", &status.counters),
    ] {
        let mut family = out.family(name, Kind::Counter, help);
        for (reason, &count) in counts {
            family.sample(&[("reason", reason)], count as f64);
        }
    }
    for (name, help, count) in OF_CLASSES {
        let mut family = out.family(name, Kind::Counter, help);
        for class in &status.classes {
            family.sample(&[("class", &class.name)], count(class) as f64);
        }
    }
}

fn of_health(out: &mut Exposition, status: &Status, peers: &[(&str, &PeerStatus)]) {
    let is = |state: &str, condition: &str| f64::from(u8::from(state == condition));
    let mut family = out.family(
        "undrop_gateway_health",
        Kind::Gauge,
        "1 for the condition that the gateway is in, else 0.",
    );
    for condition in CONDITIONS {
        family.sample(&[("condition", condition)], is(&status.health.state, condition));
    }
    let mut family = out.family(
        "undrop_gateway_peer_health",
        Kind::Gauge,
        "1 for the condition that the peer is in, else 0.",
    );
    for (label, peer) in peers {
        for condition in CONDITIONS {
            family.sample(&[("peer", label), ("condition", condition)], is(&peer.health.state, condition));
        }
    }
    let mut family = out.family(
        "undrop_gateway_concern",
        Kind::Gauge,
        "1 for each reason why a peer is not fully protected.",
    );
    // Several faults may have the same reason, such as two routes that are missing.
    let concerns = status.health.reasons.iter().map(|reason| (reason.peer.as_deref(), &*reason.id));
    for (peer, reason) in concerns.collect::<BTreeSet<_>>() {
        family.sample(&[("peer", peer.unwrap_or_default()), ("reason", reason)], 1.0);
    }
}

/// Appends why each rate that the gateway chose is not another one.
fn choices(out: &mut Exposition, peers: &[(&str, &PeerStatus)]) {
    let help = "1 for the reason why the rate that the gateway chose is not another one.";
    let mut family = out.family("undrop_gateway_code_choice", Kind::Gauge, help);
    for (label, peer) in peers {
        if let Some(reason) = &peer.egress.choice_id {
            family.sample(&[("peer", label), ("reason", reason)], 1.0);
        }
    }
}

/// Appends the histogram of the delays of recovered packets.
fn delays(out: &mut Exposition, peers: &[(&str, &PeerStatus)]) {
    let help = "Delay of recovered packets behind their neighbours in the stream.";
    let mut family = out.family("undrop_gateway_recovery_delay_seconds", Kind::Histogram, help);
    for (label, peer) in peers {
        let (mut up_to, mut sum_us, mut low_us) = (0, 0, 0);
        let mut buckets = Vec::new();
        for range in &peer.ingress.recovery_delays {
            up_to += range.count;
            let high_us = range.to_us.unwrap_or(low_us);
            // The middle of the range stands for all its delays.
            sum_us += u128::from(range.count) * u128::from(low_us.midpoint(high_us));
            low_us = high_us;
            buckets.extend(range.to_us.map(|us| (us as f64 / 1e6, up_to)));
        }
        family.histogram(&[("peer", label)], &buckets, up_to, sum_us as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use daemon::openmetrics::in_prometheus_text;

    use super::*;
    use crate::status::{
        ClassStatus, DelayRangeStatus, EgressStatus, IngressStatus, InterfaceStatus, LossStatus, PathStatus,
        ReasonStatus, ResequenceStatus, TunnelStatus,
    };

    fn peer(name: &str) -> PeerStatus {
        let loss = LossStatus { packets: 1_000, lost: 20, recovered: 19, left: 1, ..LossStatus::default() };
        let delays = [(Some(1_000), 4), (Some(3_000), 2), (None, 1)];
        let ingress = IngressStatus {
            loss: loss.clone(),
            withheld: Counts::from([("unseen_flow".to_owned(), 3)]),
            refused_injections: Counts::from([("stalled".to_owned(), 2)]),
            recovery_delays: delays.map(|(to_us, count)| DelayRangeStatus { to_us, count }).to_vec(),
            ..IngressStatus::default()
        };
        PeerStatus {
            name: Some(name.to_owned()),
            address: "10.0.0.1:4700".parse().unwrap(),
            host: None,
            up: true,
            trouble: None,
            wrong_key: 7,
            keys: Default::default(),
            rtt_us: Some(50_000),
            last_heard_ms: Some(1),
            sessions: 1,
            renewals: 0,
            moves: 0,
            networks: Vec::new(),
            networks_named_there: Vec::new(),
            differences: Vec::new(),
            difference_ids: Vec::new(),
            egress: EgressStatus {
                source_packets: 500,
                choice_id: Some("lowest".to_owned()),
                unsent: Counts::from([("queue_full".to_owned(), 1)]),
                refused_by_caps: Counts::from([("regular".to_owned(), 2)]),
                ..EgressStatus::default()
            },
            ingress,
            far: loss,
            far_path: PathStatus::default(),
            health: Default::default(),
            windows: vec![Default::default()],
        }
    }

    fn status() -> Status {
        let mut status = Status { peers: vec![peer("osaka"), peer("a \"b\"")], ..Status::default() };
        for id in ["peer_down", "no_route", "no_route"] {
            status.health.reasons.push(ReasonStatus { id: id.to_owned(), ..ReasonStatus::default() });
        }
        let (name, tap, injection) = ("wan0".to_owned(), "ebpf".to_owned(), "wan".to_owned());
        status.gateway.interfaces =
            vec![InterfaceStatus { name, tap, injection, ..InterfaceStatus::default() }];
        status.not_protected.insert("no_peer".to_owned(), 5);
        status.rejected.insert("forged".to_owned(), 6);
        status.counters.insert("tap_dropped".to_owned(), 8);
        status.pauses.by_reason.insert("lag".to_owned(), 9);
        let counts =
            ClassStatus { packets: 11, bytes: 12, protected: 13, repairs: 14, ..ClassStatus::default() };
        status.classes.push(ClassStatus { name: "voice".to_owned(), recovered: 15, ..counts });
        status.peers[0].ingress.raised_timestamps = 16;
        // One of them turned out to be a packet of its own.
        (status.peers[0].ingress.duplicates, status.peers[0].ingress.after_recovery) = (27, 26);
        status.peers[0].egress.long_packets = 17;
        let paths = vec![paths::tests::path()];
        let tunnel =
            TunnelStatus { packets: 18, datagrams: 19, bytes: 20, paths, path_use: None, fail: None };
        status.peers[0].egress.tunnel = Some(tunnel);
        status.not_tunnelled.insert("too_long".to_owned(), 21);
        let order = ResequenceStatus { held: 22, by_time: 20, by_room: 3, late: 24, ..Default::default() };
        status.peers[0].ingress.resequence = Some(order);
        let congestion = &mut status.peers[0].ingress.congestion;
        (congestion.path_marked, congestion.path_dropped) = (25, 26);
        status.split = Some(split::tests::status());
        status.rack = Some(rack::tests::status());
        status.multicast = vec![multicast::tests::section()];
        status.wanted_groups = vec![multicast::tests::wanted()];
        status
    }

    #[test]
    fn each_peer_direction_and_reason_has_its_sample() {
        let text = render(&status());
        for line in [
            "undrop_gateway_packets_lost_total{peer=\"osaka\",direction=\"in\"} 20\n",
            "undrop_gateway_packets_total{peer=\"a \\\"b\\\"\",direction=\"out\"} 500\n",
            "undrop_gateway_withheld_packets_total{peer=\"osaka\",reason=\"unseen_flow\"} 3\n",
            "undrop_gateway_unprotected_packets_total{reason=\"no_peer\"} 5\n",
            "undrop_gateway_round_trip_seconds{peer=\"osaka\"} 0.05\n",
            "undrop_gateway_health{condition=\"down\"} 1\n",
            "undrop_gateway_concern{peer=\"\",reason=\"no_route\"} 1\n",
            "undrop_gateway_duplicate_packets_total{peer=\"osaka\"} 27\n",
            "undrop_gateway_class_packets_total{class=\"voice\"} 11\n",
            "undrop_gateway_class_packet_bytes_total{class=\"voice\"} 12\n",
            "undrop_gateway_class_protected_packets_total{class=\"voice\"} 13\n",
            "undrop_gateway_class_repairs_total{class=\"voice\"} 14\n",
            "undrop_gateway_class_recovered_packets_total{class=\"voice\"} 15\n",
            "undrop_gateway_raised_timestamps_total{peer=\"osaka\"} 16\n",
            "undrop_gateway_long_packets_total{peer=\"osaka\"} 17\n",
            "undrop_gateway_tunnel_packets_total{peer=\"osaka\"} 18\n",
            "undrop_gateway_tunnel_datagrams_total{peer=\"osaka\"} 19\n",
            "undrop_gateway_tunnel_bytes_total{peer=\"osaka\"} 20\n",
            "undrop_gateway_untunnelled_packets_total{reason=\"too_long\"} 21\n",
            "undrop_gateway_held_packets_total{peer=\"osaka\"} 22\n",
            "undrop_gateway_held_in_vain_total{peer=\"osaka\"} 23\n",
            "undrop_gateway_disordered_packets_total{peer=\"osaka\"} 24\n",
            "undrop_gateway_path_marks_total{peer=\"osaka\"} 25\n",
            "undrop_gateway_path_marks_dropped_total{peer=\"osaka\"} 26\n",
            "undrop_gateway_path_alive{peer=\"osaka\",path=\"1\"} 1\n",
            "undrop_gateway_path_lost_total{peer=\"osaka\",path=\"1\",direction=\"out\"} 18\n",
            "undrop_gateway_path_loss_ratio{peer=\"osaka\",path=\"1\",direction=\"in\"} 0.05\n",
            "undrop_gateway_recovery_delay_seconds_bucket{peer=\"osaka\",le=\"0.003\"} 6\n",
            "undrop_gateway_recovery_delay_seconds_bucket{peer=\"osaka\",le=\"+Inf\"} 7\n",
            "undrop_gateway_recovery_delay_seconds_sum{peer=\"osaka\"} 0.009\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: BTreeSet<_> = samples.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(series.len(), samples.len(), "no series comes twice");
    }

    #[test]
    fn the_book_has_a_table_of_the_metrics() {
        let mut status = status();
        for peer in &mut status.peers {
            peer.ingress.unused_repairs.insert("late".to_owned(), 1);
        }
        testkit::page::check("docs/book/metrics.md", "gateway", &testkit::page::metrics(&render(&status)));
    }

    #[test]
    fn the_runbook_has_an_entry_for_each_alert_and_each_reason() {
        let runbook = fs::read_to_string(ops("../docs/book/runbook.md")).unwrap();
        let rules = fs::read_to_string(ops("undrop.rules.yml")).unwrap();
        let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        let alerts: Vec<&str> = alerts.collect();
        assert!(alerts.len() > 4, "{alerts:?}");
        for alert in alerts {
            assert!(runbook.contains(&format!("\n### {alert}\n")), "the runbook has no entry {alert}");
        }
        let concerns = maelstrom_core::observe::Concern::ALL.iter().map(|concern| concern.id());
        for reason in concerns.chain([
            "no_answer",
            "no_tap",
            "no_injection",
            "injection_by_tun",
            "part_unprotected",
            "no_route",
        ]) {
            assert!(
                runbook.contains(&format!("`{reason}`")),
                "the runbook does not have the reason {reason}"
            );
        }
    }

    #[test]
    fn the_older_format_has_types_that_its_readers_know_and_names_of_samples() {
        let text = in_prometheus_text(&render(&status()));
        let mut kinds = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kinds.insert(name, kind), None, "{name} is there twice");
        }
        for sample in text.lines().filter(|line| !line.starts_with('#')) {
            let name = sample.split(['{', ' ']).next().unwrap();
            let parts = ["_bucket", "_count", "_sum"];
            let of_histogram = parts.iter().find_map(|part| name.strip_suffix(part));
            let is_part = of_histogram.is_some_and(|family| kinds.get(family) == Some(&"histogram"));
            assert!(is_part || kinds.contains_key(name), "no type of {sample}");
        }
        let facts = ["# TYPE undrop_gateway_info gauge\n", "\nundrop_gateway_info{"];
        assert!(facts.iter().all(|part| text.contains(part)) && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn prometheus_reads_the_older_format() {
        let mut command = Command::new("promtool");
        command
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        match command.spawn() {
            Ok(mut child) => {
                let text = in_prometheus_text(&render(&status()));
                child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
                let output = child.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                // 3: it reads the metrics, and would choose other names.
                assert!([Some(0), Some(3)].contains(&output.status.code()), "{said}");
                assert!(!said.contains("parsing error"), "{said}");
            }
            Err(error) => eprintln!(
                "SKIPPED: prometheus_reads_the_older_format: promtool: {error}; Debian has it in the package \
                 `prometheus`"
            ),
        }
    }

    fn ops(file: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(file)
    }

    #[test]
    fn alerts_and_dashboard_ask_for_metrics_that_exist() {
        let text = render(&status());
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for file in ["undrop.rules.yml", "undrop.rules.test.yml", "undrop.dashboard.json"] {
            let asked = fs::read_to_string(ops(file)).unwrap();
            let words = asked.split(|c: char| !is_name(c)).filter(|word| word.starts_with("undrop_gateway"));
            let mut count = 0;
            for name in words {
                let is_there = text
                    .lines()
                    .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
                assert!(is_there, "{file}: no metric has the name {name}");
                count += 1;
            }
            assert!(count > 5, "{file} asks for metrics");
        }
        let dashboard = fs::read_to_string(ops("undrop.dashboard.json")).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 5));
    }

    #[test]
    fn each_alert_fires_for_its_fault_and_none_without_one() {
        let tested =
            Command::new("promtool").args(["test", "rules"]).arg(ops("undrop.rules.test.yml")).output();
        match tested {
            Ok(output) => {
                let said =
                    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
                assert!(output.status.success(), "{said:?}");
            }
            Err(error) => eprintln!(
                "SKIPPED: each_alert_fires_for_its_fault_and_none_without_one: promtool: {error}; Debian has it in \
                 the package `prometheus`"
            ),
        }
    }
}
