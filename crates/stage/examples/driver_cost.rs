//! Cost of one received packet for the thread of a node on real sockets, including system calls.
//!
//! `driver_cost [GROUPS_PER_NODE|all] [PACKETS] [PER_SECOND] [papers|prompt]`, by default for 2 and for 1,024
//! groups per node, 200,000 packets, 50,000 per second; see `src/nodes/cost.rs`. It needs permission to make
//! namespaces.

use std::error::Error;

use stage::nodes::{CostPlan, cost};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let ds = match arguments.next().as_deref() {
        None => vec![2, 1_024],
        Some("all") => vec![2, 16, 128, 1_024],
        Some(d) => vec![d.parse()?],
    };
    let packets = arguments.next().map_or(Ok(200_000), |n| n.parse())?;
    let per_second = arguments.next().map_or(Ok(50_000), |n| n.parse())?;
    let papers = arguments.next().is_none_or(|name| name == "papers");
    if !netlab::privilege::namespaces_or_skip("driver_cost") {
        return Ok(());
    }
    let mut costs_us = Vec::new();
    for &d in &ds {
        costs_us.push(measure(&CostPlan { groups_per_node: d, packets, per_second, papers })?);
    }
    if let [first, .., last] = costs_us[..] {
        println!("{} groups per node cost {:.2} times as much as {}", ds[ds.len() - 1], last / first, ds[0]);
    }
    Ok(())
}

/// Measures and prints; returns microseconds of processor time per data packet.
fn measure(plan: &CostPlan) -> Result<f64, Box<dyn Error>> {
    let cost = cost(plan)?;
    println!("{} groups per node:", plan.groups_per_node);
    println!(
        "  per packet: {:.2} us of the node's thread; {} delivered, {} overflowed, {} dropped in the ring; {:.0} % of a core",
        cost.us_per_packet,
        cost.delivered,
        cost.overflowed,
        cost.dropped,
        100.0 * cost.core_share,
    );
    if cost.fell_behind() {
        println!(
            "  the node fell behind, so this does not measure its cost; give it a core of its own or fewer packets per second"
        );
    }
    if cost.no_room > 0 {
        println!("  {} packets belonged to streams that it had no space for", cost.no_room);
    }
    println!(
        "  per packet: {:.3} repairs sent, {:.3} received, {:.2} XORs",
        cost.repairs_sent, cost.repairs_received, cost.xors
    );
    Ok(cost.us_per_packet)
}
