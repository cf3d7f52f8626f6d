//! The screen of a gateway.

use std::fmt::Write as _;

use maelstrom::losses::{Losses, PeerLosses};
use maelstrom::status::{
    EventStatus, FateStatus, MemberStatus, PeerStatus, RackStatus, Status, WindowStatus,
};

use super::cells::{bars, cut, fit, percent, rate, time};
use crate::gateway::duration;

/// Number of minutes in the picture of losses.
const MINUTES: usize = 60;
/// Maximum number of lengths of bursts.
const BURSTS_SHOWN: usize = 6;
/// Maximum number of events.
const EVENTS_SHOWN: usize = 5;

/// Renders the status in a number of rows, with the record of losses if it can be read.
pub(super) fn render_in(rows: usize, status: &Status, losses: Option<&Losses>) -> String {
    let gateway = &status.gateway;
    let head =
        format!("gateway on {}, up {}: {}", gateway.wans(), duration(gateway.uptime_s), status.health.text);
    let mut lines = vec![head];
    // Parts that nobody protects have a line with those of the rack.
    let own = status.health.own_reasons().filter(|reason| reason.id != "part_unprotected");
    lines.extend(own.map(|reason| format!("  ! {}", reason.text)));
    lines.push(String::new());
    lines.push(format!(
        "{:<20}{:>4} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8}",
        "PEER, LAST 10 s", "", "BIT/S", "LOST %", "RECOV %", "STAY %", "DELAY", "OVER %"
    ));
    let mut peers: Vec<Block<'_>> = status.peers.iter().map(|peer| (peer, of_peer(peer, losses))).collect();
    let rack: Vec<String> = status.rack.iter().flat_map(rack).collect();
    let events = &status.events[status.events.len().saturating_sub(EVENTS_SHOWN)..];
    let text = |event: &EventStatus| {
        let peer = event.peer.as_ref().map_or(String::new(), |peer| format!("{peer}: "));
        format!("{:>13} ago  {peer}{}", duration(event.ago_ms / 1_000), event.text)
    };
    let mut events: Vec<String> = events.iter().rev().map(text).collect();
    let left_out = leave_out(rows.saturating_sub(lines.len() + rack.len()), &mut peers, &mut events);
    lines.extend(peers.into_iter().flat_map(|(_, lines)| lines));
    if left_out > 0 {
        lines.push(format!("and {left_out} more; `undrop top --once` prints all peers"));
    }
    lines.extend(rack);
    if !events.is_empty() {
        lines.push(String::new());
        lines.extend(events);
    }
    lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", fit(line).trim_end());
        text
    })
}

/// A peer and its lines.
type Block<'s> = (&'s PeerStatus, Vec<String>);

/// The lines of a peer.
fn of_peer(peer: &PeerStatus, losses: Option<&Losses>) -> Vec<String> {
    let window = peer.windows.first().cloned().unwrap_or_default();
    let mut lines = Vec::from(directions(peer, &window));
    if window.repairs_lost_percent > 0.0 {
        lines.push(format!("  repairs lost      {} % of those sent", percent(window.repairs_lost_percent)));
    }
    let is_it = |one: &&PeerLosses| (&one.name, one.address) == (&peer.name, peer.address);
    let record = losses.and_then(|losses| losses.peers.iter().find(is_it));
    lines.extend(record.into_iter().flat_map(history));
    lines.extend(peer.health.reasons.iter().map(|reason| format!("  ! {}", reason.text)));
    lines
}

/// Leaves out what does not fit in these rows: the oldest events first, and then peers without fault. Returns
/// the number of peers left out, for which a row stays free.
fn leave_out(rows: usize, peers: &mut Vec<Block<'_>>, events: &mut Vec<String>) -> usize {
    let (all, mut room) = (peers.len(), rows);
    if needed(peers) > room {
        room = room.saturating_sub(1);
        peers.sort_by_key(|(peer, _)| (peer.health.is_protected(), !peer.health.is_down()));
        while peers.len() > 1 && needed(peers) > room {
            peers.pop();
        }
        if let [(_, lines)] = &mut peers[..] {
            lines.truncate(room);
        }
    }
    // A blank line is above the events.
    events.truncate(room.saturating_sub(needed(peers) + 1));
    all - peers.len()
}

