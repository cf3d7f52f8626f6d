//! Replays the fuzzers' corpora and random mutations of them, so that a plain test run keeps what fuzzing
//! found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use crate::pair::keys::{hellos, openers};
use crate::pair::{A, B, Pair, coin, config, payload, two_paths, udp};
use crate::replay::{inputs, replay};
use maelstrom_core::share::Share;
use maelstrom_core::wire::{
    Announcement, BodyKind, Half, Hello, Outer, PacketsView, Probe, RecipeView, Report, Request, Sum,
    VERSION, Want,
};
use maelstrom_core::{
    Class, Config, Match, MulticastConfig, PathUse, PeerKey, Protect, Requests, Schedule, Seq, Wanted,
};

#[test]
fn wire_readers_take_all_that_fuzzing_found() {
    replay("maelstrom_wire", 10, 1_500, crate::fuzz::wire);
}

#[test]
fn readers_of_reports_take_all_that_fuzzing_found() {
    replay("maelstrom_reports", 6, 3_000, crate::fuzz::reports);
}

#[test]
fn an_ingress_survives_a_peer_that_lies() {
    replay("maelstrom_ingress", 5, 1_500, crate::fuzz::ingress);
}

/// Returns the kind of a datagram or body; `None` if no reader takes it.
fn kind(data: &[u8]) -> Option<&'static str> {
    match Outer::read(data) {
        Ok(Outer::Hello(_)) => return Some("outer_hello"),
        Ok(Outer::Sealed(_)) => return Some("outer_sealed"),
        Err(_) => {}
    }
    if Hello::read(data).is_ok_and(|hello| !hello.watched.is_empty()) {
        return Some("hello");
    }
    match BodyKind::read(data).ok()? {
        BodyKind::Half => Half::read(data).ok().map(|_| "half"),
        BodyKind::Report => {
            let report = Report::read(data).ok()?;
            Some(if report.echo.is_some() { "report" } else { "report_empty" })
        }
        BodyKind::Share => Announcement::read(data).ok().map(|_| "share"),
        BodyKind::Request => Request::read(data, Seq(0)).ok().map(|_| "request"),
        BodyKind::Packets => PacketsView::read(data, Seq(0)).ok().map(|_| "packets"),
        BodyKind::Probe => Probe::read(data).ok().map(|_| "probe"),
        BodyKind::Wants => Want::read_all(data).ok().map(|_| "wants"),
        BodyKind::Aside => PacketsView::read(data, Seq(0)).ok().map(|_| "packets_aside"),
        BodyKind::Names | BodyKind::Repair => Some(match RecipeView::read(data, Seq(0)).ok()?.sum() {
            Sum::None => "names",
            Sum::Layer => "repair_layer",
            Sum::Block { .. } => "repair_block",
            Sum::Window { .. } => "repair_window",
        }),
    }
}

/// Returns one datagram or body of each kind that gateways send each other.
pub(crate) fn specimens() -> BTreeMap<&'static str, Vec<u8>> {
    let mut specimens = BTreeMap::new();
    let window = |rate: &str, window| Schedule::Sliding { rate: rate.parse().unwrap(), window, density: 15 };
    let block = Schedule::ReedSolomon { r: 4, c: 2, interleave: 2 };
    // At the lower rate, names travel in datagrams of their own.
    let passive = [Schedule::layered(), block, window("1/2", 16), window("1/32", 256)];
    let all = passive.into_iter().map(|schedule| (schedule, false)).chain([(Schedule::Auto, true)]);
    for (schedule, by_tunnel) in all {
        for datagram in datagrams(&schedule, by_tunnel) {
            if let Some(kind) = kind(&datagram) {
                specimens.entry(kind).or_insert(datagram);
            }
        }
    }
    specimens
}

