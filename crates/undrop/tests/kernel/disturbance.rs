//! Effects of a busy machine on a pair of gateways, as far as the gateways count them.

use netlab::traffic::UdpReport;
use stage::gateways::GatewayPair;

/// Counters of a gateway that rise when the machine gives it too little time. A loss that happens meanwhile
/// may stay.
const DISTURBANCES: [&str; 5] = ["tap_dropped", "pauses", "stalls", "inbox_full", "unsent"];

/// Reason for which packets are not recovered while a path is in doubt. On a link that loses packets, the
/// first losses may by chance hit no repair, and raise a doubt that passes
/// (maelstrom-core/src/ingress/path/account.rs).
const DOUBT: &str = "unexplained";

/// Runs `stream` until it was disturbed in neither gateway, or five times, and returns the last report.
pub(crate) fn undisturbed(pair: &GatewayPair, mut stream: impl FnMut() -> UdpReport) -> UdpReport {
    let mut disturbances = count(pair);
    for _ in 0..4 {
        let report = stream();
        let now = count(pair);
        if now == disturbances {
            return report;
        }
        disturbances = now;
    }
    stream()
}

fn count(pair: &GatewayPair) -> u64 {
    let statuses = [0, 1].map(|side| pair.status(side).unwrap());
    let disturbed = statuses.iter().flat_map(|status| DISTURBANCES.map(|reason| status.counters[reason]));
    let shed = statuses.iter().map(|status| status.not_protected["overload"]);
    let doubted = statuses.iter().map(|status| status.peers[0].ingress.withheld[DOUBT]);
    let lagged = statuses.iter().map(|status| status.peers[0].ingress.unused_repairs["blind"]);
    disturbed.chain(shed).chain(doubted).chain(lagged).sum()
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
