//! Packets that only a node beyond a cut of the network holds, beside those that nobody holds.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::message::Origin;
use ricochet_core::wire::{Heartbeat, Latest};
use ricochet_core::{GroupId, Member, NodeConfig, NodeId, View};

use crate::common::net::{Net, NetworkConditions};

const GROUP: GroupId = GroupId(7);
const SECOND_US: u64 = 1_000_000;

/// Returns the number of seeds: a few, or as many as the environment says.
fn seeds(few: u64) -> u64 {
    std::env::var("CUT_SEEDS").map_or(few, |seeds| seeds.parse().expect("a number"))
}

/// View that the others have of the sender that is cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// It stays a member.
    Suspected,
    /// The membership declares it dead, and takes it back after the cut.
    Dead,
    /// It has said that it leaves.
    Left,
}

/// A group of which node 0 is cut off, with packets that only it holds, and of which all others know.
struct Cut {
    net: Net,
    nodes: usize,
    /// Packets of node 0.
    sent: u32,
    cut_us: u64,
}

impl Cut {
    /// Cuts node 0 off from the others. Each packet enters `c` repairs at each receiver.
    fn new((nodes, c): (usize, u8), hidden: u32, loss: f64, seed: u64) -> Self {
        let conditions =
            NetworkConditions { data_loss: loss, other_loss: loss, ..NetworkConditions::default() };
        let grouping = vec![vec![GROUP]; nodes];
        let mut net = Net::new(&grouping, c, conditions, seed, |config| NodeConfig::prompt(config.id));
        for number in 0..20_u32 {
            net.multicast(0, GROUP, &number.to_be_bytes());
            net.advance(2_000);
        }
        net.advance(SECOND_US);
        net.side[0] = 1;
        // Every second one of the last packets has come, and the others are missing one by one.
        let sent = 20 + 2 * hidden;
        for number in 20..sent {
            net.side[0] = u8::from(number % 2 == 0);
            net.multicast(0, GROUP, &number.to_be_bytes());
            net.side[0] = 1;
        }
        let latest = [Latest { group: GROUP, seq: sent - 1 }];
        let beat = Heartbeat { sender: NodeId(0), sender_seq: sent - 1, latest: &latest };
        let beat = crate::common::written(|to| beat.write(to));
        (1..nodes).for_each(|node| net.forge(node, Origin::Member, &beat));
        Self { cut_us: net.now_us, net, nodes, sent }
    }

    fn change_views(&mut self, with_sender: bool) {
        let others = || (1..self.nodes).map(|node| Member::new(NodeId(node as u32), vec![GROUP]));
        let me = Member::new(NodeId(0), vec![GROUP]);
        let view = View::new(others().chain(with_sender.then(|| me.clone())));
        (1..self.nodes).for_each(|node| self.net.change_view(node, &view));
        let view = if with_sender { View::new(others().chain([me])) } else { View::new([me]) };
        self.net.change_view(0, &view);
    }

    fn judge(&mut self, verdict: Verdict) {
        if verdict != Verdict::Suspected {
            self.change_views(false);
        }
        if verdict == Verdict::Left {
            (1..self.nodes).for_each(|node| self.net.nodes[node].on_left(NodeId(0)));
        }
    }

    /// Advances the time to one since the cut, while another node sends.
    fn advance_to(&mut self, after_us: u64) {
        while self.net.now_us < self.cut_us + after_us {
            self.net.multicast(1, GROUP, b"other traffic");
            self.net.advance(100_000);
        }
    }

    /// Returns the numbers of packets of node 0 that a node got, and that it reported as lost.
    fn fates(&self, node: usize) -> (usize, usize) {
        let application = &self.net.applications[node];
        let got = application.got.keys().filter(|packet| packet.0 == NodeId(0)).count();
        let lost = application.lost.iter().filter(|packet| packet.0 == NodeId(0)).count();
        (got, lost)
    }

    fn requests(&self) -> u64 {
        (1..self.nodes).map(|node| self.net.nodes[node].counts().requests_sent).sum()
    }
}

