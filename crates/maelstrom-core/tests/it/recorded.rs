//! Datagrams that gateways of this version of the repair channel have sent, with their meaning, and how a
//! peer of another version is told.
//!
//! `tests/wire/version-N.txt` is never written again: whoever changes the format raises the version, and
//! records that one with `UPDATE_SNAPSHOTS=1`. The file of a version that was never released may be deleted
//! first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use maelstrom_core::counters::Rejected;
use maelstrom_core::wire::{
    Announcement, BodyKind, Half, Hello, Outer, PacketsView, Probe, RecipeView, Report, Request, VERSION,
    Want,
};
use maelstrom_core::{Config, Gateway, Outbox, Schedule, Seq, Trouble, Whereabouts};

use crate::corpus::specimens;
use crate::pair::{A, B, Pair, address, payload, trusting, udp};

/// Time between two packets of a recorded conversation.
const STEP_US: u64 = 2_000;

/// A line of the file: a kind, and words.
type Line = Vec<String>;

fn file(version: u8) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/wire/version-{version}.txt"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().as_chunks::<2>().0.iter();
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns the meaning of a body as text.
fn meaning(kind: &str, body: &[u8]) -> Result<String, Rejected> {
    if kind.starts_with("hello") {
        return Hello::read(body).map(|hello| format!("{hello:?}"));
    }
    Ok(match BodyKind::read(body)? {
        BodyKind::Half => format!("{:?}", Half::read(body)?),
        BodyKind::Report => format!("{:?}", Report::read(body)?),
        BodyKind::Share => format!("{:?}", Announcement::read(body)?),
        BodyKind::Request => format!("{:?}", Request::read(body, Seq(0))?),
        BodyKind::Probe => format!("{:?}", Probe::read(body)?),
        BodyKind::Wants => format!("{:?}", Want::read_all(body)?.collect::<Vec<_>>()),
        BodyKind::Packets | BodyKind::Aside => {
            let packets = PacketsView::read(body, Seq(0))?;
            packets.map(|(seq, packet)| format!("{seq:?} {}, ", hex(packet))).collect()
        }
        BodyKind::Names | BodyKind::Repair => {
            let view = RecipeView::read(body, Seq(0))?;
            let packets: Vec<_> = view.packets().collect();
            let entries: Vec<_> = view.entries().collect();
            let mut terms = Vec::new();
            view.terms(&mut terms);
            let sum = view.sum();
            format!("{sum:?} {packets:?} {entries:?} {terms:?} of {} bytes", view.symbol.len())
        }
    })
}

/// The gateway that receives in a conversation, as it starts.
fn receiver(schedule: &str) -> Gateway {
    Gateway::new(config(B, schedule), [2; 32]).unwrap()
}

fn config(side: usize, schedule: &str) -> Config {
    let schedule = match schedule {
        "auto" => Schedule::Auto,
        "reed-solomon" => Schedule::ReedSolomon { r: 4, c: 2, interleave: 2 },
        _ => Schedule::layered(),
    };
    Config { schedule, ..trusting(side) }
}

