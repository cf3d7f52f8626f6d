//! The rack of a gateway as text.

use maelstrom::status::reasons::Unheeded;
use maelstrom::status::{MemberStatus, PartStatus, RackStatus};

use super::table::{reasons, row};

/// Appends the members and the parts.
pub(super) fn rows(text: &mut String, rack: &RackStatus) {
    let member = |member: &MemberStatus| {
        let state = match member.last_heard_ms {
            _ if member.name == rack.member => "this gateway".to_owned(),
            _ if member.differs => "its file has other members or parts".to_owned(),
            Some(ms) if member.present => format!("heard {ms} ms ago"),
            _ => "gone".to_owned(),
        };
        format!("{} at {}: {state}", member.name, member.address)
    };
    for (at, entry) in rack.members.iter().enumerate() {
        row(text, if at == 0 { "rack" } else { "" }, &member(entry));
    }
    for part in &rack.parts {
        row(text, if part.protected_by.is_empty() { "UNPROTECTED" } else { "part" }, &of_part(part));
    }
    reasons::<Unheeded>(text, "not heeded", &rack.unheeded);
}

fn of_part(part: &PartStatus) -> String {
    let networks: Vec<String> = part.networks.iter().map(ToString::to_string).collect();
    let networks = networks.join(", ");
    // A part by hash has the name of its only network.
    let name = if networks == part.name { networks } else { format!("{} ({networks})", part.name) };
    let here = if part.held { ", taken here" } else { "" };
    match part.protected_by.is_empty() {
        true => format!("{name}: no member protects it{here}"),
        false => format!("{name}: protected by {}{here}", part.protected_by.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_parts_have_a_line_each() {
        let member = |name: &str, present, last_heard_ms| MemberStatus {
            name: name.to_owned(),
            address: "10.81.1.1:4702".parse().unwrap(),
            present,
            differs: false,
            last_heard_ms,
        };
        let part = |name: &str, network: &str, held, protected_by: &[&str]| PartStatus {
            name: name.to_owned(),
            networks: vec![network.parse().unwrap()],
            members: Vec::new(),
            held,
            protected_by: protected_by.iter().map(|&member| member.to_owned()).collect(),
        };
        let rack = RackStatus {
            member: "east-1".to_owned(),
            members: vec![
                member("east-1", true, None),
                member("east-2", true, Some(40)),
                member("east-3", false, None),
            ],
            parts: vec![
                part("east-1", "10.81.2.0/25", true, &["east-1", "east-2"]),
                part("10.81.3.0/24", "10.81.3.0/24", false, &[]),
            ],
            ..RackStatus::default()
        };
        let mut text = String::new();
        rows(&mut text, &rack);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "rack              east-1 at 10.81.1.1:4702: this gateway",
                "east-2 at 10.81.1.1:4702: heard 40 ms ago",
                "east-3 at 10.81.1.1:4702: gone",
                "part              east-1 (10.81.2.0/25): protected by east-1, east-2, taken here",
                "UNPROTECTED       10.81.3.0/24: no member protects it",
            ]
        );
    }
}
