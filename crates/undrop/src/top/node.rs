//! The screen of a node.

use std::collections::HashMap;
use std::fmt::Write as _;

use ricochet::status::{GroupStatus, Status};

use super::cells::{count, cut, fit, per_second, time};
use crate::gateway::duration;

/// Maximum number of groups.
const GROUPS_SHOWN: usize = 20;

/// Events in a group between two statuses.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    sent: u64,
    received: u64,
    missing: u64,
    lost: u64,
}

impl Change {
    /// Returns the change from one status of a group to a later one. A group that is new has begun at 0, and
    /// so has one that the node left and joined again.
    fn between(before: Option<&GroupStatus>, after: &GroupStatus) -> Self {
        let grown = |value: fn(&GroupStatus) -> u64| {
            let (before, after) = (before.map_or(0, value), value(after));
            after.checked_sub(before).unwrap_or(after)
        };
        Self {
            sent: grown(|group| group.messages_sent),
            received: grown(|group| group.reception.messages),
            missing: grown(|group| group.reception.discovered),
            lost: grown(|group| group.reception.lost),
        }
    }
}

/// Renders the status in a number of rows: the busiest groups first. Rates are those since an earlier status
/// of the same node.
pub(super) fn render(rows: usize, status: &Status, before: Option<&Status>) -> String {
    let before = before.filter(|before| before.id == status.id && before.uptime_ms < status.uptime_ms);
    let seconds = before.map(|before| (status.uptime_ms - before.uptime_ms) as f64 / 1e3);
    let known: HashMap<&str, &GroupStatus> =
        before.into_iter().flat_map(|before| &before.groups).map(|group| (&*group.name, group)).collect();
    let mut groups: Vec<(&GroupStatus, Change)> = status
        .groups
        .iter()
        .map(|group| (group, Change::between(known.get(&*group.name).copied(), group)))
        .collect();
    let mut lines = head(status);
    let lost: u64 = groups.iter().map(|(_, change)| change.lost).sum();
    if seconds.is_some() && lost > 0 {
        lines.push(format!("! {} packets were lost for good since the last look", count(lost)));
    }
    lines.push(String::new());
    lines.push(format!(
        "{:<25}{:>5} {:>7} {:>7} {:>7} {:>9} {:>6} {:>7}",
        "GROUP", "NODES", "SENT/s", "RECV/s", "MISS/s", "RECOVERED", "LOST", "P99"
    ));
    // By what happened lately, and then by all that has happened.
    groups.sort_by_key(|(group, change)| {
        let lately = if seconds.is_some() { change.sent + change.received } else { 0 };
        std::cmp::Reverse((lately, group.messages_sent + group.reception.messages))
    });
    let room = rows.saturating_sub(lines.len());
    // One row tells of the others.
    let room = if groups.len() > room { room.saturating_sub(1) } else { room };
    let shown = groups.len().min(room).min(GROUPS_SHOWN);
    for (group, change) in &groups[..shown] {
        let reception = &group.reception;
        let rate =
            |events: u64| seconds.map_or("-".to_owned(), |seconds| per_second(events as f64 / seconds));
        lines.push(format!(
            "{:<25}{:>5} {:>7} {:>7} {:>7} {:>9} {:>6} {:>7}",
            cut(&group.name, 24),
            group.members,
            rate(change.sent),
            rate(change.received),
            rate(change.missing),
            count(reception.repaired + reception.requested),
            count(reception.lost),
            reception.latency.p99_us.map_or("-".to_owned(), time),
        ));
    }
    if groups.len() > shown {
        lines.push(format!("and {} more", groups.len() - shown));
    }
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", fit(line).trim_end());
        text
    })
}

