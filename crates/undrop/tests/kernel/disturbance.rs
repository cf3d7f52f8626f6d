//! Effects of a busy machine on a pair of gateways, as far as the gateways count them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use maelstrom::status::Status;
use netlab::traffic::UdpReport;
use stage::gateways::GatewayPair;

/// Counters of a gateway that rise when the machine gives it too little time. A loss that happens meanwhile
/// may stay.
const DISTURBANCES: [&str; 6] = ["tap_dropped", "pauses", "stalls", "socket_full", "inbox_full", "unsent"];

/// Reasons for which packets are not recovered while a path or a flow is in doubt. On a link that loses
/// packets, the first losses may by chance hit no repair, and raise a doubt that passes
/// (maelstrom-core/src/ingress/path/account.rs).
const DOUBTS: [&str; 2] = ["unexplained", "lossy_flow"];

/// Time for which a stream is repeated. A machine that is busy for longer than this fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `stream` until it was disturbed in neither gateway, or until the patience is over, and returns the
/// last report. Prints what disturbed the streams before.
#[expect(clippy::disallowed_methods, reason = "not a core: bounds a test on the real clock")]
pub(crate) fn undisturbed(pair: &GatewayPair, mut stream: impl FnMut() -> UdpReport) -> UdpReport {
    let began = Instant::now();
    let mut before = counts(pair);
    loop {
        let report = stream();
        let now = counts(pair);
        if now == before || began.elapsed() > PATIENCE {
            return report;
        }
        let risen: Vec<_> = now.iter().filter(|(what, count)| before.get(*what) != Some(count)).collect();
        println!(
            "repeated, {} of {} packets were missing: {risen:?}",
            report.missing(),
            report.sent_us.len()
        );
        before = now;
    }
}

fn counts(pair: &GatewayPair) -> BTreeMap<(usize, &'static str), u64> {
    let statuses = [0, 1].map(|side| (side, pair.status(side).unwrap()));
    statuses
        .iter()
        .flat_map(|(side, status)| of(status).map(|(what, count)| ((*side, what), count)))
        .collect()
}

fn of(status: &Status) -> impl Iterator<Item = (&'static str, u64)> {
    let peer = &status.peers[0];
    let others = [
        ("shed", status.not_protected["overload"]),
        ("doubted", DOUBTS.map(|reason| peer.ingress.withheld[reason]).iter().sum()),
        ("left to senders", peer.ingress.congestion.left),
        ("blind", peer.ingress.unused_repairs["blind"]),
        ("beyond repair", peer.ingress.unused_repairs["beyond_repair"]),
        ("sessions", peer.sessions),
    ];
    DISTURBANCES.map(|reason| (reason, status.counters[reason])).into_iter().chain(others)
}

/// Asserts that the gateway of `side` saw the second arrival of each packet that was delivered twice since it
/// started.
///
/// On a busy machine a packet may arrive later than its repair waits, and is then recovered and delivered:
/// that is the cost of recovering quickly (maelstrom-core/src/held.rs). A packet that was recovered because
/// the gateway overlooked it is delivered twice as well, but the gateway never learns of it.
pub(crate) fn assert_duplicates_arrived_late(pair: &GatewayPair, side: usize, duplicates: u64) {
    let ingress = pair.status(side).unwrap().peers[0].ingress.clone();
    assert!(
        duplicates <= ingress.after_recovery,
        "{duplicates} arrived twice, {} of them after their recovery; {} late, repairs wait {} us",
        ingress.after_recovery,
        ingress.late,
        ingress.repair_wait_us
    );
}
