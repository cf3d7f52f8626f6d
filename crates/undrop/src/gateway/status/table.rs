//! The status as text.

use std::fmt::Write as _;

use maelstrom::status::{
    CauseStatus, ClassStatus, CongestionStatus, Counts, DelayStatus, EgressStatus, GatewayStatus, LossStatus,
    PauseStatus, PeerStatus, Status,
};

use maelstrom::status::reasons::{
    Counter, PauseReason, Reason, Refused, Rejected, Unanswered, Uninjected, Unprotected, Unsent, Unused,
    Withheld,
};

use super::{multicast, paths, rack, split, watched};

pub(super) fn render(status: &Status) -> String {
    let gateway = &status.gateway;
    let mut text = format!(
        "undrop {}, {} on {}, tap {}, injection by {}, pid {}, up {}, {} of packets kept\n",
        gateway.version,
        gateway.mode,
        gateway.wans(),
        gateway.tap,
        gateway.injection,
        gateway.pid,
        duration(gateway.uptime_s),
        bytes(status.memory_bytes),
    );
    let _ = writeln!(text, "{}", status.health.text);
    watched::own_reasons(&mut text, &status.health);
    interfaces(&mut text, gateway);
    if let Some(reason) = &gateway.mtu_reason {
        let _ = writeln!(text, "TCP SEGMENTS ARE NOT LIMITED, so that repairs are cut in two: {reason}");
    }
    if let Some(reason) = &status.pauses.reason {
        let _ = writeln!(text, "RECOVERY PAUSES: {reason}");
    }
    for peer in &status.peers {
        text.push('\n');
        peer_block(&mut text, peer);
    }
    text.push('\n');
    watched::events(&mut text, &status.events);
    for class in &status.classes {
        row(&mut text, "class", &of_class(class));
    }
    if let Some(split) = &status.split {
        split::rows(&mut text, split);
    }
    if let Some(of_rack) = &status.rack {
        rack::rows(&mut text, of_rack);
    }
    multicast::rows(&mut text, status);
    pauses(&mut text, &status.pauses);
    reasons::<Unprotected>(&mut text, "not protected", &status.not_protected);
    reasons::<Unprotected>(&mut text, "not tunnelled", &status.not_tunnelled);
    reasons::<Rejected>(&mut text, "datagrams refused", &status.rejected);
    reasons::<Counter>(&mut text, "other", &status.counters);
    text.truncate(text.trim_end().len());
    text
}

/// Tells what is wrong at the interface of `[gateway]`, and all about those of peers.
fn interfaces(text: &mut String, gateway: &GatewayStatus) {
    for one in gateway.interfaces.iter().skip(1) {
        let _ = writeln!(text, "{}: tap {}, injection by {}", one.name, one.tap, one.injection);
    }
    let further = gateway.interfaces.iter().skip(1);
    let further = further.map(|one| (&one.name, &one.tap, &one.injection_reason));
    let all = [(&gateway.wan, &gateway.tap, &gateway.injection_reason)].into_iter().chain(further);
    for (name, tap, injection_reason) in all {
        if tap == "none" {
            let _ = writeln!(
                text,
                "NO TAP: the interface {name} is gone; nothing is protected or recovered there until it is back"
            );
        }
        if let Some(reason) = injection_reason {
            let _ = writeln!(
                text,
                "RULES THAT NAME {name} DO NOT APPLY TO RECOVERED PACKETS, which do not arrive there: {reason}"
            );
        }
    }
}

