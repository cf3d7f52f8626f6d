//! Lateral error correction with the papers' grouping, on a network with losses at the receivers alone.
#![allow(missing_docs)]

use std::collections::{HashMap, HashSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::{BinsConfig, Content, Packet};
use ricochet_core::wire::Name;
use ricochet_core::{Bins, GroupId, Groups, NodeId};

/// Results of a run.
#[derive(Debug)]
struct Figures {
    lost: usize,
    recovered_percent: f64,
    mean_ms: f64,
    median_ms: f64,
    overhead_percent: f64,
    additions_per_packet: f64,
}

struct Node {
    groups: Groups,
    bins: Bins,
    /// Packets that came by themselves or were recovered.
    held: HashSet<Name>,
    lost_at: HashMap<Name, u64>,
    /// Names of repairs that miss two or more packets.
    unusable: Vec<Vec<Name>>,
}

/// Runs for `seconds` with 1,000 packets/s at each node, 1 % loss at each receiver, and no delays. Repairs
/// are tracked by their names alone.
fn run(n: usize, d: usize, s: usize, seconds: f64, seed: u64) -> Figures {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let grouping = crate::common::grouping(&mut rng, n, d, s);
    let view = crate::common::view(&grouping);
    let config = BinsConfig { symbol_max: 16, ..BinsConfig::default() };
    let mut receivers: HashMap<GroupId, Vec<usize>> = HashMap::new();
    let mut nodes: Vec<Node> = Vec::new();
    for (node, ids) in grouping.iter().enumerate() {
        ids.iter().for_each(|&id| receivers.entry(id).or_default().push(node));
        let groups = crate::common::groups(ids, 5);
        let bins = crate::common::bins(config, node as u32, &groups, &view, &mut rng);
        nodes.push(Node {
            groups,
            bins,
            held: HashSet::new(),
            lost_at: HashMap::new(),
            unusable: Vec::new(),
        });
    }
    let mut ids: Vec<GroupId> = receivers.keys().copied().collect();
    ids.sort_unstable();
    let rate = n as f64 * 1_000.0 / s as f64;
    let mut latencies_us = Vec::new();
    let (mut lost, mut data, mut repairs) = (0, 0u64, 0u64);
    // Losses at the end have no time to be recovered, and do not count.
    let (last, end_us) = ((rate * seconds) as u32, (seconds * 1e6) as u64);
    let mut outgoing: Vec<(usize, Vec<Name>)> = Vec::new();
    for seq in 0..last {
        let now_us = (f64::from(seq) / rate * 1e6) as u64;
        let group = ids[(rng.next_u64() % ids.len() as u64) as usize];
        let name = Name { sender: NodeId(u32::MAX), group: group.tag(), seq };
        for &at in &receivers[&group] {
            let node = &mut nodes[at];
            if rng.next_u32() % 100 == 0 {
                if now_us + 1_000_000 < end_us {
                    lost += 1;
                    node.lost_at.insert(name, now_us);
                }
                continue;
            }
            data += 1;
            node.held.insert(name);
            let index = node.groups.index(group).unwrap();
            let packet = Packet { group: index, name, symbol: &[&seq.to_be_bytes()] };
            node.bins
                .push(now_us, &packet, &mut rng, &mut |repair| {
                    let names = repair.names.to_vec();
                    outgoing.extend(repair.targets.iter().map(|target| (target.0 as usize, names.clone())));
                })
                .unwrap();
        }
        repairs += outgoing.len() as u64;
        for (target, names) in outgoing.drain(..) {
            // A repair is lost like any other packet.
            if rng.next_u32() % 100 != 0 {
                recover(&mut nodes[target], names, now_us, &mut latencies_us);
            }
        }
    }
    latencies_us.sort_unstable();
    let counts = nodes.iter().map(|node| *node.bins.counts());
    let (additions, packets) = counts.fold((0, 0), |(additions, packets), counts| {
        (additions + counts.additions, packets + counts.packets)
    });
    Figures {
        lost,
        recovered_percent: 100.0 * latencies_us.len() as f64 / lost as f64,
        mean_ms: latencies_us.iter().sum::<u64>() as f64 / latencies_us.len() as f64 / 1e3,
        median_ms: latencies_us[latencies_us.len() / 2] as f64 / 1e3,
        overhead_percent: 100.0 * repairs as f64 / (repairs + data) as f64,
        additions_per_packet: additions as f64 / packets as f64,
    }
}

/// Recovers the packets that a repair allows to recover, also by earlier repairs.
fn recover(node: &mut Node, names: Vec<Name>, now_us: u64, latencies_us: &mut Vec<u64>) {
    node.unusable.push(names);
    let mut next = node.unusable.len() - 1;
    while next < node.unusable.len() {
        let mut missing = node.unusable[next].iter().filter(|name| !node.held.contains(*name));
        let (first, second) = (missing.next().copied(), missing.next());
        if second.is_some() {
            next += 1;
            continue;
        }
        node.unusable.swap_remove(next);
        if let Some(recovered) = first {
            node.held.insert(recovered);
            latencies_us.extend(node.lost_at.remove(&recovered).map(|lost_us| now_us - lost_us));
            next = 0;
        }
    }
}

#[test]
fn nodes_in_many_groups_recover_each_others_losses() {
    // The paper's settings, n = 64, s = 10, (8,5), 1 % uniform loss, in a shorter run.
    for d in [16, 128, 1_024] {
        let figures = run(64, d, 10, 5.0, 1);
        println!("d = {d}: {figures:?}");
        assert!(figures.lost > 1_000);
        assert!(figures.recovered_percent > 98.5, "d = {d}: {figures:?}");
        // Repairs are c/(r + c) = 38.5 % of all packets that arrive, and fewer where a group has less than c
        // other members.
        assert!((36.0..39.0).contains(&figures.overhead_percent), "d = {d}: {figures:?}");
        assert!(figures.additions_per_packet <= 5.0, "d = {d}: {figures:?}");
        // Half of the losses wait for a few packets of all groups; a few that wait for long dominate the
        // mean.
        assert!(figures.median_ms < 5.0 && figures.mean_ms < 20.0, "d = {d}: {figures:?}");
    }
}

#[test]
fn the_content_of_repairs_does_not_change_their_names() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let grouping = crate::common::grouping(&mut rng, 16, 12, 6);
    let (groups, view) = (crate::common::groups(&grouping[0], 5), crate::common::view(&grouping));
    let names = |content| {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let config = BinsConfig { content, ..BinsConfig::default() };
        let mut bins = crate::common::bins(config, 0, &groups, &view, &mut rng);
        let mut seen = Vec::new();
        for seq in 0..5_000 {
            let (index, group) = groups.iter().nth(seq as usize * 5 % groups.len()).unwrap();
            let name = Name { sender: NodeId(7), group: group.id.tag(), seq };
            let mut emit = |repair: ricochet_core::bins::Outgoing<'_>| {
                seen.push((repair.names.to_vec(), repair.targets.to_vec()));
            };
            let packet = Packet { group: index, name, symbol: &[b"symbol"] };
            // Slowly, since digests name more packets where they come densely.
            let now_us = u64::from(seq) * 1_000;
            bins.push(now_us, &packet, &mut rng, &mut emit).unwrap();
        }
        seen
    };
    assert!(!names(Content::Xor).is_empty());
    assert_eq!(names(Content::Xor), names(Content::Names), "the same random seed makes the same repairs");
}
