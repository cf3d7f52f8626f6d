//! The verdict about each peer, the last seconds, minutes and hour, and the latest events as text.

use std::fmt::Write as _;

use maelstrom::status::{EventStatus, FateStatus, HealthStatus, PeerStatus, WindowStatus};

use super::table::{duration, number, row};

/// Reasons of a gateway itself of which the table says more in lines of their own.
const TOLD_ELSEWHERE: [&str; 3] = ["injection_by_tun", "no_tap", "part_unprotected"];

/// Maximum number of events that are shown; the JSON has more.
const EVENTS_SHOWN: usize = 5;

/// Appends a line for each reason why the gateway itself is not healthy.
pub(super) fn own_reasons(text: &mut String, health: &HealthStatus) {
    let told_here = |id: &str| !TOLD_ELSEWHERE.contains(&id);
    for reason in health.own_reasons().filter(|reason| told_here(&reason.id)) {
        let _ = writeln!(text, "{}: {}", reason.id.replace('_', " ").to_uppercase(), reason.text);
    }
}

/// Appends the verdict about a peer, and the reasons why it is not protected.
pub(super) fn verdict(text: &mut String, peer: &PeerStatus) {
    let reasons: Vec<&str> = peer.health.reasons.iter().map(|reason| reason.text.as_str()).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    row(text, "verdict", &format!("{}: {}{reasons}", peer.label(), peer.health.text));
}

/// Appends a line for each window.
pub(super) fn windows(text: &mut String, windows: &[WindowStatus]) {
    for (at, window) in windows.iter().filter(|window| window.covered_ms > 0).enumerate() {
        let title = if at == 0 { "lately" } else { "" };
        let span = match window.span_s {
            seconds if seconds < 60 => format!("{seconds} s"),
            seconds if seconds < 3_600 => format!("{} min", seconds / 60),
            seconds => format!("{} h", seconds / 3_600),
        };
        let repairs = match window.repairs_lost_percent {
            lost if lost >= 0.005 => format!(", {lost:.2} % of repairs lost"),
            _ => String::new(),
        };
        let delay =
            window.recovery_delay_us.map_or(String::new(), |us| format!(", +{:.1} ms", us as f64 / 1e3));
        let shown = format!(
            "{span:>6}: in {}, lost {}; out {}, lost {}; overhead {:.1} %{repairs}{delay}",
            rate(window.received_bits_per_s),
            fates(&window.here),
            rate(window.sent_bits_per_s),
            fates(&window.there),
            window.overhead_percent
        );
        row(text, title, &shown);
    }
}

/// Appends the latest events.
pub(super) fn events(text: &mut String, events: &[EventStatus]) {
    let shown = &events[events.len().saturating_sub(EVENTS_SHOWN)..];
    for (at, event) in shown.iter().enumerate() {
        let title = if at == 0 { "events" } else { "" };
        let peer = event.peer.as_ref().map_or(String::new(), |peer| format!("{peer}: "));
        row(text, title, &format!("{} ago: {peer}{}", duration(event.ago_ms / 1_000), event.text));
    }
}

fn fates(fates: &FateStatus) -> String {
    if fates.lost == 0 {
        return "none".to_owned();
    }
    match fates.residual {
        0 => format!("{:.2} %", fates.loss_percent),
        residual => format!("{:.2} %, {} for good", fates.loss_percent, number(residual)),
    }
}

fn rate(bits_per_s: f64) -> String {
    match bits_per_s {
        1e9.. => format!("{:.1} Gbit/s", bits_per_s / 1e9),
        1e6.. => format!("{:.1} Mbit/s", bits_per_s / 1e6),
        _ => format!("{:.0} kbit/s", bits_per_s / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_events_are_lines() {
        let lossy = FateStatus { packets: 1_000, lost: 20, loss_percent: 2.0, ..FateStatus::default() };
        let window = |span_s| WindowStatus {
            span_s,
            covered_ms: 1,
            received_bits_per_s: 12_340_000.0,
            sent_bits_per_s: 800.0,
            overhead_percent: 14.2,
            here: FateStatus { residual: 3, ..lossy },
            recovery_delay_us: Some(2_540),
            ..WindowStatus::default()
        };
        let mut text = String::new();
        windows(&mut text, &[window(10), window(300), WindowStatus { covered_ms: 0, ..window(3_600) }]);
        let event = |number| EventStatus {
            number,
            ago_ms: 61_000,
            peer: Some("osaka".to_owned()),
            text: "the session was renewed".to_owned(),
            ..EventStatus::default()
        };
        events(&mut text, &(0..7).map(event).collect::<Vec<_>>());
        let line =
            "in 12.3 Mbit/s, lost 2.00 %, 3 for good; out 1 kbit/s, lost none; overhead 14.2 %, +2.5 ms";
        let news = "1 min 1 s ago: osaka: the session was renewed";
        let mut expected = format!("  lately              10 s: {line}\n{:21}5 min: {line}\n", "");
        expected += &format!("  events            {news}\n");
        expected += &format!("{:20}{news}\n", "").repeat(4);
        assert_eq!(text, expected);
        let mut text = String::new();
        windows(&mut text, &[WindowStatus { repairs_lost_percent: 1.254, ..window(10) }]);
        assert!(text.contains("overhead 14.2 %, 1.25 % of repairs lost, +2.5 ms"), "{text}");
    }
}