fn peer_block(text: &mut String, peer: &PeerStatus) {
    peer_line(text, peer);
    watched::verdict(text, peer);
    let (egress, ingress) = (&peer.egress, &peer.ingress);
    let networks: Vec<String> = peer.networks.iter().map(ToString::to_string).collect();
    for (title, cause) in causes(peer) {
        row(text, title, &format!("{}: {}", cause.cause, cause.remedy));
    }
    if let Some(remedy) = &peer.keys.remedy {
        row(text, "keys", &format!("{}. Next step: {remedy}", peer.keys.text));
    }
    row(text, "networks", &networks.join(", "));
    peer.differences.iter().for_each(|difference| row(text, "DIFFERENCE", difference));
    sent(text, egress);
    code(text, peer);
    row(text, "lost there", &losses(&peer.far));
    row(
        text,
        "received",
        &format!("{} packets, {}", number(ingress.source_packets), bytes(ingress.source_bytes)),
    );
    let far_rate = ingress.far_rate.as_ref().map_or(String::new(), |rate| format!(", sent at {rate}"));
    let far_window = ingress.far_window.map_or(String::new(), |window| format!(" of {window} packets"));
    let repairs = number(ingress.loss.repairs_received);
    row(text, "", &format!("{repairs} repairs{far_rate}{far_window}"));
    row(text, "lost here", &losses(&ingress.loss));
    row(text, "recovery", &delays(&ingress.recovery_delay_us));
    row(text, "bursts", &bursts(&ingress.loss));
    watched::windows(text, &peer.windows);
    for (title, count) in [
        ("not protected", ingress.foreign_packets),
        ("late", ingress.late),
        ("arrived twice", ingress.after_recovery),
        ("after withholding", ingress.after_withholding),
        ("recognised", ingress.recognised),
        ("undelivered", ingress.undelivered),
    ] {
        if count > 0 {
            row(text, title, &number(count));
        }
    }
    requests(text, peer);
    ingress.resequence.iter().for_each(|order| paths::order(text, order));
    reasons::<Unsent>(text, "repairs not sent", &egress.unsent);
    reasons::<Refused>(text, "refused by caps", &egress.refused_by_caps);
    reasons::<Unused>(text, "repairs unused", &ingress.unused_repairs);
    congestion(text, &ingress.congestion);
    reasons::<Withheld>(text, "not injected", &ingress.withheld);
    reasons::<Uninjected>(text, "not taken", &ingress.refused_injections);
    if ingress.paused {
        row(text, "PAUSED", "nothing is recovered until a repair of later packets arrives");
    }
    if ingress.paused_flows > 0 {
        row(
            text,
            "PAUSED FLOWS",
            &format!("{}, with packets that could not be cut", number(ingress.paused_flows)),
        );
    }
}

/// Writes the counts of packets, repairs, and a tunnel's datagrams.
fn sent(text: &mut String, egress: &EgressStatus) {
    row(text, "sent", &format!("{} packets, {}", number(egress.source_packets), bytes(egress.source_bytes)));
    if egress.flows_protected_percent < 100.0 {
        let share =
            format!("{:.1} % OF THE FLOWS PROTECTED, for lack of time", egress.flows_protected_percent);
        row(text, "", &share);
    }
    let repairs = format!(
        "{} repairs, {}, overhead {:.1} %, {} cut in two",
        number(egress.repairs),
        bytes(egress.repair_bytes),
        egress.overhead_percent,
        number(egress.repairs_cut_in_two)
    );
    row(text, "", &repairs);
    if egress.repairs_out_of_turn > 0 {
        let count = number(egress.repairs_out_of_turn);
        let why = "of them because no packets followed soon enough: sparse traffic costs more";
        row(text, "", &format!("{count} {why}"));
    }
    if let Some(tunnel) = &egress.tunnel {
        let carried = format!(
            "{} packets in {} datagrams, {}{}",
            number(tunnel.packets),
            number(tunnel.datagrams),
            bytes(tunnel.bytes),
            paths::fate(tunnel.fail.as_deref())
        );
        row(text, "tunnel", &carried);
        paths::rows(text, tunnel);
    }
}

/// The packets of a class that left, and those that were recovered here.
fn of_class(class: &ClassStatus) -> String {
    let ClassStatus { name, protect, .. } = class;
    let protected = match class.protected {
        0 => "none protected".to_owned(),
        count => format!("{} protected, {} repairs", number(count), number(class.repairs)),
    };
    let recovered = if class.recovered == 0 { "none".to_owned() } else { number(class.recovered) };
    let (packets, size) = (number(class.packets), bytes(class.bytes));
    format!("{name} ({protect}): {packets} packets, {size}; {protected}; {recovered} recovered")
}

