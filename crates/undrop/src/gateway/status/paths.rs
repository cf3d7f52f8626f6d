//! Several paths to a peer in the table of the status.

use maelstrom::status::{PathDirection, TunnelPath, TunnelStatus};

use super::table::row;

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
