//! The metrics of split mode.

use daemon::openmetrics::{Exposition, Kind};

use crate::status::{FarSiteStatus, SplitStatus};

/// A family of one sample: its name, type, help, and the value.
type OfAll = (&'static str, Kind, &'static str, fn(&SplitStatus) -> f64);
/// A family of one sample for each far site.
type OfSite = (&'static str, Kind, &'static str, fn(&FarSiteStatus) -> Option<f64>);
/// A family of two samples for each far site: its name, type, help, the label that tells them apart with its
/// values, and the samples.
type OfPair =
    (&'static str, Kind, &'static str, &'static str, [&'static str; 2], fn(&FarSiteStatus) -> [u64; 2]);

const OF_ALL: [OfAll; 8] = [
    ("undrop_gateway_split_working", Kind::Gauge, "Whether split mode works.", |split| {
        f64::from(u8::from(split.fault.is_none()))
    }),
    (
        "undrop_gateway_split_connections_limit",
        Kind::Gauge,
        "Connections for which the buffer has room; new ones go unsplit when fewer than 33 places are left.",
        |split| split.connections_max as f64,
    ),
    (
        "undrop_gateway_split_buffer_bytes",
        Kind::Gauge,
        "Buffer for bytes that wait for hosts of this site.",
        |split| split.buffer_bytes as f64,
    ),
    (
        "undrop_gateway_split_promised_bytes",
        Kind::Gauge,
        "Bytes of the buffer that far gateways may fill for connections that are open.",
        |split| split.promised_bytes as f64,
    ),
    (
        "undrop_gateway_split_advanced_bytes",
        Kind::Gauge,
        "Bytes of the buffer that are kept for the first bytes of new connections.",
        |split| split.advanced_bytes as f64,
    ),
    ("undrop_gateway_split_waiting_bytes", Kind::Gauge, "Bytes in the buffer.", |split| {
        split.waiting_bytes as f64
    }),
    (
        "undrop_gateway_split_spool_limit_bytes",
        Kind::Gauge,
        "Bytes of hosts of this site that may wait on disk.",
        |split| split.spool_bytes.unwrap_or(0) as f64,
    ),
    ("undrop_gateway_split_spooled_bytes", Kind::Gauge, "Bytes of hosts of this site on disk.", |split| {
        split.spooled_bytes as f64
    }),
];

const OF_SITES: [OfSite; 4] = [
    (
        "undrop_gateway_split_taking",
        Kind::Gauge,
        "Whether new connections to the peer's site are split.",
        |site| Some(f64::from(u8::from(site.is_splitting))),
    ),
    ("undrop_gateway_split_connections", Kind::Gauge, "Split connections with hosts of this site.", |site| {
        Some(site.connections as f64)
    }),
    (
        "undrop_gateway_split_round_trip_seconds",
        Kind::Gauge,
        "Latest round-trip time on carriers, queues included.",
        |site| site.rtt_us.map(|us| us as f64 / 1e6),
    ),
    (
        "undrop_gateway_split_shortest_round_trip_seconds",
        Kind::Gauge,
        "Shortest round-trip time of late that the carriers' TCP has measured.",
        |site| site.rtt_min_us.map(|us| us as f64 / 1e6),
    ),
];

const OF_PAIRS: [OfPair; 3] = [
    (
        "undrop_gateway_split_carriers",
        Kind::Gauge,
        "Working carriers: dialed by the peer (in), and by this gateway (out).",
        "direction",
        ["in", "out"],
        |site| [site.carriers_in, site.carriers_out],
    ),
    (
        "undrop_gateway_split_host_bytes",
        Kind::Counter,
        "Bytes that hosts of this site took (in), and that came from them (out).",
        "direction",
        ["in", "out"],
        |site| [site.bytes_to_hosts, site.bytes_from_hosts],
    ),
    (
        "undrop_gateway_split_retransmissions",
        Kind::Counter,
        "Segments that this gateway sent again: on carriers (wan), and to hosts of this site (lan).",
        "side",
        ["wan", "lan"],
        |site| [site.retransmits_wan, site.retransmits_lan],
    ),
];

/// Appends the metrics of split mode.
pub(super) fn append(out: &mut Exposition, split: &SplitStatus) {
    for (name, kind, help, value) in OF_ALL {
        out.family(name, kind, help).sample(&[], value(split));
    }
    for (name, kind, help, value) in OF_SITES {
        let mut family = out.family(name, kind, help);
        for site in &split.sites {
            if let Some(value) = value(site) {
                family.sample(&[("peer", &site.peer)], value);
            }
        }
    }
    for (name, kind, help, label, sides, values) in OF_PAIRS {
        let mut family = out.family(name, kind, help);
        for site in &split.sites {
            for (side, value) in sides.into_iter().zip(values(site)) {
                family.sample(&[("peer", &site.peer), (label, side)], value as f64);
            }
        }
    }
    let help = "Split connections and carriers so far, by what became of them.";
    let mut family = out.family("undrop_gateway_split_events", Kind::Counter, help);
    for (reason, &count) in &split.counters {
        family.sample(&[("reason", reason)], count as f64);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A status in which each value is another.
    pub(in crate::metrics) fn status() -> SplitStatus {
        let site = FarSiteStatus {
            peer: "osaka".to_owned(),
            carrier: "10.81.2.1:4701".parse().unwrap(),
            is_splitting: true,
            reason: None,
            carriers_out: 2,
            carriers_in: 3,
            connections: 4,
            bytes_from_hosts: 5,
            bytes_to_hosts: 6,
            rtt_us: Some(70_000),
            rtt_min_us: Some(60_000),
            retransmits_wan: 8,
            retransmits_lan: 9,
        };
        SplitStatus {
            connections_max: 10,
            buffer_bytes: 11,
            promised_bytes: 12,
            advanced_bytes: 17,
            waiting_bytes: 13,
            spool_bytes: Some(16),
            spooled_bytes: 15,
            counters: [("taken".to_owned(), 14)].into(),
            sites: vec![site],
            ..SplitStatus::default()
        }
    }

    #[test]
    fn each_value_of_the_status_has_its_sample() {
        let render = |status: &SplitStatus| {
            let mut out = Exposition::default();
            append(&mut out, status);
            out.finish()
        };
        let text = render(&status());
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let name = "undrop_gateway_split_";
        let expected = [
            "working 1",
            "connections_limit 10",
            "buffer_bytes 11",
            "promised_bytes 12",
            "advanced_bytes 17",
            "waiting_bytes 13",
            "spool_limit_bytes 16",
            "spooled_bytes 15",
            "taking{peer=\"osaka\"} 1",
            "connections{peer=\"osaka\"} 4",
            "round_trip_seconds{peer=\"osaka\"} 0.07",
            "shortest_round_trip_seconds{peer=\"osaka\"} 0.06",
            "carriers{peer=\"osaka\",direction=\"in\"} 3",
            "carriers{peer=\"osaka\",direction=\"out\"} 2",
            "host_bytes_total{peer=\"osaka\",direction=\"in\"} 6",
            "host_bytes_total{peer=\"osaka\",direction=\"out\"} 5",
            "retransmissions_total{peer=\"osaka\",side=\"wan\"} 8",
            "retransmissions_total{peer=\"osaka\",side=\"lan\"} 9",
            "events_total{reason=\"taken\"} 14",
        ];
        assert_eq!(samples, expected.map(|line| format!("{name}{line}")));
        let broken = SplitStatus { fault: Some("no TPROXY".to_owned()), ..SplitStatus::default() };
        assert!(render(&broken).contains("undrop_gateway_split_working 0\n"));
    }
}
