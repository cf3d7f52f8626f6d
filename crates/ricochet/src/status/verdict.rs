//! The verdict about a node on one line, and what happened in the last seconds, minutes and hour.

use foundation::windows::SPANS_S;
use serde::{Deserialize, Serialize};

use super::Status;
use crate::course::Published;

/// The verdict about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictStatus {
    /// `working`, `alone`, `degraded` or `failed`.
    pub state: String,
    /// Reason in snake case why the node is not `working`; null if it is.
    pub reason_id: Option<String>,
    /// The verdict as a line, such as `working: 7 other nodes, 1.02 % missing at first, none lost`.
    pub text: String,
}

/// Counts of a node in the last seconds, minutes or hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStatus {
    /// Length of the window in seconds.
    pub span_s: u64,
    /// Part of it that is known, in milliseconds: less after the start of the node.
    pub covered_ms: u64,
    /// Data packets sent.
    pub sent: u64,
    /// Data packets received, recovered from repairs or received on request.
    pub received: u64,
    /// Packets found missing.
    pub discovered: u64,
    /// Packets recovered from repairs.
    pub repaired: u64,
    /// Packets received on request.
    pub requested: u64,
    /// Packets given up as lost, but for those whose deadline had passed.
    pub lost: u64,
    /// Messages dropped because a subscription was not read fast enough.
    pub dropped: u64,
}

impl WindowStatus {
    /// Packets found missing per hundred that should have come; `None` if none should.
    pub fn missing_percent(&self) -> Option<f64> {
        let all = self.received + self.lost;
        (all > 0).then(|| self.discovered as f64 * 100.0 / all as f64)
    }
}

/// Returns the windows as the status shows them, the shortest first.
pub(super) fn windows(published: &Published) -> Vec<WindowStatus> {
    let window = |(window, span_s): (&foundation::windows::Window<crate::course::Tallied>, u64)| {
        let counts = window.counts;
        WindowStatus {
            span_s,
            covered_ms: window.covered_us / 1_000,
            sent: counts.sent,
            received: counts.received,
            discovered: counts.discovered,
            repaired: counts.repaired,
            requested: counts.requested,
            lost: counts.lost,
            dropped: counts.dropped,
        }
    };
    published.iter().zip(SPANS_S).map(window).collect()
}

/// Draws the verdict from all else that the status says. The worst finding counts.
pub(super) fn verdict(status: &Status) -> VerdictStatus {
    let of = |state: &str, reason_id: Option<&str>, text: String| VerdictStatus {
        state: state.to_owned(),
        reason_id: reason_id.map(str::to_owned),
        text: format!("{state}: {text}"),
    };
    let degraded = |reason_id: &str, text: String| of("degraded", Some(reason_id), text);
    if let Some(why) = &status.failed {
        return of("failed", Some("failed"), why.clone());
    }
    let window = status.windows.first().copied().unwrap_or_default();
    let seconds = window.covered_ms.div_ceil(1_000).max(1);
    let lately = format!("in the last {seconds} s");
    if let Some(group) = status.groups.iter().find(|group| group.order.as_ref().is_some_and(|of| of.stalled))
    {
        return degraded(
            "stalled",
            format!("no majority is heard or no order has begun, and messages of {} wait", group.name),
        );
    }
    if window.dropped > 0 {
        let text = format!("a subscription is read too slowly, {} messages dropped {lately}", window.dropped);
        return degraded("slow_reader", text);
    }
    if window.lost > 0 {
        return degraded("lost", format!("{} packets lost for good {lately}", window.lost));
    }
    let differing = status.peers.iter().filter(|peer| !peer.settings_differ.is_empty()).count();
    if differing > 0 {
        return degraded("settings_differ", format!("{} with other settings", nodes(differing)));
    }
    if let Some(why) = status.key_error.as_ref().or(status.member_file_error.as_ref()) {
        return degraded("file", why.clone());
    }
    if status.registry.as_ref().is_some_and(|registry| !registry.reached) {
        return degraded("registry", "the registry of the members is not reached".to_owned());
    }
    if status.peers.is_empty() {
        return of("alone", Some("alone"), "no other node is known".to_owned());
    }
    let missing = match window.missing_percent() {
        None => "nothing received",
        Some(0.0) => "nothing missing",
        Some(share) => &format!("{share:.2} % missing at first, none lost"),
    };
    of("working", None, format!("{}, {missing} {lately}", other(status.peers.len())))
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

fn other(count: usize) -> String {
    if count == 1 { "1 other node".to_owned() } else { format!("{count} other nodes") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{GroupStatus, PeerStatus, TotalStatus};

    fn peer() -> PeerStatus {
        PeerStatus {
            id: "a".to_owned(),
            address: "10.0.0.1:1".parse().unwrap(),
            groups: 1,
            dealings: None,
            settings_differ: Vec::new(),
            hears_no_multicast: false,
            multicast_unheard: false,
        }
    }

    fn working() -> Status {
        let window = WindowStatus { span_s: 10, covered_ms: 9_400, received: 990, ..WindowStatus::default() };
        Status { peers: vec![peer(), peer()], windows: vec![window], ..Status::default() }
    }

    #[test]
    fn a_node_that_recovers_everything_is_working() {
        let mut status = working();
        assert_eq!(verdict(&status).text, "working: 2 other nodes, nothing missing in the last 10 s");
        status.windows[0].discovered = 10;
        let text = "working: 2 other nodes, 1.01 % missing at first, none lost in the last 10 s";
        assert_eq!((verdict(&status).state.as_str(), verdict(&status).text.as_str()), ("working", text));
        status.windows.clear();
        assert_eq!(verdict(&status).text, "working: 2 other nodes, nothing received in the last 1 s");
    }

    #[test]
    fn the_worst_finding_is_the_verdict() {
        let mut status = Status::default();
        let mut seen = vec![verdict(&status).reason_id.unwrap()];
        status = working();
        status.key_error = Some("the key file cannot be read".to_owned());
        seen.extend(verdict(&status).reason_id);
        status.peers[0].settings_differ.push("c is 3, and 4 here".to_owned());
        seen.extend(verdict(&status).reason_id);
        status.windows[0].lost = 2;
        seen.extend(verdict(&status).reason_id);
        status.windows[0].dropped = 7;
        seen.extend(verdict(&status).reason_id);
        let order = Some(TotalStatus { stalled: true, ..TotalStatus::default() });
        status.groups.push(GroupStatus { name: "prices".to_owned(), order, ..GroupStatus::default() });
        assert_eq!(
            verdict(&status).text,
            "degraded: no majority is heard or no order has begun, and messages of prices wait"
        );
        seen.extend(verdict(&status).reason_id);
        status.failed = Some("it has panicked".to_owned());
        seen.extend(verdict(&status).reason_id);
        assert_eq!(seen, ["alone", "file", "settings_differ", "lost", "slow_reader", "stalled", "failed"]);
    }
}
