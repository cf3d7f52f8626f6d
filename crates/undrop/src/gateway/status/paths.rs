//! A tunnel in the table of the status: several paths to a peer, and packets that are put in order.

use maelstrom::status::{PathDirection, ResequenceStatus, TunnelPath, TunnelStatus};

use super::table::{number, row};

/// Appends what was held, if anything was.
pub(super) fn order(text: &mut String, order: &ResequenceStatus) {
    let ResequenceStatus { limit_ms, waiting, held, by_time, by_room, late, dropped } = *order;
    if held + late + dropped == 0 {
        return;
    }
    let mut shown = format!("{} packets held for up to {limit_ms} ms", number(held));
    for (count, what) in [
        (waiting, "now"),
        (by_time, "until the time was up"),
        (by_room, "until there was no room"),
        (late, "after later ones"),
        (dropped, "dropped"),
    ] {
        if count > 0 {
            shown += &format!(", {} {what}", number(count));
        }
    }
    row(text, "order", &shown);
}

/// Returns what becomes of the packets when the gateway fails.
pub(super) fn fate(fail: Option<&str>) -> &'static str {
    match fail {
        Some("closed") => "; unreachable if the gateway fails",
        Some(_) => "; IN THE CLEAR if the gateway fails",
        None => "",
    }
}

/// Appends a line for each path, if there are several.
pub(super) fn rows(text: &mut String, tunnel: &TunnelStatus) {
    for (index, path) in tunnel.paths.iter().enumerate() {
        row(text, &format!("path {}", index + 1), &line(path));
    }
}

fn line(path: &TunnelPath) -> String {
    let state = match (path.alive, path.used) {
        (false, _) => "DEAD",
        (true, true) => "lives, packets take it",
        (true, false) => "lives",
    };
    let rtt = path.rtt_us.map(|us| format!(", {:.1} ms", us as f64 / 1e3)).unwrap_or_default();
    let deaths = match path.deaths {
        0 => String::new(),
        1 => "; died once".to_owned(),
        count => format!("; died {count} times"),
    };
    let (sent, received) = (way(&path.sent), way(&path.received));
    format!("{}: {state}{rtt}; sent {sent}; received {received}{deaths}", path.address)
}

fn way(way: &PathDirection) -> String {
    format!("{:.1} Mbit/s, {:.1} % lost", way.bps as f64 / 1e6, way.loss_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_were_held_are_one_line() {
        let mut text = String::new();
        order(&mut text, &ResequenceStatus { limit_ms: 40, ..ResequenceStatus::default() });
        let counts = ResequenceStatus { limit_ms: 40, held: 120, by_time: 2, late: 1, ..Default::default() };
        order(&mut text, &counts);
        assert_eq!(
            text,
            "  order             120 packets held for up to 40 ms, 2 until the time was up, 1 after later ones\n"
        );
    }

    #[test]
    fn only_a_tunnel_whose_routes_are_set_tells_what_a_failure_does() {
        assert_eq!(fate(None), "");
        assert_eq!(fate(Some("closed")), "; unreachable if the gateway fails");
        assert_eq!(fate(Some("open")), "; IN THE CLEAR if the gateway fails");
    }

    #[test]
    fn a_path_is_one_line() {
        let way = |bps, loss_percent| PathDirection {
            packets: 1,
            repairs: 2,
            datagrams: 3,
            bytes: 4,
            bps,
            lost: 0,
            loss_percent,
        };
        let first = TunnelPath {
            address: "10.81.9.2:4700".parse().unwrap(),
            alive: true,
            used: true,
            rtt_us: Some(20_140),
            deaths: 0,
            sent: way(12_340_000, 4.87),
            received: way(0, 0.0),
            copies: 0,
        };
        let second = TunnelPath { alive: false, used: false, rtt_us: None, deaths: 2, ..first.clone() };
        let mut text = String::new();
        rows(&mut text, &TunnelStatus { paths: vec![first, second], ..TunnelStatus::default() });
        assert_eq!(
            text,
            "  path 1            10.81.9.2:4700: lives, packets take it, 20.1 ms; sent 12.3 Mbit/s, 4.9 % lost; \
             received 0.0 Mbit/s, 0.0 % lost\n  path 2            10.81.9.2:4700: DEAD; sent 12.3 Mbit/s, 4.9 % lost; \
             received 0.0 Mbit/s, 0.0 % lost; died 2 times\n"
        );
    }
}
