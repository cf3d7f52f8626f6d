//! What one received packet, and a change of the view, cost a whole node: for a stopwatch, and for
//! `valgrind --tool=callgrind`.
//!
//! `node_cost [GROUPS_PER_NODE] [PACKETS] [LOSS_PERCENT] [papers|prompt]`, without arguments for 2, 16, 128 and 1,024
//! groups a node: 64 nodes, groups of ten on average drawn as in the papers, 1,024-byte packets at (8,5), a thousand a
//! second, 1 % of them lost. All that comes to one node is made beforehand, the repairs of its neighbours included, and goes through
//! `Node::handle_datagram`; its own repairs are written and counted. Everything is counted for each data packet that came. Under
//! callgrind, pass `--toggle-collect='*measured*'` to count that part alone.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

use std::hint::black_box;
use std::time::Instant;

use ricochet_core::message::{Message, Output, To};
use ricochet_core::tracker::Lost;
use ricochet_core::{GroupId, Node, NodeConfig, NodeId, View};
use sim::neighbours::{Lan, NODES, Trace, Traffic};

/// A thousand packets a second.
const BETWEEN_US: u64 = 1_000;
/// Data packets made at a time: enough that the caches forget the neighbours soon.
const CHUNK: usize = 2_048;
/// Until buffer and tables are as full as they get.
const WARM_UP: usize = 5 * CHUNK;
/// Whose cost it is.
const ME: u32 = 0;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let d = arguments.next().map(|d| d.parse().expect("GROUPS_PER_NODE is a number"));
    let packets: usize = arguments.next().map_or(200_000, |n| n.parse().expect("PACKETS is a number"));
    let loss: f64 = arguments.next().map_or(1.0, |n| n.parse().expect("LOSS_PERCENT is a number"));
    let config = match arguments.next().as_deref() {
        None | Some("papers") => NodeConfig::new(NodeId(ME)),
        Some("prompt") => NodeConfig::prompt(NodeId(ME)),
        Some(other) => panic!("expected papers or prompt, saw {other}"),
    };
    let ds: Vec<usize> = d.map_or(vec![2, 16, 128, 1_024], |d| vec![d]);
    let costs_ns: Vec<f64> = ds.iter().map(|&d| cost(d, packets, loss / 100.0, config)).collect();
    if let [first, .., last] = costs_ns[..] {
        println!("{} groups a node cost {:.2} times what {} do", ds[ds.len() - 1], last / first, ds[0]);
    }
}

/// Returns nanoseconds for each data packet, the median of all chunks.
fn cost(d: usize, packets: usize, loss: f64, config: NodeConfig) -> f64 {
    let all: Vec<GroupId> =
        (0..Lan::groups_of(d) as u64).map(|id| GroupId(id.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let ids = (0..NODES as u32).map(NodeId).collect();
    let traffic = Traffic { loss, between_us: BETWEEN_US, max_delay_us: config.max_delay_us };
    let mut lan = Lan::new(d, &all, ids, traffic);
    let mut node =
        Node::new(config, lan.groups.clone(), &lan.view, 1).expect("the configuration is in range");
    let (mut counted, mut trace) = (Counted::default(), Trace::default());
    change_often(&mut node, &mut lan, &mut counted);
    for _ in 0..WARM_UP / CHUNK {
        lan.record(&mut trace, CHUNK);
        replay(&mut node, &trace, &mut counted);
    }
    let (before, bins_before) = (*node.counts(), *node.bins().counts());
    let (mut times_ns, mut data) = (Vec::new(), 0);
    for _ in 0..packets.div_ceil(CHUNK) {
        lan.record(&mut trace, CHUNK);
        data += trace.data;
        let start = Instant::now();
        measured(&mut node, &trace, &mut counted);
        times_ns.push(start.elapsed().as_secs_f64() * 1e9 / trace.data as f64);
    }
    let (after, bins) = (node.counts(), node.bins().counts());
    let per_packet = |now: u64, then: u64| (now - then) as f64 / data as f64;
    // What else runs on the machine stretches some of them.
    times_ns.sort_by(f64::total_cmp);
    let (least_ns, nanoseconds) = (times_ns[0], times_ns[times_ns.len() / 2]);
    println!(
        "  a packet: {nanoseconds:.0} ns, at the least {least_ns:.0}; {:.3} XORs, {:.3} repairs sent, {:.3} received; {:.2} % recovered of {} lost",
        per_packet(bins.additions, bins_before.additions),
        per_packet(after.repairs_sent, before.repairs_sent),
        per_packet(after.repairs, before.repairs),
        (after.repaired - before.repaired) as f64 * 100.0
            / (after.discovered - before.discovered).max(1) as f64,
        after.discovered - before.discovered,
    );
    println!("  {} data packets measured, {} delivered in all", data, counted.delivered);
    nanoseconds
}

/// A neighbour goes and comes back: prints how long each change takes.
fn change_often(node: &mut Node, lan: &mut Lan, out: &mut Counted) {
    let gone = NodeId(NODES as u32 - 1);
    let member = lan.view.member(gone).expect("it is there").clone();
    let mut times_us: Vec<f64> = (0..21)
        .map(|round| {
            if round % 2 == 0 {
                lan.view.remove(gone)
            } else {
                lan.view.set(member.clone())
            };
            let start = Instant::now();
            changed(node, &lan.view, out);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    lan.view.set(member);
    node.change_view(&lan.view, out);
    times_us.sort_by(f64::total_cmp);
    let (bins, groups) = (node.bins(), lan.groups.len());
    println!(
        "{NODES} nodes, {groups} groups a node: {} regions, {} lanes",
        bins.regions().len(),
        bins.lanes()
    );
    println!("  memory of the bins: {} KiB", node.bins().memory_bytes() / 1024);
    println!("  view change: median {:.0} us, slowest {:.0} us", times_us[10], times_us[20]);
}

#[inline(never)]
fn changed(node: &mut Node, view: &View, out: &mut Counted) {
    node.change_view(view, out);
}

#[inline(never)]
fn measured(node: &mut Node, trace: &Trace, out: &mut Counted) {
    replay(node, trace, out);
}

#[inline(always)]
fn replay(node: &mut Node, trace: &Trace, out: &mut Counted) {
    for (now_us, place) in &trace.datagrams {
        if node.poll_timeout().is_some_and(|due_us| due_us <= *now_us) {
            node.handle_timeout(*now_us, out);
        }
        node.handle_datagram(*now_us, &trace.bytes[place.clone()], out);
    }
}

/// What a node wants done, looked at and forgotten.
#[derive(Default)]
struct Counted {
    sent: u64,
    delivered: u64,
}

impl Output for Counted {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.sent += 1;
        black_box((to, datagram));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        self.delivered += 1;
        black_box(message);
    }

    fn on_lost(&mut self, lost: &Lost) {
        black_box(lost);
    }
}
