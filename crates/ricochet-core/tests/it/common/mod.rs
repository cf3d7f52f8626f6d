//! Groupings as in the papers: n nodes, d groups per node, s nodes per group (Ricochet §5).
#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod flights;
pub(crate) mod net;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;
use ricochet_core::bins::{Bins, BinsConfig};
use ricochet_core::wire::{Answer, Data, Datagram, Extras, Question};
use ricochet_core::{GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};

/// Returns the groups of each node: d of g = n·d/s at random.
pub(crate) fn grouping(rng: &mut ChaCha8Rng, n: usize, d: usize, s: usize) -> Vec<Vec<GroupId>> {
    let all: Vec<GroupId> =
        (0..n * d / s).map(|id| GroupId((id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    (0..n)
        .map(|_| {
            // The first d groups of a shuffle.
            let mut groups = all.clone();
            for at in 0..d.min(all.len()) {
                let other = at + (rng.next_u64() % (all.len() - at) as u64) as usize;
                groups.swap(at, other);
            }
            groups.truncate(d);
            groups
        })
        .collect()
}

/// Returns a data packet that neither expires nor is a fragment.
pub(crate) fn packet(sender: NodeId, group: GroupId, seq: u32, payload: &[u8]) -> Data<'_> {
    let extras = Extras::NONE;
    Data {
        sender,
        group,
        seq,
        sender_seq: seq,
        expires: false,
        fragment: false,
        joint: false,
        extras,
        payload,
    }
}

/// Returns the datagram that `write` writes.
pub(crate) fn written(write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut datagram = vec![0; 1_500];
    let length = write(&mut datagram);
    datagram.truncate(length);
    datagram
}

/// Returns the honest answer to a datagram, if it is a question, of a sender whose newest packet is `newest`.
pub(crate) fn answer(sender: NodeId, datagram: &[u8], newest: Option<u32>) -> Option<Vec<u8>> {
    let Ok(Datagram::Question(Question { token, group, .. })) = Datagram::read(datagram) else { return None };
    Some(written(|to| Answer { sender, token, group, newest }.write(to)))
}

/// Returns the complete view.
pub(crate) fn view(grouping: &[Vec<GroupId>]) -> View {
    View::new(
        grouping.iter().enumerate().map(|(node, groups)| Member::new(NodeId(node as u32), groups.clone())),
    )
}

/// Returns the groups of one node, all with the same c.
pub(crate) fn groups(of_node: &[GroupId], c: u8) -> Groups {
    let configs: Vec<_> = of_node.iter().map(|&id| GroupConfig { id, c }).collect();
    Groups::new(configs).expect("the ids are distinct")
}

/// Returns the regions and the plan of one node.
pub(crate) fn planned(node: u32, groups: &Groups, view: &View) -> (Regions, Plan) {
    let regions = Regions::new(NodeId(node), groups, view);
    let plan = Plan::new(groups, &regions);
    (regions, plan)
}

/// Returns the bins of one node.
pub(crate) fn bins(
    config: BinsConfig,
    node: u32,
    groups: &Groups,
    view: &View,
    rng: &mut ChaCha8Rng,
) -> Bins {
    let (regions, plan) = planned(node, groups, view);
    Bins::new(config, regions, plan, rng).expect("the configuration is in range")
}
