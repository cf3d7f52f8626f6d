//! The metrics of a member of a rack.

use daemon::openmetrics::{Exposition, Kind};

use crate::status::{MemberStatus, PartStatus, RackStatus};

/// A family of one sample for each member.
type OfMember = (&'static str, &'static str, fn(&MemberStatus) -> bool);
/// A family of one sample for each part.
type OfPart = (&'static str, &'static str, fn(&PartStatus) -> f64);

const OF_MEMBERS: [OfMember; 2] = [
    ("undrop_gateway_rack_member_present", "Whether a member of the rack is heard.", |member| member.present),
    (
        "undrop_gateway_rack_member_differs",
        "Whether the file of a member has other members or parts.",
        |member| member.differs,
    ),
];

const OF_PARTS: [OfPart; 2] = [
    ("undrop_gateway_rack_part_held", "Whether this gateway has taken a part.", |part| {
        f64::from(u8::from(part.held))
    }),
    ("undrop_gateway_rack_part_protectors", "Members that protect a part.", |part| {
        part.protected_by.len() as f64
    }),
];

/// Appends the metrics of a rack.
pub(super) fn append(out: &mut Exposition, rack: &RackStatus) {
    for (name, help, value) in OF_MEMBERS {
        let mut family = out.family(name, Kind::Gauge, help);
        for member in &rack.members {
            family.sample(&[("member", &member.name)], f64::from(u8::from(value(member))));
        }
    }
    for (name, help, value) in OF_PARTS {
        let mut family = out.family(name, Kind::Gauge, help);
        for part in &rack.parts {
            family.sample(&[("part", &part.name)], value(part));
        }
    }
    let help = "Heartbeats that this gateway could not send.";
    out.family("undrop_gateway_rack_unsent_heartbeats", Kind::Counter, help).sample(&[], rack.unsent as f64);
    let help = "Datagrams on the LAN that counted for nothing, by reason.";
    let mut family = out.family("undrop_gateway_rack_unheeded_datagrams", Kind::Counter, help);
    for (reason, &count) in &rack.unheeded {
        family.sample(&[("reason", reason)], count as f64);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A rack of two, of which one is gone.
    pub(in crate::metrics) fn status() -> RackStatus {
        let member = |name: &str, present| MemberStatus {
            name: name.to_owned(),
            address: "10.81.1.1:4702".parse().unwrap(),
            present,
            differs: false,
            last_heard_ms: None,
        };
        let part = |name: &str, held: bool| PartStatus {
            name: name.to_owned(),
            networks: vec!["10.81.2.0/25".parse().unwrap()],
            members: vec!["east-1".to_owned(), "east-2".to_owned()],
            held,
            protected_by: if held { vec!["east-1".to_owned()] } else { Vec::new() },
        };
        RackStatus {
            member: "east-1".to_owned(),
            members: vec![member("east-1", true), member("east-2", false)],
            parts: vec![part("one", true), part("two", false)],
            unheeded: [("forged".to_owned(), 3)].into(),
            unsent: 4,
        }
    }

    #[test]
    fn each_value_of_the_status_has_its_sample() {
        let mut out = Exposition::default();
        append(&mut out, &status());
        let text = out.finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "member_present{member=\"east-1\"} 1",
            "member_present{member=\"east-2\"} 0",
            "member_differs{member=\"east-1\"} 0",
            "member_differs{member=\"east-2\"} 0",
            "part_held{part=\"one\"} 1",
            "part_held{part=\"two\"} 0",
            "part_protectors{part=\"one\"} 1",
            "part_protectors{part=\"two\"} 0",
            "unsent_heartbeats_total 4",
            "unheeded_datagrams_total{reason=\"forged\"} 3",
        ];
        assert_eq!(samples, expected.map(|line| format!("undrop_gateway_rack_{line}")));
    }
}
