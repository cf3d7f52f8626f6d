//! IP groups that cross tunnels, as text.

use maelstrom::status::reasons::Unforwarded;
use maelstrom::status::{MulticastStatus, Status, WantedStatus};

use super::table::{bytes, number, reasons, row};

/// Appends the sections, and what far sites want.
pub(super) fn rows(text: &mut String, status: &Status) {
    for section in &status.multicast {
        row(text, "multicast", &of_section(section));
        if section.wanted == "members" {
            row(text, "  members here", &first_of(&section.members, section.member_groups, "of no group"));
        }
        let (sent, received) = (section.forwarded, section.received);
        let copies =
            if section.sent == sent { String::new() } else { format!(" ({} copies)", number(section.sent)) };
        row(
            text,
            "  to far sites",
            &format!("{} packets{copies}, {}", number(sent), bytes(section.forwarded_bytes)),
        );
        row(
            text,
            "  from far sites",
            &format!("{} packets, {}", number(received), bytes(section.received_bytes)),
        );
        for (title, count) in [("  not sent", section.unsent), ("  not read", section.unheard)] {
            if count > 0 {
                row(text, title, &format!("{} packets", number(count)));
            }
        }
        reasons::<Unforwarded>(text, "  not crossed", &section.dropped);
    }
    for wanted in &status.wanted_groups {
        row(text, "wanted", &format!("by {}: {}", wanted.peer, of_wanted(wanted)));
    }
}

fn of_section(section: &MulticastStatus) -> String {
    let groups: Vec<String> = section.groups.iter().map(ToString::to_string).collect();
    let state = if section.open { "" } else { ": THE INTERFACE CANNOT BE USED" };
    format!("{} on {}{state}", groups.join(", "), section.interface)
}

fn of_wanted(wanted: &WantedStatus) -> String {
    let refused = match wanted.refused {
        0 => String::new(),
        count => format!("; no room for {} announcements", number(count)),
    };
    format!("{}{refused}", first_of(&wanted.groups, wanted.count, "no group"))
}

/// The first of some groups, and the number of the others.
fn first_of<T: ToString>(groups: &[T], count: u64, none: &str) -> String {
    let first: Vec<String> = groups.iter().take(8).map(ToString::to_string).collect();
    match count.saturating_sub(first.len() as u64) {
        _ if first.is_empty() => none.to_owned(),
        0 => first.join(", "),
        further => format!("{} and {} more", first.join(", "), number(further)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_what_far_sites_want_have_their_lines() {
        let section = MulticastStatus {
            interface: "lan0".to_owned(),
            open: true,
            groups: vec!["239.1.0.0/16".parse().unwrap()],
            forwarded: 1_200,
            forwarded_bytes: 120_000,
            sent: 2_400,
            received: 7,
            received_bytes: 700,
            unsent: 0,
            unheard: 3,
            dropped: [("expiring".to_owned(), 5)].into(),
            ..MulticastStatus::default()
        };
        let closed = MulticastStatus { open: false, groups: Vec::new(), ..MulticastStatus::default() };
        let group = |text: &str| text.parse().unwrap();
        let wanted = WantedStatus {
            peer: "osaka".to_owned(),
            groups: (0..9).map(|n| group(&format!("239.1.0.{n}/32"))).collect(),
            count: 120,
            refused: 0,
        };
        let none = WantedStatus { peer: "tokyo".to_owned(), ..WantedStatus::default() };
        let status = Status {
            multicast: vec![section, closed],
            wanted_groups: vec![wanted, none],
            ..Status::default()
        };
        let mut text = String::new();
        rows(&mut text, &status);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "multicast         239.1.0.0/16 on lan0");
        assert_eq!(lines[1], "to far sites    1,200 packets (2,400 copies), 120.0 kB");
        assert!(lines[3].contains("not read") && lines[4].ends_with("time to live ends here"), "{text}");
        assert!(lines[5].ends_with("THE INTERFACE CANNOT BE USED"), "{text}");
        let osaka = lines.iter().find(|line| line.contains("by osaka")).unwrap();
        assert!(osaka.ends_with("239.1.0.7/32 and 112 more"), "{osaka}");
        assert!(text.contains("by tokyo: no group"), "{text}");
    }
}