/// Returns the datagrams that two gateways send each other, and what is sealed in them.
fn datagrams(schedule: &Schedule, by_tunnel: bool) -> Vec<Vec<u8>> {
    let side = |side| if by_tunnel { two_paths(side, PathUse::Spread) } else { config(side) };
    // Of a tunnel, small packets travel aside.
    let matches = Match { length: Some(0..=if by_tunnel { 90 } else { 0 }), ..Match::default() };
    let small = Class { name: "small".to_owned(), matches, protect: Protect::Off, late_us: None };
    let classes = vec![small];
    let configs = [A, B].map(|at| {
        let (schedule, classes) = (schedule.clone(), classes.clone());
        let groups = ["239.1.0.0/16", "ff3e::8000:0/112"].map(|groups| groups.parse().unwrap());
        let section = MulticastConfig {
            lan: String::new(),
            groups: groups.to_vec(),
            wanted: Wanted::All,
            bps_max: 1_000_000,
        };
        let multicast = if by_tunnel { vec![section] } else { Vec::new() };
        Config { schedule, requests: Requests::All, classes, multicast, ..side(at) }
    });
    let mut pair = Pair::new(configs);
    pair.sent_datagrams = Some(Vec::new());
    pair.run_until_up();
    pair.gateways[A].set_share(pair.now_us, Share(1 << 14));
    pair.gateways[A].set_share(pair.now_us, Share::ALL);
    let mut lose = coin(5, 0.2);
    for n in 0..600u32 {
        let packet = udp(A, n as u16, &payload(n % 40));
        if by_tunnel {
            pair.send_by_tunnel(A, &[packet]);
        } else {
            pair.send(A, &packet, lose());
        }
        pair.advance(1_000);
    }
    // Long repairs travel in halves.
    pair.datagram_max = 700 - 28;
    pair.advance(30_000_000);
    for n in (0..60u32).filter(|_| !by_tunnel) {
        pair.send(A, &udp(A, n as u16, &payload(600 + n)), lose());
        pair.advance(1_000);
    }
    let sent = pair.sent_datagrams.unwrap();
    let key = PeerKey::new([5; 32]);
    let hellos = hellos(&sent, &key);
    let mut openers = openers(&hellos, &pair.drawn.lock().unwrap(), &key);
    let hellos = hellos.iter().map(|hello| {
        let mut body = vec![0; hello.wire_len()];
        hello.write(&mut body);
        body
    });
    let hellos: Vec<_> = hellos.collect();
    let mut bodies = Vec::new();
    for datagram in &sent {
        let Ok(Outer::Sealed(header)) = Outer::read(datagram) else { continue };
        let opener = openers.iter_mut().find(|opener| opener.epoch() == header.epoch).unwrap();
        // Copies by another path do not open.
        bodies.extend(opener.open(&header, &mut datagram.clone()).ok().map(|body| body.to_vec()));
    }
    [sent, hellos, bodies].concat()
}

/// `UPDATE_SNAPSHOTS=1` adds what is missing.
#[test]
fn the_corpus_has_each_kind_of_datagram_and_body() {
    let specimens = specimens();
    let sent: Vec<_> = specimens.keys().copied().collect();
    let expected = [
        "half",
        "hello",
        "names",
        "outer_hello",
        "outer_sealed",
        "packets",
        "packets_aside",
        "probe",
        "repair_block",
        "repair_layer",
        "repair_window",
        "report",
        "report_empty",
        "request",
        "share",
        "wants",
    ];
    assert_eq!(sent, expected, "gateways send each kind");
    let committed: BTreeSet<_> = inputs("maelstrom_wire").iter().filter_map(|input| kind(input)).collect();
    for (kind, specimen) in specimens {
        if env::var_os("UPDATE_SNAPSHOTS").is_some() && !committed.contains(kind) {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/maelstrom_wire");
            fs::write(corpus.join(format!("version{VERSION}_{kind}")), specimen).unwrap();
        } else {
            assert!(committed.contains(kind), "no input is a valid {kind}; run with UPDATE_SNAPSHOTS=1");
        }
    }
}
