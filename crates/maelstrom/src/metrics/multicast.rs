//! The metrics of IP groups that cross tunnels.

use daemon::openmetrics::{Exposition, Kind};

use crate::status::{MulticastStatus, Status};

/// A family of one sample for each section.
type OfSection = (&'static str, Kind, &'static str, fn(&MulticastStatus) -> u64);

const OF_SECTIONS: [OfSection; 9] = [
    (
        "undrop_gateway_group_open",
        Kind::Gauge,
        "Whether the interface of a section can be used.",
        |section| u64::from(section.open),
    ),
    (
        "undrop_gateway_group_members",
        Kind::Gauge,
        "Groups with members on the LAN of a section.",
        |section| section.member_groups,
    ),
    (
        "undrop_gateway_group_forwarded_packets",
        Kind::Counter,
        "Packets of hosts of this site that went to a far site at least.",
        |section| section.forwarded,
    ),
    ("undrop_gateway_group_forwarded_bytes", Kind::Counter, "Their bytes.", |section| {
        section.forwarded_bytes
    }),
    (
        "undrop_gateway_group_sent_packets",
        Kind::Counter,
        "Packets sent to far sites, counted once for each site.",
        |section| section.sent,
    ),
    (
        "undrop_gateway_group_received_packets",
        Kind::Counter,
        "Packets of far sites for this LAN.",
        |section| section.received,
    ),
    ("undrop_gateway_group_received_bytes", Kind::Counter, "Their bytes.", |section| section.received_bytes),
    (
        "undrop_gateway_group_unsent_packets",
        Kind::Counter,
        "Packets of far sites that the kernel did not send.",
        |section| section.unsent,
    ),
    (
        "undrop_gateway_group_unheard_packets",
        Kind::Counter,
        "Packets of hosts of this site that were not read in time.",
        |section| section.unheard,
    ),
];

/// Appends the metrics of all sections.
pub(super) fn append(out: &mut Exposition, status: &Status) {
    if status.multicast.is_empty() {
        return;
    }
    // Two sections may have the same interface.
    let numbers: Vec<String> = (1..=status.multicast.len()).map(|number| number.to_string()).collect();
    for (name, kind, help, value) in OF_SECTIONS {
        let mut family = out.family(name, kind, help);
        for (number, section) in numbers.iter().zip(&status.multicast) {
            let labels = [("section", number.as_str()), ("interface", section.interface.as_str())];
            family.sample(&labels, value(section) as f64);
        }
    }
    let help = "Packets of groups that did not cross, by reason.";
    let mut family = out.family("undrop_gateway_group_dropped_packets", Kind::Counter, help);
    for (number, section) in numbers.iter().zip(&status.multicast) {
        for (reason, &count) in &section.dropped {
            let (number, interface) = (number.as_str(), section.interface.as_str());
            let labels = [("section", number), ("interface", interface), ("reason", reason.as_str())];
            family.sample(&labels, count as f64);
        }
    }
    let help = "Groups, and networks of them, that the site of a peer wants.";
    let mut family = out.family("undrop_gateway_group_wanted", Kind::Gauge, help);
    for wanted in &status.wanted_groups {
        family.sample(&[("peer", &wanted.peer)], wanted.count as f64);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::status::WantedStatus;

    /// A section in which each value is another.
    pub(in crate::metrics) fn section() -> MulticastStatus {
        MulticastStatus {
            interface: "lan0".to_owned(),
            member_groups: 11,
            open: true,
            groups: vec!["239.1.0.0/16".parse().unwrap()],
            forwarded: 2,
            forwarded_bytes: 3,
            sent: 4,
            received: 5,
            received_bytes: 6,
            unsent: 7,
            unheard: 8,
            dropped: [("expiring".to_owned(), 9)].into(),
            ..MulticastStatus::default()
        }
    }

    pub(in crate::metrics) fn wanted() -> WantedStatus {
        WantedStatus { peer: "osaka".to_owned(), groups: Vec::new(), count: 10, refused: 0 }
    }

    #[test]
    fn each_value_of_the_status_has_its_sample() {
        let mut out = Exposition::default();
        let (multicast, wanted_groups) = (vec![section()], vec![wanted()]);
        append(&mut out, &Status { multicast, wanted_groups, ..Status::default() });
        let text = out.finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let labels = "section=\"1\",interface=\"lan0\"";
        let expected = [
            format!("open{{{labels}}} 1"),
            format!("members{{{labels}}} 11"),
            format!("forwarded_packets_total{{{labels}}} 2"),
            format!("forwarded_bytes_total{{{labels}}} 3"),
            format!("sent_packets_total{{{labels}}} 4"),
            format!("received_packets_total{{{labels}}} 5"),
            format!("received_bytes_total{{{labels}}} 6"),
            format!("unsent_packets_total{{{labels}}} 7"),
            format!("unheard_packets_total{{{labels}}} 8"),
            format!("dropped_packets_total{{{labels},reason=\"expiring\"}} 9"),
            "wanted{peer=\"osaka\"} 10".to_owned(),
        ];
        assert_eq!(samples, expected.map(|line| format!("undrop_gateway_group_{line}")));
    }
}