/// Appends what is known about the queue on the way, if losses depend on it.
fn congestion(text: &mut String, congestion: &CongestionStatus) {
    if congestion.full_us.is_some() {
        row(text, "congestion", &congestion.verdict);
    }
    if congestion.marked > 0 {
        row(text, "marked", &format!("{} recovered packets, for congestion", number(congestion.marked)));
    }
    let CongestionStatus { path_marked, path_dropped, path_odd, .. } = *congestion;
    for (count, what) in [
        (path_marked, "packets got the mark of their datagram"),
        (path_dropped, "PACKETS DROPPED, because they must not be marked and their datagram was"),
        (path_odd, "packets in datagrams with a mark that no router should give"),
    ] {
        if count > 0 {
            row(text, "path marks", &format!("{} {what}", number(count)));
        }
    }
}

/// Appends what was requested in either direction, if anything was.
fn requests(text: &mut String, peer: &PeerStatus) {
    let (ours, theirs) = (&peer.ingress.requests, &peer.egress);
    if ours.packets + ours.overflown > 0 {
        let shown = format!(
            "{} packets in {} requests, {} came, {} left alone after overflows",
            number(ours.packets),
            number(ours.sent),
            number(ours.answered),
            number(ours.overflown)
        );
        row(text, "requested", &shown);
    }
    if theirs.requests > 0 {
        row(
            text,
            "sent again",
            &format!("{} packets for {} requests", number(theirs.answers), number(theirs.requests)),
        );
    }
    reasons::<Unanswered>(text, "not sent again", &theirs.unanswered);
}

fn peer_line(text: &mut String, peer: &PeerStatus) {
    let heard = match peer.last_heard_ms {
        None => "never heard".to_owned(),
        Some(ms) if ms < 10_000 => format!("heard {ms} ms ago"),
        Some(ms) => format!("heard {} ago", duration(ms / 1000)),
    };
    let known = Some(peer.address).filter(|address| !address.ip().is_unspecified());
    let address = known.map_or_else(|| "address unknown".to_owned(), |address| address.to_string());
    let address = match (&peer.name, &peer.host) {
        (Some(_), Some(host)) => format!(" ({host}, {address})"),
        (None, None) => String::new(),
        _ => format!(" ({address})"),
    };
    let state = if peer.up { "up" } else { "DOWN" };
    let round_trip =
        peer.rtt_us.map_or(String::new(), |us| format!(", round trip {:.1} ms", us as f64 / 1000.0));
    let _ = writeln!(
        text,
        "peer {}{address}: {state}, {heard}{round_trip}, {} sessions",
        peer.label(),
        peer.sessions
    );
}

/// Appends the code in force, its reason, and the bursts that it cannot recover. `auto` chooses another code
/// where bursts call for one, so that only those count against it that no code within its reach recovers.
fn code(text: &mut String, peer: &PeerStatus) {
    let egress = &peer.egress;
    row(text, "code", &format!("{}, recovers bursts of up to {}", egress.code, number(egress.longest_burst)));
    // A gateway of an earlier version does not tell the reach.
    let longest = egress.longest_burst.max(egress.longest_burst_within_reach);
    let longer = peer.far.burst_histogram.iter().filter(|burst| burst.from > longest);
    let longer: u64 = longer.map(|burst| burst.count).sum();
    if longer > 0 {
        let remedy = match egress.code.split(' ').next() {
            Some("layered") => "layers recover a part of them; longer interleaves recover more",
            Some("reed-solomon") => "blocks recover a part of them; more blocks in turn recover more",
            _ if egress.choice.is_some() && !egress.code.contains("(1024; ") => {
                "a window recovers nothing of them; `late_ms` may lengthen it, and wide layers recover a part"
            }
            _ => "a window recovers nothing of them; wide layers recover a part",
        };
        row(text, "LONG BURSTS", &format!("{} of more than {}: {remedy}", number(longer), number(longest)));
    }
    if let Some(choice) = &egress.choice {
        row(text, "", choice);
    }
}

/// Causes of trouble that an operator should remove, the most urgent first.
fn causes(peer: &PeerStatus) -> impl Iterator<Item = (&'static str, &CauseStatus)> {
    let trouble = peer.trouble.iter().map(|cause| ("TROUBLE", cause));
    let narrow = peer.egress.narrow_path.iter().map(|cause| ("NARROW PATH", cause));
    let here = peer.ingress.path.findings.iter().map(|cause| ("PATH FROM THERE", cause));
    trouble
        .chain(narrow)
        .chain(here)
        .chain(peer.far_path.findings.iter().map(|cause| ("PATH FROM HERE", cause)))
}

