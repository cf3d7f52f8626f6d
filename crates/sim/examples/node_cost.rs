//! Cost of one received packet, and of a change of the view, for a whole node: by the clock, or under
//! `valgrind --tool=callgrind`.
//!
//! `node_cost [GROUPS_PER_NODE] [PACKETS] [LOSS_PERCENT] [papers|prompt]`, by default for 2, 16, 128 and
//! 1,024 groups per node. There are 64 nodes in groups of ten on average, drawn as in the papers, and
//! 1,024-byte packets at (8,5), 1,000 per second, of which 1 % are lost. The datagrams for one node,
//! including the repairs of its neighbours, are made in advance and pass through `Node::handle_datagram`. Its
//! own repairs are written and counted. All costs are per received data packet. Under callgrind, pass
//! `--toggle-collect='*measured*'` to count that part alone.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

use std::hint::black_box;
use std::time::Instant;

use ricochet_core::message::{Message, Origin, Output, To};
use ricochet_core::tracker::Lost;
use ricochet_core::{GroupId, Node, NodeConfig, NodeId, View};
use sim::neighbours::{Lan, NODES, Trace, Traffic};

/// 1,000 packets per second.
const BETWEEN_US: u64 = 1_000;
/// Number of data packets made at a time: enough to evict the neighbours from the caches.
const CHUNK: usize = 2_048;
/// Number of packets until buffers and tables reach their final size.
const WARM_UP: usize = 5 * CHUNK;
/// The measured node.
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
        println!("{} groups per node cost {:.2} times as much as {}", ds[ds.len() - 1], last / first, ds[0]);
    }
}

/// Returns nanoseconds per data packet, the median of all chunks.
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
    // Other work on the machine delays some of them.
    times_ns.sort_by(f64::total_cmp);
    let (least_ns, nanoseconds) = (times_ns[0], times_ns[times_ns.len() / 2]);
    println!(
        "  per packet: {nanoseconds:.0} ns, minimum {least_ns:.0}; {:.3} XORs, {:.3} repairs sent, {:.3} received; {:.2} % recovered of {} lost",
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

/// Prints the time of view changes: a neighbour leaves and returns.
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
        "{NODES} nodes, {groups} groups per node: {} regions, {} lanes",
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
        node.handle_datagram(*now_us, Origin::Member, &trace.bytes[place.clone()], out);
    }
}

/// Counts a node's output and discards it.
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
