//! What one received packet costs the thread of a node on real sockets, system calls included.
//!
//! `driver_cost [GROUPS_PER_NODE|all] [PACKETS] [PER_SECOND] [papers|prompt]`, without arguments for 2 and for 1,024 groups a
//! node, 200,000 packets, 50,000 a second; see `src/cost.rs`. Needs the right to make namespaces.

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
        costs_us.push(tell(&CostPlan { groups_per_node: d, packets, per_second, papers })?);
    }
    if let [first, .., last] = costs_us[..] {
        println!("{} groups a node cost {:.2} times what {} do", ds[ds.len() - 1], last / first, ds[0]);
    }
    Ok(())
}

/// Returns microseconds of processor time for each data packet.
fn tell(plan: &CostPlan) -> Result<f64, Box<dyn Error>> {
    let cost = cost(plan)?;
    println!("{} groups a node:", plan.groups_per_node);
    println!(
        "  a packet: {:.2} us of the node's thread; {} delivered, {} overflowed, {} dropped in the ring; {:.0} % of a core",
        cost.us_per_packet,
        cost.delivered,
        cost.overflowed,
        cost.dropped,
        100.0 * cost.core_share,
    );
    if cost.fell_behind() {
        println!(
            "  the node fell behind, so this is no figure of its cost: give it a core of its own or fewer packets a second"
        );
    }
    if cost.no_room > 0 {
        println!("  {} packets were of streams that it had no room for", cost.no_room);
    }
    println!(
        "  {:.3} repairs sent, {:.3} received for each, {:.2} XORs",
        cost.repairs_sent, cost.repairs_received, cost.xors
    );
    Ok(cost.us_per_packet)
}