/// Appends the pauses of recovery, if there were any.
fn pauses(text: &mut String, pauses: &PauseStatus) {
    if pauses.count == 0 {
        return;
    }
    let last =
        pauses.last_end_ms.map_or(String::new(), |ms| format!(", the last one {} ago", duration(ms / 1000)));
    row(text, "pauses", &format!("{}, {} ms in all{last}", number(pauses.count), number(pauses.total_ms)));
    reasons::<PauseReason>(text, "", &pauses.by_reason);
}

pub(super) fn row(text: &mut String, title: &str, value: &str) {
    let _ = writeln!(text, "  {title:<18}{value}");
}

/// Appends the counts above zero, one line each.
pub(super) fn reasons<R: Reason>(text: &mut String, title: &str, counts: &Counts) {
    let mut title = title;
    for (reason, &count) in counts.iter().filter(|&(_, &count)| count > 0) {
        let _ = writeln!(text, "  {title:<18}{:>12}  {}", number(count), R::text_of(reason));
        title = "";
    }
}

fn losses(loss: &LossStatus) -> String {
    let withheld = match loss.withheld {
        0 => String::new(),
        count => format!(", {} withheld", number(count)),
    };
    let left = match loss.left {
        0 => String::new(),
        count => format!(", {} left to their senders", number(count)),
    };
    format!(
        "{} of {} ({:.4} %), {} recovered{withheld}{left}, {} residual ({:.4} %)",
        number(loss.lost),
        number(loss.packets),
        loss.loss_percent,
        number(loss.recovered),
        number(loss.residual),
        loss.residual_percent
    )
}

fn delays(delay: &DelayStatus) -> String {
    if delay.count == 0 {
        return "nothing recovered yet".to_owned();
    }
    let ms = |us: u64| us as f64 / 1000.0;
    format!("after p50 {:.1} ms, p99 {:.1} ms, at most {:.1} ms", ms(delay.p50), ms(delay.p99), ms(delay.max))
}

