//! Metrics of the paths to peers that have several.

use daemon::openmetrics::{Exposition, Kind};

use crate::status::{PathDirection, PeerStatus, TunnelPath};

/// A family of one sample for each path: its name, type, help, and the value.
type OfPath = (&'static str, Kind, &'static str, fn(&TunnelPath) -> Option<f64>);
/// A family of one sample for each path and direction.
type OfDirection = (&'static str, Kind, &'static str, fn(&PathDirection) -> f64);

const OF_PATHS: [OfPath; 3] = [
    ("undrop_gateway_path_alive", Kind::Gauge, "Whether one of several paths to the peer lives.", |path| {
        Some(f64::from(u8::from(path.alive)))
    }),
    ("undrop_gateway_path_rtt_seconds", Kind::Gauge, "Round-trip time of a path, on average.", |path| {
        path.rtt_us.map(|us| us as f64 / 1e6)
    }),
    ("undrop_gateway_path_deaths", Kind::Counter, "Number of times that a path has died.", |path| {
        Some(path.deaths as f64)
    }),
];

const OF_DIRECTIONS: [OfDirection; 5] = [
    ("undrop_gateway_path_packets", Kind::Counter, "Datagrams with packets on a path.", |way| {
        way.packets as f64
    }),
    ("undrop_gateway_path_repairs", Kind::Counter, "Datagrams with repairs on a path.", |way| {
        way.repairs as f64
    }),
    ("undrop_gateway_path_bytes", Kind::Counter, "Bytes of all datagrams on a path.", |way| way.bytes as f64),
    ("undrop_gateway_path_lost", Kind::Counter, "Datagrams that did not arrive on a path.", |way| {
        way.lost as f64
    }),
    (
        "undrop_gateway_path_loss_ratio",
        Kind::Gauge,
        "Share of the datagrams of the last seconds that did not arrive on a path.",
        |way| way.loss_percent / 100.0,
    ),
];

pub(super) fn write(out: &mut Exposition, peers: &[(&str, &PeerStatus)]) {
    let each = |sample: &mut dyn FnMut(&str, &str, &TunnelPath)| {
        for (label, peer) in peers {
            let paths = peer.egress.tunnel.iter().flat_map(|tunnel| &tunnel.paths);
            for (number, path) in (1..).zip(paths) {
                sample(label, &i32::to_string(&number), path);
            }
        }
    };
    for (name, kind, help, value) in OF_PATHS {
        let mut family = out.family(name, kind, help);
        each(&mut |peer, number, path| {
            if let Some(value) = value(path) {
                family.sample(&[("peer", peer), ("path", number)], value);
            }
        });
    }
    for (name, kind, help, value) in OF_DIRECTIONS {
        let mut family = out.family(name, kind, help);
        each(&mut |peer, number, path| {
            for (direction, way) in [("in", &path.received), ("out", &path.sent)] {
                let labels = [("peer", peer), ("path", number), ("direction", direction)];
                family.sample(&labels, value(way));
            }
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A path of which each count differs.
    pub(in crate::metrics) fn path() -> TunnelPath {
        let way = |lost, loss_percent| PathDirection {
            packets: 1,
            repairs: 2,
            datagrams: 3,
            bytes: 4,
            bps: 5,
            lost,
            loss_percent,
        };
        TunnelPath {
            address: "10.0.0.1:4700".parse().unwrap(),
            alive: true,
            used: true,
            rtt_us: Some(20_000),
            deaths: 6,
            sent: way(18, 2.0),
            received: way(19, 5.0),
            copies: 7,
        }
    }
}