/// Records what arrives at B while A sends packets of which each thirteenth is lost, and what B recovers.
fn converse(schedule: &str) -> Vec<Line> {
    let mut gateways = [Gateway::new(config(A, schedule), [1; 32]).unwrap(), receiver(schedule)];
    let mut out = [gateways[A].outbox(), gateways[B].outbox()];
    let mut lines: Vec<Line> = Vec::new();
    let line = |kind: &str, now_us: u64, bytes: &[u8]| {
        vec![schedule.into(), kind.into(), now_us.to_string(), hex(bytes)]
    };
    for step in 0..300_u16 {
        let now_us = 1_000_000 + u64::from(step) * STEP_US;
        if step >= 150 {
            let packet = udp(A, step, &payload(u32::from(step % 20)));
            gateways[A].handle_outgoing(now_us, &packet, &mut out[A]);
            if step % 13 != 3 {
                lines.push(line("packet", now_us, &packet));
                gateways[B].handle_incoming(now_us, &packet, &mut out[B]);
            }
        }
        for (gateway, out) in gateways.iter_mut().zip(&mut out) {
            gateway.handle_timeout(now_us, out);
        }
        lines.push(line("time", now_us, &[]));
        while out.iter().any(|out| !out.datagrams.is_empty()) {
            for side in [A, B] {
                let sent: Vec<_> =
                    out[side].datagrams.iter().map(|(_, datagram)| datagram.to_vec()).collect();
                out[side].datagrams.clear();
                for mut datagram in sent {
                    if side == A {
                        lines.push(line("datagram", now_us, &datagram));
                    }
                    gateways[1 - side].handle_datagram(
                        now_us,
                        address(side),
                        &mut datagram,
                        &mut out[1 - side],
                    );
                }
            }
        }
        lines.extend(recovered(&mut out[B]).iter().map(|packet| line("recovered", now_us, packet)));
    }
    // Times at which nothing happens say nothing.
    let is_time = |line: &Line| line[1] == "time";
    let mut kept: Vec<Line> = Vec::new();
    for line in lines {
        if is_time(&line) && kept.last().is_some_and(is_time) {
            kept.pop();
        }
        kept.push(line);
    }
    kept
}

fn recovered(out: &mut Outbox) -> Vec<Vec<u8>> {
    let packets = out.recovered.iter().map(|(_, packet)| packet.to_vec()).collect();
    out.recovered.clear();
    packets
}

/// Lets a gateway of today take what was recorded; returns the number of packets that it recovered.
fn replay(schedule: &str, lines: &[&Line]) -> usize {
    let mut gateway = receiver(schedule);
    let mut out = gateway.outbox();
    let (mut expected, mut got) = (Vec::new(), Vec::new());
    for line in lines {
        let (now_us, mut data) = (line[2].parse().unwrap(), bytes(line.get(3).map_or("", String::as_str)));
        match line[1].as_str() {
            "time" => gateway.handle_timeout(now_us, &mut out),
            "packet" => gateway.handle_incoming(now_us, &data, &mut out),
            "datagram" => gateway.handle_datagram(now_us, address(A), &mut data, &mut out),
            _ => expected.push(data),
        }
        out.datagrams.clear();
        got.extend(recovered(&mut out));
    }
    assert!(gateway.peers().all(|peer| peer.is_up), "{schedule}: the session does not begin");
    expected.sort();
    got.sort();
    assert!(got == expected, "{schedule}: recovered {} packets in place of {}", got.len(), expected.len());
    got.len()
}

const SCHEDULES: [&str; 3] = ["auto", "layered", "reed-solomon"];

/// Returns a body of each kind, and those that say all that specimens do not.
fn bodies_of_all_kinds() -> BTreeMap<&'static str, Vec<u8>> {
    let mut bodies = specimens();
    bodies.retain(|kind, _| !kind.starts_with("outer"));
    let hello = Hello { restarts: true, is_tunnel: true, ..Hello::read(&bodies["hello"]).unwrap() };
    let report = Report::read(&bodies["report"]).unwrap();
    let report =
        Report { is_recovering: false, is_extra: true, is_congested: true, is_standing: true, ..report };
    let mut written = [vec![0; hello.wire_len()], vec![0; Report::LEN]];
    hello.write(&mut written[0]);
    report.write(&mut written[1]);
    bodies.extend(["hello_restarts", "report_congested"].into_iter().zip(written));
    bodies
}