fn bursts(loss: &LossStatus) -> String {
    let shown: Vec<String> = loss
        .burst_histogram
        .iter()
        .filter(|burst| burst.count > 0)
        .map(|burst| {
            let range = match burst.to {
                Some(to) if to == burst.from => to.to_string(),
                Some(to) => format!("{}-{to}", burst.from),
                None => format!("{}+", burst.from),
            };
            format!("{range}: {}", number(burst.count))
        })
        .collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Digits in groups of three.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

pub(super) fn bytes(value: u64) -> String {
    let mut size = value as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if size < 1000.0 {
            return if unit == "B" { format!("{value} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1000.0;
    }
    format!("{size:.1} TB")
}

pub(crate) fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use maelstrom::status::{
        BurstStatus, EgressStatus, GatewayStatus, HealthStatus, IngressStatus, PathStatus, ReasonStatus,
        RequestStatus, SCHEMA,
    };

    use super::*;

    fn loss() -> LossStatus {
        LossStatus {
            packets: 1_000_000,
            lost: 10_000,
            recovered: 9_990,
            withheld: 0,
            left: 0,
            residual: 10,
            loss_percent: 1.0,
            residual_percent: 0.001,
            repairs_received: 375_000,
            burst_histogram: vec![
                BurstStatus { from: 1, to: Some(1), count: 9_000 },
                BurstStatus { from: 2, to: Some(2), count: 0 },
                BurstStatus { from: 3, to: Some(4), count: 12 },
                BurstStatus { from: 1025, to: None, count: 1 },
            ],
        }
    }

    fn voice() -> ClassStatus {
        ClassStatus {
            name: "voice".to_owned(),
            protect: "1/4".to_owned(),
            packets: 2_000,
            bytes: 400_000,
            protected: 1_990,
            repairs: 520,
            recovered: 12,
        }
    }

    fn backup() -> ClassStatus {
        let (name, protect) = ("backup".to_owned(), "off".to_owned());
        ClassStatus { name, protect, packets: 1_200, bytes: 1_500_000, ..ClassStatus::default() }
    }

    fn health(text: &str) -> HealthStatus {
        HealthStatus { state: "protected".to_owned(), reasons: Vec::new(), text: text.to_owned() }
    }

    fn status() -> Status {
        Status {
            schema: SCHEMA.to_owned(),
            health: health("protected, 1 of 1 peers protected"),
            events: Vec::new(),
            gateway: GatewayStatus {
                version: "0.1.0".to_owned(),
                uptime_s: 93_784,
                mode: "passive".to_owned(),
                wan: "wan0".to_owned(),
                tap: "ebpf".to_owned(),
                injection: "wan".to_owned(),
                injection_reason: None,
                tick_us: None,
                tick_starts: 0,
                pid: 77,
                ..GatewayStatus::default()
            },
            pauses: PauseStatus::default(),
            peers: vec![osaka()],
            classes: vec![backup(), voice()],
            not_protected: Counts::from([("no_peer".to_owned(), 5)]),
            not_tunnelled: Counts::default(),
            rejected: Counts::from([("forged".to_owned(), 1), ("replayed".to_owned(), 0)]),
            counters: Counts::new(),
            split: None,
            rack: None,
            multicast: Vec::new(),
            wanted_groups: Vec::new(),
            memory_bytes: 3_145_728,
        }
    }

    fn osaka() -> PeerStatus {
        PeerStatus {
            name: Some("osaka".to_owned()),
            address: "10.81.9.2:4700".parse().unwrap(),
            host: None,
            up: true,
            trouble: None,
            wrong_key: 0,
            keys: Default::default(),
            rtt_us: Some(100_240),
            last_heard_ms: Some(120),
            sessions: 2,
            renewals: 0,
            moves: 0,
            networks: vec!["10.81.2.0/24".parse().unwrap()],
            networks_named_there: Vec::new(),
            differences: Vec::new(),
            difference_ids: Vec::new(),
            egress: EgressStatus {
                flows_protected_percent: 12.5,
                code: "sliding (512; 1/8)".to_owned(),
                longest_burst: 56,
                longest_burst_within_reach: 139,
                choice: Some("1/8: 1.0 % lost; 1/12 would leave 40 in a million".to_owned()),
                source_packets: 1_234_567,
                source_bytes: 1_600_000_000,
                repairs: 463_000,
                repairs_out_of_turn: 1_200,
                repair_bytes: 650_000_000,
                overhead_percent: 40.6,
                unsent: Counts::from([("queue_full".to_owned(), 3)]),
                requests: 3,
                answers: 7,
                unanswered: Counts::from([("gone".to_owned(), 2)]),
                path_mtu: 1_500,
                ..EgressStatus::default()
            },
            ingress: IngressStatus {
                source_packets: 990_000,
                source_bytes: 999,
                late: 4,
                requests: RequestStatus { sent: 3, packets: 12, answered: 11, overflown: 70 },
                unused_repairs: Counts::from([("redundant".to_owned(), 365_000), ("too_old".to_owned(), 0)]),
                loss: loss(),
                far_rate: Some("1/32".to_owned()),
                far_window: Some(512),
                recovery_delay_us: DelayStatus { count: 9_990, p50: 3_510, p99: 11_020, max: 60_000 },
                ..IngressStatus::default()
            },
            far: loss(),
            far_path: PathStatus::default(),
            health: health("protected, 1.0 % lost, all recovered, +3.5 ms"),
            windows: Vec::new(),
        }
    }

    #[test]
    fn the_table_shows_losses_recoveries_and_drops() {
        let expected = "\
undrop 0.1.0, passive on wan0, tap ebpf, injection by wan, pid 77, up 1 d 2 h, 3.1 MB of packets kept
protected, 1 of 1 peers protected

peer osaka (10.81.9.2:4700): up, heard 120 ms ago, round trip 100.2 ms, 2 sessions
  verdict           osaka: protected, 1.0 % lost, all recovered, +3.5 ms
  networks          10.81.2.0/24
  sent              1,234,567 packets, 1.6 GB
                    12.5 % OF THE FLOWS PROTECTED, for lack of time
                    463,000 repairs, 650.0 MB, overhead 40.6 %, 0 cut in two
                    1,200 of them because no packets followed soon enough: sparse traffic costs more
  code              sliding (512; 1/8), recovers bursts of up to 56
  LONG BURSTS       1 of more than 139: a window recovers nothing of them; `late_ms` may lengthen it, and wide layers recover a part
                    1/8: 1.0 % lost; 1/12 would leave 40 in a million
  lost there        10,000 of 1,000,000 (1.0000 %), 9,990 recovered, 10 residual (0.0010 %)
  received          990,000 packets, 999 B
                    375,000 repairs, sent at 1/32 of 512 packets
  lost here         10,000 of 1,000,000 (1.0000 %), 9,990 recovered, 10 residual (0.0010 %)
  recovery          after p50 3.5 ms, p99 11.0 ms, at most 60.0 ms
  bursts            1: 9,000, 3-4: 12, 1025+: 1
  late              4
  requested         12 packets in 3 requests, 11 came, 70 left alone after overflows
  sent again        7 packets for 3 requests
  not sent again               2  no longer kept
  repairs not sent             3  outgoing queue full
  repairs unused         365,000  nothing missing

  class             backup (off): 1,200 packets, 1.5 MB; none protected; none recovered
  class             voice (1/4): 2,000 packets, 400.0 kB; 1,990 protected, 520 repairs; 12 recovered
  not protected                5  destination of no peer
  datagrams refused            1  forged";
        assert_eq!(render(&status()), expected);
    }

    #[test]
    fn causes_and_remedies_are_shown_first() {
        let mut status = status();
        let cause = |cause: &str| CauseStatus {
            id: "cause".to_owned(),
            cause: cause.to_owned(),
            remedy: "do this".to_owned(),
        };
        status.peers[0].trouble = Some(cause("no datagram arrives"));
        status.peers[0].ingress.path.findings = vec![cause("packets are rewritten")];
        let shown = render(&status);
        let expected = "all recovered, +3.5 ms\n  TROUBLE           no datagram arrives: do this\n  \
                        PATH FROM THERE   packets are rewritten: do this\n  networks";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn a_change_of_the_key_is_shown_with_its_next_step() {
        let mut status = status();
        assert!(!render(&status).contains("\n  keys "));
        let keys = &mut status.peers[0].keys;
        (keys.text, keys.remedy) = ("the next key waits".to_owned(), Some("do this".to_owned()));
        let shown = render(&status);
        assert!(shown.contains("\n  keys              the next key waits. Next step: do this\n"), "{shown}");
    }

    #[test]
    fn the_remedy_for_long_bursts_is_that_of_the_scheme() {
        let mut status = status();
        for (code, remedy) in [
            (
                "sliding (512; 1/8)",
                "1 of more than 139: a window recovers nothing of them; `late_ms` may lengthen it",
            ),
            ("sliding (1024; 1/8)", "1 of more than 139: a window recovers nothing of them; wide layers"),
            ("layered (8; 1,11,19)", "1 of more than 139: layers recover a part of them; longer interleaves"),
            ("reed-solomon (8,3) x20", "1 of more than 139: blocks recover a part of them; more blocks"),
        ] {
            status.peers[0].egress.code = code.to_owned();
            let shown = render(&status);
            assert!(shown.contains(&format!("LONG BURSTS       {remedy}")), "{shown}");
        }
    }

    #[test]
    fn bursts_that_auto_recovers_at_another_rate_are_no_long_ones() {
        let mut status = status();
        let peer = &mut status.peers[0];
        (peer.egress.code, peer.egress.longest_burst) = ("sliding (512; 1/40)".to_owned(), 12);
        peer.egress.longest_burst_within_reach = 279;
        let burst = |from, to| BurstStatus { from, to: Some(to), count: 4 };
        peer.far.burst_histogram = vec![burst(17, 32), burst(129, 256)];
        assert!(!render(&status).contains("LONG BURSTS"));
        status.peers[0].far.burst_histogram.push(burst(513, 1_024));
        let shown = render(&status);
        assert!(shown.contains("LONG BURSTS       4 of more than 279: a window recovers"), "{shown}");
        // A code that the configuration fixes stays as it is.
        let egress = &mut status.peers[0].egress;
        (egress.choice, egress.longest_burst_within_reach) = (None, 12);
        let shown = render(&status);
        assert!(shown.contains("LONG BURSTS       12 of more than 12: a window recovers"), "{shown}");
    }

    #[test]
    fn a_peer_never_heard_is_down() {
        let mut status = status();
        status.peers[0].up = false;
        status.peers[0].last_heard_ms = None;
        assert!(render(&status).contains("peer osaka (10.81.9.2:4700): DOWN, never heard, "));
    }

    #[test]
    fn trouble_with_the_tap_is_shown() {
        let mut status = status();
        status.gateway.tap = "none".to_owned();
        status.counters = Counts::from([
            ("incoming_uncut".to_owned(), 1_200),
            ("outgoing_uncut".to_owned(), 0),
            ("pauses".to_owned(), 7),
        ]);
        let shown = render(&status);
        assert!(shown.contains("\nNO TAP: "), "{shown}");
        let expected = "  other                    1,200  incoming captures not cut\n                               7  pauses of recovery";
        assert!(shown.ends_with(expected), "{shown}");
    }

    #[test]
    fn the_reasons_of_the_gateway_itself_have_a_line_each() {
        let mut status = status();
        let reason = |id: &str, peer: Option<&str>| ReasonStatus {
            id: id.to_owned(),
            peer: peer.map(str::to_owned),
            text: format!("text of {id}"),
        };
        status.health.text = "degraded, 1 of 1 peers protected".to_owned();
        // Those of peers are told with them, and others have a line with more of what is known.
        status.health.reasons = [("no_route", None), ("no_injection", None), ("peer_down", Some("osaka"))]
            .into_iter()
            .chain([("no_tap", None), ("injection_by_tun", None), ("part_unprotected", None)])
            .map(|(id, peer)| reason(id, peer))
            .collect();
        let shown = render(&status);
        let expected = "\ndegraded, 1 of 1 peers protected\nNO ROUTE: text of no_route\n\
                        NO INJECTION: text of no_injection\n\npeer osaka";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn pauses_and_differences_are_shown() {
        let mut status = status();
        status.pauses = PauseStatus {
            reason: Some("repairs lag behind the tap".to_owned()),
            reason_id: Some("lag".to_owned()),
            count: 12,
            total_ms: 1_800,
            last_end_ms: Some(65_000),
            by_reason: Counts::from([("lag".to_owned(), 12)]),
        };
        status.peers[0].differences = vec!["the peer names more".to_owned()];
        status.gateway.mtu_reason = Some("no nf_tables".to_owned());
        let ingress = &mut status.peers[0].ingress;
        (ingress.paused, ingress.paused_flows) = (true, 2);
        ingress.congestion.verdict = "all losses are recovered".to_owned();
        (ingress.congestion.full_us, ingress.congestion.marked, ingress.loss.left) = (Some(98_304), 3, 1_250);
        ingress.withheld = Counts::from([("expired".to_owned(), 7)]);
        let shown = render(&status);
        for line in [
            "\nTCP SEGMENTS ARE NOT LIMITED, so that repairs are cut in two: no nf_tables\n",
            "\nRECOVERY PAUSES: repairs lag behind the tap\n",
            "\n  DIFFERENCE        the peer names more\n",
            "\n  not injected                 7  time to live ended on the way\n",
            "\n  congestion        all losses are recovered\n",
            "\n  marked            3 recovered packets, for congestion\n",
            ", 1,250 left to their senders, ",
            "\n  PAUSED            nothing is recovered until",
            "\n  PAUSED FLOWS      2, with packets",
            "\n  pauses            12, 1,800 ms in all, the last one 1 min 5 s ago\n",
        ] {
            assert!(shown.contains(line), "{line:?} is not in\n{shown}");
        }
    }

    #[test]
    fn durations_have_two_units() {
        for (seconds, expected) in [(5, "5 s"), (65, "1 min 5 s"), (3_700, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(seconds), expected);
        }
    }
}