fn needed(peers: &[Block<'_>]) -> usize {
    peers.iter().map(|(_, lines)| lines.len()).sum()
}

/// The members of a rack, its parts, and the parts that nobody protects.
fn rack(rack: &RackStatus) -> Vec<String> {
    let member = |member: &MemberStatus| match member {
        _ if member.name == rack.member => format!("{} (here)", member.name),
        _ if member.differs => format!("{} DIFFERS", member.name),
        _ if member.present => member.name.clone(),
        _ => format!("{} GONE", member.name),
    };
    let members: Vec<String> = rack.members.iter().map(member).collect();
    let held = rack.parts.iter().filter(|part| part.held).count();
    let mut lines = vec![
        format!("{:<20}{}", "RACK", members.join(", ")),
        format!("{:<20}{held} of {} taken here", "  parts", rack.parts.len()),
    ];
    let unprotected: Vec<&str> = rack.unprotected().collect();
    if !unprotected.is_empty() {
        lines.push(format!("  ! nobody protects {}", unprotected.join(", ")));
    }
    lines
}

/// One line for the packets that arrive from a peer, and one for those that leave.
fn directions(peer: &PeerStatus, window: &WindowStatus) -> [String; 2] {
    let line = |name: &str, way: &str, bits: f64, fates: &FateStatus, delay: String, overhead: String| {
        let recovered = match fates.lost {
            0 => "-".to_owned(),
            lost => percent(fates.recovered as f64 * 100.0 / lost as f64),
        };
        format!(
            "{:<20}{way:>4} {:>8} {:>8} {recovered:>8} {:>8} {delay:>9} {overhead:>8}",
            cut(name, 19),
            rate(bits),
            percent(fates.loss_percent),
            percent(fates.residual_percent),
        )
    };
    let state = match peer.health.state.as_str() {
        "protected" => String::new(),
        state => state.to_uppercase(),
    };
    let delay = window.recovery_delay_us.map_or("-".to_owned(), |us| format!("+{}", time(us)));
    [
        line(&peer.label(), "in", window.received_bits_per_s, &window.here, delay, "-".to_owned()),
        line(
            &format!("  {state}"),
            "out",
            window.sent_bits_per_s,
            &window.there,
            "-".to_owned(),
            percent(window.overhead_percent),
        ),
    ]
}

/// The losses of the last hour by minute, the latest at the right, and their bursts.
fn history(record: &PeerLosses) -> Vec<String> {
    let mut minutes = vec![None; MINUTES];
    let (mut bursts, mut lost) = (Vec::<(u64, u64)>::new(), 0);
    for span in &record.minutes {
        let at = usize::try_from(span.ago).unwrap_or(usize::MAX);
        if let Some(place) = MINUTES.checked_sub(at.saturating_add(1)) {
            minutes[place] = Some(span.lost as f64 / span.packets.max(1) as f64);
        }
        lost += span.lost;
        for burst in &span.bursts {
            match bursts.iter_mut().find(|(from, _)| *from == burst.from) {
                Some((_, count)) => *count += burst.count,
                None => bursts.push((burst.from, burst.count)),
            }
        }
    }
    let mut lines = vec![format!("  lost, last hour   {}", bars(&minutes))];
    if lost > 0 {
        bursts.sort_unstable();
        let more = if bursts.len() > BURSTS_SHOWN { ", longer ones" } else { "" };
        let shown = bursts.iter().take(BURSTS_SHOWN).map(|(from, count)| match from {
            1 => format!("{count} of 1"),
            from => format!("{count} of {from}+"),
        });
        lines.push(format!("  bursts            {}{more}", shown.collect::<Vec<_>>().join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use maelstrom::losses::Span;
    use maelstrom::status::{
        BurstStatus, EgressStatus, GatewayStatus, HealthStatus, IngressStatus, LossStatus, PartStatus,
        PathStatus, ReasonStatus,
    };

    use super::super::cells::WIDTH;
    use super::*;

    fn render(status: &Status, losses: Option<&Losses>) -> String {
        render_in(usize::MAX, status, losses)
    }

    fn peer(name: &str, state: &str) -> PeerStatus {
        let here = FateStatus {
            packets: 10_000,
            lost: 192,
            recovered: 190,
            loss_percent: 1.92,
            residual_percent: 0.02,
            ..FateStatus::default()
        };
        let window = WindowStatus {
            span_s: 10,
            covered_ms: 10_000,
            received_bits_per_s: 12_340_000.0,
            sent_bits_per_s: 800_000.0,
            overhead_percent: 14.2,
            repairs_lost_percent: 1.87,
            here,
            recovery_delay_us: Some(2_540),
            ..WindowStatus::default()
        };
        let reason = ReasonStatus { text: "packets stay lost".to_owned(), ..ReasonStatus::default() };
        let reasons = if state == "protected" { Vec::new() } else { vec![reason] };
        PeerStatus {
            name: Some(name.to_owned()),
            address: "10.81.9.2:4700".parse().unwrap(),
            host: None,
            up: true,
            trouble: None,
            wrong_key: 0,
            keys: Default::default(),
            rtt_us: None,
            last_heard_ms: None,
            sessions: 1,
            renewals: 0,
            moves: 0,
            networks: Vec::new(),
            networks_named_there: Vec::new(),
            differences: Vec::new(),
            difference_ids: Vec::new(),
            egress: EgressStatus::default(),
            ingress: IngressStatus::default(),
            far: LossStatus::default(),
            far_path: PathStatus::default(),
            health: HealthStatus { state: state.to_owned(), reasons, text: String::new() },
            windows: vec![window],
        }
    }

    #[test]
    fn a_gateway_fits_on_80_columns_and_shows_each_peer_in_both_directions() {
        let span = |ago, packets, lost| Span {
            ago,
            packets,
            lost,
            longest: 3,
            bursts: vec![
                BurstStatus { from: 1, to: Some(1), count: 7 },
                BurstStatus { from: 3, to: Some(4), count: 1 },
            ],
            gaps: Vec::new(),
        };
        let losses = Losses {
            peers: vec![PeerLosses {
                name: Some("osaka".to_owned()),
                host: None,
                address: "10.81.9.2:4700".parse().unwrap(),
                packets_per_second: 1,
                rate: String::new(),
                is_auto: true,
                is_tunnel: false,
                window: 512,
                stripes: 1,
                late_us: 0,
                minutes: vec![span(0, 100, 10), span(1, 100, 0), span(59, 100, 1), span(75, 1, 1)],
                hours: Vec::new(),
                days: Vec::new(),
                trace: Vec::new(),
                course: Vec::new(),
            }],
            ..Losses::default()
        };
        let status = Status {
            gateway: GatewayStatus { wan: "wan0".to_owned(), uptime_s: 11_530, ..GatewayStatus::default() },
            health: HealthStatus { text: "degraded".to_owned(), ..HealthStatus::default() },
            peers: vec![peer("osaka", "protected"), peer("a-peer-with-a-very-long-name", "degraded")],
            events: vec![EventStatus { ago_ms: 61_000, text: "x".repeat(200), ..EventStatus::default() }],
            ..Status::default()
        };
        let shown = render(&status, Some(&losses));
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        let hour = format!("  lost, last hour   ▁{}·█\n", " ".repeat(57));
        for part in [
            "gateway on wan0, up 3 h 12 min: degraded\n",
            "osaka                 in    12.3M     1.92     99.0   0.0200    +2.5ms        -\n",
            "                     out     800k        0        -        0         -     14.2\n",
            "a-peer-with-a-very…   in ",
            "  DEGRADED           out ",
            "  ! packets stay lost\n",
            &hour,
            "  repairs lost      1.87 % of those sent\n",
            "  bursts            28 of 1, 4 of 3+\n",
            "    1 min 1 s ago  xxx",
        ] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
    }

    #[test]
    fn of_more_peers_than_a_terminal_has_rows_for_those_with_a_fault_are_shown() {
        let mut peers: Vec<PeerStatus> = (0..64).map(|n| peer(&format!("site-{n}"), "protected")).collect();
        for (at, state) in [(40, "degraded"), (63, "down")] {
            peers[at] = peer(&format!("site-{at}"), state);
        }
        let text = "degraded, 62 of 64 peers protected".to_owned();
        let event = |n: u64| EventStatus { text: format!("event {n}"), ..EventStatus::default() };
        let status = Status {
            health: HealthStatus { text, ..HealthStatus::default() },
            peers,
            events: (0..9).map(event).collect(),
            ..Status::default()
        };
        let shown = render_in(23, &status, None);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.len() <= 23 && lines[0].ends_with("degraded, 62 of 64 peers protected"), "{shown}");
        assert!(lines[3].starts_with("site-63 ") && lines[7].starts_with("site-40 "), "{shown}");
        let count = lines.iter().filter(|line| line.starts_with("site-")).count();
        let others = format!("and {} more; `undrop top --once` prints all peers", 64 - count);
        assert!(count > 4 && lines.contains(&&*others), "{shown}");
        // With room for all peers, they are in the order of the file, and the events have the rest.
        let needed = 3 + 62 * 3 + 2 * 4;
        for (rows, events) in [(needed, 0), (needed + 1, 0), (needed + 3, 2), (usize::MAX, 5)] {
            let shown = render_in(rows, &status, None);
            assert!(shown.lines().nth(3).unwrap().starts_with("site-0 ") && !shown.contains(" more;"));
            assert_eq!(shown.matches(" ago  event").count(), events, "{shown}");
            assert!(events == 0 || shown.contains("event 8"), "the latest ones: {shown}");
        }
        // One that is longer than the screen is cut.
        assert!((1..9).all(|rows| render_in(rows, &status, None).lines().count() <= rows.max(4)));
    }

    #[test]
    fn a_gateway_says_what_is_wrong_with_itself_below_its_verdict() {
        let reason = |id: &str, peer: Option<&str>| ReasonStatus {
            id: id.to_owned(),
            peer: peer.map(str::to_owned),
            text: format!("text of {id}"),
        };
        let reasons = [("no_tap", None), ("no_route", None), ("part_unprotected", None)].into_iter();
        let reasons = reasons.chain([("peer_down", Some("osaka"))]).map(|(id, peer)| reason(id, peer));
        let text = "degraded, 1 of 2 peers protected".to_owned();
        let health = HealthStatus { state: "degraded".to_owned(), reasons: reasons.collect(), text };
        let shown = render(&Status { health, ..Status::default() }, None);
        let expected = "degraded, 1 of 2 peers protected\n  ! text of no_tap\n  ! text of no_route\n\nPEER";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn a_rack_shows_who_is_gone_and_what_nobody_protects() {
        let member = |name: &str, present, differs| MemberStatus {
            name: name.to_owned(),
            address: "10.81.1.1:4702".parse().unwrap(),
            present,
            differs,
            last_heard_ms: None,
        };
        let part = |name: &str, held, protected_by: &[&str]| PartStatus {
            name: name.to_owned(),
            held,
            protected_by: protected_by.iter().map(|&member| member.to_owned()).collect(),
            ..PartStatus::default()
        };
        let rack = RackStatus {
            member: "east-1".to_owned(),
            members: vec![
                member("east-1", true, false),
                member("east-2", true, false),
                member("east-3", false, false),
                member("east-4", false, true),
            ],
            parts: vec![part("east-1", true, &["east-1"]), part("east-2", false, &["east-2"])],
            ..RackStatus::default()
        };
        let shown =
            |rack: &RackStatus| render(&Status { rack: Some(rack.clone()), ..Status::default() }, None);
        let calm = shown(&rack);
        assert!(
            calm.contains("RACK                east-1 (here), east-2, east-3 GONE, east-4 DIFFERS\n"),
            "{calm}"
        );
        assert!(
            calm.contains("  parts             1 of 2 taken here\n") && !calm.contains("nobody"),
            "{calm}"
        );
        let parts = vec![part("east-1", false, &[]), part("east-2", true, &["east-2"])];
        let alarming = shown(&RackStatus { parts, ..rack });
        assert!(alarming.contains("  ! nobody protects east-1\n"), "{alarming}");
    }
}
