//! The screen of a node.

use std::fmt::Write as _;

use ricochet::status::Status;

use super::cells::{count, cut, fit, time};
use crate::gateway::duration;

/// Maximum number of groups.
const GROUPS_SHOWN: usize = 20;

/// Renders the status: the busiest groups first.
pub(super) fn render(status: &Status) -> String {
    let address = status.address.map_or_else(|| "?".to_owned(), |address| address.to_string());
    let mut lines = vec![format!(
        "node at {address} on {}, up {}: {} other nodes, {} groups",
        status.interface.name,
        duration(status.uptime_ms / 1_000),
        status.peers.len(),
        status.groups.len()
    )];
    lines.extend(status.failed.iter().map(|why| format!("! FAILED: {why}")));
    let dropped: u64 = status.subscriptions.iter().map(|one| one.counts.dropped).sum();
    if dropped > 0 {
        lines.push(format!("! readers are too slow: {} messages dropped", count(dropped)));
    }
    lines.push(String::new());
    lines.push(format!(
        "{:<26}{:>5} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6}",
        "GROUP, SINCE THE START", "NODES", "SENT", "RECEIVED", "REPAIRED", "REQUESTD", "LOST", "P50"
    ));
    let mut groups: Vec<_> = status.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.reception.data.packets + group.sent.packets));
    for group in groups.iter().take(GROUPS_SHOWN) {
        let reception = &group.reception;
        lines.push(format!(
            "{:<26}{:>5} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6}",
            cut(&group.name, 25),
            group.members,
            count(group.sent.packets),
            count(reception.data.packets),
            count(reception.repaired),
            count(reception.requested),
            count(reception.lost),
            reception.latency.p50_us.map_or("-".to_owned(), time),
        ));
    }
    if groups.len() > GROUPS_SHOWN {
        lines.push(format!("and {} more", groups.len() - GROUPS_SHOWN));
    }
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", fit(line).trim_end());
        text
    })
}

#[cfg(test)]
mod tests {
    use ricochet::status::{GroupStatus, LatencyStatus, ReceptionStatus, VolumeStatus};

    use super::super::cells::WIDTH;
    use super::*;

    #[test]
    fn a_node_fits_on_80_columns_and_shows_its_busiest_groups() {
        let group = |name: String, packets| GroupStatus {
            name,
            members: 3,
            reception: ReceptionStatus {
                data: VolumeStatus { packets, bytes: 0 },
                repaired: 20,
                latency: LatencyStatus { p50_us: Some(3_200), ..LatencyStatus::default() },
                ..ReceptionStatus::default()
            },
            ..GroupStatus::default()
        };
        let mut groups: Vec<_> = (0..25).map(|n| group(format!("quiet/{n}"), n)).collect();
        groups.push(group("prices/AAPL".to_owned(), 2_000_000));
        groups.push(group("x".repeat(64), 99));
        let status = Status {
            uptime_ms: 61_000,
            address: "10.0.0.7:7900".parse().ok(),
            groups,
            failed: Some("y".repeat(90)),
            ..Status::default()
        };
        let shown = render(&status);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        let busiest = "prices/AAPL                   3       0     2.0M       20        0      0  3.2ms\n";
        let (_, table) = shown.split_once("P50\n").unwrap();
        assert!(table.starts_with(busiest), "{shown}");
        assert!(shown.ends_with("and 7 more\n") && !shown.contains("quiet/0 "), "{shown}");
        assert!(
            shown.starts_with("node at 10.0.0.7:7900 on , up 1 min 1 s: 0 other nodes, 27 groups\n! FAILED")
        );
    }
}