/// Records this version.
fn record() -> String {
    let bodies = bodies_of_all_kinds().into_iter();
    let body = |(kind, body): (&str, Vec<u8>)| {
        format!("body {kind} {} {}", hex(&body), meaning(kind, &body).unwrap())
    };
    let talk = SCHEDULES.into_iter().flat_map(converse).map(|line| line.join(" "));
    bodies.map(body).chain(talk).map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[test]
fn datagrams_of_this_version_mean_what_they_meant_when_they_were_recorded() {
    let path = file(VERSION);
    if !path.exists() {
        assert!(
            env::var_os("UPDATE_SNAPSHOTS").is_some(),
            "version {VERSION} has no record: UPDATE_SNAPSHOTS=1"
        );
        fs::write(&path, record()).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let mut kinds = BTreeMap::new();
    let mut talks: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for line in text.lines() {
        let words = |count| line.splitn(count, ' ').map(str::to_owned).collect::<Line>();
        if let Some(body) = line.strip_prefix("body ") {
            let (kind, rest) = body.split_once(' ').unwrap();
            let (recorded, expected) = rest.split_once(' ').unwrap();
            let recorded = bytes(recorded);
            let read = meaning(kind, &recorded);
            let read = read.as_deref().map(str::trim_end);
            assert_eq!(read, Ok(expected), "{kind}: raise the version of a format that differs");
            if kind.starts_with("hello") {
                let mut written = vec![0; recorded.len()];
                Hello::read(&recorded).unwrap().write(&mut written);
                assert_eq!(written, recorded);
            }
            if kind.starts_with("report") {
                let mut written = vec![0; recorded.len()];
                Report::read(&recorded).unwrap().write(&mut written);
                assert_eq!(written, recorded);
            }
            *kinds.entry(kind.to_owned()).or_insert(0) += 1;
        } else {
            let schedule = line.split(' ').next().unwrap();
            talks.entry(schedule).or_default().push(words(4));
        }
    }
    let sent: Vec<_> = bodies_of_all_kinds().into_keys().collect();
    assert_eq!(kinds.into_keys().collect::<Vec<_>>(), sent, "another kind of body needs another version");
    assert_eq!(talks.keys().copied().collect::<Vec<_>>(), SCHEDULES);
    for (schedule, lines) in &talks {
        let recovered = replay(schedule, &lines.iter().collect::<Vec<_>>());
        assert!(recovered > 5, "{schedule}: {recovered}");
    }
}

#[test]
fn a_datagram_of_a_neighbouring_version_is_told_by_its_first_byte() {
    for version in [VERSION - 1, VERSION + 1] {
        for kind in [1, 2] {
            assert_eq!(Outer::read(&[version << 4 | kind; 60]), Err(Rejected::OtherVersion));
        }
    }
}

/// Both ends name both versions, at the start and when one end is upgraded.
#[test]
fn gateways_of_different_versions_say_so_within_three_seconds() {
    for is_up in [false, true] {
        for anywhere in [false, true] {
            let here = trusting(B);
            let mut there = trusting(A);
            if anywhere {
                there.peers[0].whereabouts = Whereabouts::Unstated;
                there.peers[0].address = "0.0.0.0:4700".parse().unwrap();
            }
            let mut pair = if is_up { Pair::up([there, here]) } else { Pair::new([there, here]) };
            pair.alter = Box::new(|side, datagram| {
                // Each end sees the other as one of the next version, or of the one before.
                let version = if side == A { VERSION - 1 } else { VERSION + 1 };
                datagram[0] = version << 4 | datagram[0] & 0xf;
            });
            pair.advance(3_000_000);
            for (side, theirs) in [(A, VERSION + 1), (B, VERSION - 1)] {
                let trouble = pair.status(side, |peer| peer.trouble);
                if side == B && anywhere && !is_up {
                    assert_eq!(trouble, Some(Trouble::Silent), "A does not know where B is");
                    continue;
                }
                assert_eq!(trouble, Some(Trouble::OtherVersion(theirs)), "{is_up} {anywhere} side {side}");
                let text = trouble.unwrap().to_string();
                assert!(
                    text.contains(&format!("version {theirs}"))
                        && text.contains(&format!("version {VERSION}"))
                );
            }
        }
    }
}