#[test]
fn what_a_node_beyond_a_cut_holds_comes_back_after_the_cut() {
    for seed in 0..seeds(6) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |end: u64| rng.next_u64() % end;
        let (nodes, hidden) = (3 + below(10) as usize, 1 + below(16) as u32);
        let loss = [0.0, 0.02, 0.1][below(3) as usize];
        let verdict = [Verdict::Suspected, Verdict::Dead][below(2) as usize];
        // Pauses are no longer than the time for which packets have been missing.
        let longest_us = if verdict == Verdict::Dead { 8 * SECOND_US } else { 4 * SECOND_US };
        let until_us = SECOND_US / 2 + below(longest_us);
        let mut cut = Cut::new((nodes, 3), hidden, loss, seed);
        cut.advance_to(until_us.min(3 * SECOND_US / 2));
        cut.judge(verdict);
        let what =
            format!("seed {seed}: {nodes} nodes, {hidden} packets, loss {loss}, {verdict:?}, {until_us} us");
        let requests_before = cut.requests();
        cut.advance_to(until_us);
        let requests = cut.requests() - requests_before;
        // Of each packet, each node asks the sender 64 times, and after each pause all others.
        let bound = (nodes as u64 - 1) * u64::from(hidden) * (64 + 16 * (nodes as u64 - 1));
        assert!(requests < bound, "{what}: {requests} requests");
        cut.net.side[0] = 0;
        if verdict == Verdict::Dead {
            cut.advance_to(until_us + SECOND_US);
            cut.change_views(true);
            cut.advance_to(until_us + 2 * SECOND_US);
        } else {
            cut.advance_to(2 * until_us + SECOND_US);
        }
        for node in 1..nodes {
            assert_eq!(cut.fates(node), (cut.sent as usize, 0), "{what}, node {node}");
        }
    }
}

#[test]
fn what_nobody_holds_is_told_at_once_if_its_sender_has_left_else_when_its_time_is_over() {
    for seed in 0..seeds(4) {
        for (verdict, from_us, until_us) in [
            (Verdict::Left, SECOND_US / 2, 3 * SECOND_US),
            (Verdict::Dead, 9 * SECOND_US, 11 * SECOND_US),
            (Verdict::Suspected, 9 * SECOND_US, 11 * SECOND_US),
        ] {
            let loss = [0.0, 0.02][seed as usize % 2];
            let hidden = 1 + seed as u32 % 16;
            let mut cut = Cut::new((4 + seed as usize % 7, 3), hidden, loss, seed);
            cut.net.down.insert(0);
            cut.judge(verdict);
            cut.advance_to(from_us.min(400_000));
            let told = |cut: &Cut| (1..cut.nodes).map(|node| cut.fates(node).1).collect::<Vec<_>>();
            assert_eq!(told(&cut), vec![0; cut.nodes - 1], "seed {seed}, {verdict:?}: not at once");
            if verdict != Verdict::Left {
                cut.advance_to(from_us);
                assert_eq!(told(&cut), vec![0; cut.nodes - 1], "seed {seed}, {verdict:?}: too early");
            }
            cut.advance_to(until_us);
            assert_eq!(told(&cut), vec![hidden as usize; cut.nodes - 1], "seed {seed}, {verdict:?}");
        }
    }
}

#[test]
fn in_a_large_group_requests_are_bounded_and_a_single_holder_is_found() {
    for seed in 0..seeds(1) {
        let mut cut = Cut::new((100, 0), 1, 0.0, seed);
        cut.net.down.insert(0);
        let before = cut.requests();
        cut.advance_to(4 * SECOND_US);
        let requests = (cut.requests() - before) / 99;
        assert!((64..64 + 16 * 64).contains(&requests), "seed {seed}: {requests} requests of each node");
        assert_eq!(cut.fates(1), (21, 0));

        let mut cut = Cut::new((100, 0), 1, 0.0, seed);
        cut.net.down.insert(0);
        let payload = 20_u32.to_be_bytes();
        let hidden = crate::common::packet(NodeId(0), GROUP, 20, &payload);
        cut.net.forge(7, Origin::Member, &crate::common::written(|to| hidden.write(to)));
        cut.advance_to(SECOND_US);
        (1..100).for_each(|node| assert_eq!(cut.fates(node), (22, 0), "seed {seed}, node {node}"));
    }
}