/// Returns the lines about the node itself.
fn head(status: &Status) -> Vec<String> {
    let address = status.address.map_or_else(|| "?".to_owned(), |address| address.to_string());
    let mut lines = vec![format!(
        "node at {address} on {}, up {}: {} other nodes, {} groups",
        status.interface.name,
        duration(status.uptime_ms / 1_000),
        status.peers.len(),
        status.groups.len()
    )];
    if ["degraded", "failed"].contains(&status.verdict.state.as_str()) {
        lines.push(format!("! {}", status.verdict.text));
    }
    let dropped: u64 = status.subscriptions.iter().map(|one| one.counts.dropped).sum();
    if dropped > 0 {
        lines.push(format!("! readers are too slow: {} messages dropped", count(dropped)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use ricochet::status::{LatencyStatus, ReceptionStatus, VerdictStatus};

    use super::super::cells::WIDTH;
    use super::*;

    fn group(name: String, messages: u64) -> GroupStatus {
        GroupStatus {
            name,
            members: 3,
            messages_sent: messages / 10,
            reception: ReceptionStatus {
                messages,
                discovered: messages / 100,
                repaired: 20,
                requested: 5,
                latency: LatencyStatus { p99_us: Some(3_200), ..LatencyStatus::default() },
                ..ReceptionStatus::default()
            },
            ..GroupStatus::default()
        }
    }

    fn status(uptime_ms: u64, groups: Vec<GroupStatus>) -> Status {
        let address = "10.0.0.7:7900".parse().ok();
        Status { id: "n7".to_owned(), uptime_ms, address, groups, ..Status::default() }
    }

    /// Rows of a screen without an end.
    const ALL: usize = usize::MAX;

    fn table(shown: &str) -> &str {
        shown.split_once("P99\n").unwrap().1
    }

    #[test]
    fn a_node_fits_on_80_columns_and_shows_its_busiest_groups() {
        let mut groups: Vec<_> = (0..25).map(|n| group(format!("quiet/{n}"), n)).collect();
        groups.push(group("prices/AAPL".to_owned(), 2_000_000));
        groups.push(group("x".repeat(64), 99));
        let verdict = VerdictStatus {
            state: "failed".to_owned(),
            text: format!("failed: {}", "y".repeat(90)),
            ..VerdictStatus::default()
        };
        let status = Status { verdict, ..status(61_000, groups) };
        let low = render(12, &status, None);
        assert!(low.lines().count() == 12 && low.ends_with("and 20 more\n"), "{low}");
        let shown = render(ALL, &status, None);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        let busiest = "prices/AAPL                  3       -       -       -        25      0   3.2ms\n";
        assert!(table(&shown).starts_with(busiest), "{shown}");
        assert!(shown.ends_with("and 7 more\n") && !shown.contains("quiet/0 "), "{shown}");
        assert!(
            shown.starts_with(
                "node at 10.0.0.7:7900 on , up 1 min 1 s: 0 other nodes, 27 groups\n! failed: y"
            )
        );
    }

    #[test]
    fn rates_are_those_since_the_last_look_at_the_same_node() {
        let names =
            |all: [(&str, u64); 2]| all.map(|(name, messages)| group(name.to_owned(), messages)).to_vec();
        let before = status(10_000, names([("old", 2_000_000), ("busy", 1_000)]));
        let mut after = status(12_000, names([("old", 2_000_000), ("busy", 4_000)]));
        let shown = render(ALL, &after, Some(&before));
        let busiest = "busy                         3     150    1500      15        25      0   3.2ms\n";
        assert!(table(&shown).starts_with(busiest) && !shown.contains('!'), "{shown}");
        assert!(table(&shown).contains("old                          3       0       0       0 "), "{shown}");
        after.groups[1].reception.lost = 7;
        assert!(render(ALL, &after, Some(&before)).contains("! 7 packets were lost for good"));
        // A group that the node has left and joined again begins at 0.
        after.groups[1] = group("busy".to_owned(), 200);
        let shown = render(ALL, &after, Some(&before));
        let first: Vec<&str> = table(&shown).lines().next().unwrap().split_whitespace().collect();
        assert_eq!(first[..5], ["busy", "3", "10", "100", "1.0"], "{shown}");
        // A node that has started again has other counts.
        after.id = "n8".to_owned();
        assert!(table(&render(ALL, &after, Some(&before))).contains(" - "), "no rates");
    }
}
