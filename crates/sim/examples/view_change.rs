//! Time that a change of the view takes at one node of a large cluster, by the clock: at once, and if another
//! thread makes the plan. `view_change [CHANGES]`
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

use std::time::Instant;

use ricochet_core::message::{Message, Output, SendOptions, To};
use ricochet_core::tracker::Lost;
use ricochet_core::{FlowConfig, Follow, GroupConfig, Groups, Member, Node, NodeConfig, NodeId, View};
use sim::grouping;

struct Nowhere;

impl Output for Nowhere {
    fn send(&mut self, _: To, _: &[u8]) {}

    fn deliver(&mut self, _: &Message<'_>) {}

    fn on_lost(&mut self, _: &Lost) {}
}

fn main() {
    let changes = std::env::args().nth(1).map_or(21, |changes| changes.parse().expect("CHANGES is a number"));
    println!(
        "| nodes | groups each | members | regions | at once, ms | made aside, ms | held up meanwhile, ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (nodes, groups, members) in [(64, 16, 10), (256, 64, 64), (1_000, 128, 10), (1_000, 128, 128)] {
        measure((nodes, groups, members), changes);
    }
}

/// Measures nodes that are in as many groups each, of as many members.
fn measure((nodes, groups, members): (usize, usize, usize), changes: usize) {
    let grouping = grouping(nodes, groups, members, 1);
    let member = |(id, groups): (usize, &Vec<_>)| Member::new(NodeId(id as u32), groups.clone());
    let mut view = View::new(grouping.iter().enumerate().map(member));
    let of_node: Vec<_> = grouping[0].iter().map(|&id| GroupConfig { id, c: 3 }).collect();
    let own = Groups::new(of_node).expect("the groups are distinct");
    let mut node =
        Node::new(NodeConfig::prompt(NodeId(0)), own, &view, 1).expect("the settings are in range");
    let flow = FlowConfig { follow: Follow::All, window: 2_048, ..FlowConfig::default() };
    node.set_flow(flow, &view).expect("flow control is in range");
    for &group in &grouping[0] {
        node.multicast(0, group, b"x", SendOptions::default(), &mut Nowhere).expect("it fits");
    }
    // A neighbour leaves and returns.
    let gone = (1..nodes).find(|&at| grouping[at].contains(&grouping[0][0])).expect("groups have members");
    let gone = view.member(NodeId(gone as u32)).expect("it is there").clone();
    let (mut at_once, mut aside, mut held_up) = (Vec::new(), Vec::new(), Vec::new());
    for change in 0..changes {
        if change % 2 == 0 {
            view.remove(gone.id());
        } else {
            view.set(gone.clone());
        }
        let next = view.clone();
        let start = Instant::now();
        let planner = node.planner(&next);
        node.learn_view(&next);
        let learnt = start.elapsed();
        let start = Instant::now();
        let planned = planner.plan();
        aside.push(start.elapsed());
        let start = Instant::now();
        assert!(node.adopt(planned, &mut Nowhere), "the groups are the same");
        held_up.push(learnt + start.elapsed());
        let start = Instant::now();
        node.change_view(&next, &mut Nowhere);
        at_once.push(start.elapsed());
    }
    let [at_once, aside, held_up] = [at_once, aside, held_up].map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    });
    let regions = node.bins().regions().len();
    println!("| {nodes} | {groups} | {members} | {regions} | {at_once:.2} | {aside:.2} | {held_up:.2} |");
}
